"""Features of scheduled programs, for the cost model."""

from __future__ import annotations

from tilewright.meta_schedule.feature.candidates import candidate_evaluation, remember
from tilewright.meta_schedule.feature.extractors import (
    FEATURE_EXTRACTORS,
    FeatureExtractor,
    PerStoreFeature,
    PyFeatureExtractor,
    RandomFeatureExtractor,
)
from tilewright.meta_schedule.feature.gpu import GPUFeatureFunction
from tilewright.meta_schedule.feature.names import FEATURE_NAMES
from tilewright.meta_schedule.feature.of_target import (
    GPU_FEATURE_NAMES,
    feature_function,
    is_feature_names,
    names_by_width,
    names_of,
)
from tilewright.meta_schedule.feature.per_store import (
    Evaluation,
    FeatureFunction,
)
from tilewright.meta_schedule.feature.program import Program, extract
from tilewright.target import Target
from tilewright.tir import PrimFunc


def features_of(func: PrimFunc, target: Target) -> Evaluation:
    """Compute the features of one scheduled function (before postprocs)."""
    return feature_function(func, target)([], 1)


__all__ = [
    "FEATURE_EXTRACTORS",
    "FEATURE_NAMES",
    "Evaluation",
    "FeatureExtractor",
    "FeatureFunction",
    "GPUFeatureFunction",
    "GPU_FEATURE_NAMES",
    "PerStoreFeature",
    "Program",
    "PyFeatureExtractor",
    "RandomFeatureExtractor",
    "candidate_evaluation",
    "extract",
    "feature_function",
    "features_of",
    "is_feature_names",
    "names_by_width",
    "names_of",
    "remember",
]
