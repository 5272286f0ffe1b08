"""``ExpandMatmulOfSum``: a product with a sum of weights is a sum of products."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax import ops
from tilewright.relax.analysis import computable_at_compile_time
from tilewright.relax.dpl.rewriting import ReplacingRewriter
from tilewright.relax.expr import Function, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import same_struct_info


class ExpandMatmulOfSum(GraphPass):
    """Rewrite ``matmul(x, a + b)`` to ``matmul(x, a) + matmul(x, b)``.

    That pays off where ``b`` is a product of a tall and a wide matrix, as in LoRA:
    ``AdjustMatmulOrder`` then multiplies ``x`` by one after the other. Sums of weights (parameters
    after the first ``num_input``) stay, as they can be computed once.

    Before:
        lv = R.add(a, b)
        gv = R.matmul(x, lv)
    After:
        lv = R.matmul(x, a)
        lv1 = R.matmul(x, b)
        gv = R.add(lv, lv1)
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Expander(mod)


class _Expander(ReplacingRewriter):
    def rewrite(self, function: Function) -> Function:
        self.constant = set(computable_at_compile_time(function))
        return super().rewrite(function)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not is_call_to(value, "matmul"):
            return value
        assert isinstance(value, RelaxCall)
        x, weight = value.args
        if not isinstance(weight, RelaxVar) or weight in self.constant:
            return value
        total = self.values.get(weight)
        if not is_call_to(total, "add"):
            return value
        assert isinstance(total, RelaxCall)
        if not all(same_struct_info(part.struct_info, weight.struct_info) for part in total.args):
            return value  # one of them is broadcast
        a, b = (value.replace(args=(x, part)) for part in total.args)
        made: RelaxExpr = ops.add(a, b)
        return made
