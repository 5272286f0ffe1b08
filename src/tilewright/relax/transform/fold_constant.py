"""``FoldConstant``: operators on constants are computed when the graph is compiled.

Operators with a ``numpy`` rule are computed by it; others, and ``call_tir``, are compiled and run
on this machine. Results that would be much larger than their
operands (``full``, ``broadcast_to``) stay calls: storing them costs more than making them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.driver import compile as compile_module
from tilewright.ir import GlobalVar, IRModule, as_int
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.call_tir import call_tir_parts, is_call_tir
from tilewright.relax.expr import (
    Constant,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    TupleGetItem,
    const,
    numpy_dtype,
)
from tilewright.relax.expr import Tuple as RelaxTuple
from tilewright.relax.registry import RelaxOp
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.transform.legalize_ops import legalize_call

GROWTH_LIMIT = 1 << 16
"""A result may be this many elements larger than all operands together."""


class FoldConstant(GraphPass):
    """Compute what depends on constants only."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Folder(mod)


class _Folder(FunctionRewriter):
    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, RelaxTuple):
            value = value.tuple_value.items[value.index]
        folded = fold_call(value) or self.run(value)
        if folded is None:
            return value
        # Uses see the constant itself; the binding, now unused, goes with DeadCodeElimination.
        self.mapping[var] = folded
        return folded

    def run(self, value: RelaxExpr) -> RelaxExpr | None:
        """Compile and run a tensor function, or an operator without a NumPy rule, on constants."""
        if not isinstance(value, RelaxCall) or not isinstance(value.struct_info, TensorStructInfo):
            return None
        if not is_call_tir(value):
            if not isinstance(value.op, RelaxOp) or value.op.legalize is None or value.op.numpy:
                return None
            if not value.args or not all(isinstance(arg, Constant) for arg in value.args):
                return None
            own = BlockBuilder()
            made = legalize_call(own, value)
            return _run_tensor_function(own.get(), made) if is_call_tir(made) else None
        return _run_tensor_function(self.builder.get(), value)


def _run_tensor_function(mod: IRModule, call: RelaxExpr) -> RelaxExpr | None:
    assert isinstance(call, RelaxCall) and isinstance(call.struct_info, TensorStructInfo)
    ref, args, extra = call_tir_parts(call)
    if extra is not None or not args or not isinstance(ref.callee, GlobalVar):
        return None
    shape = [as_int(extent) for extent in call.struct_info.shape]
    if None in shape or not all(isinstance(arg, Constant) for arg in args):
        return None
    inputs = [arg.data for arg in args if isinstance(arg, Constant)]
    if _result_size(call) > sum(map(_size, inputs)) + GROWTH_LIMIT:
        return None
    result = np.zeros(shape, numpy_dtype(call.struct_info.dtype))  # type: ignore[arg-type]
    compile_module(mod[ref.callee], "native", name="folded")["folded"](*inputs, result)
    return const(result)


def fold_call(value: RelaxExpr) -> RelaxExpr | None:
    """Compute a call on constants; ``None`` if it isn't one or has no rule for that."""
    if not isinstance(value, RelaxCall) or not isinstance(value.op, RelaxOp):
        return None
    op = value.op
    if op.numpy is None or not op.pure:
        return None
    operands = [_number(arg) for arg in value.args]
    if any(operand is None for operand in operands):
        return None
    if not any(isinstance(operand, (np.ndarray, list)) for operand in operands):
        return None
    size_in = sum(_size(operand) for operand in operands)
    if _result_size(value) > size_in + GROWTH_LIMIT:
        return None
    made = op.evaluate(operands, value.attrs)
    if isinstance(made, (list, tuple)):
        return RelaxTuple(tuple(const(np.asarray(item)) for item in made))
    info = value.struct_info
    assert isinstance(info, TensorStructInfo)
    return const(np.asarray(made), info.dtype)


def _number(arg: RelaxExpr) -> Any:
    if isinstance(arg, Constant):
        return arg.data
    if isinstance(arg, ShapeExpr):
        extents = [as_int(extent) for extent in arg.values]
        return None if any(extent is None for extent in extents) else tuple(extents)
    if isinstance(arg, PrimValue):
        return getattr(arg.value, "value", None)
    if isinstance(arg, RelaxTuple):
        items = [_number(item) for item in arg.items]
        return None if any(item is None for item in items) else items
    return None


def _size(operand: Any) -> int:
    if isinstance(operand, np.ndarray):
        return operand.size
    if isinstance(operand, list):
        return sum(map(_size, operand))
    return 0


def _result_size(value: RelaxCall) -> int:
    info = value.struct_info
    if not isinstance(info, TensorStructInfo):
        return 0
    total = 1
    for extent in info.shape:
        total *= as_int(extent) or 1
    return total
