"""Spans, and the common case of relaxing an index: constant factors and ranges.

Much of the time of a replay is spent here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.arith.polynomial import VAR, Poly
from tilewright.ir import Expr

Inner = Mapping[int, tuple[Poly, Poly]]


@dataclass(frozen=True)
class Span:
    """``[min, min + extent)``; ``exact`` if every element inside is touched."""

    min: Poly
    extent: Poly
    exact: bool = True


def relax_linear(
    poly: Poly, inner: Inner, width: Poly, kinds: Sequence[int]
) -> tuple[Poly, Poly, bool] | None:
    """Return start, extent and exactness of ``poly`` over ``inner``; ``None`` if it is not simple.

    Sums of constants, symbols, and relaxed variables times constants are simple.
    """
    lanes = width.get((), 0)
    if len(width) != 1 or not lanes:
        return None
    start: Poly = {}
    low, reach = 0, 0
    steps: list[tuple[int, int]] = []
    for mono, value in poly.items():
        if len(mono) == 1 and mono[0] in inner:
            first, count = inner[mono[0]]
            if (
                len(count) != 1
                or () not in count
                or (first and (len(first) > 1 or () not in first))
            ):
                return None
            size = abs(value)
            span = size * (count[()] - 1)
            low += value * first.get((), 0) - (span if value < 0 else 0)
            reach += span
            if count[()] != 1:
                steps.append((size, count[()]))
        elif not mono:
            low += value
        else:
            for atom in mono:
                if atom in inner or kinds[atom] != VAR:
                    return None
            start[mono] = value
    if low:
        start[()] = low
    covered, exact = lanes, True
    for size, count_of in sorted(steps):
        exact = exact and size <= covered
        covered += size * (count_of - 1)
    return start, {(): lanes + reach}, exact


def is_finite(expr: Expr) -> bool:
    """Whether a bound is an ordinary number or expression."""
    value = getattr(expr, "value", 0)
    return value not in (float("inf"), float("-inf"))
