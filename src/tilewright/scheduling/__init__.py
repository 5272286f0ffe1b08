"""Shared by kernels and rules, for every kind of target.

``rule`` (the base class of rules, and scheduling by the first one that applies), ``blocks``
(queries about blocks and their axes), ``contraction`` (the structure of a reduction), ``rows``
(stages that share rows), ``nests`` (rewriting loop nests); for one kind of target, ``cpu`` and
``gpu``: scheduling a single block.
Decisions by estimate, which a search may override, go through ``Schedule.choices``.
"""

from __future__ import annotations

from tilewright.scheduling.apply import ApplyFirst
from tilewright.scheduling.contraction import (
    Contraction,
    Reduction,
    contraction_of,
    depends,
    describe,
    dimension_of,
    dimensions_of,
    divisors_of,
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
from tilewright.scheduling.rows import arrange_axes, shared_rows, stages_before_elements
from tilewright.scheduling.rule import (
    CPUScheduleRule,
    GPUScheduleRule,
    NotApplicable,
    ScheduleRule,
    first_applied,
    first_schedule,
    joined,
    start_schedule,
    warn_of_unscheduled,
)
from tilewright.tir.schedule import Choices, others_after

__all__ = [
    "ApplyFirst",
    "CPUScheduleRule",
    "Choices",
    "Contraction",
    "GPUScheduleRule",
    "NotApplicable",
    "ReadInstead",
    "Reduction",
    "ScheduleRule",
    "arrange_axes",
    "block_named",
    "block_of",
    "contraction_of",
    "depends",
    "describe",
    "divisors_of",
    "dimension_of",
    "dimensions_of",
    "first_applied",
    "first_schedule",
    "joined",
    "longest",
    "nest_of",
    "nests_of",
    "others_after",
    "over",
    "reduction_of",
    "replaced_nest",
    "shared_rows",
    "stages_before_elements",
    "start_schedule",
    "stride",
    "warn_of_unscheduled",
    "with_block",
]
