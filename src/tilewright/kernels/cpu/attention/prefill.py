"""Attention over many queries: tiled online softmax (Milakov, Gimelshein 2018; Dao 2022).

A tile of queries iterates over the keys block by block and keeps, per query, the largest score so
far, the sum of the powers and the accumulated values; when a larger score appears, sum and values
are rescaled. Scores never leave the nearest caches.

Queries are the vector lanes of the scores, so that maxima and sums need no work across lanes::

    scores [key, query]   rows of K broadcast  x  Qᵀ, packed once per tile of queries
    values [query, depth] powers broadcast     x  rows of V as they are

Both products are register tiles. K and V are read in place. Under a causal mask, tiles of keys that
no query of a tile sees are skipped. The last rows and keys need no separate code: reads are clamped
to the sequence, scores of keys beyond it are -inf, and extra rows are not written.
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
    exp2_of_negative,
    transposed,
    vector_segments,
    with_lets,
    write_rows,
)
from tilewright.kernels.problems.attention import FLOAT, LOWEST, Attention
from tilewright.script import tir as T
from tilewright.tir import (
    VECTORIZED,
    Buffer,
    BufferStore,
    IfThenElse,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.attrs import AUTO_STEP
from tilewright.tir.building import Axis, block, lanes_from, load, store
from tilewright.tir.script.parser import expand

# The loop stays one, though what it indexes is small enough for registers.
KEEP = {AUTO_STEP: 0}


@dataclass(frozen=True)
class PrefillTiles:
    """Sizes: vector ``lanes``, cache blocks, and the two register tiles.

    ``queries`` is a multiple of ``lanes * vectors``, ``keys`` one of ``key_rows`` and ``lanes``.
    A tile of scores is ``key_rows`` by ``vectors`` registers, one of values ``query_rows`` by up to
    ``value_vectors``. With ``dots``, products use dot instructions (:mod:`.dots`); if ``stacked``,
    the queries of all heads that share keys form one tile.
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
    """Builds the body of the function; see the module's docstring."""

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
        """Build the whole computation: one block over batches, heads and tiles of queries."""
        return expand(self.attention)

    def _buffers(self) -> list[Buffer]:
        buffers = (
            self.q_packed, self.scores, self.values, self.top, self.old_top, self.shift,
            self.rescale, self.total, self.masks, self.k_wide, self.v_wide,
        )  # fmt: skip
        return [buffer for buffer in buffers if buffer is not None]

    # ---- the algorithm ----

    @T.macro
    def attention(self) -> None:
        """Process the keys of each tile of queries block by block."""
        for b, h, q_tile in T.grid(self.problem.batch, self.problem.heads, self._query_tiles()):
            with T.block("attention_tile"):
                vb, vh, vq_tile = T.axis.remap("SSS", [b, h, q_tile])
                for buffer in self._buffers():
                    T.alloc_buffer(buffer)
                self._at_tile(vb, vh, vq_tile)
                self.start()
                self.pack_queries()
                for k_block in T.serial(self.block_count):
                    with T.block("key_block"):
                        vk_block = T.axis.remap("O", [k_block])
                        self._at_keys(vk_block)
                        self.prepare()
                        self.transpose_mask()
                        self.score_tiles()
                        self.rescale_sums()
                        self.powers()
                        self.value_tiles()
                self.finish()

    @T.macro
    def start(self) -> None:
        """Initialise maxima and sums."""
        for q in T.vectorized(self.tiles.queries):
            with T.block("start_statistics"):
                vq = T.axis.remap("S", [q])
                self.top[vq] = LOWEST
                self.old_top[vq] = LOWEST
                self.total[vq] = T.float32(0)
        for q, d in T.grid(self.row_count, T.vectorized(self.value_width)):
            with T.block("start_values"):
                vq, vd = T.axis.remap("SS", [q, d])
                self.values[vq, vd] = T.float32(0)

    @T.macro
    def score_tiles(self) -> None:
        """Scores of the block's keys, their masks applied; the largest of each query."""
        rows, width = self.tiles.key_rows, self.tiles.width
        for q_wide in T.serial(self.wide_count):
            with T.block("scores"):
                vq_wide = T.axis.remap("S", [q_wide])
                for k_tile in T.serial(self._key_tiles(vq_wide)):
                    with T.block("score_tile"):
                        vk_tile = T.axis.remap("S", [k_tile])
                        score_tile = T.alloc_buffer((rows, width), scope="local")
                        for r, q in T.grid(T.unroll(rows), T.vectorized(width)):
                            with T.block("score_init"):
                                vr, vq = T.axis.remap("SS", [r, q])
                                score_tile[vr, vq] = T.float32(0)
                        self.score_update(score_tile, vq_wide, vk_tile)
                        for r, q in T.grid(T.unroll(rows), T.vectorized(width)):
                            with T.block("score_finish"):
                                vr, vq = T.axis.remap("SS", [r, q])
                                k = T.meta_var(vk_tile * rows + vr)
                                lane = T.meta_var(vq_wide * width + vq)
                                self.scores[k, lane] = self._masked(
                                    self._scaled(score_tile[vr, vq]), k, vq_wide, vq
                                )
                                self.top[lane] = T.max(self.top[lane], self.scores[k, lane])

    @T.macro
    def score_update(self, score_tile: Buffer, q_wide: Var, k_tile: Var) -> None:
        """A tile of scores: keys times queries."""
        rows, width = self.tiles.key_rows, self.tiles.width
        for d, r, q in T.grid(self.problem.depth, T.unroll(rows), T.vectorized(width)):
            with T.block("score_update"):
                vd, vr, vq = T.axis.remap("RSS", [d, r, q])
                key = T.meta_var(self._key_element(k_tile * rows + vr, vd))
                query = T.meta_var(self.q_packed[vd, q_wide * width + vq])
                score_tile[vr, vq] = score_tile[vr, vq] + key * query

    @T.macro
    def rescale_sums(self) -> None:
        """Update the maxima; rescale the sums accumulated under the old ones."""
        width = self.tiles.width
        for q_wide, lane in T.grid(self.wide_count, T.vectorized(width)):
            with T.block("statistics"):
                vq_wide, vlane = T.axis.remap("SS", [q_wide, lane])
                q = T.meta_var(vq_wide * width + vlane)
                # Where all is masked so far: -inf - -inf would be NaN.
                self.shift[q] = T.Select(self.top[q] == LOWEST, T.float32(0), self.top[q])
                self.rescale[q] = exp2_of_negative(self.old_top[q] - self.shift[q])
                self.old_top[q] = self.top[q]
                self.total[q] = self.total[q] * self.rescale[q]

    @T.macro
    def powers(self) -> None:
        """Turn scores, less their maximum, into powers of two, and sum these."""
        width = self.tiles.width
        for q_wide in T.serial(self.wide_count):
            with T.block("powers"):
                vq_wide = T.axis.remap("S", [q_wide])
                for k, lane in T.grid(self._wide_keys(vq_wide), T.vectorized(width)):
                    with T.block("power"):
                        vk, vlane = T.axis.remap("RS", [k, lane])
                        q = T.meta_var(vq_wide * width + vlane)
                        self.scores[vk, q] = exp2_of_negative(self.scores[vk, q] - self.shift[q])
                        self.total[q] = self.total[q] + self.scores[vk, q]

    @T.macro
    def value_tiles(self) -> None:
        """Rescale the values so far, and add the block's, weighted by the powers."""
        rows = self.tiles.query_rows
        for number, (start, width, count) in enumerate(self._value_cuts()):
            # A panel of values stays in the nearest cache for all queries.
            for d_tile, q_tile in T.grid(count, T.serial(self._row_tiles(), annotations=KEEP)):
                with T.block(f"value_tile_{number}"):
                    vd_tile, vq_tile = T.axis.remap("SS", [d_tile, q_tile])
                    value_tile = T.alloc_buffer(self._value_tile(width, number))
                    row = T.meta_var(vq_tile * rows)
                    first = T.meta_var(start + vd_tile * width)
                    for r, d in T.grid(T.unroll(rows), T.vectorized(width)):
                        with T.block(f"value_take_{number}"):
                            vr, vd = T.axis.remap("SS", [r, d])
                            value_tile[vr, vd] = (
                                self.values[row + vr, first + vd] * self.rescale[row + vr]
                            )
                    self.value_update(value_tile, row, first, number)
                    for r, d in T.grid(T.unroll(rows), T.vectorized(width)):
                        with T.block(f"value_give_{number}"):
                            vr, vd = T.axis.remap("SS", [r, d])
                            self.values[row + vr, first + vd] = value_tile[vr, vd]

    @T.macro
    def value_update(self, value_tile: Buffer, row: Expr, first: Expr, number: int) -> None:
        """A tile of values: powers times rows of V."""
        rows, width = self.tiles.query_rows, value_tile.shape[1]
        for k, r, d in T.grid(self._row_keys(row), T.unroll(rows), T.vectorized(width)):
            with T.block(f"value_update_{number}"):
                vk, vr, vd = T.axis.remap("RSS", [k, r, d])
                product = T.meta_var(
                    self.scores[vk, row + vr] * self._value_element(vk, first + vd)
                )
                value_tile[vr, vd] = value_tile[vr, vd] + product

    @T.macro
    def finish(self) -> None:
        """Divide the values by the sums of the powers and write them; zeros if no key was seen."""
        for q in T.vectorized(self.tiles.queries):
            with T.block("invert_total"):
                vq = T.axis.remap("S", [q])
                self.total[vq] = T.Select(
                    self.total[vq] == T.float32(0), T.float32(0), T.float32(1) / self.total[vq]
                )
        write_rows(
            self.problem,
            self.b,
            self.h,
            self.first_row,
            self.row_count,
            lambda q, d: self.values[q, d] * self.total[q],
        )

    # ---- where the kernel is ----

    def _query_tiles(self) -> Expr:
        return simplify(ceildiv(self.problem.rows, const(self.tiles.queries)))

    def _at_tile(self, b: Var, h: Var, q_tile: Var) -> None:
        """Enter a tile of queries."""
        self.b, self.h = b, h
        self.first_row = simplify(q_tile * self.tiles.queries)
        self.row_count = simplify(
            _block_length(self.tiles.queries, self.problem.rows, self.first_row)
        )
        self.wide_count = simplify(ceildiv(self.row_count, const(self.tiles.width)))
        self.first_block, self.block_count = self._key_blocks()

    def _key_blocks(self) -> tuple[Expr, Expr]:
        """The first block of keys that a query of the tile sees, and how many there are."""
        last = self.first_row + self.tiles.queries - 1
        return self.problem.key_blocks(self.b, self.first_row, last, self.tiles.keys)

    def _at_keys(self, k_block: Var) -> None:
        """Enter a block of keys."""
        self.first_key = simplify((self.first_block + k_block) * self.tiles.keys)

    def _key_count(self, last_row: Expr) -> Expr:
        """Keys of the block that the rows of the tile up to ``last_row`` see."""
        limit = self.problem.key_limit(self.b, simplify(self.first_row + last_row))
        made = _block_length(self.tiles.keys, limit, self.first_key)
        return simplify(maximum(made, 0)) if self.problem.is_causal else made

    def _wide_keys(self, q_wide: Expr) -> Expr:
        """Keys of the block that vectors of queries see."""
        return self._key_count(q_wide * self.tiles.width + self.tiles.width - 1)

    def _key_tiles(self, q_wide: Expr) -> Expr:
        return simplify(ceildiv(self._wide_keys(q_wide), const(self.tiles.key_rows)))

    def _row_tiles(self) -> Expr:
        return simplify(ceildiv(self.row_count, const(self.tiles.query_rows)))

    def _row_keys(self, row: Expr) -> Expr:
        """Keys of the block that a tile of values sees."""
        return self._key_count(row + (self.tiles.query_rows - 1))

    def _value_tile(self, width: int, number: int) -> Buffer:
        shape = (self.tiles.query_rows, width)
        return decl_buffer(shape, FLOAT, f"value_tile_{number}", scope="local")

    def _value_cuts(self) -> list[tuple[int, int, int]]:
        return vector_segments(self.value_width, self.tiles.lanes, self.tiles.value_vectors)

    def _all_keys(self) -> Expr:
        return self._key_count(const(self.tiles.queries - 1))

    def _key(self, k: Expr) -> Expr:
        """Position of a key of the block in the sequence, clamped to the last key."""
        key = simplify(self.first_key + k)
        return key if self._keys_fit() else minimum(key, self.problem.keys - 1)

    def _keys_fit(self) -> bool:
        keys = as_int(self.problem.keys)
        return keys is not None and keys % self.tiles.key_rows == 0

    # ---- operands ----

    def _row(self, offset: Expr) -> Expr:
        """A row of the tile, clamped to the last one."""
        row = simplify(self.first_row + offset)
        rows = as_int(self.problem.rows)
        if rows is not None and rows % self.tiles.width == 0:
            return row
        return minimum(row, self.problem.rows - 1)

    def _query_vector(self, row: Expr, unit: Expr, count: int) -> Expr:
        """Neighbours along the depth of a query, for packing."""
        return self.problem.read_query(self.b, self.h, row, lanes_from(unit, count))

    def pack_queries(self) -> Stmt:
        """Transpose queries, a square at a time; the last one may overlap the previous one."""
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

    def prepare(self) -> Stmt:
        """Prepare the block's keys and values for the products."""
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

    def transpose_mask(self) -> Stmt:
        """Transpose the mask into the layout of the scores, a square at a time."""
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
        conditions: list[Expr] = []
        if problem.is_causal:
            # In 32 bits: half as many vectors.
            first = problem.causal_offset(self.b) - self.first_key - k
            if problem.stacked:
                row = cast(problem.query_of(q), "int32")
            else:
                row, first = cast(lane, "int32"), first + self.first_row + q_wide * width
            conditions.append(row >= cast(const(0) - first, "int32"))
            if problem.options.window_size is not None:
                past = const(problem.options.window_size) - first
                conditions.append(row < cast(past, "int32"))
        if not self._keys_fit():
            conditions.append(self.first_key + k < problem.keys)
        return select(and_(*conditions), score, LOWEST) if conditions else score

    def _scaled(self, score: Expr) -> Expr:
        """A score in base 2; here the queries are already scaled."""
        return score


def _block_length(size: int, total: Expr, start: Expr) -> Expr:
    """Elements of a block of ``size`` that begins at ``start``, a multiple of the size."""
    extent = as_int(total)
    if extent is not None and extent % size == 0:
        return const(size)
    return simplify(minimum(size, total - start))


__all__ = ["PrefillKernel", "PrefillTiles"]
