"""What blocks touch in one iteration of a loop, and whether iterations touch different elements.

Two questions decide whether iterations of a loop depend on each other. Does an iteration write
everything that it reads (``covers``)? If not: does it touch different elements than every other
iteration (``apart``)? The answers come from the regions that blocks declare, relaxed over the loops
inside.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tilewright.arith import Analyzer
from tilewright.ir import TRUE, Range
from tilewright.tir import BlockRealize, Buffer, BufferRegion, For
from tilewright.tir.analysis import iterations
from tilewright.tir.analysis.footprint import restricting_conjuncts
from tilewright.tir.analysis.iterations import Touched, makes_all
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.stmt import Stmt


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
    """Whether each iteration of ``loop`` writes all of ``buffer`` that it reads.

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
    written = [region for region in source.block.writes if region.buffer is buffer]
    if len(written) != 1:
        return False
    write = Touched(written[0], source, loops_between(state, source, loop))
    below = loops_between(state, target, loop)
    cache = state.index(state.func_name_of(source)).cache
    known = functools.cache(lambda: _knowing(state, loop))
    return all(
        makes_all(write, Touched(region, target, below), known, cache)
        for region in used
        if region.buffer is buffer
    )


def _knowing(state: ScheduleState, loop: For) -> Analyzer:
    """An analyzer that knows a loop and the loops around it."""
    made = state.analyzer_at(loop)
    made.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
    return made


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

    Each side is a block, the regions in question, and the loops; see ``analysis.iterations.apart``.
    """

    def boxes(
        realize: BlockRealize, regions: Sequence[BufferRegion], loops: Sequence[For]
    ) -> list[list[Range]]:
        inner = loops_between(state, realize, loops[-1])
        return [
            Touched(region, realize, inner).box(lambda: _knowing(state, loops[-1]), TRUE)
            for region in regions
            if region.buffer is buffer
        ]

    return iterations.apart(
        (boxes(*first), first[2]),
        (boxes(*second), second[2]),
        buffer,
        lambda: state.analyzer_at(first[2][0]),
        ordered=ordered,
    )
