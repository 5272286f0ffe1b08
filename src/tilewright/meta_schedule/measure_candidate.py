"""A candidate: a schedule to be measured."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.meta_schedule.arg_info import ArgInfo
from tilewright.tir.schedule import Schedule


@dataclass(frozen=True, eq=False)
class MeasureCandidate:
    """A complete schedule (postprocs applied) and the arguments to measure it with.

    ``by_rule``: it is the rules' schedule, which untuned code would use. ``origin`` says in words
    what else made it.
    """

    sch: Schedule
    args_info: tuple[ArgInfo, ...]
    by_rule: bool = False
    origin: str = "search"

    @property
    def made_by(self) -> str:
        """What made it: ``"rule"``, or its origin."""
        return "rule" if self.by_rule else self.origin
