"""What a block accesses in all iterations of some loops, as boxes, and how boxes lie.

Nothing here knows a schedule: primitives and passes ask it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.arith import Analyzer, conjuncts, detect_iter_map, sum_terms
from tilewright.ir import (
    GE,
    GT,
    LE,
    LT,
    TRUE,
    Add,
    Expr,
    IntImm,
    Mul,
    Range,
    Var,
    add,
    and_,
    as_int,
    const,
    expr_equal,
    free_vars,
    is_const,
    maximum,
    minimum,
    mul,
    substitute,
    uses_var,
)
from tilewright.tir import BlockRealize, Buffer, BufferRegion, For
from tilewright.tir.analysis.accesses import Access
from tilewright.tir.analysis.counting import footprint
from tilewright.tir.analysis.regions import relax


def loop_ranges(loops: Iterable[For]) -> dict[Var, Range]:
    """Loop variables with their ranges."""
    return {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}


def restricting_conjuncts(realize: BlockRealize, known: Callable[[], Analyzer]) -> list[Expr]:
    """Return the parts of a block's predicate that say more than "inside the block's domain".

    Splitting with a remainder, and windows that reach over an edge, give predicates which only keep
    the iteration variables inside their domains; these hold wherever the block is moved to.
    ``known`` is asked for if parts can't be read.
    """
    return [
        condition
        for condition in conjuncts(realize.predicate)
        if not _keeps_domain(condition, realize, known)
    ]


def _keeps_domain(condition: Expr, realize: BlockRealize, known: Callable[[], Analyzer]) -> bool:
    """Whether a condition holds for all values inside the domain of one of a block's axes."""
    if isinstance(condition, (LT, LE)):
        low, high, slack = condition.a, condition.b, 0 if isinstance(condition, LT) else 1
    elif isinstance(condition, (GT, GE)):
        low, high, slack = condition.b, condition.a, 0 if isinstance(condition, GT) else 1
    else:
        return False
    # The condition is low < high + slack.
    axes = [
        (value, item.dom.min, item.dom.min + item.dom.extent)
        for item, value in zip(realize.block.iter_vars, realize.iter_values)
    ]
    for value, start, end in axes:
        if expr_equal(low, value):  # value < high + slack: fine if end <= high + slack
            limit, bound = as_int(high), as_int(end)
            if expr_equal(end, high + slack):
                return True
            if limit is not None and bound is not None and bound <= limit + slack:
                return True
        elif expr_equal(high, value):  # low < value + slack: fine if low - slack < dom.min
            limit, bound = as_int(low), as_int(start)
            if limit is not None and bound is not None and limit - slack < bound:
                return True
    gap = high - low + slack  # must be >= 1; inside the domain start <= value <= end - 1
    analyzer = known()
    return any(
        analyzer.can_prove_ge(gap, end - value) or analyzer.can_prove_ge(gap, value - start + 1)
        for value, start, end in axes
    )


def covers_buffer(realize: BlockRealize, buffer: Buffer) -> bool:
    """Whether the whole domain of a block writes its whole buffer, one element per instance."""
    domains = {item.var: item.dom for item in realize.block.iter_vars}
    for region in realize.block.writes:
        if region.buffer is buffer:
            return all(
                is_const(item.extent, 1) and _runs_through(item.min, domains, extent)
                for item, extent in zip(region.region, buffer.shape)
            )
    return False


def _runs_through(index: Expr, domains: Mapping[Var, Range], extent: Expr) -> bool:
    """Whether an index takes all values below ``extent``, one for each value of its variables.

    It is a variable, or several that are its digits (``quotient * 4 + remainder``); zero, where
    there is nothing else.
    """
    if is_const(extent, 1) and is_const(index, 0):
        return True
    if type(index) is Var:
        return index in domains and expr_equal(domains[index].extent, extent)
    number = as_int(extent)
    digits: dict[Var, tuple[int, int]] = {}
    for item, factor in sum_terms(index):
        if not isinstance(item, Var) or item not in domains or item in digits:
            return False
        domain = domains[item]
        count = as_int(domain.extent) if is_const(domain.min, 0) else None
        if count is None:
            return False
        digits[item] = factor, count
    reach = 1
    for factor, count in sorted(digits.values()):
        if factor != reach:
            return False
        reach *= count
    return reach == number


