"""Emits thread-bound loops: as serial loops, or as generators that run in lock step.

Threads that never wait for each other run one after the other. Where a nest holds barriers,
shuffles, votes or all-reduces (or races are to be found), its body becomes a generator function
that ``threads.run_threads`` runs once per thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any, Protocol

from tilewright.ir import (
    EFFECTS,
    Call,
    Expr,
    IRModule,
    Node,
    Ramp,
    StringImm,
    Var,
    content_mask,
    contents,
    dtypes,
    post_order,
    pre_order,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.attrs import ASYNC_COMMIT, ASYNC_INFLIGHT, ASYNC_SCOPE, ASYNC_WAIT
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import CLUSTER_OPS, WARP_OPS, WARPGROUP_OPS, WMMA_OPS
from tilewright.tir.interpreter.emit_gpu import LANES_TAG, WAITS
from tilewright.tir.interpreter.traffic import Site
from tilewright.tir.reducer import REDUCERS
from tilewright.tir.stmt import (
    NO_OP,
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    For,
    LetStmt,
    Stmt,
)
from tilewright.tir.thread_scope import is_shared

SHUFFLES = ("warp_shuffle", "warp_shuffle_up", "warp_shuffle_down", "warp_shuffle_xor")
VOTES = ("warp_ballot", "warp_any", "warp_all")
CALLS = ("call_extern", "call_pure_extern")
"""What calls another function of the module."""
COLLECTIVES = frozenset((*SHUFFLES, *VOTES, "warp_activemask", "thread_allreduce", "storage_sync"))
_MEETINGS = COLLECTIVES | WAITS.keys() | WARPGROUP_OPS | CLUSTER_OPS
_BARRIERS = ("shared", "warp")


class Emits(Protocol):
    """What writes everything else: the emitter, as its part for threads sees it."""

    func: PrimFunc
    functions: Container[str]
    depth: int
    nest: int

    def line(self, text: str) -> None: ...
    def name(self, symbol: Var) -> str: ...
    def expr(self, expr: Expr) -> str: ...
    def visit(self, node: Stmt) -> Any: ...
    def memory(self, buffer: Buffer) -> str: ...
    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str: ...
    def serial_loop(self, node: For, body: Stmt | None) -> None: ...


class ThreadEmitter:
    """The part of the emitter that knows about threads."""

    def __init__(self, emitter: Emits, check_races: bool, report: bool = False) -> None:
        self.emitter = emitter
        self.check_races = check_races
        self.report = report  # count what threads do to memory
        self.follows = check_races or report
        self.accessed: dict[int, Site] = {}
        self.indices: tuple[Expr, ...] = ()  # of the access that is emitted now
        self.around: list[str] = []  # variables of the loops inside of the threads' ones
        self.lockstep = False  # inside a generator
        self.tags: frozenset[str] = frozenset()  # of the threads that run in lock step
        self.depth = 0  # thread-bound loops around
        self.blocks: list[tuple[str, str]] = []  # tag and variable of the block loops around
        self.private: set[Var] = set()  # pointers of memory of one thread
        self.issuing = False  # inside async_scope: stores arrive when they are waited for
        self.sites = 0
        self._collective: set[object] | None = None
        self._mixed: set[Var] | None = None
        self._hosts: set[Any] | None = None

    # ---- what the program holds -----------------------------------------------------------

    def is_collective(self, node: Node) -> bool:
        """Whether threads meet somewhere below a node."""
        if self._collective is None:
            body = self.emitter.func.body
            self._collective = set()
            if contents(body) & content_mask(EFFECTS):
                self._collective = _holding(body, _MEETINGS | (WARP_OPS - WMMA_OPS))
                self._collective |= _below_lanes(body)
        return node in self._collective

    def _in_turn(self, node: For) -> bool:
        """Whether all meetings are of warps whose lanes are loops further down.

        Such a program is not lowered yet: its thread loops run one after the other, those of lanes
        in lock step.
        """
        body: Stmt = node
        while (type(body) is For and body.thread) or type(body) in _WRAPPERS:
            if type(body) is For and body.thread == LANES_TAG:
                return False
            body = body.body  # type: ignore[attr-defined]
        lanes = [s for s in pre_order(body) if type(s) is For and s.thread == LANES_TAG]
        inside = {id(item) for loop in lanes for item in pre_order(loop)}
        met = [
            item
            for item in pre_order(body)
            if type(item) is Call and item.op.name in (_MEETINGS | WARP_OPS)
        ]
        return all(
            id(item) in inside and item.op.name not in ("storage_sync", "thread_allreduce")
            for item in met
        )

    def is_private(self, buffer: Buffer) -> bool:
        """Whether a buffer belongs to one thread (or is the fragment of a warp)."""
        return buffer.data in self.private or buffer.scope.split(".")[0] == "local"

    def is_bytewise(self, buffer: Buffer) -> bool:
        """Whether buffers of several dtypes share the buffer's memory."""
        return self._bytewise(buffer.data)

    def _bytewise(self, data: Var) -> bool:
        """Whether buffers of several dtypes share the pointer."""
        if self._mixed is None:
            kinds: dict[Var, set[str]] = {}
            for item in pre_order(self.emitter.func.body):
                if type(item) is Allocate or type(item) is DeclBuffer:
                    item = item.buffer
                if isinstance(item, Buffer):
                    kinds.setdefault(item.data, set()).add(dtypes.element_of(item.dtype))
            self._mixed = {var for var, names in kinds.items() if len(names) > 1}
        return data in self._mixed

    def site(self, what: str) -> str:
        """Name a place of the program for reports."""
        self.sites += 1
        return f"{what} (number {self.sites} of the program)"

    # ---- loops ----------------------------------------------------------------------------

    def loop(self, node: For) -> bool:
        """Emit a thread-bound loop; ``False`` if it is like any other loop."""
        emitter, tag = self.emitter, node.thread or ""
        if self.lockstep:
            if self.follows or self.is_collective(node):
                raise VerifyError(
                    f"the loop on {tag} is not directly below the other thread loops, yet threads "
                    "meet in it or are checked for races; run LiftThreadBinding and "
                    "UnifyThreadBinding first"
                )
            return False
        if self.depth == 0 and self.check_races:
            emitter.line("races = Races(written)")
        self.depth += 1
        if tag.startswith("blockIdx"):
            self._block_loop(node)
        elif self.follows or (self.is_collective(node) and not self._in_turn(node)):
            self._threads(node)
        else:
            emitter.serial_loop(node, node.body)
        self.depth -= 1
        return True

    def _block_loop(self, node: For) -> None:
        emitter = self.emitter
        self.blocks.append((node.thread or "", emitter.name(node.loop_var)))
        threads_below = any(type(s) is For and s.thread for s in pre_order(node.body))
        if threads_below or not (self.follows or self.is_collective(node)):
            emitter.serial_loop(node, node.body)
        else:
            emitter.serial_loop(node, None)
            emitter.depth += 1
            self._threads(node.body)
            emitter.depth -= 1
        self.blocks.pop()

    def _threads(self, stmt: Stmt) -> None:
        """Emit a generator for the statement below all thread loops, and run it."""
        emitter = self.emitter
        loops: list[For] = []
        around: list[Any] = []
        while True:
            if type(stmt) is For and stmt.thread and not stmt.thread.startswith("blockIdx"):
                loops.append(stmt)
            elif type(stmt) in _WRAPPERS and _thread_loop_below(stmt):
                around.append(stmt)
            else:
                break
            stmt = stmt.body  # type: ignore[attr-defined]
        self.sites += 1
        name = f"threads_{self.sites}"
        variables = ", ".join(["thread", *(emitter.name(loop.loop_var) for loop in loops)])
        extents = [f"({loop.thread!r}, {emitter.expr(loop.extent)})" for loop in loops]
        blocks = [f"({tag!r}, {var})" for tag, var in self.blocks]
        emitter.line(f"def {name}({variables}):")
        nest, emitter.nest, self.lockstep = emitter.nest, 0, True
        outer, self.around = self.around, []
        self.tags = frozenset(loop.thread or "" for loop in loops)
        emitter.depth += 1
        emitter.line("if False: yield")
        for wrapper in around:
            emitter.visit(wrapper.replace(body=NO_OP))
        emitter.visit(stmt)
        emitter.line("thread.end()")
        emitter.depth -= 1
        emitter.nest, self.lockstep, self.around = nest, False, outer
        races = "races" if self.check_races else "None"
        traffic = "traffic" if self.report else "None"
        emitter.line(
            f"run_threads({name}, [{', '.join(extents)}], [{', '.join(blocks)}], "
            f"{races}, {traffic})"
        )

    # ---- memory ---------------------------------------------------------------------------

    def allocation(self, buffer: Buffer, size: str) -> str:
        """Text that allocates: shared memory once per block, warp memory once per warp."""
        if self.lockstep and buffer.scope.startswith(("warp", "wmma", "shared")):
            self.sites += 1
            return f"thread.allocate({self.sites}, {size}, {buffer.dtype!r}, {buffer.scope!r})"
        if self.lockstep:
            self.private.add(buffer.data)
            if self.check_races:
                return f"thread.own(allocate({size}, {buffer.dtype!r}))"
        elif self.check_races and self._is_handed_on(buffer.data):
            return f"written.own(allocate({size}, {buffer.dtype!r}))"
        return f"allocate({size}, {buffer.dtype!r})"

    def _is_handed_on(self, data: Var) -> bool:
        """Whether only kernels use memory of the host, which tell what they write."""
        if self._hosts is None:
            emitter, self._hosts = self.emitter, set()
            kernels, others = Counter[Node](), Counter[Node]()
            for item in pre_order(emitter.func.body):
                if self._is_launch(item):
                    kernels.update(arg for arg in item.child_nodes() if type(arg) is Var)
                elif type(item) not in (Allocate, DeclBuffer):
                    others.update(node for node in item.child_nodes() if type(node) is Var)
                if type(item) in (BufferStore, BufferLoad, DeclBuffer):
                    others[item.buffer.data] += 1  # type: ignore[attr-defined]
            self._hosts = {*kernels} - {*others}
        return data in self._hosts

    def _is_launch(self, item: Node) -> bool:
        """Whether a kernel of the module is called."""
        mod = self.emitter.functions
        if type(item) is not Call or item.op.name not in CALLS or not isinstance(mod, IRModule):
            return False
        callee: Any = mod.functions.get(getattr(item.args[0], "value", ""))
        body = getattr(callee, "body", None)
        while type(body) in (Allocate, DeclBuffer):
            body = body.body  # type: ignore[union-attr]
        return type(body) is For and body.thread is not None

    def noted(self, buffer: Buffer, place: str, access: str, value: str = "") -> str:
        """Text of a place whose access is noted, if races are looked for.

        ``value`` is the text of what is written there, unless that is an atomic update.
        """
        if not (self.follows and self.lockstep):
            return place
        memory = self.emitter.memory(buffer)
        if self.is_private(buffer):
            if not self.check_races:
                return place
            return f"thread.{access}_own({memory}_np, {place}, {buffer.name!r})"
        place = self.counted(buffer, place, "load" if access == "read" else "store")
        if not self.check_races:
            return place
        bytewise = self._bytewise(buffer.data)
        extra = f", {value}" if value else ""
        return f"thread.{access}({memory}_np, {place}, {buffer.name!r}, {bytewise}{extra})"

    def counted(self, buffer: Buffer, place: str, access: str) -> str:
        """Text of a place whose access is counted, if that is asked for."""
        if not (self.report and self.lockstep):
            return place
        number = self.access(buffer, access)
        return f"thread.count({number}, {self.loops()}, {self.emitter.memory(buffer)}_np, {place})"

    def access(self, buffer: Buffer, access: str) -> int:
        """Number a place of the program that accesses memory."""
        number = len(self.accessed)
        text = f"{buffer.name}[{', '.join(map(_shown, self.indices))}]"
        self.accessed[number] = Site(buffer.name, buffer.scope, access, text)
        return number

    def number_of(self, buffer: Buffer, access: str) -> int:
        """The number of an operator's operand, if what it accesses is counted; else -1."""
        counts = buffer.scope == "global" or is_shared(buffer.scope)
        counts = counts and buffer.dtype != "uint64"  # barriers
        if not (self.report and self.lockstep and counts):
            return -1
        return self.access(buffer, "load" if access == "r" else "store")

    def loops(self) -> str:
        """The iteration of the loops around, as a tuple."""
        return f"({', '.join(self.around)},)" if self.around else "()"

    # ---- asynchronous copies --------------------------------------------------------------

    def asynchronous(self, node: AttrStmt) -> bool:
        """Emit what says how copies are in flight; ``False`` if the statement says no such thing.

        Outside of lock step copies are done at once.
        """
        emitter = self.emitter
        if not self.lockstep or node.key not in (ASYNC_SCOPE, ASYNC_COMMIT, ASYNC_WAIT):
            return False
        if node.key == ASYNC_SCOPE:
            before, self.issuing = self.issuing, True
            emitter.visit(node.body)
            self.issuing = before
        elif node.key == ASYNC_COMMIT:
            emitter.visit(node.body)
            emitter.line(f"thread.commit({emitter.expr(node.value)})")
        else:
            count, body = "0", node.body
            if isinstance(body, AttrStmt) and body.key == ASYNC_INFLIGHT:
                count, body = emitter.expr(body.value), body.body
            emitter.line(f"thread.wait({emitter.expr(node.value)}, {count})")
            emitter.visit(body)
        return True

    def issue(self, buffer: Buffer, place: str, value: str, vector: bool) -> None:
        """Emit a store that arrives later."""
        memory, bytewise = self.emitter.memory(buffer), self._bytewise(buffer.data)
        target = f"{memory}_np" if vector else memory
        place = self.counted(buffer, place, "store")
        self.emitter.line(
            f"thread.issue({target}, {place}, {value}, {memory}_np, {buffer.name!r}, {bytewise})"
        )

    # ---- where threads meet ---------------------------------------------------------------

    def barrier(self, node: Call) -> None:
        """Emit a barrier; outside of threads there is nothing to wait for."""
        scope = _text_of(node.args[0])
        if scope not in _BARRIERS:
            raise VerifyError(
                f"the interpreter has no barrier of scope {scope!r}; it has those of: "
                f"{', '.join(_BARRIERS)}"
            )
        if self.lockstep:
            site = self.site(f'storage_sync("{scope}")')
            self.emitter.line(f"yield ('barrier.{scope}', {site!r}, None)")

    def exchange(self, node: Call) -> str:
        """Return the text of a shuffle, vote or active mask."""
        name = node.op.name
        if not self.lockstep:
            raise VerifyError(f"{name} is outside of threadIdx loops: it has no warp")
        site = self.site(name)
        if name == "warp_activemask":
            return f"(yield ('activemask', {site!r}, None))"
        args = [self.emitter.expr(arg) for arg in node.args]
        if name in VOTES:
            return f"(yield ('vote', {site!r}, ({args[0]}, {args[1]}, {name!r})))"
        return f"(yield ('shuffle', {site!r}, ({', '.join(args)}, {name!r}, {node.dtype!r})))"

    def all_reduce(self, node: Call) -> None:
        """Emit an all-reduce: each thread gets the result at its addresses."""
        emitter = self.emitter
        if not self.lockstep:
            raise VerifyError("thread_allreduce is outside of threadIdx loops")
        name, values, addresses, tags = all_reduce_operands(node)
        reducer = REDUCERS.get(name)(*(value.dtype for value in values))
        inputs = ", ".join(emitter.name(var) for var in (*reducer.lhs, *reducer.rhs))
        joined = ", ".join(emitter.expr(part) for part in reducer.result)
        brought = ", ".join(emitter.expr(value) for value in values)
        emitter.line(
            f"joined = yield ('reduce', {self.site('thread_allreduce')!r}, "
            f"({tags!r}, lambda {inputs}: ({joined},), ({brought},)))"
        )
        for number, address in enumerate(addresses):
            load = address.args[0]
            value = f"joined[{number}]"
            if dtypes.is_bool(load.dtype):
                value = f"bool({value})"
            place = emitter.address(load.buffer, load.indices)
            place = self.noted(load.buffer, place, "write", value)
            emitter.line(f"{emitter.memory(load.buffer)}[{place}] = {value}")


