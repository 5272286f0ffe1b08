"""Let allocations whose lifetimes don't overlap use the same memory.

Runs on lowered programs (flat buffers, no blocks). Statements are numbered in program order; an
allocation lives from its first access to its last, and through all of a loop that accesses it from
within while it is allocated outside. A linear scan then gives each allocation the memory of one
that is dead by then, or new memory.

Two allocations may share only within the same thread's work (both outside of parallel and
thread-bound loops, or both inside the same one), in the same scope and with the same dtype. Of
constant sizes the greater counts; symbolic sizes must be provably equal. Registers (``local``,
``warp``, ``wmma.*``) have no addresses and stay. Sharing in ``shared`` memory is right only where
barriers are placed afterwards, hence not done unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Call,
    Expr,
    Let,
    Node,
    Var,
    as_int,
    const,
    contains,
    dtypes,
    pre_order,
)
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    SERIAL,
    UNROLLED,
    Allocate,
    BufferStore,
    DeclBuffer,
    For,
    LetStmt,
    Stmt,
    While,
)
from tilewright.tir.transform.base import FunctionTransform, function_analyzer
from tilewright.tir.transform.effects import BufferMutator, PointerUses

_has_let, _has_pointer = contains(Let), contains("handle")


class StorageRewrite(FunctionTransform):
    """Share memory between allocations.

    ``scopes`` are those whose memory is shared; allocations of fewer than ``min_bytes`` bytes stay
    (on CPUs small ones are on the stack or in registers).
    """

    def __init__(self, scopes: tuple[str, ...] = ("global",), min_bytes: int = 0) -> None:
        self.scopes = tuple(scopes)
        self.min_bytes = min_bytes

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        allocations = _allocations(func.body)
        if sum(_may_share(item, self.scopes, self.min_bytes) for item in allocations) < 2:
            return func
        plan = storage_plan(func, self.scopes, self.min_bytes)
        shared = [group for group in plan.groups if len(group.members) > 1]
        if not shared:
            return func
        return func.map_children(_Sharer(shared).visit)


@dataclass(eq=False)
class Lifetime:
    """One allocation: where it stands, and when it is used."""

    node: Allocate
    path: tuple[Any, ...]  # statements around it, outermost first
    loops: tuple[Any, ...]  # those of them that are loops
    first: int = -1
    last: int = -1

    @property
    def buffer(self) -> Buffer:
        """What is allocated."""
        return self.node.buffer

    @property
    def size(self) -> Expr:
        """Number of elements."""
        total: Expr = const(1)
        for extent in self.buffer.shape:
            total = total * extent
        return total

    def bytes(self) -> int | None:
        """Size in bytes, if constant."""
        count = as_int(self.size)
        return None if count is None else count * dtypes.bytes_of(self.buffer.dtype)

    def owner(self) -> For | None:
        """The innermost loop around it whose iterations run at the same time, if any."""
        for loop in reversed(self.loops):
            if type(loop) is For and loop.kind not in (SERIAL, UNROLLED):
                return loop
        return None


@dataclass(eq=False)
class SharedStorage:
    """Memory that several allocations use one after the other."""

    members: list[Lifetime]
    size: Expr
    place: Any  # the statement that the memory is allocated around
    buffer: Buffer = field(init=False)

    def __post_init__(self) -> None:
        self.buffer = self.members[0].buffer


@dataclass(frozen=True)
class StoragePlan:
    """Which allocations share, and what that saves; symbolic sizes don't count in bytes."""

    groups: tuple[SharedStorage, ...]
    bytes_before: int
    bytes_after: int

    @property
    def bytes_saved(self) -> int:
        """Bytes of constant size that sharing saves."""
        return self.bytes_before - self.bytes_after


def storage_plan(
    func: PrimFunc, scopes: tuple[str, ...] = ("global",), min_bytes: int = 0
) -> StoragePlan:
    """Say which allocations of a lowered function can share memory; changes nothing."""
    wanted = {item for item in _allocations(func.body) if _may_share(item, scopes, min_bytes)}
    lifetimes: list[Lifetime] = []
    if wanted:
        found = _Timeline().of(func)
        lifetimes = [item for item in found if item.node in wanted]
    analyzer = function_analyzer(func)
    groups: list[SharedStorage] = []
    for item in sorted(lifetimes, key=lambda item: item.first):
        _assign(item, groups, analyzer)
    before = sum(item.bytes() or 0 for item in lifetimes)
    after = sum((as_int(group.size) or 0) * dtypes.bytes_of(group.buffer.dtype) for group in groups)
    return StoragePlan(tuple(groups), before, after)


