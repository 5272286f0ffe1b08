"""Memory that blocks allocate for themselves, in kernels.

What each thread has for itself is ``local`` memory if it is small. Large scratch memory is
allocated by the host instead, a part for each instance of the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import Expr, Mutator, Range, Var, const, free_vars
from tilewright.scheduling.blocks import size_of
from tilewright.tir import (
    REDUCE,
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    MatchBufferRegion,
    PrimFunc,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.schedule import KERNELS, Schedule

SCRATCH = "gpu_scratch"
_MOST_PRIVATE = 4 << 10
"""Bytes of local memory: each of all the threads that fit onto a GPU has them."""


def place_scratch(sch: Schedule) -> None:
    """Place the global memory that blocks inside of kernels allocate."""
    if _Placer(sch.mod["main"]).placed() is not None:
        sch.use_kernel("root", SCRATCH)


class _Placer(Mutator):
    """Finds global memory that is allocated inside of kernels, and moves it."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.known = {*func.sizes(), *func.params}
        self.threads = 0
        self.axes: list[IterVar] = []
        self.moved: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}
        self.hoisted: list[Buffer] = []

    def placed(self) -> Block | None:
        """The root block of the function, with all of its scratch memory placed."""
        root = self.func.root
        body = self.visit(root.body)
        if body is root.body:
            return None
        return root.replace(body=body, alloc_buffers=(*root.alloc_buffers, *self.hoisted))

    def visit_Expr(self, node: Expr) -> Expr:
        return self.generic_visit(node) if self.moved else node

    def visit_For(self, node: For) -> For:
        self.threads += node.thread is not None
        made = self.generic_visit(node)
        self.threads -= node.thread is not None
        return made

    def visit_Allocate(self, node: Allocate) -> Allocate:
        if self.threads and node.buffer.scope == "global" and _is_small(node.buffer):
            buffer = _copied(node.buffer, node.buffer.shape, "local")
            self.moved[node.buffer] = (buffer, ())
            return node.replace(buffer=buffer, body=self.visit(node.body))
        return self.generic_visit(node)

    def visit_BlockRealize(self, node: BlockRealize) -> BlockRealize:
        count = len(self.axes)
        self.axes += [item for item in node.block.iter_vars if item.kind != REDUCE]
        made = self.generic_visit(node)
        del self.axes[count:]
        return made

    def visit_Block(self, node: Block) -> Block:
        kept, hoisted = [], len(self.hoisted)
        for buffer in node.alloc_buffers:
            made = self._place(buffer)
            if made is not None:
                kept.append(made)
        block = self.generic_visit(node.replace(alloc_buffers=tuple(kept)) if kept != list(
            node.alloc_buffers) else node)  # fmt: skip
        if len(self.hoisted) > hoisted:
            reads, writes = block_access_regions(block)
            block = block.replace(reads=tuple(reads), writes=tuple(writes))
        return block

    def _place(self, buffer: Buffer) -> Buffer | None:
        """What a block allocates in place of a buffer, if anything."""
        if not self.threads or buffer.scope != "global":
            return buffer
        extents = [item.dom.extent for item in self.axes]
        places = tuple(item.var - item.dom.min for item in self.axes)
        outside = (*extents, *buffer.shape)
        if _is_small(buffer) or not self.known.issuperset(v for e in outside for v in free_vars(e)):
            made = _copied(buffer, buffer.shape, "local")
            self.moved[buffer] = (made, ())
            return made
        made = _copied(buffer, (*extents, *buffer.shape), "global")
        self.moved[buffer] = (made, places)
        self.hoisted.append(made)
        return None

    # ---- uses -----------------------------------------------------------------------------------

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        node = self.generic_visit(node)
        buffer, places = self.moved.get(node.buffer, (None, ()))
        return node if buffer is None else BufferLoad(buffer, (*places, *node.indices))

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        node = self.generic_visit(node)
        buffer, places = self.moved.get(node.buffer, (None, ()))
        if buffer is None:
            return node
        return BufferStore(buffer, node.value, (*places, *node.indices))

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        node = self.generic_visit(node)
        buffer, places = self.moved.get(node.buffer, (None, ()))
        if buffer is None:
            return node
        return BufferRegion(
            buffer, (*(Range.from_min_extent(p, const(1)) for p in places), *node.region)
        )

    def visit_MatchBufferRegion(self, node: MatchBufferRegion) -> MatchBufferRegion:
        made = self.generic_visit(node)
        if made.source.buffer is node.source.buffer:
            return made
        view = _copied(made.buffer, made.buffer.shape, made.source.buffer.scope)
        self.moved[node.buffer] = (view, ())
        return MatchBufferRegion(view, made.source)

    def visit_Var(self, node: Var) -> Any:
        return node


def _is_small(buffer: Buffer) -> bool:
    size = size_of(buffer)
    return size is not None and size <= _MOST_PRIVATE


def _copied(buffer: Buffer, shape: Sequence[Expr], scope: str) -> Buffer:
    made: Buffer = buffer.replace(shape=tuple(shape), scope=scope, data=Var(buffer.name, "handle"))
    return made


def _build(func: PrimFunc, options: Mapping[str, object]) -> Block | str:
    if options:
        return f"it takes no options, got {', '.join(options)}"
    made = _Placer(func).placed()
    return "its kernels allocate no global memory" if made is None else made


KERNELS.register(SCRATCH, _build)
