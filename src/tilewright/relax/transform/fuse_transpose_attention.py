"""``FuseTransposeAttention``: attention reads and writes heads without transposing.

Projections give ``[batch, sequence, heads, depth]``, models swap the middle axes before attention
and back after it. The kernels take either layout for each operand, so no copy is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilewright.ir import IRModule, pre_order
from tilewright.relax.expr import Function, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.topi.nn.attention import parse_layouts

OPERATOR = "nn.scaled_dot_product_attention"
_SWAP = (0, 2, 1, 3)
_OTHER = {"BHSD": "BSHD", "BSHD": "BHSD"}


class FuseTransposeAttention(GraphPass):
    """Fold the swaps of the middle axes into attention's layouts."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _TransposeFuser(mod)


class _TransposeFuser(FunctionRewriter):
    isolated = ("swapped", "attentions")

    def rewrite(self, function: Function) -> Function:
        self.swapped: dict[RelaxExpr, RelaxExpr] = {}
        self.attentions: dict[RelaxExpr, RelaxCall] = {}
        self.uses: Counter[RelaxExpr] = Counter(
            item
            for binding in function.bindings
            for item in pre_order(binding.value)
            if isinstance(item, RelaxVar)
        )
        self.uses.update(
            item for item in pre_order(function.body.body) if isinstance(item, RelaxVar)
        )
        return super().rewrite(function)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not isinstance(value, RelaxCall):
            return value
        if is_call_to(value, "permute_dims") and tuple(value.attrs["axes"]) == _SWAP:
            source = value.args[0]
            self.swapped[var] = source
            # Only if nobody else wants the result as it is: it would be computed twice.
            if source in self.attentions and self.uses[source] == 1:
                call = self.attentions[source]
                layouts = parse_layouts(call.attrs["layout"])
                return _rebuilt(call, call.args, (*layouts[:3], _OTHER[layouts[3]]))
        elif is_call_to(value, OPERATOR):
            value = self._with_sources(value)
            self.attentions[var] = value
        return value

    def _with_sources(self, call: RelaxCall) -> RelaxCall:
        layouts = list(parse_layouts(call.attrs["layout"]))
        args = list(call.args)
        for position in range(3):
            source = self.swapped.get(args[position])
            if source is not None:
                args[position] = source
                layouts[position] = _OTHER[layouts[position]]
        if tuple(layouts) == parse_layouts(call.attrs["layout"]):
            return call
        return _rebuilt(call, args, layouts)


def _rebuilt(call: RelaxCall, args: Sequence[RelaxExpr], layouts: Sequence[str]) -> RelaxCall:
    return RelaxCall(call.op, tuple(args), {**call.attrs, "layout": tuple(layouts)})
