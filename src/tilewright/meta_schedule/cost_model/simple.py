"""Cost models that don't learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.meta_schedule.cost_model.base import CostModel
from tilewright.meta_schedule.feature import Evaluation


class RandomModel(CostModel):
    """Rates at random, for comparison; determined by the seed."""

    name = "random"

    def __init__(self, *, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def score(self, task: str, evaluation: Evaluation) -> np.ndarray[Any, Any]:
        """Return random numbers."""
        return self._rng.random(len(evaluation.cycles))


class AnalyticModel(CostModel):
    """Rates by the cycles that the machine model of the features expects."""

    name = "analytic"

    def score(self, task: str, evaluation: Evaluation) -> Any:
        """Return the negative logarithm of the expected cycles."""
        return analytic_score(evaluation)


def analytic_score(evaluation: Evaluation) -> Any:
    """Return ``-log2`` of the expected cycles; candidates that can't be rated come last."""
    return -np.log2(np.minimum(np.maximum(evaluation.cycles, 1.0), 1e30))
