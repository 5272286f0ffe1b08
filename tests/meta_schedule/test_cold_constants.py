"""Functions of graphs are timed with their constants in far caches, and nothing else there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, random
from tests.relax.helpers import tensor as sized
from tilewright import relax
from tilewright.dlight import default_schedule
from tilewright.ir import IRModule, structural_equal
from tilewright.meta_schedule.database import MemoryDatabase
from tilewright.meta_schedule.runner import EvaluatorConfig, LocalRunner, measuring, worker
from tilewright.meta_schedule.runner.base import TUNING
from tilewright.meta_schedule.runner.measuring import Stopwatch, cool
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.relax import op
from tilewright.relax.tuning import models as tuning
from tilewright.relax.tuning.models import tune_relax
from tilewright.runtime import TimingResult, fetch, tensor
from tilewright.target import Target
from tilewright.tir.attrs import CONSTANT_BYTES, PREFETCH_DISTANCE
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=1)
# Constants of so many bytes don't stay in a core's own caches, with as many others.
FAR = Target("native").l2_bytes


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What happens to caches: a number of bytes that are flushed, or an array that is read."""
    made = list[object]()
    monkeypatch.setattr(measuring, "flush_cache", made.append)
    monkeypatch.setattr(measuring, "fetch", lambda array: made.append(float(array.flat[0])))
    return made


def arguments() -> list[Any]:
    return [tensor(np.full(3, float(n), "float32")) for n in range(3)] + [7]


def test_only_what_is_constant_stays_cold(seen: list[object]) -> None:
    config = EvaluatorConfig(flush_cache_bytes=100, cold_constants=True)
    cool(arguments(), {1}, config)
    assert seen == [100, 0.0, 2.0]


def test_without_constants_all_is_cold_if_somebody_says_so(seen: list[object]) -> None:
    cool(arguments(), {1}, EvaluatorConfig(flush_cache_bytes=100))
    assert seen == [100]


def test_each_call_that_is_timed_finds_cold_constants(seen: list[object]) -> None:
    config = replace(TUNING.in_graph(FAR), patience_ms=0.0, retries=0)

    def function(*_: object) -> None:
        seen.append("call")

    timing = Stopwatch().time(function, arguments(), None, config, {0, 1})
    assert len(timing.seconds) == config.repeat
    timed = ["flush", 2.0, "call"]
    told = ["flush" if item == 2 * FAR else item for item in seen]
    # To warm up, the second time after the look for disturbances, which uses other cores.
    assert told[:2] == ["call", "call"]
    assert told[2 : 2 + 3 * config.repeat] == timed * config.repeat


