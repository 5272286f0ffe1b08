"""How much a function computes and moves, read off its loops; what tuning rates programs by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith import Analyzer, simplify
from tilewright.ir import (
    Add,
    And,
    Call,
    CompareExpr,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IRModule,
    Max,
    Min,
    Mul,
    Or,
    Sub,
    Var,
    dtypes,
    least_lanes,
    substitute,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.analysis.accesses import Access, detect_accesses
from tilewright.tir.analysis.counting import ZERO, Count, count_instances
from tilewright.tir.analysis.traffic import sizes_known
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
)

_ONE_OPERATION = (Add, Sub, Mul, Div, Min, Max, FloorDiv, FloorMod)
_FREE_CALLS = (
    "reinterpret",
    "if_then_else",
    "likely",
    "ignore_loop_partition",
    "min_value",
    "max_value",
    "infinity",
)
Sizes = Mapping[Any, int]


def estimate_flops(target: IRModule | PrimFunc, sizes: Sizes | None = None) -> int:
    """Return the number of arithmetic operations of a function (a module: of all its functions).

    Operations on values count one each per lane (``fma`` two), index arithmetic, comparisons and
    ``init`` nothing. ``sizes`` gives symbolic extents by variable or by name.
    """
    if isinstance(target, IRModule):
        funcs = [func for func in target.functions.values() if isinstance(func, PrimFunc)]
        return sum(estimate_flops(func, sizes) for func in funcs)
    return _stmt(target.body, _Sizes(sizes))


def count_flops(program: PrimFunc | Stmt, *, analyzer: Analyzer | None = None) -> Count:
    """Count arithmetic operations as an expression of symbolic sizes.

    Operations count as for ``estimate_flops``, as often as conditions let them run; if that is not
    known, the count is an upper bound. What intrinsics do by themselves counts nothing.
    """
    return count_operations(detect_accesses(program), sizes_known(program, analyzer))


def count_operations(accesses: list[Access], known: Analyzer) -> Count:
    """Count the operations that the stores among some accesses take; see ``count_flops``."""
    total = ZERO
    for access in accesses:
        operations = 0
        if type(access.node) is BufferStore and not access.in_init:
            operations = _expr(access.node.value)
        if operations:
            found = count_instances(access.domain, access.conditions, analyzer=known)
            total = total + (found.bound() if access.repeats else found).scaled(operations)
    return Count(known.simplify(total.value), total.exact)


def estimate_bytes(func: PrimFunc, sizes: Sizes | None = None) -> int:
    """Return the bytes of all parameter buffers: what must be moved at least once."""
    known = _Sizes(sizes)
    total = 0
    for buffer in func.buffers:
        bits = dtypes.bits_of(buffer.dtype) * dtypes.lanes_of(buffer.dtype)
        for extent in buffer.shape:
            bits *= known.number(extent)
        total += (bits + 7) // 8
    return total


class _Sizes:
    """Values of symbolic extents, and of loop variables at the middle of their range."""

    def __init__(self, sizes: Sizes | None) -> None:
        self.named = {key: value for key, value in (sizes or {}).items() if isinstance(key, str)}
        self.values: dict[Var, Expr] = {
            key: IntImm(key.dtype, int(value))
            for key, value in (sizes or {}).items()
            if isinstance(key, Var)
        }

    def number(self, extent: Expr) -> int:
        if type(extent) is IntImm:
            return extent.value
        made = simplify(substitute(extent, _Lookup(self)))
        if type(made) is not IntImm:
            raise VerifyError(
                f"the extent {extent!r} is symbolic: give values of its variables with sizes="
            )
        return made.value


class _Lookup(dict[Any, Any]):
    """Finds variables by identity, then by name."""

    def __init__(self, sizes: _Sizes) -> None:
        super().__init__({None: None})
        self.sizes = sizes

    def get(self, key: object, default: object = None) -> Any:
        if type(key) is not Var:
            return default
        found = self.sizes.values.get(key)
        if found is None and key.name in self.sizes.named:
            found = IntImm(key.dtype, int(self.sizes.named[key.name]))
        return found


def _stmt(stmt: Any, sizes: _Sizes) -> int:
    kind = type(stmt)
    if kind is For:
        extent = sizes.number(stmt.extent)
        # A triangular nest has bounds in outer loops: the middle of the range stands for all.
        middle = sizes.number(stmt.min) + extent // 2
        sizes.values[stmt.loop_var] = IntImm(stmt.loop_var.dtype, middle)
        return extent * _stmt(stmt.body, sizes)
    if kind is BlockRealize:
        for iter_var, value in zip(stmt.block.iter_vars, stmt.iter_values):
            known = simplify(substitute(value, _Lookup(sizes)))
            if type(known) is IntImm:
                sizes.values[iter_var.var] = known
        return _stmt(stmt.block.body, sizes)
    if kind is SeqStmt:
        return sum(_stmt(item, sizes) for item in stmt.stmts)
    if kind is BufferStore or kind is Evaluate:
        return _expr(stmt.value)
    if kind is IfThenElse:
        other = 0 if stmt.else_case is None else _stmt(stmt.else_case, sizes)
        return max(_stmt(stmt.then_case, sizes), other)
    body = getattr(stmt, "body", None)
    return 0 if body is None else _stmt(body, sizes)


def _operations(call: Call) -> int:
    """Operations of one lane of a call."""
    if call.op.name == "dot_accumulate":
        return 2 * (dtypes.bits_of(call.dtype) // dtypes.bits_of(call.args[1].dtype))
    return 2 if call.op.name == "fma" else 1


def _expr(expr: Any) -> int:
    kind = type(expr)
    if kind is BufferLoad or not issubclass(kind, Expr):
        return 0
    if isinstance(expr, CompareExpr) and kind not in (And, Or):
        # Comparing values is counted by what is compared; comparing indices is free.
        floats = dtypes.is_float(dtypes.element_of(expr.a.dtype))
        return _expr(expr.a) + _expr(expr.b) if floats else 0
    below = sum(_expr(item) for item in expr.child_nodes())
    lanes = least_lanes(dtypes.lanes_of(expr.dtype))
    if kind in _ONE_OPERATION:
        # Index variables make int64 arithmetic; values of other types are what is computed.
        return below + lanes if expr.dtype != dtypes.INDEX else below
    if kind is Call and expr.op.name not in _FREE_CALLS and expr.op.effect == "pure":
        return below + lanes * _operations(expr)
    return below
