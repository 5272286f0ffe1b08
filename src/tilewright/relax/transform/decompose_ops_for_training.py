"""``DecomposeOpsForTraining``: norms become arithmetic that is differentiated and fused."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.gradients import DECOMPOSITIONS
from tilewright.relax.registry import RelaxOp, usual_form
from tilewright.relax.rewriter import FunctionRewriter, GraphPass

TRAINING_OPS = ("nn.batch_norm", "nn.layer_norm", "nn.dropout")


class DecomposeOpsForTraining(GraphPass):
    """Replace batch and layer norms and dropout by simpler operators.

    ``nn.batch_norm`` with ``training=True`` uses the batch's statistics, dropout is the identity.
    Without ``func_name`` all functions are rewritten.
    """

    def __init__(self, func_name: str | None = None) -> None:
        self.func_name = func_name

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Decomposer(mod)


class _Decomposer(FunctionRewriter):
    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not isinstance(value, RelaxCall) or not isinstance(value.op, RelaxOp):
            return value
        if value.op.key not in TRAINING_OPS:
            return value
        plain = usual_form(value)
        if plain is not None:
            return plain
        decompose = DECOMPOSITIONS.get(value.op.key, value.op.decompose)
        made = None if decompose is None else decompose(value)
        return value if made is None else made
