"""Random schedules of the shape that GPUs want: stages in one kernel, threads of their own each.

The last stage's outer loops become blocks, the stages before it are computed inside, into shared
or private memory, and the inner loops of every stage are split and bound to threads at random, with
different extents. The lowered kernel must agree with the program, without races.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilewright.script import parse
from tilewright.support.errors import LowerError, ScheduleError
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.transform import gpu_pipeline

PROGRAMS = {
    "mirror": """
    B = T.alloc_buffer(({a}, {b}), "float32")
    for i, j in T.grid({a}, {b}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid({a}, {b}):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[vi, {b} - 1 - vj] + B[vi, vj // 2]
""",
    "window": """
    B = T.alloc_buffer(({a}, {b}), "float32")
    C = T.alloc_buffer(({a}, {b}), "float32")
    for i, j in T.grid({a}, {b}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
    for i, j, k in T.grid({a}, {b}, 3):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + B[vi, T.min(vj + vk, {b} - 1)]
    for i, j in T.grid({a}, {b}):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = C[vi, {b} - 1 - vj] * B[vi, vj]
""",
    "normalise": """
    C = T.alloc_buffer(({a},), "float32")
    D = T.alloc_buffer(({a}, {b}), "float32")
    E = T.alloc_buffer(({a},), "float32")
    for i, k in T.grid({a}, {b}):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32("-inf")
            C[vi] = T.max(C[vi], A[vi, vk])
    for i, j in T.grid({a}, {b}):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = A[vi, vj] - C[vi]
    for i, k in T.grid({a}, {b}):
        with T.block("E"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                E[vi] = T.float32(0)
            E[vi] = E[vi] + D[vi, vk] * D[vi, vk]
    for i, j in T.grid({a}, {b}):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = D[vi, {b} - 1 - vj] + E[vi]
""",
}
TAGS = ("threadIdx.x", "threadIdx.x", "threadIdx.x", "threadIdx.y", "vthread.x")
SEEDS = 24


def program(draw: random.Random) -> tuple[PrimFunc, list[str]]:
    body = draw.choice(list(PROGRAMS.values()))
    a, b = draw.choice([2, 3, 4]), draw.choice([5, 8, 12, 33])
    head = f"""
@T.prim_func
def main(A: T.Buffer(({a}, {b}), "float32"), Z: T.Buffer(({a}, {b}), "float32")):"""
    func = parse(head + body.format(a=a, b=b))
    return func, [name for name in "BCDE" if f'T.block("{name}")' in body]


def schedule(draw: random.Random, func: PrimFunc, stages: list[str]) -> Schedule:
    sch = Schedule(func)
    rows, columns = sch.get_loops(sch.get_block("Z"))
    at = rows
    if draw.random() < 0.4:
        at, columns = sch.split(columns, [None, draw.choice([4, 8])])
    for name in reversed(stages):
        sch.compute_at(sch.get_block(name), at)
        sch.set_scope(sch.get_block(name), 0, draw.choice(["shared", "shared", "local"]))
    sch.bind(rows, "blockIdx.x")
    for name in [*stages, "Z"]:
        block = sch.get_block(name)
        own = sch.get_loops(block)[1 if at is rows else 2 :]
        draw.shuffle(own)
        for loop in own[: draw.choice([1, 1, 2])]:
            bind(draw, sch, loop)
    return sch


def bind(draw: random.Random, sch: Schedule, loop: object) -> None:
    """Bind a part of a loop to a thread, if the primitives allow it."""
    try:
        parts = sch.split(
            loop, draw.choice([[None, 4], [None, 8], [4, None], [None, 32], [None, 3]])
        )
        sch.bind(draw.choice(parts), draw.choice(TAGS))
    except ScheduleError:
        return


def check(seed: int) -> str:
    """Run one schedule; say how it went."""
    draw = random.Random(seed)
    func, stages = program(draw)
    try:
        sch = schedule(draw, func, stages)
    except ScheduleError:
        return "not scheduled"
    try:
        mod = gpu_pipeline(Target("cuda"))(sch.mod)
    except LowerError:
        return "refused"
    verify(mod)
    rng = np.random.default_rng(seed)
    a = rng.standard_normal([extent.value for extent in func.buffers[0].shape]).astype("float32")
    expected, got = np.zeros_like(a), np.zeros_like(a)
    run(func, a, expected)
    run(mod, a, got, check_races=True)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    return "synchronised" if "storage_sync" in mod.script() else "ran"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_schedule(seed: int) -> None:
    assert check(seed) in ("not scheduled", "refused", "synchronised", "ran")


def test_enough_of_them_run() -> None:
    results = [check(seed) for seed in range(SEEDS)]
    assert results.count("synchronised") >= SEEDS // 4
