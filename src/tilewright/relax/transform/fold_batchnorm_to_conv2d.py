"""``FoldBatchnormToConv2D``: a convolution's constant filters take a batch normalisation over.

    batch_norm(conv2d(x, w), gamma, beta, mean, var)
        ->  conv2d(x, w * s) + (beta - mean * s)      with  s = gamma / sqrt(var + epsilon)

for constant ``w``, ``gamma``, ``beta``, ``mean`` and ``var``; ``FoldConstant`` computes the new
ones.
What is compiled needs no such pass: ``FoldConvScale`` finds more, and minds rounding.
"""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax import ops as op
from tilewright.relax.analysis import remove_all_unused, use_counts
from tilewright.relax.expr import Constant, Function, RelaxCall, RelaxExpr, RelaxVar, TupleGetItem
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.values import const


class FoldBatchnormToConv2D(GraphPass):
    """Fold batch normalisations by running statistics into the ``conv2d`` before them.

    The convolution must have no other use, filters of the normalisation's dtype, and the
    normalisation be that of its channels. One that is in training, by the statistics of the batch,
    stays.
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Folder(mod)


class _Folder(FunctionRewriter):
    isolated = ("values",)

    def rewrite(self, function: Function) -> Function:
        self.uses = use_counts(function)
        self.values: dict[RelaxExpr, RelaxExpr] = {}
        made = super().rewrite(function)
        return made if made is function else remove_all_unused(made)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        self.values[var] = value
        if not isinstance(value, TupleGetItem) or value.index != 0:
            return value
        norm = self.values.get(value.tuple_value)
        if not isinstance(norm, RelaxCall) or not is_call_to(norm, "nn.batch_norm"):
            return value
        if norm.attrs["training"] or self.uses.get(value.tuple_value) != 1:  # type: ignore[call-overload]
            return value
        conv = self.values.get(norm.args[0])
        if not isinstance(conv, RelaxCall) or not is_call_to(conv, "nn.conv2d"):
            return value
        if self.uses.get(norm.args[0]) != 1:  # type: ignore[call-overload]  # others have none
            return value
        filters, *statistics = conv.args[1], *norm.args[1:]
        if not all(isinstance(item, Constant) for item in (filters, *statistics)):
            return value
        if {item.dtype for item in norm.args} != {filters.dtype}:  # rounding isn't to move
            return value
        channel = (conv.attrs["out_layout"] or conv.attrs["data_layout"]).find("C")
        if norm.attrs["axis"] % conv.ndim != channel or conv.attrs["kernel_layout"][4:]:
            return value
        return _folded(conv, norm, channel)


def _folded(conv: RelaxCall, norm: RelaxCall, channel: int) -> RelaxExpr:
    gamma, beta, mean, var = norm.args[1:]
    filters, attrs = conv.args[1], norm.attrs
    scale = op.rsqrt(var + const(attrs["epsilon"], var.dtype))
    if attrs["scale"]:
        scale = gamma * scale
    shift = op.negative(mean * scale)
    if attrs["center"]:
        shift = beta + shift
    rows = [1] * filters.ndim
    rows[conv.attrs["kernel_layout"].find("O")] = -1
    wide = [1] * conv.ndim
    wide[channel] = -1
    made = conv.replace(args=(conv.args[0], filters * op.reshape(scale, rows)))
    return op.add(made, op.reshape(shift, wide))
