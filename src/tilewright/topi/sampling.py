"""Sampling of images at places that data tell.

The places, the pixels around them and their weights are tensors of their own: a look-up at a long
formula would take long to compile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir import (
    INDEX,
    Expr,
    call,
    cast,
    const,
    const_value,
    max_value,
    maximum,
    minimum,
    select,
)

CUBIC = -0.75
# Pixels of an image whose places fit in 32 bits.
_MOST_NEAR = (1 << 31) - 1


def not_above(number: int, dtype: str) -> float:
    """The greatest value of a type of floats that isn't above a whole number of at least zero.

    The nearest one may be: an image of 300 columns would have a last one 300 in bfloat16.
    """
    greatest = int(const_value(max_value(dtype)) or 0)
    # All significant bits of that are ones.
    left_out = max(0, number.bit_length() - greatest.bit_count())
    return float(min(number >> left_out << left_out, greatest))


class Sampling:
    """Steps of sampling; ``places`` is ``[axes, N, …]``, tables are ``[taps, N, …]``.

    ``mode`` is ``nearest``, ``linear`` or ``cubic``; ``padding`` (``zeros``, ``border`` or
    ``reflection``) says what is outside; with ``align``, -1 and 1 are the middles of the outermost
    pixels, not their edges.
    """

    def __init__(self, extents: Sequence[int], mode: str, padding: str, align: bool) -> None:
        self.extents = extents
        self.mode = mode
        self.padding = padding
        self.align = align
        self.per_axis = {"nearest": 1, "linear": 2, "cubic": 4}[mode]
        self.taps = self.per_axis ** len(extents)
        # Short vectors convert floats to 32 bits only, and hold twice as many such places.
        self.index_dtype = "int32" if math.prod(extents) <= _MOST_NEAR else INDEX

    def places(self, grid: te.Tensor) -> te.Tensor:
        """Where each result lies on the image, in pixels."""
        count = len(self.extents)

        def formula(a: Expr, *at: Expr) -> Expr:
            number = grid(*at, count - 1 - a)
            extent = self._of_axis(a, self.extents, grid.dtype)
            one, half = const(1.0, grid.dtype), const(0.5, grid.dtype)
            if self.align:
                place = (number + one) * half * (extent - one)
            else:
                place = ((number + one) * extent - one) * half
            return place if self.mode == "cubic" else self._inside(place, extent)

        made: te.Tensor = te.compute((count, *grid.shape[:-1]), formula, name="grid_places")
        return made

    def _of_axis(self, axis: Expr, values: Sequence[int], dtype: str) -> Expr:
        made: Expr = const(values[-1], dtype)
        for number in reversed(range(len(values) - 1)):
            made = select(axis == number, const(values[number], dtype), made)
        return made

    def _inside(self, place: Expr, extent: Expr) -> Expr:
        """Places outside of the image moved into it, if padding says so."""
        dtype = place.dtype
        zero, one = const(0.0, dtype), const(1.0, dtype)
        if self.padding == "zeros":
            return place
        if self.padding == "reflection":
            low = zero if self.align else const(-0.5, dtype)
            span = maximum(extent - one if self.align else extent, const(1e-30, dtype))
            moved = place - low
            period = span * const(2.0, dtype)
            around = moved - call("floor", moved / period) * period
            place = minimum(around, period - around) + low
        return minimum(maximum(place, zero), extent - one)

    def _offset(self, tap: Expr, axis: int) -> Any:
        """Which of the neighbours along an axis a tap is."""
        later = self.per_axis ** (len(self.extents) - 1 - axis)
        return tap // later % self.per_axis

    def index(self, places: te.Tensor) -> te.Tensor:
        """The place in the flat image of each tap; -1 if it is outside."""
        dtype = places.dtype

        def formula(tap: Expr, *at: Expr) -> Expr:
            kind = self.index_dtype
            index: Expr = const(0, kind)
            seen: Expr = const(True, "bool")
            for axis, extent in enumerate(self.extents):
                place = places(axis, *at)
                if self.mode == "nearest":
                    near = call("nearbyint", place)
                else:
                    first = 0 if self.mode == "linear" else -1
                    near = call("floor", place) + cast(self._offset(tap, axis) + first, dtype)
                last = const(float(extent - 1), dtype)
                if self.mode == "cubic":
                    near = self._inside(near, const(float(extent), dtype))
                zero = const(0.0, dtype)
                seen = seen & (near >= zero) & (near <= last)
                within = const(not_above(extent - 1, dtype), dtype)
                own = cast(minimum(maximum(near, zero), within), kind)
                index = index * const(extent, kind) + own
            return select(seen, index, const(-1, kind))

        shape = (self.taps, *places.shape[1:])
        made: te.Tensor = te.compute(shape, formula, name="grid_index")
        return made

    def weight(self, places: te.Tensor) -> te.Tensor:
        """How much each tap counts."""
        dtype = places.dtype

        def formula(tap: Expr, *at: Expr) -> Expr:
            made: Expr = const(1.0, dtype)
            for axis in range(len(self.extents)):
                place = places(axis, *at)
                part = place - call("floor", place)
                first = 0 if self.mode == "linear" else -1
                offset = cast(self._offset(tap, axis) + first, dtype)
                made = made * self._share(call("fabs", part - offset))
            return made

        shape = (self.taps, *places.shape[1:])
        made: te.Tensor = te.compute(shape, formula, name="grid_weight")
        return made

    def _share(self, distance: Expr) -> Expr:
        def number(value: float) -> Expr:
            return const(value, distance.dtype)

        if self.mode == "linear":
            return number(1.0) - distance
        a, d = CUBIC, distance
        near = ((number(a + 2) * d - number(a + 3)) * d) * d + number(1.0)
        far = ((number(a) * d - number(5 * a)) * d + number(8 * a)) * d - number(4 * a)
        return select(d <= number(1.0), near, far)

    def nearest(self, flat: te.Tensor, index: te.Tensor) -> te.Tensor:
        """The pixel at each place."""
        shape = (flat.shape[0], flat.shape[1], *index.shape[2:])
        made: te.Tensor = te.compute(
            shape,
            lambda n, c, *p: self._pixel(flat, n, c, index(0, n, *p), flat.dtype),
            name="grid_sample",
        )
        return made

    def _pixel(self, flat: te.Tensor, n: Expr, c: Expr, at: Expr, dtype: str) -> Expr:
        there = cast(flat(n, c, cast(maximum(at, const(0, at.dtype)), INDEX)), dtype)
        return select(at >= const(0, at.dtype), there, const(0, dtype))

    def weighted(self, flat: te.Tensor, index: te.Tensor, weight: te.Tensor) -> te.Tensor:
        """The sum of taps."""
        tap = te.reduce_axis((0, self.taps), "tap")
        shape = (flat.shape[0], flat.shape[1], *index.shape[2:])
        wide = weight.dtype

        def formula(n: Expr, c: Expr, *p: Expr) -> Expr:
            pixel = self._pixel(flat, n, c, index(tap.var, n, *p), wide)
            made: Expr = te.sum(pixel * weight(tap.var, n, *p), axis=[tap])
            return made

        made: te.Tensor = te.compute(shape, formula, name="grid_sample")
        if flat.dtype != wide:
            made = te.compute(shape, lambda *i: cast(made(*i), flat.dtype), name="grid_cast")
        return made
