"""What repeated measurements of one program say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median_high


def robust_seconds(run_secs: Sequence[float]) -> float:
    """Return the lower quartile of the measurements.

    What disturbs a program only makes it slower, and may do so half of the time.
    """
    return sorted(run_secs)[(len(run_secs) - 1) // 4]


def is_steady(run_secs: Sequence[float], max_spread: float) -> bool:
    """Whether most of the measurements are within ``max_spread`` (relative) of the robust one."""
    return median_high(run_secs) <= (1.0 + max_spread) * robust_seconds(run_secs)


# Of more measurements than these, how many are below a quantile is nearly normal.
_MANY = 500


def confidence_interval(run_secs: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return an interval that holds the lower quartile with a probability of at least ``level``.

    Its ends are two of the measurements: the nearest pair around the ``robust_seconds`` with that
    probability, whatever the distribution (order statistics; Conover, Practical Nonparametric
    Statistics, section 3.2), and the extremes if there are too few measurements for it.
    """
    ordered, count = sorted(run_secs), len(run_secs)
    if count > _MANY:
        middle = NormalDist().inv_cdf((1.0 + level) / 2.0) * math.sqrt(count * 0.25 * 0.75)
        ends = math.floor(0.25 * count - middle), math.ceil(0.25 * count + middle)
        return ordered[max(0, ends[0])], ordered[min(count - 1, ends[1])]
    chances = _below(count)
    low = high = (count - 1) // 4
    while sum(chances[low + 1 : high + 1]) < level and (low > 0 or high < count - 1):
        below = chances[low] if low > 0 else -1.0
        above = chances[high + 1] if high < count - 1 else -1.0
        if above >= below:
            high += 1
        else:
            low -= 1
    return ordered[low], ordered[high]


def confidence(run_secs: Sequence[float], level: float = 0.95) -> float:
    """Return the probability with which the ``confidence_interval`` of a level holds the quartile.

    That is the level, or less where there are too few measurements.
    confidence([2.0]) == 0.0, confidence([1.0, 2.0, 3.0]) == 0.5625
    """
    count = len(run_secs)
    return level if count > _MANY else min(level, sum(_below(count)[1:count]))


def _below(count: int) -> list[float]:
    """Return the chances that 0, 1, … of the measurements are below the lower quartile."""
    return [math.comb(count, k) * 0.25**k * 0.75 ** (count - k) for k in range(count + 1)]


def clearly_faster(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> bool:
    """Whether the program of the times ``a`` is faster than that of ``b``, beyond noise.

    Times at the same position were measured in turns, so that a disturbance affects both. A sign
    test: if both were equally fast, either would be faster in half of the rounds.
    """
    wins, losses = sum(x < y for x, y in zip(a, b)), sum(x > y for x, y in zip(a, b))
    count = wins + losses
    chance = sum(math.comb(count, k) for k in range(wins, count + 1)) / 2**count
    return wins > losses and chance <= 1.0 - level
