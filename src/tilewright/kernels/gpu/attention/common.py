"""Shared by the attention kernels for GPUs: tiles in shared memory, and formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tilewright.ir import Expr, ExprLike, as_expr, as_int, call, const, dtypes, select
from tilewright.kernels.problems.attention import FLOAT, LOWEST, Attention
from tilewright.script import tir as T
from tilewright.tir import Buffer, decl_buffer

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

    def __init__(self, problem: Attention, threads: int) -> None:
        self.problem, self.threads = problem, threads

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
