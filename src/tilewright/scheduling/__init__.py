"""What kernels and rules share, for every kind of target.

``choices`` (what is decided by estimate, and a search may decide otherwise), ``rule`` (what a rule
is, and how the first one that fits schedules a function), ``blocks`` (looking at blocks and their
axes), ``contraction`` (what a reduction is made of), ``nests`` (writing loop nests anew); for one
kind of target, as ``cpu``: scheduling a block by itself.
"""

from __future__ import annotations

from tilewright.scheduling.apply import ApplyFirst
from tilewright.scheduling.choices import Choices, choose, is_exploring, others_after, preferring
from tilewright.scheduling.contraction import (
    Contraction,
    Reduction,
    contraction_of,
    depends,
    describe,
    dimension_of,
    dimensions_of,
    longest,
    reduction_of,
    stride,
)
from tilewright.scheduling.nests import (
    ReadInstead,
    block_named,
    block_of,
    nest_of,
    nests_of,
    over,
    replaced_nest,
    with_block,
)
from tilewright.scheduling.rule import (
    NotApplicable,
    ScheduleRule,
    first_applied,
    first_schedule,
    joined,
    start_schedule,
    warn_of_unscheduled,
)

__all__ = [
    "ApplyFirst",
    "Choices",
    "Contraction",
    "NotApplicable",
    "ReadInstead",
    "Reduction",
    "ScheduleRule",
    "block_named",
    "block_of",
    "choose",
    "contraction_of",
    "depends",
    "describe",
    "dimension_of",
    "dimensions_of",
    "first_applied",
    "first_schedule",
    "is_exploring",
    "joined",
    "longest",
    "nest_of",
    "nests_of",
    "others_after",
    "over",
    "preferring",
    "reduction_of",
    "replaced_nest",
    "start_schedule",
    "stride",
    "warn_of_unscheduled",
    "with_block",
]
