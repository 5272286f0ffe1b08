"""Rule-based scheduling: good code without tuning.

>>> mod = dlight.default_schedule(Target("native"))(mod)

That is two passes, hand-written kernels and rules for the rest, each usable by itself:

>>> with Target("native"):
...     mod = kernels.ApplyKernels()(mod)
...     mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules())(mod)
"""

from __future__ import annotations

from tilewright.dlight import cpu
from tilewright.dlight.apply import ApplyDefaultSchedule, default_schedule, kernels_and_rules
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
    "default_schedule",
    "first_applied",
    "first_schedule",
    "kernels_and_rules",
    "start_schedule",
]
