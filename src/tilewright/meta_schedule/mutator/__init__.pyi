"""Made by `tools/package_stubs.py`."""

from tilewright.meta_schedule.mutator.base import MUTATORS as MUTATORS
from tilewright.meta_schedule.mutator.base import Mutator as Mutator
from tilewright.meta_schedule.mutator.base import PyMutator as PyMutator
from tilewright.meta_schedule.mutator.mutate_choice import MutateChoice as MutateChoice
from tilewright.meta_schedule.mutator.mutate_choice import MutateParallel as MutateParallel
from tilewright.meta_schedule.mutator.mutate_choice import MutateUnroll as MutateUnroll
from tilewright.meta_schedule.mutator.mutate_compute_location import MutateComputeLocation as MutateComputeLocation
from tilewright.meta_schedule.mutator.mutate_thread_binding import MutateThreadBinding as MutateThreadBinding
from tilewright.meta_schedule.mutator.mutate_tile_size import MutateTileSize as MutateTileSize
