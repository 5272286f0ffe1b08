"""Images with channels in blocks (``NCHW16c``): a block of the result's channels is a vector.

The channels of a block are contiguous, and so are their weights, so vectors are full whatever the
image's width, and nothing is packed or transposed. The input of a group of rows stays in the L2
cache; padding is added group by group, right before it is read: that touches each element of the
input about once, while a convolution uses it for every filter.

- Convolutions: a tile of the result in registers is some columns of some blocks of filters. Each
  step of the reduction loads one element of the input per column and a vector of weights per block,
  and multiplies each with each. All filters are applied to a group of rows. Of an image from far
  caches of which only some rows and columns are read (1 x 1 with a stride), those are copied first.
- Windows over single channels (depthwise convolution, pooling): neighbouring columns form a tile,
  over which the window is unrolled. Little is reused, so a padded copy would cost as much as the
  arithmetic: the first and the last tile of a row, and the window's rows beyond the image's edge,
  are code of their own that knows what is padding. Where tiles don't divide a row, as where its
  width comes with the call, the last one begins before the end of the one before. Only with large
  windows and wide padding is the input padded group by group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.arith import Analyzer
from tilewright.dlight.cpu.contraction.form import Form, Nest, sum_in_registers, unroll_steps
from tilewright.dlight.cpu.contraction.joined_axes import join_pixels
from tilewright.dlight.cpu.contraction.packing import is_fetched_ahead
from tilewright.dlight.cpu.contraction.register_tile import (
    Limits,
    rank_tiles,
    tile_registers,
)
from tilewright.ir import Call, Expr, FloorDiv, as_int, dtypes, pre_order
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
    axes_of,
    coefficient_of,
    fused_epilogue,
    loads_of,
    parallelize,
    schedule_injective,
    size_of,
    stores_of,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import SPATIAL, BufferLoad, IterVar
from tilewright.tir.analysis import has_branch
from tilewright.tir.attrs import CUT_MASKS, KEEP_WHOLE, OVERLAP_LAST, PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

_LINE_BYTES = 64
# Larger windows are left to rules that reduce in loops; steps of vectors that are written out.
_LARGEST_WINDOW, _UNROLLED = 64, 160
# The most columns of a window's tile. To begin one takes as long as a column of so many taps per
# register: multiply-adds of few sums wait for each other (measured on a Zen 4, AVX2 and AVX-512).
_MOST_COLUMNS, _TAPS_TO_BEGIN = 14, 0.5
# Rows and columns that an image counts as if their number comes with the call, and columns of its
# tiles: widths are often multiples.
_ASSUMED, _COLUMNS = 56, 7


@dataclass(frozen=True)
class _Image:
    """A result with channels in blocks, and the operand ``data`` that is read at its pixels.

    If all pixels are one axis, it counts as the columns, and there are no rows.
    """

    found: Contraction
    data: BufferLoad
    batch: Axis
    channel: Axis
    row: Axis | None
    column: Axis
    lane: Axis

    @property
    def pixels(self) -> list[Axis]:
        """The axes of an image's pixels."""
        return [axis for axis in (self.row, self.column) if axis is not None]

    @property
    def weight(self) -> BufferLoad:
        """The other operand of a convolution."""
        return self.found.other_than(self.data)[0]

    @property
    def shared(self) -> int:
        """How many neighbouring blocks of filters read the same input: all, a group's, or 0."""
        if not depends(self.data, self.channel):
            return self.channel.extent or 0
        found = [item for index in self.data.indices for item in pre_order(index)]
        var = self.channel.var
        quotients = [item for item in found if isinstance(item, FloorDiv) and item.a is var]
        sizes = {as_int(item.b) for item in quotients}
        if len(sizes) != 1 or sum(item is var for item in found) != len(quotients):
            return 0
        return sizes.pop() or 0


