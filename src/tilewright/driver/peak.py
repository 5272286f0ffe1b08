"""The most that the cores can do: multiply-adds on registers, and reading and copying memory.

Measured by small loops in LLVM IR, each on as many threads as asked at once; the best of some
tries, for an idea of the machine: ``tilewright report`` draws roofs from it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.llvm.bare_loops import Step, aligned, chained, copying, reading, steps
from tilewright.runtime import Module, set_num_threads
from tilewright.target import Target

#: Bytes that the largest footprint has; more than any last-level cache that one VM gets.
_DRAM_BYTES = 256 << 20


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second: of reading, and of copying (bytes read and bytes written together)."""

    read: float
    copy: float


@dataclass(frozen=True)
class Peaks:
    """What all threads together reach.

    ``flops`` by kind (``float32``, ``bfloat16``, ``int8``); ``bandwidth`` by level.
    """

    flops: dict[str, float]
    bandwidth: dict[str, Bandwidth]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "flops": self.flops,
            "bandwidth": {
                name: {"read": item.read, "copy": item.copy}
                for name, item in self.bandwidth.items()
            },
        }

    def text(self) -> str:
        """Render for people."""
        rates = ", ".join(f"{kind} {rate / 1e9:.0f}" for kind, rate in self.flops.items())
        memory = ", ".join(
            f"{name} {item.read / 1e9:.0f}/{item.copy / 1e9:.0f}"
            for name, item in self.bandwidth.items()
        )
        return f"measured peaks: GFLOP/s {rates}; GB/s read/copied {memory}"


def _fastest(call: Any, args: Sequence[Any], seconds: float) -> float:
    best, end = float("inf"), time.perf_counter() + seconds
    call(*args)
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        call(*args)
        best = min(best, time.perf_counter() - start)
    return best


def _measured_flops(target: Target, step: Step, threads: int, seconds: float) -> float:
    module, chains = chained(target, step)
    count = 100_000
    x, y = np.zeros(4096 * threads, np.uint8), np.zeros(4096 * threads, np.uint8)
    best = _fastest(module["main"], (x, y, count, 1, threads), seconds)
    return float(step.flops) * chains * count * threads / best


def _bandwidth(target: Target, nbytes: int, threads: int, seconds: float) -> Bandwidth:
    """Measure footprints of ``nbytes`` over all threads together."""
    whole = nbytes // threads // 4096 * 4096
    half = nbytes // 2 // threads // 4096 * 4096
    repeats = max(1, (4 << 20) // nbytes)
    x, y = aligned(whole * threads), aligned(whole * threads)
    copies = [copying(target, half, streaming) for streaming in (False, True)]

    def rate(module: Module, part: int) -> float:
        seconds_each = _fastest(module["main"], (x, y, part, repeats, threads), seconds)
        return part * threads * repeats / seconds_each

    return Bandwidth(rate(reading(target, whole), whole), 2 * max(rate(m, half) for m in copies))


def measured_peak_flops(target: Target, seconds: float = 0.3) -> float:
    """Return fp32 operations per second of one core, by independent chains of vector FMAs."""
    return _measured_flops(target, steps(target)["float32"], 1, seconds)


def measured_peaks(target: Target, threads: int = 1, seconds: float = 0.05) -> Peaks:
    """Measure everything for so many threads."""
    set_num_threads(threads)
    if threads > 1:
        seconds *= 4  # until all of them have run at once
    sizes = {
        "L1": target.l1_bytes * threads // 2,
        "L2": target.l2_bytes * threads // 2,
        "L3": min(target.l3_bytes // 2, 16 << 20),
        "DRAM": max(_DRAM_BYTES, 4 * target.l3_bytes),
    }
    return Peaks(
        {
            kind: _measured_flops(target, step, threads, seconds)
            for kind, step in steps(target).items()
        },
        {name: _bandwidth(target, size, threads, seconds) for name, size in sizes.items()},
    )
