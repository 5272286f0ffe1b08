"""``RemoveUnusedParameters``: parameters that private functions don't use are not passed."""

from __future__ import annotations

from tilewright.ir import GlobalVar, IRModule, Pass, Var, free_vars, pre_order
from tilewright.relax.analysis import private_functions, used_graph_vars
from tilewright.relax.branches import all_bindings, nested_bodies
from tilewright.relax.expr import (
    Function,
    FunctionRef,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import defined_vars, used_vars


class RemoveUnusedParameters(Pass):
    """Drop parameters that a private function doesn't use, in the function and in its calls.

    A function is private if it has no ``global_symbol`` and another graph function of the module
    calls it. A parameter whose shape alone says what a symbolic extent is stays, and so do those of
    functions that are passed on.

    Before:
        def double(x, y): return R.add(x, x)
        def main(x, y): return double(x, y)
    After:
        def double(x): return R.add(x, x)
        def main(x, y): return double(x)
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Repeat until nothing changes: what is not passed on may be unused before."""
        while True:
            kept = {
                name: found
                for name in sorted(private_functions(mod) - _passed_on(mod))
                if len(found := _used_params(mod[name])) < len(mod[name].params)
            }
            if not kept:
                return mod
            mod = _drop(mod, kept)


def _passed_on(mod: IRModule) -> set[str]:
    """Functions that others get as arguments, and call with all parameters."""
    return {
        item.name
        for function in mod.functions.values()
        if isinstance(function, Function)
        for item in pre_order(function)
        if isinstance(item, FunctionRef)
    }


def _used_params(function: Function) -> list[int]:
    """Positions of parameters that are used, or define extents that are."""
    used: set[RelaxVar] = {
        var for body in nested_bodies(function.body) for var in used_graph_vars(body.body)
    }
    extents: set[Var] = set(used_vars(function.ret_struct_info)) | set(free_vars(function.body))
    for binding in all_bindings(function):
        used.update(used_graph_vars(binding.value))
        extents.update(used_vars(binding.var.struct_info))
        if isinstance(binding, MatchCast):
            extents.update(used_vars(binding.struct_info))
    kept = [i for i, param in enumerate(function.params) if param in used]
    for i in kept:
        extents.update(used_vars(function.params[i].struct_info))
    known = set(defined_vars([function.params[i].struct_info for i in kept]))
    for i, param in enumerate(function.params):
        defines = set(defined_vars([param.struct_info])) & extents - known
        if i not in kept and defines:
            kept.append(i)
            known |= defines
            extents |= set(used_vars(param.struct_info))
    return sorted(kept)


def _drop(mod: IRModule, kept: dict[str, list[int]]) -> IRModule:
    rewriter = _CallRewriter(kept)

    def rewrite(name: str, function: Function) -> Function:
        if name in kept:
            params = tuple(function.params[i] for i in kept[name])
            function = function.replace(params=params)
        return rewriter.rewrite(function)

    return mod.map_functions(rewrite, Function)


class _CallRewriter(FunctionRewriter):
    def __init__(self, kept: dict[str, list[int]]) -> None:
        super().__init__()
        self.kept = kept

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not isinstance(value, RelaxCall) or not isinstance(value.op, GlobalVar):
            return value
        kept = self.kept.get(value.op.name)
        if kept is None or len(value.args) == len(kept):
            return value
        return value.replace(args=tuple(value.args[i] for i in kept))
