"""What Python's operators do with tensors: arithmetic of ``topi``, with broadcasting.

``A + B``, ``2 * A``, ``-A``, ``A.astype("float16")`` define a tensor. Comparison stays that of
objects, as tensors are keys of dictionaries.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def _topi(name: str) -> Callable[..., Any]:
    """An operator of ``topi``, which stands on this package."""
    found: Callable[..., Any] = getattr(importlib.import_module("tilewright.topi"), name)
    return found


class TensorOperators:
    """Base of what Python's arithmetic operators take as a tensor."""

    def __add__(self, other: Any) -> Any:
        return _topi("add")(self, other)

    def __radd__(self, other: Any) -> Any:
        return _topi("add")(other, self)

    def __sub__(self, other: Any) -> Any:
        return _topi("subtract")(self, other)

    def __rsub__(self, other: Any) -> Any:
        return _topi("subtract")(other, self)

    def __mul__(self, other: Any) -> Any:
        return _topi("multiply")(self, other)

    def __rmul__(self, other: Any) -> Any:
        return _topi("multiply")(other, self)

    def __truediv__(self, other: Any) -> Any:
        return _topi("divide")(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _topi("divide")(other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _topi("floor_divide")(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _topi("floor_divide")(other, self)

    def __mod__(self, other: Any) -> Any:
        return _topi("floor_mod")(self, other)

    def __rmod__(self, other: Any) -> Any:
        return _topi("floor_mod")(other, self)

    def __pow__(self, other: Any) -> Any:
        return _topi("power")(self, other)

    def __neg__(self) -> Any:
        return _topi("negative")(self)

    def astype(self, dtype: str, span: object = None) -> Any:
        """Define the tensor of the same elements in another dtype."""
        return _topi("cast")(self, dtype)
