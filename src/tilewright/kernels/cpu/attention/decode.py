"""Attention of a few queries over many keys, as in decoding with a cache: memory-bound.

K and V are read once, in order. Scores are computed with the depth as vector lanes, and summed
across lanes; the softmax is online over blocks of keys, as in :mod:`.prefill`. All query heads of a
group are computed together, so that their keys are read once.

If there are fewer heads than threads, the keys are split too: each split stores its largest score,
sum and values, and a last block combines the splits (Flash-Decoding, Dao et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    ExprLike,
    Var,
    and_,
    as_int,
    call,
    ceildiv,
    const,
    if_then_else,
    maximum,
    minimum,
    select,
)
from tilewright.kernels.cpu.attention.common import (
    exp2_of_negative,
    lane_sums,
    vector_segments,
    with_lets,
    write_rows,
)
from tilewright.kernels.problems.attention import FLOAT, LOWEST, Attention
from tilewright.script import tir as T
from tilewright.tir import Buffer, BufferStore, Stmt, decl_buffer
from tilewright.tir.attrs import PREFETCH_DISTANCE
from tilewright.tir.building import lanes_from, load, store
from tilewright.tir.script.parser import expand

# Depths of up to so many vectors are unrolled.
_UNROLLED_VECTORS = 8
# Keys that are multiplied side by side.
_MOST_KEYS = 8


@dataclass(frozen=True)
class DecodeTiles:
    """Sizes: vector lanes, keys of a block (a multiple of the lanes), splits of the keys.

    Blocks are long, so that K and V are each read in long runs, which the hardware prefetches. With
    ``dots``, products use dot instructions (:mod:`.decode_dots`).
    """

    lanes: int
    keys: int = 512
    splits: int = 1
    registers: int = 32
    ahead: int = 8192
    dots: bool = False

    def fault(self, problem: Attention) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if min(self.lanes, self.keys, self.splits, self.registers) < 1:
            return "sizes are positive"
        if self.lanes & (self.lanes - 1) or self.keys % self.lanes:
            return "keys is a multiple of lanes, a power of two"
        if as_int(problem.rows) is None:
            return "the number of queries is not known"
        return None


class DecodeKernel:
    """Builds the body of the function; see the module's docstring."""

    def __init__(self, problem: Attention, tiles: DecodeTiles) -> None:
        self.problem, self.tiles = problem, tiles
        rows = as_int(problem.rows)
        assert rows is not None, "the rule refuses symbolic numbers of rows"
        self.rows = rows
        depth, values = problem.depth, problem.value_depth
        # Padded with zeros to whole vectors.
        padded = -(-depth // tiles.lanes) * tiles.lanes
        self.q_scaled = decl_buffer((rows, padded), FLOAT, "q_scaled")
        parts_of_dots = tiles.lanes // self.keys_at_once
        self.dots = decl_buffer((rows, parts_of_dots, tiles.lanes), FLOAT, "dots")
        self.scores = decl_buffer((rows, tiles.keys), FLOAT, "scores")
        self.values = decl_buffer((rows, values), FLOAT, "values")
        self.top = decl_buffer((rows,), FLOAT, "top")
        self.old_top = decl_buffer((rows,), FLOAT, "old_top")
        self.rescale = decl_buffer((rows,), FLOAT, "rescale")
        self.top_lanes = decl_buffer((rows, tiles.lanes), FLOAT, "top_lanes")
        self.total_lanes = decl_buffer((rows, tiles.lanes), FLOAT, "total_lanes")
        parts = (problem.batch, problem.heads, tiles.splits, rows)
        self.split_max = decl_buffer(parts, FLOAT, "part_top")
        self.split_sum = decl_buffer(parts, FLOAT, "part_total")
        self.split_output = decl_buffer((*parts, values), FLOAT, "part_values")
        # For each row: a factor of each split, and last one of their sum.
        self.factors = decl_buffer((rows, tiles.splits + 1), FLOAT, "factors")

    @property
    def keys_at_once(self) -> int:
        """Keys whose products are summed in registers together, a power of two.

        Their sums and one vector of each row must fit the registers; keys far apart are slow to
        read.
        """
        most = max(1, min(self.tiles.lanes, _MOST_KEYS, self.tiles.registers // 2 // self.rows))
        return 1 << (most.bit_length() - 1)

    @property
    def root_buffers(self) -> tuple[Buffer, ...]:
        """Buffers between the splits and the block that combines them."""
        if self.tiles.splits == 1:
            return ()
        return self.split_max, self.split_sum, self.split_output

    def build(self) -> Stmt:
        """Make the whole computation: a block over heads and splits, one that combines splits."""
        return expand(self.attention)

    def _buffers(self) -> list[Buffer]:
        return [
            self.q_scaled, self.dots, self.scores, self.values, self.top, self.old_top,
            self.rescale, self.top_lanes, self.total_lanes,
        ]  # fmt: skip

    # ---- the algorithm ----

    @T.macro
    def attention(self) -> None:
        """Process the keys of each head, or split of them, block by block; combine the splits."""
        batch, heads, splits = self.problem.batch, self.problem.heads, self.tiles.splits
        for b, h, split in T.grid(batch, heads, splits):
            with T.block("attention_part"):
                vb, vh, vsplit = T.axis.remap("SSS", [b, h, split])
                for buffer in self._buffers():
                    T.alloc_buffer(buffer)
                self._at_split(vb, vh, vsplit)
                self.start()
                for k_block in T.serial(self.block_count):
                    with T.block("key_block"):
                        vk_block = T.axis.remap("O", [k_block])
                        self._at_keys(vk_block)
                        self.score_vectors()
                        self.maxima()
                        self.powers()
                        self.value_tiles()
                self.finish(vsplit)
        if splits > 1:
            for b, h in T.grid(batch, heads):
                with T.block("join"):
                    vb, vh = T.axis.remap("SS", [b, h])
                    T.alloc_buffer(self.factors)
                    self.combine_splits(vb, vh)

    @T.macro
    def start(self) -> None:
        """Initialise maxima and sums."""
        for r in T.serial(self.rows):
            with T.block("start_rows"):
                vr = T.axis.remap("S", [r])
                self.top[vr] = LOWEST
                self.old_top[vr] = LOWEST
        for r, lane in T.grid(self.rows, T.vectorized(self.tiles.lanes)):
            with T.block("start_total"):
                vr, vlane = T.axis.remap("SS", [r, lane])
                self.total_lanes[vr, vlane] = T.float32(0)
        self.take_queries()
        for r, d in T.grid(self.rows, T.vectorized(self.problem.value_depth)):
            with T.block("start_values"):
                vr, vd = T.axis.remap("SS", [r, d])
                self.values[vr, vd] = T.float32(0)

    @T.macro
    def take_queries(self) -> None:
        """Prepare the queries for products: scaled, padded with zeros."""
        for r, d in T.grid(self.rows, T.vectorized(self.q_scaled.shape[1])):
            with T.block("scale_queries"):
                vr, vd = T.axis.remap("SS", [r, d])
                self.q_scaled[vr, vd] = self._query_element(vr, vd)

    @T.macro
    def score_vectors(self) -> None:
        """Products with a vector of keys at a time: lanes along the depth, summed at the end."""
        lanes, step = self.tiles.lanes, self.keys_at_once
        for k_vector in T.serial(self.vectors):
            with T.block("scores"):
                vk_vector = T.axis.remap("S", [k_vector])
                for k_tile in self._ahead(lanes // step):
                    with T.block("dots"):
                        vk_tile = T.axis.remap("S", [k_tile])
                        dot_tile = T.alloc_buffer((step, self.rows, lanes), scope="local")
                        self.dot_tiles(dot_tile, vk_vector, vk_tile)
                for r in T.serial(self.rows):
                    with T.block("join_lanes"):
                        vr = T.axis.remap("S", [r])
                        self._join_lanes(vk_vector, vr)

    @T.macro
    def dot_tiles(self, dot_tile: Buffer, k_vector: Var, k_tile: Var) -> None:
        """Products of all rows with some keys of a vector; lanes are partly summed."""
        lanes, step = self.tiles.lanes, self.keys_at_once
        for k, r, lane in T.grid(T.unroll(step), T.unroll(self.rows), T.vectorized(lanes)):
            with T.block("dot_start"):
                vk, vr, vlane = T.axis.remap("SSS", [k, r, lane])
                dot_tile[vk, vr, vlane] = T.float32(0)
        self.dot_updates(dot_tile, k_vector * lanes + k_tile * step)
        for r in T.unroll(self.rows):
            with T.block("dot_give"):
                vr = T.axis.remap("S", [r])
                self._give_dots(dot_tile, vr, k_tile)

    @T.macro
    def dot_updates(self, dot_tile: Buffer, first: Expr) -> None:
        """Add the products of all rows with the keys from ``first`` on, lane by lane."""
        lanes, step, depth = self.tiles.lanes, self.keys_at_once, self.problem.depth
        whole = depth // lanes
        if whole > 0:
            for d_vector, k, r, lane in T.grid(
                self._over_depth(whole), T.unroll(step), T.unroll(self.rows), T.vectorized(lanes)
            ):
                with T.block("dot_update"):
                    vd_vector, vk, vr, vlane = T.axis.remap("RSSS", [d_vector, k, r, lane])
                    d = T.meta_var(vd_vector * lanes + vlane)
                    product = T.meta_var(self.q_scaled[vr, d] * self._key_element(first + vk, d))
                    dot_tile[vk, vr, vlane] = dot_tile[vk, vr, vlane] + product
        if whole * lanes < depth:
            for k, r, lane in T.grid(T.unroll(step), T.unroll(self.rows), T.vectorized(lanes)):
                with T.block("dot_rest"):
                    vk, vr, vlane = T.axis.remap("SSS", [k, r, lane])
                    d = T.meta_var(self._after(whole * lanes, vlane))
                    key = T.meta_var(self._key_element(first + vk, d))
                    product = T.meta_var(
                        self.q_scaled[vr, d] * T.if_then_else(d < depth, key, T.float32(0))
                    )
                    dot_tile[vk, vr, vlane] = dot_tile[vk, vr, vlane] + product

    @T.macro
    def maxima(self) -> None:
        """Apply masks; find the largest scores and the factors for rescaling earlier sums."""
        lanes = self.tiles.lanes
        for r, lane in T.grid(self.rows, T.vectorized(lanes)):
            with T.block("start_top"):
                vr, vlane = T.axis.remap("SS", [r, lane])
                self.top_lanes[vr, vlane] = LOWEST
        for r, k_vector, lane in T.grid(self.rows, self.vectors, T.vectorized(lanes)):
            with T.block("mask"):
                vr, vk_vector, vlane = T.axis.remap("SRS", [r, k_vector, lane])
                k = T.meta_var(vk_vector * lanes + vlane)
                self.scores[vr, k] = self._masked(vr, k)
                self.top_lanes[vr, vlane] = T.max(self.top_lanes[vr, vlane], self.scores[vr, k])
        for r in T.serial(self.rows):
            with T.block("join_top"):
                vr = T.axis.remap("S", [r])
                self.top[vr] = T.max(self.old_top[vr], self._largest_lane(vr))
                self.rescale[vr] = exp2_of_negative(self.old_top[vr] - shift_of(self.top[vr]))
                self.old_top[vr] = self.top[vr]

    @T.macro
    def powers(self) -> None:
        """Turn scores, less their maximum, into powers of two, and sum these lane by lane."""
        lanes = self.tiles.lanes
        for r, lane in T.grid(self.rows, T.vectorized(lanes)):
            with T.block("rescale_total"):
                vr, vlane = T.axis.remap("SS", [r, lane])
                self.total_lanes[vr, vlane] = self.total_lanes[vr, vlane] * self.rescale[vr]
        for r, k_vector, lane in T.grid(self.rows, self.vectors, T.vectorized(lanes)):
            with T.block("powers"):
                vr, vk_vector, vlane = T.axis.remap("SRS", [r, k_vector, lane])
                k = T.meta_var(vk_vector * lanes + vlane)
                power = self._power(self.scores[vr, k] - shift_of(self.top[vr]))
                self._give_power(power, vr, k)
                self.total_lanes[vr, vlane] = self.total_lanes[vr, vlane] + power

    @T.macro
    def value_tiles(self) -> None:
        """Rescale the values so far, and add the block's, weighted by the powers."""
        rows = self.rows
        for number, (start, width, count) in enumerate(self._value_cuts()):
            for d_tile in T.serial(count):
                with T.block(f"value_tile_{number}"):
                    vd_tile = T.axis.remap("S", [d_tile])
                    value_tile = T.alloc_buffer(self._value_tile(width, number))
                    first = T.meta_var(start + vd_tile * width)
                    for r, d in T.grid(T.unroll(rows), T.vectorized(width)):
                        with T.block(f"value_take_{number}"):
                            vr, vd = T.axis.remap("SS", [r, d])
                            value_tile[vr, vd] = self.values[vr, first + vd] * self.rescale[vr]
                    self.value_update(value_tile, first, number)
                    for r, d in T.grid(T.unroll(rows), T.vectorized(width)):
                        with T.block(f"value_give_{number}"):
                            vr, vd = T.axis.remap("SS", [r, d])
                            self.values[vr, first + vd] = value_tile[vr, vd]

    @T.macro
    def value_update(self, value_tile: Buffer, first: Expr, number: int) -> None:
        """A tile of values: powers times rows of V."""
        keys, width = self.count, value_tile.shape[1]
        for k, r, d in T.grid(self._ahead(keys), T.unroll(self.rows), T.vectorized(width)):
            with T.block(f"value_update_{number}"):
                vk, vr, vd = T.axis.remap("RSS", [k, r, d])
                product = T.meta_var(self.scores[vr, vk] * self._value_element(vk, first + vd))
                value_tile[vr, vd] = value_tile[vr, vd] + product

    @T.macro
    def finish(self, split: Var) -> None:
        """Sum the lanes; write the values divided by the sum, or store them to be combined."""
        for r in T.serial(self.rows):
            with T.block("sum_lanes"):
                vr = T.axis.remap("S", [r])
                if self.tiles.splits == 1:
                    self.rescale[vr] = inverse(self._lane_sum(vr))
                else:
                    self.split_sum[self.b, self.h, split, vr] = self._lane_sum(vr)
                    self.split_max[self.b, self.h, split, vr] = self.top[vr]
        if self.tiles.splits == 1:
            write_rows(
                self.problem,
                self.b,
                self.h,
                T.int64(0),
                self.rows,
                lambda r, d: self.values[r, d] * self.rescale[r],
            )
        else:
            for r, d in T.grid(self.rows, T.vectorized(self.problem.value_depth)):
                with T.block("give_part"):
                    vr, vd = T.axis.remap("SS", [r, d])
                    self.split_output[self.b, self.h, split, vr, vd] = self.values[vr, vd]

    @T.macro
    def combine_splits(self, b: Var, h: Var) -> None:
        """Sum the splits, rescaled by their largest scores."""
        for r in T.serial(self.rows):
            with T.block("weigh"):
                vr = T.axis.remap("S", [r])
                tops = self._split_maxima(b, h, vr)
                for s, top in enumerate(tops):
                    self.factors[vr, s] = exp2_of_negative(top - shift_of(largest(tops)))
                self.factors[vr, self.tiles.splits] = inverse(self._sum_over_splits(b, h, vr))
        write_rows(
            self.problem,
            b,
            h,
            T.int64(0),
            self.rows,
            lambda r, d: self._output_over_splits(b, h, r, d),
        )

    # ---- where the kernel is ----

    def _at_split(self, b: Var, h: Var, split: Var) -> None:
        """Enter a split of the keys of a head."""
        self.b, self.h = b, h
        self.limit = self.problem.key_limit(b, const(self.rows - 1))
        rows = const(0), const(self.rows - 1)
        start, blocks = self.problem.key_blocks(b, *rows, self.tiles.keys)
        per_split = ceildiv(blocks, const(self.tiles.splits))
        first = simplify(split * per_split)
        self.first_block = simplify(start + first)
        count: Expr = per_split
        if self.tiles.splits > 1:
            count = maximum(minimum(per_split, blocks - first), 0)
        self.block_count = simplify(count)

    def _at_keys(self, k_block: Var) -> None:
        """Enter a block of keys."""
        self.first_key = simplify((self.first_block + k_block) * self.tiles.keys)
        limit = as_int(self.limit)
        self.count: Expr = const(self.tiles.keys)
        if limit is None or limit % self.tiles.keys:
            self.count = simplify(minimum(self.tiles.keys, self.limit - self.first_key))
        self.vectors = simplify(ceildiv(self.count, const(self.tiles.lanes)))

    def _ahead(self, extent: ExprLike) -> Any:
        """A loop that prefetches memory ahead of its reads."""
        hints = {PREFETCH_DISTANCE: self.tiles.ahead} if self.tiles.ahead else {}
        return T.serial(extent, annotations=hints)

    def _over_depth(self, vectors: int) -> Any:
        # Unrolled, so that the loop over keys is the one that fetches ahead.
        return T.unroll(vectors) if vectors <= _UNROLLED_VECTORS else T.serial(vectors)

    def _value_cuts(self) -> list[tuple[int, int, int]]:
        most = max(1, (self.tiles.registers - 4) // self.rows)
        return vector_segments(self.problem.value_depth, self.tiles.lanes, most)

    def _value_tile(self, width: int, number: int) -> Buffer:
        return decl_buffer((self.rows, width), FLOAT, f"value_tile_{number}", scope="local")

    # ---- elements ----

    def _query_element(self, r: Expr, d: Expr) -> Expr:
        """An element of a query, times the scale; zero-padded to whole vectors."""
        value, depth = self.problem.read_query(self.b, self.h, r, d), self.problem.depth
        padded = as_int(self.q_scaled.shape[1]) or 0
        return if_then_else(d < depth, value, const(0.0, FLOAT)) if padded > depth else value

    def _key_element(self, k: Expr, d: Expr) -> Expr:
        return self.problem.read_key(self.b, self.h, self._key(k), d)

    def _value_element(self, k: Expr, d: Expr) -> Expr:
        return self.problem.read_value(self.b, self.h, self.first_key + k, d)

    def _after(self, start: int, lane: Expr) -> Expr:
        return const(start) + lane

    def _key(self, k: Expr) -> Expr:
        """Position of a key of the block in the sequence, clamped to the last key."""
        place = self.first_key + k
        count = as_int(self.count)
        if count is None or count % self.tiles.lanes:
            return minimum(place, self.limit - 1)
        return place

    def _join_lanes(self, k_vector: Var, r: Var) -> Stmt:
        """Sum the lanes of the products with a vector of keys."""
        lanes, step = self.tiles.lanes, self.keys_at_once
        parts = [load(self.dots, r, i, lanes_from(0, lanes)) for i in range(lanes // step)]
        lets, sums = lane_sums(parts, step.bit_length() - 1)
        where = (r, lanes_from(k_vector * lanes, lanes))
        return with_lets(lets, BufferStore(self.scores, sums, where))

    def _give_dots(self, dot_tile: Buffer, r: Var, k_tile: Var) -> Stmt:
        """Partly sum the lanes of the products of some keys."""
        lanes = lanes_from(0, self.tiles.lanes)
        lets, sums = lane_sums([load(dot_tile, k, r, lanes) for k in range(self.keys_at_once)])
        return with_lets(lets, store(self.dots, sums, r, k_tile, lanes))

    def _lane_sum(self, r: Expr) -> Expr:
        lanes = load(self.total_lanes, r, lanes_from(0, self.tiles.lanes))
        return call("vector_reduce_add", lanes, dtype=FLOAT)

    def _largest_lane(self, r: Expr) -> Expr:
        lanes = load(self.top_lanes, r, lanes_from(0, self.tiles.lanes))
        return call("vector_reduce_max", lanes, dtype=FLOAT)

    def _masked(self, r: Expr, k: Expr) -> Expr:
        problem = self.problem
        key = self.first_key + k
        score = self._scaled(load(self.scores, r, k))
        if problem.mask is not None:
            score = score + problem.read_mask(self.b, self.h, r, key)
        conditions: list[Expr] = []
        limit = as_int(problem.keys)
        if limit is None or limit % self.tiles.lanes or problem.is_causal:
            conditions.append(key < problem.keys)
        conditions += problem.seen(self.b, r, key)
        # Nothing is read where the condition doesn't hold: the mask ends with the keys.
        return if_then_else(and_(*conditions), score, LOWEST) if conditions else score

    def _scaled(self, score: Expr) -> Expr:
        """A score in base 2; here the queries are already scaled."""
        return score

    def _power(self, exponent: Expr) -> Expr:
        return exp2_of_negative(exponent)

    def _give_power(self, power: Expr, r: Expr, k: Expr) -> Stmt:
        """Store a power for the sums of values."""
        return store(self.scores, power, r, k)

    # ---- splits of the keys ----

    def _split_maxima(self, b: Expr, h: Expr, r: Expr) -> list[Expr]:
        return [load(self.split_max, b, h, s, r) for s in range(self.tiles.splits)]

    def _sum_over_splits(self, b: Expr, h: Expr, r: Expr) -> Expr:
        total: Expr = const(0.0, FLOAT)
        for s in range(self.tiles.splits):
            total = total + self.split_sum[b, h, s, r] * self.factors[r, s]
        return total

    def _output_over_splits(self, b: Expr, h: Expr, r: Expr, d: Expr) -> Expr:
        made: Expr = const(0.0, FLOAT)
        for s in range(self.tiles.splits):
            made = made + self.split_output[b, h, s, r, d] * self.factors[r, s]
        return made * self.factors[r, self.tiles.splits]


def largest(values: Sequence[Expr]) -> Expr:
    """The largest of some values."""
    return reduce(maximum, values)


def shift_of(top: Expr) -> Expr:
    """The value to subtract from scores: if all are masked, -inf - -inf would be NaN."""
    return select(top == LOWEST, const(0.0, FLOAT), top)


def inverse(total: Expr) -> Expr:
    """``1 / total``; zero for a row that sees no key."""
    return select(total == 0.0, const(0.0, FLOAT), const(1.0, FLOAT) / total)


__all__ = ["DecodeKernel", "DecodeTiles", "shift_of"]
