"""What repeated measurements of one program say."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high


def robust_seconds(run_secs: Sequence[float]) -> float:
    """Return the lower quartile of the measurements.

    What disturbs a program only makes it slower, and may do so half of the time.
    """
    return sorted(run_secs)[(len(run_secs) - 1) // 4]


def is_steady(run_secs: Sequence[float], max_spread: float) -> bool:
    """Whether most of the measurements are within ``max_spread`` (relative) of the robust one."""
    return median_high(run_secs) <= (1.0 + max_spread) * robust_seconds(run_secs)
