"""The primitives as methods of schedules; ``methods.pyi`` tells type checkers their signatures."""

from __future__ import annotations

from tilewright.tir.schedule.instruction import receive_primitives


@receive_primitives
class PrimitiveMethods:
    """Has all registered primitives as methods, including those registered later."""
