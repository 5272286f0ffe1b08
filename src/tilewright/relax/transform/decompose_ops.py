"""``DecomposeOpsForInference``: batch_norm and dropout become arithmetic that folds.

Calls of any operator with unusual options become calls without (``registry.usual_form``), so that
the passes that follow see one form. With constant statistics the arithmetic is ``x * scale +
shift`` with constant scale and shift after ``FoldConstant``; ``FoldConvScale`` then moves the scale
into the weights of a convolution.
"""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import RelaxOp, usual_form
from tilewright.relax.rewriter import FunctionRewriter, GraphPass

INFERENCE_OPS = ("nn.batch_norm", "nn.dropout")


class DecomposeOpsForInference(GraphPass):
    """Replace the operators named by ``ops`` by their decomposition.

    Without ``func_name`` all functions are rewritten.
    """

    def __init__(
        self, func_name: str | None = None, *, ops: tuple[str, ...] = INFERENCE_OPS
    ) -> None:
        self.func_name = func_name
        self.ops = ops

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Decomposer(mod, self.ops)


class _Decomposer(FunctionRewriter):
    def __init__(self, mod: IRModule, ops: tuple[str, ...]) -> None:
        super().__init__(mod)
        self.ops = ops

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if isinstance(value, RelaxCall) and isinstance(value.op, RelaxOp):
            op = value.op
            plain = usual_form(value)
            if plain is not None:
                return plain
            if op.key in self.ops and op.decompose is not None:
                made = op.decompose(value)
                return value if made is None else made
        return value
