"""The analyzer: one object that simplifies, bounds and proves in a context of known facts.

Passes and schedule primitives make one, bind the loop variables they go under, enter the conditions
they know, and ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tilewright.arith.bounds import EVERYTHING, ConstIntBound, dtype_interval
from tilewright.arith.canonical import ARITHMETIC_DTYPES, OpaqueOperand
from tilewright.arith.context import Context
from tilewright.arith.data import holds_data
from tilewright.arith.intervals import IntervalSet, Relaxer, bind_domain, interval_of
from tilewright.arith.modular import ModularSet
from tilewright.arith.polynomial import (
    Poly,
    Polynomial,
    constant_of,
    poly_add,
    poly_sub,
)
from tilewright.arith.simplify import Simplifier
from tilewright.ir import (
    TRUE,
    Add,
    Expr,
    ExprLike,
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

    def copy(self) -> Analyzer:
        """Return an analyzer that knows the same and learns on its own."""
        made = Analyzer()
        self._context.copy_state_to(made._context)
        return made

    # ---- knowledge --------------------------------------------------------------------------

    def bind(self, var: Var, value: Expr | Range | int, *, override: bool = False) -> None:
        """Bind a variable to a value, or to a range that it runs through.

        Inside a loop its extent is at least one, which is learnt too.

        Raises ``VerifyError`` if the variable is bound already and ``override`` isn't set.
        """
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
                self.update(item, least)
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

    def note_let(self, var: Var, value: Expr) -> None:
        """Learn whether a variable stands for data, by its value."""
        if holds_data(value, self._context.table.data_vars):
            self.mark_data(var)

    def bind_ranges(self, ranges: Mapping[Var, Range]) -> None:
        """Bind several variables to ranges, overriding."""
        for var, value in ranges.items():
            self.bind(var, value, override=True)

    def bind_positive(self, var: Var, at_most: int | None = None) -> None:
        """Learn that a variable (a symbolic size or tile factor) is at least 1."""
        self.update(var, 1, at_most)

    def update(self, var: Var, minimum: int | None = None, maximum: int | None = None) -> None:
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

    def assume(self, condition: Expr) -> None:
        """Know a condition from now on (see ``constraint`` for a scoped one)."""
        try:
            self._simplifier.assumptions.assume(condition)
        except OpaqueOperand:
            return  # a condition with side effects says nothing about later values

    # ---- questions --------------------------------------------------------------------------

    def simplify(self, expr: Expr) -> Expr:
        """Return a simpler equal expression; the same object if there is none."""
        made: Expr = self._simplifier.visit(expr)
        return made

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

    def int_set(self, expr: ExprLike, dom: Mapping[Var, Range | IntervalSet]) -> IntervalSet:
        """Return the interval of ``expr`` while the variables run through ``dom``."""
        made = self.copy()
        for value in dom.values():
            if isinstance(value, Range):
                made._learn_at_least(value.extent, 1)
        known = made._simplifier
        return interval_of(Relaxer(known, bind_domain(known, dom)), as_expr(expr))

    def can_prove(self, condition: ExprLike) -> bool:
        """Whether a condition is proven; ``False`` means "not proven"."""
        made = self.simplify(as_expr(condition))
        return made is TRUE or (isinstance(made, IntImm) and bool(made.value))

    def can_prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether two values are proven equal."""
        a, b = as_expr(a), as_expr(b)
        if a is b:
            return True
        if a.dtype not in ARITHMETIC_DTYPES or b.dtype not in ARITHMETIC_DTYPES:
            return self._canonical.key(self.simplify(a)) == self._canonical.key(self.simplify(b))
        return self._simplifier.comparisons.equal_zero(poly_sub(self.poly(a), self.poly(b))) is True

    def can_prove_ge(self, expr: ExprLike, value: ExprLike) -> bool:
        """Whether ``expr >= value`` is proven."""
        return self._nonneg(poly_sub(self.poly(as_expr(expr)), self.poly(as_expr(value))))

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
    return Analyzer().simplify(expr)
