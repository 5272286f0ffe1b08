"""Intervals with symbolic ends, and relaxing expressions over a domain of variables.

A variable of the domain goes to the end of its range that the sign of its coefficient asks for;
divisions, minima and conditional values are bounded part by part. ``Analyzer.int_set`` and
``region_bound`` are built on this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith.bounds import NEG_INF, POS_INF
from tilewright.arith.polynomial import (
    DIV,
    MAX,
    MIN,
    MOD,
    VAR,
    Poly,
    constant_of,
    linear_in,
    poly_add,
    poly_atoms,
    poly_mul,
    poly_scale,
    poly_sub,
)
from tilewright.arith.simplify import Simplifier
from tilewright.ir import (
    INDEX,
    Broadcast,
    Call,
    Expr,
    IntImm,
    Ramp,
    Range,
    Select,
    Var,
    as_expr,
    lane_count,
    pre_order,
)
from tilewright.ir.dtype import integer_limits
from tilewright.support.errors import VerifyError

Ends = tuple[Poly | None, Poly | None]
_LEAST, _MOST = integer_limits(INDEX)


class IntSet:
    """A set of integers. The only kind here is the interval."""

    __slots__ = ()

    @staticmethod
    def single_point(point: Expr | int) -> IntervalSet:
        """Make the set of one value."""
        return IntervalSet(point, point)

    @staticmethod
    def vector(vec: Expr) -> IntervalSet:
        """Make the interval around the lanes of a ramp of constant stride, or of a broadcast.

        Raises ``VerifyError`` for other vectors.
        """
        if isinstance(vec, Broadcast):
            return IntervalSet(vec.value, vec.value)
        if not isinstance(vec, Ramp) or not isinstance(vec.stride, IntImm):
            raise VerifyError(
                f"IntSet.vector: `{vec!r}` is neither a Ramp of constant stride nor a Broadcast"
            )
        last = vec.base + vec.stride * (lane_count(vec.lanes, vec.base.dtype) - 1)
        ends = (vec.base, last) if vec.stride.value >= 0 else (last, vec.base)
        return IntervalSet(*ends)

    @staticmethod
    def from_min_extent(minimum: Expr | int, extent: Expr | int) -> IntervalSet:
        """Make the interval that starts at ``minimum`` and holds ``extent`` values."""
        return IntervalSet(minimum, as_expr(minimum) + extent - 1)

    @staticmethod
    def nothing() -> IntervalSet:
        """Make the empty set."""
        return IntervalSet(POS_INF, NEG_INF)

    def is_nothing(self) -> bool:
        """Whether the set is known to be empty."""
        raise NotImplementedError(f"{type(self).__name__} must define is_nothing")

    def is_everything(self) -> bool:
        """Whether the set is that of all integers."""
        raise NotImplementedError(f"{type(self).__name__} must define is_everything")


class IntervalSet(IntSet):
    """The closed interval of ``min_value`` to ``max_value``.

    Ends are expressions, or ``NEG_INF`` and ``POS_INF``; ``min`` and ``max`` are short names.
    """

    __slots__ = ("max", "min")

    def __init__(self, min_value: object, max_value: object) -> None:
        self.min: Any = min_value if isinstance(min_value, float) else as_expr(min_value)
        self.max: Any = max_value if isinstance(max_value, float) else as_expr(max_value)

    @property
    def min_value(self) -> Any:
        """The least value: an expression, or ``NEG_INF``."""
        return self.min

    @property
    def max_value(self) -> Any:
        """The greatest value: an expression, or ``POS_INF``."""
        return self.max

    @staticmethod
    def from_range(value: Range) -> IntervalSet:
        """Make the interval of a half-open range."""
        return IntervalSet(value.min, value.min + value.extent - 1)

    @staticmethod
    def everything() -> IntervalSet:
        """Make the interval of all integers."""
        return IntervalSet(NEG_INF, POS_INF)

    @staticmethod
    def point(value: Expr | int) -> IntervalSet:
        """Make the interval of one value."""
        return IntervalSet(value, value)

    @property
    def is_bounded(self) -> bool:
        """Whether both ends are finite."""
        return isinstance(self.min, Expr) and isinstance(self.max, Expr)

    def is_nothing(self) -> bool:
        """Whether the set is known to be empty: its ends are numbers in the wrong order."""
        low = self.min.value if isinstance(self.min, IntImm) else self.min
        high = self.max.value if isinstance(self.max, IntImm) else self.max
        numbers = (int, float)
        return isinstance(low, numbers) and isinstance(high, numbers) and low > high

    def is_everything(self) -> bool:
        """Whether the set is that of all integers."""
        return bool(isinstance(self.min, float) and isinstance(self.max, float)) and not (
            self.is_nothing()
        )

    def to_range(self) -> Range | None:
        """Return the half-open range, or ``None`` if unbounded."""
        if not self.is_bounded:
            return None
        extent = self.max - self.min + 1
        return Range.from_min_extent(self.min, extent)

    def __repr__(self) -> str:
        return f"IntervalSet({self.min!r}, {self.max!r})"


class Relaxer:
    """Bounds polynomials over a domain of variables that are to vanish."""

    def __init__(self, simplifier: Simplifier, domain: Mapping[int, Ends]) -> None:
        self.simplifier = simplifier
        self.comparisons = simplifier.comparisons
        self.canonical = simplifier.canonical
        self.context = simplifier.context
        self.domain = domain
        self._ends: dict[int, Ends] = {}
        self._inside: dict[int, bool] = {}

    def depends(self, number: int) -> bool:
        """Whether an atom holds a variable of the domain."""
        known = self._inside.get(number)
        if known is None:
            table = self.context.table
            operands = table.operands[number]
            if table.kinds[number] == VAR:
                known = number in self.domain
            elif operands is not None:
                known = any(self.depends(a) for operand in operands for a in poly_atoms(operand))
            else:
                expr = table.expr(number)
                known = any(
                    type(item) is Var and table.numbers.get(item) in self.domain
                    for item in pre_order(expr)
                )
            self._inside[number] = known
        return known

    def free(self, a: Poly) -> bool:
        """Whether no variable of the domain is left."""
        return not any(self.depends(number) for number in poly_atoms(a))

    def end(self, a: Poly, upper: bool) -> Poly | None:
        """The least (or greatest) value of ``a`` over the domain, or a bound of it."""
        found = self._linear_end(a, upper)
        if found is not None:
            return found
        for _ in range(64):
            found = self._next(a, upper)
            if found is None:
                return a if self.free(a) else self._const_end(a, upper)
            a = found
        return self._const_end(a, upper)

    def _linear_end(self, a: Poly, upper: bool) -> Poly | None:
        """The end of a sum of multiples of the domain's variables, if these run between numbers.

        Most indices are such sums: one walk instead of one for each variable.
        """
        domain, kinds, number = self.domain, self.context.table.kinds, 0
        rest: Poly = {}
        for mono, value in a.items():
            if len(mono) == 1 and mono[0] in domain:
                low, high = domain[mono[0]]
                end = high if (value > 0) == upper else low
                constant = None if end is None else constant_of(end)
                if constant is None:
                    return None
                number += value * constant
            elif all(kinds[atom] == VAR and atom not in domain for atom in mono):
                rest[mono] = value
            else:
                return None
        number += rest.pop((), 0)
        if number:
            rest[()] = number
        return self.canonical.reduced(rest) if self.context.rules else rest

    def _const_end(self, a: Poly, upper: bool) -> Poly | None:
        limit = self.canonical.bounds.poly(a)[1 if upper else 0]
        if not _LEAST < limit < _MOST:
            return None  # as of an index from memory
        return {(): limit} if limit else {}

    def _next(self, a: Poly, upper: bool) -> Poly | None:
        """Eliminate one atom: the newest first, which holds others or depends on them."""
        for number in sorted(poly_atoms(a), reverse=True):
            if not self.depends(number):
                continue
            split = linear_in(a, number)
            if split is None:
                made = self._power(a, number, upper)
                if made is not None:
                    return made
                continue
            inner, outer = split
            sign = self.canonical.prover.sign(inner)
            if not sign:
                continue
            end = self.ends(number)[1 if (sign > 0) == upper else 0]
            if end is None:
                continue
            return self.canonical.merged(poly_add(poly_mul(inner, end), outer))
        return None

    def _power(self, a: Poly, number: int, upper: bool) -> Poly | None:
        """``x*x`` grows with ``x`` where ``x`` is not negative."""
        ends = self.ends(number)
        low, high = ends
        if low is None or not self.canonical.prover.nonneg(low):
            return None
        inner: Poly = {}
        for mono, value in a.items():
            if number in mono:
                rest = tuple(item for item in mono if item != number)
                sign = self.canonical.prover.sign({rest: value})
                end = high if (sign > 0) == upper else low
                if not sign or end is None:
                    return None
                term: Poly = {rest: value}
                for _ in range(mono.count(number)):
                    term = poly_mul(term, end)
                inner = poly_add(inner, term)
            else:
                inner = poly_add(inner, {mono: value})
        return inner

    def ends(self, number: int) -> Ends:
        """Both ends of an atom over the domain."""
        found = self._ends.get(number)
        if found is None:
            self._ends[number] = (None, None)
            low, high = self._atom_ends(number)
            limits = self.canonical.bounds.atom(number)
            if low is None and limits[0] > _LEAST:
                low = {(): limits[0]} if limits[0] else {}
            if high is None and limits[1] < _MOST:
                high = {(): limits[1]} if limits[1] else {}
            found = self._ends[number] = (low, high)
        return found

    def _atom_ends(self, number: int) -> Ends:
        table = self.context.table
        kind, operands = table.kinds[number], table.operands[number]
        if kind == VAR:
            return self.domain[number]
        if operands is not None:
            low = self.end(operands[0], False), self.end(operands[1], False)
            high = self.end(operands[0], True), self.end(operands[1], True)
            dtype = table.dtypes[number]
            if kind in (MIN, MAX):
                return self._extremum(kind, low, high, dtype)
            if kind == DIV:
                return self._quotient(low[0], high[0], operands[1], dtype)
            if kind == MOD:
                return self._remainder(low[0], high[0], operands[1], dtype)
        expr = table.expr(number)
        if type(expr) is Select:
            return self._either(expr.true_value, expr.false_value)
        if type(expr) is Call and expr.op.name == "if_then_else":
            return self._either(*expr.args[1:])
        return None, None

    def _extremum(self, kind: int, low: Ends, high: Ends, dtype: str) -> Ends:
        """The ends of a minimum or maximum, from the lower and the upper ends of both sides."""
        least, most = (self._joined(kind, *sides, dtype) for sides in (low, high))
        # One side alone bounds a minimum from above and a maximum from below.
        if kind == MIN and most is None:
            most = high[0] if high[1] is None else high[1]
        if kind == MAX and least is None:
            least = low[0] if low[1] is None else low[1]
        return least, most

    def _either(self, *branches: Expr) -> Ends:
        """The ends of what is one of two branches."""
        dtype, polys = branches[0].dtype, [self.simplifier.poly(branch) for branch in branches]
        first, second = ((self.end(poly, False), self.end(poly, True)) for poly in polys)
        return (
            self._joined(MIN, first[0], second[0], dtype),
            self._joined(MAX, first[1], second[1], dtype),
        )

    def _joined(self, kind: int, a: Poly | None, b: Poly | None, dtype: str) -> Poly | None:
        return None if a is None or b is None else self.canonical.minmax(kind, a, b, dtype)

    def _quotient(self, low: Poly | None, high: Poly | None, by: Poly, dtype: str) -> Ends:
        if not self.canonical.positive(by):
            return None, None
        if self.free(by):
            divide = self.canonical.floordiv
            return (
                None if low is None else divide(low, by, dtype),
                None if high is None else divide(high, by, dtype),
            )
        if low is not None and self.canonical.prover.nonneg(low):
            return {}, high
        return None, None

    def _remainder(self, low: Poly | None, high: Poly | None, by: Poly, dtype: str) -> Ends:
        if not self.canonical.positive(by):
            return None, None
        if self.free(by) and low is not None and high is not None:
            first = self.canonical.floordiv(low, by, dtype)
            last = self.canonical.floordiv(high, by, dtype)
            if self.comparisons.equal_zero(poly_sub(first, last)):
                shift = poly_mul(first, by)
                return poly_sub(low, shift), poly_sub(high, shift)
        most = self.end(by, True)
        top = None if most is None else poly_sub(most, {(): 1})
        prover = self.canonical.prover
        if (
            low is not None
            and high is not None
            and prover.nonneg(low)
            and (top is None or prover.nonneg(poly_sub(top, high)))
        ):
            top = high
        return {}, top


def bind_domain(simplifier: Simplifier, domain: Mapping[Var, Any]) -> dict[int, Ends]:
    """Bind the variables of a domain for a simplifier and return their ends."""
    ends: dict[int, Ends] = {}
    context = simplifier.context
    for var, value in domain.items():
        number = context.table.var(var)
        if isinstance(value, IntervalSet):
            low = None if not isinstance(value.min, Expr) else simplifier.poly(value.min)
            high = None if not isinstance(value.max, Expr) else simplifier.poly(value.max)
        else:
            low = simplifier.poly(value.min)
            high = poly_sub(poly_add(low, simplifier.poly(value.extent)), {(): 1})
            least = poly_sub(simplifier.poly(value.extent), {(): 1})
            if constant_of(least) is None:
                simplifier.assumptions.assume_nonneg(least)
        context.substitutions.pop(var, None)
        context.values.pop(var, None)
        context.ranges[number] = (low, high)
        ends[number] = (low, high)
        context.changed()
    return ends


def narrow(relaxer: Relaxer, domain: dict[int, Ends], facts: Sequence[Poly]) -> dict[int, Ends]:
    """Tighten variables by conditions on one variable of the domain: ``i < n``."""
    made = dict(domain)
    minmax = relaxer.canonical.minmax
    for fact in facts:
        inside = [n for n in poly_atoms(fact) if relaxer.depends(n)]
        if len(inside) != 1 or inside[0] not in made:
            continue
        number = inside[0]
        value = fact.get((number,))
        if value not in (1, -1) or any(number in mono and len(mono) > 1 for mono in fact):
            continue
        rest = {mono: k for mono, k in fact.items() if mono != (number,)}
        low, high = made[number]
        if value == 1:  # x + rest >= 0
            bound = poly_scale(rest, -1)
            low = bound if low is None else minmax(MAX, low, bound)
        else:
            high = rest if high is None else minmax(MIN, high, rest)
        made[number] = (low, high)
    return made


def interval_of(relaxer: Relaxer, expr: Expr) -> IntervalSet:
    """Return the interval that ``expr`` covers over a relaxer's domain."""
    known = relaxer.simplifier
    poly = known.canonical.merged(known.poly(expr))
    low = unless_limit(relaxer.end(poly, False), expr.dtype)
    high = unless_limit(relaxer.end(poly, True), expr.dtype)
    first = None if low is None else known.from_poly_or_none(low, expr.dtype)
    last = None if high is None else known.from_poly_or_none(high, expr.dtype)
    return IntervalSet(NEG_INF if first is None else first, POS_INF if last is None else last)


def unless_limit(end: Poly | None, dtype: str) -> Poly | None:
    """An end, or ``None`` for one at a limit of the dtype or beyond, as of indices from memory."""
    constant = None if end is None else constant_of(end)
    if constant is None:
        return end
    low, high = integer_limits(dtype)
    return end if low < constant < high else None
