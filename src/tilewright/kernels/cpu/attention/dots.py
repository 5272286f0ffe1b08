"""Attention over many queries in bfloat16, by dot instructions with sums in float32.

The kernel of :mod:`.prefill` with both products on words (two neighbours along the reduction), one
instruction per vector of words::

    scores [key, query]   words of K along the depth, as they lie  x  Qᵀ, packed once per tile
    values [query, depth] powers of two keys, in bfloat16          x  rows of V, two interleaved

Maxima and sums stay in float32; powers are rounded when they are packed, as in other frameworks'
kernels. The scores are scaled rather than the queries, which would lose bits.
"""

from __future__ import annotations

from tilewright.arith import simplify
from tilewright.ir import (
    Broadcast,
    Expr,
    Shuffle,
    Var,
    as_int,
    call,
    ceildiv,
    const,
    dtypes,
    minimum,
    select,
)
from tilewright.kernels.cpu.attention.common import exp2_of_negative
from tilewright.kernels.cpu.attention.prefill import PrefillKernel, PrefillTiles
from tilewright.kernels.problems.attention import FLOAT, Attention
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir import (
    Buffer,
    BufferStore,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.building import Axis, block, lanes_from
from tilewright.tir.op import bitwise_and, bitwise_or, shift_right

NARROW, WORD = "bfloat16", "uint32"
_HALF = "uint16"
# Degree of the polynomial for powers, which are rounded to 8 bits: relative error 7.5e-5.
DEGREE = 3


def has_dots(target: Target) -> bool:
    """Whether the target has fast bfloat16 dot instructions on whole vectors."""
    wide = target.has("avx512bf16") and target.vector_bits == 512
    return wide and target.has_fast_bf16_dots


def as_words(halves: Expr) -> Expr:
    """Reinterpret 16-bit neighbours as words."""
    lanes = dtypes.lanes_of(halves.dtype) // 2
    return call("reinterpret", halves, dtype=dtypes.vector_dtype(WORD, lanes))


def as_pairs(words: Expr) -> Expr:
    """Reinterpret words as bfloat16 neighbours."""
    lanes = dtypes.lanes_of(words.dtype) * 2
    return call("reinterpret", words, dtype=dtypes.vector_dtype(NARROW, lanes))


def interleaved(first: Expr, second: Expr, lanes: int) -> list[Expr]:
    """Interleave two 16-bit rows into words, in vectors of ``lanes``."""
    count = dtypes.lanes_of(first.dtype)
    kind = dtypes.vector_dtype(_HALF, count)
    rows = tuple(call("reinterpret", row, dtype=kind) for row in (first, second))
    return [
        as_words(
            Shuffle(rows, tuple(side + i for i in range(at, at + lanes) for side in (0, count)))
        )
        for at in range(0, count, lanes)
    ]


def zero_unless(condition: Expr, row: Expr) -> Expr:
    """A 16-bit row if the condition holds, else zeros."""
    kind = dtypes.vector_dtype(_HALF, dtypes.lanes_of(row.dtype))
    zeros = Broadcast(const(0, _HALF), dtypes.lanes_of(row.dtype))
    return select(condition, call("reinterpret", row, dtype=kind), zeros)


def paired(first: Expr, second: Expr) -> Expr:
    """Round two float32 to bfloat16 and pack them into a word.

    For values that are never negative and far from overflow. Ties are rounded up. A NaN may become
    a number: it is also in the sum of the powers, by which everything is divided.
    """
    half = const(0x8000, WORD)
    a, b = (call("reinterpret", item, dtype=WORD) + half for item in (first, second))
    return bitwise_or(shift_right(a, const(16, WORD)), bitwise_and(b, const(0xFFFF0000, WORD)))


class DotPrefillKernel(PrefillKernel):
    """Builds the body of the function; see the module's docstring."""

    def __init__(self, problem: Attention, tiles: PrefillTiles) -> None:
        super().__init__(problem, tiles)
        queries, pairs = tiles.queries, tiles.keys // 2
        self.query_units = problem.depth // 2
        self.value_width = -(-problem.value_depth // tiles.lanes) * tiles.lanes
        self.q_packed = decl_buffer((self.query_units, queries), WORD, "q_packed")
        self.values = decl_buffer((queries, self.value_width), FLOAT, "values")
        self.k_wide = self.v_wide = None
        self.packed_powers = decl_buffer((pairs, queries), WORD, "powers")
        self.v_pairs = decl_buffer((pairs, self.value_width), WORD, "v_pairs")

    @staticmethod
    def fault(problem: Attention, tiles: PrefillTiles) -> str | None:
        """Say why dot instructions are unsuitable for a problem, if so."""
        if problem.query.dtype != NARROW:
            return f"dot instructions take {NARROW}, the operands are {problem.query.dtype}"
        if problem.depth % 2 or problem.value_depth < tiles.lanes:
            return "dot instructions take an even depth, and values of a vector at least"
        if tiles.lanes < 2 or tiles.key_rows % 2:
            return "dot instructions take keys in pairs"
        return None

    def _buffers(self) -> list[Buffer]:
        return [*super()._buffers(), self.packed_powers, self.v_pairs]

    def _query_vector(self, row: Expr, unit: Expr, count: int) -> Expr:
        at = lanes_from(unit * 2, 2 * count)
        return as_words(self.problem.query_elements(self.b, self.h, row, at))

    def prepare(self) -> Stmt:
        """Interleave rows of V."""
        depth = self.problem.value_depth
        step = min(2 * self.tiles.lanes, 1 << (depth.bit_length() - 1))
        keys = self.problem.keys

        def row(k: Expr, d: Expr) -> Expr:
            at = lanes_from(d, step)
            if self._keys_even():
                return self.problem.value_elements(self.b, self.h, k, at)
            # After the last row come zeros: their powers are zero, but not all products are.
            made = self.problem.value_elements(self.b, self.h, minimum(k, keys - 1), at)
            return zero_unless(k < keys, made)

        def pack(pair: Var, part: Var) -> Stmt:
            # The last part may overlap the one before.
            d = simplify(part * step) if depth % step == 0 else minimum(part * step, depth - step)
            key = self.first_key + pair * 2
            words = interleaved(row(key, d), row(key + 1, d), step // 2)
            stores = [
                BufferStore(self.v_pairs, part, (pair, lanes_from(d + i * (step // 2), step // 2)))
                for i, part in enumerate(words)
            ]
            return seq(*stores)

        axes = [Axis("pair", halved(self._all_keys())), Axis("part", -(-depth // step))]
        return block("pack_values", axes, pack)

    def _keys_even(self) -> bool:
        keys = as_int(self.problem.keys)
        return keys is not None and keys % 2 == 0

    def _scaled(self, score: Expr) -> Expr:
        return score * const(self.problem.scale, FLOAT)

    @T.macro
    def score_update(self, score_tile: Buffer, q_wide: Var, k_tile: Var) -> None:
        """A tile of scores: words of keys times words of queries."""
        rows, lanes = self.tiles.key_rows, self.tiles.lanes
        for word, r, v in T.grid(self.query_units, T.unroll(rows), T.unroll(self.tiles.vectors)):
            with T.block("score_update"):
                vword, vr, vv = T.axis.remap("RSS", [word, r, v])
                at = T.meta_var(lanes_from(vv * lanes, lanes))
                query = T.meta_var(self._lanes(q_wide * self.tiles.width, vv))
                score_tile[vr, at] = T.dot_accumulate(
                    score_tile[vr, at],
                    as_pairs(self.q_packed[vword, query]),
                    self._key_words(k_tile * rows + vr, vword),
                )

    def _key_words(self, k: Expr, word: Expr) -> Expr:
        at = lanes_from(word * 2, 2)
        return self.problem.key_elements(self.b, self.h, self._key(k), at)

    def _lanes(self, first: Expr, vector: Expr) -> Expr:
        return lanes_from(first + vector * self.tiles.lanes, self.tiles.lanes)

    @T.macro
    def powers(self) -> None:
        """Turn scores, less their maximum, into powers of two: two keys per word."""
        width = self.tiles.width
        for q_wide in T.serial(self.wide_count):
            with T.block("powers"):
                vq_wide = T.axis.remap("S", [q_wide])
                for pair, lane in T.grid(halved(self._wide_keys(vq_wide)), T.vectorized(width)):
                    with T.block("power"):
                        vpair, vlane = T.axis.remap("RS", [pair, lane])
                        q = T.meta_var(vq_wide * width + vlane)
                        first = self._power(vpair * 2, q)
                        second = self._power(vpair * 2 + 1, q)
                        self.packed_powers[vpair, q] = paired(first, second)
                        self.total[q] = self.total[q] + (first + second)

    def _power(self, k: Expr, q: Expr) -> Expr:
        return exp2_of_negative(self.scores[k, q] - self.shift[q], degree=DEGREE)

    @T.macro
    def value_update(self, value_tile: Buffer, row: Expr, first: Expr, number: int) -> None:
        """A tile of values: powers times rows of V, by pairs of keys."""
        rows, lanes = self.tiles.query_rows, self.tiles.lanes
        vectors = (as_int(value_tile.shape[1]) or 0) // lanes
        for pair, r, v in T.grid(halved(self._row_keys(row)), T.unroll(rows), T.unroll(vectors)):
            with T.block(f"value_update_{number}"):
                vpair, vr, vv = T.axis.remap("RSS", [pair, r, v])
                at = T.meta_var(lanes_from(vv * lanes, lanes))
                value_tile[vr, at] = T.dot_accumulate(
                    value_tile[vr, at],
                    as_pairs(self.v_pairs[vpair, self._lanes(first, vv)]),
                    as_pairs(self.packed_powers[vpair, row + vr]),
                )


def halved(count: Expr) -> Expr:
    """The number of pairs for ``count`` elements."""
    return simplify(ceildiv(count, const(2)))


__all__ = [
    "DEGREE",
    "NARROW",
    "DotPrefillKernel",
    "as_pairs",
    "halved",
    "has_dots",
    "interleaved",
    "zero_unless",
]
