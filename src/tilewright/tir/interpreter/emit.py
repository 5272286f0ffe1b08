"""Translates a TensorIR function to Python source text.

The text is in pieces that are run one after the other, as module code in one namespace: first one
that names arguments and makes the memory of the outermost block, then one for each statement of
that block. A piece depends on nothing but its statement and the names that the first one gives, so
that a program of which a primitive has changed one statement has the other pieces as they were
(``run`` compiles no piece twice).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tilewright.ir import (
    Call,
    Node,
    Var,
    as_int,
    content_mask,
    contents,
    dtypes,
    free_vars,
    is_const,
    pre_order,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer
from tilewright.tir.empty_reduction import initial_values, may_be_empty
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import GPU_OPS
from tilewright.tir.interpreter.emit_expr import ExprEmitter
from tilewright.tir.interpreter.emit_threads import CALLS, COLLECTIVES, ThreadEmitter
from tilewright.tir.interpreter.lanes import by_lanes
from tilewright.tir.interpreter.traffic import Site
from tilewright.tir.loop_exits import BREAK, exit_of, own_exits
from tilewright.tir.returned_values import as_returned, returned_dtype
from tilewright.tir.rewrite import split_size_checks
from tilewright.tir.stmt import (
    PARALLEL,
    VECTORIZED,
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from tilewright.tir.walk import outermost, per_statement, statements, symbols_in

# CPython refuses more than 20 nested loops in a function; deeper nests go into inner functions.
_NEST_LIMIT = 12


@dataclass(frozen=True)
class Source:
    """A function as Python, and what its text refers to."""

    pieces: tuple[str, ...]
    intrinsics: tuple[str, ...]
    """Names of the functions that ``values.float_intrinsic`` makes."""
    checks: dict[str, tuple[str, int, int]]
    """Buffer's name, dimension and extent for each checked dimension of a known extent."""
    accesses: dict[int, Site] = field(default_factory=dict)
    """Places that access memory, where they are counted."""

    @property
    def text(self) -> str:
        """All of the program's text."""
        return "".join(self.pieces)


def python_source(
    func: PrimFunc,
    *,
    functions: Container[str] = (),
    check_races: bool = False,
    backwards: bool = False,
    report: bool = False,
) -> Source:
    """Return a function as Python that reads ``memory`` and ``symbols``.

    ``memory`` maps parameter number to flat memory, ``symbols`` maps names of scalars and symbolic
    extents to numbers. ``functions`` are those that it may call. ``check_races`` notes what
    threads access, ``report`` counts it. ``backwards`` runs parallel and vectorized loops from the
    end. Raises ``VerifyError`` for what leaves a loop and stands in none.
    """
    for name in sorted(own_exits(func.body)):
        raise VerifyError(f"{name}() stands in no loop")
    return Emitter(func, functions, check_races, backwards, report).emit()


class Piece(NamedTuple):
    """The text of a statement, and what it refers to."""

    text: str
    intrinsics: dict[str, None]
    checks: dict[str, tuple[str, int, int]]
    open_checks: dict[str, str]


_PIECES: WeakKeyDictionary[Stmt, dict[Any, Piece]] = WeakKeyDictionary()
"""By statement, and by the names and layouts of all that it uses from outside."""


@per_statement
def _symbols(stmt: Stmt) -> tuple[Any, ...]:
    """What a statement refers to; nothing if its text depends on still more."""
    if any(type(item) is For and item.thread is not None for item in (stmt, *statements(stmt))):
        return ()
    if contents(stmt) & content_mask(Call) and any(
        type(item) is Call
        and (item.op.name in COLLECTIVES or item.op.name in CALLS or item.op.name in GPU_OPS)
        for item in pre_order(stmt)
    ):
        return ()
    return tuple(symbols_in(stmt))


