"""``RewriteDataflowReshape``: calls of tensor functions that only reshape become ``R.reshape``."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax.analysis import has_reshape_pattern
from tilewright.relax.call_tir import CALL_TIR, call_tir_operands, tensor_function
from tilewright.relax.expr import DataflowVar, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.ops import reshape
from tilewright.relax.rewriter import FunctionRewriter, GraphPass


class RewriteDataflowReshape(GraphPass):
    """Make ``R.reshape`` of each call of a tensor function that gives its operand another shape.

    That is for variables of dataflow blocks which don't leave them. Passes that follow see what it
    is; when graphs are compiled, such a call and ``R.reshape`` both are views without a copy.

    Before:
        lv = R.call_tir(cls.expand_dims, (x,), out_sinfo=R.Tensor((1, 6), "float32"))
    After:
        lv = R.reshape(x, R.shape([1, 6]))
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Rewriter(mod)


class _Rewriter(FunctionRewriter):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.known: dict[str, bool] = {}

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        is_call = isinstance(value, RelaxCall) and value.op is CALL_TIR
        if not is_call or not isinstance(var, DataflowVar):
            return value
        assert isinstance(value, RelaxCall)
        ref, operands, _ = call_tir_operands(value)
        function = tensor_function(self.mod, ref)
        if function is None or len(operands) != 1 or len(value.sinfo_args) != 1:
            return value
        if ref.name not in self.known:
            self.known[ref.name] = has_reshape_pattern(function)
        return reshape(operands[0], value.shape) if self.known[ref.name] else value
