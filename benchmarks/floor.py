"""What an operator can't be faster than: loops of its multiply-adds alone, or of its bytes alone.

The loop takes part in the race like the others (``race.py``), so that an operator's share of what
the machine can do is of the same minutes and of the same statistic. A peak measured once and by its
best try would be neither: clocks vary by a few per cent, and memory, which others use too, by
much more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.workload import Workload
from tilewright import runtime
from tilewright.codegen.llvm.bare_loops import aligned, chained, copying, filling, reading, steps
from tilewright.target import Target

Call = Callable[[], Any]

#: The loops go in steps of up to so many bytes; tries of each candidate.
_STEP, _TRIES = 512, 5

#: Bytes of one kind below this share of the others are no part of the floor.
_FEW = 0.01


def prepare(
    workload: Workload, target: Target, out_shape: tuple[int, ...]
) -> tuple[Call, dict[str, Any]]:
    """Return the slower of both loops, and which ``bound`` that is: a kind or a cache level."""
    threads = target.num_cores
    runtime.set_num_threads(threads)
    read, written = workload.read_bytes, workload.written_bytes(out_shape)
    found = {_level(target, read + written): _moving(target, read, written)}
    if workload.flops:
        found[workload.kind] = _computing(target, workload.kind, workload.flops)
    bound = max(found, key=lambda name: _seconds(found[name]))
    return found[bound], {"bound": bound}


def _level(target: Target, nbytes: int) -> str:
    """Return the level that holds so many bytes."""
    threads = target.num_cores
    sizes = {
        "L1": target.l1_bytes * threads,
        "L2": target.l2_bytes * threads,
        "L3": target.l3_bytes,
    }
    return next((name for name, size in sizes.items() if nbytes <= size), "DRAM")


def _computing(target: Target, kind: str, flops: float) -> Call:
    known = steps(target)
    step = known.get(kind, known["float32"])
    module, chains = chained(target, step)
    threads = target.num_cores
    count = max(1, round(flops / threads / chains / step.flops))
    x, y = (runtime.tensor(aligned(4096 * threads)) for _ in range(2))
    x.numpy()[...] = 0
    return partial(module["main"].ffi, x, y, count, 1, threads)


def _moving(target: Target, read: int, written: int) -> Call:
    """Return the fastest way to read so many bytes and write so many others."""
    both = min(read, written)
    ways = []
    for streaming in (False, True):
        parts: list[tuple[Callable[..., runtime.Module], int]] = []
        if both > _FEW * max(read, written):
            parts.append((partial(copying, streaming=streaming), both))
        if read - both > _FEW * read:
            parts.append((reading, read - both))
        if written - both > _FEW * written:
            parts.append((partial(filling, streaming=streaming), written - both))
        ways.append(_in_turn([_over(target, loop, nbytes) for loop, nbytes in parts]))
    return min(ways, key=_seconds)


def _over(target: Target, loop: Callable[..., runtime.Module], nbytes: int) -> Call:
    """Let each thread run a loop over its part of so many bytes."""
    threads = target.num_cores
    part = max(_STEP, -(-nbytes // threads // _STEP) * _STEP)
    x, y = (runtime.tensor(aligned(part * threads)) for _ in range(2))
    return partial(loop(target, part)["main"].ffi, x, y, part, 1, threads)


def _in_turn(calls: list[Call]) -> Call:
    if len(calls) == 1:
        return calls[0]

    def call() -> None:
        for each in calls:
            each()

    return call


def _seconds(call: Call) -> float:
    """Return the shortest of some calls."""
    best = float("inf")
    for _ in range(_TRIES):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
