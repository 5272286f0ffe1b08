"""``FuseTransposeMatmul``: ``matmul(x, permute_dims(w))`` reads ``w`` as it is stored."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax.expr import Function, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass


class FuseTransposeMatmul(GraphPass):
    """Fold a swap of the last two dimensions of matmul's second operand into matmul."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _TransposeFuser(mod)


class _TransposeFuser(FunctionRewriter):
    isolated = ("swapped",)

    def rewrite(self, function: Function) -> Function:
        self.swapped: dict[RelaxVar, RelaxExpr] = {}
        return super().rewrite(function)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not isinstance(value, RelaxCall):
            return value
        if is_call_to(value, "permute_dims") and _swaps_last(value.attrs["axes"]):
            self.swapped[var] = value.args[0]
        elif is_call_to(value, "matmul") and isinstance(value.args[1], RelaxVar):
            source = self.swapped.get(value.args[1])
            if source is not None and not value.attrs["transpose_b"]:
                return RelaxCall(
                    value.op, (value.args[0], source), {**value.attrs, "transpose_b": True}
                )
        return value


def _swaps_last(axes: tuple[int, ...]) -> bool:
    ndim = len(axes)
    return ndim >= 2 and tuple(axes) == (*range(ndim - 2), ndim - 1, ndim - 2)
