"""Compute indices in 32 bits where that is proven to give the same.

The index dtype of the IR is ``int64``: a program's loop variables, shapes and strides are, before
this pass. Afterwards each loop or let variable whose values fit is ``int32``, and so is each
expression on them *of which every intermediate value fits*; where such a value meets one that
stays ``int64``, there is a cast. Shapes of buffers stay ``int64``: they are declarations. No node
mixes widths, so that narrowed programs verify, print and run like any other.

Sizes that are symbolic have no upper bound, and what depends on them isn't narrowed. Parallel
loops keep 64 bits, since the thread pool counts so.

For GPUs, whose 64-bit integer arithmetic is slow. Not in the default order for CPUs: there 64 bits
cost nothing, and the emitter for LLVM makes addresses of 64-bit sums that it no longer sees, so
that kernels took up to three times as long. The pass option ``tir.narrow_dtype`` puts it in
nevertheless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir import (
    INDEX,
    Add,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Sub,
    Var,
    as_int,
    cast,
    const,
    dtypes,
    is_const,
    most_lanes,
    pre_order,
)
from tilewright.support.errors import LowerError, VerifyError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import PARALLEL, BufferStore, For, IfThenElse, LetStmt, Stmt
from tilewright.tir.transform.base import (
    FunctionTransform,
    function_analyzer,
    inside_loop,
    visit_branches,
)
from tilewright.tir.transform.effects import BufferMutator, lane_bound

NARROW = "int32"
_HARDWARE_LIMIT = 2**31 - 2
"""The greatest index of a block or thread that any GPU has, whatever extent a program states."""
_ARITHMETIC = (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)
_CALLS = frozenset(
    "truncdiv truncmod indexdiv indexmod bitwise_and bitwise_or bitwise_xor if_then_else".split()
)


class NarrowDataType(FunctionTransform):
    """Use ``int32`` for loop variables and index arithmetic where every value fits.

    ``target_bits`` is 32, or 64, which leaves everything as it is. ``thread_limits`` are the most
    blocks and threads that the hardware has, by thread tag. Raises ``VerifyError`` for other bits.
    """

    def __init__(
        self, target_bits: int = 32, *, thread_limits: Mapping[str, int] | None = None
    ) -> None:
        if target_bits not in (32, 64):
            raise VerifyError(f"NarrowDataType: indices have 32 or 64 bits, not {target_bits!r}")
        self.target_bits = target_bits
        self.thread_limits = dict(thread_limits or {})

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if self.target_bits == 64:
            return func
        return func.map_children(_Narrower(func, self.thread_limits).visit)


class ForceNarrowIndexToInt32(FunctionTransform):
    """Use ``int32`` for all index arithmetic: the caller knows that every value fits.

    Parameters keep their dtypes, and loops that run in parallel those of their variables. Raises
    ``LowerError`` for constants that don't fit, and for buffers of ``int64``, whose elements could
    be too large.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        for item in pre_order(func):
            if isinstance(item, Buffer) and dtypes.element_of(item.dtype) == INDEX:
                raise LowerError(
                    f"{self.name}: buffer {item.name!r} holds {item.dtype}, whose values might not "
                    "fit; NarrowDataType narrows what is proven to"
                )
        return func.map_children(_Forced(func, {}).visit)


def _is_wide(expr: Expr) -> bool:
    return isinstance(expr, Expr) and dtypes.element_of(expr.dtype) == INDEX


def _narrow_dtype(dtype: str) -> str:
    return dtypes.vector_dtype(NARROW, dtypes.lanes_of(dtype))


