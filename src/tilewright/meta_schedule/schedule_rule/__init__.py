"""Schedule rules: what may be done with a block. One rule a file."""

from __future__ import annotations

from tilewright.meta_schedule.schedule_rule.add_rfactor import AddRFactor
from tilewright.meta_schedule.schedule_rule.auto_inline import AutoInline, InlineConstantScalars
from tilewright.meta_schedule.schedule_rule.base import SCHEDULE_RULES, NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.multi_level_tiling import MultiLevelTiling
from tilewright.meta_schedule.schedule_rule.parallelize_vectorize_unroll import (
    ParallelizeVectorizeUnroll,
)
from tilewright.meta_schedule.schedule_rule.random_compute_location import RandomComputeLocation
from tilewright.meta_schedule.schedule_rule.register_tile import RegisterTile

__all__ = [
    "SCHEDULE_RULES",
    "AddRFactor",
    "AutoInline",
    "InlineConstantScalars",
    "MultiLevelTiling",
    "NotApplicable",
    "ParallelizeVectorizeUnroll",
    "RandomComputeLocation",
    "RegisterTile",
    "ScheduleRule",
]
