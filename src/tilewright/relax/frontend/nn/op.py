"""Operators on ``nn.Tensor``: those of ``relax.op``, emitted as they are called.

Every operator is here under its name (``nn.op.matmul``, ``nn.op.softmax``, …); names of networks'
operators need no ``nn.``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.relax import ops
from tilewright.relax.frontend.nn.core import emit

_CACHE: dict[str, Callable[..., Any]] = {}


def _find(name: str) -> Callable[..., Any] | None:
    found = getattr(ops.nn, name, None) if name in ops.nn.__all__ else None
    if found is None and name in ops.__all__:
        found = getattr(ops, name)
    return found if callable(found) and not isinstance(found, type) else None


def __getattr__(name: str) -> Any:
    """Return an operator that takes and gives ``nn.Tensor``."""
    if name.startswith("_"):
        raise AttributeError(name)
    made = _CACHE.get(name)
    if made is None:
        function = _find(name)
        if function is None:
            raise AttributeError(f"nn.op has no operator {name!r}")

        def call(*args: Any, **kwargs: Any) -> Any:
            return emit(function(*map(_unwrapped, args), **kwargs))

        call.__name__ = call.__qualname__ = name
        call.__doc__ = function.__doc__
        made = _CACHE[name] = call
    return made


def _unwrapped(value: Any) -> Any:
    """Graph values behind tensors, also in lists."""
    if hasattr(value, "_expr"):
        return value._expr
    if isinstance(value, (list, tuple)):
        return type(value)(_unwrapped(item) for item in value)
    return value


def __dir__() -> list[str]:
    return sorted({*ops.__all__, *ops.nn.__all__})
