"""Statements to LLVM IR: loops, branches, allocations, parallel regions.

The upper part of the LLVM emitter. One :class:`FunctionEmitter` writes one LLVM function; a
parallel loop becomes a function of its own (:mod:`parallel`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.codegen.checks import check_loop
from tilewright.codegen.llvm.emit_masked import every_lane
from tilewright.codegen.llvm.emit_memory import MemoryEmitter
from tilewright.codegen.llvm.guards import loads_one
from tilewright.codegen.llvm.moves import moved_as_bits
from tilewright.codegen.llvm.types import memory_bytes, memory_type, register_type, wide_dtype
from tilewright.codegen.llvm.writer import Scope
from tilewright.ir import (
    EFFECTS,
    INDEX,
    Call,
    Expr,
    Node,
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
from tilewright.tir.attrs import PREFETCH_DISTANCE, STREAMING_STORES

#: Buffers of constant size up to this many bytes live on the stack.
STACK_BYTES = {"local": 1 << 18, "global": 1 << 14}
_STACK_TOTAL = 1 << 19

_MESSAGE_BYTES = 512
_LONGEST_NAME = 100
"""Room for the message of an assertion that shows values; what is longer is cut."""

Effects = tuple[frozenset[Any], bool]
_IMPURE = ("update", "opaque")
_HARMLESS = ("prefetch", "assume", "access_ptr", "address_of")


_has_effects = contains(EFFECTS)
_may_write = contains(EFFECTS, BufferStore)


class _Effects:
    """What statements write, and whether they call unknown code; remembered for loops."""

    def __init__(self) -> None:
        self.known: dict[Any, Effects] = {}

    def of(self, stmt: Stmt) -> Effects:
        found = self.known.get(stmt)
        if found is not None:
            return found
        written: set[Any] = set()
        opaque = False
        stack: list[Any] = [stmt]
        while stack:
            item = stack.pop()
            if item is not stmt and isinstance(item, (For, While)):
                inner, inner_opaque = self.of(item)
                written |= inner
                opaque = opaque or inner_opaque
                continue
            if isinstance(item, BufferStore):
                written.add(item.buffer.data)
                if not _has_effects(item):
                    continue
            elif (
                isinstance(item, Call)
                and item.op.effect in _IMPURE
                and item.op.name not in _HARMLESS
            ):
                opaque = True
            if _may_write(item):
                stack.extend(item.child_nodes())
        made = self.known[stmt] = (frozenset(written), opaque)
        return made


RETURNED = "%returned"
"""The parameter that says where the function's value goes."""


