"""What a class of functions says of its module: values for ``script.ir`` and for builders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import DummyGlobalInfo, GlobalInfo
from tilewright.support.errors import ParseError, TilewrightError
from tilewright.target import Target, VDevice


class ModuleAttrs:
    """What ``I.module_attrs`` gives."""

    def __init__(self, attrs: Mapping[str, Any], allow_overwrite: bool = False) -> None:
        self.attrs = dict(attrs)
        self.allow_overwrite = allow_overwrite


def module_attrs(attrs: Mapping[str, object], allow_overwrite: bool = False) -> ModuleAttrs:
    """State attributes of the module; one that is stated again replaces the former if it may.

    Raises ``ParseError`` if it is no dict.
    """
    if not isinstance(attrs, Mapping):
        raise ParseError(f"module_attrs takes a dict, got {type(attrs).__name__}")
    return ModuleAttrs(attrs, allow_overwrite)


@dataclass
class GlobalInfos:
    """What ``I.module_global_infos`` gives."""

    infos: dict[str, tuple[GlobalInfo, ...]]


def module_global_infos(global_infos: Mapping[str, Sequence[GlobalInfo]]) -> GlobalInfos:
    """State what the functions share: ``{"vdevice": [I.vdevice("llvm")]}``.

    It becomes the module's ``global_infos``.

    Raises ``ParseError`` if it is no dict of lists of infos.
    """
    if not isinstance(global_infos, Mapping):
        raise ParseError(f"module_global_infos takes a dict, got {type(global_infos).__name__}")
    for value in global_infos.values():
        known = isinstance(value, (list, tuple))
        if not known or not all(isinstance(item, GlobalInfo) for item in value):
            raise ParseError(f"an entry is a list of I.vdevice or dummy infos, got {value!r}")
    return GlobalInfos({key: tuple(value) for key, value in global_infos.items()})


def vdevice(
    target: str | Mapping[str, Any] | Target | None = None,
    vdevice_id: int = 0,
    memory_scope: str = "global",
) -> VDevice:
    """A device that tensors may be on: ``I.vdevice("cuda", 1)``."""
    try:
        return VDevice(target, vdevice_id, memory_scope)
    except TilewrightError as error:
        raise ParseError(str(error)) from error


def dummy_global_info() -> DummyGlobalInfo:
    """Global information that says nothing."""
    return DummyGlobalInfo()


@dataclass
class MetaVar:
    """``x = I.meta_var(value)``: a name of the text only."""

    value: object


def meta_var(value: object) -> Any:
    """Give a value a name in the text only: uses are replaced by it."""
    return MetaVar(value)
