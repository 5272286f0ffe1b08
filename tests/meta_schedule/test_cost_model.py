"""Cost models: ranking before and after training, files, failures."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.meta_schedule.conftest import matmul
from tilewright import te, topi
from tilewright.meta_schedule.cost_model import (
    AnalyticModel,
    CostModel,
    MLPModel,
    RandomModel,
    XGBModel,
)
from tilewright.meta_schedule.feature import FEATURE_NAMES, candidate_evaluation
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.search_strategy.base import candidate_of
from tilewright.meta_schedule.search_strategy.design import make_variants
from tilewright.meta_schedule.space_generator import SpaceGenerator
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.support.errors import MissingExtraError, TuneError
from tilewright.tir.schedule import Schedule


@pytest.fixture
def population(target):
    generator = SpaceGenerator.create("post-order-apply", target=target)
    mod = Schedule(matmul(128, 128, 128)).mod
    variant = make_variants(mod, generator.generate_design_space(mod), target)[0]
    return variant.evaluate(variant.draw(200, np.random.default_rng(0)))


def unlike_the_machine_model(population):
    """Times that a surprise dominates: what the machine model calls fast is slow for some tiles."""
    seconds = population.cycles * 1e-9
    odd = population.features[:, 0, 20] > np.median(population.features[:, 0, 20])
    return np.where(odd, seconds * 8, seconds)


def agreement(scores, seconds):
    better = scores[:, None] > scores[None, :]
    faster = seconds[:, None] < seconds[None, :]
    pairs = ~np.eye(len(scores), dtype=bool)
    return (better == faster)[pairs].mean()


def test_untrained_it_is_the_machine_model(population):
    model = XGBModel(pretrained=False)
    assert not model.trained
    np.testing.assert_allclose(model.score("t", population), AnalyticModel().score("t", population))


def test_it_learns_what_the_machine_model_gets_wrong(population):
    seconds = unlike_the_machine_model(population)
    model = XGBModel()
    before = agreement(model.score("t", population)[100:], seconds[100:])
    model.learn("t", [candidate_of(population, n) for n in range(100)], list(seconds[:100]))
    assert model.trained
    after = agreement(model.score("t", population)[100:], seconds[100:])
    assert after > max(0.85, before)


def test_failures_are_rated_low(population):
    model = XGBModel()
    failed = population.features[:, 0, 20] > np.median(population.features[:, 0, 20])
    seconds = [None if bad else 1e-3 for bad in failed[:100]]
    model.learn("t", [candidate_of(population, n) for n in range(100)], seconds)
    gap = model.score("t", population) - AnalyticModel().score("t", population)
    assert gap[~failed].mean() > gap[failed].mean()


def test_scores_are_repeatable(population):
    scores = []
    for _ in range(2):
        model = XGBModel(seed=4)
        seconds = unlike_the_machine_model(population)
        model.learn("t", [candidate_of(population, n) for n in range(50)], list(seconds[:50]))
        scores.append(model.score("t", population))
    np.testing.assert_array_equal(*scores)


def test_save_and_load(population, tmp_path):
    model = XGBModel()
    seconds = unlike_the_machine_model(population)
    model.learn("t", [candidate_of(population, n) for n in range(50)], list(seconds[:50]))
    model.save(tmp_path / "model.npz")
    loaded = XGBModel()
    loaded.load(tmp_path / "model.npz")
    np.testing.assert_allclose(loaded.score("t", population), model.score("t", population))
    loaded.learn("t", [candidate_of(population, 60)], [1.0])


def test_a_file_of_other_features_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", names=np.array(["a"]))
    with pytest.raises(TuneError, match="other features"):
        XGBModel().load(tmp_path / "other.npz")
    with pytest.raises(TuneError, match="nothing to save"):
        AnalyticModel().save(tmp_path / "x")
    with pytest.raises(TuneError, match="no state of a random model"):
        RandomModel(path=tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("times", [0.0, 1.0]), ("times", [np.nan, 1.0]), ("times", ["a", "b"]),
        ("times", [[1.0], [2.0]]),
        ("priors", [np.inf, 1.0]), ("features", None), ("sizes", [2**62]), ("names", 3),
    ],
)  # fmt: skip
def test_a_file_of_odd_numbers_is_refused(field, value, tmp_path):
    names = FEATURE_NAMES
    arrays = {
        "names": names, "tasks": ["a"], "sizes": [2], "stores": [1, 1], "times": [1.0, np.inf],
        "priors": [1.0, 2.0], "features": np.zeros((2, len(names)), "float32"),
    }  # fmt: skip
    path = tmp_path / "model.npz"
    np.savez(path, **arrays)
    XGBModel().load(path)
    arrays[field] = np.full((2, len(names)), np.inf) if value is None else value
    np.savez(path, **arrays)
    with pytest.raises(TuneError, match=r"damaged|other features"):
        XGBModel().load(path)


def test_a_file_of_one_array_is_refused(tmp_path):
    with (tmp_path / "model.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(TuneError, match="single array"):
        XGBModel().load(tmp_path / "model.npz")


def test_models_by_name():
    assert isinstance(CostModel.create("xgb"), XGBModel)
    assert isinstance(CostModel.create("random"), RandomModel)
    assert CostModel.create("none") is None
    with pytest.raises(TuneError, match="analytic"):
        CostModel.create("analitic")


def test_candidates_without_features_are_left_out(target):
    heads = [te.placeholder((1, 1, 40, 8), "float32", name) for name in "QKV"]
    out = topi.nn.scaled_dot_product_attention(*heads, causal_mask="TopLeft")
    context = TuneContext(te.create_prim_func([*heads, out]), target=target)
    assert context.rule_choices is not None
    (rule,) = context.rule_choices.candidates(1)
    plain = MeasureCandidate(Schedule(context.mod), context.args_info)
    with pytest.raises(TuneError, match="is not known before the program runs"):
        candidate_evaluation(context, rule)
    learned = []

    class Noting(RandomModel):
        def learn(self, task, evaluations, seconds):
            learned.append((len(evaluations), seconds))

    Noting().update(context, [rule, plain], [RunnerResult((1e-3,)), RunnerResult((2e-3,))])
    assert learned == [(1, [2e-3])]


def test_a_network_learns_too_and_the_same_way_again(population):
    pytest.importorskip("torch")
    seconds = unlike_the_machine_model(population)
    scores = []
    for _ in range(2):
        model = CostModel.create("mlp")
        before = agreement(model.score("t", population)[100:], seconds[100:])
        model.learn("t", [candidate_of(population, n) for n in range(100)], list(seconds[:100]))
        scores.append(model.score("t", population))
        assert model.trained and model.knows("t")
    assert agreement(scores[0][100:], seconds[100:]) > max(0.85, before)
    np.testing.assert_array_equal(scores[0], scores[1])


def test_a_network_is_saved_with_what_it_learned_from(population, tmp_path):
    pytest.importorskip("torch")
    model, again = MLPModel(epochs=3, hidden=8), MLPModel(epochs=3, hidden=8)
    seconds = list(population.cycles[:20] * 1e-9)
    model.learn("t", [candidate_of(population, n) for n in range(20)], seconds)
    model.save(tmp_path / "model.npz")
    again.load(tmp_path / "model.npz")
    np.testing.assert_allclose(model.score("t", population), again.score("t", population))


def test_without_pytorch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"tilewright\[torch\]"):
        MLPModel()


def test_nonsense_is_no_network():
    with pytest.raises(TuneError, match="positive"):
        MLPModel(hidden=0)
