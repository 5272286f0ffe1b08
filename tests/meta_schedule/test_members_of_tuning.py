"""Members of tuning's components that TVM's users read, as they were given."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import pytest
from tilewright.s_tir.meta_schedule import (
    builder,
    cost_model,
    database,
    feature_extractor,
    measure_callback,
    runner,
    schedule_rule,
    search_strategy,
    space_generator,
    task_scheduler,
)

from tilewright import s_tir
from tilewright.s_tir import meta_schedule as ms


def test_names_of_choices() -> None:
    """Unions for annotations: a component, or the name of one."""
    for union, base, name in (
        (ms.Builder.BuilderType, builder.Builder, "local"),
        (ms.CostModel.CostModelType, cost_model.CostModel, "xgb"),
        (ms.Database.DatabaseType, database.Database, "json"),
        (ms.FeatureExtractor.FeatureExtractorType, feature_extractor.FeatureExtractor,
         "per-store-feature"),
        (ms.Runner.RunnerType, runner.Runner, "local"),
        (ms.SearchStrategy.SearchStrategyType, search_strategy.SearchStrategy, "evolutionary"),
        (ms.SpaceGenerator.SpaceGeneratorType, space_generator.SpaceGenerator, "post-order-apply"),
        (ms.TaskScheduler.TaskSchedulerType, task_scheduler.TaskScheduler, "gradient"),
    ):  # fmt: skip
        choices = typing.get_args(union)
        assert base in choices
        assert name in [text for item in choices for text in typing.get_args(item)]
    callbacks = typing.get_args(ms.MeasureCallback.CallbackListType)
    assert measure_callback.MeasureCallback in callbacks


def build(*_: Any) -> None:
    raise AssertionError("nobody builds here")


def test_builders_and_runners() -> None:
    assert builder.LocalBuilder(1, 5.0, build).f_build is build
    config = runner.EvaluatorConfig(1, 2, 3, True)
    assert config.enable_cpu_cache_flush and not runner.EvaluatorConfig().enable_cpu_cache_flush


def test_databases(tmp_path: Path) -> None:
    def schedule(sch: Any) -> bool:
        return False

    assert database.ScheduleFnDatabase(schedule).schedule_fn is schedule
    parts = [database.MemoryDatabase(), database.MemoryDatabase()]
    assert list(database.UnionDatabase(*parts).databases) == parts
    assert list(database.OrderedUnionDatabase(*parts).databases) == parts
    work = str(tmp_path / "w.json")
    assert str(database.JSONDatabase(work, str(tmp_path / "r.json")).path_workload) == work


def test_rules() -> None:
    rule = schedule_rule.AutoInline(True, False, True, False, True, False, ["tirx.exp"])
    assert (rule.into_producer, rule.into_consumer, rule.inline_const_tensor) == (True, False, True)
    assert (rule.disallow_if_then_else, rule.require_injective) == (False, True)
    assert not rule.require_ordered and len(rule.disallow_op) == 1
    reuse = schedule_rule.ReuseType("must", [1, 2], "shared")
    assert (reuse.req, list(reuse.levels), reuse.scope) == ("must", [1, 2], "shared")
    tiling = schedule_rule.MultiLevelTiling("SSRSRS", None, 64, None, None, reuse)
    assert tiling.structure == "SSRSRS"
    unroll = schedule_rule.ParallelizeVectorizeUnroll(max_vectorize_extent=8)
    assert unroll.max_vectorize_extent == 8
    assert isinstance(schedule_rule.ApplyCustomRule(), schedule_rule.ScheduleRule)


def test_searches() -> None:
    search = search_strategy.EvolutionarySearch(
        population_size=9, init_measured_ratio=0.3, init_min_unmeasured=7, max_fail_count=2,
        genetic_num_iters=2, genetic_mutate_prob=0.5, eps_greedy=0.1,
    )  # fmt: skip
    assert (search.population_size, search.genetic_num_iters) == (9, 2)
    assert (search.init_measured_ratio, search.init_min_unmeasured) == (0.3, 7)
    assert search.max_fail_count == 2
    assert (search.genetic_mutate_prob, search.eps_greedy) == (0.5, 0.1)
    assert task_scheduler.GradientBased(window_size=4).window_size == 4
    parts = [space_generator.PostOrderApply(), space_generator.PostOrderApply()]
    assert list(space_generator.SpaceGeneratorUnion(parts).space_generators) == parts
    assert feature_extractor.PerStoreFeature(extract_workload=True).extract_workload


class Counting(cost_model.PyCostModel):
    """A model that says how often it was told about measurements."""

    def __init__(self) -> None:
        self.told = 0

    def load(self, path: str) -> None:
        raise AssertionError(path)

    def save(self, path: str) -> None:
        raise AssertionError(path)

    def update(self, context: Any, candidates: Any, results: Any) -> None:
        self.told += 1

    def predict(self, context: Any, candidates: Any) -> Any:
        return [0.0] * len(candidates)


def test_callbacks() -> None:
    assert isinstance(measure_callback.UpdateCostModel(), measure_callback.MeasureCallback)
    assert s_tir.meta_schedule.MeasureCallback is measure_callback.MeasureCallback
    model = Counting()
    model.update(None, [], [])
    assert model.told == 1 and list(model.predict(None, [1, 2])) == [0.0, 0.0]
    with pytest.raises(AssertionError):
        model.save("p")
