"""Schedule rules: the choices for a block. One rule per file, registered by its ``name``."""

from __future__ import annotations

from tilewright.meta_schedule.schedule_rule.base import (
    SCHEDULE_RULES,
    NotApplicable,
    PyScheduleRule,
    ScheduleRule,
)
from tilewright.meta_schedule.schedule_rule.level_tiling import ReuseType
from tilewright.support.folder import classes_in, register_classes

_FOUND = register_classes(SCHEDULE_RULES, classes_in(__name__, ScheduleRule))
globals().update(_FOUND)

__all__ = [
    "NotApplicable",
    "SCHEDULE_RULES",
    "ReuseType",
    "ScheduleRule",
    "PyScheduleRule",
    *_FOUND,
]
