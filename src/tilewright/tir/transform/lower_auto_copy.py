"""Carry out the copies of blocks with the annotation ``auto_copy``, as ``read_at`` makes them.

The elements of a tile are numbered in row-major order of the copy's loops. In a kernel they are
dealt out to the threads of the block in vectors of up to 16 bytes, neighbours to neighbours, so
that a warp's accesses of global memory coalesce; outside of kernels the innermost loop becomes
vectors. What the pass can't deal out (extents that are not known, a target that every thread has
for itself, other bodies than a copy) stays the copy that the block is.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    TRUE,
    Expr,
    Range,
    Var,
    as_int,
    const,
    dtypes,
    floordiv,
    floormod,
    free_vars,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir.analysis import is_injective_binding
from tilewright.tir.attrs import AUTO_COPY
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import index_var
from tilewright.tir.stmt import (
    SERIAL,
    THREAD_BINDING,
    VECTORIZED,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    Stmt,
)
from tilewright.tir.thread_scope import is_private
from tilewright.tir.transform.base import AnnotatedBlocks, FunctionTransform, bind_loop
from tilewright.tir.transform.kernels import THREAD_TAGS

_VECTOR_BYTES = 16


class LowerAutoCopy(FunctionTransform):
    """Rewrite annotated copies; runs while there are blocks, before thread loops are unified."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return _Rewriter.applied(func)


class _Rewriter(AnnotatedBlocks):
    annotation = AUTO_COPY

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__(analyzer)
        self.kernel: dict[str, int] | None = None  # extents of the thread tags of the kernel
        self.around: dict[str, For] = {}

    def visit_For(self, node: For) -> For:
        bind_loop(self.analyzer, node)
        outermost = node.thread is not None and self.kernel is None
        if outermost:
            self.kernel = _thread_extents(node)
        around = self.around
        if node.thread is not None:
            self.around = {**around, node.thread: node}
        made = self.generic_visit(node)
        self.around = around
        if outermost:
            self.kernel = None
        return made

    def rewritten(self, node: BlockRealize) -> BlockRealize:
        """Divide what the block copies among threads, in vectors."""
        loops: list[For] = []
        body = node.block.body
        while isinstance(body, For) and body.kind == SERIAL:
            loops.append(body)
            body = body.body
        guard: Expr = TRUE
        if isinstance(body, IfThenElse) and body.else_case is None:
            guard, body = body.condition, body.then_case
        extents = [as_int(loop.extent) for loop in loops]
        if (
            isinstance(body, BufferStore)
            and isinstance(body.value, BufferLoad)
            and extents
            and all(extents)
        ):
            known = [extent for extent in extents if extent is not None]
            made = self.copied(loops, known, guard, body)
            if made is not None:
                return node.replace(block=node.block.replace(body=made))
        return node

    def copied(
        self, loops: list[For], extents: list[int], guard: Expr, store: BufferStore
    ) -> Stmt | None:
        """The copy dealt out to threads and vectors, or ``None`` if that can't be proven right."""
        variables = [loop.loop_var for loop in loops]
        domain = {
            var: Range.from_min_extent(const(0, var.dtype), const(n))
            for var, n in zip(variables, extents)
        }
        starts = {loop.loop_var: loop.loop_var + loop.min for loop in loops}
        places = tuple(substitute(index, starts) for index in store.indices)
        if not is_injective_binding(places, domain, analyzer=lambda: self.analyzer):
            return None  # two iterations store to one place
        threads = self.threads(store)
        vector = _vector(store, guard, variables, extents)
        total = 1
        for extent in extents:
            total *= extent
        workers = 1
        for _, extent, _ in threads:
            workers *= extent
        worker: Expr = const(0)
        for var, extent, _ in threads:
            worker = worker * extent + var
        step, lane = index_var("step"), index_var("lane")
        rounds = -(-total // (workers * vector))
        number = (step * workers + worker) * vector + lane
        body: Stmt = store if guard is TRUE else IfThenElse(guard, store)
        rest, values = number, {}
        for loop, extent in zip(reversed(loops[1:]), reversed(extents[1:])):
            values[loop.loop_var] = floormod(rest, const(extent)) + loop.min
            rest = floordiv(rest, const(extent))
        values[variables[0]] = rest + loops[0].min
        ranges = {step: rounds, lane: vector} | {var: extent for var, extent, _ in threads}
        for var, extent in ranges.items():
            self.analyzer.bind(var, Range.from_min_extent(const(0), const(extent)), override=True)
        simple = {var: self.analyzer.simplify(value) for var, value in values.items()}
        body = substitute(body, simple)
        body = For(lane, const(0), const(vector), VECTORIZED if vector > 1 else SERIAL, body)
        if rounds * workers * vector != total:
            whole = (step * workers + worker) * vector
            body = IfThenElse(self.analyzer.simplify(whole) < total, body)
        body = For(step, const(0), const(rounds), SERIAL, body)
        for var, extent, tag in reversed(threads):
            if tag:
                body = For(var, const(0), const(extent), THREAD_BINDING, body, tag)
        return body

    def threads(self, store: BufferStore) -> list[tuple[Var, int, str]]:
        """Threads that share the copy: index, extent, and the tag if a loop has to be made."""
        if self.kernel is None or is_private(store.buffer.scope):
            return []
        load: Any = store.value
        own = {loop.loop_var for tag, loop in self.around.items() if tag in self.kernel}
        if is_private(load.buffer.scope) or not own.isdisjoint(free_vars(store)):
            return []  # each thread copies something of its own
        if len(own) not in (0, len(self.kernel)):
            return []
        made = []
        for tag in reversed(THREAD_TAGS):
            extent = self.kernel.get(tag)
            if extent is None:
                continue
            loop = self.around.get(tag)
            if loop is None:
                made.append((index_var(tag.replace(".", "_")), extent, tag))
            elif as_int(loop.extent) == extent and as_int(loop.min) == 0:
                made.append((loop.loop_var, extent, ""))
            else:
                return []
        return made


def _thread_extents(kernel: For) -> dict[str, int]:
    """The largest extent of each ``threadIdx`` in a kernel; empty if one is not known."""
    found: dict[str, int] = {}
    for item in pre_order(kernel):
        if isinstance(item, For) and item.thread in THREAD_TAGS:
            extent = as_int(item.extent)
            if extent is None:
                return {}
            found[item.thread] = max(found.get(item.thread, 1), extent)
    return found


def _vector(store: BufferStore, guard: Expr, variables: list[Var], extents: list[int]) -> int:
    """Elements that one access moves: a power of two that divides the innermost extent."""
    load: Any = store.value
    inner = variables[-1]
    if guard is not TRUE or load.buffer.dtype != store.buffer.dtype:
        return 1
    for node in (store, load):
        if node.buffer.strides or not node.indices or node.buffer.elem_offset is not None:
            return 1
        *outer, last = node.indices
        if any(uses_var(index, {inner}) for index in outer) or not uses_var(last, {inner}):
            return 1
    widest = max(1, _VECTOR_BYTES // dtypes.bytes_of(store.buffer.dtype))
    return min(widest, extents[-1] & -extents[-1])
