"""Factors of other loops: tiles of a recorded loop, for one of another extent."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.tir.schedule.sampling import covering_pairs, divisors


def nearest_tile(recorded: Sequence[int], extent: int) -> list[int]:
    """Return factors with the product ``extent``, the inner ones as recorded if they divide it.

    What is innermost decides about registers and vectors, so it is chosen first; the outermost
    factor takes what is left.
    """
    left, made = extent, []
    for want in reversed(recorded[1:]):
        made.append(min(divisors(left), key=lambda d: (_apart(d, want), d)))
        left //= made[-1]
    return [left, *reversed(made)]


def nearest_cover(recorded: Sequence[int], extent: int, max_innermost: int) -> list[int]:
    """Return factors that cover an extent with little waste, the inner ones near the recorded.

    These are tiles of ``sample_tile``: the innermost divides the extent or is whole vectors.
    """
    if len(recorded) == 1:
        return [extent]
    best: tuple[float, list[int]] | None = None
    for innermost, count in covering_pairs(extent, len(recorded), max_innermost):
        made = [*nearest_tile(recorded[:-1], count), innermost]
        cost = sum(map(_apart, made[1:], recorded[1:])) + math.log(innermost * count / extent)
        if best is None or cost < best[0]:
            best = cost, made
    assert best is not None  # there is a pair for each extent: one tile
    return best[1]


def departure(recorded: Sequence[int], made: Sequence[int]) -> float:
    """How far the inner factors are from the recorded ones, in factors of e."""
    return sum(map(_apart, made[1:], recorded[1:]))


def nearest_factors(recorded: Sequence[int | None], extent: int | None) -> list[int | None]:
    """Return factors of ``split`` for a loop of another extent: none is longer than the loop.

    The first one is open unless another is: it covers what the others leave.
    """
    made = list(recorded)
    if None not in made and made:
        made[0] = None
    if extent is None:
        return made
    left = max(1, extent)
    for position in reversed(range(len(made))):
        factor = made[position]
        if factor is not None:
            made[position] = max(1, min(factor, left))
            left = -(-left // (made[position] or 1))
    return made


def _apart(a: float, b: float) -> float:
    return abs(math.log(a / b))
