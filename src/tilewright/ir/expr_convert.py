"""Conversion of numbers to expressions, and of expressions from one dtype to another.

``const`` and ``as_expr`` make constants, ``cast`` converts, ``match_types`` brings the operands of
an operator to one dtype, and ``is_const``, ``const_value`` and ``as_int`` inspect constants.
"""

from __future__ import annotations

import math
import struct
import sys

import numpy as np

from tilewright.ir.dtype import (
    INDEX,
    ScalableLanes,
    bits_of,
    element_of,
    integer_limits,
    is_bool,
    is_float,
    is_integer,
    kind_of,
    lanes_of,
    split_dtype,
    vector_dtype,
)
from tilewright.ir.expr import (
    BUILD,
    Cast,
    Expr,
    ExprLike,
    FloatImm,
    IntImm,
    StringImm,
    builds,
)
from tilewright.ir.expr_checks import float_constant
from tilewright.ir.float_formats import FLOAT_FORMATS, IEEE
from tilewright.ir.vector_expr import Broadcast
from tilewright.support.errors import VerifyError

# ---- constants ------------------------------------------------------------------------------

# Most constants are small indices: one node stands for each of these.
_MOST_INDEX = integer_limits(INDEX)[1]
_SMALL = {value: IntImm(INDEX, value) for value in range(-16, 1025)}
TRUE = IntImm("bool", 1)
FALSE = IntImm("bool", 0)


def small_index(value: int) -> IntImm:
    """An index constant; the same node each time if it is small."""
    found = _SMALL.get(value)
    return IntImm(INDEX, value) if found is None else found


def const(value: ExprLike, dtype: str | None = None) -> Expr:
    """Make a constant; without ``dtype``: int64, float32 or bool by the Python type, or NumPy's.

    A vector dtype gives a ``Broadcast``.

    Raises ``VerifyError`` if the number isn't one of the dtype.
    """
    if type(value) is int and (dtype is None or dtype == INDEX):
        return small_index(value)
    if isinstance(value, Expr):
        return value if dtype is None else cast(value, dtype)
    if dtype is None:
        if isinstance(value, bool):
            return TRUE if value else FALSE
        if isinstance(value, int):
            return small_index(value)
        # NumPy's scalars have a dtype of their own, float64 too, though it is a Python float.
        dtype = str(value.dtype) if hasattr(value, "dtype") else "float32"
    element, lanes = split_dtype(dtype)
    if lanes > 1:
        return Broadcast(const(value, element), lanes)
    if is_float(element):
        return FloatImm(
            element, _nearest(value, element) if isinstance(value, int) else float(value)
        )
    if is_bool(element):
        if value not in (0, 1):
            raise VerifyError(f"the constant {value!r} is no bool; 0 and 1 are, False and True")
        return TRUE if value else FALSE
    if not isinstance(value, int) and not float(value).is_integer():
        raise VerifyError(f"the constant {value!r} is no integer, so no {element}")
    value = int(value)
    if element == INDEX:
        return small_index(value)
    low, high = integer_limits(element)
    if not low <= value <= high:
        raise VerifyError(f"the constant {value} does not fit {element} ({low} .. {high})")
    return IntImm(element, value)


