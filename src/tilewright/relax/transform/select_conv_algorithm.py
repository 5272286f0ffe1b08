"""``SelectConvAlgorithm``: chooses the algorithms of convolutions.

A convolution of stride one may be computed by Winograd's filtering, with fewer multiplications but
larger filters and a larger rounding error (``topi.nn.conv2d_winograd``). The pass transforms the
weights of those convolutions that get faster: by the times of both algorithms in the current
database (``conv_alternatives``), or else by estimates of the cycles, including transforms and
memory traffic. Weights that come with the call are transformed in each call, if that pays off.
Gradients of filters have the same choice (``conv_gradient_algorithm``).
Runs before ``LegalizeOps``; all other convolutions are direct.

The user chooses the accuracy: ``max_error`` (or the pass option ``relax.conv_max_error``) bounds
the error of a convolution relative to its largest result, against exact arithmetic. The default of
1e-5 admits everything below; 0 keeps all convolutions direct. Inputs of a tile are added before
they are multiplied, so one infinity or NaN, or numbers near the largest float, corrupt the whole
tile, where direct convolution corrupts single results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright import topi
from tilewright.ir import IRModule, as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import Constant, ConstantData, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.transform.conv_alternatives import (
    MAX_ERROR,
    ConvolutionSizes,
    MeasuredTimes,
    allowed_tiles,
    conv_layouts,
    emit_winograd,
    winograd_sizes,
)
from tilewright.relax.transform.conv_gradient_algorithm import filters_gradient
from tilewright.relax.values import const, numpy_dtype
from tilewright.target import Costs, Target
from tilewright.topi.layout import Layout, layout_of
from tilewright.topi.utils import padding_of, pair

# Filters that come with the call are transformed if they hardly exceed the second-level cache, so
# many times its size: they would pass by each image.
_NEAR = 1.25


class SelectConvAlgorithm(GraphPass):
    """Replace convolutions by Winograd convolutions where that is faster and accurate enough."""

    def __init__(
        self, target: Target | None = None, *, max_error: float = MAX_ERROR.default
    ) -> None:
        self.target = target
        self.max_error = max_error

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        target = self.target or Target.current() or Target("native")
        return _AlgorithmSelector(mod, target, allowed_tiles(self.max_error))


class _AlgorithmSelector(FunctionRewriter):
    def __init__(self, mod: IRModule, target: Target, tiles: Sequence[int]) -> None:
        super().__init__(mod)
        self.target = target
        self.tiles = tiles
        self.times = MeasuredTimes(target)
        self.transformed: dict[tuple[ConstantData, int], Constant] = {}

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if self.target.device_kind != "cpu" or not isinstance(value, RelaxCall):
            return value
        if is_call_to(value, "nn.conv2d"):
            return self.convolution(value)
        if is_call_to(value, "nn.conv2d_transpose"):
            return self.transposed(value)
        if is_call_to(value, "grad.conv_weight_backward"):
            return filters_gradient(self.builder, value, self.tiles, self.target)
        return value

    def convolution(self, call: RelaxCall) -> RelaxExpr:
        data, weight = call.args
        sizes, layout = winograd_sizes(call), conv_layouts(call)[1]
        if sizes is None:
            return call
        if not isinstance(weight, Constant):
            return self.in_the_call(call, weight) if layout.name == "OIHW" else call
        known = self.times.best(call, self.tiles)
        if known is not None:
            tile = known[1]
        else:
            tile = choose_winograd_tile(sizes, self.tiles, self.target)
        if tile is None:
            return call
        filters = self.transform(weight, layout, tile)
        return emit_winograd(self.builder, call, data, filters, tile)

    def transposed(self, call: RelaxCall) -> RelaxExpr:
        """A transposed convolution of stride one is one with filters turned around."""
        weight, plain = call.args[1], _as_convolution(call)
        if plain is None or isinstance(weight, Constant):
            return call
        made = self.in_the_call(plain, weight, turned=True)
        return call if made is plain else made

    def in_the_call(self, call: RelaxCall, weight: RelaxExpr, turned: bool = False) -> RelaxExpr:
        """A convolution with filters that come with the call, and are transformed there.

        What a database knows is without the time for that.
        """
        sizes = winograd_sizes(call)
        if sizes is None:
            return call
        tile = choose_winograd_tile(sizes, self.tiles, self.target, transformed=False)
        if tile is None:
            tile = choose_tile_of_panels(sizes, self.tiles, self.target)
            if tile is None or {item.name for item in conv_layouts(call)[::2]} != {"NCHW"}:
                return call
            return self.builder.call_te(
                topi.nn.conv2d_winograd,
                call.args[0],
                weight,
                call.attrs["padding"],
                tile,
                turned,
                primfunc_name_hint="conv2d_winograd",
                primfunc_key="conv2d_winograd of filters",
            )
        filters = self.transform_in_the_call(weight, tile, turned)
        return emit_winograd(self.builder, call, call.args[0], filters, tile)

    def transform(self, weight: Constant, layout: Layout, tile: int) -> Constant:
        """Return transformed weights; each constant is transformed once."""
        key = weight.value, tile
        if key not in self.transformed:
            source, plain = weight.value, layout_of("OIHW")
            extents = layout.extents(source.shape)
            shape = tile + 2, tile + 2, extents["I"], extents["O"]

            def make() -> NDArray[Any]:
                filters = layout.transform(source.compute(), plain)
                return topi.nn.winograd_weight(filters, tile)

            made = ConstantData.later(shape, source.dtype, make, [source])
            self.transformed[key] = Constant(made)
        return self.transformed[key]

    def transform_in_the_call(self, weight: RelaxExpr, tile: int, turned: bool) -> RelaxExpr:
        """Emit the transform of filters: a product with its matrix.

        Filters that are to be ``turned`` have input channels first, and taps in reverse.
        """
        rows = np.array(topi.nn.winograd_matrices(tile, 3).filter, np.float64)
        both, alpha = np.kron(rows, rows), tile + 2
        order = (2, 3, 0, 1) if turned else (2, 3, 1, 0)
        taps = op.permute_dims(weight, order)
        channels, filters = taps.shape[2:]
        matrix = both[:, ::-1] if turned else both
        made = op.matmul(
            const(np.ascontiguousarray(matrix, numpy_dtype(weight.dtype))),
            op.reshape(taps, (9, channels * filters)),
        )
        return self.builder.emit(op.reshape(made, (alpha, alpha, channels, filters)))


def _as_convolution(call: RelaxCall) -> RelaxCall | None:
    """The convolution that a transposed one of 3 x 3 filters and stride one is, if it is one.

    Its filters are a variable of the right shape, in place of those turned around.
    """
    data, weight = call.args
    attrs, info = call.attrs, weight.struct_info
    if not isinstance(info, TensorStructInfo) or not info.has_shape or attrs["groups"] != 1:
        return None
    steps, reach = pair(attrs["strides"], 2), pair(attrs["dilation"], 2)
    channels, filters, *window = info.shape
    if {*steps, *reach} != {1} or any(pair(attrs["output_padding"], 2)):
        return None
    sides = [2 - pad for side in padding_of(attrs["padding"], 2) for pad in side]
    if [as_int(extent) for extent in window] != [3, 3] or min(sides) < 0:
        return None
    turned = RelaxVar("turned", TensorStructInfo((filters, channels, 3, 3), info.dtype))
    made = op.nn.conv2d(data, turned, 1, tuple(sides))
    assert isinstance(made, RelaxCall)
    return made


def choose_winograd_tile(
    sizes: ConvolutionSizes, tiles: Sequence[int], target: Target, *, transformed: bool = True
) -> int | None:
    """Return the tile ``m`` of the fastest F(m x m, 3 x 3), or ``None`` if direct is as fast.

    Unless filters are ``transformed`` beforehand, each call takes the time for that.
    """
    batch, channels, filters, height, width = sizes
    lanes, costs = target.vector_lanes(32), target.costs
    if channels % lanes or filters % lanes:
        return None
    pairs = channels * filters
    chosen = None
    least = _cycles(batch * height * width * 9 * pairs, 9 * pairs, lanes, costs)
    least /= costs.winograd_gain
    for tile in tiles:
        alpha = tile + 2
        if not transformed and 4 * alpha * alpha * pairs > _NEAR * target.l2_bytes:
            continue
        count = batch * -(-height // tile) * -(-width // tile)
        # Each of the 2 alpha (or alpha + tile) rows of a transform takes about two operations per
        # element, and every element is loaded and stored.
        moved = count * (2 * alpha * alpha * channels + alpha * (alpha + tile) * filters) / lanes
        layout = batch * height * width * (channels + filters) * costs.layout_change
        # All filters pass by each image.
        each = count // max(batch, 1) * alpha * alpha * pairs
        products = batch * _cycles(each, alpha * alpha * pairs, lanes, costs)
        cycles = products + 2 * moved + layout
        if not transformed:
            size = alpha * alpha
            each_pair = size * 9 / (costs.multiply_adds * lanes) + 9 * costs.layout_change
            # Transformed filters are written, read, packed and read again.
            cycles += pairs * (each_pair + 4 * size * 4 / costs.l3_bandwidth)
        if cycles < least:
            chosen, least = tile, cycles
    return chosen


def choose_tile_of_panels(
    sizes: ConvolutionSizes, tiles: Sequence[int], target: Target
) -> int | None:
    """Return the tile ``m`` of the fastest F(m x m, 3 x 3) that transforms filters by panels.

    Such a kernel transforms all images first (``dlight.cpu.contraction.winograd_filters``).
    """
    batch, channels, filters, height, width = sizes
    lanes, costs = target.vector_lanes(32), target.costs
    if channels % lanes or filters % lanes:
        return None
    pairs, both, rate = channels * filters, channels + filters, costs.multiply_adds * lanes
    chosen = None
    least = batch * height * width * 9 * pairs / rate / costs.winograd_gain
    for tile in tiles:
        size, count = (tile + 2) ** 2, batch * -(-height // tile) * -(-width // tile)
        # Filters of a panel, and what they give, stay in the cache; all tiles are read for each.
        fitting = target.l2_bytes // (4 * size * (channels + count)) // lanes * lanes
        if not fitting:
            continue
        far = 4 * size * count * channels * -(-filters // fitting) / costs.l3_bandwidth
        moved = 4 * count * size * both / lanes
        layout = batch * height * width * both * costs.layout_change
        # Taps are put last in short pieces, which takes twice as long.
        each = 2 * 9 * costs.layout_change + 8 * size / lanes
        cycles = count * size * pairs / rate + far + moved + layout + each * pairs
        if cycles < least:
            chosen, least = tile, cycles
    return chosen


def _cycles(multiplications: int, weights: int, lanes: int, costs: Costs) -> float:
    """Cycles for so many multiply-adds with so many different weights."""
    return max(
        multiplications / (costs.multiply_adds * lanes), 4 * weights / costs.weights_bandwidth
    )
