"""Queries about the blocks of one scope, for the primitives that move computation.

A *scope* is the body of a block (of the root block, mostly). The blocks directly inside it, in
program order, with their signatures (``reads``, ``writes``) tell who produces and who consumes a
buffer. A :class:`Scope` is computed once per version of a function and kept with its index.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.ir import (
    IntImm,
    as_int,
    uses_var,
)
from tilewright.tir import (
    NO_OP,
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    DeclBuffer,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from tilewright.tir.analysis.dependency import shared_memory
from tilewright.tir.schedule.state import ScheduleState


class Scope:
    """The blocks directly inside one block, with who reads and writes which buffer."""

    def __init__(self, state: ScheduleState, realize: BlockRealize, func_name: str) -> None:
        self.state = state
        self.func_name = func_name
        self.realize = realize
        self.block: Block = realize.block
        self.branches: dict[BlockRealize, IfThenElse] = {}
        """Blocks that run under a condition, with the innermost one."""
        self._hidden: dict[BlockRealize, Any] = {}
        self._declared: dict[Buffer, Any] = {}
        self.blocks = self._find_blocks(realize.block.body)
        self.position = {child: number for number, child in enumerate(self.blocks)}
        self._loops: dict[BlockRealize, list[For]] = {}
        self._shared: dict[Buffer, tuple[Buffer, BlockRealize]] | None = None
        self.stable: dict[tuple[Any, ...], bool] = {}
        self.whole: dict[BlockRealize, bool] = {}
        self._readers: dict[Buffer, list[BlockRealize]] = {}
        self._writers: dict[Buffer, list[BlockRealize]] = {}
        for child in self.blocks:
            for buffer in regions_buffers(child.block.reads):
                self._readers.setdefault(buffer, []).append(child)
            for buffer in regions_buffers(child.block.writes):
                self._writers.setdefault(buffer, []).append(child)

    def _find_blocks(self, body: Stmt) -> list[BlockRealize]:
        """Return the blocks in program order, noting statements other than loops around them."""
        found: list[BlockRealize] = []
        stack: list[tuple[Any, Any, Any]] = [(body, None, None)]
        while stack:
            item, branch, hidden = stack.pop()
            kind = type(item)
            if kind is For:
                stack.append((item.body, branch, hidden))
            elif kind is BlockRealize:
                found.append(item)
                if branch is not None:
                    self.branches[item] = branch
                if hidden is not None:
                    self._hidden[item] = hidden
            elif kind is SeqStmt:
                stack.extend((part, branch, hidden) for part in reversed(item.stmts))
            elif kind is IfThenElse:
                if item.else_case is not None:
                    stack.append((item.else_case, item, hidden))
                stack.append((item.then_case, item, hidden))
            elif kind is AttrStmt:
                stack.append((item.body, branch, hidden))
            elif kind is DeclBuffer:
                self._declared[item.buffer] = item
                stack.append((item.body, branch, hidden))
            elif kind is LetStmt or kind is While or kind is Allocate:
                stack.append((item.body, branch, item))
        return found

    def readers(self, buffer: Buffer) -> list[BlockRealize]:
        """Blocks that read ``buffer``, in program order; refuses if that isn't all known."""
        found = self._readers.get(buffer, [])
        self._check_known(buffer, found)
        return found

    def writers(self, buffer: Buffer) -> list[BlockRealize]:
        """Blocks that write ``buffer``, in program order; refuses if that isn't all known."""
        found = self._writers.get(buffer, [])
        self._check_known(buffer, found)
        return found

    def check_known(self, realize: BlockRealize) -> None:
        """Refuse a block about which loops and buffer names say too little.

        It is below a ``while``, or a definition that it can't be moved out of, or uses memory with
        several names.
        """
        for region in (*realize.block.reads, *realize.block.writes):
            self._check_known(region.buffer, (realize,))

    def _check_known(self, buffer: Buffer, users: Iterable[BlockRealize]) -> None:
        for user in users:
            if user in self._hidden:
                stmt = self._hidden[user]
                raise self.state.error(
                    f"block {user.block.name!r} is inside of a {type(stmt).__name__}; only loops "
                    "and branches around blocks are supported by what moves computation",
                    user,
                    stmt,
                )
        if buffer in self._declared:
            raise self.state.error(
                f"{buffer.name} is declared as a view of memory between the blocks, so who uses "
                "this memory isn't known",
                self._declared[buffer],
                remedy="allocate it in a block, or match it in the block that uses it",
            )
        if self._shared is None:
            around = [item.block for item in self.state.parents(self.realize)
                      if type(item) is BlockRealize]  # fmt: skip
            self._shared = shared_memory(self.blocks, (*reversed(around), self.block))
        if buffer in self._shared:
            other, user = self._shared[buffer]
            raise self.state.error(
                f"{buffer.name} and {other.name} are names of the same memory, which is changed in "
                f"this scope: what depends on {buffer.name} isn't known",
                user,
                remedy="use one name for the memory",
            )

    def loops(self, realize: BlockRealize) -> list[For]:
        """Loops around a block of this scope, the outermost first."""
        found = self._loops.get(realize)
        if found is None:
            found = self._loops[realize] = self.state.loops_above(realize)
        return found

    def shared_loops(self, a: BlockRealize, b: BlockRealize) -> list[For]:
        """Loops that are around both of two blocks and have more than one iteration."""
        return [x for x, y in zip(self.loops(a), self.loops(b)) if x is y and as_int(x.extent) != 1]

    def is_fixed(self, realize: BlockRealize, iter_var: IterVar) -> bool:
        """Whether the range of a block's axis depends on no loop around the block."""
        dom = iter_var.dom
        if type(dom.extent) is IntImm and type(dom.min) is IntImm:
            return True
        loops = {loop.loop_var for loop in self.loops(realize)}
        return not (uses_var(dom.min, loops) or uses_var(dom.extent, loops))

    def has_fixed_domain(self, realize: BlockRealize) -> bool:
        """Whether the ranges of a block's axes depend on no loop around the block."""
        return all(self.is_fixed(realize, iter_var) for iter_var in realize.block.iter_vars)

    def is_visible_outside(self, buffer: Buffer) -> bool:
        """Whether ``buffer`` outlives the scope: it is allocated elsewhere, or a parameter."""
        return buffer not in self.block.alloc_buffers

    def consumers(self, realize: BlockRealize) -> list[BlockRealize]:
        """Other blocks that read what ``realize`` writes, in program order."""
        return self._others(realize, map(self.readers, regions_buffers(realize.block.writes)))

    def producers(self, realize: BlockRealize) -> list[BlockRealize]:
        """Other blocks that write what ``realize`` reads, in program order."""
        return self._others(realize, map(self.writers, regions_buffers(realize.block.reads)))

    def _others(
        self, realize: BlockRealize, found: Iterable[Iterable[BlockRealize]]
    ) -> list[BlockRealize]:
        others = {item for items in found for item in items if item is not realize}
        return sorted(others, key=self.position.__getitem__)


