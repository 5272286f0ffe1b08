"""What the oracle's text calls: memory, and functions of NumPy scalars."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

Number = int | float | np.number | np.bool_
S = TypeVar("S", int, float, np.number)

_DTYPES: dict[str, np.dtype[Any]] = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a name."""
    return _DTYPES.get(name) or np.dtype(name)


FILLS = (0x6B, 0x15)
"""What memory may be full of before something is written; a defined program doesn't tell."""


def allocate(shape: Sequence[int], dtype: str, fill: int = FILLS[0]) -> np.ndarray[Any, Any]:
    """Return memory full of something; none where an extent is negative."""
    made = np.empty(np.maximum(shape, 0), dtype_of(dtype))
    made.reshape(-1).view(np.uint8).fill(fill & 1 if dtype == "bool" else fill)
    return made


def cast(dtype: str, value: Number) -> np.generic:
    """Convert a scalar: integers wrap, floats round, or become the nearest integer, NaN 0."""
    kind = dtype_of(dtype)
    if kind.kind in "iu":
        if isinstance(value, (int, np.integer, np.bool_)):
            return wrapped(int(value), kind)
        number, limits = float(value), np.iinfo(kind)
        if not np.isfinite(number):
            number = 0.0 if number != number else np.copysign(2.0**100, number)
        value = min(max(int(number), int(limits.min)), int(limits.max))
    made: np.generic = kind.type(value)
    return made


def wrapped(value: int, kind: np.dtype[Any]) -> np.generic:
    """Return the integer of a dtype with the last bits of a number."""
    bits = kind.itemsize * 8
    value &= (1 << bits) - 1
    if kind.kind == "i" and value >> (bits - 1):
        value -= 1 << bits
    made: np.generic = kind.type(value)
    return made


def pointed(memory: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """See memory, from where it is pointed at, as an array of a shape."""
    if memory.shape == tuple(shape):
        return memory
    size = int(np.prod(shape, dtype=np.int64))
    made = memory.reshape(-1)[:size].reshape(shape)
    assert made.size == 0 or np.shares_memory(made, memory)
    return made


def matched(region: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return a region without the leading dimensions that are 1."""
    made = region[(0,) * (region.ndim - len(shape)) + (...,)]
    assert made.shape == tuple(shape), (made.shape, shape)
    return made


def _minimum(a: S, b: S) -> S:
    return b if b < a or b != b else a


def _maximum(a: S, b: S) -> S:
    return b if b > a or b != b else a


def _truncdiv(a: np.integer, b: np.integer) -> np.generic:
    quotient = abs(int(a)) // abs(int(b)) if b else 0
    return wrapped(quotient if (a < 0) == (b < 0) else -quotient, np.result_type(a, b))


def _truncmod(a: np.integer, b: np.integer) -> np.generic:
    rest = abs(int(a)) % abs(int(b)) if b else 0
    return wrapped(rest if a >= 0 else -rest, np.result_type(a, b))


def _limits(dtype: str) -> tuple[np.generic, np.generic]:
    kind = dtype_of(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return kind.type(info.min), kind.type(info.max)
    if kind == np.bool_:
        return np.False_, np.True_
    numbers = ml_dtypes.finfo(kind)
    return kind.type(numbers.min), kind.type(numbers.max)


def _rounded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compute in float64 and round once: NumPy's own float32 functions are off by a unit or two.

    What is cut to a whole number afterwards would differ by one then.
    """
    return lambda x: type(x)(function(np.float64(x)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": _minimum,
    "max": _maximum,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "shift_right": np.right_shift,
    "shift_left": np.left_shift,
    "bitwise_not": lambda a: ~a,
    "min_value": lambda dtype: _limits(dtype)[0],
    "max_value": lambda dtype: _limits(dtype)[1],
    "infinity": lambda dtype: dtype_of(dtype).type(np.inf),
    "abs": abs,
    "fabs": abs,
    "exp": _rounded(np.exp),
    "log": _rounded(np.log),
    "sqrt": _rounded(np.sqrt),
    "rsqrt": _rounded(lambda x: 1 / np.sqrt(x)),
    "tanh": _rounded(np.tanh),
    "sin": _rounded(np.sin),
    "cos": _rounded(np.cos),
    "sigmoid": _rounded(lambda x: 1 / (1 + np.exp(-x))),
    "isnan": lambda x: x != x,
    "isinf": np.isinf,
    "erf": lambda x: type(x)(math.erf(x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "pow": lambda a, b: a**b,
}
"""Functions of the dialect by name; arguments and results are NumPy scalars."""
