"""Parallel loops: the annotations that say how their iterations are shared out, and their work.

A parallel loop runs on as many threads as its work is worth: starting threads and waiting for them
costs as much as some thousand instructions. Work is counted in vector instructions, roughly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arith import sum_terms
from tilewright.ir import (
    INDEX,
    Call,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    Node,
    Var,
    as_int,
    call,
    cast,
    const,
    dtypes,
    expr_equal,
    least_lanes,
    maximum,
    pre_order,
    rewrite_bottom_up,
    substitute,
    uses_var,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import PARALLEL_GRAIN, PARALLEL_SCHEDULE
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.stmt import (
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)

SCHEDULES = ("static", "dynamic")

#: Work that is worth a thread of its own: some 5 us, several times what a fork and join costs.
WORK_PER_THREAD = 1 << 14
#: Work that is worth taking the next iterations of a dynamic loop: an atomic operation and a call.
WORK_PER_TAKE = 1 << 11

# Bits that one instruction works on, and instructions of a division and of a call of a function.
_VECTOR_BITS = 512
_DIVISION, _FUNCTION = 4, 16
_DIVISIONS = frozenset(("truncdiv", "truncmod", "indexdiv", "indexmod"))
_INDEX_CALLS = frozenset(
    "truncdiv truncmod indexdiv indexmod shift_left shift_right bitwise_and bitwise_or "
    "likely ignore_loop_partition".split()
)
_CHEAP_CALLS = frozenset(
    "fma dot_accumulate if_then_else likely ignore_loop_partition reinterpret fabs "
    "abs sqrt floor ceil trunc round "
    "bitwise_and bitwise_or bitwise_xor bitwise_not shift_left shift_right prefetch".split()
)


@dataclass(frozen=True)
class ParallelOptions:
    """How a parallel loop asks to be shared out."""

    dynamic: bool = False
    grain: int | None = None


def parallel_options(annotations: Mapping[str, object]) -> ParallelOptions:
    """Read a loop's annotations; what isn't known is an error."""
    schedule = annotations.get(PARALLEL_SCHEDULE, "static")
    if schedule not in SCHEDULES:
        raise LowerError(
            f"{PARALLEL_SCHEDULE} of a parallel loop is {' or '.join(SCHEDULES)}, got {schedule!r}"
        )
    given = annotations.get(PARALLEL_GRAIN)
    grain = None if given is None else as_int(given)
    if given is not None and (grain is None or grain < 1):
        raise LowerError(f"{PARALLEL_GRAIN} of a parallel loop is a positive number, got {given!r}")
    return ParallelOptions(schedule == "dynamic", grain)


def iteration_work(loop: For) -> Expr | None:
    """Estimate the work of one iteration, on average, in terms of variables from outside.

    ``None`` if nothing can be said: there is a call of foreign code, or a count that comes from
    memory.
    """
    work = _work(loop.body)
    return None if work is None else _total(_averaged(work, loop))


def _total(work: Expr) -> Expr:
    """Let an estimate have a value for all sizes: it is computed before empty loops, too."""

    def positive(item: Any) -> Any:
        divides = isinstance(item, (FloorDiv, FloorMod)) or (
            type(item) is Call and item.op.name in _DIVISIONS
        )
        if not divides:
            return item
        a, b = item.args if type(item) is Call else (item.a, item.b)
        if as_int(b) is not None:
            return item
        least = maximum(b, const(1, b.dtype))
        return item.replace(args=(a, least)) if type(item) is Call else item.replace(b=least)

    made: Expr = rewrite_bottom_up(work, positive)
    return made


def _averaged(work: Expr, loop: For) -> Expr:
    """Work of the iteration in the middle: exact where work grows evenly (triangular loops)."""
    if not uses_var(work, {loop.loop_var}):
        return work
    number = as_int(loop.extent)
    extent = cast(loop.extent, INDEX)
    half = const(number // 2) if number is not None else call("shift_right", extent, const(1))
    middle = cast(cast(loop.min, INDEX) + half, loop.loop_var.dtype)
    made: Expr = substitute(work, {loop.loop_var: middle})
    return made


def _work(stmt: Stmt) -> Expr | None:
    if isinstance(stmt, SeqStmt):
        return _sum(_work(item) for item in stmt.stmts)
    if isinstance(stmt, For):
        body = _work(stmt.body)
        if body is None or not _is_arithmetic(stmt.extent):
            return None
        return cast(stmt.extent, INDEX) * _averaged(body, stmt)
    if isinstance(stmt, IfThenElse):
        return _of_branch(stmt)
    if isinstance(stmt, LetStmt):
        body = _work(stmt.body)
        if body is None or not uses_var(body, {stmt.var}):
            return body
        return substitute(body, {stmt.var: stmt.value}) if _is_arithmetic(stmt.value) else None
    if isinstance(stmt, While):
        return None
    if isinstance(stmt, BufferStore):
        return const(_instructions(stmt.value) + _units(stmt.value))
    if isinstance(stmt, Evaluate):
        return const(_instructions(stmt.value)) if _is_known(stmt.value) else None
    inner = [item for item in stmt.child_nodes() if isinstance(item, Stmt)]
    return _sum(_work(item) for item in inner)


def _of_branch(stmt: IfThenElse) -> Expr | None:
    """The dearer branch; both where that can't be told."""
    first = _work(stmt.then_case)
    second = const(0) if stmt.else_case is None else _work(stmt.else_case)
    if first is None or second is None:
        return None
    a, b = as_int(first), as_int(second)
    if a is not None and b is not None:
        return const(max(a, b))
    return _sum((first, second))


