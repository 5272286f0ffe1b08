"""Resizing along one axis: a result is a sum of neighbours, with weights by where it lies.

A filter says by formulas which pixels a result is made of and how much each of them counts. They
are evaluated by NumPy where sizes are known, which makes constant tables, and otherwise become
tables that are computed when the function runs. Both follow PyTorch's arithmetic: single precision
for all images but those of float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright import te
from tilewright.ir import INDEX, Expr, as_expr, call, cast, ceildiv, const, select
from tilewright.ir import maximum as larger
from tilewright.ir import minimum as smaller
from tilewright.topi.utils import require_elements

#: Numbers that are known, arrays of them, or expressions.
Number = Any


class Arithmetic(Protocol):
    """What formulas are made of."""

    def number(self, value: float) -> Number:
        """A constant."""

    def real(self, value: Number) -> Number:
        """An integer as a float."""

    def whole(self, value: Number) -> Number:
        """A float as an integer, without its fraction."""

    def floor(self, value: Number) -> Number:
        """The next integer below, as a float."""

    def even(self, value: Number) -> Number:
        """The nearest integer as a float; of two, the even one."""

    def minimum(self, x: Number, y: Number) -> Number:
        """The smaller one."""

    def maximum(self, x: Number, y: Number) -> Number:
        """The larger one."""

    def where(self, condition: Number, x: Number, y: Number) -> Number:
        """The first one where a condition holds, else the second."""


class Known:
    """Arithmetic on NumPy arrays, in one kind of floats."""

    def __init__(self, dtype: str) -> None:
        self.kind: Any = np.dtype(dtype).type

    def number(self, value: float) -> Number:
        """A constant."""
        return self.kind(value)

    def real(self, value: Number) -> Number:
        """An integer as a float."""
        return np.asarray(value).astype(self.kind)

    def whole(self, value: Number) -> Number:
        """A float as an integer, without its fraction."""
        return np.asarray(value).astype(np.int64)

    def floor(self, value: Number) -> Number:
        """The next integer below, as a float."""
        return np.floor(value)

    def even(self, value: Number) -> Number:
        """The nearest integer as a float; of two, the even one."""
        return np.rint(value)

    def minimum(self, x: Number, y: Number) -> Number:
        """The smaller one."""
        return np.minimum(x, y)

    def maximum(self, x: Number, y: Number) -> Number:
        """The larger one."""
        return np.maximum(x, y)

    def where(self, condition: Number, x: Number, y: Number) -> Number:
        """The first one where a condition holds, else the second."""
        return np.where(condition, x, y)


class Symbolic:
    """The same on expressions."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def number(self, value: float) -> Number:
        """A constant."""
        return const(float(value), self.dtype)

    def real(self, value: Number) -> Number:
        """An integer as a float."""
        return cast(as_expr(value, INDEX), self.dtype)

    def whole(self, value: Number) -> Number:
        """A float as an integer, without its fraction."""
        return cast(value, INDEX)

    def floor(self, value: Number) -> Number:
        """The next integer below, as a float."""
        return call("floor", value)

    def even(self, value: Number) -> Number:
        """The nearest integer as a float; of two, the even one."""
        return call("nearbyint", value)

    def minimum(self, x: Number, y: Number) -> Number:
        """The smaller one."""
        return smaller(x, y)

    def maximum(self, x: Number, y: Number) -> Number:
        """The larger one."""
        return larger(x, y)

    def where(self, condition: Number, x: Number, y: Number) -> Number:
        """The first one where a condition holds, else the second."""
        return select(condition, x, y)


@dataclass(frozen=True)
class Extents:
    """The extent of an axis, and that of the result."""

    have: Number
    want: Number
    dtype: str
    """In which floats places are computed."""

    @property
    def is_known(self) -> bool:
        """Whether both extents are numbers."""
        return isinstance(self.have, int) and isinstance(self.want, int)


