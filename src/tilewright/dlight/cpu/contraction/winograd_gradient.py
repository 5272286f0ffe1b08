"""Gradients of filters by Winograd's filtering (``topi.nn.conv2d_weight_backward_winograd``).

Both transforms run tile by tile in registers, with channels as lanes, and write panels: vectors of
channels of all tiles, one below the other. The products are matrix products with filters as rows
and channels as lanes, summed over tiles in registers. Their transform back is in registers too;
where there are many pairs of channels and few tiles, block by block of pairs, in the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.form import Nest, sum_in_registers
from tilewright.dlight.cpu.contraction.register_tile import loop_cycles, tile_registers
from tilewright.dlight.cpu.contraction.winograd_stages import (
    put_channels_last,
    transform_in_registers,
)
from tilewright.ir import Expr, as_int, dtypes
from tilewright.scheduling import CPUScheduleRule, NotApplicable
from tilewright.scheduling.cpu import (
    fused_epilogue,
    leaf_blocks,
    parallelize,
    vectorize_tile,
)
from tilewright.target import Target
from tilewright.tir import Block
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.topi.nn import WINOGRAD_GRADIENT

# The share of the second-level cache that a block of products and its operands may take.
_KEPT = 0.7
# Places in a tile, filters and channels, and what is summed: images and places of tiles.
_AXES = 7


@dataclass(frozen=True)
class _Plan:
    """Rows and columns of the tile in registers; filters and channels of a block, if there are any.

    Without blocks, the products of all pairs are written to memory.
    """

    rows: int
    columns: int
    lanes: int
    block: tuple[int, int] | None


@dataclass(frozen=True)
class _Stages:
    """The blocks, in order: of the image, of its result's gradient, products, and the result."""

    image: tuple[BlockRV, BlockRV, BlockRV]
    gradient: tuple[BlockRV, BlockRV, BlockRV]
    products: BlockRV
    result_rows: BlockRV
    result: BlockRV
    output: BlockRV


class WinogradGradient(CPUScheduleRule):
    """Applies to functions with the stages of one gradient of filters by Winograd, alone."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Schedule the stages one after another."""
        stages = _stages_of(sch)
        if isinstance(stages, NotApplicable):
            return stages
        products = sch.get(stages.products)
        lanes = target.vector_lanes(dtypes.bits_of(products.writes[0].buffer.dtype))
        _, _, filters, channels, *_ = (as_int(item.dom.extent) for item in products.iter_vars)
        if not filters or not channels or filters % lanes or channels % lanes:
            return NotApplicable(f"channels are no multiples of {lanes}")
        plan = _choose_plan(products, lanes, target)
        for (pad, lines, tiles), width in ((stages.gradient, lanes), (stages.image, plan.columns)):
            shared = transform_in_registers(sch, lines, tiles, lanes)
            parallelize(sch, shared, target, target.costs.parallel_work)
            put_channels_last(sch, pad, lanes, target)
            _lay_in_panels(sch, tiles, width)
        around = _result(sch, stages, plan, target)
        _products(sch, stages.products, around, plan, target)
        return sch


def _stages_of(sch: Schedule) -> _Stages | NotApplicable:
    blocks = leaf_blocks(sch)
    found = [rv for rv in blocks if WINOGRAD_GRADIENT in sch.get(rv).annotations]
    if len(found) != 1:
        return NotApplicable(f"{len(found)} blocks of products of gradients, one is expected")
    products = sch.get(found[0])
    if len(products.reads) != 2 or len(products.iter_vars) != _AXES:
        return NotApplicable("the block is no product of gradients and images")
    gradient, image = (_behind(sch, found[0], number) for number in range(2))
    after = [found[0]]
    for _ in range(3):
        after += sch.get_consumers(after[-1])[:1]
    known = {rv.name for rv in (*gradient, *image, *after)}
    if len(gradient) != 3 or len(image) != 3 or len(after) != 4 or len(known) != len(blocks):
        return NotApplicable("there are other blocks than those of the gradient")
    return _Stages(image, gradient, *after)


def _behind(sch: Schedule, products: BlockRV, operand: int) -> tuple[BlockRV, ...]:
    """The blocks that make an operand, the first one first."""
    made: list[BlockRV] = []
    wanted = sch.get(products).reads[operand].buffer
    pending = [rv for rv in sch.get_producers(products) if sch.get(rv).writes[0].buffer is wanted]
    while pending:
        made.insert(0, pending[0])
        pending = sch.get_producers(pending[0])
    return tuple(made)


