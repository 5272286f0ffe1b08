"""Lower reductions whose loop is bound to threads.

    for tx (threadIdx.x): for k: C[i] = C[i] + A[i, k * 32 + tx]

becomes a sum of each thread's own elements, ``thread_allreduce`` over the threads, and one write.
Runs on blocks, before ``LowerInitBlock``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arith import conjuncts
from tilewright.ir import (
    TRUE,
    Expr,
    Mutator,
    Range,
    Var,
    and_,
    const,
    expr_equal,
    free_vars,
    is_const,
    substitute,
    uses_var,
)
from tilewright.support.errors import LowerError
from tilewright.tir.analysis.reduction import Reduction, match_reduction
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    REDUCE,
    SERIAL,
    SPATIAL,
    UNROLLED,
    VECTORIZED,
    Allocate,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    Stmt,
    seq,
)
from tilewright.tir.thread_scope import is_block_tag, is_private, is_vthread
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.transform.kernels import all_reduce, assigned, register


class LowerCrossThreadReduction(FunctionTransform):
    """Turn reductions over threadIdx loops into all-reduces."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Rewriter().visit)


class _Rewriter(Mutator):
    def __init__(self) -> None:
        self.around: dict[Var, For] = {}  # loops around, up to the next block

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_For(self, node: For) -> Stmt:
        chain: list[For] = []
        body: Stmt = node
        while isinstance(body, For):
            chain.append(body)
            body = body.body
        if isinstance(body, BlockRealize):
            first = _first_thread_reduced(chain, body)
            if first is not None:
                around = {**self.around, **{loop.loop_var: loop for loop in chain[:first]}}
                made = _Nest(chain[first:], body, around).lowered()
                for loop in reversed(chain[:first]):
                    made = loop.replace(body=made)
                return made
        self.around[node.loop_var] = node
        made = self.generic_visit(node)
        del self.around[node.loop_var]
        return made

    def visit_BlockRealize(self, node: BlockRealize) -> BlockRealize:
        for loop in self.around.values():
            if loop.thread is not None and _feeds(loop, _reduced(node)):
                raise LowerError(
                    f"block {node.block.name!r} reduces over the loop on {loop.thread}, which has "
                    "other statements below it, too; bring the loops of the reduction together, "
                    "or make partial results by rfactor"
                )
        around, self.around = self.around, {}
        made = self.generic_visit(node)
        self.around = around
        return made


def _reduced(realize: BlockRealize) -> list[Expr]:
    """The values of a block's reduce iteration variables."""
    pairs = zip(realize.block.iter_vars, realize.iter_values)
    return [value for iter_var, value in pairs if iter_var.kind == REDUCE]


def _feeds(loop: For, values: list[Expr]) -> bool:
    return any(uses_var(value, {loop.loop_var}) for value in values)


def _first_thread_reduced(chain: list[For], realize: BlockRealize) -> int | None:
    """Where in a chain of loops the reduction starts, if threads take part in it."""
    values = _reduced(realize)
    feeding = [number for number, loop in enumerate(chain) if _feeds(loop, values)]
    bound = [chain[number] for number in feeding if chain[number].thread is not None]
    if not bound:
        return None
    for loop in bound:
        if is_block_tag(loop.thread) or is_vthread(loop.thread):
            raise LowerError(
                f"block {realize.block.name!r} reduces over a loop on {loop.thread}; only threads "
                "of one block (threadIdx) can join their results: make partial results by rfactor"
            )
    return feeding[0]


