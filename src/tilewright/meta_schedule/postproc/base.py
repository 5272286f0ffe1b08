"""What a postproc is: it finishes a schedule once all decisions are made, or rejects it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir import IRModule
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry
from tilewright.target import Target
from tilewright.tir.schedule import Schedule


@dataclass(frozen=True)
class Rejected:
    """The answer of a postproc that refuses a schedule, and why."""

    reason: str


class Postproc:
    """Base of postprocs. Primitives that refuse (``ScheduleError``) count as a rejection."""

    name = "postproc"

    def initialize(self, target: Target) -> None:
        """Learn the target; called once before the first ``apply``."""

    def learn_reference(self, mod: IRModule) -> None:
        """Learn what the rules for untuned code make of the task, if they make something."""

    def apply(self, sch: Schedule) -> Rejected | None:
        """Rewrite the schedule in place, or say why it is refused."""
        raise NotImplementedError(f"{type(self).__name__} must define apply")


POSTPROCS: Registry[Callable[[], Postproc]] = Registry("postproc", TuneError)
"""Postprocs by name; ``defaults.py`` lists those that are used by default."""
