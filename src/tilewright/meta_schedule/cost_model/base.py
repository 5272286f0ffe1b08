"""The base of cost models: they rate candidates, and learn from measured ones.

Higher scores are better. Scores are comparable only within one task.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from tilewright.meta_schedule.feature import Evaluation, candidate_evaluation
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.task import Task
from tilewright.meta_schedule.times import robust_seconds
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.support.registry import Registry

logger = logging.getLogger("tilewright.meta_schedule")


class CostModel:
    """Base of cost models: define ``score`` and, to learn, ``learn``; ``name`` registers it.

    Or, as in TVM, ``predict`` and ``update``, which see schedules. A search rates its populations
    by the analytic model then, and some times as many schedules as it wants by ``predict``.
    """

    CostModelType: ClassVar[Any]  # a union, for annotations

    name = ""

    @property
    def trained(self) -> bool:
        """Whether scores are based on measurements."""
        return False

    def knows(self, task: str) -> bool:
        """Whether it has learned from candidates of a task."""
        return False

    @property
    def rates_schedules(self) -> bool:
        """Whether it rates candidates one by one, by ``predict`` alone, as TVM's do."""
        own = type(self)
        return own.predict is not CostModel.predict and own.score is CostModel.score

    def score(self, task: str, evaluation: Evaluation) -> Any:
        """Return the scores of a population of a task (named by its hash)."""
        raise NotImplementedError(f"{type(self).__name__} must define score")

    def learn(
        self, task: str, evaluations: Sequence[Evaluation], seconds: Sequence[float | None]
    ) -> None:
        """Learn from measured candidates (each an evaluation of one); ``None`` means it failed."""

    def update(
        self,
        context: Task,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        """Learn from a measured batch.

        Candidates without features, whose loops depend on data, are ignored.
        """
        evaluations: list[Evaluation] = []
        seconds: list[float | None] = []
        for candidate, result in zip(candidates, results):
            try:
                evaluations.append(candidate_evaluation(context, candidate))
            except TilewrightError as error:
                logger.info("task %s: no features: %s", context.task_name, error)
                continue
            seconds.append(robust_seconds(result.run_secs) if result.run_secs else None)
        self.learn(context.hash, evaluations, seconds)

    def predict(self, context: Task, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Return the scores of candidates that are already schedules."""
        made = [self.score(context.hash, candidate_evaluation(context, c))[0] for c in candidates]
        return np.array(made)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learned state to a file.

        Raises ``TuneError`` if the model learns nothing.
        """
        raise TuneError(f"{type(self).__name__} has nothing to save")

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a saved state.

        Raises ``TuneError`` if the model learns nothing.
        """
        raise TuneError(f"{type(self).__name__} has nothing to load")

    @staticmethod
    def create(kind: CostModel | str | None, *args: object, **kwargs: object) -> CostModel | None:
        """Make a model by name (``"xgb"``, ``"mlp"``, ``"analytic"`` …); ``"none"`` is none.

        Other arguments are those of its class.
        """
        if kind is None or kind == "none":
            return None
        return COST_MODELS.instance(kind, CostModel, *args, **kwargs)


CostModel.CostModelType = CostModel | Literal["xgb", "mlp", "random"]

PyCostModel = CostModel
"""The name under which TVM's users derive from it."""

COST_MODELS: Registry[Callable[[], CostModel]] = Registry("cost model", TuneError)
"""Cost models by name."""
