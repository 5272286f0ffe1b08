"""Which blocks of a scope depend on which.

Edges stand for read-after-write, write-after-write and write-after-read, from the regions that the
blocks declare. They go between the direct child blocks of a scope, in program order, and are kept
by block, as blocks are immutable.

Where nothing more is known than that the order must stay, a dependence is *opaque*: two blocks that
reach the same memory through different buffers, or that both have effects outside of any buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.ir import (
    EFFECTS,
    Call,
    Node,
    Var,
    contains,
    pre_order,
)
from tilewright.tir.buffer import Buffer
from tilewright.tir.stmt import (
    Block,
    BlockRealize,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
)

RAW = "RAW"
WAW = "WAW"
WAR = "WAR"
OPAQUE_DEPENDENCE = "opaque"

# Calls that are called opaque so that nothing moves them, but have no effect outside of buffers.
_KNOWN_EFFECTS = ("access_ptr", "assume", "prefetch")


@dataclass(frozen=True)
class Dependency:
    """``target`` must come after ``source`` because of ``buffer``; ``kind`` RAW, WAW or WAR."""

    source: str
    target: str
    kind: str
    buffer: Buffer


@dataclass(frozen=True)
class OpaqueDependency:
    """``target`` must come after ``source``, nothing more is known; ``reason`` says why."""

    source: str
    target: str
    reason: str


class DependencyGraph:
    """The dependencies among the child blocks of one scope, by block name."""

    def __init__(self, children: list[BlockRealize], scope: Block | None = None) -> None:
        self.children = {realize.block.name: realize for realize in children}
        self.edges: list[Dependency] = []
        self.opaque: list[OpaqueDependency] = []
        self.writers: dict[Buffer, list[str]] = {}
        self.readers: dict[Buffer, list[str]] = {}
        self._before: dict[str, list[Dependency]] = {name: [] for name in self.children}
        self._after: dict[str, list[Dependency]] = {name: [] for name in self.children}
        self._views: dict[Var, dict[Buffer, None]] = {}
        self._memory = memory_of_views((scope,)) if scope is not None else {}
        self._outside: list[str] = []
        for name, realize in self.children.items():
            self._add(name, realize.block)

    def _add(self, name: str, block: Block) -> None:
        reads = dict.fromkeys(region.buffer for region in block.reads)
        writes = dict.fromkeys(region.buffer for region in block.writes)
        for buffer in reads:
            for source in self.writers.get(buffer, ()):
                self._edge(source, name, RAW, buffer)
        for buffer in writes:
            for source in self.writers.get(buffer, ()):
                self._edge(source, name, WAW, buffer)
            for source in self.readers.get(buffer, ()):
                self._edge(source, name, WAR, buffer)
        for buffer in reads:
            self.readers.setdefault(buffer, []).append(name)
        for buffer in writes:
            self.writers.setdefault(buffer, []).append(name)
        self._add_opaque(name, block, dict.fromkeys([*reads, *writes]), set(writes))

    def _add_opaque(
        self, name: str, block: Block, used: dict[Buffer, None], written: set[Buffer]
    ) -> None:
        for buffer in used:
            memory = self._memory.get(buffer.data, buffer.data)
            for other in self._views.get(memory, ()):
                if other is buffer:
                    continue
                earlier = list(self.writers.get(other, ()))
                if buffer in written:
                    earlier += self.readers.get(other, ())
                for source in dict.fromkeys(earlier):
                    if source != name:
                        why = f"{other.name!r} and {buffer.name!r} are views of the same memory"
                        self.opaque.append(OpaqueDependency(source, name, why))
            self._views.setdefault(memory, {})[buffer] = None
        if has_outside_effect(block):
            for source in self._outside:
                self.opaque.append(
                    OpaqueDependency(source, name, "both have effects outside of any buffer")
                )
            self._outside.append(name)

    def kinds(self, source: str, target: str) -> set[str]:
        """How ``target`` depends on ``source``: a subset of RAW, WAW, WAR, opaque."""
        found = {edge.kind for edge in self._before[target] if edge.source == source}
        if any(edge.source == source and edge.target == target for edge in self.opaque):
            found.add(OPAQUE_DEPENDENCE)
        return found

    def _edge(self, source: str, target: str, kind: str, buffer: Buffer) -> None:
        edge = Dependency(source, target, kind, buffer)
        self.edges.append(edge)
        self._before[target].append(edge)
        self._after[source].append(edge)

    def before(self, name: str) -> list[Dependency]:
        """Edges into a block."""
        return self._before[name]

    def after(self, name: str) -> list[Dependency]:
        """Edges out of a block."""
        return self._after[name]

    def producers(self, name: str) -> list[str]:
        """Blocks that write, before ``name``, what it reads or writes; in program order.

        A block inside of an ``init`` is no child of the scope and has none.
        """
        found = {edge.source for edge in self._before.get(name, ()) if edge.kind != WAR}
        return [item for item in self.children if item in found]

    def consumers(self, name: str) -> list[str]:
        """Blocks that read or write, after ``name``, what it writes; in program order."""
        found = {edge.target for edge in self._after.get(name, ()) if edge.kind != WAR}
        return [item for item in self.children if item in found]


_has_effects = contains(EFFECTS)


def has_outside_effect(block: Block) -> bool:
    """Whether a block calls something whose effects its regions can't tell."""
    for item in pre_order(block.body, _has_effects):
        if type(item) is not Call or item.op.effect != "opaque" or item.op.name in _KNOWN_EFFECTS:
            continue
        if not any(_is_pointer(part) for part in pre_order(item) if part is not item):
            return True
    return False


