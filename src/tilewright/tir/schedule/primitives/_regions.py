"""Boxes of elements that statements touch, as needed to move and cache computation.

A region of a block is written in terms of its axes; its axes are bound to loops. To know what a
nest touches under a given outer loop, the inner loops are *relaxed*: each takes all its values, the
outer ones stay symbols. For an index that is linear in the relaxed variables,
``min = index at their starts`` and ``extent = 1 + sum(|coefficient| * (extent - 1))``. With indices
as polynomials (``_index_arithmetic``) ``i1*f2 + i2`` over ``i1 < f1, i2 < f2`` has extent
``f1*f2``. Anything that is not linear goes to ``arith``'s interval sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.arith.polynomial import (
    DIV,
    MOD,
    Poly,
    constant_of,
    linear_in,
    poly_add,
    poly_atoms,
    poly_const,
    poly_mul,
    poly_scale,
    poly_sub,
)
from tilewright.ir import Expr, IntImm, Range, Var, const, pre_order
from tilewright.tir import BlockRealize, BufferLoad, BufferRegion, For
from tilewright.tir.schedule.primitives._index_arithmetic import ONE, IndexArithmetic
from tilewright.tir.schedule.primitives._linear import Inner, Span, is_finite, relax_linear
from tilewright.tir.schedule.state import ScheduleState

_NO_EXTENT = 2**31 - 1
"""The range of an ``int32`` read from memory: what a loop up to it covers is not known."""


class Regions(IndexArithmetic):
    """What statements touch at one place of a program: under the loops ``outer``."""

    def __init__(self, state: ScheduleState, func_name: str, outer: Sequence[For]) -> None:
        super().__init__(state, func_name, outer)
        # Relaxed variables whose range depends on others: known by bounds only, or not at all.
        self.loose: set[int] = set()
        self.unbounded: set[int] = set()

    # ---- relaxing -----------------------------------------------------------------------------

    def relax(self, poly: Poly, inner: Inner, width: Poly = ONE) -> Span | None:
        """Return what ``poly`` covers when the variables ``inner`` (start, extent) take all values.

        ``width`` elements are touched at each value. ``None`` if the index is not linear in them.
        """
        if self.unbounded and any(self.depends(a, self.unbounded) for a in poly_atoms(poly)):
            return None
        quick = relax_linear(poly, inner, width, self.table.kinds)
        if quick is not None:
            start, extent, exact = quick
            return Span(start, extent, exact and not self._is_loose(poly))
        start, extent = poly, width
        steps: list[tuple[Poly, Poly]] = []
        seen: set[int] = set()
        exact = True
        for number in sorted(poly_atoms(poly)):
            ends = inner.get(number)
            if ends is None:
                if not self.depends(number, inner):
                    continue
                ends = self._relaxed_atom(number, inner)
                if ends is None:
                    return None
            split = linear_in(start, number)
            if split is None:
                return None
            coefficient, rest = split
            if any(self.depends(atom, inner) for atom in poly_atoms(coefficient)):
                return None
            sign = self._sign(coefficient)
            if sign is None:
                return None
            # Two atoms of one variable don't take all combinations of their values.
            mine = {number} if number in inner else {v for v in inner if self.depends(number, {v})}
            exact = exact and not mine & seen
            seen |= mine
            first, count = ends
            reach = poly_sub(count, ONE)
            start = poly_add(rest, poly_mul(coefficient, first))
            if sign < 0:
                start = poly_add(start, poly_mul(coefficient, reach))
                coefficient = poly_scale(coefficient, -1)
            extent = poly_add(extent, poly_mul(coefficient, reach))
            if count != ONE:
                steps.append((coefficient, count))
        if any(self.depends(n, inner) for operand in (start, extent) for n in poly_atoms(operand)):
            return None  # a loop's range depends on another inner loop
        exact = exact and self._contiguous(steps, width) and not self._is_loose(poly)
        return Span(start, extent, exact)

    def _is_loose(self, poly: Poly) -> bool:
        """Whether the range of a polynomial is only a bound."""
        return bool(self.loose) and any(self.depends(a, self.loose) for a in poly_atoms(poly))

    def _relaxed_atom(self, number: int, inner: Inner) -> tuple[Poly, Poly] | None:
        """Start and extent of ``a // c`` or ``a % c``, where ``a`` covers constant ends."""
        kind, operands = self.table.kinds[number], self.table.operands[number]
        if kind not in (DIV, MOD) or operands is None:
            return None
        divisor = constant_of(operands[1])
        span = self.relax(operands[0], inner)
        if span is None or not span.exact or divisor is None or divisor <= 0:
            return None
        first, count = constant_of(span.min), constant_of(span.extent)
        if first is None or count is None:
            return None
        last = first + count - 1
        if kind == DIV:
            low, high = first // divisor, last // divisor
        elif first // divisor == last // divisor:
            low, high = first % divisor, last % divisor
        elif count >= divisor:
            low, high = 0, divisor - 1
        else:
            return None  # the values wrap around: two intervals
        return poly_const(low), poly_const(high - low + 1)

    def _contiguous(self, steps: list[tuple[Poly, Poly]], width: Poly) -> bool:
        """Whether steps of these sizes and counts leave no holes."""
        steps = list(steps)
        covered = width
        while steps:
            for entry in steps:
                gap = self.difference(covered, entry[0])
                if gap is not None and gap >= 0:
                    break
            else:
                return False
            steps.remove(entry)
            covered = poly_add(covered, poly_mul(entry[0], poly_sub(entry[1], ONE)))
        return True

    def is_injective(self, values: Iterable[Poly], inner: Inner) -> bool:
        """Whether different values of ``inner`` surely give different ``values``.

        True for mixed-radix numbers: each variable occurs in only one value, and its coefficient is
        the number of combinations of the variables before it.
        """
        left = {number for number, (_, extent) in inner.items() if extent != ONE}
        for value in values:
            steps: list[tuple[Poly, Poly]] = []
            for number in poly_atoms(value):
                if number in inner:
                    split = linear_in(value, number)
                    if split is None or (number not in left and inner[number][1] != ONE):
                        return False
                    left.discard(number)
                    if inner[number][1] != ONE:
                        steps.append((split[0], inner[number][1]))
                elif self.depends(number, inner):
                    return False
            covered = ONE
            while steps:
                for entry in steps:
                    if self.same(entry[0], covered):
                        break
                else:
                    return False
                steps.remove(entry)
                covered = poly_mul(covered, entry[1])
        return not left

    def relax_expr(
        self,
        expr: Expr,
        width: Expr,
        env: Mapping[Var, Poly],
        inner: Inner,
    ) -> Span | None:
        """Like ``relax`` for an expression; falls back on interval sets for what isn't linear.

        ``None`` for values read from memory: a loop that starts there would load before any guard.
        """
        if type(expr) not in (Var, IntImm) and any(
            type(item) is BufferLoad for item in pre_order(expr)
        ):
            return None
        extent = self.poly(width, env)
        if any(self.depends(number, inner) for number in poly_atoms(extent)):
            return None
        index = self.poly(expr, env)
        found = self.relax(index, inner, extent)
        if found is not None:
            return found
        domain = {}
        for number, (start, count) in inner.items():
            var = self.table.exprs[number]
            assert isinstance(var, Var)
            domain[var] = Range.from_min_extent(self.expr(start), self.expr(count))
        analyzer = self.state.analyzer(self.func_name)
        for var, dom in self.outer_vars.items():
            analyzer.bind(var, dom)
        bounds = analyzer.int_set(self.expr(index), domain)
        if not isinstance(bounds.min, Expr) or not isinstance(bounds.max, Expr):
            return None
        low = self.poly(analyzer.simplify(bounds.min))
        span = self.poly(analyzer.simplify(bounds.max - bounds.min + 1))
        if not all(is_finite(bound) for bound in (bounds.min, bounds.max)):
            return None
        if not self.is_outer_free(span):
            return None
        if any(self.depends(n, inner) for poly in (low, span) for n in poly_atoms(poly)):
            return None
        return Span(low, poly_add(span, poly_sub(extent, ONE)), exact=False)

    def union(self, a: Span, b: Span) -> Span | None:
        """Return the least span around two, if their ends can be compared."""
        starts = self.difference(a.min, b.min)
        ends = self.difference(poly_add(a.min, a.extent), poly_add(b.min, b.extent))
        if starts is None or ends is None:
            return None
        low = a.min if starts <= 0 else b.min
        if ends >= 0:
            extent = poly_sub(poly_add(a.min, a.extent), low)
        else:
            extent = poly_sub(poly_add(b.min, b.extent), low)
        contained = (starts <= 0 <= ends and a.exact) or (starts >= 0 >= ends and b.exact)
        return Span(low, extent, contained)

    # ---- blocks -------------------------------------------------------------------------------

    def axis_values(self, realize: BlockRealize) -> dict[Var, Poly]:
        """The bindings of a block's axes, as polynomials of loops."""
        return {
            iter_var.var: self.poly(value)
            for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
        }

    def inner_loops(self, loops: Iterable[For]) -> dict[int, tuple[Poly, Poly]]:
        """Loops to relax, as ``relax`` takes them. Call this before forming polynomials of them."""
        return self.inner_vars(
            {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
        )

    def inner_vars(self, domain: Mapping[Var, Range]) -> dict[int, tuple[Poly, Poly]]:
        """Variables to relax, as ``relax`` takes them; each range free of the other variables."""
        made = {}
        nested = False
        for var, dom in domain.items():
            number = self.table.var(var)
            made[number] = (self.poly(dom.min), self.poly(dom.extent))
            nested = nested or type(dom.extent) is not IntImm or type(dom.min) is not IntImm
            self.know_range(number, *made[number])
        return self._independent_ranges(made) if nested else made

    def _independent_ranges(
        self, inner: dict[int, tuple[Poly, Poly]]
    ) -> dict[int, tuple[Poly, Poly]]:
        """Give a variable whose range depends on others the range it has over all their values."""
        made: dict[int, tuple[Poly, Poly]] = {}

        def widen(number: int) -> None:
            start, extent = inner[number]
            end = poly_add(start, extent)
            atoms = poly_atoms(start) | poly_atoms(end)
            others = [n for n in inner if n != number and any(self.depends(a, {n}) for a in atoms)]
            for other in others:
                if other not in made:
                    widen(other)
            if others:
                around = {other: made[other] for other in others}
                low = self.relax_expr(self.expr(start), const(1), {}, around)
                high = self.relax_expr(self.expr(end), const(1), {}, around)
                self.loose.add(number)
                if low is not None and high is not None:
                    start = low.min
                    extent = poly_sub(poly_add(high.min, poly_sub(high.extent, ONE)), start)
                else:
                    self.unbounded.add(number)
            made[number] = (start, extent)

        for number in inner:
            if number not in made:
                widen(number)
        return made

    def touched(
        self,
        region: BufferRegion,
        env: Mapping[Var, Poly],
        inner: Inner,
    ) -> list[Span | None]:
        """Relax each dimension of a region; ``None`` where nothing is known.

        A loop bounded by a number read from memory has the range of its dtype: it is unknown.
        """
        spans = (self.relax_expr(item.min, item.extent, env, inner) for item in region.region)
        return [
            None
            if span and (span.extent.get((), 0) >= _NO_EXTENT or self.from_memory(span))
            else span
            for span in spans
        ]

    def from_memory(self, span: Span) -> bool:
        """Whether an end depends on data, which then would be read before any guard."""
        return any(
            type(item) is BufferLoad
            for operand in (span.min, span.extent)
            if any(type(self.table.exprs[number]) is not Var for number in poly_atoms(operand))
            for item in pre_order(self.expr(operand))
        )

    def unite(self, a: list[Span | None] | None, b: list[Span | None]) -> list[Span | None]:
        """Union of two boxes, dimension by dimension (exact only if they differ in none)."""
        if a is None:
            return b
        return [None if x is None or y is None else self.union(x, y) for x, y in zip(a, b)]
