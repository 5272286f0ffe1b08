"""The base of schedule rules: each maps a schedule and a block to a list of schedules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.meta_schedule import defaults
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry
from tilewright.target import Target
from tilewright.tir.schedule import BlockRV, Schedule

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class NotApplicable:
    """A rule's (or postproc's) answer that it doesn't apply to a block, with the reason."""

    reason: str


class ScheduleRule:
    """Base of schedule rules.

    A rule owns the schedule it gets: it may change and fork it. A rule that answers
    ``NotApplicable`` must leave the schedule unchanged; the caller then continues with ``[sch]``.
    """

    name = "rule"

    def initialize(self, target: Target) -> None:
        """Learn the target; called once before the first ``apply``."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Learn of which task (a ``TuneContext``) the schedules are; after ``initialize``."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return the schedules to continue with."""
        raise NotImplementedError(f"{type(self).__name__} must define apply")

    def clone(self) -> Self:
        """Return a copy that shares nothing that it changes."""
        return copy.deepcopy(self)

    @staticmethod
    def create(kind: str) -> list[ScheduleRule]:
        """Return the default rules for a kind of target (``"llvm"``, ``"cuda"``), in order.

        Raises ``TuneError`` if the kind has none.
        """
        return [SCHEDULE_RULES.get(name)() for name in defaults.of_kind(kind).sch_rules]


PyScheduleRule = ScheduleRule
"""The name under which TVM's users derive from it."""

SCHEDULE_RULES: Registry[Callable[[], ScheduleRule]] = Registry("schedule rule", TuneError)
"""Schedule rules by name; ``defaults.py`` lists those that are used by default."""
