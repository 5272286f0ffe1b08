"""What the declarations of nodes say about the values of their fields.

Constructors trust their callers in this; where nodes are made of text from elsewhere
(``ir.json``), each value is compared with the annotation of its field first.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin

from tilewright.ir.node import Node

_UNIONS = (Union, types.UnionType)


def is_concrete(cls: type[Node]) -> bool:
    """Whether nodes are made of a class itself: it is declared, and no base of others only."""
    return "node_fields" in vars(cls)


@cache
def field_hints(cls: type[Node]) -> dict[str, Any]:
    """The annotation of each field of a class, or what its ``field_types`` says in its place."""
    written: dict[str, tuple[Any, str]] = {}
    for base in reversed(cls.__mro__):
        for name, hint in vars(base).get("__annotations__", {}).items():
            written[name] = hint, base.__module__
    fields = [field.name for field in cls.node_fields if field.role != "derived"]
    stated: Mapping[str, Any] = getattr(cls, "field_types", {})
    return {name: stated[name] if name in stated else _evaluated(*written[name]) for name in fields}


def _evaluated(hint: Any, module: str) -> Any:
    # Annotations of our own modules, which postpone their evaluation.
    return eval(hint, dict(vars(sys.modules[module]))) if isinstance(hint, str) else hint


def mismatch(cls: type[Node], values: Mapping[str, object]) -> str | None:
    """Say which field of a class these values don't fit, if there is one."""
    hints = field_hints(cls)  # type: ignore[arg-type]  # a class has a hash
    for name, hint in hints.items():
        if name in values and not fits(values[name], hint):
            shown = getattr(hint, "__name__", hint) if get_origin(hint) is None else hint
            return f"{cls.__name__}.{name} is {shown}, got {str(values[name])[:60]!r}"
    return None


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of the type that an annotation says."""
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    origin, inner = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return any(fits(value, each) for each in inner)
    if origin is tuple:  # of any number of one type: no field holds others
        return isinstance(value, tuple) and all(fits(each, inner[0]) for each in value)
    if origin is not None and issubclass(origin, Mapping):
        key, held = inner
        return isinstance(value, Mapping) and all(
            fits(each, key) and fits(of, held) for each, of in value.items()
        )
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int)
    return isinstance(value, hint)
