"""Cut moves between two orders into square tiles that registers can transpose.

An unrolled loop over columns around a vectorized one over rows moves elements between two orders:

    for c in unroll(16): for r in vectorize(14):  B[b + c * d + r] = f(A[a + c + r * s])

Cut into powers of two, 14 rows take three kinds of tiles, and 16 columns two or more of each, all
of which are code of their own. Instead, loops go over square tiles of one size, of which the last
is moved back so that it ends where the rows end: what two tiles share is computed twice, to the
same values. That is a quarter of the code, which takes longer to compile than to run.
``transpose_tiles`` makes shuffles of a tile. Part of vectorizing, which would cut the rows.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith import Analyzer
from tilewright.ir import (
    LT,
    Call,
    Expr,
    Var,
    as_int,
    const,
    dtypes,
    minimum,
    pre_order,
    substitute,
)
from tilewright.tir.attrs import AUTO_STEP
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import (
    SERIAL,
    UNROLLED,
    VECTORIZED,
    BufferStore,
    For,
    IfThenElse,
    Stmt,
    seq,
)
from tilewright.tir.transform.effects import is_pure

_SIZES = (16, 8, 4)


def in_square_tiles(columns: For, vector_bits: int, known: Callable[[], Analyzer]) -> Stmt | None:
    """Return loops over tiles in place of a loop over columns around one over rows.

    ``None`` where that is no such move, or where it is a single tile.
    """
    rows = columns.body
    if columns.kind != UNROLLED or type(rows) is not For or rows.kind != VECTORIZED:
        return None
    body, height, width = rows.body, as_int(rows.extent), as_int(columns.extent)
    if height is None or width is None or as_int(rows.min) != 0 or as_int(columns.min) != 0:
        return None
    if isinstance(body, IfThenElse) and (most := _rows_below(body, rows.loop_var)) is not None:
        body, height = body.then_case, min(height, most)
    if not isinstance(body, BufferStore) or not _is_move(
        body, rows.loop_var, columns.loop_var, known
    ):
        return None
    apart = _step(body.indices[0], columns.loop_var, known())
    if apart is None or abs(apart) < height:
        return None  # columns that are written over one another must keep their order
    lanes = vector_bits // 32
    size = next((size for size in _SIZES if size <= min(height, width, lanes)), None)
    if size is None or (height == size and width == size):
        return None
    if height in _SIZES and height <= lanes and width % height:
        return None  # rows are whole vectors; columns that are left over go with their neighbours
    rest = height % size
    if height > size and rest in _SIZES:  # whole tiles, and smaller ones for what is left over
        parts = [(0, height - rest, size), (height - rest, rest, rest)]
    else:
        parts = [(0, height, size)]
    return seq(*(_tiled(columns, rows, body, width, part) for part in parts))


def _rows_below(test: IfThenElse, row: Var) -> int | None:
    """The bound of ``if row < bound``."""
    condition = test.condition
    if test.else_case is None and isinstance(condition, LT) and condition.a is row:
        return as_int(condition.b)
    return None


def _is_move(store: BufferStore, row: Var, column: Var, known: Callable[[], Analyzer]) -> bool:
    """Whether neighbours along rows come from afar, those along columns from side by side.

    Values must be the same if they are computed again. What is in registers has no address that a
    loop could count up.
    """
    parts = list(pre_order(store.value))
    loads = [item for item in parts if type(item) is BufferLoad]
    if all(load.buffer.scope == "local" for load in loads):
        return False  # most are: tiles of accumulators
    if any(load.buffer.data is store.buffer.data or len(load.indices) != 1 for load in loads):
        return False
    if len(store.indices) != 1 or dtypes.lanes_of(store.value.dtype) != 1:
        return False
    if any(type(item) is Call and item.op.name == "if_then_else" for item in parts):
        return False  # whole rows of a tile may not be read
    analyzer = known()
    far = [load for load in loads if _step(load.indices[0], row, analyzer) not in (0, 1)]
    return (
        bool(far)
        and all(
            dtypes.bits_of(load.buffer.dtype) == 32
            and load.buffer.scope != "local"
            and _step(load.indices[0], row, analyzer) is not None
            and _step(load.indices[0], column, analyzer) == 1
            for load in far
        )
        and _step(store.indices[0], row, analyzer) == 1
        and is_pure(store.value)
    )


def _step(index: Expr, var: Var, analyzer: Analyzer) -> int | None:
    """By how much an index grows with a variable, if that is the same everywhere."""
    polynomial = analyzer.to_polynomial(index)
    step = 0
    for factors, coefficient in polynomial.factors().items():
        if factors == (var,):
            step = coefficient
        elif any(item is var for factor in factors for item in pre_order(factor)):
            return None
    return step


def _tiled(
    columns: For, rows: For, body: BufferStore, width: int, part: tuple[int, int, int]
) -> Stmt:
    """Loops over tiles around those over a tile's columns and rows.

    ``part`` is the first row, the number of rows, and the size of tiles.
    """
    first, height, size = part
    made = renew_definitions(body)
    inner: list[For] = []
    outer: list[For] = []
    for loop, begin, extent in ((columns, 0, width), (rows, first, height)):
        var = loop.loop_var
        inside = Var(f"{var.name}_1", var.dtype)
        start, tile = _start(loop, extent, size)
        made = substitute(made, {var: start + begin + inside})
        inner.append(loop.replace(loop_var=inside, extent=const(size, var.dtype)))
        if tile is not None:
            outer.append(tile)
    for loop in (*reversed(inner), *reversed(outer)):
        made = loop.replace(body=made)
    copied: Stmt = made
    return copied


def _start(loop: For, extent: int, size: int) -> tuple[Expr, For | None]:
    """Where a tile starts, and the loop over tiles if there are several."""
    count, last = -(-extent // size), extent - size
    dtype = loop.loop_var.dtype
    if count == 1:
        return const(0, dtype), None
    tile = Var(f"{loop.loop_var.name}_0", dtype)
    if last % (count - 1) == 0:
        start: Expr = tile * (last // (count - 1))
    else:
        start = minimum(tile * size, last)
    # Unrolled, tiles that overlap would be straight-line code, which nothing could reorder.
    keep = {AUTO_STEP: 0}
    return start, For(
        tile, const(0, dtype), const(count, dtype), SERIAL, loop.body, annotations=keep
    )
