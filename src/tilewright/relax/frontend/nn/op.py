"""Operators on ``nn.Tensor``: those of ``relax.op``, emitted when called.

Operators of TVM's ``nn.op`` have its signatures. All others of ``relax.op`` are here too, under
their names (``nn.op.argmax``); neural network operators need no ``nn.`` prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.relax.frontend.nn.operators import (
    elementwise,
    functions,
    networks,
    sampling,
    shapes,
)
from tilewright.relax.frontend.nn.operators.shapes import IntExpr
from tilewright.relax.frontend.nn.tensor import (
    Tensor,
    emit,
    get_default_dtype,
    unwrapped,
    wrap_nested,
)
from tilewright.relax.registry import BUILDERS, builders_in

_FAMILIES = (elementwise, functions, networks, sampling, shapes)
WRITTEN: dict[str, Callable[..., Any]] = {
    name: getattr(family, name) for family in _FAMILIES for name in family.__all__
}
"""Operators with TVM's signatures, by name."""

globals().update(WRITTEN)

_CACHE: dict[str, Callable[..., Any]] = {}


def _find(name: str) -> Callable[..., Any] | None:
    return BUILDERS.get(f"nn.{name}", BUILDERS.get(name))


def __getattr__(name: str) -> Any:
    """Return an operator that takes and returns ``nn.Tensor``."""
    if name.startswith("_"):
        raise AttributeError(name)
    made = _CACHE.get(name)
    if made is None:
        function = _find(name)
        if function is None:
            raise AttributeError(f"nn.op has no operator {name!r}")

        def call(*args: object, **kwargs: object) -> Any:
            named = {key: unwrapped(value) for key, value in kwargs.items()}
            return emit(function(*map(unwrapped, args), **named))

        call.__name__ = call.__qualname__ = name
        call.__doc__ = function.__doc__
        made = _CACHE[name] = call
    return made


def __dir__() -> list[str]:
    return sorted({*builders_in(), *builders_in("nn"), *__all__})


__all__ = ["IntExpr", "Tensor", "get_default_dtype", "wrap_nested", *WRITTEN]