def _allocations(body: Stmt) -> list[Allocate]:
    """The allocations in a statement; expressions aren't looked at."""
    stack: list[Any] = [body]
    found = []
    while stack:
        item = stack.pop()
        if type(item) is Allocate:
            found.append(item)
        if type(item) is not BufferStore:
            stack.extend(child for child in item.child_nodes() if isinstance(child, Stmt))
    return found


def _may_share(node: Allocate, scopes: tuple[str, ...], min_bytes: int) -> bool:
    # What keeps several axes (axis separators) is accessed by as many indices.
    if node.buffer.axis_separators:
        return False
    if node.buffer.scope not in scopes or node.buffer.strides or node.annotations:
        return False
    size = Lifetime(node, (), ()).bytes()
    return size is None or size >= min_bytes


def _assign(item: Lifetime, groups: list[SharedStorage], analyzer: Analyzer) -> None:
    """Give an allocation the best memory that is free by then, or new memory."""
    size, best, rank, place = item.size, None, None, None
    for group in groups:
        head, latest = group.members[0], group.members[-1]
        if (
            latest.last >= item.first
            or head.buffer.dtype != item.buffer.dtype
            or head.buffer.scope != item.buffer.scope
            or head.owner() is not item.owner()
        ):
            continue
        have, want = as_int(group.size), as_int(size)
        if have is None or want is None:
            if not analyzer.can_prove_equal(group.size, size):
                continue
            order = (0, 0)
        else:
            # The least that is great enough, else the greatest.
            order = (0, have) if have >= want else (1, -have)
        found = _common_scope(group, item)
        if found is not None and (rank is None or order < rank):
            best, rank, place = group, order, found
    if best is None:
        groups.append(SharedStorage([item], size, item.node))
        return
    best.members.append(item)
    best.place = place
    have, want = as_int(best.size), as_int(size)
    if have is not None and want is not None and want > have:
        best.size = size


def _common_scope(group: SharedStorage, item: Lifetime) -> object:
    """Return the innermost statement around all members where the size is known, if any."""
    head = group.members[0]
    place = None
    # A place found earlier is an ancestor of all members so far, or the first of them.
    known = (*head.path, head.node)
    known = known[: known.index(group.place) + 1]
    for a, b in zip(known, (*item.path, item.node)):
        if a is not b:
            break
        place = a
    if place is None or as_int(group.size) is not None:
        return place
    below = (*head.path, head.node)
    below = below[below.index(place) :]
    inside = {stmt.loop_var for stmt in below if type(stmt) is For}
    inside |= {stmt.var for stmt in below if type(stmt) is LetStmt}
    if any(type(part) is Var and part in inside for part in pre_order(group.size)):
        return None
    return place


