"""Shared by kernels and rules, for every kind of target.

``choices`` (decisions by estimate, which a search may override), ``rule`` (the base class of rules,
and scheduling by the first one that applies), ``blocks`` (queries about blocks and their axes),
``contraction`` (the structure of a reduction), ``nests`` (rewriting loop nests); for one kind of
target, such as ``cpu``: scheduling a single block.
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
