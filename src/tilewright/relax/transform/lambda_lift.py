"""``LambdaLift``: functions inside of functions become functions of the module."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from tilewright.ir import GlobalVar, IRModule, Pass, Var
from tilewright.relax.analysis import (
    defined_symbolic_vars,
    free_symbolic_vars,
    free_vars,
)
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.closures import is_invocation
from tilewright.relax.expr import (
    Binding,
    Function,
    FunctionRef,
    LocalFunction,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
)
from tilewright.relax.rewriter import FunctionRewriter, renew_symbols, with_params
from tilewright.relax.struct_info import ShapeStructInfo, defined_vars
from tilewright.support.errors import VerifyError


class LambdaLift(Pass):
    """Move functions out of functions; what they use of the outer one becomes parameters.

    A function that uses nothing of the outer one may be passed on, others are only called.

    Before:
        def main(x, w):
            @R.function
            def inner(y): return R.matmul(y, w)
            return R.call(inner, (x,))
    After:
        def main_inner(y, w): return R.matmul(y, w)
        def main(x, w): return R.call(cls.main_inner, (x, w))
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Lift in every function, innermost first.

        Raises ``VerifyError`` if a function that uses variables of the outer one is passed on.
        """
        builder = BlockBuilder(mod)
        for name, function in mod.functions.items():
            if isinstance(function, Function):
                made = _Lifter(builder, name).rewrite(function)
                if made is not function:
                    builder.update_func(name, made)
        return builder.get()


class _Lifter(FunctionRewriter):
    def __init__(
        self, module: BlockBuilder, name: str, outer: AbstractSet[Var] = frozenset()
    ) -> None:
        super().__init__()
        self.module = module
        self.name = name
        self.outer = outer
        """Extents that are defined outside of this function."""
        self.lifted: dict[RelaxVar, tuple[GlobalVar, tuple[RelaxExpr, ...]]] = {}
        """The function that a variable stands for, and what it takes besides its arguments."""

    def rewrite_binding(self, binding: Binding) -> None:
        value: Any = self.resolve(binding.value)
        if isinstance(value, LocalFunction):
            self.lift(binding.var, value.func)
            return
        super().rewrite_binding(binding)

    def lift(self, var: RelaxVar, function: Function) -> None:
        name = f"{self.name}_{var.name}"
        outer = self.outer | self.extents
        inner = _Lifter(self.module, name, outer)
        inner.lifted.update(self.lifted)
        inner.mapping.update(self.mapping)
        function = inner.rewrite(function)
        captured = free_vars(function)
        params = [*function.params, *(RelaxVar(v.name, v.struct_info) for v in captured)]
        infos = [param.struct_info for param in params]
        # What is cast to an extent from outside is checked, not defined by it.
        own = set(defined_symbolic_vars(function)) - outer
        used = (*free_symbolic_vars(function), *defined_symbolic_vars(function))
        extents = [extent for extent in used if extent not in own.union(defined_vars(infos))]
        operands: tuple[RelaxExpr, ...] = tuple(captured)
        if extents:
            params.append(RelaxVar("s", ShapeStructInfo(extents)))
            operands += (ShapeExpr(tuple(extents)),)
        mapping = dict(zip(captured, params[len(function.params) :]))
        made = renew_symbols(with_params(function, params, mapping))
        self.lifted[var] = (self.module.add_func(made, name), operands)
        if not operands:
            self.mapping[var] = FunctionRef(self.lifted[var][0])

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not is_invocation(value):
            self.check(value)
            return value
        assert isinstance(value, RelaxCall)
        callee, *args = value.args
        if isinstance(callee, FunctionRef):
            return value.replace(op=callee.callee, args=tuple(args))
        for arg in args:
            self.check(arg)
        if callee not in self.lifted:
            return value  # a parameter
        gvar, operands = self.lifted[callee]
        return value.replace(op=gvar, args=(*args, *map(self.resolve, operands)))

    def check(self, value: RelaxExpr) -> None:
        for var in free_vars(value):
            if var in self.lifted:
                raise VerifyError(
                    f"{var.name} uses variables of {self.name}, so it can be called only, not "
                    f"passed on: {value!r}"
                )