class Emitter(ExprEmitter):
    """Writes a function as Python, one statement per statement."""

    def __init__(
        self,
        func: PrimFunc,
        functions: Container[str],
        check_races: bool,
        backwards: bool,
        report: bool = False,
    ) -> None:
        super().__init__(functions)
        self.func = func
        self.returns = returned_dtype(func)
        self.backwards = backwards
        self.nest = 0
        self.threads = ThreadEmitter(self, check_races, report)

    # ---- functions ----------------------------------------------------------------------
    def emit(self) -> Source:
        """The program's text in pieces, and what it refers to."""
        func = self.func
        self.arguments()
        body = func.body
        if type(body) is BlockRealize and outermost(body):
            body = self.enter(body.block)
        self.shared = frozenset(self.layouts)
        self.depth, self.ending = 1, "_"
        first, names = self.lines, self.names
        pieces = []
        for stmt in body.stmts if type(body) is SeqStmt else (body,):
            piece = self.piece(stmt, names)
            if piece.text:
                pieces.append(piece.text)
            self.intrinsics.update(piece.intrinsics)
            self.checks.update(piece.checks)
            self.open_checks.update(piece.open_checks)
        first += [f"{name} = Places({what})" for name, what in self.open_checks.items()]
        pieces.insert(0, "\n".join([*first, ""]))
        return Source(
            tuple(pieces), tuple(self.intrinsics), self.checks, dict(self.threads.accessed)
        )

    def piece(self, stmt: Stmt, names: dict[Any, str]) -> Piece:
        """A statement of the outermost block, given the names of arguments and memory."""
        symbols = _symbols(stmt)
        key = None
        if symbols and not self.threads.follows:
            places = [self.layouts.get(item) for item in symbols]
            key = (
                self.backwards,
                tuple([names.get(item) for item in symbols]),
                tuple([place and (place[0], *place[1], place[2]) for place in places]),
                tuple([(self.owners.get(item), self.bases.get(item)) for item in symbols]),
            )
            found = _PIECES.get(stmt, {}).get(key)
            if found is not None:
                return found
        outer = self.intrinsics, self.checks, self.open_checks
        self.names, self.taken, self.lines = dict(names), set(), ["def piece():"]
        self.intrinsics, self.checks, self.open_checks, self.data_vars = {}, {}, {}, set()
        self.visit(stmt)
        text = "\n".join([*self.lines, "piece()", ""]) if len(self.lines) > 1 else ""
        made = Piece(text, self.intrinsics, self.checks, self.open_checks)
        self.intrinsics, self.checks, self.open_checks = outer
        if key is not None:
            _PIECES.setdefault(stmt, {})[key] = made
        return made

    def arguments(self) -> None:
        """Name what the function is called with."""
        func = self.func
        symbols = [var for var in func.params if var not in func.buffer_map]
        for var in (*symbols, *func.symbolic_vars()):
            self.line(f"{self.name(var)} = symbols[{id(var)}]")
        bound = {*symbols, *func.symbolic_vars()}
        parts = [var for buffer in func.buffers for part in buffer.shape for var in free_vars(part)]
        for var in dict.fromkeys(parts):  # of formulas like ``n * 4`` only
            if var not in bound:
                self.line(f"{self.name(var)} = symbols.get({id(var)})")
        for number, var in enumerate(func.params):
            buffer = func.buffer_map.get(var)
            if buffer is not None:
                memory = self.name(buffer.data)
                self.line(f"{memory}, {memory}_np = memory[{number}]")
                if buffer.strides:
                    # With negative strides, its pointer points into the middle of memory.
                    self.bases[buffer.data] = f"{memory}_base"
                    self.line(f"{memory}_base = symbols[{id(buffer)}]")
                self.declare(buffer)

    # ---- statements ---------------------------------------------------------------------
    def generic_visit(self, node: Node) -> Any:
        """Refuse what has no meaning here."""
        raise VerifyError(f"the interpreter doesn't know {type(node).__name__}")

    def visit_SeqStmt(self, node: SeqStmt) -> None:
        """One statement after the other."""
        for stmt in node.stmts:
            self.visit(stmt)

    def nested(self, stmt: Stmt) -> None:
        """Emit the body of a compound statement."""
        self.depth += 1
        self.nest += 1
        if self.nest % _NEST_LIMIT == 0 and not own_exits(stmt):
            self.line("def inner():")
            self.depth += 1
            self.line("pass")
            self.visit(stmt)
            self.depth -= 1
            waits = self.threads.lockstep and self.threads.is_collective(stmt)
            self.line("yield from inner()" if waits else "inner()")
        else:
            empty = len(self.lines)
            self.visit(stmt)
            if len(self.lines) == empty:
                self.line("pass")
        self.nest -= 1
        self.depth -= 1

    def visit_For(self, node: For) -> None:
        """A loop; one over threads is run as its kind asks."""
        if node.thread is None or not self.threads.loop(node):
            self.serial_loop(node, node.body)

    def serial_loop(self, node: For, body: Stmt | None) -> None:
        """Emit a loop that runs one iteration after the other (``None``: its header only)."""
        initial = initial_values(node, set()) if may_be_empty(node) else None
        if initial is not None:
            self.line(f"if {self.expr(node.extent)} <= 0:")
            self.nested(initial)
        var = self.name(node.loop_var)
        low, extent = self.expr(node.min), self.expr(node.extent)
        numbers = f"range({extent})" if low == "0" else f"range({low}, {low} + {extent})"
        if self.backwards and node.kind in (PARALLEL, VECTORIZED):
            numbers += "[::-1]"
        self.line(f"for {var} in {numbers}:")
        if body is not None:
            self.threads.around.append(var)
            self.nested(body)
            self.threads.around.pop()

    def visit_While(self, node: While) -> None:
        """A loop whose condition is asked before each iteration."""
        self.line(f"while {self.expr(node.condition)}:")
        self.nested(node.body)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        """A branch; one with a condition for each lane goes lane by lane."""
        if dtypes.lanes_of(node.condition.dtype) > 1:
            self.visit(by_lanes(node))
            return
        self.line(f"if {self.expr(node.condition)}:")
        self.nested(node.then_case)
        if node.else_case is not None:
            self.line("else:")
            self.nested(node.else_case)

    def visit_LetStmt(self, node: LetStmt) -> None:
        """An assignment, which the body follows."""
        self.line(f"{self.name(node.var)} = {self.bound(node)}")
        self.visit(node.body)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        """The body; what is asynchronous waits until it is committed."""
        if not self.threads.asynchronous(node):
            self.visit(node.body)

    def visit_AssertStmt(self, node: AssertStmt) -> None:
        """A check that fails with the message and its values."""
        values = "".join(f", {self.expr(value)}" for value in node.values)
        kind = "" if node.kind == "RuntimeError" else f", kind={node.kind}"
        self.line(f"if not ({self.expr(node.condition)}): fail({node.message!r}{values}{kind})")

    def visit_Evaluate(self, node: Evaluate) -> None:
        """An expression for its effect; hints have none."""
        value = node.value
        if isinstance(value, Call) and value.op.name in ("prefetch", "assume"):
            return
        if isinstance(value, Call) and value.op.name == "storage_sync":
            self.threads.barrier(value)
        elif isinstance(value, Call) and value.op.name == "thread_allreduce":
            self.threads.all_reduce(value)
        elif exit_of(node) is not None:
            self.line("break" if exit_of(node) == BREAK else "continue")
        elif isinstance(value, Call) and value.op.name == "ret":
            if self.threads.depth:
                raise VerifyError("the interpreter doesn't end single threads; use an if instead")
            result = value.args[0]
            if self.returns != "void":
                result = as_returned(result, self.returns)
            self.line(f"raise Returned({self.expr(result)})")
        elif as_int(value) is None:
            self.line(self.expr(value))

    def allocate(self, buffer: Buffer) -> None:
        """Fresh memory with room for all elements, strides counted."""
        memory = self.name(buffer.data)
        size = " * ".join(f"({self.expr(extent)})" for extent in buffer.shape) or "1"
        if buffer.strides:
            size = (
                " + ".join(
                    f"({self.expr(extent)} - 1) * ({self.expr(stride)})"
                    for extent, stride in zip(buffer.shape, buffer.strides)
                )
                + " + 1"
            )
        lanes = dtypes.lanes_of(buffer.dtype)
        if lanes > 1:
            raise VerifyError(f"the interpreter allocates scalar elements, not {buffer.dtype}")
        self.line(f"{memory}_np = {self.threads.allocation(buffer, size)}")
        self.line(f"{memory} = view({memory}_np, {buffer.dtype!r})")
        self.declare(buffer, offset="0")

    def visit_Allocate(self, node: Allocate) -> None:
        self.allocate(node.buffer)
        self.visit(node.body)

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.declare(node.buffer)
        self.visit(node.body)

    def visit_BufferStore(self, node: BufferStore) -> None:
        """A write of one element, or of a vector's, in the order of the lanes."""
        buffer: Buffer = node.buffer
        value = self.expr(node.value)
        place = self.address(buffer, node.indices)
        memory = self.layouts[buffer][0]
        vector = dtypes.lanes_of(node.value.dtype) > 1
        if node.value.dtype != "bool" and dtypes.is_bool(buffer.dtype) and not vector:
            value = f"bool({value})"
        self.threads.indices = node.indices
        if self.threads.issuing:
            self.threads.issue(buffer, place, value, vector)
            return
        noted = self.threads.noted(buffer, place, "write", "stored")
        if noted != place:
            self.line(f"stored = {value}")
            place, value = noted, "stored"
        self.line(f"{memory}{'_np' if vector else ''}[{place}] = {value}")

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        """A block: its axes are bound, and it runs where its predicate holds."""
        block = node.block
        for iter_var, value in zip(block.iter_vars, node.iter_values):
            self.line(f"{self.name(iter_var.var)} = {self.expr(value)}")
        conditional = not is_const(node.predicate, 1)
        if conditional:
            self.line(f"if {self.expr(node.predicate)}:")
            self.depth += 1
            self.line("pass")
        body = self.enter(block)
        if block.init is not None:
            first = [
                f"{self.name(iter_var.var)} == {self.expr(iter_var.dom.min)}"
                for iter_var in block.iter_vars
                if iter_var.kind == "reduce"
            ]
            self.line(f"if {' and '.join(first) or 'True'}:")
            self.nested(block.init)
        self.visit(body)
        if conditional:
            self.depth -= 1

    def enter(self, block: Block) -> Stmt:
        """Emit what a block does first; returns what is left of its body."""
        checks: list[Stmt] = []
        body = block.body
        if block.init is None and not block.match_buffers:
            checks, body = split_size_checks(body)
        for check in checks:
            self.visit(check)
        for buffer in block.alloc_buffers:
            self.allocate(buffer)
        for match in block.match_buffers:
            self.match_buffer(match)
        return body

    def match_buffer(self, match: Any) -> None:
        """A view: where it begins and how far its elements lie apart."""
        source, buffer = match.source.buffer, match.buffer
        place = self.address(source, tuple(r.min for r in match.source.region))
        memory, strides, _ = self.layouts[source]
        kept = strides[len(strides) - buffer.ndim :]
        if len(kept) != buffer.ndim:
            raise VerifyError(f"{buffer.name} has more dimensions than what it matches")
        target = self.name(buffer.data)
        self.line(f"{target}, {target}_np = {memory}, {memory}_np")
        self.owners[buffer.data] = self.owners[source.data]
        if source.data in self.threads.private:
            self.threads.private.add(buffer.data)
        start = f"{target}_start"
        self.line(f"{start} = {place}")
        if type(buffer.elem_offset) is Var:
            self.line(f"{self.name(buffer.elem_offset)} = {start}")
        for stride, axis in match.stride_variables():
            self.line(f"{self.name(stride)} = {kept[axis]}")
        self.declare(buffer, start, kept)