def scope_of(state: ScheduleState, realize: BlockRealize) -> Scope:
    """Return the scope that a block is in; ``ScheduleError`` for the root block."""
    func_name = state.func_name_of(realize)
    around = state.scope_realize(realize)
    if around is None:
        raise state.error(
            "the root block can't be moved or rewritten by this primitive",
            realize,
            remedy="give a block inside it",
        )
    cache = state.index(func_name).cache
    key = ("scope", around)
    found: Scope | None = cache.get(key)
    if found is None:
        found = cache[key] = Scope(state, around, func_name)
    # Copies of a schedule share the index, and so this scope: it works for whoever asks.
    found.state = state
    found.check_known(realize)
    return found


def regions_buffers(regions: Iterable[Any]) -> list[Buffer]:
    """The buffers of regions, once each, in order."""
    return list(dict.fromkeys(region.buffer for region in regions))


# ---- statements ---------------------------------------------------------------------------------


def removal_root(state: ScheduleState, realize: BlockRealize) -> Stmt:
    """Return the outermost loop (or branch) that holds nothing but ``realize``."""
    parents = state.index(state.func_name_of(realize)).parents
    current: Stmt = realize
    while True:
        parent = parents[current]
        if type(parent) is For or (type(parent) is IfThenElse and parent.else_case is None):
            current = parent
            continue
        if type(parent) is not SeqStmt:
            raise state.error(
                f"block {realize.block.name!r} is the only statement of its scope: nothing would "
                "be left",
                realize,
            )
        return current


def without(state: ScheduleState, scope: Scope, realize: BlockRealize, **changes: object) -> Block:
    """Return the scope's block without one inner block; ``changes`` are other fields of it."""
    body = state.rebuilt(scope.block.body, {removal_root(state, realize): NO_OP})
    return scope.block.replace(body=body, **changes)


def buffer_names(state: ScheduleState, func_name: str) -> set[str]:
    """Names of all buffers of a function, so that new ones can differ."""
    index = state.index(func_name)
    found: set[str] | None = index.cache.get("buffer_names")
    if found is None:
        found = {buffer.name for buffer in index.func.buffers}
        for realize in index.blocks.values():
            found.update(buffer.name for buffer in realize.block.alloc_buffers)
            found.update(match.buffer.name for match in realize.block.match_buffers)
        index.cache["buffer_names"] = found
    return set(found)
