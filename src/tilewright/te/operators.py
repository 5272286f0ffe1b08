"""What Python's operators do with tensors: ``te.arithmetic``, with broadcasting.

``A + B``, ``2 * A``, ``-A``, ``A.astype("float16")`` define a tensor. Comparison stays that of
objects, as tensors are keys of dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

ARITHMETIC: dict[str, Callable[..., Any]] = {}
"""What the operators do, by name: ``arithmetic``, which stands on tensors, fills it."""


class TensorOperators:
    """Base of what Python's arithmetic operators take as a tensor."""

    def _made(self, name: str, *operands: object) -> Self:
        made: Self = ARITHMETIC[name](*operands)
        return made

    def __add__(self, other: object) -> Self:
        return self._made("add", self, other)

    def __radd__(self, other: object) -> Self:
        return self._made("add", other, self)

    def __sub__(self, other: object) -> Self:
        return self._made("subtract", self, other)

    def __rsub__(self, other: object) -> Self:
        return self._made("subtract", other, self)

    def __mul__(self, other: object) -> Self:
        return self._made("multiply", self, other)

    def __rmul__(self, other: object) -> Self:
        return self._made("multiply", other, self)

    def __truediv__(self, other: object) -> Self:
        return self._made("divide", self, other)

    def __rtruediv__(self, other: object) -> Self:
        return self._made("divide", other, self)

    def __floordiv__(self, other: object) -> Self:
        return self._made("floor_divide", self, other)

    def __rfloordiv__(self, other: object) -> Self:
        return self._made("floor_divide", other, self)

    def __mod__(self, other: object) -> Self:
        return self._made("floor_mod", self, other)

    def __rmod__(self, other: object) -> Self:
        return self._made("floor_mod", other, self)

    def __pow__(self, other: object) -> Self:
        return self._made("power", self, other)

    def __neg__(self) -> Self:
        return self._made("negative", self)

    def astype(self, dtype: str, span: object = None) -> Self:
        """Define the tensor of the same elements in another dtype."""
        return self._made("cast", self, dtype)