@dataclass
class _Nest:
    """The loops of a reduction and its block, of which the loops on threads are to be joined."""

    chain: list[For]
    realize: BlockRealize
    around: dict[Var, For]

    def lowered(self) -> Stmt:
        """Return the nest as one block with an all-reduce inside."""
        realize, block = self.realize, self.realize.block
        reduction = match_reduction(block)
        if reduction is None:
            raise LowerError(
                f"block {block.name!r} reduces over threads, but is no reduction by a registered "
                "reducer (see tilewright.tir.REDUCERS)"
            )
        self._check_loops()
        mapping: dict[Var, Expr] = {
            iter_var.var: value
            for iter_var, value in zip(block.iter_vars, realize.iter_values)
            if iter_var.kind == REDUCE
        }
        partial = [register(f"{block.name}_partial", b.dtype) for b in reduction.targets]
        joined = [register(f"{block.name}_joined", b.dtype) for b in reduction.targets]
        kept = [
            (iter_var, value)
            for iter_var, value in zip(block.iter_vars, realize.iter_values)
            if iter_var.kind != REDUCE
        ]
        # The predicate goes inside, where loops around are seen through axes of the block only.
        for var in free_vars(realize.predicate):
            if var in self.around:
                loop = self.around[var]
                axis = IterVar(
                    Range.from_min_extent(loop.min, loop.extent), Var(var.name, var.dtype), SPATIAL
                )
                kept.append((axis, var))
                mapping[var] = axis.var
        inner, outer = (substitute(condition, mapping) for condition in self._conditions())
        tags = [loop.thread for loop in self.chain if loop.thread is not None]
        stmt = seq(
            [
                BufferStore(buffer, value, (const(0),))
                for buffer, value in zip(partial, reduction.reducer.identity)
            ],
            self._accumulation(reduction, partial, mapping, inner),
            all_reduce(
                reduction.name,
                [buffer[0] for buffer in partial],
                [buffer[0] for buffer in joined],
                tags,
            ),
            self._write(reduction, joined, outer),
        )
        for buffer in (*partial, *joined):
            stmt = Allocate(buffer, stmt)
        for loop in reversed([loop for loop in self.chain if loop.thread is not None]):
            stmt = loop.replace(body=stmt)
        made = block.replace(
            iter_vars=tuple(iter_var for iter_var, _ in kept),
            reads=tuple(region.buffer.region() for region in block.reads),
            body=stmt,
            init=None,
        )
        return BlockRealize(tuple(value for _, value in kept), TRUE, made)

    def _check_loops(self) -> None:
        block = self.realize.block
        variables = {loop.loop_var for loop in self.chain}
        for iter_var, value in zip(block.iter_vars, self.realize.iter_values):
            if iter_var.kind != REDUCE and uses_var(value, variables):
                raise LowerError(
                    f"block {block.name!r}: its spatial axis {iter_var.var.name} is bound to a "
                    "loop at or below the first loop of a reduction over threads; reorder so that "
                    "the loops of the reduction are the innermost"
                )
        reduced = _reduced(self.realize)
        if any(uses_var(value, self.around) for value in reduced):
            raise LowerError(
                f"block {block.name!r} reduces over threads and over a loop that has other "
                "statements below it, too; bring the loops of the reduction together, or make "
                "partial results by rfactor"
            )
        for loop in self.chain:
            if not is_const(loop.extent, 1) and not _feeds(loop, reduced):
                raise LowerError(
                    f"block {block.name!r}: loop {loop.loop_var.name!r} inside a reduction over "
                    "threads repeats it; remove the loop or move it outside"
                )
            if loop.thread is None and loop.kind not in (SERIAL, UNROLLED, VECTORIZED):
                raise LowerError(
                    f"block {block.name!r} reduces over a {loop.kind} loop beside threads"
                )
        if block.match_buffers:
            raise LowerError(f"block {block.name!r} reduces over threads and matches buffers")

    def _conditions(self) -> tuple[Expr, Expr]:
        """The predicate, and the part of it that the reduction's loops have no part in."""
        variables = {loop.loop_var for loop in self.chain}
        outer = [
            item for item in conjuncts(self.realize.predicate) if not uses_var(item, variables)
        ]
        return self.realize.predicate, and_(*outer)

    def _accumulation(
        self,
        reduction: Reduction,
        partial: list[Buffer],
        mapping: dict[Var, Expr],
        condition: Expr,
    ) -> Stmt:
        """``partial = reducer(partial, values)`` over the loops that are not bound."""
        own = [buffer[0] for buffer in partial]
        values = [substitute(value, mapping) for value in reduction.values]
        stmt = assigned(own, reduction.reducer.combine(own, values))
        if condition is not TRUE:
            stmt = IfThenElse(condition, stmt)
        for loop in reversed(self.chain):
            if loop.thread is None:
                kind = SERIAL if loop.kind == VECTORIZED else loop.kind
                stmt = loop.replace(body=stmt, kind=kind)
        return stmt

    def _write(self, reduction: Reduction, joined: list[Buffer], condition: Expr) -> Stmt:
        """Write the result: by one thread, or by all into memory that each has of its own."""
        results: tuple[Expr, ...] = tuple(buffer[0] for buffer in joined)
        neutral = all(map(expr_equal, reduction.initial, reduction.reducer.identity))
        if not neutral:
            results = reduction.reducer.combine(reduction.initial, results)
        private = [is_private(target.scope) for target in reduction.targets]
        if any(private) and not all(private):
            raise LowerError(
                f"block {self.realize.block.name!r} writes both private and shared memory"
            )
        if not private[0]:
            first = [loop.loop_var == 0 for loop in self.chain if loop.thread is not None]
            condition = and_(condition, *first)
        targets = [BufferLoad(buffer, reduction.indices) for buffer in reduction.targets]
        stmt = assigned(targets, results)
        return stmt if condition is TRUE else IfThenElse(condition, stmt)
