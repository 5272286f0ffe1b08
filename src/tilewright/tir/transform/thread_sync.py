"""Put barriers between accesses of different threads to one element of shared memory.

A barrier goes before a statement that reads what another thread may have written since the last
barrier, or writes what another one may have read or written; the iterations of a loop count too.
Accesses that are shown to be of one thread (``thread_conflicts``) need none. Barriers stand where
all threads of a block pass: a branch that only some take is split around them. Asynchronous copies
count as writes where they start, and again where a thread waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Call,
    Expr,
    IntImm,
    Node,
    Ramp,
    Range,
    StringImm,
    Var,
    call,
    const,
    floordiv,
    is_const,
    not_,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import ASYNC_SCOPE, ASYNC_WAIT, MEMORY_BARRIERS
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import WARPGROUP_OPS, Use, is_gpu_op, memory_uses, stride_between_rows
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from tilewright.tir.thread_scope import is_block_tag, is_shared
from tilewright.tir.transform.base import FunctionTransform, function_analyzer, inside_loop
from tilewright.tir.transform.kernels import call_name, has_loads, map_kernels, spread, thread_nest
from tilewright.tir.transform.thread_conflicts import Access, Conflicts

SCOPES = ("shared", "warp", "global")


class ThreadSync(FunctionTransform):
    """Insert ``storage_sync`` for the memory of a scope: ``shared``, ``warp`` or ``global``.

    Shared memory of all kinds (``shared.dyn``) is looked at together. Global memory is ordered
    among the threads of each block; blocks can't wait for each other.
    """

    def __init__(self, storage_scope: str = "shared") -> None:
        scope = "shared" if is_shared(storage_scope) else storage_scope
        if scope not in SCOPES:
            raise LowerError(f"ThreadSync knows the scopes {', '.join(SCOPES)}; got {scope!r}")
        self.scope = scope

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        analyzer = function_analyzer(func)
        return map_kernels(func, lambda kernel: _synchronised(kernel, self.scope, analyzer))


def _synchronised(kernel: For, scope: str, analyzer: Analyzer) -> Stmt:
    loops, body = thread_nest(kernel)
    threads = {
        loop.loop_var: Range.from_min_extent(loop.min, loop.extent)
        for loop in loops
        if not is_block_tag(loop.thread)
    }
    for loop in loops:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), override=True)
    blocks = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    conflicts = Conflicts(threads, analyzer)
    planner = _Planner(scope, conflicts, set(threads), _memory_only_read(body))
    place = _Place({var: domain for var, domain in blocks.items() if var not in threads})
    made, _ = planner.visit(body, place)
    if planner.in_flight:  # a wait may stand before the copies of the iteration before
        made, _ = planner.visit(body, place)
    for loop in reversed(loops):
        made = loop if made is loop.body else loop.replace(body=made)
    return made


@dataclass
class _Place:
    """Where a statement stands: loops, conditions and lets around it."""

    loops: dict[Var, Range]
    conditions: tuple[Expr, ...] = ()
    values: dict[Var, Expr] = field(default_factory=dict)

    def under(self, condition: Expr) -> _Place:
        made = substitute(condition, self.values)
        return _Place(self.loops, (*self.conditions, made), self.values)

    def inside(self, var: Var, domain: Range) -> _Place:
        return _Place({**self.loops, var: domain}, self.conditions, self.values)


def _waits_for_products(call: Any) -> bool:
    return call.op.name == "ptx_wgmma_wait_group" and is_const(call.args[0], 0)


@dataclass
class _Flow:
    """Accesses of a statement: before its first barrier, and after its last."""

    head: list[Access]
    tail: list[Access]
    passes: bool  # whether a barrier is passed on every way through


class _Planner:
    def __init__(
        self, scope: str, conflicts: Conflicts, threads: set[Var], constant: set[Var]
    ) -> None:
        self.scope = scope
        self.conflicts = conflicts
        self.varying = threads  # variables that differ between threads
        self.constant = constant  # memory that no thread changes
        self.in_flight: list[Access] = []  # writes of asynchronous copies, of whatever iteration
        self.products: list[Access] = []  # what products read that may be under way
        self.barrier = "warp" if scope == "warp" else "shared"
        self.ordered = False  # by barriers in memory, inside of a pipeline that has them

    def is_alike(self, value: Expr) -> bool:
        """Whether a value is the same for all threads of a block."""
        loads = (item for item in pre_order(value) if isinstance(item, BufferLoad))
        return not uses_var(value, self.varying) and all(
            load.buffer.data in self.constant for load in loads
        )

    # ---- accesses -------------------------------------------------------------------------

    def watches(self, scope: str) -> bool:
        """Whether accesses to memory of a scope count."""
        return is_shared(scope) if self.scope == "shared" else scope == self.scope

    def accesses(self, node: Node, place: _Place) -> list[Access]:
        """Accesses of an expression or of one store or call."""
        found: list[Access] = []
        pointed: dict[BufferLoad, str] = {}
        known: set[Node] = set()
        for item in pre_order(node):
            if is_gpu_op(item):
                for use in memory_uses(item):  # type: ignore[arg-type]
                    known.update(use.pointer.args)
                    if self.watches(use.tile.along.buffer.scope):
                        # Permuted rows: where a tile's columns lie is anywhere in its rows.
                        whole = item.op.name in WARPGROUP_OPS  # type: ignore[attr-defined]
                        touched = self.of_operator(use, place, whole)
                        found += touched
                        if whole:
                            self.products += [replace(a, own=frozenset(a.loops)) for a in touched]
                if _waits_for_products(item):
                    # What products read they may have read until now, of whatever iteration. Where
                    # some stay under way, the pipeline has kept apart what is written meanwhile.
                    found += self.products
            if item in known:
                continue
            if isinstance(item, Call):
                for arg in item.args:
                    if isinstance(arg, Call) and arg.op.name == "address_of":
                        pointed[arg.args[0]] = item.op.name  # type: ignore[index]
            if isinstance(item, (BufferLoad, BufferStore)) and self.watches(item.buffer.scope):
                user = pointed.get(item, "") if isinstance(item, BufferLoad) else ""
                found.append(
                    Access(
                        item.buffer,
                        tuple(substitute(index, place.values) for index in item.indices),
                        isinstance(item, BufferStore) or bool(user),
                        user == "atomic_add",
                        place.loops,
                        place.conditions,
                        frozenset(),
                    )
                )
        return found

    def of_operator(self, use: Use, place: _Place, whole_rows: bool) -> list[Access]:
        """The access of an operator that says what it touches."""
        tile, loops = use.tile, dict(place.loops)
        indices = list(tile.along.indices)
        if tile.down is not None:  # one more variable, for the rows
            row = Var("row")
            loops[row] = Range.from_min_extent(const(0), const(tile.rows))
            (along,) = indices  # buffers are flat
            base = along.base if isinstance(along, Ramp) else along
            column = Var("column")
            stride, columns = stride_between_rows(tile), tile.columns
            if whole_rows and isinstance(stride, IntImm):
                base, columns = floordiv(base, stride) * stride, stride.value
            loops[column] = Range.from_min_extent(const(0), const(columns))
            indices = [base + stride * row + column]
        made = Access(
            tile.along.buffer,
            tuple(substitute(index, place.values) for index in indices),
            "w" in use.access,
            use.atomic,
            loops,
            place.conditions,
            frozenset(set(loops) - set(place.loops)),
        )
        return [made]

    def clash(self, before: list[Access], after: list[Access]) -> bool:
        return not self.ordered and any(self.conflicts.between(a, b) for a in before for b in after)

    def sync(self) -> Stmt:
        return Evaluate(call("storage_sync", StringImm(self.barrier), dtype="void"))

    def is_sync(self, stmt: Any) -> bool:
        if call_name(stmt) != "storage_sync":
            return False
        found = stmt.value.args[0].value
        return bool(found == self.barrier or (found == "shared" and self.barrier == "warp"))

    # ---- statements -----------------------------------------------------------------------

    def visit(self, stmt: Any, place: _Place) -> tuple[Stmt, _Flow]:
        """Return the statement with the barriers it needs inside, and its accesses."""
        kind = type(stmt)
        if kind is SeqStmt:
            return self.sequence(stmt, place)
        if kind is For:
            return self.loop(stmt, place)
        if kind is IfThenElse:
            return self.branch(stmt, place)
        if kind is While:
            return self.repeat(stmt, place)
        if kind is LetStmt:
            return self.let(stmt, place)
        if kind is AttrStmt and stmt.key == ASYNC_WAIT:
            return self.wait(stmt, place)
        if kind is AttrStmt and stmt.key == MEMORY_BARRIERS:
            before, self.ordered = self.ordered, True
            _, flow = self.visit(stmt.body, place)
            self.ordered = before
            return stmt, flow
        if kind in (Allocate, DeclBuffer, AttrStmt):
            body, flow = self.visit(stmt.body, place)
            if kind is AttrStmt and stmt.key == ASYNC_SCOPE:
                self.in_flight += [replace(a, own=frozenset(a.loops)) for a in flow.head if a.write]
            return (stmt if body is stmt.body else stmt.replace(body=body)), flow
        if self.is_sync(stmt):
            return stmt, _Flow([], [], True)
        if kind in (BufferStore, Evaluate, AssertStmt):
            found = self.accesses(stmt, place)
            return stmt, _Flow(found, found, False)
        raise LowerError(
            f"ThreadSync doesn't know {kind.__name__}: it runs after blocks are lowered"
        )

    def wait(self, stmt: AttrStmt, place: _Place) -> tuple[Stmt, _Flow]:
        """A thread waits for its own copies only: those of others are there after a barrier."""
        inner: Stmt = stmt
        around: list[AttrStmt] = []
        while isinstance(inner, AttrStmt):
            around.append(inner)
            inner = inner.body
        body, flow = self.visit(inner, place)
        if self.clash(self.in_flight, flow.head):
            body = seq(self.sync(), body)
            flow = _Flow([], flow.tail, True)
        if body is inner:
            return stmt, flow
        for attr in reversed(around):
            body = attr.replace(body=body)
        return body, flow

    def sequence(self, stmt: SeqStmt, place: _Place) -> tuple[Stmt, _Flow]:
        made: list[Stmt] = []
        flow = _Flow([], [], False)
        for item in stmt.stmts:
            new, item_flow = self.visit(item, place)
            if self.clash(flow.tail, item_flow.head):
                made.append(self.sync())
                flow = _Flow(flow.head, [], True)
            made.append(new)
            flow = _joined(flow, item_flow)
        if len(made) == len(stmt.stmts) and all(a is b for a, b in zip(made, stmt.stmts)):
            return stmt, flow
        return seq(made), flow

    def loop(self, stmt: For, place: _Place) -> tuple[Stmt, _Flow]:
        if stmt.thread is not None:
            raise LowerError(
                f"the loop on {stmt.thread} is not at the top of its kernel; run "
                "UnifyThreadBinding and LiftThreadBinding before ThreadSync"
            )
        bounds = [substitute(bound, place.values) for bound in (stmt.min, stmt.extent)]
        if not all(self.is_alike(bound) for bound in bounds):
            return self.alone(
                stmt, place.inside(stmt.loop_var, Range.from_min_extent(*bounds)), stmt.body
            )
        var, domain = stmt.loop_var, Range.from_min_extent(*bounds)
        with inside_loop(self.conflicts.analyzer, stmt):
            return self.counted(stmt, place.inside(var, domain), domain)

    def counted(self, stmt: For, inside: _Place, domain: Range) -> tuple[Stmt, _Flow]:
        """A loop that all threads run equally often."""
        var = stmt.loop_var
        body, flow = self.visit(stmt.body, inside)
        single = isinstance(stmt.extent, IntImm) and stmt.extent.value <= 1
        if not single and self.clash(self.carried(flow, var, domain), flow.head):
            body = seq(self.sync(), body)
            flow = _Flow([], flow.tail, True)
        once = isinstance(stmt.extent, IntImm) and stmt.extent.value >= 1
        made = stmt if body is stmt.body else stmt.replace(body=body)
        return made, _Flow(
            [access.leaving(var) for access in flow.head],
            [access.leaving(var) for access in flow.tail],
            flow.passes and once,
        )

    def carried(self, flow: _Flow, var: Var, domain: Range) -> list[Access]:
        """What an iteration leaves open, as a later one sees it."""
        if flow.passes:  # a barrier in each iteration: only the one before matters
            return [access.earlier(var, const(1), {}) for access in flow.tail]
        distance = Var("distance", var.dtype)
        ranges = {distance: Range.from_min_extent(const(1), domain.extent - 1)}
        return [access.earlier(var, distance, ranges) for access in flow.tail]

    def branch(self, stmt: IfThenElse, place: _Place) -> tuple[Stmt, _Flow]:
        condition = substitute(stmt.condition, place.values)
        if not self.is_alike(condition):
            return self.divergent(stmt, place)
        before = self.accesses(stmt.condition, place)
        then_case, flow = self.visit(stmt.then_case, place.under(condition))
        else_case, other = stmt.else_case, _Flow([], [], False)
        if else_case is not None:
            else_case, other = self.visit(else_case, place.under(not_(condition)))
        head = [*before, *flow.head, *other.head]
        tail = [*before, *flow.tail, *other.tail]
        made = stmt
        if then_case is not stmt.then_case or else_case is not stmt.else_case:
            made = IfThenElse(stmt.condition, then_case, else_case)
        return made, _Flow(head, tail, flow.passes and other.passes)

    def divergent(self, stmt: IfThenElse, place: _Place) -> tuple[Stmt, _Flow]:
        """A branch that some threads take and others don't: no barrier may stand in it."""
        condition = substitute(stmt.condition, place.values)
        found = self.accesses(stmt.condition, place)
        branches = [(stmt.then_case, condition)]
        if stmt.else_case is not None:
            branches.append((stmt.else_case, not_(condition)))
        for case, holds in branches:
            made, flow = self.visit(case, place.under(holds))
            if made is not case or flow.passes or _has_sync(case):
                return self.visit(self.split(stmt), place)
            found += flow.head
        return stmt, _Flow(found, found, False)

    def split(self, stmt: IfThenElse) -> Stmt:
        if has_loads(stmt.condition):
            raise LowerError(
                f"threads must meet inside a branch on {stmt.condition!r}, which reads memory; "
                "compute the condition into a variable before it"
            )
        branches = [_spread(stmt.condition, stmt.then_case)]
        if stmt.else_case is not None:
            branches.append(_spread(not_(stmt.condition), stmt.else_case))
        return seq(branches)

    def repeat(self, stmt: While, place: _Place) -> tuple[Stmt, _Flow]:
        made, flow = self.alone(stmt, place, stmt.body)
        found = self.accesses(stmt.condition, place)
        return made, _Flow([*found, *flow.head], [*found, *flow.tail], False)

    def alone(self, stmt: Stmt, place: _Place, body: Stmt) -> tuple[Stmt, _Flow]:
        """A loop that threads may run differently often: no barrier may stand in it."""
        made, flow = self.visit(body, place)
        if isinstance(stmt, For):
            flow.head = [access.leaving(stmt.loop_var) for access in flow.head]
            flow.tail = [access.leaving(stmt.loop_var) for access in flow.tail]
        if made is not body or flow.passes or _has_sync(body) or self.clash(flow.head, flow.head):
            raise LowerError(
                "threads must meet inside a loop that they may run differently often (its bounds "
                f"depend on the thread or on memory): {type(stmt).__name__}"
            )
        return stmt, flow

    def let(self, stmt: LetStmt, place: _Place) -> tuple[Stmt, _Flow]:
        found = self.accesses(stmt.value, place)
        value = substitute(stmt.value, place.values)
        if not has_loads(value) and not any(isinstance(i, Call) for i in pre_order(value)):
            place = _Place(place.loops, place.conditions, {**place.values, stmt.var: value})
        elif not self.is_alike(value) or any(isinstance(i, Call) for i in pre_order(value)):
            self.varying.add(stmt.var)
        body, flow = self.visit(stmt.body, place)
        if self.clash(found, flow.head):
            body = seq(self.sync(), body)
            flow = _Flow([], flow.tail, True)
        made = stmt if body is stmt.body else stmt.replace(body=body)
        return made, _joined(_Flow(found, found, False), flow)


