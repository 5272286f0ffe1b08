"""The results of integer operations, as Python numbers: their single definition.

Every operation has a result for all operands, the one that NumPy gives; constant folding, the
interpreter and compiled code agree on it:

- Results wrap: they are taken modulo two to the power of the dtype's width.
- ``x // 0``, ``x % 0``, ``truncdiv(x, 0)`` and ``truncmod(x, 0)`` are 0.
- The quotient of the minimum value by -1 is the minimum value again, the remainder 0.
- ``shift_left`` and ``shift_right`` by the width or more, or by a negative number, move all bits
  out: zeros remain, or ones if a negative number is shifted right.
- A float outside the dtype's range saturates, NaN becomes 0 (NumPy leaves these undefined).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.ir.dtype import bits_of, integer_limits


def wrap_integer(value: int, dtype: str) -> int:
    """The number of an integer dtype that has the low bits of ``value``."""
    low, high = integer_limits(dtype)
    return value if low <= value <= high else (value - low) % (high - low + 1) + low


def floor_quotient(a: int, b: int) -> int:
    """``a // b``, not wrapped."""
    return a // b if b else 0


def floor_remainder(a: int, b: int) -> int:
    """``a % b``."""
    return a % b if b else 0


def trunc_quotient(a: int, b: int) -> int:
    """``truncdiv(a, b)``, not wrapped."""
    if not b:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def trunc_remainder(a: int, b: int) -> int:
    """``truncmod(a, b)``."""
    return a - trunc_quotient(a, b) * b if b else 0


def shifted_left(a: int, by: int, dtype: str) -> int:
    """``shift_left(a, by)``, wrapped."""
    return wrap_integer(a << by, dtype) if 0 <= by < bits_of(dtype) else 0


def shifted_right(a: int, by: int, dtype: str) -> int:
    """``shift_right(a, by)``."""
    return a >> (by if 0 <= by < bits_of(dtype) else bits_of(dtype))


def whole_number(value: float, dtype: str) -> int:
    """Convert a float to an integer dtype."""
    low, high = integer_limits(dtype)
    if value != value:
        return 0
    if math.isinf(value):
        return low if value < 0 else high
    return min(max(math.trunc(value), low), high)


INTEGER_CALLS: dict[str, Callable[[int, int, str], int]] = {
    "truncdiv": lambda a, b, dtype: wrap_integer(trunc_quotient(a, b), dtype),
    "truncmod": lambda a, b, dtype: trunc_remainder(a, b),
    "shift_left": shifted_left,
    "shift_right": shifted_right,
    "bitwise_and": lambda a, b, dtype: a & b,
    "bitwise_or": lambda a, b, dtype: a | b,
    "bitwise_xor": lambda a, b, dtype: a ^ b,
}
"""What calls of two integers of a dtype give."""