def _is_pointer(node: Node) -> bool:
    if type(node) is Call:
        return node.op.name in ("access_ptr", "address_of", "tile_of")
    return type(node) is Var and bool(node.dtype == "handle")


def _child_blocks(body: Stmt) -> Iterator[BlockRealize]:
    stack: list[Any] = [body]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is BlockRealize:
            yield item
        elif kind is SeqStmt:
            stack.extend(reversed(item.stmts))
        elif kind is IfThenElse:
            if item.else_case is not None:
                stack.append(item.else_case)
            stack.append(item.then_case)
        elif kind is For or hasattr(item, "body"):
            stack.append(item.body)


def memory_of_views(around: Iterable[Block]) -> dict[Var, Var]:
    """Map the pointers of views that blocks match (the outermost first) to the memory they view."""
    memory: dict[Var, Var] = {}
    for block in around:
        for match in block.match_buffers:
            source = match.source.buffer.data
            memory[match.buffer.data] = memory.get(source, source)
    return memory


def shared_memory(
    children: Iterable[BlockRealize], around: Iterable[Block]
) -> dict[Buffer, tuple[Buffer, BlockRealize]]:
    """Buffers whose memory the child blocks of a scope use by another name too, some to write it.

    Each comes with another name and a block that uses this. ``around`` are the scope's block and
    those around it, the outermost first: their views are names as well.
    """
    memory = memory_of_views(around)
    users: dict[Var, dict[Buffer, BlockRealize]] = {}
    written: set[Var] = set()
    for realize in children:
        block = realize.block
        for region in (*block.reads, *block.writes):
            data = region.buffer.data
            users.setdefault(memory.get(data, data), {}).setdefault(region.buffer, realize)
        for region in block.writes:
            written.add(memory.get(region.buffer.data, region.buffer.data))
    found: dict[Buffer, tuple[Buffer, BlockRealize]] = {}
    for data, names in users.items():
        if len(names) > 1 and data in written:
            first, second = list(names)[:2]
            for buffer in names:
                other = second if buffer is first else first
                found[buffer] = other, names[other]
    return found


_graphs: WeakKeyDictionary[Block, DependencyGraph] = WeakKeyDictionary()


def block_dependencies(scope: Block) -> DependencyGraph:
    """Return the dependencies among the direct child blocks of ``scope``."""
    found = _graphs.get(scope)
    if found is None:
        found = _graphs[scope] = DependencyGraph(list(_child_blocks(scope.body)), scope)
    return found
