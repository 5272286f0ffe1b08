"""What blocks touch in one iteration of a loop, and whether iterations touch different elements.

Two questions decide whether iterations of a loop depend on each other. Does an iteration make all
that it uses itself (``covers``)? If not: does it touch other elements than any other iteration
(``apart``)? The answers come from the regions that blocks declare, relaxed over the loops inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    TRUE,
    Expr,
    Range,
    Var,
    add,
    and_,
    const,
    is_const,
)
from tilewright.tir import NO_OP, SERIAL, BlockRealize, Buffer, BufferRegion, For
from tilewright.tir.analysis.accesses import detect_accesses
from tilewright.tir.analysis.counting import merge_boxes
from tilewright.tir.analysis.footprint import (
    box_at,
    covers_buffer,
    differ,
    disjoint,
    fills_box,
    fills_region,
    inside_box,
    region_below,
    restricting_conjuncts,
)
from tilewright.tir.analysis.regions import relax
from tilewright.tir.schedule.state import ScheduleState, trivially_true
from tilewright.tir.stmt import Stmt

Box = tuple[Range, ...]


def guards_domain(state: ScheduleState, realize: BlockRealize) -> bool:
    """Whether a predicate only keeps iteration values inside their domains."""
    return not restricting_conjuncts(realize, lambda: state.analyzer_at(realize))


def loops_between(state: ScheduleState, stmt: Stmt, above: For) -> list[For]:
    """Return the loops around a statement that are inside another loop around it."""
    loops = state.loops_above(stmt)
    return loops[loops.index(above) + 1 :]


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
    if not fills_region(regions[0], source, source_loops, analyzer):
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
                [box_at(box, side[2], values) for box in found]
                for found, side, values in ((mine, first, left), (theirs, second, right))
            ]
            pairs = [(a, b) for a in renamed[0] for b in renamed[1]]
            if not all(disjoint(a, b, known) or differ(a, b, buffer, known) for a, b in pairs):
                return False
    return True
