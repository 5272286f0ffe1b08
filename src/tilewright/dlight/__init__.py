"""Rule-based scheduling: good code without tuning.

>>> mod = dlight.default_schedule(Target("native"))(mod)

That is two passes, hand-written kernels and rules for the rest, each usable by itself:

>>> with Target("nvidia/nvidia-h200"):
...     mod = kernels.ApplyKernels()(mod)
...     mod = dlight.ApplyDefaultSchedule(dlight.gpu.Reduction(), dlight.gpu.Fallback())(mod)

Without rules, ``ApplyDefaultSchedule`` takes all of those for the target.
"""

from __future__ import annotations

from tilewright.dlight import analysis, base, cpu, gpu
from tilewright.dlight.analysis import IterInfo, SBlockInfo, normalize_prim_func
from tilewright.dlight.apply import (
    ApplyDefaultSchedule,
    default_schedule,
    kernels_and_rules,
    rules_for,
)
from tilewright.dlight.base import try_inline, try_inline_contiguous_spatial
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
    "IterInfo",
    "NotApplicable",
    "SBlockInfo",
    "ScheduleRule",
    "analysis",
    "base",
    "cpu",
    "default_schedule",
    "first_applied",
    "first_schedule",
    "gpu",
    "kernels_and_rules",
    "normalize_prim_func",
    "rules_for",
    "start_schedule",
    "try_inline",
    "try_inline_contiguous_spatial",
]
