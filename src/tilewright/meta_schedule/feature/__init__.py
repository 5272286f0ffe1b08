"""Features of scheduled programs, for the cost model."""

from __future__ import annotations

from tilewright.meta_schedule.feature.candidates import candidate_evaluation, remember
from tilewright.meta_schedule.feature.extractors import (
    FEATURE_EXTRACTORS,
    FeatureExtractor,
    PerStoreFeature,
    PyFeatureExtractor,
)
from tilewright.meta_schedule.feature.names import FEATURE_NAMES
from tilewright.meta_schedule.feature.per_store import (
    Evaluation,
    FeatureFunction,
)
from tilewright.meta_schedule.feature.program import Program, extract
from tilewright.target import Target
from tilewright.tir import PrimFunc


def features_of(func: PrimFunc, target: Target) -> Evaluation:
    """Compute the features of one scheduled function (before postprocs)."""
    return FeatureFunction(extract(func), target)([], 1)


__all__ = [
    "FEATURE_EXTRACTORS",
    "FEATURE_NAMES",
    "Evaluation",
    "FeatureExtractor",
    "FeatureFunction",
    "PerStoreFeature",
    "Program",
    "PyFeatureExtractor",
    "candidate_evaluation",
    "extract",
    "features_of",
    "remember",
]
