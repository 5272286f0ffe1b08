"""Convolutions of images with channels in blocks (``NCHW16c``): a block of filters is a vector.

The result's channels within a block lie side by side, and so do their weights, so vectors are whole
whatever the image's width, and nothing is packed or transposed. A tile of the result in registers
is some columns of some blocks of filters: each step of the reduction loads one element of the input
per column, a vector of weights per block, and multiplies all with all.

Rows are processed in groups whose input stays in the level-2 cache while all filters pass over it.
Padding is added group by group, right before it is read: that touches each element of the input
about once, where the convolution uses it for every filter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.register_tile import rank_tiles
from tilewright.ir import Expr, FloorDiv, as_int, dtypes, pre_order, uses_var
from tilewright.scheduling import NotApplicable, ScheduleRule
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    fused_epilogue,
    loads_of,
    parallelize,
    schedule_injective,
    sole_reduction,
    stores_of,
    stride_of,
    vectorize_tile,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import SPATIAL, Block, BufferLoad, IterVar
from tilewright.tir.analysis import has_branch
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Share of the second-level cache that the input of a group of rows may take up.
_GROUP_SHARE = 0.5
_LINE_BYTES = 64


@dataclass(frozen=True)
class _Convolution:
    """What a block computes: ``data`` is broadcast, ``weight`` read by vectors along ``lane``.

    So many ``shared`` blocks of filters read the same input. Where all pixels are one axis, that of
    columns, there are no rows.
    """

    data: BufferLoad
    weight: BufferLoad
    batch: Axis
    filters: Axis
    shared: int
    row: Axis | None
    column: Axis
    lane: Axis
    steps: tuple[Axis, ...]


@dataclass(frozen=True)
class _Plan:
    """Columns and vectors of the register tile, rows of a group, and what threads share out.

    The next weights are fetched early if they come from far caches: ``streams``.
    """

    columns: int
    vectors: int
    rows: int
    by_filters: bool
    streams: bool


class BlockedConvolution(ScheduleRule):
    """Applies to one convolution whose result has its channels in blocks, and its epilogue."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Tile columns and filters, group rows, pad group by group, fuse the epilogue."""
        opening = sole_reduction(sch)
        if isinstance(opening, NotApplicable):
            return opening
        main, blocks = opening
        consumers = sch.get_consumers(main)
        if len(consumers) > 1 or any(sch.get_consumers(rv) for rv in consumers):
            return NotApplicable("what follows is more than an epilogue")
        found = convolution_of(sch, main, target)
        if isinstance(found, NotApplicable):
            return found
        if consumers and not has_same_axes(sch.get(main), sch.get(consumers[0])):
            return NotApplicable("the epilogue has other axes than the convolution")
        padding = [rv for rv in sch.get_producers(main) if pads(sch, rv, found.data)]
        taken = {rv.name for rv in (main, *consumers, *padding)}
        for rv in blocks:
            if rv.name not in taken:
                schedule_injective(sch, rv, target)
        epilogue = fused_epilogue(sch, main, consumers)
        if not padding and _is_pointwise(found):
            _join_pixels(sch, main, found, epilogue)
            joined = convolution_of(sch, main, target, joined=True)
            if isinstance(joined, NotApplicable):
                return joined
            found = joined
        plan = _choose(found, target)
        if isinstance(plan, NotApplicable):
            return plan
        _schedule(sch, main, epilogue, padding, found, plan, target)
        return sch


# ---- recognising ----------------------------------------------------------------------------


