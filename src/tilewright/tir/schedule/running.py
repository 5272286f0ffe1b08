"""``Running``: the interface of a schedule that instructions, traces and the history use."""

from __future__ import annotations

from typing import Any, Protocol

from tilewright.tir.schedule.sampling import Rng
from tilewright.tir.schedule.state import ScheduleState


class Running(Protocol):
    """What instructions run on, traces are replayed on, and ``undo`` works on."""

    state: ScheduleState
    rng: Rng
    checked: bool
    notes: dict[str, Any] | None
    # ``Trace`` and ``History``, which are made of instructions, as those run on this.
    trace: Any
    history: Any

    def verify(self) -> None:
        """Raise ``VerifyError`` if the program is not well formed."""

    def get_block(self, name: str) -> Any:
        """Look a block up by its name."""
