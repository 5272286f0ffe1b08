"""Statements to C-like text: the upper part of the emitter.

One :class:`FunctionEmitter` writes the body of one function. What is particular to kernels (shared
memory, barriers) depends on tables of the dialect; a program for a CPU has none of it.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.codegen.c import emit_calls as _calls  # noqa: F401 - they register themselves
from tilewright.codegen.c import text as t
from tilewright.codegen.c.dialect import Dialect
from tilewright.codegen.c.emit_memory import MemoryEmitter
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Vector
from tilewright.codegen.checks import check_loop
from tilewright.ir import (
    EFFECTS,
    Call,
    Expr,
    Range,
    Var,
    as_int,
    cast,
    contains,
    dtypes,
    pre_order,
)
from tilewright.support.errors import CodegenError
from tilewright.support.text import printf_form
from tilewright.tir import (
    PARALLEL,
    THREAD_BINDING,
    UNROLLED,
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    is_no_op,
)
from tilewright.tir.attrs import ASYNC_COMMIT, ASYNC_INFLIGHT, ASYNC_SCOPE, ASYNC_WAIT
from tilewright.tir.thread_scope import is_private, is_shared

#: Most iterations of a loop over registers that the compiler is told to unroll.
UNROLL_LIMIT = 64
_PRIVATE_BYTES = 1 << 16
_has_effects = contains(EFFECTS)


class FunctionEmitter(MemoryEmitter):
    """Writes the body of one function."""

    def __init__(
        self, dialect: Dialect, helpers: dict[tuple[str, str], None], analyzer: Analyzer
    ) -> None:
        super().__init__(dialect, helpers, analyzer)
        self.name = ""
        self.shared_places: dict[Buffer, Any] = {}
        """Where shared memory lies in the one array that the launch sizes, in bytes."""
        self.issuing = False
        """Whether stores are asynchronous copies."""
        self.queues: set[int] = set()
        """Numbers of the stages whose copies are waited for."""

    # ---- simple statements

    def visit_SeqStmt(self, node: SeqStmt) -> None:
        """One statement after the other."""
        for stmt in node.stmts:
            self.new_statement()
            self.visit(stmt)

    def visit_Evaluate(self, node: Evaluate) -> None:
        """An expression for its effect."""
        if is_no_op(node):
            return
        value = self.visit(node.value)
        if isinstance(value, str) and value not in ("", "0") and "(" in value:
            self.line(f"{value};" if _has_effects(node) else f"(void)({value});")

    def visit_BufferStore(self, node: BufferStore) -> None:
        """A store, or a copy that arrives later."""
        if self.issuing and self.copy_later(node):
            return
        value = self.evaluate(node.value)
        if self.mask is not None and not isinstance(value, Vector) and not t.is_simple(value):
            value = self.let(value, dtypes.element_of(node.value.dtype), "value")
        self.store(node.buffer, node.indices, value, node.value.dtype)

    def copy_later(self, node: BufferStore) -> bool:
        """Write an asynchronous copy; ``False`` if it must be made at once."""
        return False

    def visit_LetStmt(self, node: LetStmt) -> None:
        """A definition, which the body follows."""
        self.bind(node)
        self.new_statement()
        self.visit(node.body)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        """What holds in the body: how copies are in flight; other hints say nothing here."""
        if node.key == ASYNC_SCOPE:
            before, self.issuing = self.issuing, True
            self.visit(node.body)
            self.issuing = before
        elif node.key == ASYNC_COMMIT:
            self.visit(node.body)
            self.commit_copies()
        elif node.key == ASYNC_WAIT:
            count, body = 0, node.body
            if isinstance(body, AttrStmt) and body.key == ASYNC_INFLIGHT:
                count, body = as_int(body.value) or 0, body.body
            self.await_copies(count if len(self.queues) <= 1 else 0)
            self.visit(body)
        else:
            self.visit(node.body)

    def commit_copies(self) -> None:
        """End a group of asynchronous copies."""

    def await_copies(self, count: int) -> None:
        """Wait until at most ``count`` groups are in flight."""

    def visit_AssertStmt(self, node: AssertStmt) -> None:
        """A check, which stops the kernel with a message."""
        condition = self.scalar(node.condition)
        with self.braces(f"if (!{t.within(condition, t.ATOM)})"):
            if self.dialect.prints:
                form = printf_form(node.message) + "\n"
                values = "".join(
                    f", (long long){t.within(self.scalar(cast(value, 'int64')), t.UNARY)}"
                    for value in node.values
                )
                self.line(f"printf({t.string_text(form)}{values});")
            self.line(self.dialect.fail)

    # ---- branches and loops

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        """A branch; with a condition for each lane, what is inside runs for those that are on."""
        condition = self.evaluate(node.condition)
        if isinstance(condition, Vector):
            self._by_lanes(node, condition)
            return
        if condition in ("true", "false"):
            taken = node.then_case if condition == "true" else node.else_case
            if taken is not None:
                self.visit(taken)
            return
        self.line(f"if ({condition}) {{")
        self._inside(node.then_case)
        if node.else_case is not None:
            self.line("} else {")
            self._inside(node.else_case)
        self.line("}")

    def _inside(self, stmt: Stmt) -> None:
        with self.inside():
            self.new_statement()
            self.visit(stmt)

    def _by_lanes(self, node: IfThenElse, condition: Vector) -> None:
        """Whole vectors where all lanes are on, else lane by lane."""
        on = [self.named(lane, "bool", "on") for lane in condition.lanes()]
        for item in pre_order(node):
            if isinstance(item, Call) and item.op.effect == "opaque":
                raise CodegenError(
                    f"{item.op.name} stands under a condition with one value for each lane, "
                    "which has no code"
                )
        if self.mask is None:
            with self.braces(f"if ({' && '.join(on)})", "} else {"):
                self.visit(node.then_case)
            with self.inside():
                self.under_mask(list(on), lambda: self.visit(node.then_case))
                self._others(node, on)
            self.line("}")
            return
        self.under_mask(list(on), lambda: self.visit(node.then_case))
        self._others(node, on)

    def _others(self, node: IfThenElse, on: list[Text]) -> None:
        other = node.else_case
        if other is not None:
            off: list[str] = [t.prefix("!", lane) for lane in on]
            self.under_mask(off, lambda: self.visit(other))

    def visit_While(self, node: While) -> None:
        """A loop with a condition, which may need statements of its own."""
        with self.aside() as lines:
            condition = self.evaluate(node.condition)
            assert not isinstance(condition, Vector)
        with self.braces(f"while ({condition if not lines else 'true'})"):
            if lines:
                self.spliced(lines)
                self.line(f"if (!{t.within(condition, t.ATOM)}) break;")
            self.new_statement()
            self.visit(node.body)

    def visit_For(self, node: For) -> None:
        """A loop; a parallel one runs as the dialect has it."""
        check_loop(node)
        if node.kind == THREAD_BINDING:
            self.thread_loop(node)
            return
        kind = self.dialect.register(node.loop_var.dtype)
        begin, end = self.scalar(node.min), self.scalar(node.min + node.extent)
        name = self.fresh(node.loop_var.name)
        self.values[node.loop_var] = Text(name)
        self.analyzer.bind(
            node.loop_var, Range.from_min_extent(node.min, node.extent), override=True
        )
        end = end if t.is_simple(end) else self.let(end, node.loop_var.dtype, "end")
        if node.kind == PARALLEL:
            self.parallel(node)
        elif node.kind == UNROLLED or self._keeps_registers(node):
            self.line(self.dialect.unroll)
        self.new_statement()
        with self.braces(f"for ({kind} {name} = {begin}; {name} < {end}; ++{name})"):
            self.visit(node.body)
        self.new_statement()

    def parallel(self, node: For) -> None:
        """Say that the iterations of a loop may run at once."""

    def _keeps_registers(self, node: For) -> bool:
        """Whether a loop must be unrolled for arrays of a thread's own to be in registers."""
        extent = as_int(node.extent)
        if not self.dialect.indices or extent is None or not 1 < extent <= UNROLL_LIMIT:
            return False
        return any(
            isinstance(item, (BufferLoad, BufferStore))
            and is_private(item.buffer.scope)
            and any(_uses(index, node.loop_var) for index in item.indices)
            for item in pre_order(node.body)
        )

    def thread_loop(self, node: For) -> None:
        """A loop over the threads that run the kernel: each of them has its index."""
        index = self.thread_index(node.thread or "")
        if index is None:
            raise CodegenError(
                f"loop {node.loop_var.name!r} is bound to {node.thread}, which "
                f"{self.dialect.name} doesn't have; it has: "
                f"{', '.join(self.dialect.indices) or 'no GPU threads'}"
            )
        kind = dtypes.element_of(node.loop_var.dtype)
        text = t.prefix(f"({self.dialect.register(kind)})", index)
        if as_int(node.min) != 0:
            text = t.binary("+", self.scalar(node.min), text)
        self.values[node.loop_var] = self.let(text, kind, node.loop_var.name)
        self.analyzer.bind(
            node.loop_var, Range.from_min_extent(node.min, node.extent), override=True
        )
        self.visit(node.body)

    def thread_index(self, tag: str) -> str | None:
        """The text that numbers threads or blocks of a tag; ``None`` if there is none."""
        return self.dialect.indices.get(tag)

    # ---- memory

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        """A view: another pointer into memory that is there."""
        self.view(node.buffer)
        self.visit(node.body)

    def view(self, buffer: Buffer) -> None:
        """Name the pointer of a view, unless there is one of its type."""
        kind = self.dialect.memory(dtypes.element_of(buffer.dtype))
        key = (buffer.data, kind)
        if key in self.pointers or not any(var is buffer.data for var, _ in self.pointers):
            if key not in self.pointers:
                raise CodegenError(f"{buffer.name} is a view of memory that is not defined")
            return
        pointer = self.pointer(buffer.data, kind)
        name = self.fresh(buffer.name)
        self.line(f"{self.pointer_type(buffer.data, kind)} const {name} = {pointer};")
        self.pointers[key] = name

    def visit_Allocate(self, node: Allocate) -> None:
        """Memory of a thread, or of those that share it."""
        buffer = node.buffer
        if is_shared(buffer.scope) or buffer.scope == "warp":
            self.share(buffer)
        else:
            self.private(buffer)
        self.visit(node.body)

    def elements(self, buffer: Buffer) -> int | None:
        """How many elements memory has (of lanes, if those are vectors); ``None`` if unknown."""
        count = dtypes.lanes_of(buffer.dtype)
        for extent in buffer.shape:
            own = as_int(extent)
            if own is None:
                return None
            count *= max(own, 0)
        return count

    def private(self, buffer: Buffer) -> None:
        """Declare memory of one thread."""
        element = dtypes.element_of(buffer.dtype)
        count = self.elements(buffer)
        if count is None or count * dtypes.bits_of(element) > 8 * _PRIVATE_BYTES:
            size = " * ".join(map(repr, buffer.shape))
            raise CodegenError(
                f"{self.name}: each thread would need its own {buffer.name} of {size} "
                f"{buffer.dtype}; a thread's memory has a constant size up to {_PRIVATE_BYTES} "
                "bytes. Put it into shared memory, or allocate it outside of the kernel"
            )
        kind, bits = self.dialect.memory(element), dtypes.bits_of(element)
        room = max(1, -(-count * bits // 8) * 8 // max(bits, 8))
        align = min(16, 1 << max(0, (room * max(bits, 8) // 8).bit_length() - 1))
        name = self.fresh(buffer.name)
        place = f" {self.dialect.align.format(align=align)}" if align > bits // 8 else ""
        self.line(f"{kind} {name}[{room}]{place};")
        self._known(buffer, kind, name, max(align, bits // 8), self.dialect.spaces.get("local", ""))

    def _known(self, buffer: Buffer, kind: str, name: str, align: int, space: str) -> None:
        self.pointers[buffer.data, kind] = name
        self.alignment[buffer.data] = align
        self.space_of[buffer.data] = space

    def share(self, buffer: Buffer) -> None:
        """Declare memory that the threads of a block, or of a warp, share."""
        if not self.dialect.shared:
            raise CodegenError(
                f"{buffer.name} is in {buffer.scope} memory, which {self.dialect.name} doesn't have"
            )
        element = dtypes.element_of(buffer.dtype)
        kind, bits = self.dialect.memory(element), dtypes.bits_of(element)
        align = max(16, min(buffer.alignment, 1024))
        name = self.fresh(buffer.name)
        space = self.dialect.spaces.get("shared", "")
        place = self.shared_places.get(buffer)
        if place is None:
            count = (self.elements(buffer) or 0) * bits // max(bits, 8)
            room = max(1, count) * self.copies(buffer)
            self.line(f"{self.dialect.shared.format(align=align)} {kind} {name}[{room}];")
        else:
            base, offset = self.dialect.options["dynamic_name"], self.scalar(place)
            start = t.binary("+", base, offset) if offset != "0" else Text(base)
            pointer = f"{space + ' ' if space else ''}{kind}*"
            self.line(f"{pointer} const {name} = ({pointer}){t.within(start, t.UNARY)};")
        if buffer.scope == "warp":
            count = (self.elements(buffer) or 0) * bits // max(bits, 8)
            own = self.fresh(f"{buffer.name}_warp")
            pointer = f"{space + ' ' if space else ''}{kind}*"
            self.line(f"{pointer} const {own} = {name} + {self.warp_index()} * {max(1, count)};")
            name, align = own, max(1, bits // 8)
        self._known(buffer, kind, name, align, space)

    def copies(self, buffer: Buffer) -> int:
        """How often shared memory of a scope is there in a block."""
        return 1

    def warp_index(self) -> str:
        """The number of a thread's warp in its block."""
        raise CodegenError(f"{self.dialect.name} has no warps")


def _uses(expr: Expr, var: Var) -> bool:
    return any(item is var for item in pre_order(expr))
