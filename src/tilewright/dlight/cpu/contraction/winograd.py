"""Winograd convolutions (``topi.nn.conv2d_winograd``): transforms and products in the cache.

Rows of tiles are processed in groups. For a group, the transformed input is computed first; then,
some output channels at a time, all products, the transform of the result and the epilogue, so that
intermediate results stay in the L2 cache. The products are matrix products with tiles as rows and
output channels as lanes; filters are packed in the order in which they are read, when the program
is built if they are constant. Both transforms run tile by tile in registers, with channels as
lanes. Images whose size comes with the call are grouped by tiles instead of rows (``_AnySize``).
Filters that are transformed in the function have another form (``winograd_filters``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.form import Nest, schedule_others, sum_in_registers
from tilewright.dlight.cpu.contraction.packing import Panels, is_fetched_ahead, pack_operand
from tilewright.dlight.cpu.contraction.register_tile import loop_cycles, tile_registers
from tilewright.dlight.cpu.contraction.winograd_filters import schedule_with_filters
from tilewright.dlight.cpu.contraction.winograd_stages import (
    PRODUCT_AXES,
    WinogradStages,
    filter_stages,
    put_channels_first,
    put_channels_last,
    stages_of,
    transform_back,
    transform_in_registers,
)
from tilewright.ir import as_int, dtypes
from tilewright.scheduling import Choices, CPUScheduleRule, NotApplicable
from tilewright.scheduling.cpu import (
    fused_epilogue,
    leaf_blocks,
    loads_of,
    parallelize,
    vectorize_tile,
)
from tilewright.target import Target
from tilewright.tir import Block
from tilewright.tir.attrs import KEEP_WHOLE, PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.transform.loop_partition import LAST_TILES
from tilewright.topi.nn import WINOGRAD_TILE


@dataclass(frozen=True)
class _Plan:
    """Sizes: tiles of the transform, rows of tiles per group, and the register tile.

    ``streams``: filters come from far caches and are prefetched.
    """

    tile: int
    group: int
    groups: int
    rows: int
    fused: bool
    columns: int
    lanes: int
    streams: bool


class Winograd(CPUScheduleRule):
    """Applies to functions with the stages of one Winograd convolution, and its epilogue."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Group rows of tiles, and fuse all stages over the groups."""
        stages = stages_of(sch)
        if isinstance(stages, NotApplicable):
            return stages
        if len(sch.get(stages.products).iter_vars) < PRODUCT_AXES:
            schedule_others(sch, leaf_blocks(sch), stages.names, target)
            any_size = _plan_for_any_size(sch, stages, target)
            if isinstance(any_size, NotApplicable):
                return any_size
            any_size.schedule(sch, stages, target)
            return sch
        filters = filter_stages(sch, stages.products)
        if filters is not None and schedule_with_filters(sch, stages, filters, target):
            return sch
        block = as_int(sch.get(stages.output).iter_vars[-1].dom.extent)
        blocked = len(sch.get(stages.output).iter_vars) == 5
        plan = _choose_plan(
            sch.choices, sch.get(stages.products), target, (block or 1) if blocked else 1
        )
        if isinstance(plan, NotApplicable):
            return plan
        schedule_others(sch, leaf_blocks(sch), stages.names, target)
        _schedule(sch, stages, plan, target)
        return sch


# ---- choosing -------------------------------------------------------------------------------


