"""Attention over many queries: tiled online softmax (Milakov, Gimelshein 2018; Dao 2022).

A tile of queries goes through the keys block by block and keeps, per query, the largest score so
far, the sum of the powers and the accumulated values; when a larger score appears, sum and values
are rescaled. Scores never reach memory beyond the nearest caches.

Queries are the vector lanes of the scores, so that maxima and sums need no work across lanes::

    scores [key, query]   rows of K broadcast  x  Qᵀ, packed once per tile of queries
    values [query, depth] powers broadcast     x  rows of V as they are

Both products are register tiles. K and V are read as they lie. Under a causal mask, tiles of keys
that no query of a tile sees are skipped. The last rows and keys need no code of their own: reads
are clamped to what exists, scores of keys that don't are -inf, and extra rows are not written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    Var,
    and_,
    as_int,
    cast,
    ceildiv,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.kernels.cpu.attention.common import (
    FLOAT,
    LOWEST,
    Attention,
    exp2_of_negative,
    pieces,
    transposed,
    with_lets,
)
from tilewright.tir import (
    OPAQUE,
    REDUCE,
    UNROLLED,
    VECTORIZED,
    Buffer,
    BufferStore,
    IfThenElse,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.building import Axis, block, lanes_from, load, store


@dataclass(frozen=True)
class PrefillTiles:
    """Sizes: of the target (``lanes``), of caches' blocks, and of the two register tiles.

    ``queries`` is a multiple of ``lanes * vectors``, ``keys`` one of ``key_rows`` and ``lanes``.
    A tile of scores is ``key_rows`` by ``vectors`` registers, one of values ``query_rows`` by up to
    ``value_vectors``. With ``dots``, products are dot instructions (:mod:`.dots`);
    where ``stacked``, the queries of all heads that share keys make one tile.
    """

    lanes: int
    queries: int = 64
    keys: int = 64
    key_rows: int = 8
    vectors: int = 2
    query_rows: int = 4
    value_vectors: int = 4
    dots: bool = False
    stacked: bool = False

    @property
    def width(self) -> int:
        """Queries of a tile of scores."""
        return self.lanes * self.vectors

    def fault(self, problem: Attention) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        sizes = [size for name, size in asdict(self).items() if name not in ("dots", "stacked")]
        if min(sizes) < 1 or self.lanes & (self.lanes - 1):
            return "sizes are positive, and lanes a power of two"
        if self.queries % self.width or self.width % self.query_rows:
            return "queries is a multiple of lanes * vectors, which is one of query_rows"
        if self.keys % self.key_rows or self.keys % self.lanes:
            return "keys is a multiple of key_rows and of lanes"
        rows = as_int(problem.rows)
        if problem.stacked and (rows is None or rows > self.queries):
            return "the queries of a group are more than a tile"
        return None


class PrefillKernel:
    """Builds the body of the function; see the module's text."""

    def __init__(self, problem: Attention, tiles: PrefillTiles) -> None:
        self.problem, self.tiles = problem, tiles
        queries, keys = tiles.queries, tiles.keys
        self.query_units = problem.depth
        self.value_width = problem.value_depth
        self.q_packed = decl_buffer((self.query_units, queries), FLOAT, "q_packed")
        self.scores = decl_buffer((keys, queries), FLOAT, "scores")
        self.values = decl_buffer((queries, self.value_width), FLOAT, "values")
        self.top = decl_buffer((queries,), FLOAT, "top")
        self.old_top = decl_buffer((queries,), FLOAT, "old_top")
        self.shift = decl_buffer((queries,), FLOAT, "shift")
        self.rescale = decl_buffer((queries,), FLOAT, "rescale")
        self.total = decl_buffer((queries,), FLOAT, "total")
        self.masks: Buffer | None = None
        if problem.mask_varies:
            self.masks = decl_buffer((keys, queries), FLOAT, "masks")
        # Narrow operands are widened once per block of keys, not once per use.
        self.k_wide: Buffer | None = None
        self.v_wide: Buffer | None = None
        if problem.key.dtype != FLOAT:
            self.k_wide = decl_buffer((keys, problem.depth), FLOAT, "k_wide")
            self.v_wide = decl_buffer((keys, problem.value_depth), FLOAT, "v_wide")

    def build(self) -> Stmt:
        """Make the whole computation: one block over batches, heads and tiles of queries."""
        problem = self.problem
        axes = [
            Axis("b", problem.batch),
            Axis("h", problem.heads),
            Axis("q_tile", ceildiv(problem.rows, const(self.tiles.queries))),
        ]
        return block("attention_tile", axes, self._tile, self._buffers())

    def _buffers(self) -> list[Buffer]:
        buffers = (
            self.q_packed, self.scores, self.values, self.top, self.old_top, self.shift,
            self.rescale, self.total, self.masks, self.k_wide, self.v_wide,
        )  # fmt: skip
        return [buffer for buffer in buffers if buffer is not None]

    # ---- one tile of queries ----

    def _tile(self, b: Var, h: Var, q_tile: Var) -> Stmt:
        self.b, self.h = b, h
        self.first_row = simplify(q_tile * self.tiles.queries)
        self.row_count = _part(self.tiles.queries, self.problem.rows, self.first_row)
        self.wide_count = ceildiv(self.row_count, const(self.tiles.width))
        limit = self.problem.key_limit(self.first_row + self.tiles.queries - 1)
        key_blocks = ceildiv(limit, const(self.tiles.keys))
        return seq(
            self._start(),
            self._pack_queries(),
            block("key_block", [Axis("k_block", key_blocks, kind=OPAQUE)], self._key_block),
            self._finish(),
        )

    def _start(self) -> Stmt:
        lanes = [Axis("q", self.tiles.queries, VECTORIZED)]

        def statistics(q: Var) -> Stmt:
            return seq(store(self.top, LOWEST, q), store(self.old_top, LOWEST, q),
                       store(self.total, const(0.0, FLOAT), q))  # fmt: skip

        axes = [Axis("q", self.row_count), Axis("d", self.value_width, VECTORIZED)]
        return seq(
            block("start_statistics", lanes, statistics),
            block("start_values", axes, lambda q, d: store(self.values, const(0.0, FLOAT), q, d)),
        )

    def _row(self, offset: Expr) -> Expr:
        """A row of the tile, or the last one there is."""
        row = simplify(self.first_row + offset)
        rows = as_int(self.problem.rows)
        if rows is not None and rows % self.tiles.width == 0:
            return row
        return minimum(row, self.problem.rows - 1)

    def _query_vector(self, row: Expr, unit: Expr, count: int) -> Expr:
        """Neighbours along the depth of a query, as they are packed."""
        return self.problem.read_query(self.b, self.h, row, lanes_from(unit, count))

    def _pack_queries(self) -> Stmt:
        """Transpose queries, a square at a time; the last one may overlap the one before."""
        lanes, units = self.tiles.lanes, self.query_units
        count = self.wide_count * self.tiles.vectors

        def square(q_vector: Var, part: Var) -> Stmt:
            first = part * lanes if units % lanes == 0 else minimum(part * lanes, units - lanes)
            rows = [
                self._query_vector(self._row(q_vector * lanes + i), first, lanes)
                for i in range(lanes)
            ]
            lets, columns = transposed(rows)
            where = lanes_from(q_vector * lanes, lanes)
            stores = [
                BufferStore(self.q_packed, column, (first + j, where))
                for j, column in enumerate(columns)
            ]
            return with_lets(lets, seq(*stores))

        def single(q_vector: Var, unit: Var, lane: Var) -> Stmt:
            q = q_vector * lanes + lane
            return store(self.q_packed, self._query_vector(self._row(q), unit, 1), unit, q)

        if units < lanes:
            axes = [Axis("q_vector", count), Axis("unit", units), Axis("lane", lanes)]
            return block("pack_queries", axes, single)
        axes = [Axis("q_vector", count), Axis("part", -(-units // lanes))]
        return block("pack_queries", axes, square)

    def _finish(self) -> Stmt:
        def factor(q: Var) -> Stmt:
            total = load(self.total, q)
            inverse = const(1.0, FLOAT) / total
            return store(self.total, select(total == 0.0, const(0.0, FLOAT), inverse), q)

        def value(q: Expr, d: Expr) -> Expr:
            return load(self.values, q, d) * load(self.total, q)

        return seq(
            block("invert_total", [Axis("q", self.tiles.queries, VECTORIZED)], factor),
            self.problem.write_rows(self.b, self.h, self.first_row, self.row_count, value),
        )

    # ---- one block of keys ----

    def _key_block(self, k_block: Var) -> Stmt:
        self.first_key = simplify(k_block * self.tiles.keys)
        return seq(
            self._prepare(),
            self._transpose_mask(),
            self._score_tiles(),
            self._statistics(),
            self._powers(),
            self._value_tiles(),
        )

    def _key_count(self, last_row: Expr) -> Expr:
        """Keys of the block that the rows of the tile up to ``last_row`` see."""
        limit = self.problem.key_limit(simplify(self.first_row + last_row))
        made = _part(self.tiles.keys, limit, self.first_key)
        return made if self.problem.causal_offset is None else simplify(maximum(made, 0))

    def _all_keys(self) -> Expr:
        return self._key_count(const(self.tiles.queries - 1))

    def _key(self, k: Expr) -> Expr:
        """Place of a key of the block in the sequence; the last key for those after the end."""
        key = simplify(self.first_key + k)
        return key if self._keys_fit() else minimum(key, self.problem.keys - 1)

    def _keys_fit(self) -> bool:
        keys = as_int(self.problem.keys)
        return keys is not None and keys % self.tiles.key_rows == 0

    def _prepare(self) -> Stmt:
        """Bring the block's keys and values into the form that products take."""
        if self.k_wide is None or self.v_wide is None:
            return seq()
        return seq(
            self._copy_wide("widen_keys", self.k_wide, self.problem.read_key),
            self._copy_wide("widen_values", self.v_wide, self.problem.read_value),
        )

    def _copy_wide(self, name: str, wide: Buffer, read: Callable[..., Expr]) -> Stmt:
        def copy(k: Var, d: Var) -> Stmt:
            return store(wide, read(self.b, self.h, self.first_key + k, d), k, d)

        return block(
            name, [Axis("k", self._all_keys()), Axis("d", wide.shape[1], VECTORIZED)], copy
        )

    def _key_element(self, k: Expr, d: Expr) -> Expr:
        if self.k_wide is not None:
            return load(self.k_wide, minimum(k, self._all_keys() - 1), d)
        return self.problem.read_key(self.b, self.h, self._key(k), d)

    def _value_element(self, k: Expr, d: Expr) -> Expr:
        if self.v_wide is not None:
            return load(self.v_wide, k, d)
        return self.problem.read_value(self.b, self.h, self.first_key + k, d)

    # ---- the mask ----

    def _transpose_mask(self) -> Stmt:
        """Bring what the mask adds into the layout of the scores, a square at a time."""
        masks, lanes = self.masks, self.tiles.lanes
        if masks is None:
            return seq()
        keys = as_int(self.problem.keys)

        def element(k: Expr, q: Expr) -> Stmt:
            key = minimum(self.first_key + k, self.problem.keys - 1)
            return store(masks, self.problem.read_mask(self.b, self.h, self._row(q), key), k, q)

        def single(k_vector: Var, q_vector: Var) -> Stmt:
            axes = [Axis("i", lanes), Axis("j", lanes)]
            return block(
                "mask_element",
                axes,
                lambda i, j: element(k_vector * lanes + j, q_vector * lanes + i),
            )

        def square(k_vector: Var, q_vector: Var) -> Stmt:
            k, q = k_vector * lanes, q_vector * lanes
            rows = [
                self.problem.read_mask(
                    self.b, self.h, self._row(q + i), lanes_from(self.first_key + k, lanes)
                )
                for i in range(lanes)
            ]
            lets, columns = transposed(rows)
            stores = [
                BufferStore(masks, column, (k + j, lanes_from(q, lanes)))
                for j, column in enumerate(columns)
            ]
            whole = with_lets(lets, seq(*stores))
            if keys is not None and keys % lanes == 0:
                return whole
            inside = self.first_key + k + lanes <= self.problem.keys
            return IfThenElse(inside, whole, single(k_vector, q_vector))

        axes = [
            Axis("k_vector", ceildiv(self._all_keys(), const(lanes))),
            Axis("q_vector", self.wide_count * self.tiles.vectors),
        ]
        # Where rows of a tile belong to several heads, or all keys have the same, it is not worth
        # code for squares.
        simple = self.problem.stacked or not self.problem.mask_has_keys
        return block("transpose_mask", axes, single if simple else square)

    def _masked(self, score: Expr, k: Expr, q_wide: Expr, lane: Expr) -> Expr:
        """Apply the mask, causality and the end of the sequence to a score."""
        problem, width = self.problem, self.tiles.width
        q = q_wide * width + lane
        if self.masks is not None:
            score = score + load(self.masks, k, q)
        elif problem.mask is not None:
            score = score + problem.read_mask(self.b, self.h, self._row(const(0)), self._key(k))
        conditions = []
        if problem.causal_offset is not None:
            # In 32 bits: half as many vectors.
            first = problem.causal_offset - self.first_key - k
            if problem.stacked:
                row = cast(problem.query_of(q), "int32")
            else:
                row, first = cast(lane, "int32"), first + self.first_row + q_wide * width
            conditions.append(row >= cast(const(0) - first, "int32"))
        if not self._keys_fit():
            conditions.append(self.first_key + k < problem.keys)
        return select(and_(*conditions), score, LOWEST) if conditions else score

    # ---- scores, powers, values ----

    def _score_tiles(self) -> Stmt:
        rows, width = self.tiles.key_rows, self.tiles.width

        def per_vector(q_wide: Var) -> Stmt:
            count = ceildiv(self._key_count(q_wide * width + width - 1), const(rows))
            tile = decl_buffer((rows, width), FLOAT, "score_tile", scope="local")
            axes = [Axis("k_tile", count)]
            return block("score_tile", axes, lambda k: self._score_tile(tile, q_wide, k), [tile])

        return block("scores", [Axis("q_wide", self.wide_count)], per_vector)

    def _score_tile(self, tile: Buffer, q_wide: Var, k_tile: Var) -> Stmt:
        rows, width = self.tiles.key_rows, self.tiles.width
        inner = [Axis("r", rows, UNROLLED), Axis("q", width, VECTORIZED)]

        def finish(r: Var, q: Var) -> Stmt:
            k, lane = k_tile * rows + r, q_wide * width + q
            score = self._masked(self._scaled(load(tile, r, q)), k, q_wide, q)
            top = maximum(load(self.top, lane), load(self.scores, k, lane))
            return seq(store(self.scores, score, k, lane), store(self.top, top, lane))

        return seq(
            block("score_init", inner, lambda r, q: store(tile, const(0.0, FLOAT), r, q)),
            self._score_update(tile, q_wide, k_tile),
            block("score_finish", inner, finish),
        )

    def _score_update(self, tile: Buffer, q_wide: Var, k_tile: Var) -> Stmt:
        rows, width = self.tiles.key_rows, self.tiles.width

        def update(d: Var, r: Var, q: Var) -> Stmt:
            query = load(self.q_packed, d, q_wide * width + q)
            product = self._key_element(k_tile * rows + r, d) * query
            return store(tile, load(tile, r, q) + product, r, q)

        axes = [
            Axis("d", self.problem.depth, kind=REDUCE),
            Axis("r", rows, UNROLLED),
            Axis("q", width, VECTORIZED),
        ]
        return block("score_update", axes, update)

    def _scaled(self, score: Expr) -> Expr:
        """A score as a power of two; here the queries have been scaled."""
        return score

    def _statistics(self) -> Stmt:
        """Take the new maxima; rescale what was summed up under the old ones."""
        width = self.tiles.width

        def body(q_wide: Var, lane: Var) -> Stmt:
            q = q_wide * width + lane
            top = load(self.top, q)
            # Where all is masked so far: -inf - -inf would be NaN.
            shift = select(top == LOWEST, const(0.0, FLOAT), top)
            factor = exp2_of_negative(load(self.old_top, q) - load(self.shift, q))
            return seq(
                store(self.shift, shift, q),
                store(self.rescale, factor, q),
                store(self.old_top, top, q),
                store(self.total, load(self.total, q) * load(self.rescale, q), q),
            )

        axes = [Axis("q_wide", self.wide_count), Axis("lane", width, VECTORIZED)]
        return block("statistics", axes, body)

    def _powers(self) -> Stmt:
        width = self.tiles.width

        def per_vector(q_wide: Var) -> Stmt:
            def body(k: Var, lane: Var) -> Stmt:
                q = q_wide * width + lane
                power = exp2_of_negative(load(self.scores, k, q) - load(self.shift, q))
                return seq(
                    store(self.scores, power, k, q),
                    store(self.total, load(self.total, q) + load(self.scores, k, q), q),
                )

            count = self._key_count(q_wide * width + width - 1)
            axes = [Axis("k", count, kind=REDUCE), Axis("lane", width, VECTORIZED)]
            return block("power", axes, body)

        return block("powers", [Axis("q_wide", self.wide_count)], per_vector)

    def _value_tiles(self) -> Stmt:
        lanes, rows = self.tiles.lanes, self.tiles.query_rows
        stmts = []
        cut = pieces(self.value_width, lanes, self.tiles.value_vectors)
        for number, (start, width, count) in enumerate(cut):
            tile = decl_buffer((rows, width), FLOAT, f"value_tile_{number}", scope="local")
            # A panel of values stays in the nearest cache for all queries.
            axes = [
                Axis("d_tile", count),
                Axis("q_tile", ceildiv(self.row_count, const(rows)), keep=True),
            ]

            def body(
                d: Var, q: Var, tile: Buffer = tile, start: int = start, number: int = number
            ) -> Stmt:
                return self._value_tile(tile, q, start + d * tile.shape[1], number)

            stmts.append(block(f"value_tile_{number}", axes, body, [tile]))
        return seq(*stmts)

    def _value_tile(self, tile: Buffer, q_tile: Var, first: Expr, number: int) -> Stmt:
        rows = self.tiles.query_rows
        inner = [Axis("r", rows, UNROLLED), Axis("d", tile.shape[1], VECTORIZED)]
        row = q_tile * rows

        def take(r: Var, d: Var) -> Stmt:
            old = load(self.values, row + r, first + d) * load(self.rescale, row + r)
            return store(tile, old, r, d)

        def give(r: Var, d: Var) -> Stmt:
            return store(self.values, load(tile, r, d), row + r, first + d)

        return seq(
            block(f"value_take_{number}", inner, take),
            self._value_update(tile, row, first, number),
            block(f"value_give_{number}", inner, give),
        )

    def _value_update(self, tile: Buffer, row: Expr, first: Expr, number: int) -> Stmt:
        rows = self.tiles.query_rows

        def update(k: Var, r: Var, d: Var) -> Stmt:
            product = load(self.scores, k, row + r) * self._value_element(k, first + d)
            return store(tile, load(tile, r, d) + product, r, d)

        axes = [
            Axis("k", self._key_count(row + (rows - 1)), kind=REDUCE),
            Axis("r", rows, UNROLLED),
            Axis("d", tile.shape[1], VECTORIZED),
        ]
        return block(f"value_update_{number}", axes, update)


def _part(size: int, total: Expr, start: Expr) -> Expr:
    """Elements of a block of ``size`` that begins at ``start``, a multiple of the size."""
    extent = as_int(total)
    if extent is not None and extent % size == 0:
        return const(size)
    return simplify(minimum(size, total - start))


__all__ = ["PrefillKernel", "PrefillTiles"]
