"""``Gradient``: a graph function and the gradients of its result for its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import GLOBAL_SYMBOL, IRModule, Pass, substitute
from tilewright.relax.analysis import is_impure, remove_all_unused
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import If, all_bindings
from tilewright.relax.expr import (
    Binding,
    DataflowBlock,
    DataflowVar,
    Function,
    RelaxExpr,
    RelaxVar,
    Tuple,
)
from tilewright.relax.gradients import Reverse, filled, has_gradient, renewed
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.relax.values import const, numpy_dtype
from tilewright.support.errors import VerifyError


class Gradient(Pass):
    """Add a function ``<func_name>_adjoint`` that also returns gradients, by reverse accumulation.

    The new function takes what the old one takes and returns ``(result, gradients)``: the old
    result, and a tuple with the gradient of the target for each of ``require_grads`` (all
    parameters if left out). The target is the result, or its item ``target_index``: a floating-
    point tensor without dimensions. What the target doesn't depend on has gradients of zero.

    Operators are differentiated by the rules of ``relax.gradients``. The backward pass computes a
    branch of an ``If`` again, only the one that was taken. Calls of functions of the
    module have none: ``InlineFunctions`` goes before.
    """

    def __init__(
        self,
        func_name: str,
        require_grads: RelaxVar | Sequence[RelaxVar] | None = None,
        target_index: int = 0,
    ) -> None:
        self.func_name = func_name
        if isinstance(require_grads, RelaxVar):
            require_grads = (require_grads,)
        self.require_grads = None if require_grads is None else tuple(require_grads)
        self.target_index = target_index

    def transform(self, mod: IRModule) -> IRModule:
        """Add the function.

        Raises ``VerifyError`` if there is no such function or parameter, the target isn't a
        floating-point number, or an operator on the way has no gradient.
        """
        function = mod[self.func_name]
        if not isinstance(function, Function):
            raise VerifyError(f"{self.func_name} is no graph function")
        differentiator = _Differentiator(mod, self)
        made = differentiator.differentiate(function)
        # Gradients in `te` are tensor functions.
        known = differentiator.builder.get().functions
        functions = {**known, f"{self.func_name}_adjoint": made}
        return IRModule(functions, dict(mod.attrs))

    def parameters(self, function: Function) -> tuple[RelaxVar, ...]:
        """The parameters whose gradients are wanted.

        Raises ``VerifyError`` if one isn't the function's, isn't of floating-point numbers, or is
        named twice.
        """
        wanted = function.params if self.require_grads is None else self.require_grads
        for var in wanted:
            if var not in function.params:
                raise VerifyError(f"require_grads: {var!r} is no parameter of {self.func_name}")
            if not _all_floats(var.struct_info):
                raise VerifyError(
                    f"parameter {var.name} of {self.func_name} has no gradient, it is "
                    f"{var.struct_info!r}: name those that have in require_grads"
                )
        if len(set(wanted)) != len(wanted):
            raise VerifyError(f"require_grads names a parameter twice: {list(wanted)}")
        return wanted


def _all_floats(info: StructInfo) -> bool:
    if isinstance(info, TupleStructInfo):
        return all(map(_all_floats, info.fields))
    return has_gradient(info)


class _Differentiator:
    """Copies a function under new variables and adds the backward pass."""

    def __init__(self, mod: IRModule, options: Gradient) -> None:
        self.builder = BlockBuilder(mod)
        self.options = options
        self.mapping: dict[RelaxExpr, RelaxExpr] = {}

    def differentiate(self, function: Function) -> Function:
        name = self.options.func_name
        wanted = self.options.parameters(function)
        for binding in all_bindings(function):
            value = binding.value
            if isinstance(value, If) or is_call_to(value, "assert_op"):
                continue
            if is_impure(value):
                raise VerifyError(f"{name} has no gradient: {value!r} has side effects")
        for param in function.params:
            self.mapping[param] = RelaxVar(param.name, param.struct_info)
        params = [self.mapping[param] for param in function.params]
        is_dataflow = all(isinstance(block, DataflowBlock) for block in function.body.blocks)
        attrs = {key: value for key, value in function.attrs.items() if key != GLOBAL_SYMBOL}

        def body() -> RelaxExpr:
            if not is_dataflow:
                return self.both(function, wanted, RelaxVar)
            with self.builder.dataflow():
                return self.both(function, wanted, DataflowVar)

        made = self.builder.build_function(params, body, attrs)  # type: ignore[arg-type]
        return remove_all_unused(made)

    def both(
        self, function: Function, wanted: Sequence[RelaxVar], local: type[RelaxVar]
    ) -> RelaxExpr:
        """Emit the function, then the backward pass; give the result and the gradients."""
        bindings = [self.copy(binding, local) for binding in function.bindings]
        result: RelaxExpr = substitute(function.body.body, self.mapping)
        params = [self.mapping[var] for var in wanted]
        reverse = Reverse(self.builder, params)  # type: ignore[arg-type]
        target, seed = self.target(result)
        reverse.run(bindings, target, seed)
        gradients = [
            filled(reverse.adjoints.get(var), var.struct_info)  # type: ignore[call-overload]
            for var in params
        ]
        return Tuple((result, Tuple(tuple(map(self.output, gradients)))))

    def copy(self, binding: Binding, local: type[RelaxVar]) -> Binding:
        old = binding.var
        kind = local if isinstance(old, DataflowVar) else RelaxVar
        var = kind(old.name, old.struct_info)
        made = binding.replace(value=renewed(self.builder, binding.value, self.mapping), var=var)
        self.mapping[old] = var
        self.builder.emit_binding(made)
        return made

    def output(self, gradient: RelaxExpr) -> RelaxExpr:
        """A gradient as a result of the function."""
        if isinstance(gradient, Tuple):
            return Tuple(tuple(map(self.output, gradient.fields)))
        if self.builder.in_dataflow:
            return self.builder.emit_output(gradient)
        return self.builder.emit(gradient)

    def target(self, result: RelaxExpr) -> tuple[RelaxExpr, Any]:
        """What is differentiated, and the gradient to begin with."""
        name, index = self.options.func_name, self.options.target_index
        info = result.struct_info
        parts = info.fields if isinstance(info, TupleStructInfo) else (info,)
        if not 0 <= index < len(parts):
            raise VerifyError(f"target_index is {index}, but {name} has {len(parts)} results")
        target = parts[index]
        is_number = isinstance(target, TensorStructInfo) and target.has_shape and not target.shape
        if not is_number or not has_gradient(target):
            raise VerifyError(
                f"result {index} of {name} can't be differentiated: it is {target!r}, "
                "not a floating-point number (a tensor without dimensions)"
            )
        assert isinstance(target, TensorStructInfo)
        one = const(np.ones((), numpy_dtype(target.dtype)))
        if not isinstance(info, TupleStructInfo):
            return result, one
        return result, [one if position == index else None for position in range(len(parts))]
