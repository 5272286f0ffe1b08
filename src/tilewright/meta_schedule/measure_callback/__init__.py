"""Callbacks for each measured candidate and after each batch."""

from __future__ import annotations

from tilewright.meta_schedule.measure_callback.base import (
    MEASURE_CALLBACKS,
    Batch,
    MeasureCallback,
    PyMeasureCallback,
    Trial,
    default_callbacks,
)
from tilewright.support.folder import classes_in, register_classes

_FOUND = register_classes(MEASURE_CALLBACKS, classes_in(__name__, MeasureCallback))
globals().update(_FOUND)

__all__ = [
    "MEASURE_CALLBACKS",
    "Batch",
    "MeasureCallback",
    "PyMeasureCallback",
    "Trial",
    "default_callbacks",
    *_FOUND,
]
