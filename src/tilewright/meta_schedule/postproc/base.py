"""The base of postprocs: they complete a schedule after all decisions, or reject it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.ir import IRModule
from tilewright.meta_schedule import defaults
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Rejected:
    """A postproc's rejection of a schedule, with the reason."""

    reason: str


class Postproc:
    """Base of postprocs. Primitives that refuse (``ScheduleError``) count as a rejection."""

    name = "postproc"

    def initialize(self, target: Target) -> None:
        """Learn the target; called once before the first ``apply``."""

    def learn_reference(self, mod: IRModule) -> None:
        """Learn the rules' schedule of the task, if there is one."""

    def apply(self, sch: Schedule) -> Rejected | None:
        """Rewrite the schedule in place, or say why it is rejected."""
        raise NotImplementedError(f"{type(self).__name__} must define apply")

    def clone(self) -> Self:
        """Return a copy that shares nothing that it changes."""
        return copy.deepcopy(self)

    @staticmethod
    def create(kind: str) -> list[Postproc]:
        """Return the default postprocs for a kind of target (``"llvm"``, ``"cuda"``), in order.

        Raises ``TuneError`` if the kind has none.
        """
        return [POSTPROCS.get(name)() for name in defaults.of_kind(kind).postprocs]


PyPostproc = Postproc
"""The name under which TVM's users derive from it."""

POSTPROCS: Registry[Callable[[], Postproc]] = Registry("postproc", TuneError)
"""Postprocs by name; ``defaults.py`` lists those that are used by default."""
