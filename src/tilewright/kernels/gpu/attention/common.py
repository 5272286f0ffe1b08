"""Shared by the attention kernels for GPUs: tiles in shared memory, and formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    ExprLike,
    Var,
    and_,
    as_expr,
    as_int,
    call,
    ceildiv,
    const,
    dtypes,
    if_then_else,
    minimum,
    select,
)
from tilewright.kernels.problems.attention import FLOAT, LOWEST, Attention
from tilewright.script import tir as T
from tilewright.tir import Buffer, Stmt, decl_buffer
from tilewright.tir.script.frames import Macro
from tilewright.tir.script.parser import expand

# Bytes that a thread reads and writes at once, and elements of float32.
_BYTES, _VECTOR = 16, 4
PAD = 4
"""By so many elements rows of shared memory are longer than their contents, usually."""


class Tile(NamedTuple):
    """Rows in shared memory, one after the other."""

    buffer: Buffer
    rows: int
    width: int
    stride: int

    @staticmethod
    def of(name: str, rows: int, width: int, dtype: str = FLOAT, pad: int = PAD) -> Tile:
        """Declare one, whose rows are ``pad`` longer than their contents."""
        stride = width + pad
        return Tile(decl_buffer((rows * stride,), dtype, name, scope="shared"), rows, width, stride)

    @property
    def bytes(self) -> int:
        """Bytes of memory."""
        return self.rows * self.stride * dtypes.bytes_of(self.buffer.dtype)

    def at(self, row: ExprLike, column: ExprLike) -> Expr:
        """The index of an element."""
        return as_expr(row) * self.stride + column


class TileKernel:
    """A kernel of thread blocks that work on tiles of one head of a batch."""

    thread: Expr
    b: Expr
    h: Expr
    own: Mapping[str, Buffer]
    """What a thread has in registers."""

    def __init__(self, problem: Attention, threads: int) -> None:
        self.problem, self.threads = problem, threads

    @T.macro
    def clear(self) -> None:
        """Initialise the thread's maxima and sums."""
        for r in T.unroll(self.own["top"].shape[0]):
            self.own["top"][r] = LOWEST
            self.own["total"][r] = T.float32(0)
        for i in T.unroll(self.own["sums"].shape[0]):
            self.own["sums"][i] = T.float32(0)

    @T.macro
    def copy_rows(
        self, tile: Tile, read: Callable[[Expr, Expr], Expr], start: Expr, end: Expr
    ) -> None:
        """Copy rows from ``start`` on, all threads together; zeros from ``end`` on.

        ``read(row, column)`` is in the tile's dtype.
        """
        vector = vector_of(tile.width, _BYTES // dtypes.bytes_of(tile.buffer.dtype))
        per_row, threads = tile.width // vector, self.threads
        count = tile.rows * per_row
        for i in T.serial(-(-count // threads)):
            place = T.meta_var(i * threads + self.thread)
            if count % threads == 0 or place < count:
                row = T.meta_var(place // per_row)
                first = T.meta_var(place % per_row * vector)
                if is_whole(end, tile.rows) or start + row < end:
                    for lane in T.vectorized(vector):
                        tile.buffer[tile.at(row, first + lane)] = read(start + row, first + lane)
                else:
                    for lane in T.vectorized(vector):
                        tile.buffer[tile.at(row, first + lane)] = _zero(tile.buffer.dtype)

    def read_query(self, row: Expr, d: Expr) -> Expr:
        """An element of a query, times the scale."""
        return self.problem.read_query(self.b, self.h, row, d)

    def read_key(self, k: Expr, d: Expr) -> Expr:
        """An element of a key."""
        return self.problem.read_key(self.b, self.h, k, d)

    def read_value(self, k: Expr, d: Expr) -> Expr:
        """An element of a value."""
        return self.problem.read_value(self.b, self.h, k, d)


class Tiling(Protocol):
    """What kernels that go over tiles of queries know of their sizes."""

    @property
    def query_tile(self) -> int:
        """Queries of a block."""

    @property
    def key_tile(self) -> int:
        """Keys that are processed together."""


class QueryTileKernel(TileKernel):
    """A kernel whose thread blocks have a tile of queries each, and go over blocks of keys."""

    attention: Macro
    """Processes the keys of each tile of queries block by block."""
    first_row: Expr
    first_block: Expr
    block_count: Expr
    first_key: Expr

    def __init__(self, problem: Attention, threads: int, tiling: Tiling) -> None:
        super().__init__(problem, threads)
        self._tiling = tiling

    def build(self) -> Stmt:
        """Build the whole computation: one block over tiles of queries and threads."""
        return expand(self.attention)

    def tiles(self) -> Expr:
        """How many tiles there are."""
        return simplify(self.problem.batch * self.problem.heads * self._query_tiles())

    def _query_tiles(self) -> Expr:
        return simplify(ceildiv(self.problem.rows, const(self._tiling.query_tile)))

    def enter(self, tile: Var, thread: Var) -> None:
        """Enter a tile of queries; those of a head are neighbours, as they read the same keys.

        Under a causal mask the last one comes first, as it has most keys.
        """
        count, heads = self._query_tiles(), self.problem.heads
        self.b, self.h = simplify(tile // count // heads), simplify(tile // count % heads)
        q_tile = tile % count
        if self.problem.is_causal:
            q_tile = count - 1 - q_tile
        self.thread = thread
        size = self._tiling.query_tile
        self.first_row = simplify(q_tile * size)
        # The first block of keys that a query of the tile sees, and how many there are.
        self.first_block, self.block_count = self.problem.key_blocks(
            self.b, self.first_row, self.first_row + size - 1, self._tiling.key_tile
        )

    def at_keys(self, k_block: Var) -> None:
        """Enter a block of keys."""
        self.first_key = simplify((self.first_block + k_block) * self._tiling.key_tile)

    def masked(self, score: Expr, row: Expr, key: Expr) -> Expr:
        """Apply the mask, causality and the end of the sequence to a score."""
        problem = self.problem
        conditions = problem.seen(self.b, row, key)
        if not problem.has_whole(self._tiling.key_tile):
            conditions.append(key < problem.key_count(self.b))
        if problem.mask is not None:
            if not is_whole(problem.rows, self._tiling.query_tile):
                row = minimum(row, problem.rows - 1)
            score = score + problem.read_mask(self.b, self.h, row, key)
        # Nothing is read where the condition doesn't hold: the mask ends with the keys.
        return if_then_else(and_(*conditions), score, LOWEST) if conditions else score


def vector_of(extent: int, most: int = _VECTOR) -> int:
    """The longest vector that divides an extent."""
    return next(n for n in (8, 4, 2, 1) if n <= most and extent % n == 0)


def is_whole(extent: Expr, size: int) -> bool:
    """Whether an extent is known to be a multiple of a tile's size."""
    known = as_int(extent)
    return known is not None and known % size == 0


def exp2(value: Expr) -> Expr:
    """``2 ** value``."""
    return call("exp2", value)


def shift_of(top: Expr) -> Expr:
    """The value to subtract from scores: if all are masked, -inf - -inf would be NaN."""
    return select(top == LOWEST, const(0.0, FLOAT), top)


def inverse(total: Expr) -> Expr:
    """``1 / total``; zero for a row that sees no key."""
    return select(total == 0.0, const(0.0, FLOAT), const(1.0, FLOAT) / total)


def _zero(dtype: str) -> Expr:
    return const(0.0, dtype)
