"""Algorithms for gradients of filters, chosen by ``SelectConvAlgorithm``.

They are summed directly, all images at once or one by one, or by Winograd's filtering
(``topi.nn.conv2d_weight_backward_winograd``), by estimates of the cycles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright import topi
from tilewright.ir import as_int
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.target import Target
from tilewright.topi.utils import pair

# Gradients are summed image by image from so many pixels on: more than those of one image, for a
# vector or two of channels, would hardly fit into a cache.
_MANY_PIXELS = 8192
# The tile of Winograd's way, F(3 x 3, 4 x 4); its error is that of F(4 x 4, 3 x 3).
_TILE = 4
# So many second-level caches in size, what is written for Winograd's way comes from memory.
_FAR = 12


def filters_gradient(
    builder: BlockBuilder, call: RelaxCall, tiles: Sequence[int], target: Target
) -> RelaxExpr:
    """Return a gradient of filters by the fastest algorithm; ``tiles`` are accurate enough."""
    sizes = _sizes(call)
    if sizes is None or call.attrs["by_image"]:
        return call
    pixels = math.prod(as_int(extent) or 0 for extent in call.args[1].shape[2:])
    if _TILE in tiles and _is_of_winograd(call) and winograd_pays_off(sizes, target):
        return builder.call_te(
            topi.nn.conv2d_weight_backward_winograd,
            *call.args,
            call.attrs["padding"],
            _TILE,
            primfunc_name_hint="conv_weight_backward_winograd",
            primfunc_key="conv_weight_backward_winograd",
        )
    if sizes[0] == 1 or sizes[0] * pixels < _MANY_PIXELS:
        return call
    each = builder.emit(RelaxCall(call.op, call.args, {**call.attrs, "by_image": True}))
    return op.sum(each, 0)


def _sizes(call: RelaxCall) -> list[int] | None:
    """Images, filters, channels, rows and columns (or other axes) of the result's gradient."""
    infos = [item.struct_info for item in call.args]
    if not all(isinstance(info, TensorStructInfo) and info.has_shape for info in infos):
        return None
    gradient, data = (item.shape for item in call.args)
    sizes = [as_int(extent) for extent in (*gradient[:2], data[1], *gradient[2:])]
    return None if None in sizes else sizes  # type: ignore[return-value]  # there is no None


def _is_of_winograd(call: RelaxCall) -> bool:
    """Whether a gradient is of 3 x 3 filters that moved by one pixel, in float32."""
    attrs = call.attrs
    steps = {*pair(attrs["strides"], 2), *pair(attrs["dilation"], 2), attrs["groups"]}
    return tuple(attrs["window"]) == (3, 3) and steps == {1} and call.args[0].dtype == "float32"


def winograd_pays_off(sizes: Sequence[int], target: Target) -> bool:
    """Whether Winograd's way takes fewer cycles than direct sums."""
    images, filters, channels, height, width = sizes
    lanes, costs = target.vector_lanes(32), target.costs
    if filters % lanes or channels % lanes or not images * height * width:
        return False
    pairs, both = filters * channels, filters + channels
    rate = costs.multiply_adds * lanes
    direct = images * height * width * 9 * pairs / rate
    alpha, count = _TILE + 2, images * -(-height // _TILE) * -(-width // _TILE)
    products = count * alpha * alpha * pairs / rate
    # Each of the 2 alpha rows of a transform takes about two operations per element.
    moved = 4 * count * alpha * alpha * both / lanes
    layout = images * height * width * both * costs.layout_change
    # Tiles are written, which takes a read, and read again, and so are images with channels last.
    size = 4 * alpha * alpha * count * both
    far = size > _FAR * target.l2_bytes
    traffic = 4 * size / (costs.memory_bandwidth if far else costs.l3_bandwidth)
    # So are products, or else, block by block of pairs, tiles are read several times.
    traffic += 4 * alpha * alpha * pairs * min(3, count / 24) / costs.l3_bandwidth
    return (products + moved + layout + traffic) * costs.winograd_gain < direct