@dataclass(frozen=True)
class Axis(Extents):
    """One axis, and how results lie on the image."""

    mode: str = "half_pixel"
    """``half_pixel``, ``align_corners`` (the outermost results lie in the middle of the outermost
    pixels) or ``asymmetric`` (results lie on multiples of a distance). TVM has besides
    ``pytorch_half_pixel`` (a single result lies at 0), ``tf_half_pixel_for_nn`` (half a pixel
    further) and ``tf_crop_and_resize`` (results fill a ``part`` of the image)."""
    factor: float | None = None
    """Results per pixel, if that is not the ratio of the extents."""
    part: tuple[float, float] = (0.0, 1.0)
    """Where the part of ``tf_crop_and_resize`` begins and ends, of an axis from 0 to 1."""

    @property
    def aligns(self) -> bool:
        """Whether corners are aligned."""
        return self.mode == "align_corners"

    def step(self, a: Arithmetic) -> Number:
        """The distance between neighbours in the result, in pixels."""
        if self.factor and not self.aligns:
            return a.number(1 / self.factor)
        less = 1 if self.aligns else 0
        have, want = self.have - less, self.want - less
        if isinstance(have, int) and isinstance(want, int):
            # A single result lies at 0, however long its step is.
            return a.number(have / max(want, 1) if want > 0 or not self.aligns else 0)
        return a.real(have) / a.real(larger(as_expr(want, INDEX), 1))

    def place(self, a: Arithmetic, i: Number) -> Number:
        """Where a result lies, in pixels."""
        half = a.number(0.5)
        if self.mode == "tf_crop_and_resize":
            return self._place_in_part(a, i)
        if self.mode == "tf_half_pixel_for_nn":
            return (a.real(i) + half) * self.step(a)
        if not self.mode.endswith("half_pixel"):
            return a.real(i) * self.step(a)
        place = (a.real(i) + half) * self.step(a) - half
        if self.mode == "half_pixel":
            return place
        return a.where(as_expr(self.want, INDEX) > 1, place, a.number(0))

    def _place_in_part(self, a: Arithmetic, i: Number) -> Number:
        first, last = map(a.number, self.part)
        pixels = a.real(self.have - 1)
        steps = a.real(larger(as_expr(self.want - 1, INDEX), 1))
        middle = a.number(0.5) * (first + last) * pixels
        place = first * pixels + a.real(i) * ((last - first) * pixels / steps)
        return a.where(as_expr(self.want, INDEX) > 1, place, middle)


@dataclass(frozen=True)
class Filter:
    """How results are made of pixels, along axes of one class of :class:`Extents`."""

    taps: Callable[[Any], Number]
    """How many pixels a result is made of, at most."""
    tap: Callable[[Any, Arithmetic, Number, Number], tuple[Number, Number]]
    """For a result and the number of a tap: the pixel, and its weight."""
    picks: bool = False
    """Whether a result is a pixel as it is."""
    normalizes: bool = False
    """Whether the weights of a result are divided by their sum."""


def _nearest(axis: Axis, a: Arithmetic, place: Number) -> Number:
    return a.minimum(a.whole(a.floor(place)), axis.have - 1)


