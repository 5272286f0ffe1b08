"""Winograd convolutions that transform their filters in the call (``winograd``).

All tiles of all images are transformed first. Then, a panel of filters at a time, the filters are
transformed, multiplied with all tiles, and the products transformed back: transformed filters,
which are four times as large as those that come, are never outside of the second-level cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.form import Nest, sum_in_registers
from tilewright.dlight.cpu.contraction.register_tile import loop_cycles, tile_registers
from tilewright.dlight.cpu.contraction.winograd_stages import (
    WinogradStages,
    put_channels_first,
    put_channels_last,
    transform_back,
    transform_in_registers,
)
from tilewright.ir import Expr, as_int, dtypes
from tilewright.scheduling.cpu import (
    fused_epilogue,
    loads_of,
    parallelize,
    stores_of,
    vectorize_tile,
)
from tilewright.target import Target
from tilewright.tir import Block
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.topi.nn import WINOGRAD_TILE

# The share of the second-level cache that a panel of filters and its products may take.
_KEPT = 0.9


@dataclass(frozen=True)
class FilterPanels:
    """The sizes: the tile of results, rows and columns in registers, filters of a panel."""

    tile: int
    rows: int
    columns: int
    panel: int
    lanes: int


def panels_of(
    alpha: int, tile: int, places: Sequence[int], filters: int, channels: int, width: int,
    target: Target,
) -> FilterPanels | None:  # fmt: skip
    """Choose sizes for ``places``, images and rows and columns of tiles.

    ``None`` if no panel of filters fits into the cache.
    """
    tiles = math.prod(places)
    lanes = target.vector_lanes(8 * width)
    if filters % lanes or channels % lanes:
        return None
    registers, best = tile_registers(target), None
    least = math.inf
    for panel in range(lanes, filters + 1, lanes):
        kept = alpha * alpha * width * panel * (channels + tiles)
        if filters % panel or kept > _KEPT * target.l2_bytes:
            continue
        for vectors in (count for count in range(1, 5) if panel % (count * lanes) == 0):
            for rows in range(1, 17):
                if not _is_cut_evenly(places, rows) or rows * vectors + vectors + 1 > registers:
                    continue
                cycles = tiles * filters * channels / lanes
                cycles *= alpha * alpha * loop_cycles(rows, vectors, target.costs) / rows / vectors
                # Tiles are read from afar once per panel.
                far = alpha * alpha * width * tiles * channels * filters / panel
                cycles += far / target.costs.l3_bandwidth
                if cycles < least:
                    best, least = FilterPanels(tile, rows, vectors * lanes, panel, lanes), cycles
    return best


def _is_cut_evenly(places: Sequence[int], rows: int) -> bool:
    """Whether so many tiles, one after another, are whole images, rows, or parts of rows."""
    for count in reversed(places):
        if count % rows == 0:
            return True
        if rows % count:
            return False
        rows //= count
    return rows == 1


def _plan_of(products: Block, target: Target) -> FilterPanels | None:
    sizes = [as_int(item.dom.extent) for item in products.iter_vars]
    tile = as_int(products.annotations[WINOGRAD_TILE])
    if None in sizes or not all(sizes) or not tile:
        return None
    alpha, _, *places, filters, channels = (size or 1 for size in sizes)
    width = dtypes.bytes_of(products.writes[0].buffer.dtype)
    return panels_of(alpha, tile, places, filters, channels, width, target)


def schedule_with_filters(
    sch: Schedule,
    stages: WinogradStages,
    filters: tuple[BlockRV, BlockRV, BlockRV],
    target: Target,
) -> bool:
    """Schedule all stages, those of the filters too; return whether there is such a schedule."""
    plan = _plan_of(sch.get(stages.products), target)
    # Channels of the image and of the result aren't in blocks.
    if plan is None or len(sch.get(stages.output).iter_vars) != 4:
        return False
    _tiles_in_a_row(sch, stages.input)
    batch, channel, row, column = sch.get_loops(stages.output)
    panel, channel = sch.split(channel, [None, plan.panel])
    sch.reorder(panel, batch, channel, row, column)
    transform_back(sch, stages, batch, plan.tile, plan.lanes, 2)
    _products(sch, stages.products, panel, plan)
    _filters(sch, filters, panel, plan)
    work = target.costs.parallel_work
    shared = transform_in_registers(sch, stages.input_rows, stages.input, plan.lanes)
    parallelize(sch, shared, target, work)
    put_channels_last(sch, stages.pad, plan.lanes, target)
    parallelize(sch, [panel], target, work)
    put_channels_first(sch, channel, sch.fuse(row, column), plan.lanes)
    return True


def _tiles_in_a_row(sch: Schedule, rv: BlockRV) -> None:
    """Make one axis of the images, rows and columns of tiles that a block writes."""
    _, _, _, down, across, _ = (as_int(e) or 1 for e in sch.get(rv).writes[0].buffer.shape)

    def joined(x: Expr, y: Expr, n: Expr, p: Expr, q: Expr, c: Expr) -> tuple[Expr, ...]:
        return x, y, (n * down + p) * across + q, c

    sch.transform_layout(rv, ("write", 0), joined)


def _products(sch: Schedule, products: BlockRV, panel: LoopRV, plan: FilterPanels) -> None:
    """Multiply: tiles as rows, output channels as lanes, sums in registers."""
    sch.compute_at(products, panel, preserve_unit_loops=True)
    x, y, batch, down, across, channel, reduce = sch.get_loops(products)[1:]
    image = (as_int(sch.get(down).extent) or 1) * (as_int(sch.get(across).extent) or 1)
    if plan.rows > image:
        batch, some = sch.split(batch, [None, plan.rows // image])
        around, rows = [batch], [some, down, across]
    else:
        place, inner = sch.split(sch.fuse(down, across), [None, plan.rows])
        around, rows = [batch, place], [inner]
    vectors, lane = sch.split(channel, [None, plan.columns])
    sums = fused_epilogue(sch, products, ())
    nest = Nest([x, y, vectors, *around], [reduce], [*rows, lane], outside=1)
    sum_in_registers(sch, products, sums, nest)


def _filters(
    sch: Schedule,
    stages: tuple[BlockRV, BlockRV, BlockRV],
    panel: LoopRV,
    plan: FilterPanels,
) -> None:
    """Put the filters of a panel last, then transform them one vector at a time."""
    taps, rows, made = stages
    sch.compute_at(made, panel, preserve_unit_loops=True)
    x, y, channel, lane = sch.get_loops(made)[1:]
    vector, lane = sch.split(lane, [None, plan.lanes])
    sch.reorder(channel, vector, x, y, lane)
    sch.compute_at(rows, vector, preserve_unit_loops=True)
    sch.set_scope(rows, 0, "local")
    vectorize_tile(sch, [x, y, lane])
    vectorize_tile(sch, sch.get_loops(rows)[3:])
    sch.compute_at(taps, panel, preserve_unit_loops=True)
    channel, down, across, lane = sch.get_loops(taps)[1:]
    vector, lane = sch.split(lane, [None, plan.lanes])
    if stores_of(sch.get(taps))[0].indices[0] is loads_of(sch.get(taps))[0].indices[0]:
        # Turned filters: all taps of some filters are side by side.
        sch.reorder(channel, vector, down, across, lane)
        vectorize_tile(sch, [down, across, lane])
        return
    piece, place = sch.split(sch.fuse(channel, down, across), [None, plan.lanes])
    sch.reorder(vector, piece, place, lane)
    sch.unroll(place)
    sch.vectorize(lane)
