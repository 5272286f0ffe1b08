"""Windows that slide over the rows of a channel: depthwise and grouped convolution, pooling.

Little but the window itself is reused, so a tile of the result is kept in registers while the
window slides over it: some rows of one vector of neighbouring columns each, for some filters if
several share their input. For one column of the window, each row that it covers is loaded once, for
all its rows and all the filters.

Padding is not copied: where the window extends beyond the edge, lanes of the loads are masked. The
last tile of an axis is computed in full in the same way, so there is one copy of the code. Masks of
edges that come with the call cost more, so tiles that end before them are code of their own. For
targets without masked loads the input is padded channel by channel, right before it is used, so
that it stays in the L1 cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.form import Form, Nest, sum_in_registers, unroll_steps
from tilewright.dlight.cpu.contraction.register_tile import even_size
from tilewright.scheduling import (
    Choices,
    Contraction,
    NotApplicable,
    Reduction,
    contraction_of,
    depends,
    others_after,
    stride,
)
from tilewright.scheduling.cpu import (
    Axis,
    element_bits,
    fused_epilogue,
    parallelize,
    schedule_injective,
    vector_extent,
    work_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, BufferLoad
from tilewright.tir.attrs import KEEP_WHOLE
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Larger windows are left to rules that reduce in loops.
_LARGEST_WINDOW = 128
# Multiply-adds of vectors that are written out; the columns of larger windows keep their loop.
_UNROLLED = 160
# Vectors of results that a tile holds: enough to hide the latency of two multiply-add units, and
# few enough to leave registers to the rows of the window, and to keep the code short.
_ACCUMULATORS = 8
# The same where rows of up to so many vectors share all but the edges of what they read (measured,
# Zen 5: 5 to 20 % faster; longer rows are slower), and vectors of a tile have enough registers.
_TALL, _NARROW, _REGISTERS = 16, 4, 32
# The same where filters share what they read, and the most filters of a tile.
_SHARING, _FILTERS = 16, 8


@dataclass(frozen=True)
class Window:
    """The components of a window.

    ``data`` are read through it, ``column`` is the axis of the result along which it slides,
    ``row`` the one across, ``filters`` an axis of the result on which the data do not depend.
    """

    data: tuple[BufferLoad, ...]
    column: Axis
    row: Axis | None
    filters: Axis | None
    moving: tuple[Axis, ...]
    depth: tuple[Axis, ...]


class SlidingWindow(Form):
    """Applies to one reduction over a small window that moves with the last axis of the result."""

    def tile(self, sch: Schedule, found: Contraction, target: Target) -> set[str] | NotApplicable:
        """Tile rows and columns, unroll the window, read the unpadded input in place."""
        if len(found.consumers) > 1:
            return NotApplicable("the reduction has several consumers")
        window = window_of(found)
        if window is None:
            return NotApplicable("no small window moves along the last axis of the result")
        masked = target.has("avx512f")
        left = [rv for rv in found.others if not (masked and _inlined(sch, rv))]
        now = contraction_of(sch, found.main)
        window = None if isinstance(now, NotApplicable) else window_of(now)
        if isinstance(now, NotApplicable) or window is None:
            return NotApplicable("the padding changes the window")
        channels = _schedule(sch, now, window, target, masked)
        for rv in left:
            fills = _is_filled(window, sch.get(rv))
            inside = fills and channels is not None
            if inside and channels is not None:
                sch.compute_at(rv, channels)
            schedule_injective(sch, rv, target, skip=1 if inside else 0)
        return {rv.name for rv in found.others}


def _is_filled(window: Window, block: Block) -> bool:
    """Whether a block computes what is read through a window."""
    written = {region.buffer for region in block.writes}
    return any(load.buffer in written for load in window.data)


def window_of(found: Reduction) -> Window | None:
    """Return the window of a reduction; ``None`` if there is none, or a large one.

    Several operands may be read through it, as in differences of two images: then what is computed
    of them is shared as one operand's elements are.
    """
    if not found.places or any(axis.extent is None for axis in found.steps):
        return None
    column = found.places[-1]
    if not found.is_contiguous(column):
        return None
    data = tuple(load for load in found.loads if _moves(found, load, column))
    if not data or any(stride(load, column) is None for load in data):
        return None
    others = found.other_than(*data)
    if any(depends(load, column) for load in others):
        return None
    moving, *different = (found.taps(load, *found.places) for load in data)
    if any(taps != moving for taps in different) or work_of(moving) > _LARGEST_WINDOW:
        return None
    rows = [a for a in found.places[:-1] if all(_moves(found, load, a) for load in data)]
    row = rows[-1] if rows else None
    shared = [a for a in found.reusing(*data) if all(depends(load, a) for load in others)]
    depth = tuple(axis for axis in found.steps if axis not in moving)
    return Window(data, column, row, shared[-1] if shared else None, tuple(moving), depth)


def _moves(found: Reduction, load: BufferLoad, axis: Axis) -> bool:
    """Whether a window of several elements slides along an axis."""
    return any(tap.extent != 1 for tap in found.taps(load, axis))


def _inlined(sch: Schedule, rv: BlockRV) -> bool:
    """Inline the padding into its use: its conditions become masks of the loads."""
    try:
        sch.compute_inline(rv)
    except ScheduleError:
        return False  # it stays a block of its own
    return True


def _schedule(
    sch: Schedule, found: Contraction, window: Window, target: Target, masked: bool
) -> LoopRV | None:
    """Tile, unroll, vectorise; return the loop over channels."""
    main, column, lanes = (
        found.main,
        window.column,
        target.vector_lanes(max(16, element_bits(found.block))),
    )
    epilogue = fused_epilogue(sch, main, found.consumers)
    sizes = _tile(sch.choices, window, lanes, target)
    if not masked:
        # What is left of the columns gets shorter vectors.
        _, width = sizes.pop()
        sizes.append((column, vector_extent(column.extent, lanes, width) or 1))
    elif len(found.store.indices) > 1:
        # A row of the tile is whole vectors, also where the image ends before them.
        sch.storage_align(main, 0, -2, lanes, 0)
    tiled = [axis for axis, _ in sizes]
    channels = [axis.loop for axis in found.spatial if axis not in tiled]
    around, tile = [], []
    for axis, size in sizes:
        places, inside = sch.split(axis.loop, [None, size])
        around.append(places)
        tile.append(inside)
    # Column by column of the window: the rows that one of them reads stay in registers.
    steps = [axis.loop for axis in (*window.depth, *reversed(window.moving))]
    sum_in_registers(sch, main, epilogue, Nest([*channels, *around], steps, tile))
    most = sch.choices.choose("window.unrolled", others_after(_UNROLLED, (80, 320)))
    unroll_steps(sch, window.moving, math.prod(size for _, size in sizes) // lanes, most)
    if masked and column.extent is not None:
        for loop in around:
            sch.annotate(loop, KEEP_WHOLE, 1)
    return parallelize(sch, channels, target, 2 * work_of(found.axes))


def _tile(choices: Choices, window: Window, lanes: int, target: Target) -> list[tuple[Axis, int]]:
    """Axes of the result that form the tile, outermost first, with their tile sizes."""
    column = window.column
    tall = target.vector_registers >= _REGISTERS and _is_tall(window, _NARROW * lanes)
    height = _TALL if tall else _ACCUMULATORS
    left = choices.choose("window.accumulators", others_after(height, (8, 4, 6, 10, 12, 16)))
    sizes: list[tuple[Axis, int]] = []
    if window.filters is not None:
        most = choices.choose("window.filters", others_after(_FILTERS, (4, 2, 1)))
        size = even_size(window.filters.extent, most)
        sizes.append((window.filters, size))
        left = max(1, _SHARING // size)
    if window.row is not None:
        size = even_size(window.row.extent, left)
        sizes.append((window.row, size))
        left = 1
    extent = column.extent or lanes
    # Vectors side by side are a power of two, or would not be registers of one kind.
    vectors = 1 << (min(left, -(-extent // lanes)).bit_length() - 1)
    return [*sizes, (column, vectors * lanes)]


def _is_tall(window: Window, narrow: int) -> bool:
    """Whether many rows of a column are best computed together: they read the same rows."""
    row, wide = window.row, (window.column.extent or 0) > narrow
    # What is computed of several operands is worth sharing in rows of any length.
    if row is None or window.filters is not None or (wide and len(window.data) == 1):
        return False
    return all(
        stride(data, row) in {stride(data, axis) for axis in window.moving} - {None}
        for data in window.data
    )