def all_reduce_operands(
    node: Call,
) -> tuple[str, tuple[Expr, ...], tuple[Any, ...], tuple[str, ...]]:
    """Return reducer, values, addresses and thread tags of a ``thread_allreduce``."""
    name = _text_of(node.args[0])
    rest = [arg for arg in node.args[1:] if type(arg) is not StringImm]
    tags = tuple(arg.value for arg in node.args[1:] if type(arg) is StringImm)
    count = len(rest) // 2
    values, addresses = tuple(rest[:count]), tuple(rest[count:])
    if (
        not values
        or not tags
        or len(rest) % 2
        or any(type(arg) is not Call or arg.op.name != "address_of" for arg in addresses)
    ):
        raise VerifyError(
            "thread_allreduce takes a reducer's name, values, as many address_of(...) for the "
            "results, and thread tags"
        )
    return name, values, addresses, tags


def _holding(body: Stmt, names: frozenset[str]) -> set[Any]:
    """All nodes below which an operator of these names is called."""
    found: set[Any] = set()
    for item in post_order(body):
        if (type(item) is Call and item.op.name in names) or any(
            child in found for child in item.child_nodes()
        ):
            found.add(item)
    return found


def _below_lanes(body: Stmt) -> set[Any]:
    """Nodes that hold operators of wmma which lanes run together, and what is around them."""
    holding = _holding(body, WMMA_OPS)
    if not holding:
        return holding
    found: set[Any] = set()
    for item in post_order(body):
        if type(item) is For and item.thread == LANES_TAG and item in holding:
            found.update(inner for inner in pre_order(item) if inner in holding)
        elif any(child in found for child in item.child_nodes()):
            found.add(item)
    return found


def _shown(index: Expr) -> str:
    """An index as it stands in a report."""
    text = repr(index.base if isinstance(index, Ramp) else index)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


_SHOWN = 60
_WRAPPERS = (Allocate, DeclBuffer, AttrStmt, LetStmt)


def _thread_loop_below(stmt: Any) -> bool:
    """Whether allocations, lets and the like lead to another thread loop."""
    while type(stmt) in _WRAPPERS:
        stmt = stmt.body
    return type(stmt) is For and stmt.thread is not None


def _text_of(arg: Expr) -> str:
    if type(arg) is not StringImm:
        raise VerifyError(f"expected a text, got {arg!r}")
    return arg.value
