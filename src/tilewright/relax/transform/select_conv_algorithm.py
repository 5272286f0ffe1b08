"""``SelectConvAlgorithm``: chooses the algorithm of convolutions with constant weights.

A convolution of stride one may be computed by Winograd's filtering, with fewer multiplications but
larger filters and a larger rounding error (``topi.nn.conv2d_winograd``). The pass transforms the
weights of those convolutions that get faster: by the times of both algorithms in the current
database (``conv_alternatives``), or else by estimates of the cycles, including transforms and
memory traffic. Runs before ``LegalizeOps``; all other convolutions are direct.

The user chooses the accuracy: ``max_error`` (or the pass option ``relax.conv_max_error``) bounds
the error of a convolution relative to its largest result, against exact arithmetic. The default of
1e-5 admits everything below; 0 keeps all convolutions direct. Inputs of a tile are added before
they are multiplied, so one infinity or NaN, or numbers near the largest float, corrupt the whole
tile, where direct convolution corrupts single results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from tilewright import topi
from tilewright.ir import IRModule
from tilewright.relax.expr import Constant, ConstantData, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.transform.conv_alternatives import (
    MAX_ERROR,
    MeasuredTimes,
    allowed_tiles,
    conv_layouts,
    emit_winograd,
    winograd_sizes,
)
from tilewright.target import Costs, Target
from tilewright.topi.layout import Layout, layout_of


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
        if not is_call_to(value, "nn.conv2d") or self.target.device_kind != "cpu":
            return value
        assert isinstance(value, RelaxCall)
        data, weight = value.args
        sizes = winograd_sizes(value)
        if sizes is None or not isinstance(weight, Constant):
            return value
        known = self.times.best(value, self.tiles)
        if known is not None:
            tile = known[1]
        else:
            tile = choose_winograd_tile(*sizes, tiles=self.tiles, target=self.target)
        if tile is None:
            return value
        filters = self.transform(weight, conv_layouts(value)[1], tile)
        return emit_winograd(self.builder, value, data, filters, tile)

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


def choose_winograd_tile(
    batch: int,
    channels: int,
    filters: int,
    height: int,
    width: int,
    *,
    tiles: Sequence[int],
    target: Target,
) -> int | None:
    """Return the tile ``m`` of the fastest F(m x m, 3 x 3), or ``None`` if direct is as fast."""
    lanes, costs = target.vector_lanes(32), target.costs
    if channels % lanes or filters % lanes:
        return None
    pairs = channels * filters
    chosen = None
    least = _cycles(batch * height * width * 9 * pairs, 9 * pairs, lanes, costs)
    least /= costs.winograd_gain
    for tile in tiles:
        alpha = tile + 2
        count = batch * -(-height // tile) * -(-width // tile)
        # Each of the 2 alpha (or alpha + tile) rows of a transform takes about two operations per
        # element, and every element is loaded and stored.
        moved = count * (2 * alpha * alpha * channels + alpha * (alpha + tile) * filters) / lanes
        layout = batch * height * width * (channels + filters) * costs.layout_change
        # All filters pass by each image.
        each = count // max(batch, 1) * alpha * alpha * pairs
        products = batch * _cycles(each, alpha * alpha * pairs, lanes, costs)
        cycles = products + 2 * moved + layout
        if cycles < least:
            chosen, least = tile, cycles
    return chosen


def _cycles(multiplications: int, weights: int, lanes: int, costs: Costs) -> float:
    """Cycles for so many multiply-adds with so many different weights."""
    return max(
        multiplications / (costs.multiply_adds * lanes), 4 * weights / costs.weights_bandwidth
    )
