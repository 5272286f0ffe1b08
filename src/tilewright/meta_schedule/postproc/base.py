"""The base of postprocs: they complete a schedule after all decisions, or reject it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Learn of which task (a ``TuneContext``) the schedules are; after ``initialize``."""

    def apply(self, sch: Schedule) -> Rejected | bool | None:
        """Rewrite the schedule in place, or say why it is rejected.

        As in TVM, ``True`` accepts it and ``False`` rejects it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define apply")

    def rejection(self, sch: Schedule) -> Rejected | None:
        """Apply it; return the rejection, if that is what comes of it.

        Raises ``TuneError`` if ``apply`` returns something else than it may.
        """
        made = self.apply(sch)
        if made is None or made is True:
            return None
        if made is False:
            return Rejected("it returned False")
        if not isinstance(made, Rejected):
            raise TuneError(
                f"{type(self).__name__}.apply returns True, False, None or Rejected, got {made!r}"
            )
        return made

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