def _choose_plan(
    choices: Choices, products: Block, target: Target, block: int = 1
) -> _Plan | NotApplicable:
    """Balance efficient register tiles against repeated loads of filters and inputs.

    Channels of the result are in blocks of ``block``.
    """
    extents = [as_int(item.dom.extent) for item in products.iter_vars]
    alpha, _, _, down, across, filters, channels = extents
    tile = as_int(products.annotations[WINOGRAD_TILE])
    element = products.writes[0].buffer.dtype
    lanes = target.vector_lanes(dtypes.bits_of(element))
    if not (alpha and down and across and filters and channels and tile):
        return NotApplicable("sizes are symbolic or zero")
    if filters % lanes or channels % lanes:
        return NotApplicable(f"channels are no multiples of {lanes}")
    if lanes % block:
        return NotApplicable(f"blocks of {block} channels are no parts of vectors")
    width = dtypes.bytes_of(element) * alpha * alpha
    weights, inputs = width * channels * filters, width * down * across * channels
    streams = is_fetched_ahead(weights, target)
    plans = []
    for group in (size for size in range(1, down + 1) if down % size == 0):
        rows, columns, cycles = _register_tile(group, across, filters, lanes, target)
        groups = down // group
        kept = inputs // groups
        # Filters are read once per group, unless they stay in the cache; so are the inputs of a
        # group once per panel of output channels.
        traffic = weights * (1 if weights + kept < target.l2_bytes else groups)
        traffic += inputs * (1 if 2 * kept < target.l2_bytes else filters // columns)
        cost = alpha * alpha * groups * channels * cycles + traffic / target.costs.l2_bandwidth
        # Rows of tiles are joined if register tiles cut them evenly, or are made of whole ones.
        fused = group * across % rows == 0 and (across % rows == 0 or rows % across == 0)
        plans.append((cost, _Plan(tile, group, groups, rows, fused, columns, lanes, streams)))
    plans.sort(key=lambda item: item[0])
    return choices.preferring("winograd.plan", plans)[0][1]


def _register_tile(
    down: int, across: int, filters: int, lanes: int, target: Target
) -> tuple[int, int, float]:
    """Choose rows and columns of the products' tile; return them with the cycles of a step.

    The rows divide all tiles of a group, or else each row of tiles.
    """
    best, wait = (1, lanes, float("inf")), target.costs.step_wait
    registers = tile_registers(target)
    for vectors in (count for count in range(1, 5) if filters % (count * lanes) == 0):
        for height in range(1, registers):
            if height * vectors + vectors + 1 > registers:
                break
            full, rest = divmod(down * across, height)
            if rest or (across % height and height % across):
                full, rest = divmod(across, height)
                if not full:
                    continue
            cycles = full * loop_cycles(height, vectors, target.costs)
            if rest:
                cycles = down * (cycles + loop_cycles(rest, vectors, target.costs) + 2 * wait)
            cycles *= filters / (vectors * lanes)
            if cycles < best[2]:
                best = height, vectors * lanes, cycles
    return best


# ---- scheduling -----------------------------------------------------------------------------


def _schedule(sch: Schedule, stages: WinogradStages, plan: _Plan, target: Target) -> None:
    batch, channel, row, column, *lane = sch.get_loops(stages.output)
    block = (as_int(sch.get(lane[0]).extent) or 1) if lane else 1
    height = as_int(sch.get(row).extent)
    assert height is not None
    group, row = sch.split(row, [None, min(plan.tile * plan.group, height)])
    panel, channel = sch.split(channel, [None, plan.columns // block])
    sch.reorder(batch, group, panel, channel, row, column, *lane)
    filters = sch.get(stages.products).reads[1].buffer
    pack_operand(sch, stages.products, filters, Panels(3, plan.columns), target)
    if lane:
        _result_in_registers(sch, stages, [row, column, channel, lane[0]], plan)
    else:
        transform_back(sch, stages, panel, plan.tile, plan.lanes, 3)
    _products(sch, stages.products, panel, plan)
    # Threads share out images or groups; where those are too few, panels of output channels, which
    # need the whole input transformed beforehand.
    images = as_int(sch.get(batch).extent) or 1
    inside = target.num_cores <= max(images, plan.groups)
    if inside:
        sch.compute_at(stages.input, group, preserve_unit_loops=True)
    down = _input_transform(sch, stages, 2 if inside else 0, plan, target)
    _pad(sch, stages.pad, down, plan, target)
    shared = batch if images >= target.num_cores else group if inside else panel
    parallelize(sch, [shared], target, target.costs.parallel_work)
    if not lane:
        # Rows are joined last: what the loops around them need is known from whole rows.
        put_channels_first(sch, channel, sch.fuse(row, column), plan.lanes)


def _result_in_registers(
    sch: Schedule, stages: WinogradStages, loops: Sequence[LoopRV], plan: _Plan
) -> None:
    """Inverse-transform tile by tile where the result is written, block by block."""
    row, column, block, lane = loops
    tile_row, row = sch.split(row, [None, plan.tile])
    tile_column, column = sch.split(column, [None, plan.tile])
    sch.reorder(tile_row, tile_column, block, row, column, lane)
    for rv in (stages.result, stages.result_rows):
        sch.compute_at(rv, block, preserve_unit_loops=True)
        sch.set_scope(rv, 0, "local")
        vectorize_tile(sch, sch.get_loops(rv)[6:])
    vectorize_tile(sch, [row, column, lane])


def _products(sch: Schedule, products: BlockRV, panel: LoopRV, plan: _Plan) -> None:
    """Multiply: tiles as rows, output channels as lanes, sums in registers."""
    sch.compute_at(products, panel, preserve_unit_loops=True)
    x, y, batch, down, across, channel, reduce = sch.get_loops(products)[3:]
    if plan.fused:
        across = sch.fuse(down, across)
    outer, inner = sch.split(across, [None, plan.rows])
    around = [x, y, batch, *([] if plan.fused else [down]), outer]
    sums = fused_epilogue(sch, products, ())
    sum_in_registers(sch, products, sums, Nest(around, [reduce], [inner, channel], outside=3))
    if sch.choices.choose("winograd.ahead", (plan.streams, not plan.streams)):
        sch.annotate(y, PREFETCH_NEXT, 1)


def _input_transform(
    sch: Schedule, stages: WinogradStages, depth: int, plan: _Plan, target: Target
) -> LoopRV:
    """Transform one tile of one vector of channels at a time; return the loop over their rows."""
    batch, down, across = transform_in_registers(
        sch, stages.input_rows, stages.input, plan.lanes, depth
    )
    if depth:
        return down
    # Rows of tiles are padded one by one only where channels are in blocks.
    shared = [batch, down] if _in_blocks(sch.get(stages.pad)) else [batch, down, across]
    return parallelize(sch, shared, target, target.costs.parallel_work) or down


def _pad(sch: Schedule, pad: BlockRV, down: LoopRV, plan: _Plan, target: Target) -> None:
    """Fill with zeros, then put the channels last, block by block.

    Vectors of channels that are already contiguous are copied by rows of tiles.
    """
    if _in_blocks(sch.get(pad)):
        sch.compute_at(pad, down, preserve_unit_loops=True)
        _, channel = sch.split(sch.get_loops(pad)[-1], [None, plan.lanes])
        sch.vectorize(channel)
        return
    put_channels_last(sch, pad, plan.lanes, target)


def _in_blocks(pad: Block) -> bool:
    """Whether the input has its channels in blocks."""
    return loads_of(pad)[0].buffer.ndim == 5


# ---- images of any size -----------------------------------------------------------------------

# Tiles in an image: 14 x 14, 7 x 7 and 4 x 4.
_USUAL = (196, 49, 16)
# The most tiles of a group: with more, their elements are pages apart.
_MOST_TILES = 42


@dataclass(frozen=True)
class _AnySize:
    """A plan where the rows and columns of images come with the call.

    The tiles of an image are one axis there, so that any number of them fills register tiles; a
    group is a number of tiles that doesn't depend on the image. Tiles at the edges are computed
    whole, and results outside of the image aren't written.

    The numbers are rows and columns of a tile, tiles per group, and the register tile of the
    products. Threads share panels of filters (``by_filters``) where there are many, so that images
    are probably small, else groups. ``streams``: filters come from far caches and are prefetched.
    """

    tile: int
    group: int
    rows: int
    columns: int
    lanes: int
    by_filters: bool
    streams: bool

    def schedule(self, sch: Schedule, stages: WinogradStages, target: Target) -> None:
        """Group tiles, and fuse all stages over the groups."""
        batch, channel, row, column, *lane = sch.get_loops(stages.output)
        block = (as_int(sch.get(lane[0]).extent) or 1) if lane else 1
        down, row = sch.split(row, [None, self.tile])
        across, column = sch.split(column, [None, self.tile])
        panel, channel = sch.split(channel, [None, self.columns // block])
        sch.reorder(batch, down, across, panel, channel, row, column, *lane)
        group, place = sch.split(sch.fuse(down, across), [None, self.group])
        vector = channel
        if not lane:
            vector, channel = sch.split(channel, [None, self.lanes])
            lane = [channel]
        sch.reorder(batch, group, panel, place, vector, row, column, *lane)
        filters = sch.get(stages.products).reads[1].buffer
        pack_operand(sch, stages.products, filters, Panels(3, self.columns), target)
        for rv in (stages.result, stages.result_rows):
            sch.compute_at(rv, vector, preserve_unit_loops=True)
            sch.set_scope(rv, 0, "local")
            vectorize_tile(sch, sch.get_loops(rv)[7:])
        vectorize_tile(sch, [row, column, *lane])
        self._products(sch, stages, panel)
        self._inputs(sch, stages, group, target)
        self._pad(sch, stages, batch, target)
        work = target.costs.parallel_work
        if target.num_cores > 1 and not self.by_filters:
            group = parallelize(sch, [batch, group], target, work) or group
        elif self.by_filters:
            parallelize(sch, [panel], target, work)
        # A group that the image ends in runs the same code, and no more tiles than there are.
        sch.annotate(group, KEEP_WHOLE, 1)

    def _products(self, sch: Schedule, stages: WinogradStages, panel: LoopRV) -> None:
        """Multiply: tiles as rows, output channels as lanes, sums in registers."""
        sch.compute_at(stages.products, panel, preserve_unit_loops=True)
        x, y, batch, place, channel, reduce = sch.get_loops(stages.products)[3:]
        outer, inner = sch.split(place, [None, self.rows])
        sums = fused_epilogue(sch, stages.products, ())
        nest = Nest([x, y, batch, outer], [reduce], [inner, channel], outside=3)
        sum_in_registers(sch, stages.products, sums, nest)
        if sch.choices.choose("winograd.ahead", (self.streams, not self.streams)):
            sch.annotate(y, PREFETCH_NEXT, 1)

    def _inputs(self, sch: Schedule, stages: WinogradStages, group: LoopRV, target: Target) -> None:
        """Transform one tile of one vector of channels at a time."""
        sch.compute_at(stages.input, group, preserve_unit_loops=True)
        x, y, batch, place, channel = sch.get_loops(stages.input)[2:]
        vector, channel = sch.split(channel, [None, self.lanes])
        sch.reorder(batch, place, vector, x, y, channel)
        sch.compute_at(stages.input_rows, vector, preserve_unit_loops=True)
        sch.set_scope(stages.input_rows, 0, "local")
        vectorize_tile(sch, [x, y, channel])
        vectorize_tile(sch, sch.get_loops(stages.input_rows)[7:])
        if self.by_filters:
            parallelize(sch, [place], target, target.costs.parallel_work)

    def _pad(self, sch: Schedule, stages: WinogradStages, batch: LoopRV, target: Target) -> None:
        """Surround an image with zeros, channels last; all images if threads share them."""
        if target.num_cores == 1:
            sch.compute_at(stages.pad, batch, preserve_unit_loops=True)
        image, row, column, channel = sch.get_loops(stages.pad)[-4:]
        vector, channel = sch.split(channel, [None, self.lanes])
        sch.reorder(row, vector, column, channel)
        sch.vectorize(channel)
        if target.num_cores > 1:
            parallelize(sch, [image, row], target, target.costs.parallel_work)


def _plan_for_any_size(
    sch: Schedule, stages: WinogradStages, target: Target
) -> _AnySize | NotApplicable:
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
    rows, vectors = _usual_tile(filters // lanes, target)
    width = dtypes.bytes_of(element) * alpha * alpha
    # The transformed tiles of a group, and the products of a panel, stay in the cache.
    fitting = target.l2_bytes // (width * (channels + vectors * lanes))
    group = max(1, min(fitting, _MOST_TILES) // rows) * rows
    weights = width * channels * filters
    by_filters = target.num_cores > 1 and weights > target.l2_bytes
    streams = is_fetched_ahead(weights, target)
    return _AnySize(tile, group, rows, vectors * lanes, lanes, by_filters, streams)


def _usual_tile(panels: int, target: Target) -> tuple[int, int]:
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
