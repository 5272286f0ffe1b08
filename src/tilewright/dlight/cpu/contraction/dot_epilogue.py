"""Epilogues of a transposed tile of sums: computed along its columns, written along its rows.

A tile has its vectors along one axis (the channels of an image), but the result is contiguous
along another one (pixels). The epilogue (scales, bias, clipping, a cast) runs on the tile's whole
vectors, into a small buffer in the result's type; from there columns are copied, transposed by
shuffles. So narrow results move few bytes, and several tiles with consecutive rows are written in
long runs. Used by :mod:`dot_product`.
"""

from __future__ import annotations

from itertools import pairwise

from tilewright.dlight.cpu.contraction.register_tile import Tile
from tilewright.ir import Expr, FloorDiv, FloorMod, Var, as_int, dtypes, uses_var
from tilewright.scheduling.cpu import loads_of, stores_of
from tilewright.tir import Block, Buffer, BufferStore
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

# Bytes that are written at once, and such pieces of a column that are written together.
_PIECE, _PIECES = 64, 4


def column_of(block: Block, sums: Buffer, dim: int) -> Var | None:
    """The axis of an epilogue for a dimension of the sums, if all else varies only along it."""
    found = [load for load in loads_of(block) if load.buffer is sums]
    column = found[0].indices[dim] if found else None
    others = {axis.var for axis in block.iter_vars if axis.var is not column}
    rest = [load for load in loads_of(block) if load.buffer is not sums]
    if not isinstance(column, Var) or any(uses_var(i, others) for r in rest for i in r.indices):
        return None
    return column


def split_epilogue(sch: Schedule, epilogue: BlockRV, sums: Buffer, along: int) -> BlockRV | None:
    """Make an epilogue write a buffer with its columns last; return the copy to the result.

    Vectors lie ``along`` a dimension of the sums. ``None`` if the epilogue reads other operands
    along rows, and must stay there.
    """
    block = sch.get(epilogue)
    column = column_of(block, sums, along)
    (store,) = stores_of(block)
    at = [d for d, index in enumerate(store.indices) if index is column]
    if column is None or len(at) != 1:
        return None
    (dim,) = at
    copy: BlockRV = sch.cache_write(epilogue, 0, "global")
    flat = _quotient(store)
    if flat is None:
        sch.transform_layout(epilogue, ("write", 0), lambda *i: (*i[:dim], *i[dim + 1 :], i[dim]))
        return copy

    width = store.buffer.shape[flat + 1]

    def joined(*i: Expr) -> tuple[Expr, ...]:
        return (*i[:flat], i[flat] * width + i[flat + 1], *i[flat + 2 :])

    place = dim if dim < flat else dim - 1

    def last(*i: Expr) -> tuple[Expr, ...]:
        made = joined(*i)
        return (*made[:place], *made[place + 1 :], made[place])

    sch.transform_layout(epilogue, ("write", 0), last)
    sch.transform_block_layout(copy, joined)
    return copy


def _quotient(store: BufferStore) -> int | None:
    """The dimension of a result whose index and the next one are quotient and remainder."""
    for d, (index, other) in enumerate(pairwise(store.indices)):
        if not isinstance(index, FloorDiv) or not isinstance(other, FloorMod):
            continue
        width = as_int(store.buffer.shape[d + 1])
        if index.a is other.a and width is not None and as_int(index.b) == as_int(other.b) == width:
            return d
    return None


def tiles_together(rows: int | None, tile: Tile, dtype: str) -> int:
    """How many tiles of ``rows`` to write together, such that they give few runs."""
    if rows is None or rows % tile.rows:
        return 1
    size = dtypes.bytes_of(dtype)
    count, most = rows // tile.rows, _PIECES * _PIECE // (tile.rows * size)
    fitting = [n for n in range(1, max(most, 1) + 1) if count % n == 0]
    return min(fitting, key=lambda n: (_pieces(n * tile.rows, size) / n, n))


def _pieces(rows: int, size: int) -> int:
    """The number of vectors (and powers of two for the rest) that neighbours are written in."""
    whole, rest = divmod(rows, _PIECE // size)
    return whole + bin(rest).count("1")
