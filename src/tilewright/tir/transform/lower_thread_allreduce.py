"""Lower ``thread_allreduce`` to shuffles within warps and shared memory between them.

Three ways, by the number of threads that join and how they lie in warps:

- within a warp: butterfly of ``warp_shuffle_xor`` (a power of two), or ``warp_shuffle_down`` and a
  broadcast (any number, if the block has no other threads);
- whole warps: the butterfly in each, then one value per warp through shared memory;
- else: a tree in shared memory, where neighbouring threads have neighbouring places.

The barriers that this needs are put in by ``ThreadSync``, which runs later.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import (
    Call,
    Expr,
    IntImm,
    Mutator,
    Var,
    and_,
    call,
    const,
    is_const,
)
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.interpreter.emit_threads import all_reduce_operands
from tilewright.tir.reducer import REDUCERS, CommReducer
from tilewright.tir.rewrite import index_var
from tilewright.tir.stmt import (
    SERIAL,
    Allocate,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.transform.kernels import (
    THREAD_TAGS,
    assigned,
    call_name,
    map_kernels,
    register,
    thread_nest,
)


class LowerThreadAllreduce(FunctionTransform):
    """Remove ``thread_allreduce``; warps have ``warp_size`` threads."""

    def __init__(self, warp_size: int = 32) -> None:
        if warp_size not in (32, 64):
            raise LowerError(f"warps have 32 or 64 threads, got warp_size={warp_size}")
        self.warp_size = warp_size

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return map_kernels(func, lambda kernel: _Rewriter(kernel, self.warp_size).visit(kernel))


class _Rewriter(Mutator):
    def __init__(self, kernel: For, warp_size: int) -> None:
        self.threads = {loop.thread or "": loop for loop in thread_nest(kernel)[0]}
        self.warp_size = warp_size
        self.conditions = 0

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_IfThenElse(self, node: IfThenElse) -> IfThenElse:
        self.conditions += 1
        made = self.generic_visit(node)
        self.conditions -= 1
        return made

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        if call_name(node) != "thread_allreduce":
            return node
        if self.conditions:
            raise LowerError(
                "a thread_allreduce is under a condition: all threads of a block must reach it"
            )
        assert isinstance(node.value, Call)
        return _Reduction(node.value, self.threads, self.warp_size).lowered()


class _Reduction:
    """One all-reduce, and how its threads are numbered."""

    def __init__(self, node: Call, loops: dict[str, For], warp_size: int) -> None:
        name, self.values, addresses, tags = all_reduce_operands(node)
        self.reducer: CommReducer = REDUCERS.get(name)(*(value.dtype for value in self.values))
        self.results = [address.args[0] for address in addresses]
        self.warp_size = warp_size
        self.accumulators = [register(f"reduced_{n}", v.dtype) for n, v in enumerate(self.values)]
        self.own = [buffer[0] for buffer in self.accumulators]
        self.size, self.groups = 1, 1
        self.index: Expr = const(0)  # among the threads that join
        self.group: Expr = const(0)  # which of the groups that join
        self.lowest = True  # the threads that join are neighbours in warps
        self.side_by_side = False  # those of different groups are
        for tag in tags:
            if tag not in loops:
                raise LowerError(
                    f"a thread_allreduce joins threads along {tag}, which its kernel has no loop "
                    f"on at its top (it has: {', '.join(loops) or 'none'}); run LiftThreadBinding"
                )
        for tag in THREAD_TAGS:
            loop = loops.get(tag)
            if loop is None or is_const(loop.extent, 1):
                continue
            if not isinstance(loop.extent, IntImm):
                raise LowerError(
                    f"threads of a block are joined, so the extent of {tag} must be a constant, "
                    f"got {loop.extent!r}"
                )
            if tag in tags:
                self.lowest = self.lowest and self.groups == 1
                self.index = self.index + loop.loop_var * self.size
                self.size *= loop.extent.value
            else:
                self.side_by_side = self.side_by_side or self.size == 1
                self.group = self.group + loop.loop_var * self.groups
                self.groups *= loop.extent.value

    def lowered(self) -> Stmt:
        """Return statements without all-reduce."""
        size, warp = self.size, self.warp_size
        power = size & (size - 1) == 0
        steps: list[Stmt] = [assigned(self.own, self.values)]
        source: Sequence[Expr] = self.own
        buffers: list[Buffer] = []
        if size == 1:
            pass
        elif self.lowest and size <= warp and power:
            steps += self._butterfly(size)
        elif self.lowest and size < warp and self.groups == 1:
            steps += self._down(size)
        elif self.lowest and size % warp == 0:
            steps += self._butterfly(warp)
            buffers = self._shared(size // warp)
            steps += self._through(buffers, size // warp)
        else:
            buffers = self._shared(size)
            steps += self._tree(buffers)
            source = [BufferLoad(buffer, (self._place(const(0)),)) for buffer in buffers]
        body = seq(*steps, assigned(self.results, source))
        for buffer in (*buffers, *self.accumulators):
            body = Allocate(buffer, body)
        return body

    # ---- within a warp --------------------------------------------------------------------

    def _mask(self) -> Expr:
        """The lanes that run: all threads of the block."""
        total = self.size * self.groups
        dtype = f"uint{self.warp_size}"
        if total % self.warp_size == 0:
            return const(2**self.warp_size - 1, dtype)
        if total < self.warp_size:
            return const(2**total - 1, dtype)
        return call("warp_activemask", dtype=dtype)

    def _exchange(self, kind: str, operand: int, width: int) -> tuple[list[Var], list[Expr]]:
        names = [Var(f"other_{n}", load.dtype) for n, load in enumerate(self.own)]
        calls = [
            call(kind, self._mask(), load, operand, width, dtype=load.dtype) for load in self.own
        ]
        return names, calls

    def _joined(self, kind: str, operand: int, width: int, condition: Expr) -> Stmt:
        """Combine the own values with those that a shuffle brings."""
        names, calls = self._exchange(kind, operand, width)
        stmt = assigned(self.own, self.reducer.combine(self.own, names))
        if not is_const(condition, 1):
            stmt = IfThenElse(condition, stmt)
        for name, value in reversed(list(zip(names, calls))):
            stmt = LetStmt(name, value, stmt)
        return stmt

    def _butterfly(self, size: int) -> list[Stmt]:
        steps = [1 << n for n in reversed(range(size.bit_length() - 1))]
        return [self._joined("warp_shuffle_xor", step, size, and_()) for step in steps]

    def _down(self, size: int) -> list[Stmt]:
        steps = [1 << n for n in reversed(range((size - 1).bit_length()))]
        made = [
            self._joined("warp_shuffle_down", step, self.warp_size, self.index + step < size)
            for step in steps
        ]
        _, calls = self._exchange("warp_shuffle", 0, self.warp_size)
        return [*made, assigned(self.own, calls)]

    # ---- through shared memory ------------------------------------------------------------

    def _shared(self, count: int) -> list[Buffer]:
        return [
            Buffer(f"joined_{n}", (const(self.groups * count),), value.dtype, scope="shared")
            for n, value in enumerate(self.values)
        ]

    def _through(self, buffers: list[Buffer], count: int) -> list[Stmt]:
        """One value per warp goes to shared memory; each thread joins them all."""
        start = self.group * count
        warp = self.index // self.warp_size
        put = seq(BufferStore(b, own, (start + warp,)) for b, own in zip(buffers, self.own))
        first = assigned(self.own, [BufferLoad(b, (start,)) for b in buffers])
        var = index_var("warp")
        others = [BufferLoad(buffer, (start + var,)) for buffer in buffers]
        join = assigned(self.own, self.reducer.combine(self.own, others))
        return [
            IfThenElse(self.index % self.warp_size == 0, put),
            first,
            For(var, const(1), const(count - 1), SERIAL, join),
        ]

    def _place(self, index: Expr) -> Expr:
        """Where a tree has the value of a thread of the own group: neighbours meet in no bank."""
        if self.side_by_side:
            return index * self.groups + self.group
        return self.group * self.size + index

    def _tree(self, buffers: list[Buffer]) -> list[Stmt]:
        """Halve the number of values until one is left."""
        size = self.size
        mine = [BufferLoad(buffer, (self._place(self.index),)) for buffer in buffers]
        made: list[Stmt] = [assigned(mine, self.own)]
        for step in [1 << n for n in reversed(range((size - 1).bit_length()))]:
            others = [BufferLoad(buffer, (self._place(self.index + step),)) for buffer in buffers]
            join = assigned(mine, self.reducer.combine(mine, others))
            condition = and_(self.index < step, self.index + step < size)
            made.append(IfThenElse(condition, join))
        return made
