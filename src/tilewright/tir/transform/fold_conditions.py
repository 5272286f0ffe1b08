"""Decide comparisons from the ranges of loops, fast enough for every copy of an unrolled body.

Used by ``UnrollLoop``: of the conditions that keep a window inside an image, most hold for most
copies (``0 <= h * 14 + 5``), and only those of the edges are left for run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir import (
    FALSE,
    GE,
    GT,
    LE,
    LT,
    TRUE,
    Add,
    Broadcast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Ramp,
    Sub,
    Var,
    dtypes,
    most_lanes,
)

Bounds = tuple[int, int]


def bounds_of(expr: Any, ranges: Mapping[Var, Bounds]) -> Bounds | None:
    """Return the least and the greatest value of an index, over all lanes; ``None`` if unknown."""
    kind = type(expr)
    if kind is IntImm:
        return expr.value, expr.value
    if kind is Var:
        return ranges.get(expr)
    if kind is Broadcast:
        return bounds_of(expr.value, ranges)
    if kind is Ramp:
        base = bounds_of(expr.base, ranges)
        if base is None or type(expr.stride) is not IntImm:
            return None
        reach = expr.stride.value * (most_lanes(expr.lanes) - 1)
        return base[0] + min(reach, 0), base[1] + max(reach, 0)
    if kind not in (Add, Sub, Mul, FloorDiv, FloorMod):
        return None
    a, b = bounds_of(expr.a, ranges), bounds_of(expr.b, ranges)
    if a is None or b is None:
        return None
    if kind is Add:
        return a[0] + b[0], a[1] + b[1]
    if kind is Sub:
        return a[0] - b[1], a[1] - b[0]
    if kind is Mul:
        products = [x * y for x in a for y in b]
        return min(products), max(products)
    if b[0] != b[1] or b[0] <= 0:
        return None
    if kind is FloorDiv:
        return a[0] // b[0], a[1] // b[0]
    return (a[0] % b[0], a[1] % b[0]) if a[0] // b[0] == a[1] // b[0] else (0, b[0] - 1)


def decided(node: Any, ranges: Mapping[Var, Bounds]) -> Expr | None:
    """Return what a comparison is in all lanes; ``None`` if the ranges do not decide it."""
    kind = type(node)
    if kind not in (LT, LE, GT, GE) or dtypes.element_of(node.a.dtype) != "int64":
        return None
    a = bounds_of(node.a, ranges)
    b = None if a is None else bounds_of(node.b, ranges)
    if a is None or b is None:
        return None
    if kind in (GT, GE):
        a, b, kind = b, a, LT if kind is GT else LE
    if a[1] < b[0] or (kind is LE and a[1] == b[0]):
        value = TRUE
    elif a[0] > b[1] or (kind is LT and a[0] == b[1]):
        value = FALSE
    else:
        return None
    lanes = dtypes.lanes_of(node.dtype)
    return value if lanes == 1 else Broadcast(value, lanes)
