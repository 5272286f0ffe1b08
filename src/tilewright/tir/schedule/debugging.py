"""Options of schedules for those who look for a mistake, by TVM's names."""

from __future__ import annotations

import enum

from tilewright.support.errors import ScheduleError

_RENDER_LEVELS = ("detail", "fast", "none")


class ScheduleDebugMask(enum.IntFlag):
    """What is verified after every primitive. Both are the same here: ``verify`` of the program."""

    VERIFY_SREF_TREE = 1
    VERIFY_CACHED_FLAGS = 2


def checked_mask(mask: str | int) -> ScheduleDebugMask:
    """Return a mask of what is verified; ``ScheduleError`` if it is none."""
    everything = ScheduleDebugMask.VERIFY_SREF_TREE | ScheduleDebugMask.VERIFY_CACHED_FLAGS
    if isinstance(mask, str) and mask in ("none", "all"):
        return everything if mask == "all" else ScheduleDebugMask(0)
    if isinstance(mask, bool) or not isinstance(mask, int) or not 0 <= mask <= everything:
        raise ScheduleError(f"debug_mask is 'none', 'all' or a ScheduleDebugMask, got {mask!r}")
    return ScheduleDebugMask(mask)


def checked_level(level: str) -> str:
    """Return how much errors tell; ``ScheduleError`` if there is no such level."""
    if level not in _RENDER_LEVELS:
        raise ScheduleError(
            f"error_render_level is one of {', '.join(_RENDER_LEVELS)}, got {level!r}"
        )
    return level
