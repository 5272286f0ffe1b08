"""Winograd convolutions of images whose rows and columns come with the call (``winograd``).

There the tiles of an image are one axis, so that any number of them fills register tiles; a group
is a number of tiles that doesn't depend on the image. Tiles at the edges are computed whole, and
results outside of the image aren't written.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.form import Nest, sum_in_registers
from tilewright.dlight.cpu.contraction.packing import Panels, is_fetched_ahead, pack_operand
from tilewright.dlight.cpu.contraction.register_tile import loop_cycles, tile_registers
from tilewright.dlight.cpu.contraction.winograd_stages import WinogradStages
from tilewright.ir import as_int, dtypes
from tilewright.scheduling import NotApplicable
from tilewright.scheduling.cpu import fused_epilogue, parallelize, vectorize_tile
from tilewright.target import Target
from tilewright.tir.attrs import KEEP_WHOLE, PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import LoopRV
from tilewright.tir.transform.loop_partition import LAST_TILES
from tilewright.topi.nn import WINOGRAD_TILE

# Tiles in an image: 14 x 14, 7 x 7 and 4 x 4.
_USUAL = (196, 49, 16)
# The most tiles of a group: with more, their elements are pages apart.
_GROUP = 42


@dataclass(frozen=True)
class _Plan:
    """Rows and columns of a tile, tiles per group, and the register tile of the products.

    Threads share panels of filters (``by_filters``) where there are many, so that images are
    probably small, else groups. ``streams``: filters come from far caches and are prefetched.
    """

    tile: int
    group: int
    rows: int
    columns: int
    lanes: int
    by_filters: bool
    streams: bool


def schedule_any_size(
    sch: Schedule, stages: WinogradStages, target: Target
) -> Schedule | NotApplicable:
    """Group tiles, and fuse all stages over the groups."""
    plan = _plan_of(sch, stages, target)
    if isinstance(plan, NotApplicable):
        return plan
    _schedule(sch, stages, plan, target)
    return sch


def _plan_of(sch: Schedule, stages: WinogradStages, target: Target) -> _Plan | NotApplicable:
    products = sch.get(stages.products)
    alpha, _, _, _, filters, channels = (as_int(item.dom.extent) for item in products.iter_vars)
    tile = as_int(products.annotations[WINOGRAD_TILE])
    element = products.writes[0].buffer.dtype
    lanes = target.vector_lanes(dtypes.bits_of(element))
    if not (alpha and filters and channels and tile):
        return NotApplicable("channels are symbolic or zero")
    if filters % lanes or channels % lanes:
        return NotApplicable(f"channels are no multiples of {lanes}")
    axes = sch.get(stages.output).iter_vars
    block = (as_int(axes[4].dom.extent) or 1) if len(axes) == 5 else 1
    if lanes % block:
        return NotApplicable(f"blocks of {block} channels are no parts of vectors")
    rows, vectors = _register_tile(filters // lanes, target)
    width = dtypes.bytes_of(element) * alpha * alpha
    # The transformed tiles of a group, and the products of a panel, stay in the cache.
    fitting = target.l2_bytes // (width * (channels + vectors * lanes))
    group = max(1, min(fitting, _GROUP) // rows) * rows
    weights = width * channels * filters
    by_filters = target.num_cores > 1 and weights > target.l2_bytes
    streams = is_fetched_ahead(weights, target)
    return _Plan(tile, group, rows, vectors * lanes, lanes, by_filters, streams)


def _register_tile(panels: int, target: Target) -> tuple[int, int]:
    """Rows and vectors of the products' tile, for images with the usual numbers of tiles."""
    registers, costs = tile_registers(target), target.costs

    def cycles(rows: int, vectors: int) -> float:
        total = 0.0
        for count in _USUAL:
            full, rest = divmod(count, rows)
            total += full * loop_cycles(rows, vectors, costs) / (count * vectors)
            if rest:
                last = next((size for size in LAST_TILES if rest <= size < rows), rows)
                total += loop_cycles(last, vectors, costs) / (count * vectors)
        return total

    tiles = [
        (rows, vectors)
        for vectors in range(1, 5)
        if panels % vectors == 0
        for rows in range(1, (registers - 1) // vectors)
    ]
    return min(tiles, key=lambda tile: cycles(*tile), default=(1, 1))


def _schedule(sch: Schedule, stages: WinogradStages, plan: _Plan, target: Target) -> None:
    batch, channel, row, column, *lane = sch.get_loops(stages.output)
    block = (as_int(sch.get(lane[0]).extent) or 1) if lane else 1
    down, row = sch.split(row, [None, plan.tile])
    across, column = sch.split(column, [None, plan.tile])
    panel, channel = sch.split(channel, [None, plan.columns // block])
    sch.reorder(batch, down, across, panel, channel, row, column, *lane)
    group, place = sch.split(sch.fuse(down, across), [None, plan.group])
    vector = channel
    if not lane:
        vector, channel = sch.split(channel, [None, plan.lanes])
        lane = [channel]
    sch.reorder(batch, group, panel, place, vector, row, column, *lane)
    filters = sch.get(stages.products).reads[1].buffer
    pack_operand(sch, stages.products, filters, Panels(3, plan.columns), target)
    for rv in (stages.result, stages.result_rows):
        sch.compute_at(rv, vector, preserve_unit_loops=True)
        sch.set_scope(rv, 0, "local")
        vectorize_tile(sch, sch.get_loops(rv)[7:])
    vectorize_tile(sch, [row, column, *lane])
    _products(sch, stages, panel, plan)
    _inputs(sch, stages, group, plan, target)
    _pad(sch, stages, batch, plan, target)
    work = target.costs.parallel_work
    if target.num_cores > 1 and not plan.by_filters:
        group = parallelize(sch, [batch, group], target, work) or group
    elif plan.by_filters:
        parallelize(sch, [panel], target, work)
    # A group that the image ends in runs the same code, and no more tiles than there are.
    sch.annotate(group, KEEP_WHOLE, 1)


def _products(sch: Schedule, stages: WinogradStages, panel: LoopRV, plan: _Plan) -> None:
    """Multiply: tiles as rows, output channels as lanes, sums in registers."""
    sch.compute_at(stages.products, panel, preserve_unit_loops=True)
    x, y, batch, place, channel, reduce = sch.get_loops(stages.products)[3:]
    outer, inner = sch.split(place, [None, plan.rows])
    sums = fused_epilogue(sch, stages.products, ())
    nest = Nest([x, y, batch, outer], [reduce], [inner, channel], outside=3)
    sum_in_registers(sch, stages.products, sums, nest)
    if sch.choices.choose("winograd.ahead", (plan.streams, not plan.streams)):
        sch.annotate(y, PREFETCH_NEXT, 1)


def _inputs(
    sch: Schedule, stages: WinogradStages, group: LoopRV, plan: _Plan, target: Target
) -> None:
    """Transform one tile of one vector of channels at a time."""
    sch.compute_at(stages.input, group, preserve_unit_loops=True)
    x, y, batch, place, channel = sch.get_loops(stages.input)[2:]
    vector, channel = sch.split(channel, [None, plan.lanes])
    sch.reorder(batch, place, vector, x, y, channel)
    sch.compute_at(stages.input_rows, vector, preserve_unit_loops=True)
    sch.set_scope(stages.input_rows, 0, "local")
    vectorize_tile(sch, [x, y, channel])
    vectorize_tile(sch, sch.get_loops(stages.input_rows)[7:])
    if plan.by_filters:
        parallelize(sch, [place], target, target.costs.parallel_work)


def _pad(sch: Schedule, stages: WinogradStages, batch: LoopRV, plan: _Plan, target: Target) -> None:
    """Surround an image with zeros, and put its channels last; all images if threads share them."""
    if target.num_cores == 1:
        sch.compute_at(stages.pad, batch, preserve_unit_loops=True)
    image, row, column, channel = sch.get_loops(stages.pad)[-4:]
    vector, channel = sch.split(channel, [None, plan.lanes])
    sch.reorder(row, vector, column, channel)
    sch.vectorize(channel)
    if target.num_cores > 1:
        parallelize(sch, [image, row], target, target.costs.parallel_work)
