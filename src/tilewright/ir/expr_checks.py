"""Checks of expression constructors: constants fit their dtypes, and dtypes are known.

Each check looks only at one node and its dtypes, so it is cheap; ``tir.analysis.verify`` looks at
whole programs.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import cache
from typing import Any

from tilewright.ir.dtype import (
    MAX_LANES,
    ScalableLanes,
    check_dtype,
    integer_limits,
    is_float,
    kind_of,
    lanes_of,
    vector_dtype,
)
from tilewright.ir.op import Op
from tilewright.support.errors import VerifyError

_MOST_ELEMENTS = (1 << 63) - 1


def check_int_constant(value: int, dtype: object) -> None:
    """Refuse anything but an integer that fits its dtype."""
    try:
        number = operator.index(value)
    except TypeError:
        raise VerifyError(f"an IntImm holds an integer, got {value!r}") from None
    check_dtype(dtype)
    low, high = _limits(dtype)
    if not low <= number <= high:
        raise VerifyError(f"the constant {number} does not fit {dtype} ({low} .. {high})")


@cache
def _limits(dtype: str) -> tuple[int, int]:
    kind = kind_of(dtype)
    if kind in ("float", "void") or lanes_of(dtype) != 1:
        raise VerifyError(f"an IntImm is of an integer dtype, bool or handle, got {dtype!r}")
    return (0, 2**64 - 1) if kind == "handle" else integer_limits(dtype)


def check_float_dtype(dtype: object) -> None:
    """Refuse anything but a scalar floating-point dtype."""
    check_dtype(dtype)
    if not is_float(dtype) or lanes_of(dtype) != 1:
        raise VerifyError(f"a FloatImm is of a floating-point dtype, got {dtype!r}")


def float_constant(value: float) -> float:
    """Return a number as a float; refuse anything else."""
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


def check_cast(source: str, dtype: object) -> None:
    """Refuse a conversion to an invalid dtype, or to another number of lanes."""
    check_dtype(dtype)
    _check_cast(source, dtype)


def check_name(name: object, what: str) -> None:
    """Refuse a name that is not a string."""
    if not isinstance(name, str):
        raise VerifyError(f"the name of {what} is text, got {name!r}")


def check_extents(extents: Iterable[object], what: str, name: str = "") -> None:
    """Refuse constant extents that are fractional or negative, or too many elements to count."""
    elements = 1
    for extent in extents:
        value = getattr(extent, "value", 1)
        if type(value) is int:
            if value < 0:
                raise VerifyError(f"{what + name} has the extent {value}, less than nothing")
            elements *= value
        elif type(value) is float:
            raise VerifyError(f"{what + name} has the extent {value}, which is no integer")
    if elements > _MOST_ELEMENTS:
        raise VerifyError(
            f"{what + name} has {elements} elements, more than 64-bit indices can count"
        )


def check_call(op: object, dtype: object) -> None:
    """Refuse a call of an unknown operator, or with an invalid dtype."""
    if type(op) is not Op:
        raise VerifyError(f"a Call names an operator of the table ir.OPS, got {op!r}")
    check_dtype(dtype)


def lanes_dtype(dtype: str, lanes: Any) -> str:
    """Return the dtype of a vector; refuse a number of lanes that is not positive."""
    count = lanes.factor if isinstance(lanes, ScalableLanes) else lanes
    if type(count) is not int or not 0 < count <= MAX_LANES:
        raise VerifyError(
            f"lanes must be a positive number up to {MAX_LANES}, or T.vscale() times one: "
            f"got {lanes!r}"
        )
    return _lanes_dtype(dtype, lanes)


@cache
def _lanes_dtype(dtype: str, lanes: int) -> str:
    if lanes_of(dtype) > 1:
        raise VerifyError(f"the lanes of a vector are single values, got {lanes} of {dtype}")
    return vector_dtype(dtype, lanes)
