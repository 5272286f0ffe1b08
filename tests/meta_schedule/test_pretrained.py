"""The model that ships with the package: whole, small, of today's features, and adapted."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest

from tests.meta_schedule.conftest import matmul
from tilewright.meta_schedule.cost_model import AnalyticModel, XGBModel
from tilewright.meta_schedule.cost_model.pretrained import PATH, read_forest, write_forest
from tilewright.meta_schedule.feature import FEATURE_NAMES
from tilewright.meta_schedule.search_strategy.base import candidate_of
from tilewright.meta_schedule.search_strategy.design import make_variants
from tilewright.meta_schedule.space_generator import SpaceGenerator
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule


def population(mcpu):
    target = Target(f"llvm -mcpu={mcpu} -num-cores=1")
    mod = Schedule(matmul(128, 128, 128)).mod
    space = SpaceGenerator.create("post-order-apply", target=target).generate_design_space(mod)
    variant = make_variants(mod, space, target)[0]
    return variant.evaluate(variant.draw(100, np.random.default_rng(0)))


def test_the_file_is_small_and_of_todays_features():
    assert PATH.stat().st_size < 500_000
    forest = read_forest(PATH)
    assert forest.features.min() >= 0 and forest.features.max() < len(FEATURE_NAMES)
    assert np.isfinite(forest.thresholds).all() and np.isfinite(forest.leaves).all()


def test_a_damaged_file_is_no_model(tmp_path):
    data = bytearray(PATH.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(TuneError, match="damaged"):
        read_forest(tmp_path / "a")
    with pytest.raises(TuneError, match="can't be read"):
        read_forest(tmp_path / "b")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("depth", 99), ("depth", -1), ("groups", 0), ("groups", 10**9),
        ("leaves", np.zeros((1, 2))),
        ("features", np.full((4, 4), 30000)), ("features", np.full((4, 4), -1)), ("leaves", None),
        ("thresholds", np.full((4, 4), np.nan)), ("names", np.array("x")),
    ],
)  # fmt: skip
def test_a_file_that_would_be_read_out_of_bounds_is_no_model(field, value, tmp_path):
    """The checksum is no signature: anyone can write one."""
    arrays = {"depth": 2, "groups": 2, "names": np.array(FEATURE_NAMES)}
    arrays |= {name: np.zeros((4, 4)) for name in ("features", "thresholds", "leaves")}
    path = tmp_path / "made.forest"

    def write():
        content = io.BytesIO()
        np.savez(content, **{key: item for key, item in arrays.items() if item is not None})
        data = content.getvalue()
        path.write_bytes(hashlib.sha256(data).digest() + data)

    write()
    assert read_forest(path).groups == 2
    arrays[field] = value
    write()
    with pytest.raises(TuneError, match=r"damaged|other features"):
        read_forest(path)


def test_what_is_written_is_read(tmp_path):
    forest, rows = read_forest(PATH), np.random.default_rng(0).random((60, len(FEATURE_NAMES)))
    write_forest(forest, tmp_path / "a")
    np.testing.assert_array_equal(read_forest(tmp_path / "a")(rows), forest(rows))


@pytest.mark.parametrize("mcpu", ["haswell", "skylake-avx512"])
def test_it_corrects_the_machine_model_before_any_measurement(mcpu):
    candidates = population(mcpu)
    model, plain = XGBModel(), XGBModel(pretrained=False)
    scores = model.score("t", candidates)
    assert not model.trained
    assert np.isfinite(scores).all()
    assert np.std(scores - AnalyticModel().score("t", candidates)) > 0.01
    np.testing.assert_array_equal(
        plain.score("t", candidates), AnalyticModel().score("t", candidates)
    )


def test_it_says_nothing_of_narrow_vectors():
    candidates = population("x86-64-v2")
    np.testing.assert_array_equal(
        XGBModel().score("t", candidates), AnalyticModel().score("t", candidates)
    )


def test_measurements_correct_it(tmp_path):
    candidates = population("haswell")
    # The opposite of what it thinks.
    seconds = np.exp2(XGBModel(pretrained=True).score("t", candidates)) * 1e-3
    model, again = XGBModel(pretrained=True), XGBModel(pretrained=True)
    model.learn("t", [candidate_of(candidates, n) for n in range(100)], seconds.tolist())
    scores = model.score("t", candidates)
    assert np.corrcoef(scores, -np.log2(seconds))[0, 1] > 0.8
    model.save(tmp_path / "m.npz")
    again.load(tmp_path / "m.npz")
    np.testing.assert_allclose(again.score("t", candidates), scores)
