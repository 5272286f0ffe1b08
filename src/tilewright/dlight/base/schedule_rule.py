"""The base of rules of one's own; ``ScheduleRule.from_callable`` makes one of a function."""

from __future__ import annotations

from tilewright.scheduling import ScheduleRule

__all__ = ["ScheduleRule"]
