"""Check at run time that accesses stay inside their buffers.

For programs that read or write where they should not: each access that isn't proven to be in bounds
gets an assertion before the statement it is in, which says the buffer, the index and the size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    INDEX,
    TRUE,
    And,
    Call,
    Expr,
    Let,
    Or,
    Var,
    and_,
    const,
    dtypes,
    not_,
    or_,
    substitute,
)
from tilewright.support.errors import LowerError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.lanes import scalarized
from tilewright.tir.stmt import (
    AssertStmt,
    BufferStore,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from tilewright.tir.transform.base import (
    FunctionTransform,
    StmtMutator,
    function_analyzer,
    inside_loop,
    visit_branches,
)
from tilewright.tir.transform.effects import in_bounds


class InstrumentBoundCheckers(FunctionTransform):
    """Put assertions before statements whose loads or stores may be out of bounds.

    A part of a conditional value is checked only if it is evaluated. Raises ``LowerError`` for a
    ``while`` whose condition would need a check: no statement comes before each of its evaluations.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Checker(func).visit)


class _Checker(StmtMutator):
    def __init__(self, func: PrimFunc) -> None:
        self.analyzer = function_analyzer(func)

    def visit_Stmt(self, node: Stmt) -> Stmt:
        """Check what a statement evaluates itself, then go into it."""
        checks: list[Stmt] = []
        for guard, buffer, indices in _own_accesses(node):
            with self.analyzer.constraint(guard):
                safe = in_bounds(buffer, indices, self.analyzer)
            if not safe:
                checks += _assertions(guard, buffer, indices, self.analyzer)
        if checks and type(node) is While:
            raise LowerError(
                "InstrumentBoundCheckers: the condition of a while loop reads memory that isn't "
                "proven to be in bounds; read it into a variable in the loop's body"
            )
        made = self._inside(node)
        return seq(*checks, made) if checks else made

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        """A sequence stays flat."""
        return super().visit_SeqStmt(node)

    def _inside(self, node: Any) -> Stmt:
        kind = type(node)
        if kind is For:
            with inside_loop(self.analyzer, node):
                body = self.visit(node.body)
            return node if body is node.body else node.replace(body=body)  # type: ignore[no-any-return]
        if kind is IfThenElse:
            then_case, else_case = visit_branches(self, self.analyzer, node)
            return node.replace(then_case=then_case, else_case=else_case)  # type: ignore[no-any-return]
        return self.generic_visit(node)  # type: ignore[no-any-return]


_Access = tuple[Expr, Buffer, tuple[Expr, ...]]


def _own_accesses(stmt: Stmt) -> Iterator[_Access]:
    """The accesses of a statement without those of statements inside, in the order they happen."""
    if type(stmt) is SeqStmt:
        return
    for child in stmt.child_nodes():
        if isinstance(child, Expr):
            yield from _accesses(child, TRUE)
    if type(stmt) is BufferStore:
        yield TRUE, stmt.buffer, tuple(stmt.indices)


def _accesses(expr: Any, guard: Expr) -> Iterator[_Access]:
    """The loads below an expression, with the conditions under which they are evaluated."""
    kind = type(expr)
    if kind is Call and expr.op.name == "if_then_else" and _is_scalar(expr.args[0]):
        condition, yes, no = expr.args
        yield from _accesses(condition, guard)
        yield from _accesses(yes, and_(guard, condition))
        yield from _accesses(no, and_(guard, not_(condition)))
    elif kind in (And, Or) and _is_scalar(expr):
        yield from _accesses(expr.a, guard)
        yield from _accesses(expr.b, and_(guard, expr.a if kind is And else not_(expr.a)))
    elif kind is Let:
        yield from _accesses(expr.value, guard)
        yield from _accesses(substitute(expr.body, {expr.var: expr.value}), guard)
    else:
        for child in expr.child_nodes():
            if isinstance(child, Expr):
                yield from _accesses(child, guard)
        if kind is BufferLoad:
            yield guard, expr.buffer, tuple(expr.indices)


def _is_scalar(expr: Expr) -> bool:
    return dtypes.lanes_of(expr.dtype) == 1


def _assertions(
    guard: Expr, buffer: Buffer, indices: tuple[Expr, ...], analyzer: Analyzer
) -> Iterator[Stmt]:
    for axis, (index, extent) in enumerate(zip(indices, buffer.shape)):
        for lane in _lanes(buffer, index):
            with analyzer.constraint(guard):
                inside = analyzer.simplify(and_(lane >= 0, lane < extent))
            if inside is TRUE:
                continue
            known = guard is TRUE
            message = f"{buffer.name}: an index of axis {axis} is out of bounds"
            if known:  # elsewhere the index may have no value
                message = f"{buffer.name}: index {{}} of axis {axis} is not in [0, {{}})"
            yield AssertStmt(
                "RuntimeError",
                and_(lane >= 0, lane < extent) if known else _implied(guard, lane, extent),
                message,
                (lane, extent) if known else (),
            )


def _implied(guard: Expr, lane: Expr, extent: Expr) -> Expr:
    """``guard`` implies that the index is inside; it isn't evaluated where the guard is false."""
    return or_(not_(guard), and_(lane >= 0, lane < extent))


def _lanes(buffer: Buffer, index: Expr) -> list[Expr]:
    """The scalar indices of an access, one for each lane."""
    count = dtypes.lanes_of(index.dtype)
    if count == 1:
        return [index]
    lane = Var("lane", INDEX)
    scalar = scalarized(index, lane)
    if scalar is None or dtypes.is_scalable(index.dtype):
        raise LowerError(
            f"InstrumentBoundCheckers: can't tell the lanes of `{index!r}`, an index of "
            f"{buffer.name}; run the pass before VectorizeLoop"
        )
    return [substitute(scalar, {lane: const(i)}) for i in range(count)]
