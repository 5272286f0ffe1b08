"""The values of parameters that an importer has left with a module."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax.expr import Function
from tilewright.runtime import Tensor, from_numpy


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Tensor]]]:
    """Take the values of parameters off a module that was imported with them as inputs.

    Returns the module, and for each function its tensors, in the order of the last parameters.
    """
    found: dict[str, list[Tensor]] = {}
    functions = dict(mod.functions)
    for name, function in functions.items():
        held = function.attrs.get("params") if isinstance(function, Function) else None
        if held is not None:
            found[name] = [from_numpy(item.array) for item in held]
            attrs = {key: value for key, value in function.attrs.items() if key != "params"}
            functions[name] = function.replace(attrs=attrs)
    return IRModule(functions, dict(mod.attrs)), found
