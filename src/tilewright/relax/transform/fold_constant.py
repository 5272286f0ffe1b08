"""``FoldConstant``: operators on constants are computed when the graph is compiled.

Operators with a ``numpy`` rule are computed by it. Results that would be much larger than their
operands (``full``, ``broadcast_to``) stay calls: storing them costs more than making them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import IRModule, as_int
from tilewright.relax.expr import (
    Constant,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    TupleGetItem,
    const,
)
from tilewright.relax.expr import Tuple as RelaxTuple
from tilewright.relax.registry import RelaxOp
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo

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
        folded = fold_call(value)
        if folded is None:
            return value
        # Uses see the constant itself; the binding, now unused, goes with DeadCodeElimination.
        self.mapping[var] = folded
        return folded


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