@dataclass(frozen=True)
class _Plan:
    """Columns and vectors of the register tile, rows of a group, and how threads divide the work.

    An image whose size comes with the call is one group (``rows`` is 0): in a group that ends with
    the image, tiles would be behind one more test. ``streams``: the next weights come from far
    caches and are prefetched.
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
        image = _image_of(sch, found, target, _convolution_of)
        if isinstance(image, NotApplicable):
            return image
        padding = _padding_of(sch, image)
        if not padding and _skips_pixels(image, target):
            found = _copied(sch, image, target)
            image = _convolution_of(found, target)
            if isinstance(image, NotApplicable):
                return image
        epilogue = fused_epilogue(sch, found.main, found.consumers)
        if not padding and _is_pointwise(image):
            width = found.block.iter_vars[3].dom.extent
            join_pixels(sch, (), found.main, epilogue, width)
            joined = contraction_of(sch, found.main)
            if isinstance(joined, NotApplicable):
                return joined
            image = _convolution_of(joined, target, joined=True)
            if isinstance(image, NotApplicable):
                return image
        plan = _choose(image, target)
        if isinstance(plan, NotApplicable):
            return plan
        _schedule_convolution(sch, epilogue, padding, image, plan, target)
        return {rv.name for rv in padding}


class BlockedWindow(Form):
    """Applies to one reduction over a small window of each channel, and its epilogue."""

    def tile(self, sch: Schedule, found: Contraction, target: Target) -> set[str] | NotApplicable:
        """Tile columns, unroll the window, pad rows where they are read, fuse the epilogue."""
        image = _image_of(sch, found, target, _window_of)
        if isinstance(image, NotApplicable):
            return image
        padding = _padding_of(sch, image)
        done = {rv.name for rv in padding}
        in_place = _is_read_in_place(sch, image, padding, target)
        if in_place:
            for rv in padding:
                sch.compute_inline(rv)
            padding = []
            now = contraction_of(sch, found.main)
            image = now if isinstance(now, NotApplicable) else _window_of(now, target)
            if isinstance(now, NotApplicable) or isinstance(image, NotApplicable):
                return NotApplicable("the padding changes the window")
            found = now
        epilogue = fused_epilogue(sch, found.main, found.consumers)
        _schedule_window(sch, epilogue, padding, image, target, in_place=in_place)
        return done


# ---- recognising ----------------------------------------------------------------------------


def _has_blocks(found: Contraction, count: int = 5) -> bool:
    """Whether a result has ``count`` axes in order, the last one of blocks.

    Channels and window are of known size; images may be as large as the call says.
    """
    places = [item for item in found.block.iter_vars if item.kind == SPATIAL]
    if len(places) != count or not _has_axes(found.store.indices, places) or not found.steps:
        return False
    known = (found.spatial[1], found.spatial[-1], *found.steps)
    return all(axis.extent is not None for axis in known)


def _part(found: Contraction, target: Target) -> int:
    """The minimum number of channels per block that justifies a vector."""
    return target.vector_lanes(dtypes.bits_of(found.store.buffer.dtype)) // 2


def _image_of(
    sch: Schedule,
    found: Contraction,
    target: Target,
    recognise: Callable[[Contraction, Target], _Image | NotApplicable],
) -> _Image | NotApplicable:
    """What ``recognise`` finds, if the epilogue fits as well."""
    image = recognise(found, target)
    if isinstance(image, NotApplicable):
        return image
    refusal = _check_epilogue(sch, found)
    return image if refusal is None else refusal


def _convolution_of(
    found: Contraction, target: Target, *, joined: bool = False
) -> _Image | NotApplicable:
    """Recognise a convolution with blocks of filters as vectors; its pixels may be ``joined``."""
    if len(found.loads) != 2 or not _has_blocks(found, 4 if joined else 5):
        return NotApplicable("the result has no axis of blocks, or channels are symbolic")
    batch, filters, *rows, column, lane = found.spatial
    weights = found.along(lane)
    if len(weights) != 1:
        return NotApplicable("no operand is a vector of filters")
    (weight,), (data,) = weights, found.other_than(*weights)
    bits = dtypes.bits_of(found.store.buffer.dtype)
    if dtypes.bits_of(weight.buffer.dtype) != bits or bits < 32:
        return NotApplicable("operands are narrower than their sums")
    image = _Image(found, data, batch, filters, rows[0] if rows else None, column, lane)
    fits = (
        image.shared > 0
        and not any(depends(weight, axis) for axis in (batch, *rows, column))
        and stride(weight, lane) == 1
        and (filters.extent == 1 or depends(weight, filters))
        and (column.extent == 1 or depends(data, column))
        and (lane.extent or 1) % _part(found, target) == 0
    )
    return image if fits else NotApplicable("axes are not those of a convolution")


def _window_of(found: Contraction, target: Target) -> _Image | NotApplicable:
    """Recognise a small window over each channel of a block."""
    if len(found.loads) not in (1, 2) or not _has_blocks(found):
        return NotApplicable("the result has no axis of blocks, or channels are symbolic")
    batch, channel, row, column, lane = found.spatial
    moving, whole = found.along(column), (lane.extent or 1) % _part(found, target) == 0
    if len(moving) != 1 or not whole or work_of(found.steps) > _LARGEST_WINDOW:
        return NotApplicable("no small window moves along columns of blocks")
    side_by_side = all(stride(load, lane) == 1 for load in found.loads)
    filters = found.other_than(*moving)
    if not side_by_side or any(depends(load, a) for load in filters for a in (batch, row)):
        return NotApplicable("channels of a block are not reduced by themselves")
    return _Image(found, moving[0], batch, channel, row, column, lane)


def _has_axes(indices: Sequence[Expr], items: Sequence[IterVar]) -> bool:
    """Whether indices are these variables; those with one value may be zero."""
    return len(indices) == len(items) and all(
        index is item.var or (as_int(index) == 0 and as_int(item.dom.extent) == 1)
        for index, item in zip(indices, items)
    )


def _check_epilogue(sch: Schedule, found: Contraction) -> NotApplicable | None:
    """Refuse unless the epilogue computes each element from the one with the same indices."""
    if not found.has_one_epilogue:
        return NotApplicable("what follows is more than an epilogue")
    for rv in found.consumers:
        places, stores = list(sch.get(rv).iter_vars), stores_of(sch.get(rv))
        loads = [x for x in loads_of(sch.get(rv)) if x.buffer is found.store.buffer]
        accessed = [x.indices for x in stores] + [x.indices for x in loads]
        if len(stores) != 1 or not all(_has_axes(i, places) for i in accessed):
            return NotApplicable("the epilogue has other axes than the reduction")
    return None


def _padding_of(sch: Schedule, image: _Image) -> list[BlockRV]:
    """The padding blocks whose result only the reduction reads."""
    return [
        rv
        for rv in sch.get_producers(image.found.main)
        if has_branch(sch.get(rv))
        and sch.get(rv).writes[0].buffer is image.data.buffer
        and len(sch.get_consumers(rv)) == 1
    ]


def _is_read_in_place(
    sch: Schedule, image: _Image, padding: Sequence[BlockRV], target: Target
) -> bool:
    """Whether a window reads its unpadded input: what is padding must be known in the code.

    That is so where the window's columns are written out, and no more tiles than the first and the
    last of a row are beside the image.
    """
    if image.row is None or len(padding) != 1:
        return False
    block = sch.get(padding[0])
    loads, value = loads_of(block), stores_of(block)[0].value
    if len(loads) != 1 or not isinstance(value, Call) or not any(x is loads[0] for x in value.args):
        return False
    dims = dimensions_of(image.data, image.column)
    if len(dims) != 1 or loads[0].buffer.ndim != image.data.buffer.ndim:
        return False
    padded, whole = (load.buffer.shape[dims[0]] for load in (image.data, loads[0]))
    beside = as_int(Analyzer().simplify(padded - whole))
    columns, (span, apart) = _columns_of(image, target), _window(image, image.column)
    fits = columns * span <= _UNROLLED and beside is not None and beside <= columns * apart
    return fits and sch.choices.choose("blocked_window.in_place", (True, False))


def _columns_of(image: _Image, target: Target) -> int:
    """Columns of a window's tile: their sums and what they read fit in the registers."""
    extent, vectors = image.column.extent, -(-(image.lane.extent or 1) // target.vector_lanes(32))
    most = max(1, min(_MOST_COLUMNS, target.vector_registers // 2 // vectors))
    if extent is None:
        return min(_COLUMNS, most)
    begin = work_of(image.found.steps) / (_TAPS_TO_BEGIN * target.vector_registers)

    def cost(columns: int) -> tuple[float, int]:
        return -(-extent // columns) * (columns + begin), -columns

    return min(range(1, max(1, min(most, extent)) + 1), key=cost)


def _is_pointwise(image: _Image) -> bool:
    """Whether the result's pixels correspond one to one to the input's, in order."""
    data, row = image.data, image.row
    if row is None:
        return False
    rows, columns = dimensions_of(data, row), dimensions_of(data, image.column)
    if len(rows) != 1 or work_of(image.found.taps(data, *image.pixels)) != 1:
        return False
    if columns != [rows[0] + 1] and (columns or image.column.extent != 1):
        return False
    if any(
        coefficient_of(data.indices[dim], axis.var) != 1
        for axis, dims in ((row, rows), (image.column, columns))
        for dim in dims
    ):
        return False
    extents = [item.dom.extent for item in image.found.block.iter_vars[2:4]]
    shape = data.buffer.shape[rows[0] : rows[0] + 2]
    return len(shape) == 2 and all(map(Analyzer().can_prove_equal, shape, extents))


def _skips_pixels(image: _Image, target: Target) -> bool:
    """Whether a convolution reads some pixels of an image from far caches, for many filters."""
    data, row = image.data, image.row
    if row is None or work_of(image.found.taps(data, *image.pixels)) != 1:
        return False
    skips = all(
        len(dimensions_of(data, axis)) == 1
        and (coefficient_of(data.indices[dimensions_of(data, axis)[0]], axis.var) or 1) > 1
        for axis in (row, image.column)
    )
    filters = (image.channel.extent or 1) * (image.lane.extent or 1)
    far = (size_of(data.buffer) or 0) > target.costs.columns_share * target.l2_bytes
    return skips and far and filters >= target.costs.copy_uses


def _copied(sch: Schedule, image: _Image, target: Target) -> Contraction:
    """Copy the pixels that are read, all channels of one side by side."""
    main = image.found.main
    buffers = [region.buffer for region in sch.get(main).reads]
    copy = sch.reindex(main, ("read", buffers.index(image.data.buffer)))
    loops = sch.get_loops(copy)
    sch.vectorize(loops[-1])
    parallelize(sch, loops[:2], target, work_of(axes_of(sch, copy) or []))
    made = contraction_of(sch, main)
    assert isinstance(made, Contraction)
    return made


# ---- choosing -------------------------------------------------------------------------------


def _choose(image: _Image, target: Target) -> _Plan | NotApplicable:
    """Choose the register tile, and groups of rows (or tiles of pixels) for caches and threads."""
    lane, filters = image.lane.extent or 1, image.channel.extent or 1
    vector = replace(image.lane, extent=lane * filters)
    limits = Limits(lane, tile_registers(target), target.costs)
    tiles = rank_tiles(image.column, vector, limits)
    whole = [
        tile
        for tile in tiles
        if tile.columns % lane == 0
        and math.gcd(filters, image.shared) % (tile.columns // lane) == 0
    ]
    if not whole:
        return NotApplicable("no tile fits the registers")
    tile = whole[0]
    vectors = tile.columns // lane
    size = (image.row or image.column).extent
    images, weights = work_of([image.batch]), _bytes_of(image.weight)
    by_filters = images < target.num_cores and (
        weights > _image_bytes(image) and filters // vectors >= target.num_cores
    )
    streams = is_fetched_ahead(weights, target)
    if size is None:
        by_filters = image.row is not None or weights > target.costs.window_share * target.l2_bytes
        return _Plan(tile.rows, vectors, 0, by_filters, streams)
    least = 1 if by_filters else -(-target.num_cores // images)
    units = size if image.row is not None else -(-size // tile.rows)
    rows = _group_size(image, units, filters // vectors, least, target)
    return _Plan(tile.rows, vectors, rows, by_filters, streams)


def _group_size(image: _Image, units: int, panels: int, least: int, target: Target) -> int:
    """Rows (or tiles of pixels) of a group: the number that moves the fewest bytes from far caches.

    All weights are read again for each group, and an image that doesn't fit in the cache again for
    each of the ``panels`` of filters. There are at least ``least`` groups, if possible.
    """
    room = target.costs.group_share * target.l2_bytes
    whole, weights = _image_bytes(image), _bytes_of(image.weight)
    window, apart = _window(image, image.row) if image.row is not None else (1, 1)

    def cost(size: int) -> tuple[bool, float, int]:
        groups = units // size
        # Neighbouring groups share rows under their windows.
        rows = whole * (1 + max(0, window - apart) / (size * apart))
        read = rows if rows / groups <= room else rows * panels
        again = weights * groups if weights > room else weights
        return groups < least, read + again, -size

    return min((size for size in range(1, units + 1) if units % size == 0), key=cost)


def _window(image: _Image, axis: Axis) -> tuple[int, int]:
    """The window's extent and stride along the input's rows (or columns)."""
    data, dims = image.data, dimensions_of(image.data, axis)
    if not dims:
        return 1, 1
    span = work_of(image.found.taps(data, axis))
    steps = (coefficient_of(data.indices[dim], axis.var) for dim in dims[:1])
    return span, max(1, next(steps) or 0)


def _bytes_of(load: BufferLoad) -> int:
    """Bytes of an operand; of a batch of unknown size, those of one image."""
    first, *rest = (as_int(extent) for extent in load.buffer.shape)
    extents = [first or 1, *(_ASSUMED if extent is None else extent for extent in rest)]
    return dtypes.bytes_of(load.buffer.dtype) * math.prod(extents)


def _image_bytes(image: _Image) -> float:
    """Bytes of the cache lines that are read of one image: strides may skip some."""
    data, width = image.data, dtypes.bytes_of(image.data.buffer.dtype)
    images = (as_int(data.buffer.shape[0]) or 1) if depends(data, image.batch) else 1
    read = _bytes_of(data) / images
    for axis in image.pixels:
        window, apart = _window(image, axis)
        if (stride(data, axis) or 0) * width >= apart * _LINE_BYTES:
            read *= min(1, window / apart)
    return read


def _rows_of_window(image: _Image, target: Target, *, whole: bool) -> int:
    """Rows of a group whose input stays in a near cache; ``whole`` groups divide the image."""
    height = work_of(image.pixels[:-1])
    elements = math.prod(as_int(extent) or _ASSUMED for extent in image.data.buffer.shape[2:])
    size = elements * dtypes.bytes_of(image.data.buffer.dtype) / height
    fitting = max(1, int(target.costs.window_share * target.l2_bytes / size))
    divisors = [d for d in range(1, min(fitting, height) + 1) if height % d == 0]
    return (
        divisors[-1] if whole or 2 * divisors[-1] > min(fitting, height) else min(fitting, height)
    )


# ---- scheduling -----------------------------------------------------------------------------


def _schedule_convolution(
    sch: Schedule,
    epilogue: BlockRV,
    padding: Sequence[BlockRV],
    image: _Image,
    plan: _Plan,
    target: Target,
) -> None:
    """Tile columns and filters, divide groups of rows or filters among threads."""
    main, reduced = image.found.main, image.found.steps
    work = 2 * work_of([image.batch, image.channel, image.column, image.lane, *reduced])
    filters, block = sch.split(image.channel.loop, [None, plan.vectors])
    tile, column = sch.split(image.column.loop, [None, plan.columns])
    batch = image.batch.loop
    grouped = tile if image.row is None else image.row.loop
    if plan.rows:
        group, *inner = sch.split(grouped, [None, plan.rows])
    else:
        group, inner = grouped, []
    if image.row is not None:
        inner.append(tile)
    outer = [batch, filters, group] if plan.by_filters else [batch, group, filters]
    steps = [axis.loop for axis in reduced]
    nest = Nest([*outer, *inner], steps, [column, block, image.lane.loop])
    sum_in_registers(sch, main, epilogue, nest)
    # On one core an image that is not grouped is padded before all filters use it.
    alone = not plan.rows and target.num_cores == 1
    padded_at = batch if alone else None if plan.by_filters else group
    for rv in padding:
        _pad_rows(sch, rv, padded_at, target)
    if plan.streams and (alone or not plan.by_filters):
        sch.annotate(filters, PREFETCH_NEXT, 1)
    shared = parallelize(sch, outer[: 1 if alone else 2], target, work)
    if plan.streams and plan.by_filters and not alone and shared is not None:
        sch.annotate(shared, PREFETCH_NEXT, 1)


def _schedule_window(
    sch: Schedule,
    epilogue: BlockRV,
    padding: Sequence[BlockRV],
    image: _Image,
    target: Target,
    *,
    in_place: bool,
) -> None:
    """Tile columns, unroll the window, divide groups of rows of each channel among threads."""
    found, steps = image.found, [axis.loop for axis in image.found.steps]
    columns, row = _columns_of(image, target), image.row
    assert row is not None
    outer, inner = [image.batch.loop, image.channel.loop], [row.loop]
    if row.extent is not None:
        rows = _rows_of_window(image, target, whole=in_place)
        group, *inner = sch.split(row.loop, [None, rows])
        outer.append(group)
    tile, column = sch.split(image.column.loop, [None, columns])
    nest = Nest([*outer, *inner, tile], steps, [column, image.lane.loop])
    sum_in_registers(sch, found.main, epilogue, nest)
    unroll_steps(sch, found.steps[::-1], columns, _UNROLLED)
    if in_place:
        for loop in (tile, *(axis.loop for axis in found.taps(image.data, row))):
            sch.annotate(loop, CUT_MASKS, 1)
        if (image.column.extent or 1) % columns:
            sch.annotate(tile, OVERLAP_LAST, 1)
        if row.extent is None:
            # Masks by a size that comes with the call cut loops; that of rows would be two.
            sch.annotate(row.loop, KEEP_WHOLE, 1)
    for rv in padding:
        _pad_rows(sch, rv, outer[-1], target)
    parallelize(sch, outer, target, 2 * work_of(found.axes))


def _pad_rows(sch: Schedule, pad: BlockRV, at: LoopRV | None, target: Target) -> None:
    """Add padding to a group of rows right before it is read, or else to everything."""
    if at is None:
        schedule_injective(sch, pad, target)
        return
    dimensions = sch.get(pad).writes[0].buffer.ndim
    sch.compute_at(pad, at, preserve_unit_loops=True)
    schedule_injective(sch, pad, target, skip=len(sch.get_loops(pad)) - dimensions)
