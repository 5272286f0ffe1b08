"""Sampling of images at places that data tell: ``image.sample_at``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tilewright.ir import as_int
from tilewright.relax.conditions import require_equal
from tilewright.relax.expr import Constant, RelaxCall, RelaxExpr
from tilewright.relax.ops.binary import greater_equal, less_equal, logical_and, minimum
from tilewright.relax.ops.common import known, require_ndim
from tilewright.relax.ops.manipulate import (
    broadcast_to,
    expand_dims,
    gather_elements,
    reshape,
    squeeze,
    strided_slice,
    where,
)
from tilewright.relax.ops.unary import abs as absolute
from tilewright.relax.ops.unary import astype, clip, floor, round
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.relax.values import const, numpy_dtype
from tilewright.support.errors import VerifyError
from tilewright.topi.sampling import CUBIC

METHODS = ("nearest", "linear", "cubic")
OUTSIDE = ("zeros", "border", "reflection")


def extents_of_image(data: TensorStructInfo | RelaxExpr) -> list[int]:
    """The extents of images, which must be constant.

    Raises ``VerifyError`` if they aren't.
    """
    extents = [as_int(extent) for extent in data.shape[2:]]
    if None in extents:
        raise VerifyError(f"extents of the image must be constant, got {list(data.shape[2:])}")
    return [extent or 0 for extent in extents]


def number_dtype(dtype: str) -> str:
    """In which dtype places and weights are computed."""
    return dtype if dtype in ("float32", "float64") else "float32"


class _Arithmetic:
    """What ``image.sample_at`` computes, by simpler operators, which have gradients.

    Tensors of one place each are ``[N, P]``, with all places of an image in a row.
    """

    def __init__(self, call: RelaxCall) -> None:
        self.data, self.grid = call.args
        self.extents = extents_of_image(self.data)
        self.count = len(self.extents)
        self.kind = number_dtype(self.data.dtype)
        self.method, self.padding = call.attrs["method"], call.attrs["padding"]
        self.align = call.attrs["align_corners"]
        self.shape = call.struct_info.shape  # type: ignore[attr-defined]

    def number(self, value: float) -> Constant:
        return const(np.asarray(value, numpy_dtype(self.kind)))

    def result(self) -> RelaxExpr:
        batch, channels = self.data.shape[:2]
        grid = reshape(astype(self.grid, self.kind), (batch, -1, self.count))
        places = []
        for axis, extent in enumerate(self.extents):
            at = self.count - 1 - axis
            own = squeeze(strided_slice(grid, [2], [at], [at + 1]), 2)
            places.append(self.place(own, extent))
        pixels = reshape(astype(self.data, self.kind), (batch, channels, math.prod(self.extents)))
        offsets = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[self.method]
        total: RelaxExpr | None = None
        for taps in itertools.product(offsets, repeat=self.count):
            part = self.tap(pixels, places, taps)
            total = part if total is None else total + part
        assert total is not None
        return astype(reshape(total, self.shape), self.data.dtype)

    def place(self, number: RelaxExpr, extent: int) -> RelaxExpr:
        """Where a place lies along an axis, in pixels."""
        if self.align:
            place = (number + 1.0) * 0.5 * float(extent - 1)
        else:
            place = ((number + 1.0) * float(extent) - 1.0) * 0.5
        return place if self.method == "cubic" else self.inside(place, extent)

    def inside(self, place: RelaxExpr, extent: int) -> RelaxExpr:
        """Places outside of the image moved into it, if padding says so."""
        if self.padding == "zeros":
            return place
        if self.padding == "reflection":
            low = 0.0 if self.align else -0.5
            span = max(float(extent - 1 if self.align else extent), 1e-30)
            moved = place - low
            around = moved - floor(moved / (2 * span)) * (2 * span)
            place = minimum(around, self.number(2 * span) - around) + low
        return clip(place, 0.0, float(extent - 1))

    def tap(self, pixels: RelaxExpr, places: Sequence[RelaxExpr], taps: Sequence[int]) -> RelaxExpr:
        """A neighbour's pixels ``[N, C, P]``, times how much it counts; zero outside."""
        index: RelaxExpr | None = None
        seen: RelaxExpr | None = None
        weight: RelaxExpr | None = None
        for place, extent, offset in zip(places, self.extents, taps):
            near: RelaxExpr
            if self.method == "nearest":
                near = round(place)
            else:
                near = floor(place) + float(offset)
                share = self.share(absolute(place - floor(place) - float(offset)))
                weight = share if weight is None else weight * share
            if self.method == "cubic":
                near = self.inside(near, extent)
            last = self.number(float(extent - 1))
            there = logical_and(greater_equal(near, self.number(0.0)), less_equal(near, last))
            own = astype(clip(near, 0.0, float(extent - 1)), "int64")
            seen = there if seen is None else logical_and(seen, there)
            index = own if index is None else index * const(extent, "int64") + own
        assert index is not None and seen is not None
        shape = (*pixels.shape[:2], index.shape[1])
        taken = gather_elements(pixels, broadcast_to(expand_dims(index, 1), shape), 2, "fast")
        zero = self.number(0.0)
        # NaN where a place has no number, though nothing is seen there.
        shown = where(expand_dims(seen, 1), taken, zero)
        return shown if weight is None else shown * expand_dims(weight, 1)

    def share(self, distance: RelaxExpr) -> RelaxExpr:
        """How much a neighbour at a distance counts."""
        if self.method == "linear":
            left: RelaxExpr = self.number(1.0) - distance
            return left
        a, d = CUBIC, distance
        near = ((d * (a + 2) - (a + 3)) * d) * d + 1.0
        far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
        return where(less_equal(d, self.number(1.0)), near, far)


def _sampled(call: RelaxCall) -> RelaxExpr:
    return _Arithmetic(call).result()


@operator("image.sample_at", decompose=_sampled)
def sample_at(
    data: Tensor,
    grid: Tensor,
    method: str = "linear",
    padding: str = "zeros",
    align_corners: bool = False,
) -> StructInfo:
    """Values ``[N, C, …]`` of images ``[N, C, …]`` at the places ``[N, …, axes]``, from -1 to 1.

    The last axis of ``grid`` counts the image's axes from its last one on. ``method`` is
    ``nearest``, ``linear`` or, for two axes, ``cubic``; ``padding`` says what is outside:
    ``zeros``, ``border`` or ``reflection``. With ``align_corners``, -1 and 1 are the middles of the
    outermost pixels, not their edges.

    Raises ``VerifyError`` if the grid's shape doesn't fit, or an extent isn't constant.
    """
    for what, value, names in (("method", method, METHODS), ("padding", padding, OUTSIDE)):
        if value not in names:
            raise VerifyError(f"{what} must be one of {', '.join(names)}, got {value!r}")
    count = data.ndim - 2
    if count < 1:
        raise VerifyError(f"images have at least one axis, data has {data.ndim} dimensions")
    require_ndim(grid, data.ndim, "grid")
    image, places = known(data, "data"), known(grid, "grid")
    if as_int(places[-1]) != count:
        raise VerifyError(f"the grid needs {count} numbers for each place, its shape is {places}")
    if method == "cubic" and count != 2:
        raise VerifyError("cubic sampling is of two axes")
    require_equal("numbers of images", image[0], places[0])
    extents_of_image(data)
    return TensorStructInfo((*image[:2], *places[1:-1]), data.dtype)
