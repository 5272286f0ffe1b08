"""``ReorderPermuteDimsAfterConcat``: tensors are joined first, then transposed once."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax import ops
from tilewright.relax.dpl.rewriting import ReplacingRewriter
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar, Tuple
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass


class ReorderPermuteDimsAfterConcat(GraphPass):
    """Move transpositions behind ``concat`` where all its operands are transposed alike.

    Transposed tensors that something else uses as well stay.

    Before:
        lv = R.permute_dims(x)
        lv1 = R.permute_dims(y)
        gv = R.concat((lv, lv1), axis=1)
    After:
        lv = R.concat((x, y), axis=0)
        gv = R.permute_dims(lv)
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Reorderer(mod)


class _Reorderer(ReplacingRewriter):
    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not is_call_to(value, "concat"):
            return value
        assert isinstance(value, RelaxCall)
        parts = value.args[0]
        if not isinstance(parts, Tuple) or len(parts.fields) < 2:
            return value
        found = [self.transposed(item) for item in parts.fields]
        calls = [call for call in found if call is not None]
        if len(calls) < len(found) or len({call.attrs["axes"] for call in calls}) > 1:
            return value
        order = calls[0].attrs["axes"]
        joined = ops.concat([call.args[0] for call in calls], order[value.attrs["axis"]])
        made: RelaxExpr = ops.permute_dims(joined, order)
        return made

    def transposed(self, item: RelaxExpr) -> RelaxCall | None:
        """The transposition that made an item, if nothing else uses that."""
        made = self.value_used_once(item)
        if not is_call_to(made, "permute_dims"):
            return None
        assert isinstance(made, RelaxCall)
        return made
