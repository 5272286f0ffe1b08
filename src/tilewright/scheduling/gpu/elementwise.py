"""Schedules of single blocks without reductions: one vector a thread, neighbours side by side."""

from __future__ import annotations

from tilewright.ir import as_int, dtypes
from tilewright.scheduling.blocks import (
    Axis,
    accesses_of,
    axes_of,
    can_vectorize,
    is_flat,
    stores_of,
    stride_of,
    work_inside,
    work_of,
)
from tilewright.scheduling.gpu.binding import BLOCKS, THREADS, bind_nest, flat_threads, fused
from tilewright.scheduling.gpu.limits import limits_of
from tilewright.target import Target
from tilewright.tir import Block
from tilewright.tir.analysis import has_branch
from tilewright.tir.schedule import Schedule, others_after
from tilewright.tir.schedule.handles import BlockRV

VECTOR_BYTES = 16
"""What one thread loads or stores at once."""


def schedule_injective(sch: Schedule, rv: BlockRV, target: Target) -> str | None:
    """Bind a block that computes each element by itself.

    Threads side by side write elements side by side, each a vector of them where the last axis has
    a whole number of vectors. Returns why only one thread runs it, if so.
    """
    limits, axes = limits_of(target), axes_of(sch, rv)
    if not axes:
        return bind_nest(sch, rv, limits)
    axes = _in_order_of_stores(sch, rv, axes)
    block, loops = sch.get(rv), [axis.loop for axis in axes]
    flat = is_flat(block, axes)
    lanes = sch.choices.choose(f"{block.name}.lanes", _lanes(block, axes, flat))
    total = _product(axes)
    work = None if total is None else total // lanes
    usual = flat_threads(limits, work)
    options = [n for n in (64, 128, 256, 512) if n <= limits.max_threads]
    threads = sch.choices.choose(f"{block.name}.threads", others_after(usual, options))
    if flat:
        loops = [sch.fuse(*loops)]
    if lanes > 1:
        loops[-1], lane = sch.split(loops[-1], [None, lanes])
    outer, inner = sch.split(fused(sch, loops), [None, threads])
    sch.bind(outer, BLOCKS)
    sch.bind(inner, THREADS)
    if lanes > 1:
        sch.vectorize(lane)
    return None


def _in_order_of_stores(sch: Schedule, rv: BlockRV, axes: list[Axis]) -> list[Axis]:
    """Bring the axis along which results are neighbours to the end."""
    stores = stores_of(sch.get(rv))
    if len(stores) != 1:
        return axes
    steps = [stride_of(stores[0].indices, stores[0].buffer, axis.var) for axis in axes]
    close = [axis for axis, step in zip(axes, steps) if step == 1 and axis.extent != 1]
    if not close or close[-1] is axes[-1]:
        return axes
    made = [axis for axis in axes if axis is not close[-1]] + [close[-1]]
    sch.reorder(*(axis.loop for axis in made))
    return made


def _lanes(block: Block, axes: list[Axis], flat: bool) -> list[int]:
    """The lengths of vectors that are possible, the longest first; 1 is among them."""
    last = axes[-1]
    length = _product(axes) if flat else last.extent
    if not length or has_branch(block) or work_inside(block.body) > 1:
        return [1]
    if not can_vectorize(block, last) or not (flat or _is_aligned(block, axes)):
        return [1]
    accesses = accesses_of(block)
    if any(x.buffer.strides or x.buffer.elem_offset is not None for x in accesses):
        return [1]
    moving = [x.buffer for x in accesses if stride_of(x.indices, x.buffer, last.var) != 0]
    bits = max((dtypes.bits_of(buffer.dtype) for buffer in moving), default=32)
    most = max(1, 8 * VECTOR_BYTES // max(8, bits))
    return [n for n in (16, 8, 4, 2, 1) if n <= most and length % n == 0]


def _product(axes: list[Axis]) -> int | None:
    """All elements, if their number is known."""
    return None if any(axis.extent is None for axis in axes) else work_of(axes)


def _is_aligned(block: Block, axes: list[Axis]) -> bool:
    """Whether rows along the last axis are whole, so that vectors begin at multiples of theirs."""
    last = axes[-1]
    accesses = accesses_of(block)
    moving = [x for x in accesses if stride_of(x.indices, x.buffer, last.var) != 0]
    return all(
        x.indices[-1] is last.var and as_int(x.buffer.shape[-1]) == last.extent for x in moving
    )
