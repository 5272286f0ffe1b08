"""Attention of a few queries over many keys, as in decoding with a cache: bound by memory.

K and V are read once, in order. The depth is the vector lanes of the scores, whose sums go across
lanes; the softmax is online over blocks of keys, as in :mod:`.prefill`. All query heads
of a group are done together, so that their keys are read once.

Where there are fewer heads than threads, the keys are split too: each part leaves its largest
score, sum and values, and a last block joins the parts (Flash-Decoding, Dao et al. 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
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
    FLOAT,
    LOWEST,
    Attention,
    exp2_of_negative,
    lane_sums,
    pieces,
    with_lets,
)
from tilewright.tir import (
    OPAQUE,
    REDUCE,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Buffer,
    BufferStore,
    LetStmt,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.building import Axis, block, lanes_from, load, store

# Depths of up to so many vectors are unrolled.
_UNROLLED_VECTORS = 8
# Keys that are multiplied side by side.
_MOST_KEYS = 8


@dataclass(frozen=True)
class DecodeTiles:
    """Sizes: vector lanes, keys of a block (a multiple of the lanes), parts of the keys.

    Blocks are long, so that K and V are each read in long runs, which hardware prefetches. With
    ``dots``, products are dot instructions (:mod:`.decode_dots`).
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
    """Builds the body of the function; see the module's text."""

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
        self.part_top = decl_buffer(parts, FLOAT, "part_top")
        self.part_total = decl_buffer(parts, FLOAT, "part_total")
        self.part_values = decl_buffer((*parts, values), FLOAT, "part_values")
        # For each row: a factor of each part, and last one of their sum.
        self.factors = decl_buffer((rows, tiles.splits + 1), FLOAT, "factors")

    @property
    def keys_at_once(self) -> int:
        """Keys whose products are summed up in registers together, a power of two.

        Their sums and one vector of each row take the registers; keys far apart are slow to read.
        """
        most = max(1, min(self.tiles.lanes, _MOST_KEYS, self.tiles.registers // 2 // self.rows))
        return 1 << (most.bit_length() - 1)

    @property
    def root_buffers(self) -> tuple[Buffer, ...]:
        """Buffers between the parts and the block that joins them."""
        if self.tiles.splits == 1:
            return ()
        return self.part_top, self.part_total, self.part_values

    def build(self) -> Stmt:
        """Make the whole computation: a block over heads and parts, and one that joins parts."""
        problem, splits = self.problem, self.tiles.splits
        axes = [Axis("b", problem.batch), Axis("h", problem.heads)]
        splits_axis = Axis("split", splits)
        part = block("attention_part", [*axes, splits_axis], self._part, self._buffers())
        if splits == 1:
            return part
        return seq(part, block("join", axes, self._join, [self.factors]))

    def _buffers(self) -> list[Buffer]:
        return [
            self.q_scaled, self.dots, self.scores, self.values, self.top, self.old_top,
            self.rescale, self.top_lanes, self.total_lanes,
        ]  # fmt: skip

    # ---- one part of the keys of a head ----

    def _part(self, b: Var, h: Var, split: Var) -> Stmt:
        self.b, self.h = b, h
        self.limit = self.problem.key_limit(const(self.rows - 1))
        blocks = ceildiv(self.limit, const(self.tiles.keys))
        per_split = ceildiv(blocks, const(self.tiles.splits))
        self.first_block = simplify(split * per_split)
        count: Expr = per_split
        if self.tiles.splits > 1:
            count = maximum(minimum(per_split, blocks - self.first_block), 0)
        return seq(
            self._start(),
            block("key_block", [Axis("k_block", simplify(count), kind=OPAQUE)], self._key_block),
            self._finish(split),
        )

    def _start(self) -> Stmt:
        rows, lanes = self.rows, self.tiles.lanes

        def row(r: Var) -> Stmt:
            return seq(store(self.top, LOWEST, r), store(self.old_top, LOWEST, r))

        def row_lanes(r: Var, lane: Var) -> Stmt:
            return store(self.total_lanes, const(0.0, FLOAT), r, lane)

        def zero(r: Var, d: Var) -> Stmt:
            return store(self.values, const(0.0, FLOAT), r, d)

        row_axis = Axis("r", rows)
        return seq(
            block("start_rows", [row_axis], row),
            block("start_total", [row_axis, Axis("lane", lanes, VECTORIZED)], row_lanes),
            self._take_queries(),
            block(
                "start_values", [row_axis, Axis("d", self.problem.value_depth, VECTORIZED)], zero
            ),
        )

    def _take_queries(self) -> Stmt:
        """Bring the queries into the form that products take: scaled, padded with zeros."""
        padded, depth = as_int(self.q_scaled.shape[1]), self.problem.depth
        assert padded is not None

        def scale(r: Var, d: Var) -> Stmt:
            value = self.problem.read_query(self.b, self.h, r, d)
            if padded > depth:
                value = if_then_else(d < depth, value, const(0.0, FLOAT))
            return store(self.q_scaled, value, r, d)

        axes = [Axis("r", self.rows), Axis("d", padded, VECTORIZED)]
        return block("scale_queries", axes, scale)

    def _finish(self, split: Var) -> Stmt:
        def sums(r: Var) -> Stmt:
            lanes = load(self.total_lanes, r, lanes_from(0, self.tiles.lanes))
            total = call("vector_reduce_add", lanes, dtype=FLOAT)
            if self.tiles.splits == 1:
                return store(self.rescale, _inverse(total), r)
            where = (self.b, self.h, split, r)
            return seq(
                store(self.part_total, total, *where),
                store(self.part_top, load(self.top, r), *where),
            )

        sum_lanes = block("sum_lanes", [Axis("r", self.rows)], sums)
        if self.tiles.splits == 1:

            def value(r: Expr, d: Expr) -> Expr:
                return load(self.values, r, d) * load(self.rescale, r)

            return seq(
                sum_lanes, self.problem.write_rows(self.b, self.h, const(0), self.rows, value)
            )

        def give(r: Var, d: Var) -> Stmt:
            return store(self.part_values, load(self.values, r, d), self.b, self.h, split, r, d)

        axes = [Axis("r", self.rows), Axis("d", self.problem.value_depth, VECTORIZED)]
        return seq(sum_lanes, block("give_part", axes, give))

    def _join(self, b: Var, h: Var) -> Stmt:
        """Weigh the parts by how their largest scores compare, and sum them."""
        splits = self.tiles.splits

        def weigh(r: Var) -> Stmt:
            tops = [load(self.part_top, b, h, s, r) for s in range(splits)]
            top: Expr = tops[0]
            for item in tops[1:]:
                top = maximum(top, item)
            total: Expr = const(0.0, FLOAT)
            for s in range(splits):
                total = total + load(self.part_total, b, h, s, r) * load(self.factors, r, s)
            made = [
                store(self.factors, exp2_of_negative(item - shift_of(top)), r, s)
                for s, item in enumerate(tops)
            ]
            return seq(*made, store(self.factors, _inverse(total), r, splits))

        def value(r: Expr, d: Expr) -> Expr:
            made: Expr = const(0.0, FLOAT)
            for s in range(splits):
                part = load(self.part_values, b, h, s, r, d)
                made = made + part * load(self.factors, r, s)
            return made * load(self.factors, r, splits)

        return seq(
            block("weigh", [Axis("r", self.rows)], weigh),
            self.problem.write_rows(b, h, const(0), self.rows, value),
        )

    # ---- one block of keys ----

    def _key_block(self, k_block: Var) -> Stmt:
        self.first_key = simplify((self.first_block + k_block) * self.tiles.keys)
        limit = as_int(self.limit)
        self.count = const(self.tiles.keys)
        if limit is None or limit % self.tiles.keys:
            self.count = simplify(minimum(self.tiles.keys, self.limit - self.first_key))
        self.vectors = ceildiv(self.count, const(self.tiles.lanes))
        return seq(self._scores(), self._maxima(), self._powers(), self._values())

    def _scores(self) -> Stmt:
        """Products with a vector of keys at a time: lanes along the depth, joined at the end."""
        lanes, rows, step = self.tiles.lanes, self.rows, self.keys_at_once
        tile = decl_buffer((step, rows, lanes), FLOAT, "dot_tile", scope="local")

        def vector(k_vector: Var) -> Stmt:
            axes = [Axis("k_tile", lanes // step, ahead=self.tiles.ahead)]
            dots = block("dots", axes, lambda k: self._dots(tile, k_vector, k), [tile])
            return seq(dots, block("join_lanes", [Axis("r", rows)], lambda r: join(k_vector, r)))

        def join(k_vector: Var, r: Var) -> Stmt:
            parts = [load(self.dots, r, i, lanes_from(0, lanes)) for i in range(lanes // step)]
            lets, sums = lane_sums(parts, step.bit_length() - 1)
            where = (r, lanes_from(k_vector * lanes, lanes))
            return with_lets(lets, BufferStore(self.scores, sums, where))

        return block("scores", [Axis("k_vector", self.vectors)], vector)

    def _dots(self, tile: Buffer, k_vector: Expr, part: Expr) -> Stmt:
        """Products of all rows with a few keys, a part of a vector; lanes are summed in part."""
        lanes = self.tiles.lanes
        inner = [
            Axis("k", self.keys_at_once, UNROLLED),
            Axis("r", self.rows, UNROLLED),
            Axis("lane", lanes, VECTORIZED),
        ]

        def start(k: Var, r: Var, lane: Var) -> Stmt:
            return store(tile, const(0.0, FLOAT), k, r, lane)

        def give(r: Var) -> Stmt:
            parts = [load(tile, k, r, lanes_from(0, lanes)) for k in range(self.keys_at_once)]
            lets, sums = lane_sums(parts)
            return with_lets(lets, store(self.dots, sums, r, part, lanes_from(0, lanes)))

        first = k_vector * lanes + part * self.keys_at_once
        return seq(
            block("dot_start", inner, start),
            self._dot_updates(tile, first, inner),
            block("dot_give", inner[1:2], give),
        )

    def _key(self, k: Expr) -> Expr:
        """Place of a key of the block in the sequence; the last key for those after the end."""
        place = self.first_key + k
        count = as_int(self.count)
        if count is None or count % self.tiles.lanes:
            return minimum(place, self.limit - 1)
        return place

    def _dot_updates(self, tile: Buffer, first: Expr, inner: list[Axis]) -> Stmt:
        """Add the products of all rows with the keys from ``first`` on, lane by lane."""
        lanes, depth = self.tiles.lanes, self.problem.depth
        whole = depth // lanes * lanes

        def product(k: Expr, r: Expr, lane: Expr, first_depth: Expr, cut: bool = False) -> Stmt:
            d = first_depth + lane
            element = self.problem.read_key(self.b, self.h, self._key(first + k), d)
            if cut:
                element = if_then_else(d < depth, element, const(0.0, FLOAT))
            made = load(self.q_scaled, r, d) * element
            return store(tile, load(tile, k, r, lane) + made, k, r, lane)

        stmts = []
        if whole:
            axes = [self._depth_axis(whole // lanes), *inner]
            stmts.append(
                block("dot_update", axes, lambda c, k, r, lane: product(k, r, lane, c * lanes))
            )
        if whole < depth:
            rest = const(whole)
            stmts.append(
                block("dot_rest", inner, lambda k, r, lane: product(k, r, lane, rest, cut=True))
            )
        return seq(*stmts)

    def _depth_axis(self, vectors: int) -> Axis:
        # Unrolled, so that the loop over keys is the one that fetches ahead.
        kind = UNROLLED if vectors <= _UNROLLED_VECTORS else SERIAL
        return Axis("d_vector", vectors, kind, REDUCE)

    def _maxima(self) -> Stmt:
        """Apply masks; find the largest scores and how they change what was summed up."""
        lanes = self.tiles.lanes

        def start(r: Var, lane: Var) -> Stmt:
            return store(self.top_lanes, LOWEST, r, lane)

        def vectors(r: Var, k_vector: Var, lane: Var) -> Stmt:
            k = k_vector * lanes + lane
            top = maximum(load(self.top_lanes, r, lane), load(self.scores, r, k))
            return seq(
                store(self.scores, self._masked(r, k), r, k), store(self.top_lanes, top, r, lane)
            )

        def join(r: Var) -> Stmt:
            found = load(self.top_lanes, r, lanes_from(0, lanes))
            made = maximum(load(self.old_top, r), call("vector_reduce_max", found, dtype=FLOAT))
            top = load(self.top, r)
            return seq(
                store(self.top, made, r),
                store(self.rescale, exp2_of_negative(load(self.old_top, r) - shift_of(top)), r),
                store(self.old_top, top, r),
            )

        row, lane = Axis("r", self.rows), Axis("lane", lanes, VECTORIZED)
        return seq(
            block("start_top", [row, lane], start),
            block("mask", [row, Axis("k_vector", self.vectors, kind=REDUCE), lane], vectors),
            block("join_top", [row], join),
        )

    def _masked(self, r: Expr, k: Expr) -> Expr:
        problem = self.problem
        key = self.first_key + k
        score = self._scaled(load(self.scores, r, k))
        if problem.mask is not None:
            score = score + problem.read_mask(self.b, self.h, r, key)
        conditions = []
        limit = as_int(problem.keys)
        if limit is None or limit % self.tiles.lanes or problem.causal_offset is not None:
            conditions.append(key < problem.keys)
        if problem.causal_offset is not None:
            conditions.append(key <= problem.query_of(r) + problem.causal_offset)
        # Nothing is read where the condition doesn't hold: the mask ends with the keys.
        return if_then_else(and_(*conditions), score, LOWEST) if conditions else score

    def _scaled(self, score: Expr) -> Expr:
        """A score as a power of two; here the queries have been scaled."""
        return score

    def _powers(self) -> Stmt:
        lanes = self.tiles.lanes

        def rescale(r: Var, lane: Var) -> Stmt:
            value = load(self.total_lanes, r, lane) * load(self.rescale, r)
            return store(self.total_lanes, value, r, lane)

        def power(r: Var, k_vector: Var, lane: Var) -> Stmt:
            k = k_vector * lanes + lane
            exponent = load(self.scores, r, k) - shift_of(load(self.top, r))
            made = Var("power", FLOAT)
            total = load(self.total_lanes, r, lane) + made
            body = seq(self._give_power(made, r, k), store(self.total_lanes, total, r, lane))
            return LetStmt(made, self._power(exponent), body)

        row, lane = Axis("r", self.rows), Axis("lane", lanes, VECTORIZED)
        return seq(
            block("rescale_total", [row, lane], rescale),
            block("powers", [row, Axis("k_vector", self.vectors, kind=REDUCE), lane], power),
        )

    def _power(self, exponent: Expr) -> Expr:
        return exp2_of_negative(exponent)

    def _give_power(self, power: Expr, r: Expr, k: Expr) -> Stmt:
        """Keep a power for the sums of values."""
        return store(self.scores, power, r, k)

    def _values(self) -> Stmt:
        lanes, rows = self.tiles.lanes, self.rows
        stmts = []
        most = max(1, (self.tiles.registers - 4) // rows)
        for number, (start, width, count) in enumerate(
            pieces(self.problem.value_depth, lanes, most)
        ):
            tile = decl_buffer((rows, width), FLOAT, f"value_tile_{number}", scope="local")

            def body(d: Var, tile: Buffer = tile, start: int = start, number: int = number) -> Stmt:
                return self._value_tile(tile, start + d * tile.shape[1], number)

            stmts.append(block(f"value_tile_{number}", [Axis("d_tile", count)], body, [tile]))
        return seq(*stmts)

    def _value_tile(self, tile: Buffer, first: Expr, number: int) -> Stmt:
        inner = [Axis("r", self.rows, UNROLLED), Axis("d", tile.shape[1], VECTORIZED)]

        def take(r: Var, d: Var) -> Stmt:
            return store(tile, load(self.values, r, first + d) * load(self.rescale, r), r, d)

        def give(r: Var, d: Var) -> Stmt:
            return store(self.values, load(tile, r, d), r, first + d)

        return seq(
            block(f"value_take_{number}", inner, take),
            self._value_update(tile, first, number, inner),
            block(f"value_give_{number}", inner, give),
        )

    def _value_update(self, tile: Buffer, first: Expr, number: int, inner: list[Axis]) -> Stmt:
        def update(k: Var, r: Var, d: Var) -> Stmt:
            value = self.problem.read_value(self.b, self.h, self.first_key + k, first + d)
            return store(tile, load(tile, r, d) + load(self.scores, r, k) * value, r, d)

        keys = Axis("k", self.count, kind=REDUCE, ahead=self.tiles.ahead)
        return block(f"value_update_{number}", [keys, *inner], update)


def shift_of(top: Expr) -> Expr:
    """What to subtract from scores: where all is masked, -inf - -inf would be NaN."""
    return select(top == LOWEST, const(0.0, FLOAT), top)


def _inverse(total: Expr) -> Expr:
    """``1 / total``; zero for a row that sees no key."""
    return select(total == 0.0, const(0.0, FLOAT), const(1.0, FLOAT) / total)


__all__ = ["DecodeKernel", "DecodeTiles", "shift_of"]
