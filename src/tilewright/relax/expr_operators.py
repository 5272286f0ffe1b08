"""``x + y`` and the like on graph values: calls of the operators of those names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import Node

OPERATOR_SUGAR: dict[str, Callable[..., Any]] = {}
"""The functions behind them; filled by ``relax.ops``, a layer above."""


class WithOperators(Node):
    """Base of graph values, for Python's operators. ``==`` is identity, as on all nodes."""

    __slots__ = ()

    def astype(self, dtype: str) -> Any:
        """Cast a tensor to another dtype."""
        return OPERATOR_SUGAR["astype"](self, dtype)

    def __neg__(self) -> Any:
        return OPERATOR_SUGAR["negative"](self)

    def __add__(self, other: object) -> Any:
        return OPERATOR_SUGAR["add"](self, other)

    def __radd__(self, other: object) -> Any:
        return OPERATOR_SUGAR["add"](other, self)

    def __sub__(self, other: object) -> Any:
        return OPERATOR_SUGAR["subtract"](self, other)

    def __rsub__(self, other: object) -> Any:
        return OPERATOR_SUGAR["subtract"](other, self)

    def __mul__(self, other: object) -> Any:
        return OPERATOR_SUGAR["multiply"](self, other)

    def __rmul__(self, other: object) -> Any:
        return OPERATOR_SUGAR["multiply"](other, self)

    def __truediv__(self, other: object) -> Any:
        return OPERATOR_SUGAR["divide"](self, other)

    def __rtruediv__(self, other: object) -> Any:
        return OPERATOR_SUGAR["divide"](other, self)

    def __floordiv__(self, other: object) -> Any:
        return OPERATOR_SUGAR["floor_divide"](self, other)

    def __rfloordiv__(self, other: object) -> Any:
        return OPERATOR_SUGAR["floor_divide"](other, self)

    def __mod__(self, other: object) -> Any:
        return OPERATOR_SUGAR["mod"](self, other)

    def __rmod__(self, other: object) -> Any:
        return OPERATOR_SUGAR["mod"](other, self)

    def __pow__(self, other: object) -> Any:
        return OPERATOR_SUGAR["power"](self, other)

    def __rpow__(self, other: object) -> Any:
        return OPERATOR_SUGAR["power"](other, self)

    def __matmul__(self, other: object) -> Any:
        return OPERATOR_SUGAR["matmul"](self, other)

    def __rmatmul__(self, other: object) -> Any:
        return OPERATOR_SUGAR["matmul"](other, self)

    def __lt__(self, other: object) -> Any:
        return OPERATOR_SUGAR["less"](self, other)

    def __le__(self, other: object) -> Any:
        return OPERATOR_SUGAR["less_equal"](self, other)

    def __gt__(self, other: object) -> Any:
        return OPERATOR_SUGAR["greater"](self, other)

    def __ge__(self, other: object) -> Any:
        return OPERATOR_SUGAR["greater_equal"](self, other)
