"""Attention over many queries of half floats on tensor cores: FlashAttention-2 (Dao 2023).

As :mod:`.prefill`, but both products are ``mma.m16n8k16``: a warp has sixteen queries, whose
fragments it loads once. The lanes' scores lie where the second product wants its left operand, so
powers never leave registers: they are rounded to half floats in place.

::

    fragment of 16 x 16    lane l has rows l / 4 and l / 4 + 8, and columns 2 (l % 4) + {0, 1, 8, 9}
    keys, values           through shared memory by ``ldmatrix``, values turned by it; rows are
                           eight elements longer than their contents, so that no two meet in a bank

Four lanes share a query: maxima and sums are joined by two shuffles. While a block of keys is
multiplied, the next ones are copied asynchronously into other ``stages`` of shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    ExprLike,
    Var,
    as_expr,
)
from tilewright.kernels.gpu.attention.common import (
    QueryTileKernel,
    Tile,
    exp2,
    inverse,
    shift_of,
)
from tilewright.kernels.gpu.lanes import WARP, from_other_lane
from tilewright.kernels.gpu.sizes import MOST_THREADS
from tilewright.kernels.problems.attention import FLOAT, Attention
from tilewright.script import tir as T
from tilewright.tir import Buffer, decl_buffer

CAPABILITY = 80
"""The compute capability from which GPUs have the product."""

# Rows, columns and depth of the fragments; elements that a lane has of each.
_SIDE, _OWN = 16, 8
# By so many elements rows of shared memory are longer than their contents: 16 bytes.
_PAD = 8
# The longest heads whose fragments fit into registers.
_DEPTH = 128
_KINDS = {"float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class PrefillWarps:
    """Sizes: warps of a block, each with sixteen queries, and keys that are processed together.

    ``stages`` blocks of keys are in shared memory at a time: one, or others on their way. If
    ``stacked``, the queries of all heads that share keys make one sequence of rows.
    """

    warps: int
    keys: int
    stacked: bool = False
    stages: int = 2

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps * WARP

    @property
    def key_tile(self) -> int:
        """Keys that are processed together."""
        return self.keys

    @property
    def query_tile(self) -> int:
        """Queries of a block."""
        return self.warps * _SIDE

    def fault(self, problem: Attention) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if self.warps < 1 or self.threads > MOST_THREADS:
            return f"a block has at least one warp, and up to {MOST_THREADS} threads"
        if self.stages < 1:
            return "there is at least one stage"
        if self.keys < _SIDE or self.keys % _SIDE:
            return f"keys is a multiple of {_SIDE}"
        if problem.query.dtype not in _KINDS:
            return f"tensor cores multiply {' and '.join(_KINDS)} here"
        depths = problem.depth, problem.value_depth
        if any(depth % _SIDE or depth > _DEPTH for depth in depths):
            return f"the depth of heads is a multiple of {_SIDE}, up to {_DEPTH}"
        return None

    def shared_bytes(self, problem: Attention) -> int:
        """Bytes of shared memory."""
        depth, width = problem.depth + _PAD, problem.value_depth + _PAD
        return 2 * max(self.query_tile * depth, self.stages * self.keys * (depth + width))


class PrefillMmaKernel(QueryTileKernel):
    """Builds the body of the function; see the module's docstring."""

    def __init__(self, problem: Attention, sizes: PrefillWarps) -> None:
        super().__init__(problem, sizes.threads, sizes)
        self.sizes = sizes
        self.dtype = problem.query.dtype
        depth, width = problem.depth, problem.value_depth
        self.queries = Tile.of("queries", sizes.query_tile, depth, self.dtype, _PAD)
        rows = sizes.stages * sizes.keys
        self.keys = Tile.of("keys", rows, depth, self.dtype, _PAD)
        self.values = Tile.of("values", rows, width, self.dtype, _PAD)
        half = {"query": depth // 2, "operand": _OWN, "powers": _OWN}
        wide = {
            "scores": sizes.keys // 2,
            "sums": width // 2,
            "top": 2,
            "total": 2,
            "rescale": 2,
        }
        self.own = {
            name: decl_buffer((size,), dtype, f"own_{name}", scope="local")
            for dtype, sizes_of in ((self.dtype, half), (FLOAT, wide))
            for name, size in sizes_of.items()
        }

    # ---- the algorithm ----

    @T.macro
    def attention(self) -> None:
        """Process the keys of each tile of queries block by block."""
        for tile, thread in T.grid(
            T.thread_binding(self.tiles(), thread="blockIdx.x"),
            T.thread_binding(self.threads, thread="threadIdx.x"),
        ):
            with T.block("attention_tile"):
                vtile, vthread = T.axis.remap("SS", [tile, thread])
                for buffer in self.own.values():
                    T.alloc_buffer(buffer)
                self.enter(vtile, vthread)
                with T.block("load_queries"):
                    T.alloc_buffer(self.queries.buffer)
                    self.copy_rows(self.queries, self._raw_query, self.first_row, self.problem.rows)
                    self.take_queries()
                self.clear()
                with T.block("key_blocks"):
                    for tile_of in (self.keys, self.values):
                        T.alloc_buffer(tile_of.buffer)
                    for ahead in T.unroll(self.sizes.stages - 1):
                        self.fetch(ahead, ahead)
                    for k_block in T.serial(self.block_count):
                        next_block = T.meta_var(k_block + (self.sizes.stages - 1))
                        self.fetch(next_block, next_block % self.sizes.stages)
                        T.evaluate(T.ptx_wait_group(self.sizes.stages - 1))
                        # A thread has waited for its own copies only.
                        T.evaluate(T.storage_sync("shared", dtype="void"))
                        self.at_keys(k_block)
                        self.scores()
                        self.softmax()
                        self.weigh()
                    T.evaluate(T.ptx_wait_group(0))
                self.finish()

    @T.macro
    def fetch(self, k_block: Expr, stage: Expr) -> None:
        """Start to copy a block of keys and values into a stage, if there is one."""
        if k_block < self.block_count:
            first = T.meta_var((self.first_block + k_block) * self.sizes.keys)
            self.fetch_rows(self.keys, self._raw_key, first, stage * self.sizes.keys)
            self.fetch_rows(self.values, self._raw_value, first, stage * self.sizes.keys)
        T.evaluate(T.ptx_commit_group())

    @T.macro
    def fetch_rows(
        self, tile: Tile, read: Callable[[Expr, Expr], Expr], start: Expr, to: Expr
    ) -> None:
        """Start to copy rows from ``start`` on; zeros beyond the last key."""
        per_row = tile.width // _OWN
        count, end = self.sizes.keys * per_row, self.problem.key_count(self.b)
        for i in T.serial(-(-count // self.threads)):
            place = T.meta_var(i * self.threads + self.thread)
            if count % self.threads == 0 or place < count:
                row, column = T.meta_var(place // per_row), T.meta_var(place % per_row * _OWN)
                lanes = T.meta_var(T.Ramp(column, 1, _OWN))
                target = T.meta_var(tile.buffer[tile.at(to + row, lanes)])
                # Where nothing is read, the address is of some row.
                source = T.meta_var(read(T.min(start + row, end - 1), lanes))
                kept = T.meta_var(T.Select(start + row < end, T.int64(16), T.int64(0)))
                T.evaluate(T.ptx_cp_async(T.address_of(target), T.address_of(source), 16, kept))

    @T.macro
    def take_queries(self) -> None:
        """Load the fragments of the warp's queries."""
        row = T.meta_var(self.warp * _SIDE + self.lane % _SIDE)
        for part in T.unroll(self.problem.depth // _SIDE):
            column = T.meta_var(part * _SIDE + self.lane // _SIDE * _OWN)
            self._load(0, self.own["query"], part * _OWN, self.queries, row, column)

    @T.macro
    def scores(self) -> None:
        """Products of the warp's queries and all keys of the block."""
        for i in T.unroll(self.sizes.keys // 2):
            self.own["scores"][i] = T.float32(0)
        # Two keys' tiles beside each other; rows of K are columns of the right operand.
        row = T.meta_var(self.stage_row + self.lane // _SIDE * _OWN + self.lane % _OWN)
        column = T.meta_var(self.lane % _SIDE // _OWN * _OWN)
        for part in T.unroll(self.problem.depth // _SIDE):
            for k in T.unroll(self.sizes.keys // _SIDE):
                self._load(
                    0, self.own["operand"], 0, self.keys, k * _SIDE + row, part * _SIDE + column
                )
                self.multiply(self.own["query"], part * _OWN, self.own["scores"], k * _OWN)

    @T.macro
    def multiply(self, left: Buffer, first: ExprLike, sums: Buffer, to: ExprLike) -> None:
        """Add the product of a fragment and the loaded one to 16 x 16 sums, half by half."""
        for half in T.unroll(2):
            T.evaluate(
                T.ptx_mma(
                    "m16n8k16", "row", "col", _KINDS[self.dtype], _KINDS[self.dtype], "fp32",
                    T.address_of(left[T.Ramp(first, 1, _OWN)]),
                    T.address_of(self.own["operand"][T.Ramp(half * 4, 1, 4)]),
                    T.address_of(sums[T.Ramp(to + half * 4, 1, 4)]),
                )
            )  # fmt: skip

    @T.macro
    def softmax(self) -> None:
        """Apply scale and masks; turn scores, less their maximum, into powers; rescale sums."""
        scores, top, total = self.own["scores"], self.own["top"], self.own["total"]
        for i in T.unroll(self.sizes.keys // 2):
            row, key = T.meta_var(self._row(i % 4 // 2)), T.meta_var(self._key(i))
            scores[i] = self.masked(scores[i] * T.float32(self.problem.scale), row, key)
        for r in T.unroll(2):
            before = top[r]
            for pair in T.unroll(self.sizes.keys // 8):
                for i in T.unroll(2):
                    top[r] = T.max(top[r], scores[pair * 4 + r * 2 + i])
            for step in (2, 1):
                other = self._from_column(top[r], step)
                top[r] = T.max(top[r], other)
            shift = shift_of(top[r])
            self.own["rescale"][r] = exp2(before - shift)
            total[r] = total[r] * self.own["rescale"][r]
            for pair in T.unroll(self.sizes.keys // 8):
                for i in T.unroll(2):
                    at = T.meta_var(pair * 4 + r * 2 + i)
                    scores[at] = exp2(scores[at] - shift)
                    total[r] = total[r] + scores[at]
            for pair in T.unroll(self.problem.value_depth // 8):
                for i in T.unroll(2):
                    at = T.meta_var(pair * 4 + r * 2 + i)
                    self.own["sums"][at] = self.own["sums"][at] * self.own["rescale"][r]

    @T.macro
    def weigh(self) -> None:
        """Add the block's values, weighted by the powers."""
        row = T.meta_var(self.stage_row + self.lane % _SIDE)
        column = T.meta_var(self.lane // _SIDE * _OWN)
        powers = self.own["powers"]
        for k in T.unroll(self.sizes.keys // _SIDE):
            for i in T.unroll(_OWN):
                powers[i] = T.Cast(self.dtype, self.own["scores"][k * _OWN + i])
            for part in T.unroll(self.problem.value_depth // _SIDE):
                self._load(
                    1, self.own["operand"], 0, self.values, k * _SIDE + row, part * _SIDE + column
                )
                self.multiply(powers, 0, self.own["sums"], part * _OWN)

    @T.macro
    def finish(self) -> None:
        """Divide the values by the sums of the powers and write them; zeros if no key was seen."""
        total = self.own["total"]
        for r in T.unroll(2):
            for step in (2, 1):
                other = self._from_column(total[r], step)
                total[r] = total[r] + other
            total[r] = inverse(total[r])
            if self._row(r) < self.problem.rows:
                for pair in T.unroll(self.problem.value_depth // 8):
                    for i in T.vectorized(2):
                        d = T.meta_var(pair * 8 + self.lane % 4 * 2 + i)
                        where = T.meta_var(self.problem.result_at(self.b, self.h, self._row(r), d))
                        self.problem.out[where] = T.Cast(
                            self.dtype, self.own["sums"][pair * 4 + r * 2 + i] * total[r]
                        )

    # ---- where the warp is ----

    def enter(self, tile: Var, thread: Var) -> None:
        """Enter a tile of queries."""
        super().enter(tile, thread)
        self.warp, self.lane = thread // WARP, thread % WARP

    def at_keys(self, k_block: Var) -> None:
        """Enter a block of keys, which is in a stage."""
        super().at_keys(k_block)
        self.stage_row = simplify(k_block % self.sizes.stages * self.sizes.keys)

    def _row(self, r: ExprLike) -> Expr:
        """A query of the lane in the sequence: one of two."""
        return self.first_row + self.warp * _SIDE + self.lane // 4 + as_expr(r) * 8

    def _from_column(self, value: Expr, step: int) -> Expr:
        return from_other_lane(value, step, 4, self.threads)

    # ---- elements ----

    def _load(
        self, turn: int, target: Buffer, to: ExprLike, tile: Tile, row: Expr, column: Expr
    ) -> Expr:
        """Load a fragment; each lane brings the address of eight elements of a row."""
        source = tile.buffer[T.Ramp(tile.at(row, column), 1, _OWN)]
        where = target[T.Ramp(to, 1, _OWN)]
        made: Expr = T.ptx_ldmatrix(turn, 4, ".b16", T.address_of(where), T.address_of(source))
        return made

    def _raw_query(self, row: Expr, d: Expr) -> Expr:
        return self.problem.query_elements(self.b, self.h, row, d)

    def _raw_key(self, k: Expr, d: Expr) -> Expr:
        return self.problem.key_elements(self.b, self.h, k, d)

    def _raw_value(self, k: Expr, d: Expr) -> Expr:
        return self.problem.value_elements(self.b, self.h, k, d)

    def _key(self, i: Expr) -> Expr:
        """The key of a lane's ``i``-th score."""
        return self.first_key + i // 4 * 8 + self.lane % 4 * 2 + i % 2


__all__ = ["CAPABILITY", "PrefillMmaKernel", "PrefillWarps"]
