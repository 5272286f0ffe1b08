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
from dataclasses import dataclass, replace

from tilewright.dlight.cpu.contraction.form import Form, Nest, sum_in_registers
from tilewright.dlight.cpu.contraction.image_axes import join_pixels
from tilewright.dlight.cpu.contraction.register_tile import Limits, rank_tiles
from tilewright.ir import Expr, FloorDiv, as_int, dtypes, pre_order, uses_var
from tilewright.scheduling import (
    Contraction,
    NotApplicable,
    contraction_of,
    depends,
    dimensions_of,
    stride,
)
from tilewright.scheduling.cpu import (
    Axis,
    fused_epilogue,
    loads_of,
    parallelize,
    schedule_injective,
    stores_of,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import SPATIAL, BufferLoad, IterVar
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


class BlockedConvolution(Form):
    """Applies to one convolution whose result has its channels in blocks, and its epilogue."""

    def tile(self, sch: Schedule, found: Contraction, target: Target) -> set[str] | NotApplicable:
        """Tile columns and filters, group rows, pad group by group, fuse the epilogue."""
        conv = _convolution_of(found, target)
        if isinstance(conv, NotApplicable):
            return conv
        refusal = check_epilogue(sch, found)
        if refusal is not None:
            return refusal
        padding = padding_of(sch, found, conv.data)
        epilogue = fused_epilogue(sch, found.main, found.consumers)
        if not padding and _is_pointwise(conv):
            join_pixels(sch, (), found.main, epilogue, conv.column.extent or 1)
            joined = contraction_of(sch, found.main)
            if isinstance(joined, NotApplicable):
                return joined
            again = _convolution_of(joined, target, joined=True)
            if isinstance(again, NotApplicable):
                return again
            conv = again
        plan = _choose(conv, target)
        if isinstance(plan, NotApplicable):
            return plan
        _schedule(sch, found.main, epilogue, padding, conv, plan, target)
        return {rv.name for rv in padding}


# ---- recognising ----------------------------------------------------------------------------


def has_blocks(found: Contraction, dimensions: int = 5) -> bool:
    """Whether a result of known size has such axes, in their order: the last that of blocks."""
    places = [item for item in found.block.iter_vars if item.kind == SPATIAL]
    known = all(axis.extent is not None for axis in (*found.spatial[1:], *found.steps))
    return bool(
        known
        and len(found.spatial) == dimensions
        and found.steps
        and _has_axes(found.store.indices, places)
    )


def _convolution_of(
    found: Contraction, target: Target, *, joined: bool = False
) -> _Convolution | NotApplicable:
    """Recognise a convolution with blocks of filters as vectors; its pixels may be ``joined``."""
    if len(found.loads) != 2 or not has_blocks(found, 4 if joined else 5):
        return NotApplicable("the result has no axis of blocks, or sizes are symbolic")
    batch, filters, *rows, column, lane = found.spatial
    weights = found.along(lane)
    if len(weights) != 1:
        return NotApplicable("no operand is a vector of filters")
    (weight,) = weights
    (data,) = found.other_than(weight)
    shared = _filters_sharing(data, filters)
    bits = dtypes.bits_of(found.store.buffer.dtype)
    if dtypes.bits_of(weight.buffer.dtype) != bits or bits < 32:
        return NotApplicable("operands are narrower than their sums")
    fits = (
        shared > 0
        and not any(depends(weight, axis) for axis in (batch, *rows, column))
        and stride(weight, lane) == 1
        and (filters.extent == 1 or depends(weight, filters))
        and (column.extent == 1 or depends(data, column))
    )
    if not fits or (lane.extent or 1) % (target.vector_lanes(bits) // 2):
        return NotApplicable("axes are not those of a convolution with filters as vectors")
    row = rows[0] if rows else None
    return _Convolution(data, weight, batch, filters, shared, row, column, lane, found.steps)


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


def _has_axes(indices: Sequence[Expr], items: Sequence[IterVar]) -> bool:
    """Whether indices are these variables; those with one value may be written as zero."""
    return len(indices) == len(items) and all(
        index is item.var or (as_int(index) == 0 and as_int(item.dom.extent) == 1)
        for index, item in zip(indices, items)
    )


def check_epilogue(sch: Schedule, found: Contraction) -> NotApplicable | None:
    """Why what follows is no epilogue that computes each element from that of the same indices."""
    if not found.has_one_epilogue:
        return NotApplicable("what follows is more than an epilogue")
    for rv in found.consumers:
        places, stores = list(sch.get(rv).iter_vars), stores_of(sch.get(rv))
        loads = [x for x in loads_of(sch.get(rv)) if x.buffer is found.store.buffer]
        accessed = [x.indices for x in stores] + [x.indices for x in loads]
        if len(stores) != 1 or not all(_has_axes(i, places) for i in accessed):
            return NotApplicable("the epilogue has other axes than the reduction")
    return None


def padding_of(sch: Schedule, found: Contraction, data: BufferLoad) -> list[BlockRV]:
    """The blocks that make what a reduction alone reads by padding."""
    return [
        rv
        for rv in sch.get_producers(found.main)
        if has_branch(sch.get(rv))
        and sch.get(rv).writes[0].buffer is data.buffer
        and len(sch.get_consumers(rv)) == 1
    ]


def _is_pointwise(conv: _Convolution) -> bool:
    """Whether pixels of the result are those of the input, in the same order."""
    image, row = conv.data, conv.row
    if row is None:
        return False
    rows, width = dimensions_of(image, row), conv.column.extent or 0
    return (
        work_of([axis for axis in conv.steps if _moves_in_image(conv, axis)]) == 1
        and len(rows) == 1
        and [as_int(e) for e in image.buffer.shape[rows[0] :]][:2] == [row.extent, width]
        and stride(image, row) == width * (stride(image, conv.column) or 0)
    )


def _moves_in_image(conv: _Convolution, step: Axis) -> bool:
    """Whether an axis of the reduction moves along rows or columns."""
    along = (axis for axis in (conv.row, conv.column) if axis is not None)
    moving = {d for axis in along for d in dimensions_of(conv.data, axis)}
    return not moving.isdisjoint(dimensions_of(conv.data, step))


# ---- choosing -------------------------------------------------------------------------------


def _choose(conv: _Convolution, target: Target) -> _Plan | NotApplicable:
    """Choose the register tile, and groups of rows (or tiles of pixels) for caches and threads."""
    lane, filters = conv.lane.extent or 1, conv.filters.extent or 1
    vector = replace(conv.lane, extent=lane * filters)
    limits = Limits(lane, target.vector_registers, target.costs)
    tiles = rank_tiles(conv.column, vector, limits)
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
    window, apart = _window(conv, conv.row) if conv.row is not None else (1, 1)

    def cost(size: int) -> tuple[bool, float, int]:
        groups = units // size
        # Neighbouring groups share rows under their windows.
        rows = image * (1 + max(0, window - apart) / (size * apart))
        read = rows if rows / groups <= room else rows * panels
        again = weights * groups if weights > room else weights
        return groups < least, read + again, -size

    return min((size for size in range(1, units + 1) if units % size == 0), key=cost)


def _window(conv: _Convolution, axis: Axis) -> tuple[int, int]:
    """Elements of the input's rows (or columns) under a window, and between two windows."""
    data, dims = conv.data, dimensions_of(conv.data, axis)
    if not dims:
        return 1, 1
    span = work_of([step for step in conv.steps if dims[0] in dimensions_of(data, step)])
    inner = math.prod(as_int(extent) or 1 for extent in data.buffer.shape[dims[0] + 1 :])
    return span, max(1, (stride(data, axis) or 0) // inner)


def _bytes_of(load: BufferLoad) -> int:
    extents = (as_int(extent) or 1 for extent in load.buffer.shape)
    return dtypes.bytes_of(load.buffer.dtype) * math.prod(extents)


def _image_bytes(conv: _Convolution) -> float:
    """Bytes of the lines of one image that are read: strides may step over some."""
    data, width = conv.data, dtypes.bytes_of(conv.data.buffer.dtype)
    images = (as_int(data.buffer.shape[0]) or 1) if depends(data, conv.batch) else 1
    read = _bytes_of(data) / images
    for axis in (conv.row, conv.column):
        if axis is not None:
            window, apart = _window(conv, axis)
            if (stride(data, axis) or 0) * width >= apart * _LINE_BYTES:
                read *= min(1, window / apart)
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
    nest = Nest([*outer, *inner], steps, [column, block, conv.lane.loop])
    sum_in_registers(sch, main, epilogue, nest)
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
