"""``CanonicalizeBindings``: removes aliases, items of known tuples, casts and moves in vain."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax.analysis import remove_all_unused
from tilewright.relax.branches import If, nested_bodies
from tilewright.relax.expr import (
    Binding,
    DataflowVar,
    Function,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    Tuple,
    TupleGetItem,
    VarBinding,
    is_atom,
)
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import same_struct_info

# Operators of which two after one another are one.
_MOVES = ("reshape", "permute_dims")


class CanonicalizeBindings(GraphPass):
    """Forward ``y = x`` and ``(a, b)[0]`` to their uses and remove bindings that become unused.

    A tensor that is reshaped or permuted twice is so once, or not at all if that undoes it.
    A dataflow output ``gv = lv`` whose ``lv`` is bound in the same block takes over the value.
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Canonicalizer(mod)


def canonicalized(function: Function) -> Function:
    """Apply the pass to one function."""
    return _Canonicalizer(None).rewrite(function)


class _Canonicalizer(FunctionRewriter):
    isolated = ("moved",)

    def rewrite(self, function: Function) -> Function:
        self.tuples: dict[RelaxVar, Tuple] = {}
        self.moved: dict[RelaxVar, RelaxCall] = {}
        made = super().rewrite(_promote_outputs(function))
        return remove_all_unused(made)

    def rewrite_binding(self, binding: Binding) -> None:
        value: RelaxExpr = self.resolve(binding.value)
        if isinstance(binding, MatchCast):
            if same_struct_info(value.struct_info, binding.struct_info):
                self.alias(binding.var, value)
            else:
                super().rewrite_binding(binding)
            return
        if isinstance(value, TupleGetItem):
            known = value.tuple_value
            if isinstance(known, RelaxVar):
                known = self.tuples.get(known, known)
            if isinstance(known, Tuple):
                value = known.fields[value.index]
        if isinstance(value, Tuple):
            self.tuples[binding.var] = value
        if isinstance(value, RelaxCall):
            value = self.moved_once(value, binding.var)
        if is_atom(value) and not isinstance(value, Tuple) and self.alias(binding.var, value):
            return
        if value is binding.value:
            self.builder.emit_binding(binding)
        else:
            self.bind(binding.var, value)

    def moved_once(self, call: RelaxCall, var: RelaxVar) -> RelaxExpr:
        """What a reshape or a permutation gives, made of a tensor that is no result of one."""
        name = next((name for name in _MOVES if is_call_to(call, name)), None)
        if name is None:
            return call
        given, source = call.args[0], call.args[0]
        before = self.moved.get(given) if isinstance(given, RelaxVar) else None
        # A variable of another block isn't visible.
        if before is not None and is_call_to(before, name):
            inner = before.args[0]
            if isinstance(given, DataflowVar) or not isinstance(inner, DataflowVar):
                source, attrs = inner, dict(call.attrs)
                if name == "permute_dims":
                    attrs["axes"] = tuple(before.attrs["axes"][axis] for axis in attrs["axes"])
                call = RelaxCall(call.op, (source, *call.args[1:]), attrs)
        self.moved[var] = call
        if name == "permute_dims":
            axes = call.attrs["axes"]
            return source if axes == tuple(range(len(axes))) else call
        return source if same_struct_info(source.struct_info, call.struct_info) else call

    def rewrite_if(self, binding: Binding, value: If) -> None:
        first, second = map(self.rewrite_branch, value.branches)
        same = first.body is second.body and not (first.blocks or second.blocks)
        if same and not isinstance(first.body, Tuple) and self.alias(binding.var, first.body):
            return
        self.bind_if(binding, value, (first, second))

    def alias(self, var: RelaxVar, value: RelaxExpr) -> bool:
        """Replace uses of ``var`` by ``value``, unless that takes a variable out of its block."""
        if isinstance(value, DataflowVar) and not isinstance(var, DataflowVar):
            self.builder.emit_binding(VarBinding(var, value))
            return True
        self.mapping[var] = value
        return True


def _promote_outputs(function: Function) -> Function:
    """Turn ``lv = f(x); gv = lv`` into ``gv = f(x)``."""
    mapping: dict[RelaxVar, RelaxVar] = {}
    for block in (block for body in nested_bodies(function.body) for block in body.blocks):
        bound = {binding.var for binding in block.bindings}
        for binding in block.bindings:
            value = binding.value
            if (
                isinstance(binding, VarBinding)
                and isinstance(value, DataflowVar)
                and not isinstance(binding.var, DataflowVar)
                and value in bound
                and value not in mapping
            ):
                mapping[value] = binding.var
    if not mapping:
        return function
    promoter = _Promoter(mapping)
    return promoter.rewrite(function)


class _Promoter(FunctionRewriter):
    def __init__(self, outputs: dict[RelaxVar, RelaxVar]) -> None:
        super().__init__()
        self.outputs = outputs
        self.mapping.update(outputs)

    def rewrite_binding(self, binding: Binding) -> None:
        if isinstance(binding.value, RelaxVar) and self.outputs.get(binding.value) is binding.var:
            return
        var = self.outputs.get(binding.var)
        if var is None:
            super().rewrite_binding(binding)
        else:
            self.builder.emit_binding(binding.replace(var=var, value=self.resolve(binding.value)))