def _memory_only_read(body: Stmt) -> set[Var]:
    """Global memory, by its pointer, that a kernel reads and doesn't write or hand out."""
    read, changed = set(), set()
    for item in pre_order(body):
        if isinstance(item, BufferLoad) and item.buffer.scope == "global":
            read.add(item.buffer.data)
        elif isinstance(item, BufferStore):
            changed.add(item.buffer.data)
        elif isinstance(item, Call) and item.op.name == "address_of":
            changed.update(load.buffer.data for load in item.args if isinstance(load, BufferLoad))
    return read - changed


def _joined(first: _Flow, second: _Flow) -> _Flow:
    """One statement after another."""
    head = first.head if first.passes else [*first.head, *second.head]
    tail = second.tail if second.passes else [*first.tail, *second.tail]
    return _Flow(head, tail, first.passes or second.passes)


def _spread(condition: Expr, stmt: Stmt) -> Stmt:
    """Put a condition around the parts of a statement, one level down."""
    if isinstance(stmt, (BufferStore, AssertStmt)) or (
        isinstance(stmt, Evaluate) and call_name(stmt) != "storage_sync"
    ):
        return IfThenElse(condition, stmt)
    return spread(condition, stmt, IfThenElse)


def _has_sync(stmt: Stmt) -> bool:
    return any(call_name(item) == "storage_sync" for item in pre_order(stmt))