class _InnerTerms:
    """A value as ``rest + sum(factor * loop)`` over the loops inside, with constant factors."""

    __slots__ = ("rest", "terms")

    def __init__(self, value: Expr, inner: dict[Var, For]) -> None:
        self.terms: list[tuple[int, int]] | None = []
        self.rest: Expr = const(0)
        for item, factor in sum_terms(value):
            loop = inner.get(item) if type(item) is Var else None
            if loop is None:
                if not isinstance(item, (Var, IntImm)) and uses_var(item, inner):
                    self.terms = None
                    return
                self.rest = add(self.rest, mul(item, const(factor)) if factor != 1 else item)
            elif type(loop.extent) is IntImm and is_const(loop.min, 0) and factor > 0:
                self.terms.append((factor, loop.extent.value))
            else:
                self.terms = None
                return

    def dense(self) -> bool:
        """Whether the loops give all integers from 0 to the greatest."""
        reach = 1
        for factor, extent in sorted(self.terms or ()):
            if factor > reach:
                return False
            reach += factor * (extent - 1)
        return True

    def span(self) -> int:
        """How many integers there are from the least to the greatest."""
        return 1 + sum(factor * (extent - 1) for factor, extent in self.terms or ())


def region_below(
    ranges: tuple[Range, ...],
    realize: BlockRealize,
    loops: list[For],
    buffer: Buffer,
    guard: Expr,
    analyzer: Callable[[], Analyzer],
) -> list[Range]:
    """A block's region in terms of the loops above ``loops``."""
    mapping = {
        iter_var.var: value for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
    }
    made = [
        Range.from_min_extent(substitute(r.min, mapping), substitute(r.extent, mapping))
        for r in ranges
    ]
    if not loops:
        return made
    inner = {loop.loop_var: loop for loop in loops}
    quick = []
    for item in made:
        terms = _InnerTerms(item.min, inner)
        if terms.terms is None or type(item.extent) is not IntImm:
            return relax(made, loop_ranges(loops), guard, buffer, analyzer())
        quick.append(Range.from_min_extent(terms.rest, const(terms.span() + item.extent.value - 1)))
    return quick


def tiles_densely(region: BufferRegion) -> bool:
    """Whether a dense box of instances writes a dense box of elements."""
    seen: set[Var] = set()
    for item in region.region:
        used = free_vars(item.min)
        if not used:
            continue
        low: Any = item.min
        stride: Expr = const(1)
        if type(low) is Add and not free_vars(low.b):
            low = low.a
        if type(low) is Mul:
            low, stride = low.a, low.b
        if type(low) is not Var or low in seen or not expr_equal(stride, item.extent):
            return False
        seen.add(low)
    return True


def fills_box(values: Sequence[Expr], loops: list[For], analyzer: Callable[[], Analyzer]) -> bool:
    """Whether the values that the loops give fill a box without holes."""
    inner = {loop.loop_var: loop for loop in loops}
    taken: set[Var] = set()
    for value in values:
        here = {var for var in free_vars(value) if var in inner}
        if here & taken:
            return False  # A loop in two values runs along a diagonal.
        taken |= here
        if not here:
            continue
        terms = _InnerTerms(value, inner)
        if terms.terms is not None:
            if not terms.dense():
                return False
            continue
        sizes = {var for loop in loops for var in free_vars(loop.extent)}
        outside = {
            var: const(0) for var in free_vars(value) if var not in inner and var not in sizes
        }
        found = detect_iter_map(
            [substitute(value, outside)],
            loop_ranges([inner[var] for var in here]),
            TRUE,
            require_bijective=True,
            analyzer=analyzer(),
        )
        if found.errors:
            return False
    return True


