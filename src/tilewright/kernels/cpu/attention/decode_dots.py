"""Attention of a few queries over many keys in bfloat16, by dot instructions.

The kernel of :mod:`.decode` with products of words as in :mod:`.dots`: keys and
queries are multiplied as they lie, rows of values are interleaved two by two on their way to the
registers. No element is converted, so that memory is what limits groups of heads too.
"""

from __future__ import annotations

from tilewright.ir import Expr, Var, as_int, call, cast, const, minimum
from tilewright.kernels.cpu.attention.common import FLOAT, Attention, exp2_of_negative
from tilewright.kernels.cpu.attention.decode import DecodeKernel, DecodeTiles
from tilewright.kernels.cpu.attention.dots import (
    DEGREE,
    NARROW,
    as_pairs,
    halved,
    interleaved,
    zero_unless,
)
from tilewright.tir import (
    REDUCE,
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


class DotDecodeKernel(DecodeKernel):
    """Builds the body of the function; see the module's text."""

    def __init__(self, problem: Attention, tiles: DecodeTiles) -> None:
        super().__init__(problem, tiles)
        self.q_scaled = decl_buffer((self.rows, problem.depth), NARROW, "queries")
        self.powers = decl_buffer((self.rows, tiles.keys), NARROW, "powers")

    @staticmethod
    def fault(problem: Attention, tiles: DecodeTiles) -> str | None:
        """Say why dot instructions don't do for a problem, if so."""
        if problem.query.dtype != NARROW:
            return f"dot instructions take {NARROW}, the operands are {problem.query.dtype}"
        if problem.depth % 2 or problem.value_depth % tiles.lanes:
            return "dot instructions take an even depth, and values of whole vectors"
        if tiles.keys % 2:
            return "dot instructions take keys in pairs"
        return None

    def _buffers(self) -> list[Buffer]:
        return [*super()._buffers(), self.powers]

    def _take_queries(self) -> Stmt:
        def take(r: Var, d: Var) -> Stmt:
            return store(self.q_scaled, self.problem.query_elements(self.b, self.h, r, d), r, d)

        axes = [Axis("r", self.rows), Axis("d", self.problem.depth, VECTORIZED)]
        return block("take_queries", axes, take)

    def _scaled(self, score: Expr) -> Expr:
        return score * const(self.problem.scale, FLOAT)

    def _dot_updates(self, tile: Buffer, first: Expr, inner: list[Axis]) -> Stmt:
        lanes, words = self.tiles.lanes, self.problem.depth // 2

        def product(k: Expr, r: Expr, word: Expr, width: int) -> Stmt:
            at = lanes_from(word * 2, 2 * width)
            key = self.problem.key_elements(self.b, self.h, self._key(first + k), at)
            where = (k, r, lanes_from(0, width))
            old = load(tile, *where)
            made = call("dot_accumulate", old, key, load(self.q_scaled, r, at), dtype=old.dtype)
            return BufferStore(tile, made, where)

        stmts, rest = [], words % lanes
        if words >= lanes:
            axes = [self._depth_axis(words // lanes), *inner[:-1]]
            stmts.append(block("dot_update", axes, lambda c, k, r: product(k, r, c * lanes, lanes)))
        if rest:
            last = const(words - rest)
            stmts.append(block("dot_rest", inner[:-1], lambda k, r: product(k, r, last, rest)))
        return seq(*stmts)

    def _power(self, exponent: Expr) -> Expr:
        return exp2_of_negative(exponent, degree=DEGREE)

    def _give_power(self, power: Expr, r: Expr, k: Expr) -> Stmt:
        return store(self.powers, cast(power, NARROW), r, k)

    def _value_update(self, tile: Buffer, first: Expr, number: int, inner: list[Axis]) -> Stmt:
        lanes, width = self.tiles.lanes, as_int(tile.shape[1])
        assert width is not None
        step = 2 * lanes if width % (2 * lanes) == 0 else lanes
        limit = as_int(self.limit)

        def row(k: Expr, d: Expr) -> Expr:
            at = lanes_from(first + d, step)
            if limit is not None and limit % 2 == 0:
                return self.problem.value_elements(self.b, self.h, k, at)
            # After the last row come zeros: their powers are zero, but not all products are.
            last = minimum(k, self.limit - 1)
            return zero_unless(
                k < self.limit, self.problem.value_elements(self.b, self.h, last, at)
            )

        def update(pair: Var, part: Var) -> Stmt:
            key = self.first_key + pair * 2
            words = interleaved(row(key, part * step), row(key + 1, part * step), lanes)
            lets = [(Var(f"words_{i}", item.dtype), item) for i, item in enumerate(words)]
            stores = []
            for i, (var, _) in enumerate(lets):
                where = lanes_from(part * step + i * lanes, lanes)
                for r in range(self.rows):
                    old = load(tile, r, where)
                    power = load(self.powers, r, lanes_from(pair * 2, 2))
                    made = call("dot_accumulate", old, as_pairs(var), power, dtype=old.dtype)
                    stores.append(BufferStore(tile, made, (const(r), where)))
            body = seq(*stores)
            for var, value in reversed(lets):
                body = LetStmt(var, value, body)
            return body

        pairs = Axis("pair", halved(self.count), kind=REDUCE, ahead=self.tiles.ahead)
        return block(
            f"value_update_{number}", [pairs, Axis("part", width // step, UNROLLED)], update
        )


__all__ = ["DotDecodeKernel"]
