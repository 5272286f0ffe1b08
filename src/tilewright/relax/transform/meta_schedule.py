"""The tuning passes under the names that graph users expect; see ``meta_schedule.passes``."""

from __future__ import annotations

from tilewright.meta_schedule.passes import (
    MetaScheduleApplyDatabase,
    MetaScheduleTuneIRMod,
    MetaScheduleTuneTIR,
)

__all__ = ["MetaScheduleApplyDatabase", "MetaScheduleTuneIRMod", "MetaScheduleTuneTIR"]