def filled_box(access: Access, domain: Mapping[Var, Range], known: Analyzer) -> list[Range] | None:
    """Return the box that an access fills while variables run; ``None`` if it may leave holes.

    ``domain`` holds the loops in question: those of the access, maybe more.
    """
    touched = footprint(access.box, access.shape, domain, access.conditions, analyzer=known)
    if not touched.count.exact:
        return None
    if touched.box is not None:
        return list(touched.box)
    # If there are as many elements as the box around them has, they fill it.
    box = relax(list(access.box), domain, and_(*access.conditions), access.buffer, known)
    volume: Expr = const(1)
    for side in box:
        volume = mul(volume, side.extent)
    return box if known.can_prove_equal(volume, touched.count.value) else None


def inside_box(
    box: Sequence[Range], around: Sequence[Range], buffer: Buffer, analyzer: Callable[[], Analyzer]
) -> bool:
    """Whether the part of a box that is in the buffer is surely inside another box."""
    for inner, outer, extent in zip(box, around, buffer.shape):
        if expr_equal(inner.min, outer.min) and expr_equal(inner.extent, outer.extent):
            continue
        known = analyzer()
        low, high = inner.min, add(inner.min, inner.extent)
        outer_high = add(outer.min, outer.extent)
        if not (
            known.can_prove_ge(low, outer.min) or known.can_prove(maximum(low, 0) >= outer.min)
        ):
            return False
        if not (
            known.can_prove_ge(outer_high, high)
            or known.can_prove(minimum(high, extent) <= outer_high)
        ):
            return False
    return True


def differ(a: list[Range], b: list[Range], buffer: Buffer, known: Analyzer) -> bool:
    """Whether two boxes surely have no element in common, by one dimension or counted through.

    Quotient and remainder of a fused loop need not differ each, but both together do. The same
    indices are the same number, so boxes whose numbers differ have no element in common.
    """
    if disjoint(a, b, known):
        return True
    mine: Expr = const(0)
    theirs: Expr = const(0)
    for x, y, extent in zip(a, b, buffer.shape):
        mine, theirs = mine * extent + x.min, theirs * extent + y.min
        if not (is_const(x.extent, 1) and is_const(y.extent, 1)):
            if known.can_prove_ge(theirs - mine, x.extent) or known.can_prove_ge(
                mine - theirs, y.extent
            ):
                return True
            break
    else:
        return _unequal(mine, theirs, known)
    return _differ_in_points(a, b, buffer, known)


def _differ_in_points(a: list[Range], b: list[Range], buffer: Buffer, known: Analyzer) -> bool:
    """Whether boxes surely differ in the dimensions where both have one index, counted through."""
    mine: Expr = const(0)
    theirs: Expr = const(0)
    for x, y, extent in zip(a, b, buffer.shape):
        if is_const(x.extent, 1) and is_const(y.extent, 1):
            mine, theirs = mine * extent + x.min, theirs * extent + y.min
    return _unequal(mine, theirs, known)


def _unequal(a: Expr, b: Expr, known: Analyzer) -> bool:
    return known.can_prove_ge(a - b, 1) or known.can_prove_ge(b - a, 1)


def box_at(box: list[Range], loops: Sequence[For], values: Sequence[Expr]) -> list[Range]:
    """A box where loops have these values."""
    mapping = {loop.loop_var: value for loop, value in zip(loops, values)}
    return [
        Range.from_min_extent(substitute(r.min, mapping), substitute(r.extent, mapping))
        for r in box
    ]


def disjoint(a: list[Range], b: list[Range], known: Analyzer) -> bool:
    """Whether two boxes surely have no element in common."""
    return any(
        known.can_prove_ge(y.min - x.min, x.extent) or known.can_prove_ge(x.min - y.min, y.extent)
        for x, y in zip(a, b)
    )