def _sum(parts: Iterable[Expr | None]) -> Expr | None:
    """Add estimates, equal terms together: an unrolled loop has as many as iterations."""
    terms: list[tuple[Expr, int]] = []
    total = 0
    for part in parts:
        if part is None:
            return None
        for item, factor in sum_terms(part):
            number = as_int(item)
            if number is not None:
                total += number * factor
                continue
            known = next((n for n, (term, _) in enumerate(terms) if expr_equal(term, item)), None)
            if known is None:
                terms.append((item, factor))
            else:
                terms[known] = item, terms[known][1] + factor
    made: Expr = const(total)
    for item, factor in terms:
        made = made + item * factor
    return made


def _is_arithmetic(expr: Expr) -> bool:
    """Whether an expression can be evaluated before the loop, given its variables."""
    return not any(
        isinstance(item, BufferLoad)
        or (isinstance(item, Call) and item.op.name not in _INDEX_CALLS)
        for item in pre_order(expr)
    )


def _is_known(expr: Expr) -> bool:
    """Whether all that an expression calls is ours."""
    return not isinstance(expr, Call) or expr.op.name in _CHEAP_CALLS


def _units(expr: Node) -> int:
    """Instructions that one operation on values of this type takes."""
    dtype = getattr(expr, "dtype", "int64")
    if dtype == "handle":
        return 1
    bits = least_lanes(dtypes.lanes_of(dtype)) * dtypes.bits_of(dtype)
    return max(1, -(-bits // _VECTOR_BITS))


def _instructions(expr: Expr) -> int:
    """Count the instructions of an expression; arithmetic on scalar integers is free."""
    total = 0
    for item in pre_order(expr):
        if isinstance(item, Var) or not item.child_nodes():
            continue
        dtype = getattr(item, "dtype", "int64")
        if isinstance(item, BufferLoad):
            total += _units(item)
        elif isinstance(item, Call):
            cheap = item.op.name in _CHEAP_CALLS
            total += (1 if cheap else _FUNCTION) * _units(item)
        elif dtypes.lanes_of(dtype) > 1 or dtypes.is_float(dtype):
            total += (_DIVISION if isinstance(item, Div) else 1) * _units(item)
    return total