@builds
def as_expr(value: object, dtype: str | None = None) -> Expr:
    """Turn a Python or NumPy number (or anything with ``as_expr``) into an expression.

    Raises ``VerifyError`` for anything else.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float)):
        return const(value, dtype)
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, ScalableLanes):
        return BUILD.lane_count(value)  # type: ignore[arg-type]  # they stand for a number
    if hasattr(value, "as_expr"):
        made: Expr = value.as_expr()
        return made
    if hasattr(value, "item") and hasattr(value, "dtype"):  # NumPy scalars
        return const(value.item(), dtype or str(value.dtype))
    raise VerifyError(f"expected an expression or a number, got {type(value).__name__}: {value!r}")


def is_const(expr: object, value: float | None = None) -> bool:
    """Whether ``expr`` is a numeric constant (equal to ``value`` if given)."""
    return isinstance(expr, (IntImm, FloatImm)) and (value is None or expr.value == value)


def const_value(expr: object) -> int | float | None:
    """Return the Python number of a constant, else ``None``."""
    return expr.value if isinstance(expr, (IntImm, FloatImm)) else None


def as_int(expr: object) -> int | None:
    """Return the Python int of an integer constant, else ``None``."""
    if isinstance(expr, IntImm):
        return expr.value
    return int(expr) if isinstance(expr, int) else None


def min_value(dtype: str) -> Expr:
    """The least number of a dtype: finite, also for floats with infinities."""
    if is_float(dtype):
        return FloatImm(dtype, _float_limits(dtype)[0])
    return const(integer_limits(dtype)[0], dtype)


def max_value(dtype: str) -> Expr:
    """The greatest number of a dtype: finite, also for floats with infinities."""
    if is_float(dtype):
        return FloatImm(dtype, _float_limits(dtype)[1])
    return const(integer_limits(dtype)[1], dtype)


_WIDE_FLOATS = {
    "float16": 65504.0,
    "bfloat16": 2.0**127 * (2 - 2.0**-7),
    "float32": 2.0**127 * (2 - 2.0**-23),
    "float64": sys.float_info.max,
}


def _float_limits(dtype: str) -> tuple[float, float]:
    wide = _WIDE_FLOATS.get(element_of(dtype))
    if wide is not None:
        return -wide, wide
    form = FLOAT_FORMATS[element_of(dtype)]
    return form.least, form.greatest


def least_of(dtype: str) -> Expr:
    """What is not above any value of a dtype: minus infinity where there is one."""
    return FloatImm(dtype, -math.inf) if _has_infinity(dtype) else min_value(dtype)


def greatest_of(dtype: str) -> Expr:
    """What is not below any value of a dtype: infinity where there is one."""
    return FloatImm(dtype, math.inf) if _has_infinity(dtype) else max_value(dtype)


def _has_infinity(dtype: str) -> bool:
    form = FLOAT_FORMATS.get(dtype)
    return is_float(dtype) and (form is None or form.special == IEEE)


# ---- dtypes ---------------------------------------------------------------------------------


@builds
def cast(value: ExprLike, dtype: str) -> Expr:
    """Convert to ``dtype``; a value that already has it is returned unchanged."""
    beyond = type(value) is int and value > _MOST_INDEX
    value = as_expr(value, "uint64" if beyond else None)
    if value.dtype == dtype:
        return value
    if lanes_of(dtype) > 1 and lanes_of(value.dtype) == 1:
        return Broadcast(cast(value, element_of(dtype)), lanes_of(dtype))
    if isinstance(value, IntImm):
        if is_float(dtype):
            return FloatImm(dtype, _nearest(value.value, dtype))
        if is_bool(dtype):
            return TRUE if value.value else FALSE
        low, high = integer_limits(dtype)
        if low <= value.value <= high:
            return const(value.value, dtype)
    elif isinstance(value, FloatImm) and is_float(dtype):
        known = rounded(value.value, value.dtype)
        if known is not None:
            return FloatImm(dtype, known)
    return Cast(dtype, value)


def _nearest(value: int, dtype: str) -> float:
    """The number of a float dtype nearest to an integer, as compiled code converts it.

    ``float32`` is rounded to its 24 bits here: a Python float would keep 53 bits and be rounded
    twice.
    """
    surplus = value.bit_length() - 24
    if surplus > 53 - 24 and dtype != "float64":
        half = (1 << surplus - 1) - 1 + (value >> surplus & 1)
        value = value + half >> surplus << surplus
    return float_constant(value)


def rounded(value: object, dtype: str) -> float | None:
    """The value that a constant of a float dtype has in memory, ``None`` if not known here."""
    code = {"float64": "<d", "float32": "<f", "float16": "<e"}.get(dtype)
    if code is None and isinstance(value, (int, float)):
        return _as_small(float(value), dtype) if dtype in FLOAT_FORMATS else None
    try:
        return None if code is None else float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return None


def _as_small(value: float, dtype: str) -> float:
    """A number in a format of ``ml_dtypes``: 0 and -1 are NaN in ``float8_e8m0fnu``."""
    import ml_dtypes  # takes as long to import as all of `ir`, and few programs have these formats

    with np.errstate(all="ignore"):
        return float(np.float64(value).astype(getattr(ml_dtypes, dtype)))


def value_in_memory(expr: IntImm | FloatImm) -> int | float | None:
    """The number that a constant is in computations, ``None`` if not known here."""
    return expr.value if isinstance(expr, IntImm) else rounded(expr.value, expr.dtype)


_KINDS = {"bool": 0, "uint": 1, "int": 1, "float": 2, "handle": 3, "void": 4}


def _rank(dtype: str) -> tuple[int, int, int]:
    """The rank of a dtype in promotion: the higher one wins.

    Floats are above integers; of these the wider wins, of equal width the one without a sign.
    """
    kind = kind_of(dtype)
    return _KINDS[kind], bits_of(dtype), int(kind == "uint")


def match_types(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    """Promote two operands to one dtype: numbers follow expressions, then the wider type wins.

    Raises ``VerifyError`` if the numbers of lanes differ.
    """
    # Index arithmetic first: most of it is between expressions of one type, or with a number.
    if type(b) is int:
        if isinstance(a, Expr) and a.dtype == INDEX:
            return a, small_index(b)
    elif type(a) is int:
        if isinstance(b, Expr) and b.dtype == INDEX:
            return small_index(a), b
    elif isinstance(a, Expr) and isinstance(b, Expr) and a.dtype == b.dtype:
        return a, b
    if not isinstance(a, Expr):
        a = _literal(a, b) if isinstance(b, Expr) else as_expr(a)
    if not isinstance(b, Expr):
        b = _literal(b, a)
    if a.dtype == b.dtype:
        return a, b
    lanes_a, lanes_b = lanes_of(a.dtype), lanes_of(b.dtype)
    if lanes_a != lanes_b:
        if lanes_a == 1:
            return match_types(Broadcast(a, lanes_b), b)
        if lanes_b == 1:
            return match_types(a, Broadcast(b, lanes_a))
        raise VerifyError(f"cannot combine {a.dtype} with {b.dtype}: the numbers of lanes differ")
    # A constant takes the other's dtype when it loses nothing by it: a wider one only if nobody
    # said what it is, for `x + T.int32(1)` asks for 32 bits.
    for first, second, swap in ((a, b, False), (b, a, True)):
        if (
            isinstance(first, IntImm)
            and is_integer(element_of(second.dtype))
            and (first.dtype == INDEX or bits_of(first.dtype) <= bits_of(second.dtype))
        ):
            low, high = integer_limits(element_of(second.dtype))
            if low <= first.value <= high:
                made = const(first.value, second.dtype)
                return (second, made) if swap else (made, second)
    if _rank(a.dtype) < _rank(b.dtype):
        return cast(a, b.dtype), b
    return a, cast(b, a.dtype)


def _literal(value: object, like: Expr) -> Expr:
    """Give a Python number the dtype of the expression it meets; floats never become integers."""
    if isinstance(value, float) and not is_float(element_of(like.dtype)):
        return const(value, vector_dtype("float32", lanes_of(like.dtype)))
    if is_bool(element_of(like.dtype)) and not isinstance(value, bool):
        return as_expr(value)
    if isinstance(value, (bool, int, float)):
        return const(value, like.dtype)
    return as_expr(value)
