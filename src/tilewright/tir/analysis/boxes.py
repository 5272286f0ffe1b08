"""Several boxes of elements together: joined where they touch, or counted."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.arith import Analyzer
from tilewright.ir import (
    Range,
    add,
    as_int,
    sub,
)
from tilewright.tir.analysis.enumeration import ENUMERATION_LIMIT


def constant_union(boxes: Sequence[tuple[Range, ...]]) -> int | None:
    """Count the elements of boxes with constant ends, by the grid that all ends make."""
    ends: list[list[tuple[int, int]]] = []
    for box in boxes:
        sides = []
        for side in box:
            low, extent = as_int(side.min), as_int(side.extent)
            if low is None or extent is None:
                return None
            sides.append((low, low + extent))
        ends.append(sides)
    axes = [sorted({end for sides in ends for end in sides[n]}) for n in range(len(boxes[0]))]
    if prod(len(axis) for axis in axes) > ENUMERATION_LIMIT:
        return None
    grid = np.zeros([max(len(axis) - 1, 1) for axis in axes], bool)
    for sides in ends:
        grid[tuple(slice(a.index(lo), a.index(hi)) for a, (lo, hi) in zip(axes, sides))] = True
    sizes = np.ones((), np.int64)
    for axis in axes:
        sizes = np.multiply.outer(sizes, np.diff(axis) if len(axis) > 1 else np.zeros(1, np.int64))
    return int((sizes * grid).sum())


def merge_boxes(boxes: Sequence[tuple[Range, ...]], known: Analyzer) -> list[tuple[Range, ...]]:
    """Join boxes that differ in one axis, along which they touch."""
    left: list[tuple[Range, ...]] = []
    for box in boxes:
        current = box
        changed = True
        while changed:
            changed = False
            for other in left:
                joined = _join(other, current, known)
                if joined is not None:
                    left.remove(other)
                    current, changed = joined, True
                    break
        left.append(current)
    return left


def _join(a: tuple[Range, ...], b: tuple[Range, ...], known: Analyzer) -> tuple[Range, ...] | None:
    different = [
        n
        for n, (x, y) in enumerate(zip(a, b))
        if not (known.can_prove_equal(x.min, y.min) and known.can_prove_equal(x.extent, y.extent))
    ]
    if not different:
        return a
    if len(different) > 1:
        return None
    axis = different[0]
    x, y = a[axis], b[axis]
    if not known.can_prove_ge(y.min, x.min):
        x, y = y, x
    x_end, y_end = add(x.min, x.extent), add(y.min, y.extent)
    if not (known.can_prove_ge(y.min, x.min) and known.can_prove_ge(x_end, y.min)):
        return None
    if known.can_prove_ge(y_end, x_end):
        end = y_end
    elif known.can_prove_ge(x_end, y_end):
        end = x_end
    else:
        return None
    made = list(a)
    made[axis] = Range.from_min_extent(x.min, known.simplify(sub(end, x.min)))
    return tuple(made)