def convolution_of(
    sch: Schedule, main: BlockRV, target: Target, *, joined: bool = False
) -> _Convolution | NotApplicable:
    """Recognise a convolution with blocks of filters as vectors; its pixels may be ``joined``."""
    block, axes = sch.get(main), axes_of(sch, main)
    stores, loads = stores_of(block), loads_of(block)
    if axes is None or block.init is None or len(stores) != 1 or len(loads) != 2:
        return NotApplicable("no sum of products over the block's axes")
    spatial = [axis for axis in axes if not axis.is_reduce]
    steps = tuple(axis for axis in axes if axis.is_reduce)
    places = [item for item in block.iter_vars if item.kind == SPATIAL]
    if len(spatial) != (4 if joined else 5) or not steps or not has_axes(stores[0].indices, places):
        return NotApplicable("the result has no axis of blocks")
    batch, filters, *rows, column, lane = spatial
    row = rows[0] if rows else None
    weights = [load for load in loads if uses_var(load, {lane.var})]
    if len(weights) != 1 or any(axis.extent is None for axis in (*spatial[1:], *steps)):
        return NotApplicable("no operand is a vector of filters, or sizes are symbolic")
    weight = weights[0]
    data = next(load for load in loads if load is not weight)
    shared = _filters_sharing(data, filters)
    bits = dtypes.bits_of(stores[0].buffer.dtype)
    if dtypes.bits_of(weight.buffer.dtype) != bits or bits < 32:
        return NotApplicable("operands are narrower than their sums")
    fits = (
        shared > 0
        and not any(uses_var(weight, {axis.var}) for axis in (batch, *rows, column))
        and stride_of(weight.indices, weight.buffer, lane.var) == 1
        and (filters.extent == 1 or uses_var(weight, {filters.var}))
        and (column.extent == 1 or uses_var(data, {column.var}))
    )
    lanes = target.vector_lanes(bits)
    if not fits or lane.extent is None or lane.extent % (lanes // 2):
        return NotApplicable("axes are not those of a convolution with filters as vectors")
    return _Convolution(data, weight, batch, filters, shared, row, column, lane, steps)


def _filters_sharing(data: BufferLoad, filters: Axis) -> int:
    """How many neighbouring blocks of filters read the same input: all, those of a group, or 0."""
    if not uses_var(data, {filters.var}):
        return filters.extent or 0
    found = [item for index in data.indices for item in pre_order(index)]
    quotients = [item for item in found if isinstance(item, FloorDiv) and item.a is filters.var]
    sizes = {as_int(item.b) for item in quotients}
    if len(sizes) != 1 or sum(item is filters.var for item in found) != len(quotients):
        return 0
    return sizes.pop() or 0


def has_axes(indices: Sequence[Expr], items: Sequence[IterVar]) -> bool:
    """Whether indices are these variables; those with one value may be written as zero."""
    return len(indices) == len(items) and all(
        index is item.var or (as_int(index) == 0 and as_int(item.dom.extent) == 1)
        for index, item in zip(indices, items)
    )


def has_same_axes(main: Block, epilogue: Block) -> bool:
    """Whether an epilogue computes each element from that of the same indices."""
    result = main.writes[0].buffer
    places = list(epilogue.iter_vars)
    stores = stores_of(epilogue)
    return (
        len(stores) == 1
        and has_axes(stores[0].indices, places)
        and all(
            has_axes(load.indices, places) for load in loads_of(epilogue) if load.buffer is result
        )
    )


def pads(sch: Schedule, rv: BlockRV, data: BufferLoad) -> bool:
    """Whether a block makes what a reduction reads by padding."""
    block = sch.get(rv)
    return (
        has_branch(block)
        and block.writes[0].buffer is data.buffer
        and len(sch.get_consumers(rv)) == 1
    )


def _is_pointwise(conv: _Convolution) -> bool:
    """Whether pixels of the result are those of the input, in the same order."""
    image, row = conv.data, conv.row
    if row is None:
        return False
    rows = [d for d, index in enumerate(image.indices) if uses_var(index, {row.var})]
    return (
        work_of([axis for axis in conv.steps if _moves_in_image(conv, axis)]) == 1
        and len(rows) == 1
        and rows[0] + 1 < image.buffer.ndim
        and as_int(image.buffer.shape[rows[0]]) == row.extent
        and as_int(image.buffer.shape[rows[0] + 1]) == conv.column.extent
        and stride_of(image.indices, image.buffer, row.var)
        == (conv.column.extent or 0)
        * (stride_of(image.indices, image.buffer, conv.column.var) or 0)
    )


def _moves_in_image(conv: _Convolution, step: Axis) -> bool:
    """Whether an axis of the reduction moves along rows or columns."""
    return any(
        uses_var(index, {step.var}) and uses_var(index, {axis.var})
        for index in conv.data.indices
        for axis in (conv.row, conv.column)
        if axis is not None
    )


def _join_pixels(sch: Schedule, main: BlockRV, conv: _Convolution, epilogue: BlockRV) -> None:
    """Make rows and columns one axis of pixels, that of columns."""
    assert conv.row is not None
    width = conv.column.extent or 1

    def joined(n: Expr, f: Expr, h: Expr, w: Expr, *rest: Expr) -> tuple[Expr, ...]:
        return (n, f, h * width + w, *rest)

    sch.transform_layout(main, ("write", 0), joined)
    for rv in (main, epilogue):
        sch.transform_block_layout(rv, joined)


# ---- choosing -------------------------------------------------------------------------------


def _choose(conv: _Convolution, target: Target) -> _Plan | NotApplicable:
    """Choose the register tile, and groups of rows (or tiles of pixels) for caches and threads."""
    lane, filters = conv.lane.extent or 1, conv.filters.extent or 1
    vector = Axis(conv.lane.loop, conv.lane.var, conv.lane.kind, lane * filters)
    tiles = rank_tiles(conv.column, vector, lane, target.vector_registers, target.costs)
    whole = [
        tile
        for tile in tiles
        if tile.columns % lane == 0 and math.gcd(filters, conv.shared) % (tile.columns // lane) == 0
    ]
    if not whole:
        return NotApplicable("no tile fits the registers")
    tile = whole[0]
    vectors = tile.columns // lane
    if conv.row is None:
        units = -(-(conv.column.extent or 1) // tile.rows)
    else:
        units = conv.row.extent or 1
    images, weights = work_of([conv.batch]), _bytes_of(conv.weight)
    by_filters = images < target.num_cores and (
        weights > _image_bytes(conv) and filters // vectors >= target.num_cores
    )
    least = 1 if by_filters else -(-target.num_cores // images)
    size = _group_size(conv, units, filters // vectors, least, target)
    return _Plan(tile.rows, vectors, size, by_filters, 2 * weights > target.l2_bytes)


def _group_size(conv: _Convolution, units: int, panels: int, least: int, target: Target) -> int:
    """Rows (or tiles of pixels) of a group: those that move the fewest bytes from far caches.

    All weights are read again for each group, and an image that doesn't stay in the cache again for
    each of the ``panels`` of filters. There are ``least`` groups or more, if there can be.
    """
    room = _GROUP_SHARE * target.l2_bytes
    image, weights = _image_bytes(conv), _bytes_of(conv.weight)
    window, stride = _window(conv, conv.row) if conv.row is not None else (1, 1)

    def cost(size: int) -> tuple[bool, float, int]:
        groups = units // size
        # Neighbouring groups share rows under their windows.
        rows = image * (1 + max(0, window - stride) / (size * stride))
        read = rows if rows / groups <= room else rows * panels
        again = weights * groups if weights > room else weights
        return groups < least, read + again, -size

    return min((size for size in range(1, units + 1) if units % size == 0), key=cost)


def _window(conv: _Convolution, axis: Axis) -> tuple[int, int]:
    """Elements of the input's rows (or columns) under a window, and between two windows."""
    indices, buffer = conv.data.indices, conv.data.buffer
    dim = next((d for d, index in enumerate(indices) if uses_var(index, {axis.var})), None)
    if dim is None:
        return 1, 1
    span = math.prod(step.extent or 1 for step in conv.steps if uses_var(indices[dim], {step.var}))
    inner = math.prod(as_int(extent) or 1 for extent in buffer.shape[dim + 1 :])
    return span, max(1, (stride_of(indices, buffer, axis.var) or 0) // inner)


def _bytes_of(load: BufferLoad) -> int:
    return dtypes.bytes_of(load.buffer.dtype) * math.prod(
        as_int(extent) or 1 for extent in load.buffer.shape
    )


def _image_bytes(conv: _Convolution) -> float:
    """Bytes of the lines of one image that are read: strides may step over some."""
    images = as_int(conv.data.buffer.shape[0]) or 1
    read = _bytes_of(conv.data) / (images if uses_var(conv.data, {conv.batch.var}) else 1)
    for axis in (conv.row, conv.column):
        if axis is not None:
            window, stride = _window(conv, axis)
            step = stride_of(conv.data.indices, conv.data.buffer, axis.var) or 0
            if step * dtypes.bytes_of(conv.data.buffer.dtype) >= stride * _LINE_BYTES:
                read *= min(1, window / stride)
    return read


# ---- scheduling -----------------------------------------------------------------------------


def _schedule(
    sch: Schedule,
    main: BlockRV,
    epilogue: BlockRV,
    padding: Sequence[BlockRV],
    conv: _Convolution,
    plan: _Plan,
    target: Target,
) -> None:
    work = 2 * work_of([conv.batch, conv.filters, conv.column, conv.lane, *conv.steps])
    filters, block = sch.split(conv.filters.loop, [None, plan.vectors])
    tile, column = sch.split(conv.column.loop, [None, plan.columns])
    if conv.row is None:
        group, tile = sch.split(tile, [None, plan.rows])
        inner = [tile]
    else:
        group, row = sch.split(conv.row.loop, [None, plan.rows])
        inner = [row, tile]
    batch = conv.batch.loop
    outer = [batch, filters, group] if plan.by_filters else [batch, group, filters]
    steps = [axis.loop for axis in conv.steps]
    sch.reorder(*outer, *inner, *steps, column, block, conv.lane.loop)
    sch.reverse_compute_at(epilogue, tile)
    init = sch.decompose_reduction(main, steps[0])
    depth = len(outer) + len(inner)
    for rv, skip in ((main, depth + len(steps)), (init, depth), (epilogue, depth)):
        vectorize_tile(sch, sch.get_loops(rv)[skip:])
    for rv in padding:
        pad_rows(sch, rv, None if plan.by_filters else group, target)
    if plan.streams and not plan.by_filters:
        sch.annotate(filters, PREFETCH_NEXT, 1)
    shared = parallelize(sch, outer[:2], target, work)
    if plan.streams and plan.by_filters and shared is not None:
        sch.annotate(shared, PREFETCH_NEXT, 1)


def pad_rows(sch: Schedule, pad: BlockRV, at: LoopRV | None, target: Target) -> None:
    """Add padding to a group of rows right before it is read, or else to everything."""
    if at is None:
        schedule_injective(sch, pad, target)
        return
    dimensions = sch.get(pad).writes[0].buffer.ndim
    sch.compute_at(pad, at, preserve_unit_loops=True)
    schedule_injective(sch, pad, target, skip=len(sch.get_loops(pad)) - dimensions)
