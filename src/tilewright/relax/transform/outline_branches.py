"""``OutlineBranches``: branches become functions, in which passes work as in any other.

``InlineFunctions`` puts them back, before memory is planned: then branches are parts of one native
function again, and share its workspace.
"""

from __future__ import annotations

from tilewright.ir import IRModule, Pass
from tilewright.relax.analysis import (
    defined_symbolic_vars,
    free_symbolic_vars,
    has_effect,
    used_graph_vars,
)
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import If, contains_if, is_outlined, own_extents, seen_outside
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    Function,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    ShapeExpr,
    VarBinding,
)
from tilewright.relax.rewriter import FunctionRewriter, renew_symbols, with_params
from tilewright.relax.struct_info import ShapeStructInfo, defined_vars
from tilewright.relax.transform.canonicalize import CanonicalizeBindings
from tilewright.relax.transform.dataflow_blocks import ConvertToDataflow
from tilewright.relax.transform.fold_constant import FoldConstant
from tilewright.relax.transform.inline_functions import InlineFunctions
from tilewright.tir.attrs import BRANCH, IMPURE


class OutlineBranches(Pass):
    """Move what branches compute into functions of their own, which take what they use.

    Before:
        def main(c, x, y):
            if c: r = R.exp(R.add(x, y))
            else: r = x
            return r
    After:
        def main_r_true(x, y): return R.exp(R.add(x, y))
        def main(c, x, y):
            if c: r = R.call(cls.main_r_true, (x, y))
            else: r = x
            return r
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Rewrite every function that is not a fusion group."""
        if not any(map(contains_if, mod.functions.values())):
            return mod
        # A function sees no constants of those that call it: what is known is folded before.
        mod = FoldConstant()(CanonicalizeBindings()(mod))
        builder = BlockBuilder(mod)
        for name, function in mod.functions.items():
            if isinstance(function, Function) and contains_if(function):
                made = _Outliner(builder, name).rewrite(function)
                if made is not function:
                    builder.update_func(name, made)
        return builder.get()


class InlineBranches(Pass):
    """Put functions that ``OutlineBranches`` made back into the branches that call them."""

    def transform(self, mod: IRModule) -> IRModule:
        """Inline, and remove the functions of branches."""
        if not any(BRANCH in function.attrs for function in mod.functions.values()):
            return mod
        return InlineFunctions()(mod).map_functions(
            lambda _, function: None if BRANCH in function.attrs else function
        )


class _Outliner(FunctionRewriter):
    def __init__(self, module: BlockBuilder, name: str) -> None:
        super().__init__()
        self.module = module
        self.name = name

    def rewrite_if(self, binding: Binding, value: If) -> None:
        outer, self.name = self.name, f"{self.name}_{binding.var.name}"
        made = []
        for branch, kind in zip(value.branches, ("true", "false")):
            inner, self.name = self.name, f"{self.name}_{kind}"
            made.append(self.outlined(self.rewrite_branch(branch)))
            self.name = inner
        self.name = outer
        self.bind_if(binding, value, made)

    def outlined(self, branch: SeqExpr) -> SeqExpr:
        """A branch that calls a function for all that it computes."""
        if not branch.blocks or is_outlined(branch):
            return branch
        captured = used_graph_vars(branch)
        params = [RelaxVar(var.name, var.struct_info) for var in captured]
        operands: tuple[RelaxExpr, ...] = tuple(captured)
        pure = not any(has_effect(b.value) for block in branch.blocks for b in block.bindings)
        plain = Function(
            tuple(params), branch, attrs={BRANCH: True, **({} if pure else {IMPURE: True})}
        )
        known = set(defined_vars([param.struct_info for param in params]))
        # What a branch casts to an extent from outside is checked, not defined by it.
        known |= own_extents(branch) - self.extents
        used = (*free_symbolic_vars(plain), *defined_symbolic_vars(plain))
        extents = [extent for extent in used if extent not in known]
        if extents:
            params.append(RelaxVar("s", ShapeStructInfo(extents)))
            operands += (ShapeExpr(tuple(extents)),)
        made = with_params(plain, params, dict(zip(captured, params)))
        made = ConvertToDataflow(1)(IRModule({"branch": renew_symbols(made)}))["branch"]
        gvar = self.module.add_func(made, self.name)
        attrs = {} if pure else {"pure": False}
        call = RelaxCall(gvar, operands, attrs, (seen_outside(branch, self.extents),))
        var = RelaxVar("gv", call.struct_info)
        return SeqExpr((BindingBlock((VarBinding(var, call),)),), var)