def test_the_first_call_that_is_timed_does_not_make_a_candidate_slow(
    seen: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call in a few takes long, whatever it is."""
    config = replace(TUNING.in_graph(FAR), patience_ms=0.0, retries=0)
    given = iter([9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])

    def measure(*_: object, number: int, repeat: int, **__: object) -> TimingResult:
        return TimingResult(tuple(next(given) for _ in range(repeat)), number)

    monkeypatch.setattr(measuring, "measure", measure)
    timing = Stopwatch().time(lambda *_: None, arguments(), 1.0, config, {0, 1})
    assert timing.seconds == (9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)


def test_a_candidate_that_is_far_from_the_best_gets_few_cold_calls(
    seen: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(TUNING.in_graph(FAR), patience_ms=0.0, retries=0)

    def measure(*_: object, number: int, repeat: int, **__: object) -> TimingResult:
        return TimingResult((1.2,) * repeat, number)

    monkeypatch.setattr(measuring, "measure", measure)
    assert len(Stopwatch().time(lambda *_: None, arguments(), 1.0, config).seconds) == 3


def test_constants_that_stay_in_the_caches_of_a_core_are_not_far() -> None:
    assert TUNING.in_graph(FAR // 2) is TUNING


def test_in_a_race_too(seen: list[object]) -> None:
    config = TUNING.in_graph(FAR)
    worker._burst(lambda *_: seen.append("call"), arguments(), 5.0, config, {2})
    assert seen == ["call", 2 * FAR, 0.0, 1.0, "call"]


def test_twice_as_many_bytes_pass_by_as_the_constants_of_the_graph_have() -> None:
    config = TUNING.in_graph(3 * FAR)
    assert config.cold_constants and config.flush_cache_bytes == 6 * FAR and config.number == 1
    most = Target("native").l3_bytes
    assert TUNING.in_graph(most + 1).flush_cache_bytes == 2 * most
    assert TUNING.in_graph(0) is TUNING
    flushed = replace(TUNING, flush_cache_bytes=5)
    assert flushed.in_graph(3 * FAR) is flushed


def test_who_says_how_to_measure_is_obeyed() -> None:
    class Own(LocalRunner):
        pass

    for runner in (Own(), LocalRunner(evaluator_config=EvaluatorConfig(repeat=2))):
        assert runner.in_graph(FAR) is runner
    runner = LocalRunner(12.0, replace(TUNING, verify=False), 0.5, candidates_per_worker=3)
    made = runner.in_graph(FAR)
    assert made.evaluator_config == replace(TUNING, verify=False).in_graph(FAR)
    assert (made.timeout_sec, made.cooldown_sec, made.candidates_per_worker) == (12.0, 0.5, 3)
    assert made.settings() != runner.settings()


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (1000,)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool"])
def test_any_array_is_read(shape: tuple[int, ...], dtype: str) -> None:
    fetch(np.ones(shape, dtype))


def product(constant: bool) -> IRModule:
    depth = FAR // 4 // 8
    w = random(depth, 8, seed=1)
    if constant:
        return graph(lambda x: op.matmul(x, relax.const(w)), sized((4, depth)))
    return graph(lambda x, y: op.matmul(x, y), sized((4, depth)), sized((depth, 8)))


@pytest.mark.parametrize("race", [True, False])
@pytest.mark.parametrize("constant, flushed", [(True, 2 * FAR), (False, 0)])
def test_tuning_a_model_measures_so(
    constant: bool, flushed: int, race: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[LocalRunner]()

    def tune_tasks(*_: object, runner: LocalRunner, **options: object) -> None:
        given.append(runner)

    monkeypatch.setattr(tuning, "tune_tasks", tune_tasks)
    tune_relax(product(constant), None, TARGET, None, 4, database=MemoryDatabase(), race=race)
    (runner,) = given
    assert runner.evaluator_config.flush_cache_bytes == flushed
    assert runner.evaluator_config.cold_constants == constant


def test_rules_schedule_a_task_as_in_its_graph() -> None:
    """A product that fetches its weights ahead where those of a graph pass by meanwhile."""
    lowered = tuning.to_tensor_functions(product(True), TARGET)
    (task,) = (x for x in tuning.extract_tasks(lowered, TARGET) if "matmul" in x.task_name)
    large = 4 * Target("native").l3_bytes
    by_rule = default_schedule(TARGET)
    made = {}
    for size in (0, large):
        context = TuneContext(task.mod, target=TARGET, constant_bytes=size)
        sch = context.clone().rule_schedule()
        assert sch is not None
        made[size] = sch.mod.script()
        func = task.mod["main"]
        told = func.with_attr(CONSTANT_BYTES, size) if size else func
        expected = by_rule(IRModule({"main": told}))["main"]
        assert structural_equal(expected.body, sch.mod["main"].body)
        assert context.hash == TuneContext(task.mod, target=TARGET).hash
    assert PREFETCH_DISTANCE in made[large] and PREFETCH_DISTANCE not in made[0]
    assert CONSTANT_BYTES not in task.mod.script()


def test_what_a_rule_was_told_of_its_graph_makes_no_other_program() -> None:
    lowered = tuning.to_tensor_functions(product(True), TARGET)
    (task,) = (x for x in tuning.extract_tasks(lowered, TARGET) if "matmul" in x.task_name)
    context = TuneContext(task.mod, target=TARGET, constant_bytes=4 * FAR)
    assert context.rule_choices is not None
    (first,) = context.rule_choices.candidates(1)
    replayed = Schedule(task.mod)
    first.sch.trace.apply_to_schedule(replayed)
    assert not context.rule_choices.claim(replayed)
