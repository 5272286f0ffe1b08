"""Frames of modules: ``with I.ir_module():`` around functions of any dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir import BaseFunc, GlobalVar, IRModule
from tilewright.script import ir as _vocabulary
from tilewright.script.ir_builder.base import Frame, IRBuilder, enclosing
from tilewright.support.errors import VerifyError

dummy_global_info = _vocabulary.dummy_global_info
meta_var = _vocabulary.meta_var
vdevice = _vocabulary.vdevice


class IRModuleFrame(Frame):
    """A module that is being built."""

    def __init__(self) -> None:
        self.functions: dict[str, BaseFunc | None] = {}
        self.attrs: dict[str, Any] = {}

    def close(self, builder: IRBuilder) -> None:
        """Make the module; raises ``VerifyError`` for a function that is declared only."""
        made: dict[str, BaseFunc] = {}
        for name, function in self.functions.items():
            if function is None:
                raise VerifyError(f"function {name!r} is declared and not defined")
            made[name] = function
        builder.result = IRModule(made, self.attrs)

    def define(self, name: str, function: BaseFunc) -> None:
        """Add a function; raises ``VerifyError`` if there is one of the name."""
        if self.functions.get(name) is not None:
            raise VerifyError(f"the module has two functions named {name!r}")
        self.functions[name] = function


def ir_module() -> IRModuleFrame:
    """A module, whose functions are built inside."""
    return IRModuleFrame()


def _module() -> IRModuleFrame:
    return enclosing(IRModuleFrame, "this stands inside `with I.ir_module():`")


def decl_function(func_name: str, func_signature: BaseFunc | None = None) -> GlobalVar:
    """Declare a function that is defined later, or give it at once; returns its variable."""
    frame = _module()
    if func_signature is not None:
        frame.define(func_name, func_signature)
    elif func_name in frame.functions:
        raise VerifyError(f"function {func_name!r} is declared already")
    else:
        frame.functions[func_name] = None
    return GlobalVar(func_name)


def def_function(func_name: str, func: BaseFunc) -> None:
    """Define a function."""
    _module().define(func_name, func)


def module_attrs(attrs: Mapping[str, Any], allow_overwrite: bool = False) -> None:
    """State attributes of the module; raises ``VerifyError`` for one that is stated already."""
    for key, value in _vocabulary.module_attrs(attrs).attrs.items():
        module_set_attr(key, value, allow_overwrite)


def module_get_attr(attr_key: str) -> Any:
    """Return an attribute of the module, or ``None``."""
    return _module().attrs.get(attr_key)


def module_set_attr(attr_key: str, attr_value: object, allow_overwrite: bool = False) -> None:
    """State an attribute of the module."""
    attrs = _module().attrs
    if attr_key in attrs and not allow_overwrite:
        raise VerifyError(f"the attribute {attr_key!r} is given twice")
    attrs[attr_key] = attr_value


def module_global_infos(global_infos: Mapping[str, Any]) -> None:
    """State what the functions share: see ``script.ir.module_global_infos``."""
    infos = _vocabulary.module_global_infos(global_infos).infos
    module_set_attr(_vocabulary.GLOBAL_INFOS, infos)


def lookup_vdevice(target_kind: str | None = None, device_index: int = -1) -> Any:
    """Return a device of the module's global infos: of a kind, by index, or the first.

    Raises ``VerifyError`` if there is none.
    """
    devices = (module_get_attr(_vocabulary.GLOBAL_INFOS) or {}).get("vdevice", ())
    found = [d for d in devices if target_kind in (None, d.target.split()[0])]
    index = max(device_index, 0)
    if index >= len(found):
        raise VerifyError(f"the module has no device {index} of kind {target_kind}")
    return found[index]


__all__ = [
    "IRModuleFrame",
    "decl_function",
    "def_function",
    "dummy_global_info",
    "ir_module",
    "lookup_vdevice",
    "meta_var",
    "module_attrs",
    "module_get_attr",
    "module_global_infos",
    "module_set_attr",
    "vdevice",
]
