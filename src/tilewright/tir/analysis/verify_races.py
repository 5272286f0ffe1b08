"""Loops whose iterations run at the same time don't update one element at once, nor meet elsewhere.

Parallel and vectorized loops, and those bound to threads, promise that their iterations don't meet.
Primitives that make them check that; this tells of programs that came otherwise that it is not so:

- the loop feeds a reduction axis of a block, so that its iterations combine into one element; a
  threadIdx loop may, of reductions with ``init`` whose results threads combine;
- its iterations give an element a value that is made of the element's old one, as a
  ``B[0] = B[0] + A[i]`` in a loop over ``i`` does. Outside of blocks that is asked of parallel
  loops only: vectors of such statements keep the order, threads may meet at barriers;
- one iteration writes an element that another one reads or writes too, wherever the two accesses
  stand (``meetings``, which says what it leaves alone). That isn't asked of loops on threadIdx and
  vthread: lowering puts barriers between the statements of threads, and virtual threads take turns.

Only what is evident is refused: of calls (atomic updates, tensor intrinsics) nothing is known, the
conditions of a statement may choose one iteration, and memory that is allocated in the loop, or
that only threads of their own or the loop's body use, is that of each iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    IntImm,
    Range,
    Var,
    as_int,
    collect,
    contains,
    content_mask,
    contents,
    pre_order,
    uses_var,
)
from tilewright.tir.analysis.block_kind import is_injective_binding
from tilewright.tir.analysis.meetings import Meetings
from tilewright.tir.analysis.update_order import feeds_reduction, threads_combine
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    AT_ONCE,
    PARALLEL,
    REDUCE,
    THREAD_BINDING,
    VECTORIZED,
    Allocate,
    AssertStmt,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from tilewright.tir.thread_scope import is_block_tag
from tilewright.tir.walk import outermost, per_statement, symbols_in

_KINDS = (PARALLEL, VECTORIZED, THREAD_BINDING)
_has_loads = contains(BufferLoad)
runs_at_once = contains(AT_ONCE)
"""Whether there is a loop in a statement whose iterations run at the same time."""
_ACCESSES = (BufferLoad, BufferStore, BufferRegion, Allocate)


def find_race(func: PrimFunc, *, known: Collection[For] = ()) -> tuple[For, str] | None:
    """Return a loop whose iterations race, and say so in words.

    Of a function that was made from one without races, ``known`` are the loops that are as they
    were there: then only meetings of several blocks are looked for, and none in these loops.
    """
    finder = _Finder(func, known)
    parts = outermost(func.body)
    if not parts:
        finder.walk(func.body)
        return finder.found
    finder.blocks += 1
    root: Any = func.body
    around = (
        func.buffers, root.block.reads, root.block.writes,
        contents(root) & content_mask(AssertStmt),
    )  # fmt: skip
    for part in parts:
        if not runs_at_once(part):
            continue
        before, context = _FREE_OF_RACES.get(part), None
        if before is not None or not known:  # else nobody asks for what takes a walk
            own = _memory_in(part)
            # What others do with the same memory decides whose it is, and whether it is an input.
            others = [item for item in parts if not own.isdisjoint(_memory_in(item))]
            context = (*around, others)
            if before == context:
                continue
        finder.walk(part)
        if finder.found is not None:
            return finder.found
        if not known:
            if len(_FREE_OF_RACES) >= _REMEMBERED:
                _FREE_OF_RACES.clear()
            _FREE_OF_RACES[part] = context
    return None


_REMEMBERED = 256
_FREE_OF_RACES: dict[Stmt, Any] = {}
"""Statements of outermost blocks, with what else their iterations were looked at by."""


@per_statement
def _memory_in(stmt: Stmt) -> frozenset[Any]:
    """The pointers of the memory that a statement may access."""
    return frozenset(
        item for item in symbols_in(stmt) if type(item) is Var and item.dtype == "handle"
    )


class _AtOnce:
    """A loop whose iterations run at the same time, and what differs between them."""

    __slots__ = ("chosen", "combines", "loop", "own", "vars")

    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.vars = {loop.loop_var}
        self.own: set[Var] = set()  # memory that each iteration has for itself
        self.chosen = 0  # conditions around that choose among the iterations
        self.combines = 0  # blocks around whose results the threads combine


class _Finder:
    def __init__(self, func: PrimFunc, known: Collection[For]) -> None:
        self.func, self.known = func, known
        self.around: list[_AtOnce] = []
        self.views: dict[Var, BufferRegion] = {}
        self.blocks = -1 if isinstance(func.body, BlockRealize) else 0  # around, without the root
        self.found: tuple[For, str] | None = None
        self.meetings = Meetings(func)

    def walk(self, stmt: Any) -> None:
        if self.found is not None or not (self.around or runs_at_once(stmt)):
            return
        kind = type(stmt)
        if kind is For:
            self.loop(stmt)
        elif kind is BlockRealize:
            self.realize(stmt)
        elif kind is SeqStmt:
            for item in stmt.stmts:
                self.walk(item)
        elif kind is IfThenElse or kind is While:
            self.branch(stmt)
        elif kind is BufferStore:
            if self.around:
                self.store(stmt)
        else:
            if kind is LetStmt:
                self.depends(stmt.var, stmt.value)
            elif kind is Allocate:
                self.owns(stmt.buffer.data)
            body = getattr(stmt, "body", None)
            if body is not None:
                self.walk(body)

    # ---- what is around -------------------------------------------------------------------------

    def depends(self, var: Var, *exprs: Expr) -> None:
        """Note a variable that differs between iterations if one of ``exprs`` does."""
        if not self.around:
            return
        sources = [_sources(expr) for expr in exprs]
        for item in self.around:
            if any(used is None or not used.isdisjoint(item.vars) for used in sources):
                item.vars.add(var)

    def owns(self, data: Var) -> None:
        for item in self.around:
            item.own.add(data)

    def loop(self, loop: For) -> None:
        self.depends(loop.loop_var, loop.min, loop.extent)
        extent = as_int(loop.extent)
        if loop.kind not in _KINDS or (extent is not None and extent <= 1):
            self.walk(loop.body)
            return
        item = _AtOnce(loop)
        self.around.append(item)
        self.walk(loop.body)
        self.around.pop()
        takes_turns = (loop.thread or "").startswith(("threadIdx", "vthread"))
        if self.found is None and not takes_turns and loop not in self.known:
            where = self.meetings.find(
                loop, lambda buffer: self.is_own(buffer, item), of_blocks=bool(self.known)
            )
            if where is not None:
                self.found = loop, f"the iterations of {_named(loop)} would race: {where}"

    def branch(self, stmt: Any) -> None:
        choosing = [item for item in self.around if _differs(stmt.condition, item)]
        for item in choosing:
            item.chosen += 1
        for body in (stmt.body,) if type(stmt) is While else (stmt.then_case, stmt.else_case):
            if body is not None:
                self.walk(body)
        for item in choosing:
            item.chosen -= 1

    def realize(self, realize: BlockRealize) -> None:
        block = realize.block
        combining: list[_AtOnce] = []
        choosing: list[_AtOnce] = []
        for item in self.around:
            if feeds_reduction(realize, item.vars):
                if (item.loop.thread or "").startswith("threadIdx") and threads_combine(block):
                    combining.append(item)
                elif self.reduces_at_once(realize, item):
                    return
            if _differs(realize.predicate, item):
                choosing.append(item)
        if self.around:
            for iter_var, value in zip(block.iter_vars, realize.iter_values):
                self.depends(iter_var.var, value)
        for buffer in block.alloc_buffers:
            self.owns(buffer.data)
        for match in block.match_buffers:
            self.views[match.buffer.data] = match.source
        for item in combining:
            item.combines += 1
        for item in choosing:
            item.chosen += 1
        self.blocks += 1
        if block.init is not None:
            self.walk(block.init)
        self.walk(block.body)
        self.blocks -= 1
        for item in combining:
            item.combines -= 1
        for item in choosing:
            item.chosen -= 1

    # ---- who updates what -----------------------------------------------------------------------

    def reduces_at_once(self, realize: BlockRealize, item: _AtOnce) -> bool:
        """Note a race if iterations of a loop reduce into one element."""
        block, loop = realize.block, item.loop
        differing = set(item.vars)
        choosing: list[Expr] = []
        for iter_var, value in zip(block.iter_vars, realize.iter_values):
            if iter_var.kind != REDUCE and _differs(value, item):
                choosing.append(value)
            elif _differs(value, item):
                differing.add(iter_var.var)
        if choosing and _told_apart(choosing, loop):
            return False
        stored = {node.buffer for node in collect(block.body, BufferStore)}
        shared = [
            region.buffer
            for region in block.writes
            if any(self.memory(buffer) is self.memory(region.buffer) for buffer in stored)
            and self.memory(region.buffer) not in item.own
            and not any(uses_var(part.min, differing) for part in region.region)
        ]
        if not shared:
            return False
        self.found = (
            loop,
            f"{_named(loop)} feeds a reduction axis of block {block.name!r}: its iterations would "
            f"update the same elements of {shared[0].name!r} at once",
        )
        return True

    def store(self, store: BufferStore) -> None:
        """Note a race if iterations of a loop around make an element of its own old value."""
        if not _has_loads(store.value) or not any(
            type(node) is BufferLoad and node.buffer is store.buffer
            for node in pre_order(store.value)
        ):
            return
        for item in self.around:
            if not self.blocks and item.loop.kind != PARALLEL:
                continue
            if item.chosen or item.combines or self.place_differs(store, item):
                continue
            if self.is_own(store.buffer, item):
                continue
            self.found = (
                item.loop,
                f"the iterations of {_named(item.loop)} would update the same elements of "
                f"{store.buffer.name!r} at once",
            )
            return

    def place_differs(self, store: BufferStore, item: _AtOnce) -> bool:
        """Whether the place that is written may differ between iterations of a loop."""
        offset = store.buffer.elem_offset
        where = store.indices if offset is None else (*store.indices, offset)
        if any(_differs(expr, item) for expr in (*where, store.buffer.data)):
            return True
        source = self.views.get(store.buffer.data)
        while source is not None:
            if any(_differs(part.min, item) for part in source.region):
                return True
            source = self.views.get(source.buffer.data)
        return False

    def memory(self, buffer: Buffer) -> Var:
        data = buffer.data
        while data in self.views:
            data = self.views[data].buffer.data
        return data

    def is_own(self, buffer: Buffer, item: _AtOnce) -> bool:
        """Whether each iteration of a loop has a buffer for itself."""
        data, loop = self.memory(buffer), item.loop
        if data in item.own:
            return True
        if loop.thread is not None and not loop.thread.startswith("vthread"):
            scope = buffer.scope.partition(".")[0]
            of_block = is_block_tag(loop.thread) and scope != "global"
            # Other memory is one for all blocks or threads, wherever it is allocated.
            return of_block or scope not in ("global", "shared", "warp")
        if any(data is other.data for other in self.func.buffers):
            return False
        return not _is_used_beside(self.func.body, loop, data)


@per_statement
def _used_itself(stmt: Stmt) -> frozenset[Var]:
    """The memory that a statement accesses, declares or names, without those below it."""
    own = (item for item in stmt.child_nodes() if not isinstance(item, Stmt))
    nodes: Iterable[Any] = (stmt, *(node for item in own for node in pre_order(item)))
    return frozenset(
        node.buffer.data if type(node) in _ACCESSES else node
        for node in nodes
        if type(node) is Var or type(node) in _ACCESSES
    )


@per_statement
def _used_below(stmt: Stmt) -> frozenset[Var]:
    """The memory that a statement and those below it access, declare or name."""
    below = (item for item in stmt.child_nodes() if isinstance(item, Stmt))
    return _used_itself(stmt).union(*map(_used_below, below))


def _is_used_beside(body: Stmt, loop: For, data: Var) -> bool:
    """Whether a function accesses, declares or names memory anywhere but in a loop of it."""
    stack, found = [body], False
    while stack:
        stmt = stack.pop()
        if stmt is loop and not found:
            found = True
        elif data in _used_below(stmt):
            if data in _used_itself(stmt):
                return True
            stack += [item for item in stmt.child_nodes() if isinstance(item, Stmt)]
    return False


def _differs(expr: Expr, item: _AtOnce) -> bool:
    """Whether an expression may differ between iterations; what is in memory may."""
    used = _sources(expr)
    return used is None or not used.isdisjoint(item.vars)


def _sources(expr: Expr) -> set[Var] | None:
    """The variables that an expression is made of; ``None`` if some of it is in memory."""
    found: set[Var] = set()
    stack: list[Any] = [expr]
    while stack:
        node = stack.pop()
        if type(node) is Var:
            found.add(node)
        elif type(node) is BufferLoad:
            return None
        elif type(node) is not IntImm:
            stack.extend(node.child_nodes())
    return found


def _told_apart(values: Iterable[Expr], loop: For) -> bool:
    """Whether different iterations of a loop give different values, as far as these use it."""
    values = tuple(values)
    if not any(uses_var(value, {loop.loop_var}) for value in values):
        return True  # by way of something else; nothing is known
    return is_injective_binding(
        values, {loop.loop_var: Range.from_min_extent(loop.min, loop.extent)}, analyzer=Analyzer
    )


def _named(loop: For) -> str:
    where = f" (on {loop.thread})" if loop.thread else ""
    return f"{loop.kind} loop {loop.loop_var.name!r}{where}"
