"""Methods of graph functions that stand on passes: ``Function.bind_params`` and others of TVM's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import GlobalVar, IRModule, Var, set_span
from tilewright.relax.call_packed import call_packed, call_pure_packed
from tilewright.relax.expr import BindingBlock, Function, RelaxVar, SeqExpr, VarBinding
from tilewright.relax.struct_info import StructInfo
from tilewright.relax.transform.bind_params import bind_params
from tilewright.relax.transform.bind_symbolic_vars import BindSymbolicVars
from tilewright.relax.transform.inline_functions import Inlined
from tilewright.support.errors import VerifyError
from tilewright.tir import fresh_name

_NO_BODY = "_dummy_function"


def _bind_params(self: Function, binding_map: Mapping[Any, Any]) -> Function:
    """Bind parameters, by name or variable, to numbers, arrays or graph values.

    Raises ``VerifyError`` for a parameter that isn't there, and a value that doesn't fit.
    """
    return bind_params(self, binding_map)


def _bind_symbolic_vars(self: Function, binding_map: Mapping[str | Var, int]) -> Function:
    """Make numbers of symbolic extents, given by name or variable.

    Raises ``VerifyError`` for an extent that isn't there, and a value that is no number.
    """
    made: Function = BindSymbolicVars(binding_map, "main")(IRModule({"main": self}))["main"]
    return made


def _inline_functions(self: Function, function_map: Mapping[str | GlobalVar, Function]) -> Function:
    """Write the bodies of functions where they are called, by their names.

    Calls of other functions stay. Raises ``VerifyError`` for what is no graph function, and for
    functions that call themselves.
    """
    known: dict[str, Any] = {}
    for key, function in function_map.items():
        name = key.name if isinstance(key, GlobalVar) else key
        if not isinstance(function, Function):
            raise VerifyError(f"{name} is no graph function: {function!r}")
        known[name] = function
    own = fresh_name("main", set(known))
    return Inlined(IRModule({**known, own: self}), known.keys()).function(own)


def _create_empty(
    params: Sequence[RelaxVar],
    ret_ty: StructInfo,
    is_pure: bool = True,
    attrs: Mapping[str, Any] | None = None,
    span: object = None,
) -> Function:
    """Make a function of which only parameters and result are known.

    It calls the global function ``_dummy_function``, which nobody has to register: such a function
    stands for one that is written later, and isn't meant to run.
    """
    call = (call_pure_packed if is_pure else call_packed)(_NO_BODY, ty_args=ret_ty)
    result = RelaxVar("output", ret_ty)
    body = SeqExpr((BindingBlock((VarBinding(result, call),)),), result)
    made = Function(params, body, ret_ty, is_pure, attrs)
    if span is not None:
        set_span(made, span)
    return made


Function.bind_params = _bind_params  # type: ignore[method-assign]
Function.bind_symbolic_vars = _bind_symbolic_vars  # type: ignore[method-assign]
Function.inline_functions = _inline_functions  # type: ignore[method-assign]
Function.create_empty = staticmethod(_create_empty)  # type: ignore[method-assign]
