"""Numbers that may depend on tile sizes: exact constants, or NumPy text over a decision matrix.

A ``Num`` is a Python number, or Python source over ``v``, the columns of a decision matrix.
Extents and strides of a program that was scheduled with symbolic tiles become such source;
``compiled`` turns many of them into one function over whole populations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from tilewright.ir import (
    Add,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Sub,
    Var,
)
from tilewright.support.errors import TuneError

Num = Union[int, float, str]
Columns = Callable[[Any], list[Any]]


def num_add(a: Num, b: Num) -> Num:
    """``a + b``."""
    if isinstance(a, str) or isinstance(b, str):
        if a == 0:
            return b
        return a if b == 0 else f"({a}+{b})"
    return a + b


def num_sub(a: Num, b: Num) -> Num:
    """``a - b``."""
    if isinstance(a, str) or isinstance(b, str):
        return a if b == 0 else f"({a}-{b})"
    return a - b


def num_mul(a: Num, b: Num) -> Num:
    """``a * b``."""
    if isinstance(a, str) or isinstance(b, str):
        if a == 0 or b == 0:
            return 0
        if a == 1:
            return b
        return a if b == 1 else f"({a}*{b})"
    return a * b


def num_div(a: Num, b: Num) -> Num:
    """``a / b``, not rounded."""
    if isinstance(a, str) or isinstance(b, str):
        return a if b == 1 else f"({a}/{b})"
    return a / b


def _floor_div(a: Num, b: Num) -> Num:
    if isinstance(a, str) or isinstance(b, str):
        return a if b == 1 else f"({a}//{b})"
    return a // b


def _floor_mod(a: Num, b: Num) -> Num:
    return f"({a}%{b})" if isinstance(a, str) or isinstance(b, str) else a % b


def _minimum(a: Num, b: Num) -> Num:
    if isinstance(a, str) or isinstance(b, str):
        return f"minimum({a},{b})"
    return min(a, b)


def _maximum(a: Num, b: Num) -> Num:
    if isinstance(a, str) or isinstance(b, str):
        return f"maximum({a},{b})"
    return max(a, b)


_BINARY: dict[type, Callable[[Num, Num], Num]] = {
    Add: num_add,
    Sub: num_sub,
    Mul: num_mul,
    FloorDiv: _floor_div,
    FloorMod: _floor_mod,
    Min: _minimum,
    Max: _maximum,
}


def to_num(expr: Expr, tiles: Mapping[Var, Num]) -> Num:
    """Turn a scalar expression of tile variables into a number; ``TuneError`` if it has others."""
    kind = type(expr)
    if kind is IntImm:
        return int(expr.value)  # type: ignore[attr-defined]
    if kind is Var:
        found = tiles.get(expr)  # type: ignore[call-overload]
        if found is None:
            raise TuneError(f"{expr!r} is not known before the program runs")
        return found  # type: ignore[no-any-return]
    if kind is Cast:
        return to_num(expr.value, tiles)  # type: ignore[attr-defined]
    function = _BINARY.get(kind)
    if function is None:
        raise TuneError(f"{expr!r} is no arithmetic of tile sizes")
    return function(to_num(expr.a, tiles), to_num(expr.b, tiles))  # type: ignore[attr-defined]


def compiled(numbers: Sequence[Num]) -> Columns:
    """Return a function that evaluates all numbers on ``v`` (columns as float arrays)."""
    texts = [item if isinstance(item, str) else repr(float(item)) for item in numbers]
    scope: dict[str, Any] = {"minimum": np.minimum, "maximum": np.maximum}
    exec("def evaluate(v):\n    return [" + ", ".join(texts) + "]\n", scope)
    evaluate: Columns = scope["evaluate"]
    return evaluate


class Pool:
    """Numbers by position, without duplicates."""

    def __init__(self) -> None:
        self.numbers: list[Num] = []
        self._known: dict[Num, int] = {}

    def add(self, number: Num) -> int:
        """Return the position of a number."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = len(self.numbers)
            self.numbers.append(number)
        return found