class FunctionEmitter(MemoryEmitter):
    """Emits the body of one function."""

    parallel_depth = 0
    returns = ""  # the dtype of the function's value

    def __init__(self, module: object, name: str) -> None:
        super().__init__(module)
        self.name = name
        self.effects = _Effects()
        self.noalias: set[Var] = set()
        self._live_workspaces: list[str] = []
        self._stack_bytes = 0
        self._message_room = ""

    # ---- simple statements

    def visit_SeqStmt(self, node: SeqStmt) -> None:
        """One statement after the other."""
        for stmt in node.stmts:
            self.visit(stmt)

    def visit_Evaluate(self, node: Evaluate) -> None:
        """An expression for its effect."""
        if not is_no_op(node):
            self.visit(node.value)

    def visit_BufferStore(self, node: BufferStore) -> None:
        """A store; values that are only moved go as the bits that they are."""
        node = moved_as_bits(node)
        value = self.visit(node.value)
        self.store(node.buffer, node.indices, value, node.value.dtype)

    def visit_LetStmt(self, node: LetStmt) -> None:
        """A definition, which the body follows."""
        self.bind(node)
        self.visit(node.body)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        """Hints for the body: streaming stores, how far loads are fetched ahead."""
        if node.key.startswith("thread_extent"):
            raise _thread_error(str(node.key))
        outer = self.streaming, self.prefetching
        if node.key == STREAMING_STORES:
            self.streaming = as_int(node.value) or 0
        elif node.key == PREFETCH_DISTANCE:
            self.prefetching = as_int(node.value) or 0
        self.visit(node.body)
        self.streaming, self.prefetching = outer

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        """A view, whose elements tell the type of its memory."""
        self.module.element_of_data.setdefault(node.buffer.data, node.buffer.dtype)
        self.visit(node.body)

    def visit_AssertStmt(self, node: AssertStmt) -> None:
        """A check: a message is left and the function returns if it fails."""
        condition = self.visit(node.condition)
        failed, passed = self.label("failed"), self.label("passed")
        # What the message shows is of this branch only, but for what was known before it.
        self.enter(Scope("if"))
        self.branch_if(condition, passed, failed)
        self.start_block(failed)
        values = [str(self.visit(cast(value, INDEX))) for value in node.values]
        self.raise_error(node.kind, node.message, values)
        self._return("-1")
        self.leave()
        self.start_block(passed)

    def raise_error(self, kind: str, message: str, values: Sequence[str] = ()) -> None:
        """Set the error that the caller gets; each ``{}`` shows one of the ``i64`` values."""
        text = self.module.string(message)
        if values:
            form = self.module.string(printf_form(message))
            operands = "".join(f", i64 {value}" for value in values)
            # In the first block: an allocation elsewhere would cost the whole function a register.
            if not self._message_room:
                self._message_room = self.fresh()
                self.entry.append(f"  {self._message_room} = alloca [{_MESSAGE_BYTES} x i8]")
            text = self._message_room
            self.module.declare("declare i32 @snprintf(ptr, i64, ptr, ...)")
            self.effect(
                f"call i32 (ptr, i64, ptr, ...) @snprintf(ptr {text}, i64 {_MESSAGE_BYTES}, "
                f"ptr {form}{operands})"
            )
        self.module.declare("declare void @TVMFFIErrorSetRaisedFromCStr(ptr, ptr)")
        name = self.module.string(kind)
        self.effect(f"call void @TVMFFIErrorSetRaisedFromCStr(ptr {name}, ptr {text})")

    def _return(self, code: str) -> None:
        for pointer in reversed(self._live_workspaces):
            self.give_back(pointer)
        self.finish_streaming()
        self.effect(f"ret i32 {code}")

    def store_returned(self, value: Expr) -> None:
        """Store the function's value where its caller reads it."""
        self._check_whole()
        wide = wide_dtype(self.returns)
        narrow = self.convert(self.visit(value), value.dtype, self.returns)
        made = self.convert(narrow, self.returns, wide)
        self.effect(f"store {register_type(wide)} {made}, ptr {RETURNED}")

    def _check_whole(self) -> None:
        if self.parallel_depth:
            raise CodegenError("ret inside a parallel loop has no code: only a whole function ends")

    def return_early(self, code: str) -> None:
        """Return from here; what follows is unreachable but must still stand in some block."""
        self._check_whole()
        self._return(code)
        self.start_block(self.label("after_return"))

    def fail_if(self, condition: str, message: str) -> None:
        """Raise an error where an instruction says so."""
        failed, passed = self.label("failed"), self.label("passed")
        self.branch_if(self.here(condition), failed, passed)
        self.start_block(failed)
        self.raise_error("RuntimeError", message)
        self._return("-1")
        self.start_block(passed)

    def return_if_failed(self, code: str, but: int = 0) -> None:
        """Pass on the error that a callee has raised: a code other than 0 and ``but``."""
        bad = self.here(f"icmp {'ugt' if but else 'ne'} i32 {code}, {but}")
        failed, passed = self.label("failed"), self.label("passed")
        self.branch_if(bad, failed, passed)
        self.start_block(failed)
        self._return(code)
        self.start_block(passed)

    # ---- branches

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        """A branch, or a mask where each lane has a condition."""
        lanes, then, other = dtypes.lanes_of(node.condition.dtype), node.then_case, node.else_case
        if lanes > 1:
            every = self._every_lane(node)
            if every is not None:

                def at_an_edge() -> None:
                    self._masked(self.visit(node.condition), lanes, then)

                self._branch(every, lambda: self.visit(then), at_an_edge)
                return
            condition = self.visit(node.condition)
            self._masked(condition, lanes, then)
            if other is not None:
                self._masked(self.not_(condition, lanes), lanes, other)
            return
        condition = self.visit(node.condition)
        if condition in ("true", "false"):
            taken = then if condition == "true" else other
            if taken is not None:
                self.visit(taken)
            return
        otherwise = None if other is None else lambda: self.visit(other)
        self._branch(condition, lambda: self.visit(then), otherwise)

    def _branch(
        self, condition: str, then: Callable[[], None], otherwise: Callable[[], None] | None
    ) -> None:
        yes, join = self.label("then"), self.label("join")
        no = self.label("else") if otherwise is not None else join
        first, other = Scope("if"), Scope("if")
        # Both sides share the lines before the branch: one may use what the other hoisted.
        other.pre = first.pre
        self.enter(first)
        self.branch_if(condition, yes, no)
        self.start_block(yes)
        then()
        self.branch(join)
        self.leave()
        if otherwise is not None:
            self.scopes.append(other)
            self._floor = len(self.scopes) - 1
            self.start_block(no)
            otherwise()
            self.branch(join)
            self.leave()
        self.start_block(join)

    def _every_lane(self, node: IfThenElse) -> str | None:
        """Whether all lanes of a store are on, where that is worth a test.

        Before AVX-512, stores under masks take many times as long as others, or are one for each
        lane; most tiles lie inside of the result.
        """
        target = self.module.target
        slow = target.has("sse2") and not target.has("avx512f")
        if not slow or self.mask is not None or node.else_case is not None:
            return None
        store = node.then_case
        return every_lane(self, node.condition) if isinstance(store, BufferStore) else None

    def _masked(self, mask: str, lanes: int, stmt: Stmt) -> None:
        """Emit for the lanes of ``mask``; what no mask can guard stands behind a branch."""
        if not any(_needs_branch(item, lanes) for item in pre_order(stmt)):
            self.under_mask(mask, lanes, lambda: self.visit(stmt))
            return
        some = self.any_lane(self.within_mask(mask, lanes), lanes)
        yes, join = self.label("some"), self.label("none")
        self.enter(Scope("if"))
        self.branch_if(some, yes, join)
        self.start_block(yes)
        self.under_mask(mask, lanes, lambda: self.visit(stmt))
        self.branch(join)
        self.leave()
        self.start_block(join)

    # ---- loops

    def visit_For(self, node: For) -> None:
        """A loop; a parallel one becomes a function of its own that the pool runs."""
        check_loop(node)
        if node.kind == THREAD_BINDING:
            raise _thread_error(f"{node.loop_var.name!r} ({node.thread})")
        if (
            node.kind == PARALLEL
            and self.parallel_depth == 0
            and self.mask is None
            and as_int(node.extent) != 1
        ):
            self.module.emit_parallel(self, node)
            return
        begin = self.visit(node.min)
        end = self.visit(node.min + node.extent)
        extent = as_int(node.extent)
        outer, ahead = self.prefetching, node.annotations.get(PREFETCH_DISTANCE)
        self.prefetching = 0 if ahead is None else as_int(ahead) or 0
        self.loop(node.loop_var, begin, end, node, sure=extent is not None and extent > 0)
        self.prefetching = outer

    def loop(self, var: Var, begin: str, end: str, node: For, *, sure: bool) -> None:
        """Emit a serial loop over ``[begin, end)``."""
        kind = memory_type(var.dtype)
        head, done = self.label("loop"), self.label("done")
        if not sure:
            some = self.pure(f"icmp slt {kind} {begin}, {end}", begin, end)
            enter = self.label("enter")
            self.enter(Scope("if"))
            self.branch_if(some, enter, done)
            self.start_block(enter)
        written, opaque = self.effects.of(node)
        self.enter(Scope("loop", written, opaque))
        before = self.block
        self.branch(head)
        self.start_block(head)
        index = self.fresh(_identifier(var.name))
        self.levels[index] = len(self.scopes) - 1
        self.define(var, index)
        at = len(self.lines)
        self.lines.append("")
        self.visit(node.body)
        following = self.here(f"add nsw {kind} {index}, 1")
        more = self.here(f"icmp slt {kind} {following}, {end}")
        self.branch_if(more, head, done)
        self.lines[at] = (
            f"  {index} = phi {kind} [ {begin}, %{before} ], [ {following}, %{self.block} ]"
        )
        self.leave()
        if not sure:
            self.leave()
        self.start_block(done)

    def visit_While(self, node: While) -> None:
        """A loop whose condition is asked before each iteration."""
        head, body, done = self.label("while"), self.label("body"), self.label("done")
        written, opaque = self.effects.of(node)
        self.enter(Scope("loop", written, opaque))
        # The condition is evaluated at least once; the body perhaps never.
        self.branch(head)
        self.start_block(head)
        condition = self.visit(node.condition)
        self.enter(Scope("if"))
        self.branch_if(condition, body, done)
        self.start_block(body)
        self.visit(node.body)
        self.branch(head)
        self.leave()
        self.leave()
        self.start_block(done)

    # ---- memory

    def visit_Allocate(self, node: Allocate) -> None:
        """Memory: registers, the stack or the workspace, by size and scope."""
        self.with_memory(node.buffer, lambda: self.visit(node.body))

    def with_memory(self, buffer: Buffer, emit_body: Callable[[], None]) -> None:
        """Emit a body with memory for ``buffer``: on the stack if small, else a workspace."""
        self.module.element_of_data[buffer.data] = buffer.dtype
        self.noalias.add(buffer.data)
        size = memory_bytes(buffer.dtype) * dtypes.lanes_of(buffer.dtype)
        for extent in buffer.shape:
            value = as_int(extent)
            if value is None:
                size = -1
                break
            size *= value
        if size < 0 or not self._fits_stack(buffer, size):
            self._workspace(buffer, emit_body)
            return
        pointer = self.fresh(_identifier(buffer.name))
        self.levels[pointer] = 0
        kind = memory_type(dtypes.element_of(buffer.dtype))
        count = max(size // memory_bytes(buffer.dtype), 1)
        align = max(buffer.alignment, 64)
        self.stack_elements[buffer.data] = count
        self.entry.append(f"  {pointer} = alloca [{count} x {kind}], align {align}")
        self.define(buffer.data, pointer)
        emit_body()

    def _fits_stack(self, buffer: Buffer, size: int) -> bool:
        if size > STACK_BYTES.get(buffer.scope, STACK_BYTES["global"]):
            return False
        if self._stack_bytes + size > _STACK_TOTAL:
            return False
        self._stack_bytes += size
        return True

    def _workspace(self, buffer: Buffer, emit_body: Callable[[], None]) -> None:
        """Memory that is large, or whose size is known only at run time."""
        total = memory_bytes(buffer.dtype) * dtypes.lanes_of(buffer.dtype)
        count: Expr | None = None
        for extent in buffer.shape:
            size = cast(extent, INDEX)
            count = size if count is None else count * size
        amount = str(total) if count is None else self.visit(count * total)
        pointer = self.take(amount, buffer)
        missing = self.here(f"icmp eq ptr {pointer}, null")
        failed, passed = self.label("nomem"), self.label("mem")
        self.branch_if(missing, failed, passed)
        self.start_block(failed)
        self.raise_no_memory(buffer)
        self._return("-1")
        self.start_block(passed)
        self.define(buffer.data, pointer)
        self._live_workspaces.append(pointer)
        emit_body()
        self._live_workspaces.pop()
        self.give_back(pointer)

    def take(self, amount: str, buffer: Buffer) -> str:
        """Take so many bytes for a buffer; the address is null if there are none."""
        self.module.declare("declare noalias ptr @tw_workspace_alloc(i64)")
        return str(self.here(f"call noalias align 64 ptr @tw_workspace_alloc(i64 {amount})"))

    def raise_no_memory(self, buffer: Buffer) -> None:
        """Set the error of a buffer without memory."""
        self.raise_error("MemoryError", f"{self.name}: no memory for buffer {buffer.name}")

    def give_back(self, pointer: str) -> None:
        """Give memory back that was taken."""
        self.module.declare("declare void @tw_workspace_free(ptr)")
        self.effect(f"call void @tw_workspace_free(ptr {pointer})")


def _needs_branch(item: Node, lanes: int) -> bool:
    if isinstance(item, BufferLoad):
        return loads_one(item)
    if isinstance(item, BufferStore):
        return dtypes.lanes_of(item.indices[-1].dtype) != lanes
    if isinstance(item, Call):
        return item.op.effect in _IMPURE
    return isinstance(item, (For, While, Allocate, AssertStmt))


def _identifier(name: str) -> str:
    """A hint that LLVM takes: no digit first (those are its own names), and not cut off by it."""
    return re.sub(r"\W|^(?=\d)", "_", name[:_LONGEST_NAME], flags=re.ASCII) + "."


def _thread_error(what: str) -> CodegenError:
    return CodegenError(
        f"loop {what} is bound to a GPU thread, which the llvm target doesn't have; "
        "use `parallel` instead of `bind`, or compile for a GPU target"
    )