def _nearest_tap(axis: Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
    return _nearest(axis, a, a.real(i) * axis.step(a)), a.number(1)


def _rounded_tap(axis: Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
    return _nearest(axis, a, a.real(i) * axis.step(a) + a.number(0.5)), a.number(1)


def _exact_tap(axis: Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
    return _nearest(axis, a, (a.real(i) + a.number(0.5)) * axis.step(a)), a.number(1)


def _linear_tap(axis: Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
    place = a.maximum(axis.place(a, i), a.number(0))
    first = a.minimum(a.whole(a.floor(place)), axis.have - 1)
    part = a.minimum(a.maximum(place - a.real(first), a.number(0)), a.number(1))
    index = a.minimum(first + t, axis.have - 1)
    return index, a.where(t == 0, a.number(1) - part, part)


def cubic_share(arithmetic: Arithmetic, distance: Number, alpha: float) -> Number:
    """The weight of a pixel at a distance, of Keys' cubic convolution."""
    number = arithmetic.number
    a, d = alpha, arithmetic.maximum(distance, -distance)
    near = (number(a + 2) * d - number(a + 3)) * d * d + number(1)
    far = ((number(a) * d - number(5 * a)) * d + number(8 * a)) * d - number(4 * a)
    where = arithmetic.where
    return where(d <= number(1), near, where(d < number(2), far, number(0)))


def _cubic_tap(alpha: float) -> Callable[..., tuple[Number, Number]]:
    def tap(axis: Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
        place = axis.place(a, i)
        first = a.floor(place)
        weight = cubic_share(a, place - first - a.real(t - 1), alpha)
        index = a.minimum(a.maximum(a.whole(first) + (t - 1), 0), axis.have - 1)
        return index, weight

    return tap


def cubic(alpha: float = -0.75, within: bool = False) -> Filter:
    """Four pixels, by Keys' cubic convolution; perhaps only those ``within`` the image."""
    if not within:
        return Filter(lambda axis: 4, _cubic_tap(alpha))

    def tap(axis: Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
        index, weight = _cubic_tap(alpha)(axis, a, i, t)
        place = a.whole(a.floor(axis.place(a, i))) + (t - 1)
        inside = a.maximum(a.minimum(place, axis.have - 1), 0) == place
        return index, a.where(inside, weight, a.number(0))

    return Filter(lambda axis: 4, tap, normalizes=True)


#: So much is added before places are rounded down: they may lie a little below a pixel.
_SLACK = 1e-5

_ROUNDINGS: dict[str, Callable[[Arithmetic, Number], Number]] = {
    "round": lambda a, x: a.even(x),
    "round_prefer_floor": lambda a, x: -a.floor(a.number(0.5) - x),
    "round_prefer_ceil": lambda a, x: a.floor(x + a.number(0.5)),
    "floor": lambda a, x: a.floor(x + a.number(_SLACK)),
    "ceil": lambda a, x: -a.floor(a.number(_SLACK) - x),
}
#: How the place of a result becomes that of a pixel.
ROUNDINGS = tuple(_ROUNDINGS)


def nearest(rounding: str) -> Filter:
    """The pixel at the place of a result, rounded in one of the ``ROUNDINGS``."""
    way = _ROUNDINGS[rounding]

    def tap(axis: Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
        index = a.whole(way(a, axis.place(a, i)))
        return a.minimum(a.maximum(index, 0), axis.have - 1), a.number(1)

    return Filter(lambda axis: 1, tap, picks=True)


def _smooth(reach: int, share: Callable[[Arithmetic, Number], Number]) -> Filter:
    """With antialiasing: where the image shrinks, more pixels are summed."""

    def taps(axis: Axis) -> Number:
        if axis.factor and not axis.aligns:
            return 2 * math.ceil(reach * max(1 / axis.factor, 1)) + 1
        less = 1 if axis.aligns else 0
        pixels, results = (axis.have - less) * reach, axis.want - less
        if isinstance(pixels, int) and isinstance(results, int):
            return 2 * max(reach, -(-pixels // max(results, 1))) + 1
        shrunk = ceildiv(as_expr(pixels, INDEX), larger(as_expr(results, INDEX), 1))
        return larger(shrunk, reach) * 2 + 1

    def tap(axis: Axis, a: Arithmetic, i: Number, t: Number) -> tuple[Number, Number]:
        step, half = axis.step(a), a.number(0.5)
        stretch = a.maximum(step, a.number(1))
        support = a.number(reach) * stretch
        middle = (a.real(i) + half) * step
        low = a.maximum(a.whole(middle - support + half), 0)
        high = a.minimum(a.whole(middle + support + half), axis.have)
        index = low + t
        distance = (a.real(index) - middle + half) / stretch
        weight = a.where(index < high, share(a, distance), a.number(0))
        # An axis that keeps its size is left as it is, whatever the factor.
        same = axis.have == axis.want
        weight = a.where(same, a.where(t == 0, a.number(1), a.number(0)), weight)
        return a.where(same, i, a.maximum(a.minimum(index, axis.have - 1), 0)), weight

    return Filter(taps, tap, normalizes=True)


NEAREST = Filter(lambda axis: 1, _nearest_tap, picks=True)
NEAREST_EXACT = Filter(lambda axis: 1, _exact_tap, picks=True)
NEAREST_ROUNDED = Filter(lambda axis: 1, _rounded_tap, picks=True)
LINEAR = Filter(lambda axis: 2, _linear_tap)
CUBIC = cubic()
SMOOTH_LINEAR = _smooth(1, lambda a, d: a.maximum(a.number(1) - a.maximum(d, -d), a.number(0)))
SMOOTH_CUBIC = _smooth(2, lambda a, d: cubic_share(a, d, -0.5))


def filter_of(method: str, mode: str, cubic_alpha: float, antialias: bool) -> Filter:
    """The filter of a method (``nearest_neighbor``, ``linear`` or ``cubic``)."""
    if method == "nearest_neighbor":
        ways = {"half_pixel": NEAREST_EXACT, "align_corners": NEAREST_ROUNDED}
        return ways.get(mode, NEAREST)
    if antialias:
        return SMOOTH_LINEAR if method == "linear" else SMOOTH_CUBIC
    return LINEAR if method == "linear" else cubic(cubic_alpha)


@dataclass(frozen=True)
class Taps:
    """For each result the pixels that it is a sum of, and their weights: ``[results, taps]``."""

    index: NDArray[Any]
    weight: NDArray[Any]

    def matrix(self, extent: int) -> NDArray[np.float64]:
        """The share that each pixel (a row) has in each result (a column)."""
        made = np.zeros((extent, len(self.index)))
        columns = np.broadcast_to(np.arange(len(self.index))[:, None], self.index.shape)
        np.add.at(made, (self.index, columns), self.weight)
        return made


def known_taps(axis: Extents, how: Filter) -> Taps:
    """Evaluate a filter along an axis whose extents are known."""
    results = np.arange(axis.want)[:, None]
    taps = np.arange(how.taps(axis))[None, :]
    index, weight = np.broadcast_arrays(*how.tap(axis, Known(axis.dtype), results, taps))
    if how.normalizes:
        total = weight.sum(1, keepdims=True)
        weight = weight / np.where(total == 0, 1, total)
        last = max(np.flatnonzero(weight.any(0)), default=-1)
        index, weight = index[:, : last + 1], weight[:, : last + 1]
    return Taps(index, weight)


@te.with_conditions
def index_table(axis: Extents, how: Filter) -> te.Tensor:
    """The pixels of each result, ``[results, taps]``, or ``[results]`` of a filter that picks."""
    a = Symbolic(axis.dtype)
    require_elements("resize", as_expr(axis.have, INDEX), as_expr(axis.want, INDEX))
    made: te.Tensor
    if how.picks:
        only = const(0, INDEX)
        made = te.compute((axis.want,), lambda i: how.tap(axis, a, i, only)[0], name="places")
        return made
    shape = (axis.want, how.taps(axis))
    made = te.compute(shape, lambda i, t: how.tap(axis, a, i, t)[0], name="places")
    return made


def weight_table(axis: Extents, how: Filter, dtype: str) -> te.Tensor:
    """The weights of these pixels."""
    a = Symbolic(axis.dtype)
    shape = (axis.want, how.taps(axis))

    def weight(i: Expr, t: Expr) -> Expr:
        made: Expr = how.tap(axis, a, i, t)[1]
        return made if how.normalizes else cast(made, dtype)

    made: te.Tensor = te.compute(shape, weight, name="weights")
    if not how.normalizes:
        return made
    step = te.reduce_axis((0, shape[1]), "t")
    total = te.compute(shape[:1], lambda i: te.sum(made(i, step.var), axis=[step]), name="total")

    def share(i: Expr, t: Expr) -> Expr:
        none = total(i) == a.number(0)
        return cast(made(i, t) / select(none, a.number(1), total(i)), dtype)

    shares: te.Tensor = te.compute(shape, share, name="shares")
    return shares


def weighted_taps(x: te.Tensor, index: te.Tensor, weights: te.Tensor, *, axis: int) -> te.Tensor:
    """Sums of elements along an axis, at places and with weights of ``[results, taps]``."""
    tap = te.reduce_axis((0, index.shape[1]), "tap")

    def formula(*i: Expr) -> Expr:
        place = index(i[axis], tap.var)
        pixel = x(*i[:axis], place, *i[axis + 1 :])
        made: Expr = te.sum(pixel * weights(i[axis], tap.var), axis=[tap])
        return made

    shape = [index.shape[0] if n == axis else extent for n, extent in enumerate(x.shape)]
    made: te.Tensor = te.compute(shape, formula, name="resize")
    return made


def resize_axis(x: te.Tensor, number: int, axis: Extents, how: Filter) -> te.Tensor:
    """Resize the axis of that ``number``; a filter that doesn't pick wants floats."""
    index = index_table(axis, how)
    if not how.picks:
        return weighted_taps(x, index, weight_table(axis, how, x.dtype), axis=number)
    shape = [axis.want if n == number else extent for n, extent in enumerate(x.shape)]
    made: te.Tensor = te.compute(
        shape, lambda *i: x(*i[:number], index(i[number]), *i[number + 1 :]), name="resize"
    )
    return made
