"""Attention over many queries: FlashAttention-2 (Dao 2023) on the ordinary units of a GPU.

A thread block has a tile of queries of one head and goes over the keys block by block. It keeps,
per query, the largest score so far, the sum of the powers and the accumulated values; when a larger
score appears, sum and values are rescaled. Scores never leave registers and shared memory::

    thread (y, x)   scores of its queries y·rows + r  and keys    x + columns·c     in registers
                    values of the same queries        and columns of V             in registers
    shared          queries; keys, then the values in their place; powers of the block

Threads of the same ``y`` are neighbours in a warp, so that maxima and sums of a query are joined by
shuffles. Narrow floats are widened on their way into shared memory. Rows of shared memory are four
elements longer than they need to be: then reads of neighbouring rows don't meet in one bank.

The last queries and keys need no separate code: keys beyond the end give powers of zero, with
values of zero, and rows beyond the end are not written. Blocks of keys that no query of the tile
sees under a causal mask are skipped; tiles with the most blocks start first.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import (
    Expr,
    ExprLike,
    Var,
    as_expr,
)
from tilewright.kernels.gpu.attention.common import (
    PAD,
    QueryTileKernel,
    Tile,
    exp2,
    inverse,
    shift_of,
    vector_of,
)
from tilewright.kernels.gpu.lanes import WARP, from_other_lane, steps_down
from tilewright.kernels.gpu.sizes import MOST_THREADS, is_power
from tilewright.kernels.problems.attention import FLOAT, Attention
from tilewright.script import tir as T
from tilewright.tir import decl_buffer


@dataclass(frozen=True)
class PrefillThreads:
    """Sizes: threads along queries and along keys, and what each has of both.

    ``columns`` is a power of two, at most a warp. If ``stacked``, the queries of all heads that
    share keys make one sequence of rows.
    """

    row_threads: int
    columns: int
    rows: int
    keys: int
    stacked: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.row_threads * self.columns

    @property
    def query_tile(self) -> int:
        """Queries of a block."""
        return self.row_threads * self.rows

    @property
    def key_tile(self) -> int:
        """Keys that are processed together."""
        return self.columns * self.keys

    def fault(self, problem: Attention) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if min(self.row_threads, self.rows, self.keys) < 1:
            return "row_threads, rows and keys are at least one"
        if not is_power(self.columns) or self.columns > WARP:
            return f"columns is a power of two up to {WARP}"
        if self.threads > MOST_THREADS or (self.threads > WARP and self.threads % WARP):
            return f"a block is part of a warp, or whole warps up to {MOST_THREADS} threads"
        return None

    def shared_bytes(self, problem: Attention) -> int:
        """Bytes of shared memory."""
        depth, width = problem.depth + PAD, problem.value_depth + PAD
        tiles = self.query_tile * depth + self.key_tile * max(depth, width)
        return 4 * (tiles + self.query_tile * (self.key_tile + PAD))


class PrefillKernel(QueryTileKernel):
    """Builds the body of the function; see the module's docstring."""

    def __init__(self, problem: Attention, sizes: PrefillThreads) -> None:
        super().__init__(problem, sizes.threads, sizes)
        self.sizes = sizes
        depth, width = problem.depth, problem.value_depth
        self.vector, self.key_vector = vector_of(depth), vector_of(sizes.key_tile)
        # Columns of V: vectors side by side; shorter ones if some threads would have none.
        self.value_vector = vector_of(width)
        while self.value_vector > 1 and sizes.columns * self.value_vector > width:
            self.value_vector //= 2
        self.parts = -(-width // (sizes.columns * self.value_vector))
        rows, keys = sizes.rows, sizes.keys
        self.queries = Tile.of("queries", sizes.query_tile, depth)
        self.keys = Tile.of("keys", sizes.key_tile, depth)
        self.values = Tile.of("values", sizes.key_tile, width)
        self.powers = Tile.of("powers", sizes.query_tile, sizes.key_tile)
        own = {
            "query": rows * self.vector,
            "key": keys * self.vector,
            "power": rows * self.key_vector,
            "value": self.parts * self.value_vector,
            "scores": rows * keys,
            "sums": rows * self.parts * self.value_vector,
            "top": rows,
            "total": rows,
            "rescale": rows,
        }
        self.own = {
            name: decl_buffer((size,), FLOAT, f"own_{name}", scope="local")
            for name, size in own.items()
        }

    # ---- the algorithm ----

    @T.macro
    def attention(self) -> None:
        """Process the keys of each tile of queries block by block."""
        for tile, thread in T.grid(
            T.thread_binding(self.tiles(), thread="blockIdx.x"),
            T.thread_binding(self.sizes.threads, thread="threadIdx.x"),
        ):
            with T.block("attention_tile"):
                vtile, vthread = T.axis.remap("SS", [tile, thread])
                for buffer in (self.queries.buffer, *self.own.values()):
                    T.alloc_buffer(buffer)
                self.enter(vtile, vthread)
                self.start()
                for k_block in T.serial(self.block_count):
                    with T.block("key_block"):
                        vk_block = T.axis.remap("O", [k_block])
                        # Here, so that what is not needed at a time may share memory.
                        for tile in (self.keys, self.powers, self.values):
                            T.alloc_buffer(tile.buffer)
                        self.at_keys(vk_block)
                        end = T.meta_var(self.problem.key_count(self.b))
                        self.copy_rows(self.keys, self.read_key, self.first_key, end)
                        self.scores()
                        self.softmax()
                        self.copy_rows(self.values, self.read_value, self.first_key, end)
                        self.weigh()
                self.finish()

    @T.macro
    def start(self) -> None:
        """Load the queries; initialise maxima and sums."""
        self.copy_rows(self.queries, self.read_query, self.first_row, self.problem.rows)
        self.clear()

    @T.macro
    def scores(self) -> None:
        """Products of the thread's queries and keys."""
        rows, keys, vector = self.sizes.rows, self.sizes.keys, self.vector
        query, key, scores = self.own["query"], self.own["key"], self.own["scores"]
        for i in T.unroll(rows * keys):
            scores[i] = T.float32(0)
        for part in T.serial(self.problem.depth // vector):
            for r in T.unroll(rows):
                for lane in T.vectorized(vector):
                    at = T.meta_var(self.queries.at(self._own_row(r), part * vector + lane))
                    query[r * vector + lane] = self.queries.buffer[at]
            for c in T.unroll(keys):
                for lane in T.vectorized(vector):
                    at = T.meta_var(self.keys.at(self._column(c), part * vector + lane))
                    key[c * vector + lane] = self.keys.buffer[at]
            for r, c, d in T.grid(T.unroll(rows), T.unroll(keys), T.unroll(vector)):
                scores[r * keys + c] = (
                    scores[r * keys + c] + query[r * vector + d] * key[c * vector + d]
                )

    @T.macro
    def softmax(self) -> None:
        """Apply masks; turn scores, less their maximum, into powers of two; rescale the sums."""
        keys, width = self.sizes.keys, self.parts * self.value_vector
        scores, top, total = self.own["scores"], self.own["top"], self.own["total"]
        for r in T.unroll(self.sizes.rows):
            before = top[r]
            for c in T.unroll(keys):
                key = T.meta_var(self.first_key + self._column(c))
                scores[r * keys + c] = self.masked(scores[r * keys + c], self._row(r), key)
                top[r] = T.max(top[r], scores[r * keys + c])
            for step in steps_down(self.sizes.columns):
                other = self._from_column(top[r], step)
                top[r] = T.max(top[r], other)
            shift = shift_of(top[r])
            self.own["rescale"][r] = exp2(before - shift)
            total[r] = total[r] * self.own["rescale"][r]
            for c in T.unroll(keys):
                scores[r * keys + c] = exp2(scores[r * keys + c] - shift)
                total[r] = total[r] + scores[r * keys + c]
                at = T.meta_var(self.powers.at(self._own_row(r), self._column(c)))
                self.powers.buffer[at] = scores[r * keys + c]
            for i in T.unroll(width):
                self.own["sums"][r * width + i] = (
                    self.own["sums"][r * width + i] * self.own["rescale"][r]
                )

    @T.macro
    def weigh(self) -> None:
        """Add the block's values, weighted by the powers."""
        rows, vector, wide = self.sizes.rows, self.key_vector, self.value_vector
        width = self.parts * wide
        power, value, sums = self.own["power"], self.own["value"], self.own["sums"]
        for part in T.serial(self.sizes.key_tile // vector):
            for r in T.unroll(rows):
                for lane in T.vectorized(vector):
                    at = T.meta_var(self.powers.at(self._own_row(r), part * vector + lane))
                    power[r * vector + lane] = self.powers.buffer[at]
            for k in T.unroll(vector):
                for i in T.unroll(self.parts):
                    if self._has_columns(i):
                        for lane in T.vectorized(wide):
                            d = T.meta_var(self._first(i) + lane)
                            at = T.meta_var(self.values.at(part * vector + k, d))
                            value[i * wide + lane] = self.values.buffer[at]
                    else:  # nothing is written of these
                        for lane in T.vectorized(wide):
                            value[i * wide + lane] = T.float32(0)
                for r, d in T.grid(T.unroll(rows), T.unroll(width)):
                    sums[r * width + d] = sums[r * width + d] + power[r * vector + k] * value[d]

    @T.macro
    def finish(self) -> None:
        """Divide the values by the sums of the powers and write them; zeros if no key was seen."""
        wide = self.value_vector
        width, total = self.parts * wide, self.own["total"]
        for r in T.unroll(self.sizes.rows):
            for step in steps_down(self.sizes.columns):
                other = self._from_column(total[r], step)
                total[r] = total[r] + other
            total[r] = inverse(total[r])
            if self._row(r) < self.problem.rows:
                for i in T.unroll(self.parts):
                    if self._has_columns(i):
                        for lane in T.vectorized(wide):
                            self.write(r, self._first(i) + lane, r * width + i * wide + lane)

    @T.macro
    def write(self, r: Expr, d: Expr, at: Expr) -> None:
        """Write an element of a result."""
        where = T.meta_var(self.problem.result_at(self.b, self.h, self._row(r), d))
        self.problem.out[where] = T.Cast(
            self.problem.out.dtype, self.own["sums"][at] * self.own["total"][r]
        )

    # ---- where the thread is ----

    def enter(self, tile: Var, thread: Var) -> None:
        """Enter a tile of queries."""
        super().enter(tile, thread)
        self.y, self.x = thread // self.sizes.columns, thread % self.sizes.columns

    def _own_row(self, r: ExprLike) -> Expr:
        """A query of the thread in the tile."""
        return self.y * self.sizes.rows + r

    def _row(self, r: ExprLike) -> Expr:
        """A query of the thread in the sequence."""
        return self.first_row + self._own_row(r)

    def _column(self, c: ExprLike) -> Expr:
        """A key of the thread in its block; neighbouring threads have neighbouring keys."""
        return self.x + as_expr(c) * self.sizes.columns

    def _first(self, part: ExprLike) -> Expr:
        """The first of some neighbouring columns of V that the thread has."""
        return (self.x + as_expr(part) * self.sizes.columns) * self.value_vector

    def _has_columns(self, part: ExprLike) -> Expr | bool:
        """Whether V has these columns."""
        width = self.problem.value_depth
        if self.parts * self.sizes.columns * self.value_vector == width:
            return True
        return self._first(part) < width

    def _from_column(self, value: Expr, step: int) -> Expr:
        return from_other_lane(value, step, self.sizes.columns, self.sizes.threads)


__all__ = ["PrefillKernel", "PrefillThreads"]
