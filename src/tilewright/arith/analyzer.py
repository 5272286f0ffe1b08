"""The analyzer: one object that simplifies, bounds and proves in a context of known facts.

Passes and schedule primitives make one, bind the loop variables they go under, enter the conditions
they know, and ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tilewright.arith.bounds import (
    EVERYTHING,
    NEG_INF,
    POS_INF,
    ConstIntBound,
    dtype_interval,
)
from tilewright.arith.canonical import ARITHMETIC_DTYPES, OpaqueOperand
from tilewright.arith.context import Context
from tilewright.arith.data import holds_data
from tilewright.arith.intervals import IntervalSet, IntSet, Relaxer, bind_domain, interval_of
from tilewright.arith.modular import ModularSet, residue_intersect
from tilewright.arith.options import CompareResult, Extension, ProofStrength
from tilewright.arith.polynomial import (
    Poly,
    Polynomial,
    constant_of,
    poly_add,
    poly_scale,
    poly_sub,
)
from tilewright.arith.simplify import Simplifier
from tilewright.ir import (
    TRUE,
    Add,
    Expr,
    ExprLike,
    FloatImm,
    FloorDiv,
    IntImm,
    Min,
    Mul,
    Range,
    Sub,
    Var,
    as_expr,
    dtypes,
)
from tilewright.support.errors import VerifyError

_ALWAYS_ON = Extension.TransitivelyProveInequalities | Extension.ApplyConstraintsToBooleanBranches


def _ends(info: Any) -> tuple[Any, Any]:
    return info.min, info.max


class Analyzer:
    """Simplifies and proves, knowing the variables bound and the conditions entered.

    Index arithmetic (``int32``, ``int64``) is taken to be free of overflow; integers of data wrap
    (see ``arith.data``).

    >>> analyzer = Analyzer()
    >>> analyzer.bind(i, Range(0, 16))
    >>> analyzer.simplify((i + 16 * j) // 16)
    j
    """

    def __init__(self) -> None:
        self._context = Context()
        self._simplifier = Simplifier(self._context, self)
        self._canonical = self._simplifier.canonical
        self._context.bound_of = self._bound_of
        self._context.residue_of = self._residue_of

    def clone(self) -> Analyzer:
        """Return an analyzer that knows the same and learns on its own."""
        return self.copy()

    def copy(self) -> Analyzer:
        """Return an analyzer that knows the same and learns on its own."""
        made = Analyzer()
        self._context.copy_state_to(made._context)
        return made

    # ---- knowledge --------------------------------------------------------------------------

    def bind(
        self,
        var: Var,
        expr: Expr | Range | int,
        allow_override: bool = False,
        *,
        override: bool = False,
    ) -> None:
        """Bind a variable to a value, or to a range that it runs through.

        Inside a loop its extent is at least one, which is learnt too. ``override`` is another name
        of ``allow_override``.

        Raises ``VerifyError`` if the variable is bound already and ``allow_override`` isn't set.
        """
        value, override = expr, override or allow_override
        context = self._context
        number = context.table.var(var)
        if not override and (var in context.substitutions or number in context.ranges):
            if self._same_binding(var, number, value):
                return
            raise VerifyError(
                f"variable {var.name} is bound already in this analyzer; "
                "use override=True to bind it anew"
            )
        if override:
            context.substitutions.pop(var, None)
            context.values.pop(var, None)
            context.ranges.pop(number, None)
            context.limits.pop(number, None)
            context.residues.pop(number, None)
        context.changed()
        if not isinstance(value, Range):
            self._bind_value(var, as_expr(value, var.dtype))
        elif isinstance(value.extent, IntImm) and value.extent.value == 1:
            self._bind_value(var, value.min)
        else:
            self._bind_range(number, value)

    def _same_binding(self, var: Var, number: int, value: object) -> bool:
        context = self._context
        if isinstance(value, Range):
            poly = self._canonical.poly
            low = poly(value.min)
            high = poly_sub(poly_add(low, poly(value.extent)), {(): 1})
            if low == high and context.values.get(var) == low:
                return True
            return context.ranges.get(number) == (low, high)
        return var in context.values and context.values[var] == self._canonical.poly(as_expr(value))

    def _bind_value(self, var: Var, value: Expr) -> None:
        value = self.simplify(value)
        self._context.substitutions[var] = value
        if var.dtype in ARITHMETIC_DTYPES:
            self._context.values[var] = self._canonical.poly(value)
        self._context.changed()

    def _bind_range(self, number: int, value: Range) -> None:
        low = self._canonical.poly(value.min)
        least = poly_sub(self._canonical.poly(value.extent), {(): 1})
        self._context.ranges[number] = (low, poly_add(low, least))
        self._context.changed()
        if constant_of(least) is None:
            if self._canonical.bounds.poly(least)[0] < 0:
                self._simplifier.assumptions.assume_nonneg(least)
            self._learn_at_least(value.extent, 1)

    def _learn_at_least(self, expr: Expr, least: int) -> None:
        """Learn what ``expr >= least`` says about its variables, where these are not negative."""
        stack: list[tuple[Any, int]] = [(expr, least)]
        while stack:
            item, least = stack.pop()
            kind = type(item)
            if kind is Var:
                self.limit(item, least)
            elif kind is Min:
                stack += [(item.a, least), (item.b, least)]
            elif kind in (Add, Sub) and isinstance(item.b, IntImm):
                stack.append((item.a, least - item.b.value * (1 if kind is Add else -1)))
            elif kind is FloorDiv and isinstance(item.b, IntImm) and item.b.value > 0:
                stack.append((item.a, least * item.b.value))
            elif kind is Mul and least >= 1 and min(map(self._least, (item.a, item.b))) >= 0:
                stack += [(item.a, 1), (item.b, 1)]

    def _least(self, expr: Expr) -> Any:
        return self._bound_of(expr)[0]

    def mark_data(self, var: Var) -> None:
        """Learn that a variable stands for data, whose integers wrap."""
        self._context.table.mark_data(var)
        self._context.changed()

    def is_data(self, expr: Expr) -> bool:
        """Tell whether an integer in an expression may be one of data, which wraps."""
        return holds_data(expr, self._context.table.data_vars)

    def note_let(self, var: Var, value: Expr) -> None:
        """Learn whether a variable stands for data, by its value."""
        if self.is_data(value):
            self.mark_data(var)

    def bind_ranges(self, ranges: Mapping[Var, Range]) -> None:
        """Bind several variables to ranges, overriding."""
        for var, value in ranges.items():
            self.bind(var, value, override=True)

    def bind_positive(self, var: Var, at_most: int | None = None) -> None:
        """Learn that a variable (a symbolic size or tile factor) is at least 1."""
        self.limit(var, 1, at_most)

    def update(
        self, var: Var, info: ConstIntBound | ModularSet | IntSet, override: bool = False
    ) -> None:
        """Learn bounds, residues or the set of a variable, on top of what is known.

        With ``override``, instead of what is known of that kind.

        Raises ``VerifyError`` for information of another class.
        """
        context, number = self._context, self._context.table.var(var)
        if isinstance(info, ConstIntBound):
            if override:
                context.limits.pop(number, None)
            self.limit(var, *(None if abs(end) == POS_INF else int(end) for end in _ends(info)))
        elif isinstance(info, ModularSet):
            known = None if override else context.residues.get(number)
            found = (info.coeff, info.base)
            context.residues[number] = found if known is None else residue_intersect(known, found)
        elif isinstance(info, IntervalSet):
            low, high = (
                self._canonical.poly(end) if isinstance(end, Expr) else None for end in _ends(info)
            )
            known_ends = (None, None) if override else context.ranges.get(number, (None, None))
            context.ranges[number] = (
                known_ends[0] if low is None else low,
                known_ends[1] if high is None else high,
            )
        else:
            raise VerifyError(
                f"update of {var.name}: expected a ConstIntBound, ModularSet or IntervalSet, got "
                f"{type(info).__name__}; use limit(var, minimum, maximum) for numbers"
            )
        context.changed()

    def limit(self, var: Var, minimum: int | None = None, maximum: int | None = None) -> None:
        """Learn const bounds of a variable, on top of what is known."""
        number = self._context.table.var(var)
        low, high = self._context.limits.get(number, EVERYTHING)
        low = low if minimum is None else max(low, minimum)
        high = high if maximum is None else min(high, maximum)
        self._context.limits[number] = (low, high)
        self._context.changed()

    @contextmanager
    def constraint(self, condition: Expr) -> Iterator[None]:
        """Know a condition inside a ``with`` block."""
        saved = self._context.snapshot()
        try:
            self.assume(condition)
            yield
        finally:
            self._context.restore(saved)

    def constraint_scope(self, constraint: Expr) -> AbstractContextManager[None]:
        """Know a condition inside a ``with`` block, or between its ``__enter__`` and ``__exit__``.

        Conditions that were entered must be left in the opposite order.
        """
        return self.constraint(constraint)

    def assume(self, condition: Expr) -> None:
        """Know a condition from now on (see ``constraint`` for a scoped one)."""
        try:
            self._simplifier.assumptions.assume(condition)
        except OpaqueOperand:
            return  # a condition with side effects says nothing about later values

    # ---- questions --------------------------------------------------------------------------

    def simplify(self, expr: Expr, steps: int = 2) -> Expr:
        """Return a simpler equal expression; the same object if there is none.

        Rewriting and canonical forms are one walk here, so two ``steps`` are one of it, and more
        are more of them.
        """
        made: Expr = self._simplifier.visit(expr)
        for _ in range((steps - 1) // 2):
            made = self._simplifier.visit(made)
        return made

    def rewrite_simplify(self, expr: Expr) -> Expr:
        """Simplify; rules and canonical forms work together, so it is what ``simplify`` does."""
        return self.simplify(expr)

    def canonical_simplify(self, expr: Expr) -> Expr:
        """Simplify; rules and canonical forms work together, so it is what ``simplify`` does."""
        return self.simplify(expr)

    def simplify_range(self, value: Range) -> Range:
        """Simplify both parts of a range."""
        return value.map_children(self._simplifier.visit)

    def to_polynomial(self, expr: Expr) -> Polynomial:
        """Return the canonical polynomial over this analyzer's atoms."""
        return Polynomial(self._canonical.merged(self.poly(expr)), self._context.table, expr.dtype)

    def poly(self, expr: Expr) -> Poly:
        """Return the raw polynomial (for the other parts of ``arith``)."""
        return self._simplifier.poly(expr)

    def from_poly(self, poly: Poly, dtype: str = "int64") -> Expr:
        """Build the expression of a raw polynomial."""
        return self._simplifier.from_poly(self._simplifier.finished(poly), dtype)

    def const_int_bound(self, expr: ExprLike) -> ConstIntBound:
        """Return the least constant interval found that holds the value."""
        return ConstIntBound(*self._bound_of(as_expr(expr)))

    def _bound_of(self, expr: Expr) -> tuple[Any, Any]:
        if dtypes.is_float(expr.dtype) or dtypes.lanes_of(expr.dtype) > 1:
            return EVERYTHING
        if expr.dtype not in ARITHMETIC_DTYPES:
            if isinstance(expr, IntImm):
                return expr.value, expr.value
            if expr.dtype != "bool" and type(expr) is not Var:
                return self._canonical.bounds.opaque(expr)
            return dtype_interval(expr.dtype)
        return self._canonical.bounds.poly(self._canonical.merged(self.poly(expr)))

    def modular_set(self, expr: ExprLike) -> ModularSet:
        """Return what is known of the value modulo some number."""
        return ModularSet(*self._residue_of(as_expr(expr)))

    def _residue_of(self, expr: Expr) -> tuple[int, int]:
        if isinstance(expr, IntImm):
            return 0, expr.value
        if expr.dtype not in ARITHMETIC_DTYPES:
            return 1, 0
        return self._canonical.modular.poly(self._canonical.merged(self.poly(expr)))

    def const_int_bound_is_bound(self, var: Var) -> bool:
        """Whether something is known of the variable: a range, a value or bounds."""
        context, number = self._context, self._context.table.var(var)
        return var in context.values or number in context.ranges or number in context.limits

    def int_set(
        self, expr: ExprLike, dom_map: Mapping[Var, Range | IntervalSet] | None = None
    ) -> IntervalSet:
        """Return the interval of ``expr`` while the variables run through ``dom_map``.

        Without it, all variables with a range of this analyzer run through theirs.
        """
        made, dom = self.copy(), dom_map
        if dom is None:
            dom = self._bound_domain()
        for value in dom.values():
            if isinstance(value, Range):
                made._learn_at_least(value.extent, 1)
        known = made._simplifier
        return interval_of(Relaxer(known, bind_domain(known, dom)), as_expr(expr))

    def _bound_domain(self) -> dict[Var, Range | IntervalSet]:
        """The variables that have a range, with what is left of it as an interval."""
        found: dict[Var, Range | IntervalSet] = {}
        for number, (low, high) in self._context.ranges.items():
            var = self._context.table.exprs[number]
            if isinstance(var, Var):
                first = None if low is None else self._simplifier.from_poly_or_none(low, var.dtype)
                last = None if high is None else self._simplifier.from_poly_or_none(high, var.dtype)
                found[var] = IntervalSet(
                    NEG_INF if first is None else first, POS_INF if last is None else last
                )
        return found

    def can_prove(
        self, expr: ExprLike, strength: ProofStrength | int = ProofStrength.DEFAULT
    ) -> bool:
        """Whether a condition is proven; ``False`` means "not proven".

        Symbolic bounds are always used, so both values of ``strength`` try as hard.
        """
        ProofStrength(strength)  # refuses what is none
        made = self.simplify(as_expr(expr))
        return made is TRUE or (isinstance(made, IntImm) and bool(made.value))

    def try_compare(
        self, lhs: ExprLike, rhs: ExprLike, propagate_inequalities: bool = True
    ) -> CompareResult:
        """Compare two values as far as is known.

        Without ``propagate_inequalities`` only by constant bounds of their difference.
        """
        difference = self._canonical.merged(
            poly_sub(self.poly(as_expr(lhs)), self.poly(as_expr(rhs)))
        )
        low, high = self._canonical.bounds.poly(difference)
        sign = self._canonical.prover.nonneg
        found = CompareResult.UNKNOWN
        for goal, holds, gives in (
            (difference, low >= 0, CompareResult.GE),
            (poly_scale(difference, -1), high <= 0, CompareResult.LE),
            (poly_sub(difference, {(): 1}), low > 0, CompareResult.GT),
            (poly_sub({(): -1}, difference), high < 0, CompareResult.LT),
        ):
            if holds or (propagate_inequalities and sign(goal)):
                found = CompareResult(found & gives)
        if propagate_inequalities and self._simplifier.comparisons.equal_zero(difference) is False:
            found = CompareResult(found & CompareResult.NE)
        return found

    @property
    def enabled_extensions(self) -> Extension:
        """What is always on: proofs through other inequalities, and knowing the other operands."""
        return _ALWAYS_ON

    @enabled_extensions.setter
    def enabled_extensions(self, extensions: Extension | int) -> None:
        """Ask for extensions.

        Raises ``VerifyError`` for those that there aren't.
        """
        missing = Extension(extensions) & ~_ALWAYS_ON
        if missing:
            raise VerifyError(f"the simplifier has no {missing}; on, always, are {_ALWAYS_ON}")

    def can_prove_equal(self, lhs: ExprLike, rhs: ExprLike) -> bool:
        """Whether two values are proven equal."""
        a, b = as_expr(lhs), as_expr(rhs)
        if a is b:
            return True
        if a.dtype not in ARITHMETIC_DTYPES or b.dtype not in ARITHMETIC_DTYPES:
            return self._canonical.key(self.simplify(a)) == self._canonical.key(self.simplify(b))
        return self._simplifier.comparisons.equal_zero(poly_sub(self.poly(a), self.poly(b))) is True

    def can_prove_ge(self, expr: ExprLike, value: ExprLike) -> bool:
        """Whether ``expr >= value`` is proven."""
        return self._nonneg(poly_sub(self.poly(as_expr(expr)), self.poly(as_expr(value))))

    def can_prove_greater_equal(self, expr: ExprLike, lower_bound: ExprLike) -> bool:
        """Whether ``expr >= lower_bound`` is proven."""
        return self.can_prove_ge(expr, lower_bound)

    def can_prove_less(self, expr: ExprLike, upper_bound: ExprLike) -> bool:
        """Whether ``expr < upper_bound`` is proven."""
        return self.can_prove_lt(expr, upper_bound)

    def can_prove_lt(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether ``a < b`` is proven."""
        difference = poly_sub(self.poly(as_expr(b)), self.poly(as_expr(a)))
        return self._nonneg(poly_sub(difference, {(): 1}))

    def can_prove_le(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether ``a <= b`` is proven."""
        return self.can_prove_ge(b, a)

    def _nonneg(self, goal: Poly) -> bool:
        return self._canonical.prover.nonneg(self._canonical.merged(goal))


def simplify(expr: Expr) -> Expr:
    """Simplify without knowing anything about the variables."""
    if type(expr) in _SIMPLE:  # most extents of tensors: an analyzer takes longer to make
        return expr
    return Analyzer().simplify(expr)


_SIMPLE = (IntImm, FloatImm, Var)