class _Timeline:
    """Numbers statements in program order and notes when allocations are accessed."""

    def __init__(self) -> None:
        self.clock = 0
        self.of_data: dict[Var, Lifetime] = {}
        self.refused: set[Var] = set()
        self.spans: dict[Any, tuple[int, int]] = {}
        self.within: list[tuple[Lifetime, Any]] = []  # accesses from inside loops
        self.uses = PointerUses()

    def of(self, func: PrimFunc) -> list[Lifetime]:
        """Lifetimes of the allocations that may share, in program order."""
        self.stmt(func.body, (), ())
        for lifetime, loop in self.within:
            start, end = self.spans[loop]
            self._extend(lifetime, start)
            self._extend(lifetime, end)
        return [
            item
            for data, item in self.of_data.items()
            if data not in self.refused and item.first >= 0
        ]

    def stmt(self, stmt: Any, path: tuple[Any, ...], loops: tuple[Any, ...]) -> None:
        self.clock += 1
        kind = type(stmt)
        inner = (*path, stmt)
        if kind is Allocate:
            data = stmt.buffer.data
            if data in self.of_data:
                self.refused.add(data)
            self.of_data[data] = Lifetime(stmt, path, loops)
        elif kind is LetStmt:
            self._escapes(stmt.value)
        start = self.clock
        around = (*loops, stmt) if kind is For or kind is While else loops
        for item in stmt.child_nodes():
            if isinstance(item, Stmt):
                self.stmt(item, inner, around)
            elif kind is While:
                self.expr(item, around)
            else:
                self.expr(item, loops)
        self.clock += 1
        if around is not loops:
            self.spans[stmt] = (start, self.clock)

    def expr(self, expr: Expr, loops: tuple[object, ...]) -> None:
        if isinstance(expr, Buffer):
            self._access(expr.data, loops)
            return
        for data in self.uses.of(expr):
            self._access(data, loops)
        if _has_let(expr):
            for item in pre_order(expr, _has_let):
                if type(item) is Let:
                    self._escapes(item.value)

    def _escapes(self, value: Expr) -> None:
        """A pointer that is given a name may be used anywhere: leave its memory alone."""
        if not _has_pointer(value):
            return
        for item in pre_order(value):
            if type(item) is Call and item.dtype == "handle":
                self.refused |= {i.data for i in pre_order(item) if isinstance(i, Buffer)}
                self.refused |= {i for i in pre_order(item) if type(i) is Var}
        if type(value) is Var and value.dtype == "handle":
            self.refused.add(value)

    def _access(self, data: Var, loops: tuple[object, ...]) -> None:
        lifetime = self.of_data.get(data)
        if lifetime is None:
            return
        self._extend(lifetime, self.clock)
        depth = len(lifetime.loops)
        if len(loops) > depth:
            self.within.append((lifetime, loops[depth]))

    def _extend(self, lifetime: Lifetime, time: int) -> None:
        lifetime.first = time if lifetime.first < 0 else min(lifetime.first, time)
        lifetime.last = max(lifetime.last, time)


class _Sharer(BufferMutator):
    """Allocates the shared memory, and turns the other allocations into views of it."""

    def __init__(self, groups: list[SharedStorage]) -> None:
        super().__init__()
        self.uses = PointerUses()
        self.storage: dict[Allocate, Buffer] = {}
        self.pointers: dict[Var, Var] = {}
        self.around: dict[Any, list[Buffer]] = {}
        for group in groups:
            alignment = max(item.buffer.alignment for item in group.members)
            made = group.buffer.replace(
                shape=(group.size,), alignment=alignment, data=group.buffer.data
            )
            self.around.setdefault(group.place, []).append(made)
            for item in group.members:
                self.storage[item.node] = made
                self.pointers[item.buffer.data] = made.data
            head = group.members[0]
            if as_int(group.size) == as_int(head.size):
                self.buffers[head.buffer] = made

    def visit(self, node: Node) -> Any:
        if not isinstance(node, Stmt):
            # Most nodes are expressions, which are never a place, and touch what stays.
            if not isinstance(node, Buffer) and self.uses.of(node).isdisjoint(self.pointers):
                return node
            return super().visit(node)
        made = super().visit(node)
        for buffer in self.around.get(node, ()):
            made = Allocate(buffer, made)
        return made

    def rewrite_buffer(self, buffer: Buffer) -> Buffer:
        data = self.pointers.get(buffer.data)
        made = super().rewrite_buffer(buffer)
        return made if data is None else made.replace(data=data)

    def visit_Var(self, node: Var) -> Expr:
        return self.pointers.get(node, node)

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return self.generic_visit(node)

    def visit_Allocate(self, node: Allocate) -> Stmt:
        if node not in self.storage:
            whole: Stmt = super().visit_Allocate(node)
            return whole
        view, body = self.visit(node.buffer), self.visit(node.body)
        return body if view is self.storage[node] else _below_allocations(view, body)


def _below_allocations(view: Buffer, body: Stmt) -> Stmt:
    """Declare a view inside of further allocations, which code generators want to see together."""
    if type(body) is Allocate:
        return body.replace(body=_below_allocations(view, body.body))
    return DeclBuffer(view, body)
