"""Copies from global to shared memory that software pipelines leave in flight become ``cp.async``.

``InjectSoftwarePipeline`` marks them by attributes (``async_scope``, ``async_commit_queue_scope``,
``async_wait_queue_scope``), which ``ThreadSync`` knows. Afterwards a copy of 4, 8 or 16 bytes is a
``ptx_cp_async``; where it happens under conditions and brings zeros otherwise, as padding does,
it reads no bytes then. Copies of another form are done at once, in which case nothing is in flight.
PTX counts a thread's groups in one queue, so a kernel may have one. GPUs before ``sm_80`` have no
such copies: there all are done at once.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Broadcast,
    Call,
    Expr,
    IntImm,
    Ramp,
    and_,
    as_int,
    call,
    const,
    dtypes,
    if_then_else,
    pre_order,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import ASYNC_COMMIT, ASYNC_INFLIGHT, ASYNC_SCOPE, ASYNC_WAIT
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import AttrStmt, BufferStore, Evaluate, For, IfThenElse, Stmt, seq
from tilewright.tir.thread_scope import is_shared
from tilewright.tir.transform.base import (
    FunctionTransform,
    SeqMutator,
    bind_loop,
    function_analyzer,
)
from tilewright.tir.walk import statements

_BYTES = (4, 8, 16)


class InjectPTXAsyncCopy(FunctionTransform):
    """Replace copies in ``async_scope``, commits and waits by the operators of PTX.

    ``available`` says whether the GPU has them; otherwise the marks are only removed.
    """

    def __init__(self, available: bool = True) -> None:
        self.available = available

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        queues = {
            item.value.value if isinstance(item.value, IntImm) else None
            for item in statements(func)
            if type(item) is AttrStmt and item.key in (ASYNC_COMMIT, ASYNC_WAIT)
        }
        if not queues:
            return func
        if len(queues) > 1 and self.available:
            raise LowerError(
                f"{len(queues)} stages of software pipelines copy asynchronously; the GPU counts "
                "all groups of a thread in one queue: let one stage be asynchronous"
            )
        return func.map_children(_Rewriter(function_analyzer(func), self.available).visit)


class _Rewriter(SeqMutator):
    def __init__(self, analyzer: Analyzer, available: bool) -> None:
        self.analyzer, self.available = analyzer, available
        self.inside = False

    def visit_For(self, node: For) -> Any:
        bind_loop(self.analyzer, node)
        return self.generic_visit(node)

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.key == ASYNC_SCOPE:
            before, self.inside = self.inside, self.available
            body = self.visit(node.body)
            self.inside = before
            return body
        if node.key in (ASYNC_COMMIT, ASYNC_WAIT, ASYNC_INFLIGHT) and not self.available:
            return self.visit(node.body)
        if node.key == ASYNC_COMMIT:
            return seq(self.visit(node.body), Evaluate(call("ptx_commit_group")))
        if node.key == ASYNC_WAIT:
            count, body = const(0), node.body
            if isinstance(body, AttrStmt) and body.key == ASYNC_INFLIGHT:
                count, body = body.value, body.body
            # Waiting for more than need be is right, if slow: the number must be a constant.
            low = self.analyzer.const_int_bound(count).min
            count = const(low if isinstance(low, int) and low > 0 else 0)
            return seq(Evaluate(call("ptx_wait_group", count)), self.visit(body))
        return self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        if dtypes.lanes_of(node.condition.dtype) == 1:
            return self.generic_visit(node)
        before, self.inside = self.inside, False  # some lanes are copied and others aren't
        made = self.generic_visit(node)
        self.inside = before
        return made

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        made = _async_copy(node) if self.inside else None
        return node if made is None else made


def _async_copy(store: BufferStore) -> Stmt | None:
    """The operator that does a copy; ``None`` if there is none for it."""
    value, conditions = store.value, []
    while isinstance(value, Call) and value.op.name == "if_then_else":
        condition, value, other = value.args
        if not _is_zero(other) or dtypes.lanes_of(condition.dtype) > 1:
            return None
        conditions.append(condition)
    if not isinstance(value, BufferLoad) or value.buffer.scope != "global":
        return None
    if not is_shared(store.buffer.scope) or value.buffer.dtype != store.buffer.dtype:
        return None
    size = dtypes.lanes_of(value.dtype) * dtypes.bytes_of(store.buffer.dtype)
    indices = (*value.indices, *store.indices)
    if size not in _BYTES or not all(map(_is_run, indices)):
        return None
    if any(isinstance(item, BufferLoad) for index in indices for item in pre_order(index)):
        return None
    operands: list[Expr] = [const(size)]
    if conditions:
        condition = and_(*conditions)
        value = BufferLoad(value.buffer, tuple(_where(condition, index) for index in value.indices))
        operands.append(if_then_else(condition, const(size), const(0)))
    target = BufferLoad(store.buffer, store.indices)
    pointers = (call("address_of", target), call("address_of", value))
    return Evaluate(call("ptx_cp_async", *pointers, *operands))


def _is_run(index: Expr) -> bool:
    if dtypes.lanes_of(index.dtype) == 1:
        return True
    return isinstance(index, Ramp) and as_int(index.stride) == 1


def _where(condition: Expr, index: Expr) -> Expr:
    """An index that is inside the buffer wherever the address is taken."""
    if isinstance(index, Ramp):
        base = if_then_else(condition, index.base, const(0, index.base.dtype))
        return Ramp(base, index.stride, index.lanes)
    return if_then_else(condition, index, const(0, index.dtype))


def _is_zero(value: Expr) -> bool:
    if isinstance(value, Broadcast):
        value = value.value
    return getattr(value, "value", None) == 0
