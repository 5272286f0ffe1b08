"""Callbacks for each measured candidate and after each batch."""

from __future__ import annotations

from tilewright.meta_schedule.measure_callback.base import MeasureCallback
from tilewright.meta_schedule.measure_callback.default import AddToDatabase, UpdateCostModel

__all__ = ["AddToDatabase", "MeasureCallback", "UpdateCostModel", "default_callbacks"]


def default_callbacks() -> list[MeasureCallback]:
    """Return callbacks that save measurements and learn from them."""
    return [AddToDatabase(), UpdateCostModel()]
