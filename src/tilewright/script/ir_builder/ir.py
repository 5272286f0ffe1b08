"""Frames of modules: ``with I.ir_module():`` around functions of any dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import BaseFunc, GlobalInfo, GlobalVar, IRModule
from tilewright.script import module_values as _values
from tilewright.script.ir_builder.base import Frame, IRBuilder, enclosing
from tilewright.support.errors import VerifyError
from tilewright.target import VDevice

dummy_global_info = _values.dummy_global_info
meta_var = _values.meta_var
vdevice = _values.vdevice


class IRModuleFrame(Frame):
    """A module that is being built, from what it may have already.

    ``functions`` are by name; one that is declared only is ``None``.
    """

    def __init__(
        self,
        global_vars: Mapping[str, GlobalVar] | None = None,
        functions: Mapping[Any, BaseFunc | None] | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Mapping[str, Sequence[GlobalInfo]] | None = None,
    ) -> None:
        self.functions: dict[str, BaseFunc | None] = dict.fromkeys(global_vars or {})
        for var, function in (functions or {}).items():
            self.functions[var.name if isinstance(var, GlobalVar) else var] = function
        self.declared: set[str] = set()  # by a function of the same parameters and result
        self.attrs: dict[str, Any] = dict(attrs or {})
        self.global_infos: dict[str, Sequence[GlobalInfo]] = dict(global_infos or {})

    @property
    def global_vars(self) -> dict[str, GlobalVar]:
        """The functions that are declared or defined, by name."""
        return {name: GlobalVar(name) for name in self.functions}

    def close(self, builder: IRBuilder) -> None:
        """Make the module; raises ``VerifyError`` for a function that is declared only."""
        made: dict[str, BaseFunc] = {}
        for name, function in self.functions.items():
            if function is None:
                raise VerifyError(f"function {name!r} is declared and not defined")
            made[name] = function
        builder.result = IRModule(made, self.attrs, self.global_infos)

    def define(self, name: str, function: BaseFunc) -> None:
        """Add a function; raises ``VerifyError`` if there is one of the name."""
        if self.functions.get(name) is not None and name not in self.declared:
            raise VerifyError(f"the module has two functions named {name!r}")
        self.declared.discard(name)
        self.functions[name] = function


def ir_module() -> IRModuleFrame:
    """A module, whose functions are built inside."""
    return IRModuleFrame()


def _module() -> IRModuleFrame:
    return enclosing(IRModuleFrame, "this stands inside `with I.ir_module():`")


def decl_function(func_name: str, func_signature: BaseFunc | None = None) -> GlobalVar:
    """Declare a function, which is defined later; returns its variable.

    ``func_signature`` is a function that takes and gives the same, and stands for it until then.
    """
    frame = _module()
    if func_name in frame.functions:
        raise VerifyError(f"function {func_name!r} is declared already")
    frame.functions[func_name] = func_signature
    if func_signature is not None:
        frame.declared.add(func_name)
    return GlobalVar(func_name)


def def_function(func_name: str, func: BaseFunc) -> None:
    """Define a function."""
    _module().define(func_name, func)


def module_attrs(attrs: Mapping[str, Any], allow_overwrite: bool = False) -> None:
    """State attributes of the module; raises ``VerifyError`` for one that is stated already."""
    for key, value in _values.module_attrs(attrs).attrs.items():
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


def module_global_infos(global_infos: Mapping[str, Sequence[GlobalInfo]]) -> None:
    """State what the functions share: see ``script.ir.module_global_infos``."""
    frame = _module()
    if frame.global_infos:
        raise VerifyError("the module's global_infos are given twice")
    frame.global_infos.update(_values.module_global_infos(global_infos).infos)


def lookup_name(name: str) -> bool:
    """Whether the module that is being built has a function of a name, or declares it."""
    return name in _module().functions


def lookup_vdevice(target_kind: str | None = None, device_index: int = -1) -> VDevice:
    """Return a device of the module's global infos: of a kind, by index, or the first.

    Raises ``VerifyError`` if there is none.
    """
    devices = [d for d in _module().global_infos.get("vdevice", ()) if isinstance(d, VDevice)]
    found = [d for d in devices if target_kind in (None, getattr(d.target, "kind", None))]
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
    "lookup_name",
    "lookup_vdevice",
    "meta_var",
    "module_attrs",
    "module_get_attr",
    "module_global_infos",
    "module_set_attr",
    "vdevice",
]
