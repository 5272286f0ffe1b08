"""``Running``: a schedule as its parts see it, which run on it and are kept by it."""

from __future__ import annotations

from typing import Any, Protocol

from tilewright.tir.schedule.sampling import Rng
from tilewright.tir.schedule.state import ScheduleState


class Running(Protocol):
    """What instructions run on, traces are replayed on, and the past is taken back from."""

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
