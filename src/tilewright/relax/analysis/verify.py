"""Whether graph functions are well formed."""

from __future__ import annotations

from contextlib import suppress

from tilewright.ir import GlobalVar, IRModule, Var, free_vars, pre_order
from tilewright.relax.analysis.uses import called_functions, has_effect, is_impure
from tilewright.relax.branches import If, all_bindings
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    LocalFunction,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    is_atom,
)
from tilewright.relax.struct_info import (
    BaseCheckResult,
    defined_vars,
    extents_of,
    struct_info_base_check,
    used_vars,
)
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError
from tilewright.tir.attrs import wrong_annotation


def verify_graph(mod: IRModule) -> None:
    """Check that every graph function is well formed; ``VerifyError`` says what is wrong.

    Variables are bound once and before use, those of a dataflow block are not used outside it,
    operands are atoms, symbolic extents are defined, and called functions exist.
    """
    for name, function in mod.functions.items():
        if isinstance(function, Function):
            _FunctionChecker(name, function, mod).check()


class _FunctionChecker:
    """Checks one graph function, binding by binding, with the variables bound so far."""

    def __init__(self, name: str, function: Function, mod: IRModule) -> None:
        self.name, self.function, self.mod = name, function, mod
        self.bound: set[RelaxVar] = set()
        self.defined: set[RelaxVar] = set()
        self.extents: set[Var] = set(defined_vars([param.struct_info for param in function.params]))

    def check(self) -> None:
        wrong = wrong_annotation(self.function)
        if wrong is not None:
            self._fail(wrong)
        for param in self.function.params:
            self._define(param)
            if isinstance(param, DataflowVar):
                self._fail(f"parameter {param.name} is a dataflow variable")
        for param in self.function.params:
            for var in used_vars(param.struct_info):
                if var not in self.extents:
                    self._fail(
                        f"parameter {param.name} uses extent {var.name}, which none is exactly"
                    )
        self._check_body(self.function.body)

    def _check_body(self, body: SeqExpr) -> None:
        for block in body.blocks:
            for binding in block.bindings:
                self._check_binding(block, binding)
            # Dataflow variables are seen in their block only.
            self.bound -= {b.var for b in block.bindings if isinstance(b.var, DataflowVar)}
        self._check_use(body.body, "the result")
        if not is_atom(body.body):
            self._fail("the result is not a variable, constant or tuple of them")

    def _check_branches(self, block: BindingBlock, binding: Binding, value: If) -> None:
        """Check both branches, which see what is bound here; nothing sees what they bind."""
        var = binding.var
        if isinstance(block, DataflowBlock):
            self._fail(f"the If of {var.name} can't be in a dataflow block")
        if isinstance(binding, MatchCast):
            self._fail(f"{var.name} casts an If: bind that to a variable first")
        self._check_use(value.cond, f"the condition of {var.name}")
        if not is_atom(value.cond):
            self._fail(f"the condition of {var.name} is nested: {value.cond!r}")
        for branch in value.branches:
            bound, extents = set(self.bound), set(self.extents)
            self._check_body(branch)
            self.bound, self.extents = bound, extents
        self._define(var)

    def _fail(self, reason: str) -> None:
        raise VerifyError(f"graph function {self.name!r}: {reason}")

    def _define(self, var: RelaxVar) -> None:
        # In two branches too: passes tell variables apart by identity.
        if var in self.defined:
            self._fail(f"variable {var.name} is bound twice")
        self.defined.add(var)
        self.bound.add(var)

    def _check_use(self, value: RelaxExpr, where: str) -> None:
        for item in pre_order(value):
            if isinstance(item, RelaxVar) and item not in self.bound:
                self._fail(f"{where} uses {item.name}, which is not bound there")
        for extent in free_vars(value):
            if extent not in self.extents:
                self._fail(f"{where} uses the symbolic extent {extent.name}, which nothing defines")
        for callee in called_functions(value):
            if callee not in self.mod:
                self._fail(f"{where} calls {callee}, which the module does not have")

    def _check_local(self, var: RelaxVar, function: Function) -> None:
        """Check a function inside of this one, which sees what is bound here."""
        inner = _FunctionChecker(f"{self.name}.{var.name}", function, self.mod)
        inner.bound |= self.bound
        inner.defined |= self.defined
        inner.extents |= self.extents
        inner.check()
        self._define(var)

    def _check_purity(self, block: BindingBlock, value: RelaxExpr) -> None:
        callee = None
        if isinstance(value, RelaxCall) and isinstance(value.op, GlobalVar):
            callee = self.mod[value.op]
        if isinstance(callee, Function) and callee.is_pure is is_impure(value):
            kind = "pure" if callee.is_pure else "impure"
            self._fail(f"the call {value!r} must have the attribute pure: the function is {kind}")
        if not has_effect(value):
            return
        if self.function.is_pure:
            self._fail(f"{value!r} has an effect: say so by R.function(pure=False)")
        if isinstance(block, DataflowBlock):
            self._fail(f"{value!r} has an effect, and can't be in a dataflow block")

    def _check_binding(self, block: BindingBlock, binding: Binding) -> None:
        var, value = binding.var, binding.value
        if isinstance(value, LocalFunction):
            self._check_local(var, value.func)
            return
        if isinstance(value, If):
            self._check_branches(block, binding, value)
            return
        self._check_use(value, f"the value of {var.name}")
        if not is_atom(value):
            for item in value.child_nodes():
                if isinstance(item, RelaxExpr) and not is_atom(item):
                    self._fail(f"the value of {var.name} is nested: {value!r}")
        self._check_purity(block, value)
        if isinstance(binding, MatchCast):
            for extent in extents_of(binding.struct_info):
                if type(extent) is Var:
                    self.extents.add(extent)
        self._define(var)
        if isinstance(var, DataflowVar) and not isinstance(block, DataflowBlock):
            self._fail(f"dataflow variable {var.name} outside a dataflow block")


@other_names(check_struct_info="check_ty")
def well_formed(obj: IRModule | Function, check_ty: bool = True) -> bool:
    """Whether a module, or a graph function by itself, is well formed: see ``verify_graph``.

    With ``check_ty`` what is stated of variables must also be possible, given the values
    that they are bound to.
    """
    mod = obj if isinstance(obj, IRModule) else IRModule({"main": obj})
    with suppress(VerifyError):
        verify_graph(mod)
        return not check_ty or not any(
            isinstance(function, Function) and _has_impossible(function)
            for function in mod.functions.values()
        )
    return False


def _has_impossible(function: Function) -> bool:
    stated = [(b.var.struct_info, b.value.struct_info) for b in all_bindings(function)]
    stated.append((function.ret_struct_info, function.body.struct_info))
    return any(struct_info_base_check(*item) is BaseCheckResult.FAIL_L0 for item in stated)
