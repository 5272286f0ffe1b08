"""Graph functions as functions of Python on PyTorch's tensors, at any stage of compilation."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tilewright.ir import BaseFunc, IRModule
from tilewright.relax.expr import Function
from tilewright.relax.interpreter import run
from tilewright.runtime import from_dlpack, from_numpy
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches


class ConvertedModule:
    """A module some of whose graph functions can be called from Python: ``pyfuncs``, by name."""

    def __init__(self, ir_module: IRModule, pyfuncs: Mapping[str, Callable[..., Any]]) -> None:
        self.ir_module = ir_module
        self.pyfuncs = dict(pyfuncs)

    @property
    def __pyfuncs__(self) -> dict[str, Callable[..., Any]]:
        return self.pyfuncs

    @property
    def functions(self) -> Mapping[str, BaseFunc]:
        """The functions of the module."""
        return self.ir_module.functions


class RelaxToPyFuncConverter:
    """Makes functions of Python that compute what a module's graph functions mean.

    They are run by the reference interpreter, so what they give doesn't depend on passes, rules or
    code generation: compare results before and after a pass with it.
    """

    def __init__(self, ir_module: IRModule) -> None:
        self.ir_module = ir_module

    def convert(self, relax_function_names: str | Sequence[str]) -> ConvertedModule:
        """Convert functions by their names.

        Raises ``VerifyError`` for one that isn't there or is no graph function.
        """
        names = [relax_function_names] if isinstance(relax_function_names, str) else None
        graphs = [
            name
            for name, function in self.ir_module.functions.items()
            if isinstance(function, Function)
        ]
        chosen = names or list(relax_function_names)
        for name in chosen:
            if name not in graphs:
                raise VerifyError(
                    f"the module has no graph function {name!r}; {near_matches(name, graphs)}"
                )
        made = {name: partial(_call, self.ir_module, name) for name in chosen}
        return ConvertedModule(self.ir_module, made)


def _call(mod: IRModule, name: str, *args: Any) -> Any:
    return _as_torch(run(mod, *map(_as_numpy, args), name=name))


def _as_numpy(value: Any) -> Any:
    value = value.detach() if hasattr(value, "detach") else value
    return from_dlpack(value).numpy() if hasattr(value, "__dlpack__") else value


def _as_torch(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_as_torch, value))
    made = hasattr(value, "dtype") and hasattr(value, "shape")
    return importlib.import_module("torch").from_dlpack(from_numpy(value)) if made else value
