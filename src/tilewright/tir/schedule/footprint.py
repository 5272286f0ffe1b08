"""What blocks touch in one iteration of a loop, and whether iterations touch different elements.

Two questions decide whether iterations of a loop depend on each other. Does an iteration make all
that it uses itself (``covers``)? If not: does it touch other elements than any other iteration
(``apart``)? The answers come from the regions that blocks declare, relaxed over the loops inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.arith import Analyzer, conjuncts, detect_iter_map, simplify
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
    substitute,
    uses_var,
)
from tilewright.tir import NO_OP, SERIAL, BlockRealize, Buffer, BufferRegion, For
from tilewright.tir.analysis.accesses import detect_accesses
from tilewright.tir.analysis.counting import merge_boxes
from tilewright.tir.analysis.regions import relax
from tilewright.tir.schedule.state import ScheduleState, trivially_true

Box = tuple[Range, ...]


def loop_ranges(loops: Iterable[For]) -> dict[Var, Range]:
    """Loop variables with their ranges."""
    return {loop.loop_var: Range(loop.min, loop.extent) for loop in loops}


def guards_domain(state: ScheduleState, realize: BlockRealize) -> bool:
    """Whether a predicate only keeps iteration values inside their domains."""
    return not restricting_conjuncts(realize, lambda: state.analyzer_at(realize))


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
    stack: list[Any] = [index]
    while stack:
        item = stack.pop()
        if type(item) is Add:
            stack += [item.a, item.b]
            continue
        var, factor = (item.a, as_int(item.b)) if type(item) is Mul else (item, 1)
        count = as_int(domains[var].extent) if type(var) is Var and var in domains else None
        if factor is None or count is None or var in digits or not is_const(domains[var].min, 0):
            return False
        digits[var] = factor, count
    reach = 1
    for factor, count in sorted(digits.values()):
        if factor != reach:
            return False
        reach *= count
    return reach == number


def loops_between(state: ScheduleState, stmt: Any, above: For) -> list[For]:
    """Return the loops around a statement that are inside another loop around it."""
    loops = state.loops_above(stmt)
    return loops[loops.index(above) + 1 :]


class _InnerTerms:
    """A value as ``rest + sum(factor * loop)`` over the loops inside, with constant factors."""

    __slots__ = ("rest", "terms")

    def __init__(self, value: Expr, inner: dict[Var, For]) -> None:
        self.terms: list[tuple[int, int]] | None = []
        rest: list[Expr] = []
        stack: list[Any] = [value]
        while stack:
            item = stack.pop()
            if type(item) is Add:
                stack += [item.b, item.a]
                continue
            factor = 1
            var = item
            if type(item) is Mul and type(item.b) is IntImm:
                var, factor = item.a, item.b.value
            loop = inner.get(var) if type(var) is Var else None
            if loop is None:
                if not isinstance(item, (Var, IntImm)) and uses_var(item, inner):
                    self.terms = None
                    return
                rest.append(item)
            elif type(loop.extent) is IntImm and is_const(loop.min, 0) and factor > 0:
                self.terms.append((factor, loop.extent.value))
            else:
                self.terms = None
                return
        total: Expr = const(0)
        for item in rest:
            total = add(total, item)
        self.rest = total

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
    made = [Range(substitute(r.min, mapping), substitute(r.extent, mapping)) for r in ranges]
    if not loops:
        return made
    inner = {loop.loop_var: loop for loop in loops}
    quick = []
    for item in made:
        terms = _InnerTerms(item.min, inner)
        if terms.terms is None or type(item.extent) is not IntImm:
            return relax(made, loop_ranges(loops), guard, buffer, analyzer())
        quick.append(Range(terms.rest, const(terms.span() + item.extent.value - 1)))
    return quick


def _writes_densely(region: BufferRegion) -> bool:
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


def covers(
    state: ScheduleState, source: BlockRealize, target: BlockRealize, buffer: Buffer, loop: For
) -> bool:
    """Whether each iteration of ``loop`` makes all of ``buffer`` that it uses.

    That is: ``source`` writes, in the same iteration, whatever ``target`` reads.
    """
    return _makes_all(state, source, target, target.block.reads, buffer, loop)


def _makes_all(
    state: ScheduleState,
    source: BlockRealize,
    target: BlockRealize,
    used: Sequence[BufferRegion],
    buffer: Buffer,
    loop: For,
) -> bool:
    """Whether ``source`` writes all elements of ``buffer`` that are in the regions ``used``."""
    if not trivially_true(source.predicate) and not (
        guards_domain(state, source) and covers_buffer(source, buffer)
    ):
        return False
    regions = [region for region in source.block.writes if region.buffer is buffer]
    if len(regions) != 1:
        return False
    made: list[Analyzer] = []

    def analyzer() -> Analyzer:
        if not made:
            made.append(state.analyzer_at(loop))
            made[0].bind(loop.loop_var, Range(loop.min, loop.extent))
        return made[0]

    if not _writes_all_declared(state, source, regions[0]):
        return False
    source_loops = loops_between(state, source, loop)
    target_loops = loops_between(state, target, loop)
    if not _fills_region(regions[0], source, source_loops, analyzer):
        return False
    written = region_below(regions[0].region, source, source_loops, buffer, TRUE, analyzer)
    return all(
        inside_box(
            region_below(r.region, target, target_loops, buffer, target.predicate, analyzer),
            written,
            buffer,
            analyzer,
        )
        for r in used
        if r.buffer is buffer
    )


def _fills_region(
    region: BufferRegion,
    source: BlockRealize,
    loops: list[For],
    analyzer: Callable[[], Analyzer],
) -> bool:
    """Whether what a block writes in all iterations of the loops is a box without holes."""
    if _writes_densely(region):
        return fills_box(source.iter_values, loops, analyzer)
    if not all(is_const(item.extent, 1) for item in region.region):
        return False
    # Several axes may make one index together, such as quotient and remainder.
    mapping = {v.var: value for v, value in zip(source.block.iter_vars, source.iter_values)}
    indices = [simplify(substitute(item.min, mapping)) for item in region.region]
    return fills_box(indices, loops, analyzer)


def _writes_all_declared(state: ScheduleState, source: BlockRealize, region: BufferRegion) -> bool:
    """Whether one instance writes all of a box that it declares, not just elements in it."""
    if all(is_const(item.extent, 1) for item in region.region):
        return True
    cache = state.index(state.func_name_of(source)).cache
    key = ("writes_all_declared", source.block, region)
    found: bool | None = cache.get(key)
    if found is None:
        found = cache[key] = _find_writes_all_declared(state, source, region)
    return found


def _find_writes_all_declared(
    state: ScheduleState, source: BlockRealize, region: BufferRegion
) -> bool:
    known = state.analyzer_at(source)
    for axis in source.block.iter_vars:
        known.bind(axis.var, axis.dom)
    made: list[Box] = []
    for access in detect_accesses(source.block.body):
        if not access.is_write or access.buffer is not region.buffer or access.repeats:
            continue
        if isinstance(access.node, BufferRegion) and not access.domain:
            made.append(access.box)  # Intrinsics keep what is declared of them.
            continue
        indices: list[Expr] = []
        loops = list(access.loops)
        for item in access.box:
            inside = Var("inside", item.min.dtype)
            unit = is_const(item.extent, 1)
            indices.append(item.min if unit else add(item.min, inside))
            if not unit:
                loops.append(For(inside, const(0), item.extent, SERIAL, NO_OP))
        if fills_box(indices, loops, known.copy):
            condition = and_(*access.conditions)
            box = relax(list(access.box), access.domain, condition, region.buffer, known)
            made.append(tuple(box))
    declared = list(region.region)
    return any(
        inside_box(declared, list(box), region.buffer, lambda: known)
        for box in merge_boxes(made, known)
    )


def rewrites_all(
    state: ScheduleState, source: BlockRealize, target: BlockRealize, buffer: Buffer, loop: For
) -> bool:
    """Whether ``target`` writes, in the same iteration, whatever ``source`` writes."""
    return _makes_all(state, target, source, source.block.writes, buffer, loop)


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


def inside_box(
    box: list[Range], around: list[Range], buffer: Buffer, analyzer: Callable[[], Analyzer]
) -> bool:
    """Whether the part of a box that is in the buffer is surely inside another box."""
    for inner, outer, extent in zip(box, around, buffer.shape):
        if expr_equal(inner.min, outer.min) and expr_equal(inner.extent, outer.extent):
            continue
        known = analyzer()
        low, high = inner.min, add(inner.min, inner.extent)
        outer_high = add(outer.min, outer.extent)
        if not (known.can_prove(low >= outer.min) or known.can_prove(maximum(low, 0) >= outer.min)):
            return False
        if not (
            known.can_prove(high <= outer_high)
            or known.can_prove(minimum(high, extent) <= outer_high)
        ):
            return False
    return True


def apart(
    state: ScheduleState,
    first: tuple[BlockRealize, Sequence[BufferRegion], Sequence[For]],
    second: tuple[BlockRealize, Sequence[BufferRegion], Sequence[For]],
    buffer: Buffer,
    *,
    ordered: bool = False,
) -> bool:
    """Whether two blocks touch different elements in different iterations of a nest of loops.

    Each side is a block, the regions in question, and the loops (of both sides equally many, with
    equal extents: the same loops, or two nests that shall become one). With ``ordered`` it is
    enough that what ``first`` touches in an iteration, ``second`` does not touch in an earlier one.
    """
    top = first[2][0]

    def boxes(side: Any) -> list[list[Range]]:
        realize, regions, loops = side

        def analyzer() -> Analyzer:
            made = state.analyzer_at(loops[-1])
            made.bind(loops[-1].loop_var, Range(loops[-1].min, loops[-1].extent))
            return made

        inner = loops_between(state, realize, loops[-1])
        return [
            region_below(r.region, realize, inner, buffer, TRUE, analyzer)
            for r in regions
            if r.buffer is buffer
        ]

    mine, theirs = boxes(first), boxes(second)
    for level in range(len(first[2])):
        known = state.analyzer_at(top)
        earlier: list[Expr] = []
        later: list[Expr] = []
        for position, loop in enumerate(first[2]):
            # Two iterations that agree above ``level`` and differ there.
            var = Var(f"e{position}", loop.loop_var.dtype)
            known.bind(var, Range(loop.min, loop.extent))
            earlier.append(var)
            other: Expr = var
            if position >= level:
                other = Var(f"l{position}", loop.loop_var.dtype)
                low = add(var, const(1, var.dtype)) if position == level else loop.min
                known.bind(other, Range(low, add(loop.min, loop.extent) - low))
            later.append(other)
        orders = [(later, earlier)] if ordered else [(later, earlier), (earlier, later)]
        for left, right in orders:
            renamed = [
                [_at(box, side[2], values) for box in found]
                for found, side, values in ((mine, first, left), (theirs, second, right))
            ]
            pairs = [(a, b) for a in renamed[0] for b in renamed[1]]
            if not all(disjoint(a, b, known) or _differ(a, b, buffer, known) for a, b in pairs):
                return False
    return True


def _differ(a: list[Range], b: list[Range], buffer: Buffer, known: Analyzer) -> bool:
    """Whether two boxes surely differ in their leading dimensions, counted through.

    Quotient and remainder of a fused loop need not differ each, but both together do. The same
    indices are the same number, so boxes whose numbers differ have no element in common.
    """
    mine: Expr = const(0)
    theirs: Expr = const(0)
    for x, y, extent in zip(a, b, buffer.shape):
        mine, theirs = mine * extent + x.min, theirs * extent + y.min
        if not (is_const(x.extent, 1) and is_const(y.extent, 1)):
            return known.can_prove_ge(theirs - mine, x.extent) or known.can_prove_ge(
                mine - theirs, y.extent
            )
    return known.can_prove_ge(mine - theirs, 1) or known.can_prove_ge(theirs - mine, 1)


def _at(box: list[Range], loops: Sequence[For], values: Sequence[Expr]) -> list[Range]:
    mapping = {loop.loop_var: value for loop, value in zip(loops, values)}
    return [Range(substitute(r.min, mapping), substitute(r.extent, mapping)) for r in box]


def disjoint(a: list[Range], b: list[Range], known: Analyzer) -> bool:
    """Whether two boxes surely have no element in common."""
    return any(
        known.can_prove_ge(y.min - x.min, x.extent) or known.can_prove_ge(x.min - y.min, y.extent)
        for x, y in zip(a, b)
    )
