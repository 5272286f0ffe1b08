"""The features that a target's kind has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir import Var
from tilewright.meta_schedule.feature.gpu import GPU_NAMES, GPUFeatureFunction
from tilewright.meta_schedule.feature.names import FEATURE_NAMES
from tilewright.meta_schedule.feature.numbers import Num
from tilewright.meta_schedule.feature.per_store import FeatureFunction
from tilewright.meta_schedule.feature.program import extract
from tilewright.target import Target
from tilewright.tir import PrimFunc

GPU_FEATURE_NAMES = (*FEATURE_NAMES, *GPU_NAMES)
"""Names of the entries of a store's feature vector on a GPU: the others', and its own."""
_SETS = {len(names): names for names in (FEATURE_NAMES, GPU_FEATURE_NAMES)}


def feature_function(
    func: PrimFunc, target: Target, tiles: Mapping[Var, Num] | None = None
) -> FeatureFunction:
    """Return what computes the features of a scheduled function (before postprocs).

    ``tiles`` gives columns (or values) of tile variables. Raises ``TuneError`` if an extent depends
    on something else.
    """
    if target.kind == "cuda":
        return GPUFeatureFunction(func, tiles or {}, target)
    return FeatureFunction(extract(func, tiles), target)


def names_of(target: Target) -> tuple[str, ...]:
    """Return the names of the features that a kind of target has, in order."""
    return GPU_FEATURE_NAMES if target.kind == "cuda" else FEATURE_NAMES


def names_by_width(width: int) -> tuple[str, ...] | None:
    """Return the names of feature vectors of a length, if there are such."""
    return _SETS.get(width)


def is_feature_names(names: Sequence[str]) -> bool:
    """Whether names are those of a kind of target's features."""
    return tuple(names) in _SETS.values()
