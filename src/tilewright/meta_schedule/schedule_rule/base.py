"""What a schedule rule is: it takes a block of a schedule and returns the schedules that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry
from tilewright.target import Target
from tilewright.tir.schedule import BlockRV, Schedule


@dataclass(frozen=True)
class NotApplicable:
    """The answer of a rule (or postproc) that has nothing to do with a block, and why."""

    reason: str


class ScheduleRule:
    """Base of schedule rules.

    A rule may change the schedule it gets (it is the caller's to give away) and may fork it. The
    caller goes on with ``[sch]`` unchanged if the rule answers ``NotApplicable``; a rule that
    answers so has left the schedule as it was.
    """

    name = "rule"

    def initialize(self, target: Target) -> None:
        """Learn the target; called once before the first ``apply``."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return the schedules to go on with."""
        raise NotImplementedError(f"{type(self).__name__} must define apply")


SCHEDULE_RULES: Registry[Callable[[], ScheduleRule]] = Registry("schedule rule", TuneError)
"""Schedule rules by name; ``defaults.py`` lists those that are used by default."""
