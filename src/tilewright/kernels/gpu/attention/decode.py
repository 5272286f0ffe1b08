"""Attention of a few queries, as when text is generated token by token: bound by memory.

The queries of all heads that share keys are rows that go over the keys together, so that each key
and value is read once. A thread block has the rows of one head of keys, and one of several parts of
the keys (Flash-Decoding: Dao et al. 2023); a second kernel combines the parts.

A block of keys takes three steps, for which the threads are divided differently::

    scores    threads by key           keys through shared memory, which makes reads whole rows
    powers    warps by row             maxima and sums by shuffles
    values    threads by column of V   V is read in place, by vectors; slices of threads have keys
                                       of their own, and are summed at the end
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    ExprLike,
    Var,
    and_,
    as_int,
    ceildiv,
    const,
    if_then_else,
    maximum,
    minimum,
)
from tilewright.kernels.gpu.attention.common import (
    Tile,
    TileKernel,
    exp2,
    inverse,
    shift_of,
    vector_of,
)
from tilewright.kernels.gpu.lanes import WARP, from_other_lane, steps_down
from tilewright.kernels.gpu.sizes import MOST_THREADS, ceil_power, is_power
from tilewright.kernels.problems.attention import FLOAT, LOWEST, Attention, widen
from tilewright.script import tir as T
from tilewright.tir import Buffer, Stmt, decl_buffer, seq
from tilewright.tir.script.parser import expand

MOST_ROWS = 16
"""Rows whose sums fit into registers."""

_COMBINING = 128
"""Threads that combine the parts of a row, at most."""


@dataclass(frozen=True)
class DecodeThreads:
    """Sizes: threads of a block, keys that are processed together, parts of the keys."""

    threads: int
    keys: int
    splits: int = 1

    @property
    def per_key(self) -> int:
        """Threads that share the score of a key."""
        return self.threads // self.keys

    @property
    def width(self) -> int:
        """Threads of a warp."""
        return min(WARP, self.threads)

    def fault(self, problem: Attention) -> str | None:
        """Say what is wrong with the sizes, if anything is; the problem is stacked."""
        rows = as_int(problem.rows)
        if rows is None or rows > MOST_ROWS:
            return f"the queries that share keys are at most {MOST_ROWS}, a known number"
        if not is_power(self.threads) or not is_power(self.keys) or self.splits < 1:
            return "threads and keys are powers of two, and splits is at least one"
        if self.threads > MOST_THREADS or not self.width <= self.keys <= self.threads:
            return f"keys are a warp or more, and up to the threads, of which {MOST_THREADS} fit"
        if self.per_key > self.width:
            return "the threads of a key are in one warp"
        return None

    def shared_bytes(self, problem: Attention) -> int:
        """Bytes of shared memory; the problem is stacked."""
        rows = as_int(problem.rows) or 0
        made = DecodeKernel(problem, self)
        sums = 4 * made.slices * rows * problem.value_depth
        tiles = made.queries.bytes + max(made.keys.bytes, sums) + made.powers.bytes
        return tiles + 3 * 4 * rows


class DecodeKernel(TileKernel):
    """Builds the body of the function for a stacked problem; see the module's docstring."""

    def __init__(self, problem: Attention, sizes: DecodeThreads) -> None:
        super().__init__(problem, sizes.threads)
        self.sizes = sizes
        depth, width = problem.depth, problem.value_depth
        rows = as_int(problem.rows)
        assert rows is not None, "the plan refuses unknown numbers of rows"
        self.rows = rows
        self.vector, self.wide = vector_of(depth), vector_of(width)
        # Columns of V: vectors side by side, and slices of keys for as many threads as are left.
        columns = width // self.wide
        self.columns = min(ceil_power(columns), sizes.threads)
        self.parts = -(-columns // self.columns)
        self.slices = min(sizes.threads // self.columns, sizes.keys)
        self.run = vector_of(sizes.keys // self.slices)
        # Neighbouring threads have neighbouring vectors of a key, then those of the next keys: they
        # are in different banks.
        pad = self.vector * sizes.per_key
        self.queries = Tile.of("queries", rows, depth)
        self.keys = Tile.of("keys", sizes.keys, depth, problem.key.dtype, pad)
        self.powers = Tile.of("powers", rows, sizes.keys)
        self.joined = Tile.of("joined", self.slices * rows, width, pad=0)
        self.rescale, self.top, self.total = (
            decl_buffer((rows,), FLOAT, name, scope="shared")
            for name in ("rescale", "top", "total")
        )
        self.warps = sizes.threads // sizes.width
        own_rows = -(-rows // self.warps)
        own = {
            "query": self.vector,
            "key": self.vector,
            "scores": rows,
            "top": own_rows,
            "total": own_rows,
            "power": rows * self.run,
            "value": self.wide,
            "sums": rows * self.parts * self.wide,
        }
        self.own = {
            name: decl_buffer((size,), FLOAT, f"own_{name}", scope="local")
            for name, size in own.items()
        }
        whole = (problem.batch, problem.heads, const(sizes.splits), const(rows))
        self.part_top, self.part_total = (
            decl_buffer(whole, FLOAT, name) for name in ("part_top", "part_total")
        )
        self.part_sums = decl_buffer((*whole, const(width)), FLOAT, "part_sums")

    @property
    def root_buffers(self) -> tuple[Buffer, ...]:
        """Buffers between the kernels."""
        made = (self.part_top, self.part_total, self.part_sums)
        return made if self.sizes.splits > 1 else ()

    def build(self) -> Stmt:
        """Build the whole computation: a kernel over parts of the keys, and one to combine them."""
        made = expand(self.attention)
        return made if self.sizes.splits == 1 else seq(made, expand(self.combine))

    # ---- the algorithm ----

    @T.macro
    def attention(self) -> None:
        """Process the keys of each part block by block."""
        for part, thread in T.grid(
            T.thread_binding(self._part_count(), thread="blockIdx.x"),
            T.thread_binding(self.threads, thread="threadIdx.x"),
        ):
            with T.block("attention_part"):
                vpart, vthread = T.axis.remap("SS", [part, thread])
                for buffer in (self.queries.buffer, self.top, self.total, *self.own.values()):
                    T.alloc_buffer(buffer)
                self._enter(vpart, vthread)
                self.copy_rows(self.queries, self.read_query, T.int64(0), T.int64(self.rows))
                self.clear()
                for k_block in T.serial(self.block_count):
                    with T.block("key_block"):
                        vk_block = T.axis.remap("O", [k_block])
                        for buffer in (self.keys.buffer, self.powers.buffer, self.rescale):
                            T.alloc_buffer(buffer)
                        self._at_keys(vk_block)
                        self.copy_rows(self.keys, self._raw_key, self.first_key, self.end)
                        self.scores()
                        self.softmax()
                        self.weigh()
                self.give_statistics()
                with T.block("join"):
                    T.alloc_buffer(self.joined.buffer)
                    self.give_sums()
                    self.write()

    @T.macro
    def scores(self) -> None:
        """Products of all rows with the thread's share of a key, joined."""
        vector, count = self.vector, self.sizes.per_key
        units = self.problem.depth // vector
        key, share = T.meta_var(self.thread // count), T.meta_var(self.thread % count)
        scores, own_key, query = self.own["scores"], self.own["key"], self.own["query"]
        for r in T.unroll(self.rows):
            scores[r] = T.float32(0)
        for i in T.serial(-(-units // count)):
            unit = T.meta_var(i * count + share)
            if units % count == 0 or unit < units:
                for lane in T.vectorized(vector):
                    at = T.meta_var(self.keys.at(key, unit * vector + lane))
                    own_key[lane] = widen(self.keys.buffer[at])
                for r in T.unroll(self.rows):
                    for lane in T.vectorized(vector):
                        query[lane] = self.queries.buffer[self.queries.at(r, unit * vector + lane)]
                    for d in T.unroll(vector):
                        scores[r] = scores[r] + query[d] * own_key[d]
        for r in T.unroll(self.rows):
            for step in steps_down(count):
                other = from_other_lane(scores[r], step, count, self.threads)
                scores[r] = scores[r] + other
            if count == 1 or share == 0:
                self.powers.buffer[self.powers.at(r, key)] = self._masked(scores[r], r, key)

    @T.macro
    def softmax(self) -> None:
        """Turn scores, less their maximum, into powers of two; each warp has rows of its own."""
        width, top, total = self.sizes.width, self.own["top"], self.own["total"]
        for i in T.unroll(top.shape[0]):
            row = T.meta_var(self._row_of_warp(i))
            if self.rows % self.warps == 0 or row < self.rows:
                before = top[i]
                for j in T.serial(self.sizes.keys // width):
                    at = T.meta_var(self.powers.at(row, j * width + self.lane))
                    top[i] = T.max(top[i], self.powers.buffer[at])
                for step in steps_down(width):
                    other = from_other_lane(top[i], step, width, self.threads)
                    top[i] = T.max(top[i], other)
                shift = shift_of(top[i])
                rescale = exp2(before - shift)
                total[i] = total[i] * rescale
                for j in T.serial(self.sizes.keys // width):
                    at = T.meta_var(self.powers.at(row, j * width + self.lane))
                    power = exp2(self.powers.buffer[at] - shift)
                    self.powers.buffer[at] = power
                    total[i] = total[i] + power
                if self.lane == 0:
                    self.rescale[row] = rescale

    @T.macro
    def weigh(self) -> None:
        """Rescale the thread's sums; add its keys' values, weighted by the powers."""
        run, width = self.run, self.parts * self.wide
        power, sums = self.own["power"], self.own["sums"]
        for r, d in T.grid(T.unroll(self.rows), T.unroll(width)):
            sums[r * width + d] = sums[r * width + d] * self.rescale[r]
        if self.slices * self.columns == self.threads or self.slice < self.slices:
            for step in T.serial(self.sizes.keys // (self.slices * run)):
                first = T.meta_var((step * self.slices + self.slice) * run)
                for r in T.unroll(self.rows):
                    for lane in T.vectorized(run):
                        at = T.meta_var(self.powers.at(r, first + lane))
                        power[r * run + lane] = self.powers.buffer[at]
                for k in T.unroll(run):
                    key = T.meta_var(self.first_key + first + k)
                    if self.problem.has_whole(self.sizes.keys) or key < self.end:
                        self.add_values(key, k)

    @T.macro
    def add_values(self, key: Expr, k: Expr) -> None:
        """Add the values of a key, weighted by the powers of all rows."""
        wide = self.wide
        width, value, sums = self.parts * wide, self.own["value"], self.own["sums"]
        for part in T.unroll(self.parts):
            if self._has_columns(part):
                for lane in T.vectorized(wide):
                    value[lane] = self.read_value(key, self._first(part) + lane)
                for r, d in T.grid(T.unroll(self.rows), T.unroll(wide)):
                    at = T.meta_var(r * width + part * wide + d)
                    sums[at] = sums[at] + self.own["power"][r * self.run + k] * value[d]

    @T.macro
    def give_statistics(self) -> None:
        """Sum the powers of each row; let all threads know."""
        width, total = self.sizes.width, self.own["total"]
        for i in T.unroll(total.shape[0]):
            row = T.meta_var(self._row_of_warp(i))
            if self.rows % self.warps == 0 or row < self.rows:
                for step in steps_down(width):
                    other = from_other_lane(total[i], step, width, self.threads)
                    total[i] = total[i] + other
                if self.lane == 0:
                    self.top[row] = self.own["top"][i]
                    self.total[row] = total[i]

    @T.macro
    def give_sums(self) -> None:
        """Store the sums of each slice of the threads."""
        wide = self.wide
        width = self.parts * wide
        if self.slices * self.columns == self.threads or self.slice < self.slices:
            for r, part in T.grid(T.unroll(self.rows), T.unroll(self.parts)):
                if self._has_columns(part):
                    for lane in T.vectorized(wide):
                        row = T.meta_var(self.slice * self.rows + r)
                        at = T.meta_var(self.joined.at(row, self._first(part) + lane))
                        own = T.meta_var(r * width + part * wide + lane)
                        self.joined.buffer[at] = self.own["sums"][own]

    @T.macro
    def write(self) -> None:
        """Add up the slices; write results, or what another kernel combines."""
        width = self.problem.value_depth
        count = self.rows * width
        for i in T.serial(-(-count // self.threads)):
            place = T.meta_var(i * self.threads + self.thread)
            if count % self.threads == 0 or place < count:
                row, d = T.meta_var(place // width), T.meta_var(place % width)
                if self.sizes.splits == 1:
                    where = T.meta_var(self.problem.result_at(self.b, self.h, row, d))
                    self.problem.out[where] = T.Cast(
                        self.problem.out.dtype, self._joined(row, d) * inverse(self.total[row])
                    )
                else:
                    self.part_sums[self.b, self.h, self.split, row, d] = self._joined(row, d)
        if self.sizes.splits > 1:
            self.write_statistics()

    @T.macro
    def write_statistics(self) -> None:
        """Write the largest scores and the sums of the powers, for another kernel."""
        if self.thread < self.rows:
            own = T.meta_var((self.b, self.h, self.split, self.thread))
            self.part_top[own] = self.top[self.thread]
            self.part_total[own] = self.total[self.thread]

    @T.macro
    def combine(self) -> None:
        """Sum the parts of each row, rescaled by their largest scores."""
        width = self.problem.value_depth
        threads = min(_COMBINING, self.threads, ceil_power(width))
        total = simplify(self.problem.batch * self.problem.heads * self.rows)
        for unit, thread in T.grid(
            T.thread_binding(total, thread="blockIdx.x"),
            T.thread_binding(threads, thread="threadIdx.x"),
        ):
            with T.block("combine"):
                vunit, vthread = T.axis.remap("SS", [unit, thread])
                sums = T.alloc_buffer((-(-width // threads),), FLOAT, scope="local")
                top = T.alloc_buffer((1,), FLOAT, scope="local")
                powers = T.alloc_buffer((1,), FLOAT, scope="local")
                row = T.meta_var(vunit % self.rows)
                h = T.meta_var(vunit // self.rows % self.problem.heads)
                b = T.meta_var(vunit // self.rows // self.problem.heads)
                top[0] = LOWEST
                powers[0] = T.float32(0)
                for i in T.unroll(sums.shape[0]):
                    sums[i] = T.float32(0)
                for s in T.serial(self.sizes.splits):
                    top[0] = T.max(top[0], self.part_top[b, h, s, row])
                shift = shift_of(top[0])
                for s in T.serial(self.sizes.splits):
                    factor = exp2(self.part_top[b, h, s, row] - shift)
                    powers[0] = powers[0] + self.part_total[b, h, s, row] * factor
                    for i in T.unroll(sums.shape[0]):
                        d = T.meta_var(i * threads + vthread)
                        if width % threads == 0 or d < width:
                            sums[i] = sums[i] + self.part_sums[b, h, s, row, d] * factor
                for i in T.unroll(sums.shape[0]):
                    d = T.meta_var(i * threads + vthread)
                    if width % threads == 0 or d < width:
                        where = T.meta_var(self.problem.result_at(b, h, row, d))
                        self.problem.out[where] = T.Cast(
                            self.problem.out.dtype, sums[i] * inverse(powers[0])
                        )

    # ---- where the thread is ----

    def _part_count(self) -> Expr:
        return simplify(self.problem.batch * self.problem.heads * self.sizes.splits)

    def _enter(self, part: Var, thread: Var) -> None:
        """Enter a part of the keys of a head."""
        splits, heads = self.sizes.splits, self.problem.heads
        self.split = simplify(part % splits)
        unit = part // splits
        self.b, self.h = simplify(unit // heads), simplify(unit % heads)
        self.thread = thread
        self.lane = thread % self.sizes.width
        self.slice, self.column = thread // self.columns, thread % self.columns
        self.end = self.problem.key_count(self.b)
        rows = const(0), const(self.rows - 1)
        start, blocks = self.problem.key_blocks(self.b, *rows, self.sizes.keys)
        count: Expr = ceildiv(blocks, const(splits))
        first = simplify(self.split * count)
        self.first_block = simplify(start + first)
        if splits > 1:
            count = maximum(minimum(count, blocks - first), 0)
        self.block_count = simplify(count)

    def _at_keys(self, k_block: Var) -> None:
        """Enter a block of keys."""
        self.first_key = simplify((self.first_block + k_block) * self.sizes.keys)

    def _row_of_warp(self, i: ExprLike) -> Expr:
        return self.thread // self.sizes.width + i * self.warps

    def _first(self, part: ExprLike) -> Expr:
        """The first of some neighbouring columns of V that the thread has."""
        return (part * self.columns + self.column) * self.wide

    def _has_columns(self, part: ExprLike) -> Expr | bool:
        width = self.problem.value_depth
        return self.parts * self.columns * self.wide == width or self._first(part) < width

    # ---- elements ----

    def _raw_key(self, k: Expr, d: Expr) -> Expr:
        return self.problem.key_elements(self.b, self.h, k, d)

    def _masked(self, score: Expr, r: Expr, k: Expr) -> Expr:
        """Apply the mask, causality and the end of the sequence to a score."""
        problem, key = self.problem, self.first_key + k
        if problem.mask is not None:
            score = score + problem.read_mask(self.b, self.h, r, key)
        conditions: list[Expr] = []
        if not problem.has_whole(self.sizes.keys):
            conditions.append(key < self.end)
        conditions += problem.seen(self.b, r, key)
        # Nothing is read where the condition doesn't hold: the mask ends with the keys.
        return if_then_else(and_(*conditions), score, LOWEST) if conditions else score

    def _joined(self, row: Expr, d: Expr) -> Expr:
        """A sum over the slices of the threads."""
        made: Expr = self.joined.buffer[self.joined.at(row, d)]
        for number in range(1, self.slices):
            made = made + self.joined.buffer[self.joined.at(row + number * self.rows, d)]
        return made


__all__ = ["MOST_ROWS", "DecodeKernel", "DecodeThreads"]
