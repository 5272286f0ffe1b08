"""Cost models that don't learn."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.meta_schedule.cost_model.base import CostModel
from tilewright.meta_schedule.feature import Evaluation
from tilewright.support.errors import TuneError


class RandomModel(CostModel):
    """Rates at random, in [0, ``max_range``), for comparison; determined by the seed.

    ``save`` keeps the state of the generator, which ``load`` and ``path`` go on from.
    """

    name = "random"

    def __init__(
        self,
        *,
        seed: int | None = 0,
        path: str | os.PathLike[str] | None = None,
        max_range: int = 100,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self.max_range = max_range
        if path is not None:
            self.load(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the generator's state to a file."""
        Path(path).write_text(json.dumps(self._rng.bit_generator.state))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a saved state; ``TuneError`` if the file holds none."""
        try:
            self._rng.bit_generator.state = json.loads(Path(path).read_text())
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise TuneError(f"{path} holds no state of a random model: {error}") from error

    def score(self, task: str, evaluation: Evaluation) -> np.ndarray[Any, Any]:
        """Return random numbers."""
        return self.max_range * self._rng.random(len(evaluation.cycles))


class AnalyticModel(CostModel):
    """Rates by the cycles that the machine model of the features expects."""

    name = "analytic"

    def score(self, task: str, evaluation: Evaluation) -> Any:
        """Return the negative logarithm of the expected cycles."""
        return analytic_score(evaluation)


def analytic_score(evaluation: Evaluation) -> Any:
    """Return ``-log2`` of the expected cycles; candidates that can't be rated come last."""
    return -np.log2(np.minimum(np.maximum(evaluation.cycles, 1.0), 1e30))
