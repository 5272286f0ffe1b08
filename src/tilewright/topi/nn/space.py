"""Blocks of pixels that become channels or images of their own, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import Expr, and_, as_int, const, if_then_else
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require, with_conditions
from tilewright.topi.utils import require_ndim, unravel


def _plain(what: str, data: Tensor, layout: str) -> tuple[Any, ...]:
    """Extents of images, the channels and then the spatial axes; checks the layout."""
    require_ndim(what, data, 4)
    if layout not in ("NCHW", "NHWC"):
        raise VerifyError(f"{what}: layout is 'NCHW' or 'NHWC', got {layout!r}")
    shape = dict(zip(layout, data.shape))
    return tuple(shape[axis] for axis in "NCHW")


def _image(layout: str, extents: Sequence[Any], formula: Any, name: str) -> Tensor:
    """Compute ``formula(n, c, h, w)`` in a layout."""
    sizes = dict(zip("NCHW", extents))

    def placed(*i: Expr) -> Expr:
        at = dict(zip(layout, i))
        made: Expr = formula(*(at[axis] for axis in "NCHW"))
        return made

    made: Tensor = compute([sizes[axis] for axis in layout], placed, name, "injective")
    return made


def _read(data: Tensor, layout: str, *place: object) -> Expr:
    at = dict(zip("NCHW", place))
    return data(*(at[axis] for axis in layout))


@with_conditions
def depth_to_space(
    data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> Tensor:
    """Turn channels into squares of ``block_size`` pixels.

    In ``mode="DCR"`` the place in a square comes before the channel that is left, with ``"CRD"``
    after it.

    Raises ``VerifyError`` if channels don't divide into squares.
    """
    if mode not in ("DCR", "CRD"):
        raise VerifyError(f"depth_to_space: mode is 'DCR' or 'CRD', got {mode!r}")
    n, c, h, w = _plain("depth_to_space", data, layout)
    size, square = block_size, block_size * block_size
    require(c % square == 0, "depth_to_space: ", c, f" channels do not divide into {square}")
    rest = c // square

    def formula(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        place = y % size * size + x % size
        channel = place * rest + c if mode == "DCR" else c * square + place
        return _read(data, layout, n, channel, y // size, x // size)

    return _image(layout, (n, rest, h * size, w * size), formula, "depth_to_space")


@with_conditions
def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Tensor:
    """Turn squares of ``block_size`` pixels into channels, the place in a square first.

    Raises ``VerifyError`` if images don't divide into squares.
    """
    n, c, h, w = _plain("space_to_depth", data, layout)
    size = block_size
    for extent in (h, w):
        require(extent % size == 0, "space_to_depth: ", extent, f" does not divide into {size}")

    def formula(n: Expr, channel: Expr, y: Expr, x: Expr) -> Expr:
        place = channel // c
        return _read(
            data, layout, n, channel % c, y * size + place // size, x * size + place % size
        )

    return _image(layout, (n, c * (size * size), h // size, w // size), formula, "space_to_depth")


def _same_count(what: str, data: Tensor, *numbers: Sequence[Any]) -> list[list[int]]:
    """Blocks and what is added or cut, as many numbers of each as axes of blocks."""
    made = [[as_int(number) for number in group] for group in numbers]
    counts = {len(group) for group in made}
    if len(counts) != 1 or not 1 <= counts.pop() < data.ndim or any(None in g for g in made):
        raise VerifyError(f"{what}: numbers for as many axes each, got {[*map(list, numbers)]}")
    return [[number or 0 for number in group] for group in made]


@with_conditions
def space_to_batch_nd(
    data: Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> Tensor:
    """Turn places in blocks of the axes behind the first one into images, after padding.

    Image ``n`` of the place ``p`` in a block is ``p * N + n``.

    Raises ``VerifyError`` if axes don't divide into blocks.
    """
    blocks, before, after = _same_count(
        "space_to_batch_nd", data, block_shape, pad_before, pad_after
    )
    axes, batch = len(blocks), data.shape[0]
    padded = [e + low + high for e, low, high in zip(data.shape[1:], before, after)]
    for extent, size in zip(padded, blocks):
        require(extent % size == 0, "space_to_batch_nd: ", extent, f" does not divide into {size}")

    def formula(image: Expr, *i: Expr) -> Expr:
        place = unravel(image // batch, blocks)
        at = [o * size + p - low for o, size, p, low in zip(i, blocks, place, before)]
        value = data(image % batch, *at, *i[axes:])
        inside = [
            condition
            for index, extent, low, high in zip(at, data.shape[1:], before, after)
            for condition in ([index >= 0] if low else []) + ([index < extent] if high else [])
        ]
        return if_then_else(and_(*inside), value, const(pad_value, data.dtype)) if inside else value

    spatial = [extent // size for extent, size in zip(padded, blocks)]
    shape = (batch * math.prod(blocks), *spatial, *data.shape[1 + axes :])
    made: Tensor = compute(shape, formula, "space_to_batch_nd", "injective")
    return made


@with_conditions
def batch_to_space_nd(
    data: Tensor,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> Tensor:
    """Turn images into places in blocks of the axes behind the first one, and cut off elements.

    Raises ``VerifyError`` if images don't divide into blocks, and if more is cut than there is.
    """
    blocks, begin, end = _same_count(
        "batch_to_space_nd", data, block_shape, crop_begin_list, crop_end_list
    )
    axes, count = len(blocks), math.prod(blocks)
    require(
        data.shape[0] % count == 0, "batch_to_space_nd: ", data.shape[0],
        f" images do not divide into blocks of {count}",
    )  # fmt: skip
    batch = data.shape[0] // count
    spatial = [
        extent * size - low - high
        for extent, size, low, high in zip(data.shape[1:], blocks, begin, end)
    ]
    for extent in spatial:
        require(extent >= 0, "batch_to_space_nd: more is cut than there is: ", extent, " are left")

    def formula(n: Expr, *i: Expr) -> Expr:
        at = [index + low for index, low in zip(i, begin)]
        place: Expr = const(0)
        for index, size in zip(at, blocks):
            place = place * size + index % size
        inner = [index // size for index, size in zip(at, blocks)]
        return data(place * batch + n, *inner, *i[axes:])

    shape = (batch, *spatial, *data.shape[1 + axes :])
    made: Tensor = compute(shape, formula, "batch_to_space_nd", "injective")
    return made
