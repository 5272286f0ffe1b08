"""The least time for a program on a machine: its arithmetic, or moving its arguments once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.driver.peak import Bandwidth, Peaks, measured_peaks
from tilewright.meta_schedule.arg_info import ArgInfo
from tilewright.runtime import num_threads, set_num_threads
from tilewright.target import Target

# Which of the measured kinds of arithmetic some types of data use.
_KINDS = {"bfloat16": "bfloat16", "int8": "int8", "uint8": "int8"}


@dataclass(frozen=True)
class Floor:
    """Seconds that a call takes at least; ``bound`` is a kind of arithmetic or a cache level."""

    seconds: float
    bound: str


_ROUNDS = 3
"""What other programs disturb is slower, never faster: the best of so many rounds counts."""


@lru_cache
def _measured(target: Target) -> Peaks:
    before = num_threads()
    try:
        rounds = [measured_peaks(target, target.num_cores) for _ in range(_ROUNDS)]
    finally:
        set_num_threads(before)
    flops = {kind: max(item.flops[kind] for item in rounds) for kind in rounds[0].flops}
    bandwidth = {
        level: Bandwidth(
            max(item.bandwidth[level].read for item in rounds),
            max(item.bandwidth[level].copy for item in rounds),
        )
        for level in rounds[0].bandwidth
    }
    return Peaks(flops, bandwidth)


def peaks_here(target: Target) -> Peaks | None:
    """Measure what this machine can do, in some seconds; ``None`` if it isn't the target's."""
    here = Target("native")
    same = target.kind == "llvm" and target.mcpu == here.mcpu
    return _measured(target) if same and target.num_cores <= here.num_cores else None


def level_of(target: Target, nbytes: float) -> str:
    """Return the cache level that holds so many bytes, or ``"DRAM"``."""
    sizes = {
        "L1": target.l1_bytes * target.num_cores,
        "L2": target.l2_bytes * target.num_cores,
        "L3": target.l3_bytes,
    }
    return next((name for name, size in sizes.items() if nbytes <= size), "DRAM")


def arithmetic_of(infos: Sequence[ArgInfo], peaks: Peaks) -> str:
    """Return which kind of measured arithmetic a program with such arguments uses."""
    found = [_KINDS[info.dtype] for info in infos if info.dtype in _KINDS]
    return next((kind for kind in found if kind in peaks.flops), "float32")


def floor_of(
    peaks: Peaks, target: Target, flops: float, nbytes: float, infos: Sequence[ArgInfo] = ()
) -> Floor:
    """Return the longer of the times for the arithmetic and for the bytes."""
    kind, level = arithmetic_of(infos, peaks), level_of(target, nbytes)
    computing = Floor(flops / peaks.flops[kind], f"{kind} arithmetic")
    moving = Floor(nbytes / peaks.bandwidth[level].read, f"{level} bandwidth")
    return max(computing, moving, key=lambda floor: floor.seconds)