def _choose_plan(products: Block, lanes: int, target: Target) -> _Plan:
    """Choose the tile in registers, and blocks of pairs that move the least memory."""
    extents = [as_int(item.dom.extent) or 1 for item in products.iter_vars]
    alpha, _, filters, channels, *steps = extents
    rows, columns = _register_tile(filters, channels, lanes, target)
    tiles = math.prod(steps)
    size = alpha * alpha * dtypes.bytes_of(products.writes[0].buffer.dtype)
    # Products of all pairs are written, which takes a read, and read again.
    whole = 3 * filters * channels + tiles * (filters + channels)
    chosen = (whole, (filters, channels))
    for high in range(lanes, filters, lanes):
        for wide in range(columns, channels, columns):
            if filters % high or channels % wide:
                continue
            if size * (high * wide + tiles * (high + wide)) > _KEPT * target.l2_bytes:
                continue
            # Each panel is read once per block of the other operand.
            passes = tiles * (filters * channels // high + filters * channels // wide)
            chosen = min(chosen, (passes, (high, wide)))
    return _Plan(rows, columns, lanes, chosen[1] if chosen[0] < whole else None)


def _register_tile(filters: int, channels: int, lanes: int, target: Target) -> tuple[int, int]:
    """Rows and columns of the products' tile, which divide filters and channels."""
    registers = tile_registers(target)
    sizes = [
        (rows, vectors)
        for vectors in range(1, 5)
        for rows in range(1, lanes + 1)
        if channels % (vectors * lanes) == 0 and filters % rows == 0 and lanes % rows == 0
        if rows * vectors + vectors + 1 <= registers
    ]
    # Of equal ones the highest: it reads fewer panels.
    rows, vectors = min(
        sizes,
        key=lambda size: (loop_cycles(size[0], size[1], target.costs) / math.prod(size), -size[0]),
    )
    return rows, vectors * lanes


def _lay_in_panels(sch: Schedule, tiles: BlockRV, width: int) -> None:
    """Put so many channels of all tiles below one another."""
    _, _, _, down, across, _ = (as_int(e) or 1 for e in sch.get(tiles).writes[0].buffer.shape)

    def panels(x: Expr, y: Expr, n: Expr, p: Expr, q: Expr, c: Expr) -> tuple[Expr, ...]:
        return x, y, c // width, (n * down + p) * across + q, c % width

    sch.transform_layout(tiles, ("write", 0), panels)


def _products(
    sch: Schedule, products: BlockRV, around: LoopRV | None, plan: _Plan, target: Target
) -> None:
    """Multiply: filters as rows, channels as lanes, sums over all tiles in registers."""
    if around is not None:
        sch.compute_at(products, around, preserve_unit_loops=True)
    outside = 0 if around is None else 2
    x, y, row, column, *steps = sch.get_loops(products)[outside:]
    step = sch.fuse(*steps)
    row, inner = sch.split(row, [None, plan.rows])
    column, lane = sch.split(column, [None, plan.columns])
    sums = fused_epilogue(sch, products, ())
    nest = Nest([x, y, column, row], [step], [inner, lane], outside=outside)
    sum_in_registers(sch, products, sums, nest)
    if around is None:
        parallelize(sch, [x, y, column], target, target.costs.parallel_work)


def _result(sch: Schedule, stages: _Stages, plan: _Plan, target: Target) -> LoopRV | None:
    """Transform a vector of channels back at a time; return the loop over blocks of pairs."""
    row, channel, *window = sch.get_loops(stages.output)
    vector, channel = sch.split(channel, [None, plan.lanes])
    shared, around = [row, vector], None
    if plan.block is not None:
        high, wide = plan.block
        outer_row, row = sch.split(row, [None, high])
        outer, vector = sch.split(vector, [None, wide // plan.lanes])
        sch.reorder(outer, outer_row, row, vector, channel, *window)
        shared, around = [outer], outer_row
    for rv in (stages.result, stages.result_rows):
        sch.compute_at(rv, vector, preserve_unit_loops=True)
        vectorize_tile(sch, sch.get_loops(rv)[2 if around is None else 4 :][1:])
    sch.set_scope(stages.result_rows, 0, "local")
    parallelize(sch, shared, target, target.costs.parallel_work)
    return around
