"""Winograd convolutions (``topi.nn.conv2d_winograd``): transforms and products in the cache.

Rows of tiles are processed in groups. For a group, the transformed input is computed first; then,
some output channels at a time, all products, the transform of the result and the epilogue, so that
intermediate results stay in the L2 cache. The products are matrix products with tiles as rows and
output channels as lanes; filters are packed in the order in which they are read, when the program
is built if they are constant. Both transforms run tile by tile in registers, with channels as
lanes. Filters that are transformed in the function have another form (``winograd_filters``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.form import Nest, schedule_others, sum_in_registers
from tilewright.dlight.cpu.contraction.packing import Panels, is_fetched_ahead, pack_operand
from tilewright.dlight.cpu.contraction.register_tile import loop_cycles, tile_registers
from tilewright.dlight.cpu.contraction.winograd_any_size import schedule_any_size
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
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
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
            return schedule_any_size(sch, stages, target)
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
        _result_transform(sch, stages, panel, plan)
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


def _result_transform(sch: Schedule, stages: WinogradStages, panel: LoopRV, plan: _Plan) -> None:
    """Inverse-transform one tile of one vector of channels at a time."""
    transform_back(sch, stages, panel, plan.tile, plan.lanes, 3)


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
