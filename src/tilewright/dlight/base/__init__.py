"""What custom rules are made of, under TVM's names."""

from __future__ import annotations

from tilewright.dlight.apply import ApplyDefaultSchedule
from tilewright.dlight.base.common_schedules import (
    auto_vectorize,
    get_bytes,
    get_extent,
    max_threads_per_block,
    suggest_threads_per_block,
    try_inline,
    try_inline_contiguous_spatial,
)
from tilewright.dlight.base.schedule_rule import ScheduleRule

__all__ = [
    "ApplyDefaultSchedule",
    "ScheduleRule",
    "auto_vectorize",
    "get_bytes",
    "get_extent",
    "max_threads_per_block",
    "suggest_threads_per_block",
    "try_inline",
    "try_inline_contiguous_spatial",
]
