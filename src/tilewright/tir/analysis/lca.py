"""The lowest loop or block around all accesses of each buffer: where it may be allocated at best.

Three things keep a buffer further out than its accesses are:

- memory that threads share must live outside the loops bound to these threads: ``global`` outside
  of all, ``shared`` outside of ``threadIdx``, ``warp`` outside of ``threadIdx.x``;
- what a reduction (or any block that isn't complete) writes lives on from one iteration to the next
  of the loops that feed its reduce or opaque axes, and of loops that only repeat it;
- an axis of a block is evaluated outside of the block.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import Var, is_const, pre_order
from tilewright.tir.analysis.accesses import works_by_intrinsic
from tilewright.tir.analysis.block_kind import COMPLETE, block_facts
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    OPAQUE,
    SPATIAL,
    THREAD_BINDING,
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    For,
)
from tilewright.tir.thread_scope import is_block_tag

Path = tuple[For | Block, ...]


def lca_of_buffer_accesses(func: PrimFunc) -> dict[Buffer, For | Block | None]:
    """Return the lowest loop or block that holds all accesses of each buffer that is accessed.

    A matched buffer counts as the one it stands for. ``None`` is the function itself.
    """
    finder = _Finder()
    for buffer in func.buffers:
        finder.of_data[buffer.data] = buffer
    finder.walk(func.body, ())
    return {buffer: path[-1] if path else None for buffer, path in finder.paths.items()}


def _is_shared_by(scope: str, thread: str) -> bool:
    """Whether threads that differ in an index see the same memory of a scope."""
    if is_block_tag(thread):
        return scope == "global"
    if thread == "threadIdx.x":
        return scope == "global" or scope.startswith(("shared", "warp", "wmma", "m16n8k8"))
    if thread.startswith("threadIdx"):
        return scope == "global" or scope.startswith("shared")
    return scope == "global"


class _Finder:
    def __init__(self) -> None:
        self.paths: dict[Buffer, Path] = {}
        self.of_data: dict[Var, Buffer] = {}
        # For each block around: how much of the path lasts for what the block writes.
        self.lasting: list[tuple[Block, int]] = []

    def walk(self, node: Any, path: Path) -> None:
        kind = type(node)
        if kind is For:
            self.walk(node.min, path)
            self.walk(node.extent, path)
            self.walk(node.body, (*path, node))
            return
        if kind is BlockRealize:
            self.realize(node, path)
            return
        if kind is Allocate or kind is DeclBuffer:
            self.of_data.setdefault(node.buffer.data, node.buffer)
        elif kind is BufferStore or kind is BufferLoad:
            self.access(node.buffer, path)
        elif kind is Var:
            if node in self.of_data:  # a pointer that something is called with
                self.access(self.of_data[node], path)
            return
        for item in node.child_nodes():
            if type(item) is not Buffer:
                self.walk(item, path)

    def realize(self, node: BlockRealize, path: Path) -> None:
        for value in (*node.iter_values, node.predicate):
            self.walk(value, path)
        block, inside = node.block, (*path, node.block)
        for buffer in block.alloc_buffers:
            self.of_data[buffer.data] = buffer
        for match in block.match_buffers:
            source = match.source.buffer
            self.of_data[match.buffer.data] = self.of_data.get(source.data, source)
        self.lasting.append((block, _lasting(node, path)))
        if works_by_intrinsic(block):
            for region in (*block.reads, *block.writes):
                self.access(region.buffer, inside)
        for match in block.match_buffers:
            self.access(match.source.buffer, inside)
            for item in match.source.region:
                self.walk(item.min, inside)
                self.walk(item.extent, inside)
        if block.init is not None:
            self.walk(block.init, inside)
        self.walk(block.body, inside)
        self.lasting.pop()

    def access(self, buffer: Buffer, path: Path) -> None:
        buffer = self.of_data.get(buffer.data, buffer)
        length = len(path)
        for place, item in enumerate(path):
            bound = type(item) is For and item.kind == THREAD_BINDING
            if bound and _is_shared_by(buffer.scope, item.thread or ""):  # type: ignore[union-attr]
                length = min(length, place)
        for block, lasting in self.lasting:
            if any(self._same(region.buffer, buffer) for region in block.writes):
                length = min(length, lasting)
        path = path[:length]
        known = self.paths.get(buffer)
        if known is not None:
            common = 0
            for a, b in zip(known, path):
                if a is not b:
                    break
                common += 1
            path = known[:common]
        self.paths[buffer] = path

    def _same(self, a: Buffer, b: Buffer) -> bool:
        return a is b or self.of_data.get(a.data, a) is b


def _lasting(node: BlockRealize, path: Path) -> int:
    """How many items of the path are around all iterations that a block's results live through."""
    facts = block_facts(node.block)
    start = len(path)
    while start and type(path[start - 1]) is For:
        start -= 1
    if facts.kind == COMPLETE:
        return len(path) + 1
    if facts.kind == OPAQUE and not node.block.writes:
        return len(path) + 1
    spatial: set[Any] = set()
    other: set[Any] = set()
    for iter_var, value in zip(node.block.iter_vars, node.iter_values):
        used = [item for item in pre_order(value) if type(item) is Var]
        (spatial if iter_var.kind == SPATIAL else other).update(used)
    for place in range(start, len(path)):
        loop: Any = path[place]
        if is_const(loop.extent, 1):
            continue
        if facts.kind == OPAQUE or loop.loop_var in other or loop.loop_var not in spatial:
            return place
    # Not inside the block: an axis that is fixed here may vary around an outer block.
    return len(path)
