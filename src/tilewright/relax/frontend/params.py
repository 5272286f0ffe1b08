"""Arrays of parameters that an importer has left with a module."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tilewright.ir import IRModule
from tilewright.relax.expr import Function


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[NDArray[Any]]]]:
    """Take the arrays of parameters off a module that was imported with them as inputs.

    Returns the module, and for each function its arrays, in the order of the last parameters.
    """
    found: dict[str, list[NDArray[Any]]] = {}
    functions = dict(mod.functions)
    for name, function in functions.items():
        held = function.attrs.get("params") if isinstance(function, Function) else None
        if held is not None:
            found[name] = [item.array for item in held]
            attrs = {key: value for key, value in function.attrs.items() if key != "params"}
            functions[name] = function.replace(attrs=attrs)
    return IRModule(functions, dict(mod.attrs)), found
