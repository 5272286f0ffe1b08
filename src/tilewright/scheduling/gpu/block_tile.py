"""Operands of a block's tile in shared memory, and its sums there: what all tensor cores share.

The threads of a block stand in two axes, ``thread_shape``: warps or warpgroups, and what is in one.
"""

from __future__ import annotations

from math import prod
from typing import Protocol

from tilewright.ir import Call, as_int, dtypes, uses_var
from tilewright.scheduling.gpu.binding import THREADS
from tilewright.scheduling.gpu.fetches import fetch_lanes, is_contiguous, is_turned
from tilewright.scheduling.gpu.matrix_form import inline_into
from tilewright.scheduling.gpu.reduction import ROWS_OF_THREADS
from tilewright.scheduling.gpu.simt_tile import (
    can_vectorize_store,
    position_of,
    share_among_threads,
)
from tilewright.tir import Block, BufferLoad, BufferStore
from tilewright.tir.attrs import PERMUTED_LAYOUT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV


class BlockTile(Protocol):
    """What is asked of a tile here."""

    @property
    def depth(self) -> int:
        """Elements of a row that are fetched at once."""

    @property
    def thread_shape(self) -> tuple[int, int]:
        """Threads along ``threadIdx.y`` and ``threadIdx.x``."""


def operand_positions(block: Block) -> tuple[int, int]:
    """Positions of A, which has rows, and of B among what a block reads besides its result."""
    operands = [r for r in block.reads if r.buffer is not block.writes[0].buffer]
    rows = block.iter_vars[1].var
    return (0, 1) if uses_var(operands[0], {rows}) else (1, 0)


def fetch_at(sch: Schedule, shared: BlockRV, outer: LoopRV) -> None:
    """Copy a tile into shared memory in each step, with what is computed of the operand."""
    sch.compute_at(shared, outer)
    inline_into(sch, shared)


def share_fetch(
    sch: Schedule, shared: BlockRV, outer: LoopRV, tile: BlockTile, *, permuted_from: int = 64
) -> bool:
    """Divide the fetch of a tile among all threads; return whether it only copies.

    Vectors of ``permuted_from`` to 128 bits go to permuted rows, others to padded ones.
    """
    depth = position_of(sch, outer) + 1
    block = sch.get(shared)
    turned = is_turned(block)
    own = sch.get_loops(shared)[depth:]
    size = prod(as_int(sch.get(loop).extent) or 1 for loop in own)
    run = size // tile.depth if turned else tile.depth
    threads = prod(tile.thread_shape)
    # Where these don't divide, whole vectors are left to some of them.
    each = size // threads if size % threads == 0 else run
    axis = 1 if turned else 2
    lanes = fetch_lanes(block, axis, run, each) if is_contiguous(block, axis) else 1
    i, k = own[-2:]
    sch.vectorize(share_among_threads(sch, (i, k), tile.thread_shape, lanes, turned=turned))
    bits = dtypes.bits_of(block.writes[0].buffer.dtype)
    whole_pairs_of_chunks = run * bits % 256 == 0
    if permuted_from <= lanes * bits <= 128 and whole_pairs_of_chunks:
        sch.annotate(shared, PERMUTED_LAYOUT, 1)
    else:
        sch.storage_align(shared, 0, 1, 1024 // bits, 128 // bits)
    return lanes * bits >= 32 and is_copy(sch.get(shared))


def gather_chunks(sch: Schedule, shared: BlockRV, tile: BlockTile) -> None:
    """Divide the fetch of a tile whose neighbours in memory are neighbouring rows among threads.

    Each collects 16 bytes of a row, for which it reads so many elements, as its neighbours do of
    the next rows: what a warp reads at once lies side by side, and it stores whole vectors.
    """
    bytes_each = dtypes.bytes_of(sch.get(shared).writes[0].buffer.dtype)
    i, k = sch.get_loops(shared)[-2:]
    chunk, lane = sch.split(k, [None, 16 // bytes_each])
    sch.reorder(chunk, i, lane)
    own, row, column = sch.split(sch.fuse(chunk, i), [None, *tile.thread_shape])
    sch.bind(row, ROWS_OF_THREADS)
    sch.bind(column, THREADS)
    sch.unroll(own)
    sch.vectorize(lane)
    sch.annotate(shared, PERMUTED_LAYOUT, 1)


def is_copy(block: Block) -> bool:
    """Whether a block stores what it loads, or zeros under conditions, and computes nothing."""
    store = block.body
    if not isinstance(store, BufferStore):
        return False
    value = store.value
    while isinstance(value, Call) and value.op.name == "if_then_else":
        _, value, other = value.args
        if getattr(other, "value", None) != 0:
            return False
    return isinstance(value, BufferLoad)


def write_results(sch: Schedule, writer: BlockRV, tile: BlockTile) -> None:
    """Divide the writing of results among all threads, in vectors along a row."""
    row, column = sch.get_loops(writer)[-2:]
    lanes = 4 if can_vectorize_store(sch.get(writer)) else 1
    parts = sch.split(sch.fuse(row, column), [None, *tile.thread_shape, lanes])
    sch.bind(parts[1], ROWS_OF_THREADS)
    sch.bind(parts[2], THREADS)
    sch.vectorize(parts[3])


def product_dtypes(block: Block) -> tuple[str, str, str]:
    """Return the dtypes of a product's operands, in the order of its reads, and of its result."""
    result = block.writes[0].buffer
    operands = [region.buffer.dtype for region in block.reads if region.buffer is not result]
    return operands[0], operands[-1], result.dtype
