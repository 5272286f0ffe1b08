"""Loops of blocks on CPUs: threads, vectors, tiles in registers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import as_int, free_vars, pre_order
from tilewright.target import Target
from tilewright.tir import For
from tilewright.tir.attrs import PARALLEL_SCHEDULE
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import LoopRV


def parallelize(
    sch: Schedule, loops: Sequence[LoopRV], target: Target, work: float
) -> LoopRV | None:
    """Fuse outer spatial loops and run them in parallel, if there is enough work.

    With extents that only the call tells, the call decides: the loop's threads are counted by its
    work then.
    """
    if not loops:
        return None
    fused = loops[0] if len(loops) == 1 else sch.fuse(*loops)
    enough = work >= target.costs.parallel_work
    if target.num_cores > 1 and (enough or _has_sizes_of_the_call(sch, fused)):
        how = sch.choices.choose("parallel.schedule", ("static", "dynamic", "serial"))
        if how != "serial":
            sch.parallel(fused)
        if how == "dynamic":
            sch.annotate(fused, PARALLEL_SCHEDULE, how)
    return fused


def _has_sizes_of_the_call(sch: Schedule, rv: LoopRV) -> bool:
    """Whether extents of a loop, or of those in it, depend on what comes with the call."""
    loop = sch.get(rv)
    sizes = set(sch.state.func(sch.state.func_name_of(loop)).sizes())
    return bool(sizes) and any(
        not sizes.isdisjoint(free_vars(node.extent))
        for node in pre_order(loop)
        if isinstance(node, For) and as_int(node.extent) is None
    )


#: Vectors that are written out one by one: no tile in registers has more, and with thousands in a
#: line (an epilogue that broadcasts a tile) LLVM takes minutes.
_MOST_UNROLLED = 128


def vectorize_tile(sch: Schedule, loops: Sequence[LoopRV]) -> None:
    """Vectorise the last loop of a tile and unroll the others, so that it is in registers."""
    if loops:
        sch.vectorize(loops[-1])
    vectors = 1
    for loop in reversed(loops[:-1]):
        vectors *= as_int(sch.get(loop).extent) or 1
        if vectors > _MOST_UNROLLED:
            break
        sch.unroll(loop)


def vector_extent(extent: int | None, lanes: int, limit: int) -> int | None:
    """Choose how many neighbouring elements one step computes.

    The largest multiple of ``lanes`` up to ``limit`` that divides the extent; the whole extent if
    that is at most ``limit``; ``lanes`` (with a remainder) if nothing divides; ``None`` for extents
    too small.
    """
    if extent is None:
        return lanes
    if extent == 1:
        return None
    best = [size for size in range(lanes, limit + 1, lanes) if extent % size == 0]
    if best:
        return best[-1]
    if extent <= limit:
        return extent
    return lanes
