"""Whole GPU programs, their CUDA text run on a CPU with threads that wait for each other."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import driver
from tilewright.ir import IRModule, Var
from tilewright.support.errors import LowerError, ScheduleError
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.interpreter import run

sys.path.insert(0, str(Path(__file__).parent / "cuda"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tir" / "transform"))
import test_gpu_pipeline as programs
import test_random_gpu_schedules as random_schedules
from cuda_on_cpu import COMPILER, Program, launches

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")


def agrees(func: PrimFunc, scheduled: IRModule, arch: str = "sm_75") -> None:
    """Compare what the kernels compute, one after the other, with the unscheduled program."""
    target = Target(f"cuda -arch={arch}")
    lowered = driver.lower(scheduled, target)
    rng = np.random.default_rng(0)
    shapes = [[int(extent.value) for extent in buffer.shape] for buffer in func.buffers]
    first = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    second = [item.copy() for item in first]
    run(func, *first)
    main = lowered["main"]
    memory = {buffer.data: array for buffer, array in zip(main.buffers, second)}
    program = Program(lowered, target)
    for name, args in launches(lowered):
        info = program.code.kernels[name]
        given = [memory[arg] if isinstance(arg, Var) else int(arg.value) for arg in args]
        program(name, **{param.name: value for param, value in zip(info.arguments, given)})
    for a, b in zip(first, second):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5)


def test_matmul_through_shared_memory() -> None:
    func = programs.matmul(16, 16, 8)
    agrees(func, programs.tiled_matmul(func).mod)


def test_matmul_of_odd_sizes() -> None:
    func = programs.matmul(13, 11, 9)
    agrees(func, programs.tiled_matmul(func).mod)


@pytest.mark.parametrize(("columns", "threads"), [(64, 32), (96, 16), (100, 64), (37, 24)])
def test_sums_across_threads(columns: int, threads: int) -> None:
    func = programs.row_sum(3, columns)
    sch = Schedule(func)
    i, k = sch.get_loops(sch.get_block("B"))
    sch.bind(i, "blockIdx.x")
    sch.bind(sch.split(k, [None, threads])[1], "threadIdx.x")
    agrees(func, sch.mod)


def test_random_schedules() -> None:
    ran = 0
    for seed in range(100, 110):
        draw = random.Random(seed)
        func, stages = random_schedules.program(draw)
        try:
            scheduled: Any = random_schedules.schedule(draw, func, stages).mod
            driver.lower(scheduled, "cuda -arch=sm_75")
        except (ScheduleError, LowerError):
            continue
        agrees(func, scheduled)
        ran += 1
    assert ran > 3
