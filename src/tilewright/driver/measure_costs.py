"""Measuring what things cost on this machine: for ``tilewright doctor --measure``.

Each number is the best of many short tries, since what other programs and clocks disturb is slower,
never faster; but launches wait for other threads by nature, so theirs is the middle of all. Counts
per cycle are whole or half numbers in every CPU, so they are rounded to halves.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from tilewright.codegen.llvm import bare_loops
from tilewright.runtime import Module, set_num_threads
from tilewright.target import Costs, Target

_STEPS, _TRIES = 200_000, 30
_LAUNCHES = 2000
#: Bytes to read from memory: more than last-level caches hold, as far as these are known.
_FAR = 256 << 20
_LEVELS = ("l1", "l2", "l3", "memory")


def measure_costs(target: Target) -> dict[str, float]:
    """Measure what can be measured; takes a few seconds. ``target`` is this machine's CPU."""
    set_num_threads(1)
    steps = bare_loops.steps(target)
    step = steps["float32"]
    clock = bare_loops.SHIFTING_CYCLES * _STEPS / _seconds(bare_loops.shifting(target), _STEPS)
    one, _ = bare_loops.chained(target, step, 1)
    many, chains = bare_loops.chained(target, step)
    reads = {level: _rate(target, level) / clock for level in _LEVELS}
    found = {
        "clock": clock,
        "multiply_add_latency": _seconds(one, _STEPS) * clock / _STEPS,
        "multiply_adds": chains * _STEPS / (_seconds(many, _STEPS) * clock),
        "loads": reads["l1"] / (target.vector_bits // 8),
        "l2_bandwidth": reads["l2"],
        "l3_bandwidth": reads["l3"],
        "memory_bandwidth": reads["memory"],
    }
    if "bfloat16" in steps:
        dots, chains = bare_loops.chained(target, steps["bfloat16"])
        found["bf16_dots"] = chains * _STEPS / (_seconds(dots, _STEPS) * clock)
    for name in {"multiply_add_latency", "multiply_adds", "bf16_dots", "loads"} & found.keys():
        found[name] = max(round(2 * found[name]) / 2, 0.5)
    if target.num_cores > 1:
        usual = Costs()
        found["launch"] = _launch_seconds(target) * clock
        found["parallel_work"] = found["launch"] * usual.parallel_work / usual.launch
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def _times(call: Callable[[], object], tries: int) -> Iterator[float]:
    for _ in range(tries):
        start = time.perf_counter()
        call()
        yield time.perf_counter() - start


def _seconds(module: Module, count: int) -> float:
    x, y = (bare_loops.aligned(bare_loops.CHAIN_BYTES) for _ in range(2))
    main = module["main"]
    return min(_times(lambda: main(x, y, count, 1, 1), _TRIES))


def _rate(target: Target, level: str) -> float:
    """Bytes per second that one core reads from half of a cache, or from memory."""
    sizes = {"l1": target.l1_bytes // 2, "l2": target.l2_bytes // 2, "l3": target.l3_bytes // 2}
    size = sizes.get(level, max(_FAR, 4 * target.l3_bytes)) // 4096 * 4096
    repeats = max(1, (4 << 20) // size)
    x, y = bare_loops.aligned(size), bare_loops.aligned(4096)
    main = bare_loops.reading(target, size)["main"]
    tries = max(3, _TRIES * (4 << 20) // (size * repeats))
    return size * repeats / min(_times(lambda: main(x, y, size, repeats, 1), tries))


def _launch_seconds(target: Target) -> float:
    """Seconds that a launch on all cores takes, of threads that have just been used."""
    threads = target.num_cores
    x, y = (bare_loops.aligned(bare_loops.CHAIN_BYTES * threads) for _ in range(2))
    main = bare_loops.waking(target)["main"]
    set_num_threads(threads)
    together = statistics.median(_times(lambda: main(x, y, 1, 1, threads), _LAUNCHES))
    set_num_threads(1)
    alone = statistics.median(_times(lambda: main(x, y, 1, 1, 1), _LAUNCHES))
    return max(together - alone, 1e-7)
