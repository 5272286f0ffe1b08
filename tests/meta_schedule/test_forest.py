"""Trees in machine code: the same sums as XGBoost, whatever the numbers of rows and trees."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost

from tilewright.meta_schedule.cost_model import XGBModel
from tilewright.meta_schedule.cost_model.forest import forest_of
from tilewright.support.errors import TuneError

WIDTH = 9


def boosters(depth, rounds, members=2):
    rng = np.random.default_rng(depth)
    rows = rng.standard_normal((300, WIDTH)).astype(np.float32)
    wanted = rows[:, 0] * rows[:, 1] + np.abs(rows[:, 2])
    options = {"max_depth": depth, "eta": 0.5, "base_score": 0.0, "nthread": 1, "gamma": 0.05}
    return [
        xgboost.train(
            {**options, "seed": n, "subsample": 0.7}, xgboost.DMatrix(rows, wanted), rounds
        )
        for n in range(members)
    ]


@pytest.mark.parametrize(("depth", "rounds"), [(1, 3), (3, 20), (6, 7)])
@pytest.mark.parametrize("count", [0, 1, 47, 48, 211])
def test_sums_are_those_of_xgboost(depth, rounds, count):
    models = boosters(depth, rounds)
    rows = np.random.default_rng(1).standard_normal((count, WIDTH)).astype(np.float32) * 2
    made = forest_of(models, depth)(rows)
    assert made.shape == (2, count)
    if count:
        want = np.stack([model.inplace_predict(rows) for model in models])
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)


def test_views_of_rows_are_rows():
    models = boosters(3, 5)
    rows = np.random.default_rng(2).standard_normal((200, 2 * WIDTH))
    forest = forest_of(models, 3)
    own = np.ascontiguousarray(rows[::2, ::2], dtype=np.float32)
    np.testing.assert_array_equal(forest(rows[::2, ::2]), forest(own))


def test_trees_that_are_too_deep_are_refused():
    with pytest.raises(TuneError, match="from 1 to 10 deep, not 11"):
        XGBModel(max_depth=11)
