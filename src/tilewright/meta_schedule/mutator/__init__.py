"""Mutators: what changes candidates from generation to generation."""

from __future__ import annotations

from tilewright.meta_schedule.mutator.base import MUTATORS, Mutator
from tilewright.meta_schedule.mutator.mutate_choice import (
    MutateChoice,
    MutateParallel,
    MutateUnroll,
)
from tilewright.meta_schedule.mutator.mutate_compute_location import MutateComputeLocation
from tilewright.meta_schedule.mutator.mutate_tile_size import MutateTileSize

__all__ = [
    "MUTATORS",
    "MutateChoice",
    "MutateComputeLocation",
    "MutateParallel",
    "MutateTileSize",
    "MutateUnroll",
    "Mutator",
]