class _Narrower(BufferMutator):
    def __init__(self, func: PrimFunc, thread_limits: Mapping[str, int]) -> None:
        super().__init__()
        self.thread_limits = thread_limits
        self.analyzer = function_analyzer(func)
        self.variables: dict[Var, Var] = {}

    # ---- 64-bit expressions: the parts that fit are computed in 32 bits

    def visit_Expr(self, node: Expr) -> Expr:
        if _is_wide(node) and not isinstance(node, IntImm):
            made = self.narrow(node)
            if made is not None:
                return cast_like(made, node.dtype)
        return node.map_children(self.visit)

    def visit_Var(self, node: Var) -> Expr:
        made = self.variables.get(node)
        return node if made is None else Cast(node.dtype, made)

    def visit_CompareExpr(self, node: CompareExpr) -> Expr:
        if _is_wide(node.a):
            a, b = self.narrow(node.a), self.narrow(node.b)
            if a is not None and b is not None and not (_is_const(a) and _is_const(b)):
                return type(node)(a, b)
        return node.map_children(self.visit)

    def visit_Cast(self, node: Cast) -> Expr:
        # What converts an index takes either width, unless it looks at its bits.
        if _is_wide(node.value) and not _is_const(node.value):
            value = self.narrow(node.value)
            if value is not None:
                return value if value.dtype == node.dtype else Cast(node.dtype, value)
        return self.visit_Expr(node) if _is_wide(node) else node.map_children(self.visit)

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        return node.replace(buffer=self.visit(node.buffer), indices=self._indices(node.indices))

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        return node.replace(
            buffer=self.visit(node.buffer),
            value=self.visit(node.value),
            indices=self._indices(node.indices),
        )

    def _indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Indices may have any integer dtype: no cast back."""
        made = []
        for index in indices:
            small = self.narrow(index) if _is_wide(index) and not _is_const(index) else None
            made.append(self.visit(index) if small is None else small)
        return tuple(made)

    # ---- narrowing

    def narrow(self, expr: Expr) -> Expr | None:
        """The ``int32`` form of an ``int64`` expression, or ``None`` if something may not fit."""
        if not self._fits(expr):
            return None
        kind = type(expr)
        dtype = _narrow_dtype(expr.dtype)
        if kind is IntImm:
            return const(as_int(expr) or 0, NARROW)
        if kind is Var:
            # A variable of a parallel loop stays wide, but what is computed from it needn't.
            return self._narrow_var(expr, dtype)  # type: ignore[arg-type]
        if kind is Cast:
            return self._narrow_cast(expr, dtype)
        if kind is Ramp:
            last = expr.base + expr.stride * (most_lanes(expr.lanes) - 1)  # type: ignore[attr-defined]
            return self._narrowed(expr, "base", "stride") if self._fits(last) else None
        if kind is Broadcast:
            return self._narrowed(expr, "value")
        if kind in _ARITHMETIC:
            return self._narrowed(expr, "a", "b")
        if kind is Select:
            return self._narrowed(expr, "true_value", "false_value", also=("condition",))
        if type(expr) is Call and expr.op.name in _CALLS:
            chosen = expr.op.name == "if_then_else"
            args = [
                self.visit(arg) if chosen and position == 0 else self.narrow(arg)
                for position, arg in enumerate(expr.args)
            ]
            return (
                None if any(arg is None for arg in args) else Call.of_fields(expr.op, args, dtype)
            )
        return None

    def _narrowed(self, expr: Expr, *names: str, also: tuple[str, ...] = ()) -> Expr | None:
        changes: dict[str, Any] = {}
        for name in names:
            changes[name] = self.narrow(getattr(expr, name))
            if changes[name] is None:
                return None
        changes.update({name: self.visit(getattr(expr, name)) for name in also})
        return expr.replace(**changes)

    def _narrow_var(self, var: Var, dtype: str) -> Expr:
        made = self.variables.get(var)
        return Cast(dtype, var) if made is None else made

    def _narrow_cast(self, expr: Any, dtype: str) -> Expr | None:
        value = self.visit(expr.value)
        kind, bits = dtypes.kind_of(value.dtype), dtypes.bits_of(value.dtype)
        if kind == "bool" or (kind == "int" and bits <= 32) or (kind == "uint" and bits < 32):
            return cast(value, dtype)
        return None

    def _fits(self, expr: Expr) -> bool:
        low, high = dtypes.integer_limits(NARROW)
        bound = lane_bound(expr, self.analyzer)
        return bool(bound[0] >= low and bound[1] <= high)

    # ---- statements

    def visit_For(self, node: For) -> Stmt:
        if node.thread is not None and node.loop_var.dtype == INDEX and is_const(node.min, 0):
            return self._thread_loop(node)
        wide = node.loop_var.dtype == INDEX and node.kind != PARALLEL
        minimum, extent = self.narrow(node.min), self.narrow(node.extent)
        end = self._fits(node.min + node.extent) if wide else False
        if not wide or minimum is None or extent is None or not end:
            minimum, extent = self.visit(node.min), self.visit(node.extent)
            with inside_loop(self.analyzer, node):
                return node.replace(min=minimum, extent=extent, body=self.visit(node.body))
        with inside_loop(self.analyzer, node):
            var = self.variables[node.loop_var] = Var(node.loop_var.name, NARROW)
            body = self.visit(node.body)
        return node.replace(loop_var=var, min=minimum, extent=extent, body=body)

    def _thread_loop(self, node: For) -> Stmt:
        """Indices of blocks and threads are numbers of 32 bits, also where the extent is open."""
        extent = self.narrow(node.extent)
        if extent is None:
            extent = cast(self.visit(node.extent), NARROW)
        with inside_loop(self.analyzer, node):
            most = self.thread_limits.get(node.thread or "", _HARDWARE_LIMIT + 1)
            self.analyzer.limit(node.loop_var, 0, most - 1)
            var = self.variables[node.loop_var] = Var(node.loop_var.name, NARROW)
            body = self.visit(node.body)
        return node.replace(loop_var=var, min=const(0, NARROW), extent=extent, body=body)

    def visit_LetStmt(self, node: LetStmt) -> Any:
        return self._let(node)

    def visit_Let(self, node: Let) -> Any:
        return self._let(node)

    def _let(self, node: Let | LetStmt) -> Let | LetStmt:
        value = self.narrow(node.value) if _is_wide(node.value) else None
        if value is None:
            return node.map_children(self.visit)
        if node.var.dtype == INDEX:
            self.analyzer.bind(node.var, node.value, override=True)
        var = self.variables[node.var] = Var(node.var.name, value.dtype)
        return node.replace(var=var, value=value, body=self.visit(node.body))

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        condition = self.visit(node.condition)
        if dtypes.lanes_of(condition.dtype) > 1:
            return node.map_children(self.visit)
        then_case, else_case = visit_branches(self, self.analyzer, node)
        return IfThenElse(condition, then_case, else_case)


class _Forced(_Narrower):
    """Takes every value to fit that is computed."""

    def _fits(self, expr: Expr) -> bool:
        low, high = dtypes.integer_limits(NARROW)
        for item in pre_order(expr):
            if isinstance(item, IntImm) and not low <= item.value <= high:
                raise LowerError(f"ForceNarrowIndexToInt32: {item.value} needs more than 32 bits")
        return True


def _is_const(expr: Expr) -> bool:
    return isinstance(expr, IntImm)


def cast_like(expr: Expr, dtype: str) -> Expr:
    """Convert to a dtype; constants are converted here."""
    return expr if expr.dtype == dtype else cast(expr, dtype)
