"""Rule-based scheduling: good code without a single trial.

>>> with Target("native"):
...     mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules())(mod)
"""

from __future__ import annotations

from tilewright.dlight import cpu
from tilewright.dlight.apply import ApplyDefaultSchedule
from tilewright.scheduling import (
    Choices,
    NotApplicable,
    ScheduleRule,
    first_applied,
    first_schedule,
    start_schedule,
)

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
