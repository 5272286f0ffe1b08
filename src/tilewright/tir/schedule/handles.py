"""Handles: how users of a schedule refer to blocks, loops and values.

A handle holds a key, not a statement: the function's name with the block's name or the loop's
variable. So it stays valid while the program is rewritten around it, and in every copy of the
schedule. Handles compare by identity, because a trace numbers them as results of its instructions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Union

from tilewright.ir import Expr, Var

ROOT = "root"
INLINE = "inline"


class BlockRV:
    """A block, by function and name; one without them is an output of a recorded instruction."""

    __slots__ = ("func", "name")
    prefix = "b"

    def __init__(self, func: str = "", name: str = "") -> None:
        self.func = func
        self.name = name

    def __repr__(self) -> str:
        return f"BlockRV({self.func}.{self.name})"


class LoopRV:
    """A loop, by function and loop variable.

    ``place`` is set on the two results of ``sample_compute_location`` that are not loops:
    ``"root"`` (leave the block where it is) and ``"inline"`` (inline the block).
    """

    __slots__ = ("func", "place", "var")
    prefix = "l"

    def __init__(self, func: str = "", var: Var | None = None, place: str | None = None) -> None:
        self.func = func
        self.var = var
        self.place = place

    @property
    def is_root(self) -> bool:
        """Whether this means "outside all loops"."""
        return self.place == ROOT

    @property
    def is_inline(self) -> bool:
        """Whether this means "inline the block"."""
        return self.place == INLINE

    def __repr__(self) -> str:
        return f"LoopRV({self.func}.{self.place or getattr(self.var, 'name', None)})"


CALCULATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
"""What may be calculated of values, by symbol."""


class _Value:
    """Base of values: arithmetic gives a formula, which the primitive that gets it records."""

    __slots__ = ()

    def __add__(self, other: object) -> Formula:
        return Formula("+", self, other)

    def __radd__(self, other: object) -> Formula:
        return Formula("+", other, self)

    def __sub__(self, other: object) -> Formula:
        return Formula("-", self, other)

    def __rsub__(self, other: object) -> Formula:
        return Formula("-", other, self)

    def __mul__(self, other: object) -> Formula:
        return Formula("*", self, other)

    def __rmul__(self, other: object) -> Formula:
        return Formula("*", other, self)

    def __floordiv__(self, other: object) -> Formula:
        return Formula("//", self, other)

    def __rfloordiv__(self, other: object) -> Formula:
        return Formula("//", other, self)

    def __mod__(self, other: object) -> Formula:
        return Formula("%", self, other)

    def __rmod__(self, other: object) -> Formula:
        return Formula("%", other, self)


class Formula(_Value):
    """A formula of values, no result of an instruction yet: ``a * b`` of two ``ExprRV``s."""

    __slots__ = ("a", "b", "symbol")

    def __init__(self, symbol: str, a: object, b: object) -> None:
        for item in (a, b):
            if not isinstance(item, (int, _Value)) or isinstance(item, bool):
                raise TypeError(f"values are calculated with integers, got {item!r}")
        self.symbol, self.a, self.b = symbol, a, b

    def __int__(self) -> int:
        a: Any = self.a
        b: Any = self.b
        return int(CALCULATIONS[self.symbol](int(a), int(b)))

    __index__ = __int__

    def __repr__(self) -> str:
        return f"({self.a!r} {self.symbol} {self.b!r})"


class ExprRV(_Value):
    """A value that sampling chose: a number, or in symbolic mode an expression.

    Values are calculated with: ``sch.split(loop, [a * b, c])``.
    """

    __slots__ = ("value",)
    prefix = "v"

    def __init__(self, value: int | float | Expr) -> None:
        self.value = value

    def __int__(self) -> int:
        value: Any = getattr(self.value, "value", self.value)
        return int(value)

    def __index__(self) -> int:
        return int(self)

    def __repr__(self) -> str:
        return f"ExprRV({self.value!r})"


RV = Union[BlockRV, LoopRV, ExprRV]
RV_TYPES = (BlockRV, LoopRV, ExprRV)
