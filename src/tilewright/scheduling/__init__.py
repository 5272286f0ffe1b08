"""What kernels and rules share, for every kind of target.

``choices`` (what is decided by estimate, and a search may decide otherwise), ``rule`` (what a rule
is, and how the first one that fits schedules a function), ``nests`` (writing loop nests anew); for
one kind of target, as ``cpu``: looking at blocks, and scheduling a block by itself.
"""

from __future__ import annotations

from tilewright.scheduling.apply import ApplyFirst
from tilewright.scheduling.choices import Choices, choose, is_exploring, others_after, preferring
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
    warn_of_plain_blocks,
)

__all__ = [
    "ApplyFirst",
    "Choices",
    "NotApplicable",
    "ReadInstead",
    "ScheduleRule",
    "block_named",
    "block_of",
    "choose",
    "first_applied",
    "first_schedule",
    "is_exploring",
    "joined",
    "nest_of",
    "nests_of",
    "others_after",
    "over",
    "preferring",
    "replaced_nest",
    "start_schedule",
    "warn_of_plain_blocks",
    "with_block",
]
