"""``FoldConvScale``: a per-channel scale after a convolution moves into its constant weights.

    conv2d(x, w) * s  ->  conv2d(x, w * s)

where ``w`` is constant and ``s`` a constant of shape ``[O, 1, 1]`` or ``[1, O, 1, 1]`` (what batch
normalisation leaves after ``DecomposeOpsForInference`` and ``FoldConstant``). Needs the
convolution's result to be used nowhere else.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tilewright.ir import IRModule
from tilewright.relax.analysis import use_counts
from tilewright.relax.expr import Constant, Function, RelaxCall, RelaxExpr, RelaxVar, const
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass

CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")


class FoldConvScale(GraphPass):
    """Move scales into constant convolution weights."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _ScaleFolder(mod)


class _ScaleFolder(FunctionRewriter):
    def rewrite(self, function: Function) -> Function:
        self.uses = use_counts(function)
        self.values: dict[RelaxVar, RelaxExpr] = {}
        return super().rewrite(function)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if is_call_to(value, "multiply"):
            assert isinstance(value, RelaxCall)
            value = self.fold(value) or value
        self.values[self.mapping.get(var, var)] = value
        return value

    def fold(self, product: RelaxCall) -> RelaxExpr | None:
        for source, scale in (product.args, reversed(product.args)):
            if not isinstance(source, RelaxVar):
                continue
            conv = self.values.get(source)
            if not isinstance(scale, Constant) or not isinstance(conv, RelaxCall):
                continue
            if conv.op_name not in CONVOLUTIONS or self.uses.get(source, 0) != 1:
                continue
            weight = conv.args[1]
            if not isinstance(weight, Constant):
                continue
            factors = _per_channel(scale.data, weight.data.shape[0], weight.data.ndim)
            if factors is not None:
                scaled = const((weight.data * factors).astype(weight.data.dtype))
                return conv.replace(args=(conv.args[0], scaled))
        return None


def _per_channel(scale: NDArray[Any], channels: int, ndim: int) -> NDArray[Any] | None:
    """Return the scale shaped for weights ``[O, I, ...]`` if it differs by channel only."""
    shape = (1,) * (ndim - scale.ndim) + scale.shape
    if len(shape) != ndim or any(extent != 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    if shape[1] not in (1, channels):
        return None
    return scale.reshape(-1, *([1] * (ndim - 1)))
