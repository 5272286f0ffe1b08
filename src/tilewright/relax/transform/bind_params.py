"""``BindParams``: parameters of a graph function become constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir import IRModule, Pass, Var, as_int, substitute
from tilewright.ir import const as number
from tilewright.relax.expr import Constant, Function, PrimValue, RelaxExpr, RelaxVar
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import (
    PrimStructInfo,
    TensorStructInfo,
    same_struct_info,
    substitute_info,
)
from tilewright.relax.values import const, prim_value
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches


class BindParams(Pass):
    """Bind parameters of a function, by name, to arrays.

    Symbolic extents that the arrays determine become numbers everywhere in the function.
    """

    def __init__(self, func_name: str, params: Mapping[str, object]) -> None:
        self.func_name = func_name
        self.params = dict(params)

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild the function with fewer parameters.

        Raises ``VerifyError`` if the function or a parameter isn't there.
        """
        function = mod[self.func_name]
        if not isinstance(function, Function):
            raise VerifyError(f"{self.func_name} is no graph function")
        return mod.with_function(
            self.func_name, bind_params(function, self.params, name=self.func_name)
        )


def bind_params(
    function: Function, params: Mapping[Any, object], *, name: str = "the function"
) -> Function:
    """Bind parameters, by name or variable, to arrays, numbers or graph values; the rest stay.

    Symbolic extents that arrays and numbers determine become numbers everywhere. ``name`` is what
    messages call the function.

    Raises ``VerifyError`` for a parameter that isn't there, and a value that doesn't fit.
    """
    known = {param.name: param for param in function.params}
    binder = _Binder()
    extents: dict[Var, int] = {}
    for key, value in params.items():
        param = key if isinstance(key, RelaxVar) else known.get(key)
        if param is None or param not in function.params:
            shown = key.name if isinstance(key, RelaxVar) else key
            raise VerifyError(
                f"{name} has no parameter {shown!r}; {near_matches(shown, list(known))}"
            )
        binder.mapping[param] = _value(param, value, extents)
    binder.mapping.update({var: number(value) for var, value in extents.items()})
    return binder.rewrite(function)


def _value(param: RelaxVar, value: object, extents: dict[Var, int]) -> RelaxExpr:
    info = param.struct_info
    if isinstance(value, RelaxExpr) and not isinstance(value, (Constant, PrimValue)):
        if not same_struct_info(info, value.struct_info):
            raise VerifyError(f"parameter {param.name} is {info!r}, not {value.struct_info!r}")
        return value
    if isinstance(info, PrimStructInfo):
        made = prim_value(value, info.dtype)
        given = as_int(made.value)
        extent = info.value
        if type(extent) is not Var or given is None or extents.setdefault(extent, given) == given:
            return made
        raise VerifyError(f"{extent.name} is {extents[extent]}, so {param.name} can't be {given}")
    return _constant(param, value, extents)


def _constant(param: RelaxVar, value: object, extents: dict[Var, int]) -> Constant:
    info = param.struct_info
    made = const(value)
    if not isinstance(info, TensorStructInfo) or not info.has_shape:
        raise VerifyError(f"parameter {param.name} is {info!r}; only tensors can be bound")
    found = made.data
    if found.dtype.name != info.dtype or found.ndim != info.ndim:
        raise VerifyError(
            f"parameter {param.name} is {info!r}, "
            f"got an array of {found.dtype.name} with shape {list(found.shape)}"
        )
    for extent, size in zip(info.shape, found.shape):
        if type(extent) is Var:
            known = extents.setdefault(extent, size)
        else:
            known = as_int(substitute(extent, {v: number(n) for v, n in extents.items()})) or size
        if known != size:
            raise VerifyError(f"parameter {param.name} is {info!r}, got shape {list(found.shape)}")
    return made


class _Binder(FunctionRewriter):
    def rewrite_params(self, function: Function) -> list[RelaxVar]:
        kept = []
        for param in function.params:
            if param in self.mapping:
                continue
            info = substitute_info(param.struct_info, self.mapping)
            kept.append(self.renew(param, info))
        return kept
