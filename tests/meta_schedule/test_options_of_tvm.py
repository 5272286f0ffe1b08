"""Options of searches and cost models under TVM's names: they do the same, or are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tuning_cases import FakeBuilder, FakeRunner, Listed, contexts, tune

from tests.meta_schedule.conftest import matmul
from tilewright import meta_schedule as ms
from tilewright.meta_schedule.cost_model import XGBModel
from tilewright.meta_schedule.cost_model.xgb_model import XGBConfig
from tilewright.meta_schedule.feature import Evaluation, PerStoreFeature, RandomFeatureExtractor
from tilewright.meta_schedule.search_strategy import EvolutionarySearch
from tilewright.meta_schedule.search_strategy.evolutionary import Group
from tilewright.meta_schedule.task_scheduler import RoundRobin
from tilewright.support.errors import TuneError
from tilewright.target import Target

NOTHING = Evaluation(np.zeros((0, 0, 0)), np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0))


def searched(target: Target, **options: Any) -> tuple[Any, EvolutionarySearch]:
    strategy = EvolutionarySearch(**options)
    context = ms.TuneContext(
        matmul(32, 32, 32), target=target, search_strategy=strategy, start_from_rules=False
    )
    context.pre_tuning(1000, 8)
    return context, strategy


def watched(strategy: EvolutionarySearch) -> tuple[list[int], list[int]]:
    """Note how many candidates are rated, and how many are drawn for that."""
    rated: list[int] = []
    drawn: list[int] = []
    rate = strategy._evaluated

    def evaluated(variant: Any, rows: Any) -> Any:
        rated.append(len(rows))
        return rate(variant, rows)

    strategy._evaluated = evaluated
    for variant in strategy.variants:

        def draw(size: int, rng: Any, own: Any = variant) -> Any:
            drawn.append(size)
            return type(own).draw(own, size, rng)

        variant.draw = draw
    return rated, drawn


@pytest.mark.parametrize(("ratio", "most"), [(0.0, 0), (0.01, 3), (0.5, 24), (1.0, 24)])
def test_measured_candidates_are_a_share_of_the_first_generation(
    target: Target, ratio: float, most: int
) -> None:
    context, strategy = searched(target, init_measured_ratio=ratio, max_fail_count=0)
    for _ in range(3):
        made = context.generate_measure_candidates()
        context.notify_runner_results(made, [ms.RunnerResult((1e-3,))] * len(made))
    taken, drawn = watched(strategy)
    strategy._initial(256)
    assert sum(taken) - sum(drawn) == most


@pytest.mark.parametrize("least", [0, 50, 5000])
def test_at_least_so_many_are_drawn(target: Target, least: int) -> None:
    _, strategy = searched(target, init_min_unmeasured=least)
    _, drawn = watched(strategy)
    strategy._initial(256)
    assert sum(drawn) >= max(least, 256)


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_invalid_candidates_are_drawn_again(target: Target, failures: int) -> None:
    _, strategy = searched(target, max_fail_count=failures)
    strategy._evaluated = lambda variant, rows: Group(rows[:0], NOTHING, np.zeros(0))
    _, drawn = watched(strategy)
    assert not strategy._initial(256)
    assert len(drawn) == len(strategy.variants) * (1 + failures)


def test_what_means_nothing_here_is_refused() -> None:
    with pytest.raises(TuneError, match="nothing that corresponds to genetic_max_fail_count=10"):
        EvolutionarySearch(genetic_max_fail_count=10)
    with pytest.raises(TuneError, match=r"its options are .*init_measured_ratio"):
        EvolutionarySearch(genetic_max_fail_count=0)
    for ratio in (-0.1, 1.5, float("nan")):
        with pytest.raises(TuneError, match="from 0 to 1"):
            EvolutionarySearch(init_measured_ratio=ratio)
    with pytest.raises(TuneError, match="not be negative"):
        EvolutionarySearch(max_fail_count=-1)
    for options in (
        {"early_stopping_rounds": 50}, {"average_peak_n": 32}, {"adaptive_training": True},
        {"verbose_eval": 25},
    ):  # fmt: skip
        with pytest.raises(TuneError, match=f"corresponds to {next(iter(options))}=.*num_warmup"):
            XGBModel(**options)
    with pytest.raises(TuneError, match="tree_method is one of auto, exact, approx, hist"):
        XGBModel(tree_method="gpu_hist")
    with pytest.raises(TuneError, match="positive"):
        XGBModel(num_tuning_cores=0)
    with pytest.raises(TuneError, match="are in config"):
        XGBModel(config=XGBConfig(), max_depth=3)
    for extractor in ("random-feature", RandomFeatureExtractor(), PerStoreFeature(5, 10, 64, True)):
        with pytest.raises(TuneError, match="learns from features per store"):
            XGBModel(extractor=extractor)


def test_a_model_has_the_parameters_that_it_is_given() -> None:
    model = XGBModel(
        extractor=PerStoreFeature(), config=XGBConfig(max_depth=4, gamma=0.5, eta=0.1, seed=7),
        num_warmup_samples=40, verbose_eval=0, adaptive_training=False, num_tuning_cores=2,
        tree_method="exact",
    )  # fmt: skip
    chosen = {name: model.parameters[name] for name in ("max_depth", "gamma", "eta", "nthread")}
    assert chosen == {"max_depth": 4, "gamma": 0.5, "eta": 0.1, "nthread": 2}
    assert model.parameters["tree_method"] == "exact"
    assert (model.min_data, model.seed) == (40, 7)
    plain = XGBModel().parameters
    assert (plain["max_depth"], plain["eta"], plain["nthread"]) == (5, 0.25, 1)
    assert plain["tree_method"] == "hist" and plain["gamma"] == 0.001


@pytest.mark.parametrize("method", ["auto", "exact", "approx", "hist"])
def test_it_learns_by_every_method(target: Target, method: str) -> None:
    context, _ = searched(target)
    model = XGBModel(config=XGBConfig(tree_method=method), num_warmup_samples=8, rounds=4)
    made = context.generate_measure_candidates()
    seconds = [1e-3 * (1 + number) for number in range(len(made))]
    model.update(context, made, [ms.RunnerResult((s,)) for s in seconds])
    assert model.trained
    scores = model.predict(context, made)
    assert scores.shape == (len(made),) and np.isfinite(scores).all()


def test_callbacks_find_tasks_by_tvms_names() -> None:
    seen: list[Any] = []

    class Looks(ms.MeasureCallback):
        def apply(self, task_scheduler: Any, task_id: int, *results: Any) -> None:
            record = task_scheduler.tasks_[task_id]
            seen.append((record.ctx.task_name, record.task_weight, record.ctx is record.context))
            assert task_scheduler.database_ is task_scheduler.database
            assert task_scheduler.cost_model_ is None

    tune(
        RoundRobin(), contexts(Listed()), 4,
        callbacks=[Looks()], builder=FakeBuilder(), runner=FakeRunner(),
    )  # fmt: skip
    assert seen == [("task0", 1.0, True)]
