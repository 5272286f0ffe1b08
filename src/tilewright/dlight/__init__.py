"""Rule-based scheduling: good code without a single trial.

>>> with Target("native"):
...     mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules())(mod)
"""

from __future__ import annotations

from tilewright.dlight import cpu
from tilewright.dlight.base import (
    ApplyDefaultSchedule,
    NotApplicable,
    ScheduleRule,
    first_applied,
    first_schedule,
    start_schedule,
)
from tilewright.dlight.choices import Choices

__all__ = [
    "ApplyDefaultSchedule",
    "Choices",
    "NotApplicable",
    "ScheduleRule",
    "cpu",
    "first_applied",
    "first_schedule",
    "start_schedule",
]
