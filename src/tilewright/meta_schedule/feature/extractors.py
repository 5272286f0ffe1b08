"""Feature extractors: what a cost model of one's own may ask of candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from tilewright.meta_schedule.feature.candidates import candidate_evaluation
from tilewright.meta_schedule.feature.names import (
    FEATURE_NAMES,
    INTENSITY_POINTS,
    LINE,
    MAX_ACCESSES,
)
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.task import Task
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry


class FeatureExtractor:
    """Base of feature extractors; a ``name`` registers it."""

    FeatureExtractorType: ClassVar[Any]  # a union, for annotations

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


FeatureExtractor.FeatureExtractorType = Literal["per-store-feature"] | FeatureExtractor

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

    The columns are a table: those of 5 buffers for each store, the arithmetic intensity at 10
    points of its loops, and lines of 64 bytes. Raises ``TuneError`` for other numbers.
    """

    name = "per-store-feature"

    def __init__(
        self,
        buffers_per_store: int = 5,
        arith_intensity_curve_num_samples: int = 10,
        cache_line_bytes: int = 64,
        extract_workload: bool = False,
    ) -> None:
        given = buffers_per_store, arith_intensity_curve_num_samples, cache_line_bytes
        if given != (MAX_ACCESSES, INTENSITY_POINTS, LINE):
            raise TuneError(
                f"per-store features are those of {MAX_ACCESSES} buffers, {INTENSITY_POINTS} "
                f"points and lines of {LINE:g} bytes, not of {given}"
            )
        self.buffers_per_store = buffers_per_store
        self.arith_intensity_curve_num_samples = arith_intensity_curve_num_samples
        self.cache_line_bytes = cache_line_bytes
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


class RandomFeatureExtractor(FeatureExtractor):
    """Random features, for comparison: of 1 to ``max_block_num`` rows, ``feature_size`` columns."""

    name = "random-feature"

    def __init__(self, *, feature_size: int = 30, max_block_num: int = 5, seed: int = 0) -> None:
        if feature_size < 1 or max_block_num < 1:
            raise TuneError("feature_size and max_block_num are positive")
        self.feature_size = feature_size
        self.max_block_num = max_block_num
        self._rng = np.random.default_rng(seed)

    def extract_from(self, context: Task, candidates: Sequence[MeasureCandidate]) -> list[Any]:
        """Return a float32 array with values in [0, 1) for each candidate."""
        counts = self._rng.integers(1, self.max_block_num + 1, len(candidates))
        return [self._rng.random((n, self.feature_size), dtype=np.float32) for n in counts]


FEATURE_EXTRACTORS.register(RandomFeatureExtractor.name, RandomFeatureExtractor)
FEATURE_EXTRACTORS.register(PerStoreFeature.name, PerStoreFeature)
