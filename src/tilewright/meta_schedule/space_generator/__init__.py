"""Space generators: they make the sketches of a task."""

from __future__ import annotations

from tilewright.meta_schedule.space_generator.base import (
    SPACE_GENERATORS,
    PySpaceGenerator,
    ScheduleFnType,
    SpaceGenerator,
)
from tilewright.support.folder import classes_in, register_classes

_FOUND = register_classes(SPACE_GENERATORS, classes_in(__name__, SpaceGenerator))
globals().update(_FOUND)

create = SpaceGenerator.create

__all__ = [
    "create",
    "SPACE_GENERATORS",
    "SpaceGenerator",
    "PySpaceGenerator",
    "ScheduleFnType",
    *_FOUND,
]
