"""A farm on a real Ray cluster of this machine: slow, for it starts a dozen processes."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import IRModule
from tilewright.meta_schedule import RayBuilder, TaskScheduler, tune_tasks
from tilewright.meta_schedule.builder import BuilderInput
from tilewright.meta_schedule.farm import DeviceRunner, cluster
from tilewright.meta_schedule.farm.workers import About, DeviceWorker, Measurement
from tilewright.meta_schedule.measure_callback import MeasureCallback, default_callbacks
from tilewright.meta_schedule.runner import EvaluatorConfig
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.runtime import Module
from tilewright.target import Target

ray = pytest.importorskip("ray", reason="a farm needs tilewright[ray]")
pytestmark = pytest.mark.slow

TARGET = Target("native").with_options(num_cores=1)
DEVICE = cluster.DEVICE + "x"


def matmul(n: int = 32) -> IRModule:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return IRModule({"main": te.create_prim_func([a, b, c])})


@pytest.fixture(scope="module")
def farm() -> Iterator[Any]:
    """Two builders and two devices, which share this machine."""
    patch = pytest.MonkeyPatch()
    made = {cluster.BUILDER: 2.0, DEVICE: 2.0}
    patch.setattr(cluster, "resources", lambda *_: made)
    module = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(module)  # the other processes can't import it
    yield cluster.connect()
    ray.cloudpickle.unregister_pickle_by_value(module)
    patch.undo()
    ray.shutdown()


class Recorded(DeviceWorker):
    """A device that checks candidates, but gives times that follow from their code."""

    def __init__(self) -> None:
        options = (EvaluatorConfig(repeat=1, min_repeat_ms=0.1), 20.0, 60.0, 1)
        super().__init__("x", cluster.own_count(DEVICE), *options)

    def work(self, message: Measurement) -> Any:
        found = super().work(message)
        assert isinstance(found, list)
        return [
            replace(result, run_secs=(recorded(item.module),)) if result.run_secs else result
            for item, result in zip(message.inputs, found)
        ]


def recorded(module: Module) -> float:
    digest = hashlib.sha256(b"".join(module.code.objects)).digest()
    return 1e-6 * (1 + int.from_bytes(digest[:2], "little"))


class Watched(DeviceRunner):
    """Remembers the processes of its devices."""

    def __init__(self, most: int) -> None:
        self.pids: list[int] = []
        self.used: set[str] = set()
        hands = cluster.RayHands(ray, DEVICE, Recorded, (), most)
        super().__init__(hands, "device", patience=300.0)
        while len(self.pids) < most:  # all of them have started
            self._crew._wait()

    def _fits(self, about: object) -> str | None:
        assert isinstance(about, About)
        self.pids.append(about.pid)
        return super()._fits(about)

    def _measurement(self, inputs: Any, worker: str, *options: Any, **named: Any) -> Measurement:
        if inputs:
            self.used.add(worker)
        return super()._measurement(inputs, worker, *options, **named)


class KillOne(MeasureCallback):
    """Ends a device's process after some results."""

    def __init__(self, runner: Watched, after: int) -> None:
        self.runner, self.left = runner, after

    def on_result(self, scheduler: Any, task: Any, trial: Any) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(self.runner.pids[0], signal.SIGKILL)


def tune(runner: Watched, *callbacks: MeasureCallback) -> tuple[list[str], list[float]]:
    scheduler = TaskScheduler.create("gradient")
    scheduler.final_rounds = 0
    database = tune_tasks(
        [TuneContext(matmul(), target=TARGET)],
        max_trials_global=16,
        num_trials_per_iter=8,
        builder=RayBuilder(patience=300.0),
        runner=runner,
        database="memory",
        cost_model="random",
        task_scheduler=scheduler,
        measure_callbacks=[*default_callbacks(), *callbacks],
    )
    records = database.get_all_tuning_records()
    assert all(record.verified for record in records)
    return [str(item.trace.as_json()) for item in records], [item.best_seconds for item in records]


def test_two_devices_find_what_one_does_and_a_lost_one_costs_nothing(farm: Any) -> None:
    alone = tune(Watched(1))
    assert len(alone[0]) == 16
    two = Watched(2)
    assert tune(two) == alone
    assert len(two.used) == 2
    killed = Watched(2)
    assert tune(killed, KillOne(killed, 3)) == alone
    assert len(killed._crew.dispatcher.lost) == 1


def test_builders_compile_and_their_texts_are_made_here(farm: Any) -> None:
    builder = RayBuilder(timeout_sec=60.0, patience=300.0)
    inputs = [BuilderInput(matmul(n), TARGET) for n in (8, 16)] + [
        BuilderInput(matmul(8), TARGET, max_lines=1)
    ]
    built = builder.build(inputs)
    assert [item.reason for item in built] == [None, None, "build"]
    module = built[1].module
    assert module is not None
    a = np.random.default_rng(0).random((16, 16), dtype="float32")
    out = np.zeros((16, 16), "float32")
    module(a, a, out)
    np.testing.assert_allclose(out, a @ a, rtol=1e-5)
    assert "define" in module.get_source("ll")
    builder.close()
