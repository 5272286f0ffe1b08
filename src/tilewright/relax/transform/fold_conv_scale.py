"""``FoldConvScale``: a per-channel scale after a convolution moves into its constant weights.

    conv2d(x, w) * s            ->  conv2d(x, w * s)
    (conv2d(x, w) + b) * s + t  ->  conv2d(x, w * s) + (b * s + t)

where ``w``, ``b`` and ``t`` are constant and ``s`` is a constant of shape ``[O, 1, 1]`` or
``[1, O, 1, 1]`` (what batch normalisation leaves after ``DecomposeOpsForInference`` and
``FoldConstant``). The intermediate values must have no other uses. The added constants are merged
only if a scale moved past the first of them.

Scaled weights are rounded where the result was. That stays within what the order of a sum may do
anyway, but not where each operator rounds to 16 bits or wraps: there nothing moves, unless the
option ``relax.excess_precision`` permits it. Nor does a scale with which weights or constants
overflow or lose digits.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilewright.ir import IRModule
from tilewright.relax.analysis import use_counts
from tilewright.relax.expr import Constant, ConstantData, Function, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.values import const
from tilewright.tir.transform.pipeline import EXCESS_PRECISION

HALVES = ("float16", "bfloat16")
_ELEMENTS = 1 << 16
CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")


class FoldConvScale(GraphPass):
    """Move scales into constant convolution weights."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _ScaleFolder(mod)


class _ScaleFolder(FunctionRewriter):
    isolated = ("values", "scaled_biases")

    def rewrite(self, function: Function) -> Function:
        self.uses = use_counts(function)
        self.values: dict[RelaxVar, RelaxExpr] = {}
        self.scaled_biases: set[RelaxVar] = set()
        return super().rewrite(function)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if is_call_to(value, "multiply"):
            assert isinstance(value, RelaxCall)
            made = self.fold(value)
            if made is not None:
                value = made
                if is_call_to(made, "add"):
                    self.scaled_biases.add(self.mapping.get(var, var))
        elif is_call_to(value, "add"):
            assert isinstance(value, RelaxCall)
            value = self.join(value) or value
        # Operands of what is looked up later must be variables or constants.
        value = self.builder.normalize(value)
        self.values[self.mapping.get(var, var)] = value
        return value

    def fold(self, product: RelaxCall) -> RelaxExpr | None:
        """Scale the weights, and the bias if there is one, instead of the result."""
        for source, scale in (product.args, reversed(product.args)):
            if not isinstance(scale, Constant):
                continue
            made = self.scaled(source, scale)
            if made is not None:
                return made
            total, bias = self.sum_with_constant(source)
            if bias is None:
                continue
            made, scaled_bias = self.scaled(total, scale), _product(bias.data, scale.data)
            if made is not None and scaled_bias is not None:
                folded: RelaxExpr = made + const(scaled_bias)
                return folded
        return None

    def join(self, total: RelaxCall) -> RelaxExpr | None:
        """Merge a scaled bias with the constant added after it."""
        for source, shift in (total.args, reversed(total.args)):
            if not isinstance(shift, Constant) or source not in self.scaled_biases:
                continue
            rest, bias = self.sum_with_constant(source)
            if bias is not None and shift.data.ndim <= bias.data.ndim:
                made: RelaxExpr = rest + const(bias.data + shift.data)
                return made
        return None

    def sum_with_constant(self, source: Any) -> tuple[Any, Constant | None]:
        """Split a variable used once that is bound to ``value + constant``."""
        value = self.values.get(source) if isinstance(source, RelaxVar) else None
        if is_call_to(value, "add") and self.uses.get(source, 0) == 1:
            assert isinstance(value, RelaxCall)
            for rest, constant in (value.args, reversed(value.args)):
                if isinstance(constant, Constant):
                    return rest, constant
        return None, None

    def scaled(self, source: Any, scale: Constant) -> RelaxExpr | None:
        """Return the convolution that ``source`` is bound to, with scaled weights."""
        conv = self.values.get(source) if isinstance(source, RelaxVar) else None
        if not isinstance(conv, RelaxCall) or conv.op_name not in CONVOLUTIONS:
            return None
        weight = conv.args[1]
        # A variable made by this pass has no count: it is used by what it was made for.
        if self.uses.get(source, 1) != 1 or not isinstance(weight, Constant):
            return None
        source = weight.value
        factors = _per_channel(scale.data, source.shape[0], len(source.shape))
        if factors is None or not _can_scale(source.compute(), factors):
            return None
        weights = ConstantData.later(
            source.shape, source.dtype, lambda: source.compute() * factors, [source]
        )
        replaced: RelaxExpr = conv.replace(args=(conv.args[0], Constant(weights)))
        return replaced


def _can_scale(weights: NDArray[Any], factors: NDArray[Any]) -> bool:
    """Whether all products are exact but for one rounding; takes little memory to find out."""
    rows = max(1, _ELEMENTS * len(weights) // max(1, weights.size))
    starts = range(0, len(weights), rows)
    scales = np.broadcast_to(factors, (len(weights), *factors.shape[1:]))
    return all(_product(weights[i : i + rows], scales[i : i + rows]) is not None for i in starts)


def _product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any] | None:
    """Return a product that rounds each element once; ``None`` if one is too large or too small."""
    kinds = ("float32", "float64", *(HALVES if EXCESS_PRECISION.value() else ()))
    if a.dtype != b.dtype or a.dtype.name not in kinds:
        return None
    with np.errstate(all="ignore"):
        made: NDArray[Any] = a * b
    if not np.all(np.isfinite(made)):
        return None
    small = abs(made) < ml_dtypes.finfo(a.dtype).smallest_normal
    # Few are: zeros, mostly.
    exact = not small.any() or np.all((a == 0) | (b == 0) | ~small)
    return made if exact else None


def _per_channel(scale: NDArray[Any], channels: int, ndim: int) -> NDArray[Any] | None:
    """Return the scale shaped for weights ``[O, I, ...]`` if it differs by channel only."""
    shape = (1,) * (ndim - scale.ndim) + scale.shape
    if len(shape) != ndim or any(extent != 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    if shape[1] not in (1, channels):
        return None
    return scale.reshape(-1, *([1] * (ndim - 1)))
