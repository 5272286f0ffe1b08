"""Searches for GPUs from the first candidate to the record, with a driver that has no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from cuda_programs import built, contents, matmul, on_device
from fake_cuda import FakeDriver

from tilewright import driver
from tilewright.ir import IRModule
from tilewright.meta_schedule import (
    Builder,
    BuilderInput,
    BuilderResult,
    EvaluatorConfig,
    Runner,
    tune_tir,
)
from tilewright.meta_schedule.runner import RunnerInput, RunnerResult
from tilewright.meta_schedule.runner.verification import Task
from tilewright.meta_schedule.runner.worker import evaluate
from tilewright.relax.transform import MetaScheduleApplyDatabase
from tilewright.target import Target

A100 = Target("nvidia/nvidia-a100")


class BuilderHere(Builder):
    """Builds in this process, where the imaginary devices get to know the kernels."""

    def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [BuilderResult(module=driver.compile(item.mod, item.target)) for item in inputs]


class RunnerHere(Runner):
    """Runs candidates in this process."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.results: list[RunnerResult] = []

    def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        config = EvaluatorConfig(repeat=1, min_repeat_ms=0.001)
        for item in inputs:
            key = item.reference.key
            task = self.tasks.setdefault(key, None) or Task(item.reference)
            self.tasks[key] = task
            self.results.append(evaluate(item.module, task, item.best_seconds, config))
            yield self.results[-1]


def test_a_search_ends_in_a_record_that_is_applied(fake_cuda: FakeDriver) -> None:
    func, runner = matmul(8, 8, 8), RunnerHere()
    database = tune_tir(
        func, A100, None, 3, builder=BuilderHere(), runner=runner,
        num_trials_per_iter=3,
    )  # fmt: skip
    assert runner.results and all(result.error is None for result in runner.results)
    assert all(result.verified for result in runner.results)
    assert not fake_cuda.errors
    (best, *_) = database.get_all_tuning_records()
    assert best.target is not None and best.target.kind == "cuda"
    applied = MetaScheduleApplyDatabase(database=database, target=A100)(IRModule({"main": func}))
    assert "blockIdx.x" in applied["main"].script()
    module = built(applied, str(A100))
    a, b = (np.random.default_rng(n).standard_normal((8, 8)).astype("float32") for n in (0, 1))
    given = [on_device(fake_cuda, x) for x in (a, b, np.zeros((8, 8), "float32"))]
    module(*given)
    np.testing.assert_allclose(contents(fake_cuda, given[2]), a @ b, rtol=1e-4, atol=1e-4)
