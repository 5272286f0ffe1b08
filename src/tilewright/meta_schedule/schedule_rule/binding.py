"""Bind loops to the blocks and threads of a GPU: what rules and postprocs share."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import as_int, uses_var
from tilewright.tir import REDUCE, SERIAL, For
from tilewright.tir.schedule import BlockRV, ExprRV, LoopRV, Schedule
from tilewright.tir.walk import child_blocks

WARP_SIZE = 32
MAX_VTHREADS = 8
"""Virtual threads of a thread: each has registers of its own."""
_THREAD, _BLOCK = "threadIdx", "blockIdx"


def tags_around(sch: Schedule, block: BlockRV) -> set[str]:
    """Return the thread tags of the loops around a block."""
    loops = sch.state.loops_above(sch.state.get_block(block))
    return {loop.thread for loop in loops if loop.thread is not None}


def bind_blocks_and_threads(
    sch: Schedule,
    block: BlockRV,
    max_threadblocks: int,
    max_threads: int,
    choose: Callable[[int], int | ExprRV],
) -> bool:
    """Bind the outer loops of a block, those that no reduction runs over.

    ``choose(extent)`` gives the threads of a thread block. With more work than
    ``max_threadblocks`` of ``max_threads`` threads, each thread has a loop of its own. Returns
    whether anything was bound. Raises ``ScheduleError`` if a primitive refuses.
    """
    tags = tags_around(sch, block)
    if any(tag.startswith(_BLOCK) for tag in tags):
        return False
    has_threads = any(tag.startswith(_THREAD) for tag in tags)
    loops = _outer_loops(sch, block)
    if not loops:
        if has_threads:
            return False
        loops = [sch.add_unit_loop(_outermost(sch, block))]
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if has_threads:
        sch.bind(fused, "blockIdx.x")
        return True
    extent = as_int(sch.get(fused).extent)
    threads = choose(max_threads if extent is None else extent)
    if extent is not None and extent > max_threadblocks * max_threads:
        serial, outer, inner = sch.split(fused, [None, max_threadblocks, threads])
        sch.reorder(outer, inner, serial)
    else:
        outer, inner = sch.split(fused, [None, threads])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    return True


def _outermost(sch: Schedule, block: BlockRV) -> BlockRV | LoopRV:
    loops = sch.get_loops(block)
    return loops[0] if loops else block


def _outer_loops(sch: Schedule, block: BlockRV) -> list[LoopRV]:
    """Return the outermost serial loops, one directly in the other, that no reduction runs over."""
    found: list[LoopRV] = []
    for rv in sch.get_loops(block):
        loop = sch.get(rv)
        if loop.kind != SERIAL or loop.thread is not None or _reduces(loop):
            break
        found.append(rv)
        if type(loop.body) is not For:
            break
    return found


def _reduces(loop: For) -> bool:
    return any(
        iter_var.kind == REDUCE and uses_var(value, {loop.loop_var})
        for realize in child_blocks(loop)
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
    )
