"""Feature extractors: what a cost model of one's own may ask of candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.meta_schedule.feature.candidates import candidate_evaluation
from tilewright.meta_schedule.feature.names import FEATURE_NAMES
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.task import Task
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry


class FeatureExtractor:
    """Base of feature extractors; a ``name`` registers it."""

    name = ""

    def extract_from(self, context: Task, candidates: Sequence[MeasureCandidate]) -> list[Any]:
        """Return an array of features for each candidate of a task."""
        raise NotImplementedError(f"{type(self).__name__} must define extract_from")

    @staticmethod
    def create(kind: FeatureExtractor | str, *args: object, **kwargs: object) -> FeatureExtractor:
        """Make an extractor by name (``"per-store-feature"``), or take an instance.

        Raises ``TuneError`` for anything else.
        """
        return FEATURE_EXTRACTORS.instance(kind, FeatureExtractor, *args, **kwargs)


PyFeatureExtractor = FeatureExtractor
"""The name under which TVM's users derive from it."""

FEATURE_EXTRACTORS: Registry[Callable[[], FeatureExtractor]] = Registry(
    "feature extractor", TuneError
)
"""Feature extractors by name."""


class PerStoreFeature(FeatureExtractor):
    """One row for each store statement; the columns are ``FEATURE_NAMES``, and a GPU's after them.

    With ``extract_workload``, each row ends with the operations of the unscheduled program, as
    ``log2(1 + flops)``, so that tasks can be told apart.
    """

    name = "per-store-feature"

    def __init__(self, *, extract_workload: bool = False) -> None:
        self.extract_workload = extract_workload

    @property
    def feature_vector_length(self) -> int:
        """How many columns there are for a CPU."""
        return len(FEATURE_NAMES) + self.extract_workload

    def extract_from(self, context: Task, candidates: Sequence[MeasureCandidate]) -> list[Any]:
        """Return a float32 array of shape (stores, features) for each candidate.

        Raises ``TuneError`` for a candidate whose loops depend on data.
        """
        made = []
        for candidate in candidates:
            rows = candidate_evaluation(context, candidate).features[0]
            if self.extract_workload:
                own = np.full((len(rows), 1), np.log2(1.0 + context.flops), dtype=np.float32)
                rows = np.concatenate([rows, own], axis=1)
            made.append(np.asarray(rows, dtype=np.float32))
        return made


FEATURE_EXTRACTORS.register(PerStoreFeature.name, PerStoreFeature)
