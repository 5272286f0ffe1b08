"""Binding the loops of kernels: flat grids, nests of any form, one thread alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from tilewright.ir import as_int, pre_order
from tilewright.scheduling.gpu.limits import GPULimits
from tilewright.support.errors import ScheduleError
from tilewright.tir import SERIAL, BufferLoad, For
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

BLOCKS, THREADS = "blockIdx.x", "threadIdx.x"
_THREADS = 256
"""Threads of a block that works on flat data: eight blocks fill a processor."""


def is_bound(sch: Schedule, rv: BlockRV) -> bool:
    """Whether a block runs in a kernel already."""
    return any(sch.get(loop).thread is not None for loop in sch.get_loops(rv))


def flat_threads(limits: GPULimits, work: int | None) -> int:
    """Threads per block for so many independent elements: fewer where blocks would be too few."""
    threads = min(_THREADS, limits.max_threads)
    if work is None:
        return threads
    while threads > limits.warp_size and -(-work // threads) < limits.processors:
        threads //= 2
    return max(1, min(threads, max(work, 1)))


def fused(sch: Schedule, loops: Sequence[LoopRV]) -> LoopRV:
    """Fuse loops if there are several."""
    return loops[0] if len(loops) == 1 else sch.fuse(*loops)


def fused_results(sch: Schedule, loops: Sequence[LoopRV]) -> LoopRV:
    """Fuse loops over results, leaving out those of one iteration, which go inside."""
    single = [loop for loop in loops if as_int(sch.get(loop).extent) == 1]
    others = [loop for loop in loops if loop not in single]
    if single and others:
        sch.reorder(*others, *single)
    return fused(sch, others or single)


def attach(sch: Schedule, main: BlockRV, consumers: Sequence[BlockRV], loop: LoopRV) -> None:
    """Compute what follows each result right after it; else that stays a kernel of its own."""
    attempt = sch.copy()
    try:
        for consumer in consumers:
            attempt.set_scope(main, 0, "local")
            attempt.reverse_compute_at(consumer, loop)
    except ScheduleError:
        return
    sch.become(attempt)


def bind_flat(sch: Schedule, loops: Sequence[LoopRV], threads: int) -> LoopRV:
    """Divide spatial loops, one in the other, among blocks of threads; return the threads'."""
    outer, inner = sch.split(fused(sch, loops), [None, threads])
    sch.bind(outer, BLOCKS)
    sch.bind(inner, THREADS)
    return inner


def bind_alone(sch: Schedule, rv: BlockRV) -> None:
    """Run the nest of a block on one thread."""
    for tag in (THREADS, BLOCKS):
        loops = sch.get_loops(rv)
        sch.bind(sch.add_unit_loop(loops[0] if loops else rv), tag)


def bind_nest(
    sch: Schedule,
    rv: BlockRV,
    limits: GPULimits,
    accept: Callable[[Schedule], bool] = lambda attempt: True,
) -> str | None:
    """Bind what can be bound of the loops around a block, whatever the nest computes.

    ``accept`` may refuse a schedule; the next one has a thread in each block, then one thread in
    all. Returns why the nest runs on one thread, if it does although it has loops.
    """
    chain = _chain(sch, rv)
    if not chain and sch.get_loops(rv):
        bind_alone(sch, rv)
        return "memory decides how often its outermost loop runs"
    independent, reason = _independent(sch, chain)
    for loops in _groups(chain, independent):
        for alone in (False, True):
            attempt = sch.copy()
            try:
                if loops != chain[: len(loops)]:
                    attempt.reorder(*loops, *(loop for loop in chain if loop not in loops))
                threads = 1 if alone else _threads_of(attempt, loops, limits)
                bind_flat(attempt, loops, threads)
            except ScheduleError as error:
                reason = reason or error.summary
                continue
            if accept(attempt):
                sch.become(attempt)
                return None
            reason = "its threads would have to wait for each other where not all come by"
    bind_alone(sch, rv)
    return reason


def _groups(chain: Sequence[LoopRV], independent: list[LoopRV]) -> Iterator[list[LoopRV]]:
    """Loops to bind together: all independent ones, else fewer of those that stand first."""
    if independent:
        yield independent
    leading = 0
    while leading < len(independent) and independent[leading] == chain[leading]:
        leading += 1
    for count in range(min(leading, len(independent) - 1), 0, -1):
        yield independent[:count]


def _threads_of(sch: Schedule, loops: Sequence[LoopRV], limits: GPULimits) -> int:
    """Threads per block for all iterations of some loops."""
    extents = [as_int(sch.get(loop).extent) for loop in loops]
    known = [extent for extent in extents if extent is not None]
    return flat_threads(limits, prod(known) if len(known) == len(extents) else None)


def _chain(sch: Schedule, rv: BlockRV) -> list[LoopRV]:
    """The outermost serial loops around a block, one directly in the other, of known extents."""
    found: list[LoopRV] = []
    for loop in sch.get_loops(rv):
        node = sch.get(loop)
        if node.kind != SERIAL or _reads_memory(node):
            break
        found.append(loop)
        if type(node.body) is not For:
            break
    return found


def _reads_memory(loop: For) -> bool:
    """Whether memory decides about the iterations: the host, which launches, can't read it."""
    return any(type(x) is BufferLoad for e in (loop.min, loop.extent) for x in pre_order(e))


def _independent(sch: Schedule, chain: Sequence[LoopRV]) -> tuple[list[LoopRV], str | None]:
    """The loops whose iterations may run at once, and why the first other one's may not."""
    found, reason = [], None
    for loop in chain:
        if as_int(sch.get(loop).extent) == 1:
            continue
        try:
            sch.copy().bind(loop, BLOCKS)
        except ScheduleError as error:
            reason = reason or error.summary
            continue
        found.append(loop)
    return found, reason
