"""What constructors of expressions check: constants that fit, dtypes that are known.

Checks that look at one node and its dtypes only, so that they cost little; ``tir.analysis.verify``
looks at whole programs.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

from tilewright.ir.dtype import integer_limits, kind_of, lanes_of, split_dtype, vector_dtype
from tilewright.support.errors import VerifyError


def check_int_constant(value: Any, dtype: Any) -> None:
    """Refuse what is no integer, and one that doesn't fit its dtype."""
    try:
        number = operator.index(value)
    except TypeError:
        raise VerifyError(f"an IntImm holds an integer, got {value!r}") from None
    low, high = _limits(_known(dtype))
    if not low <= number <= high:
        raise VerifyError(f"the constant {number} does not fit {dtype} ({low} .. {high})")


def _known(dtype: Any) -> str:
    if not isinstance(dtype, str):
        raise VerifyError(f"a dtype is text such as 'float32', got {dtype!r}")
    split_dtype(dtype)
    return dtype


@cache
def _limits(dtype: str) -> tuple[int, int]:
    kind = kind_of(dtype)
    if kind in ("float", "void") or lanes_of(dtype) != 1:
        raise VerifyError(f"an IntImm is of an integer dtype, bool or handle, got {dtype!r}")
    return (0, 2**64 - 1) if kind == "handle" else integer_limits(dtype)


def float_constant(value: Any) -> float:
    """Return a number as a float; refuses what is none."""
    if isinstance(value, str):
        raise VerifyError(f"a FloatImm holds a number, got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise VerifyError(f"a FloatImm holds a number, got {value!r}") from None


@cache
def _check_cast(source: str, dtype: str) -> None:
    lanes, given = lanes_of(dtype), lanes_of(source)
    if "void" in (kind_of(dtype), kind_of(source)):
        raise VerifyError(f"a Cast converts values, not {source} into {dtype}")
    if lanes != given:
        raise VerifyError(f"a Cast keeps the number of lanes, got {source} into {dtype}")


def check_cast(source: str, dtype: Any) -> None:
    """Refuse a conversion to no dtype, or into another number of lanes."""
    _check_cast(source, _known(dtype))


def lanes_dtype(dtype: str, lanes: Any) -> str:
    """Return the dtype of a vector; refuses lanes that are no positive number."""
    if type(lanes) is not int or lanes < 1:
        raise VerifyError(f"lanes must be a positive number, got {lanes!r}")
    return vector_dtype(dtype, lanes)
