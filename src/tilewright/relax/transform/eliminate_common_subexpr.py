"""``EliminateCommonSubexpr``: what is computed twice is computed once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from tilewright.ir import IRModule, Node
from tilewright.relax.analysis import is_impure
from tilewright.relax.expr import (
    Binding,
    DataflowVar,
    Function,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    Tuple,
    TupleGetItem,
    VarBinding,
)
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import has_objects


class EliminateCommonSubexpr(GraphPass):
    """Replace a value that was computed before by the variable that holds it.

    With ``call_only`` tuples and their items are left alone. Calls with effects always are.

    Before:
        lv = R.exp(x)
        lv1 = R.exp(x)
        gv = R.add(lv, lv1)
    After:
        lv = R.exp(x)
        gv = R.add(lv, lv)
    """

    def __init__(self, call_only: bool = False) -> None:
        self.call_only = call_only

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Eliminator(mod, self.call_only)


class _Eliminator(FunctionRewriter):
    def __init__(self, mod: IRModule, call_only: bool) -> None:
        super().__init__(mod)
        self.kinds = (RelaxCall,) if call_only else (RelaxCall, Tuple, TupleGetItem)

    def rewrite(self, function: Function) -> Function:
        self.known: dict[Hashable, RelaxVar] = {}
        return super().rewrite(function)

    def rewrite_block(self, bindings: Sequence[Binding]) -> None:
        super().rewrite_block(bindings)
        # Dataflow variables are seen in their block only.
        self.known = {k: var for k, var in self.known.items() if not isinstance(var, DataflowVar)}

    def rewrite_branch(self, branch: SeqExpr) -> SeqExpr:
        outer = dict(self.known)
        made = super().rewrite_branch(branch)
        self.known = outer  # what one branch computes, nothing else has
        return made

    def rewrite_binding(self, binding: Binding) -> None:
        value: RelaxExpr = self.resolve(binding.value)
        if isinstance(binding, MatchCast) or not isinstance(value, self.kinds):
            super().rewrite_binding(binding)
            return
        if is_impure(value) or has_objects(value.struct_info):  # a new object each time
            super().rewrite_binding(binding)
            return
        key = identity_key(value)
        known = self.known.get(key)
        if known is None:
            super().rewrite_binding(binding)
            self.known[key] = self.mapping.get(binding.var, binding.var)
        elif isinstance(known, DataflowVar) and not isinstance(binding.var, DataflowVar):
            # The first one is not seen outside of the block; the name that is stays.
            self.builder.emit_binding(VarBinding(binding.var, known))
            self.known[key] = binding.var
        else:
            self.mapping[binding.var] = known


def identity_key(value: object) -> Hashable:
    """A key that equal expressions over the same variables have in common."""
    if isinstance(value, Node):
        if getattr(type(value), "symbol", False) or not value.node_fields:
            return type(value), id(value)
        parts = tuple(
            identity_key(getattr(value, field.name))
            for field in value.node_fields
            if field.role != "derived"
        )
        return type(value), parts
    if isinstance(value, (tuple, list)):
        return tuple, tuple(map(identity_key, value))
    if isinstance(value, Mapping):
        return dict, tuple((name, identity_key(value[name])) for name in sorted(value))
    if hasattr(value, "content_key"):
        return type(value), value.content_key(False)
    return type(value), repr(value)  # tells -0.0 from 0.0, and is equal for NaN
