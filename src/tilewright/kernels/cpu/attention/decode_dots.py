"""Attention of a few queries over many keys in bfloat16, by dot instructions.

The kernel of :mod:`.decode` with products of words as in :mod:`.dots`: keys and queries are
multiplied in place, rows of values are interleaved in pairs when loaded. No element is converted,
so groups of heads are memory-bound too.
"""

from __future__ import annotations

from tilewright.ir import Expr, ExprLike, Var, as_int, call, cast, const, minimum
from tilewright.kernels.cpu.attention.common import exp2_of_negative, with_lets
from tilewright.kernels.cpu.attention.decode import DecodeKernel, DecodeTiles
from tilewright.kernels.cpu.attention.dots import (
    DEGREE,
    NARROW,
    as_pairs,
    halved,
    interleaved,
    zero_unless,
)
from tilewright.kernels.problems.attention import FLOAT, Attention
from tilewright.script import tir as T
from tilewright.tir import Buffer, BufferStore, Stmt, decl_buffer, seq
from tilewright.tir.building import lanes_from, load, store


class DotDecodeKernel(DecodeKernel):
    """Builds the body of the function; see the module's docstring."""

    def __init__(self, problem: Attention, tiles: DecodeTiles) -> None:
        super().__init__(problem, tiles)
        self.q_scaled = decl_buffer((self.rows, problem.depth), NARROW, "queries")
        self.packed_powers = decl_buffer((self.rows, tiles.keys), NARROW, "powers")

    @staticmethod
    def fault(problem: Attention, tiles: DecodeTiles) -> str | None:
        """Say why dot instructions are unsuitable for a problem, if so."""
        if problem.query.dtype != NARROW:
            return f"dot instructions take {NARROW}, the operands are {problem.query.dtype}"
        if problem.depth % 2 or problem.value_depth % tiles.lanes:
            return "dot instructions take an even depth, and values of whole vectors"
        if tiles.keys % 2:
            return "dot instructions take keys in pairs"
        return None

    def _buffers(self) -> list[Buffer]:
        return [*super()._buffers(), self.packed_powers]

    @T.macro
    def take_queries(self) -> None:
        """Copy the queries unscaled: the scores are scaled instead."""
        for r, d in T.grid(self.rows, T.vectorized(self.problem.depth)):
            with T.block("take_queries"):
                vr, vd = T.axis.remap("SS", [r, d])
                self.q_scaled[vr, vd] = self.problem.query_elements(self.b, self.h, vr, vd)

    def _scaled(self, score: Expr) -> Expr:
        return score * const(self.problem.scale, FLOAT)

    @T.macro
    def dot_updates(self, dot_tile: Buffer, first: Expr) -> None:
        """Add the products of all rows with the keys from ``first`` on, a word in each lane."""
        lanes, step, words = self.tiles.lanes, self.keys_at_once, self.problem.depth // 2
        rest = words % lanes
        if words >= lanes:
            for d_vector, k, r in T.grid(
                self._over_depth(words // lanes), T.unroll(step), T.unroll(self.rows)
            ):
                with T.block("dot_update"):
                    vd_vector, vk, vr = T.axis.remap("RSS", [d_vector, k, r])
                    self._add_dots(dot_tile, first + vk, vk, vr, vd_vector * lanes, lanes)
        if rest > 0:
            for k, r in T.grid(T.unroll(step), T.unroll(self.rows)):
                with T.block("dot_rest"):
                    vk, vr = T.axis.remap("SS", [k, r])
                    self._add_dots(dot_tile, first + vk, vk, vr, words - rest, rest)

    def _add_dots(
        self, tile: Buffer, key: Expr, k: Expr, r: Expr, word: ExprLike, width: int
    ) -> Stmt:
        at = lanes_from(word * 2, 2 * width)
        keys = self.problem.key_elements(self.b, self.h, self._key(key), at)
        where = (k, r, lanes_from(0, width))
        old = load(tile, *where)
        made = call("dot_accumulate", old, keys, load(self.q_scaled, r, at), dtype=old.dtype)
        return BufferStore(tile, made, where)

    def _power(self, exponent: Expr) -> Expr:
        return exp2_of_negative(exponent, degree=DEGREE)

    def _give_power(self, power: Expr, r: Expr, k: Expr) -> Stmt:
        return store(self.packed_powers, cast(power, NARROW), r, k)

    @T.macro
    def value_update(self, value_tile: Buffer, first: Expr, number: int) -> None:
        """A tile of values: powers times rows of V, by pairs of keys."""
        pairs, step = halved(self.count), self._step(value_tile)
        for pair, part in T.grid(self._ahead(pairs), T.unroll(value_tile.shape[1] // step)):
            with T.block(f"value_update_{number}"):
                vpair, vpart = T.axis.remap("RS", [pair, part])
                self._add_values(value_tile, first, vpair, vpart * step, step)

    def _step(self, tile: Buffer) -> int:
        """The number of elements of a row of V that are interleaved at once."""
        lanes, width = self.tiles.lanes, as_int(tile.shape[1]) or 0
        return 2 * lanes if width % (2 * lanes) == 0 else lanes

    def _add_values(self, tile: Buffer, first: Expr, pair: Expr, start: Expr, step: int) -> Stmt:
        lanes, limit = self.tiles.lanes, as_int(self.limit)
        at = lanes_from(first + start, step)

        def row(k: Expr) -> Expr:
            if limit is not None and limit % 2 == 0:
                return self.problem.value_elements(self.b, self.h, k, at)
            # After the last row come zeros: their powers are zero, but not all products are.
            last = minimum(k, self.limit - 1)
            return zero_unless(
                k < self.limit, self.problem.value_elements(self.b, self.h, last, at)
            )

        key = self.first_key + pair * 2
        words = interleaved(row(key), row(key + 1), lanes)
        lets = [(Var(f"words_{i}", item.dtype), item) for i, item in enumerate(words)]
        stores = []
        for i, (var, _) in enumerate(lets):
            where = lanes_from(start + i * lanes, lanes)
            for r in range(self.rows):
                old = load(tile, r, where)
                power = load(self.packed_powers, r, lanes_from(pair * 2, 2))
                made = call("dot_accumulate", old, as_pairs(var), power, dtype=old.dtype)
                stores.append(BufferStore(tile, made, (const(r), where)))
        return with_lets(lets, seq(*stores))


__all__ = ["DotDecodeKernel"]
