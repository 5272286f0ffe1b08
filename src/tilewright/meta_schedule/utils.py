"""What TVM's users import from ``meta_schedule.utils``."""

from __future__ import annotations

from typing import TypeVar

Class = TypeVar("Class", bound=type)


def derived_object(cls: Class) -> Class:
    """Mark a class derived from ``PyScheduleRule``, ``PyCostModel``, ``PyRunner`` and the like.

    TVM makes of it a class that C++ can call. Here such classes are used as they are, so it is
    returned unchanged.

    Raises ``TypeError`` for what is no class.
    """
    if not isinstance(cls, type):
        raise TypeError(f"derived_object decorates a class, got {cls!r}")
    return cls
