"""``InlineFunctions``: inlines calls of graph functions.

A compiled graph function is one native function, and inlined callees are fused and planned together
with it. The callee also stays in the module.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import GlobalVar, IRModule, Pass, Var, substitute
from tilewright.relax.expr import Binding, Function, MatchCast, RelaxCall, RelaxExpr
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    defined_vars,
    extents_of,
    same_struct_info,
    substitute_info,
)
from tilewright.support.errors import VerifyError


class InlineFunctions(Pass):
    """Inline every call of a graph function that is not a fusion group."""

    def transform(self, mod: IRModule) -> IRModule:
        """Rewrite all callers; a function that calls itself is refused."""
        done = Inlined(mod)
        return mod.map_functions(
            lambda name, function: function if function.is_primitive else done.function(name),
            Function,
        )


class Inlined:
    """Functions of a module with all calls inlined, computed on demand."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.known: dict[str, Function] = {}
        self.open: list[str] = []

    def has(self, callee: Any) -> bool:
        if not isinstance(callee, GlobalVar) or callee not in self.mod:
            return False
        function = self.mod[callee]
        return isinstance(function, Function) and not function.is_primitive

    def function(self, name: str) -> Function:
        if name in self.open:
            way = " -> ".join([*self.open[self.open.index(name) :], name])
            raise VerifyError(f"graph function {name!r} calls itself ({way}), it can't be inlined")
        if name not in self.known:
            self.open.append(name)
            self.known[name] = _Inliner(self).rewrite(self.mod[name])
            self.open.pop()
        return self.known[name]


class _Inliner(FunctionRewriter):
    def __init__(self, done: Inlined) -> None:
        super().__init__(done.mod)
        self.done = done

    def rewrite_binding(self, binding: Binding) -> None:
        value: RelaxExpr = self.resolve(binding.value)
        if not isinstance(value, RelaxCall) or not self.done.has(value.op):
            super().rewrite_binding(binding)
            return
        made = self.inline(value, self.done.function(value.op.name))
        self.bind(binding.var, self.cast(made, value.sinfo_args[0], binding.var.name))

    def inline(self, call: RelaxCall, callee: Function) -> RelaxExpr:
        """Emit the callee's bindings, its parameters replaced; return its result."""
        if len(call.args) != len(callee.params):
            raise VerifyError(
                f"{call.op!r} takes {len(callee.params)} arguments, got {len(call.args)}"
            )
        mapping: dict[Any, Any] = {}
        for param, arg in zip(callee.params, call.args):
            for extent, actual in zip(extents_of(param.struct_info), extents_of(arg.struct_info)):
                if type(extent) is Var:
                    mapping.setdefault(extent, actual)
        self.renew_extents([param.struct_info for param in callee.params], mapping)
        for param, arg in zip(callee.params, call.args):
            mapping[param] = self.cast(arg, substitute_info(param.struct_info, mapping), param.name)
        for binding in callee.bindings:
            value = substitute(binding.value, mapping)
            if isinstance(binding, MatchCast):
                self.renew_extents([binding.struct_info], mapping)
                info = substitute_info(binding.struct_info, mapping)
                made = self.builder.match_cast(value, info, binding.var.name)
            else:
                made = self.builder.emit(value, binding.var.name)
            mapping[binding.var] = made
        result: RelaxExpr = substitute(callee.body.body, mapping)
        return result

    def renew_extents(self, infos: list[StructInfo], mapping: dict[Any, Any]) -> None:
        """Give extents that are not mapped yet new variables for this copy."""
        for var in defined_vars(infos):
            mapping.setdefault(var, Var(var.name, var.dtype))

    def cast(self, value: RelaxExpr, wanted: StructInfo, name: str) -> RelaxExpr:
        """Cast a value, checked at run time, to the struct info of a parameter or result."""
        have = value.struct_info
        if same_struct_info(have, wanted):
            return value
        if not isinstance(have, TensorStructInfo) or not isinstance(wanted, TensorStructInfo):
            raise VerifyError(f"{name} is stated to be {wanted!r}, but is {have!r}")
        if have.dtype != wanted.dtype or (
            have.ndim != wanted.ndim and -1 not in (have.ndim, wanted.ndim)
        ):
            raise VerifyError(f"{name} is stated to be {wanted!r}, but is {have!r}")
        return self.builder.match_cast(value, wanted, name)
