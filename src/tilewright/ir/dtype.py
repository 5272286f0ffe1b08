"""Data types of scalars and vectors, as text: ``"float32"``, ``"int8"``, ``"float32x16"``.

A dtype is a string, so it prints, compares and serialises as itself. The element types are listed
in the table below; a suffix ``xN`` makes a vector of ``N`` lanes, and ``xvscalexN`` one of ``N``
lanes times a number that the machine knows (``"float32xvscalex4"``, see ``ScalableLanes``).
``"handle"`` is a pointer and ``"void"`` the type of a call without a result.

The one index dtype is ``int64``: loop variables, extents, shapes and strides are ``int64`` unless a
program says otherwise, so that index arithmetic never mixes widths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from tilewright.ir.float_formats import FLOAT_FORMATS
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches

INDEX = "int64"

MAX_LANES = 999_999

_LANES = re.compile("[1-9][0-9]{0,5}")
_SCALABLE = "xvscale"


@dataclass(frozen=True)
class ElementType:
    """Kind (``int``, ``uint``, ``float``, ``bool``, ``handle``, ``void``) and width in bits."""

    kind: str
    bits: int


ELEMENT_TYPES: dict[str, ElementType] = {
    "bool": ElementType("bool", 8),
    "int4": ElementType("int", 4),
    "int8": ElementType("int", 8),
    "int16": ElementType("int", 16),
    "int32": ElementType("int", 32),
    "int64": ElementType("int", 64),
    "uint4": ElementType("uint", 4),
    "uint8": ElementType("uint", 8),
    "uint16": ElementType("uint", 16),
    "uint32": ElementType("uint", 32),
    "uint64": ElementType("uint", 64),
    **{name: ElementType("float", form.bits) for name, form in FLOAT_FORMATS.items()},
    "float32": ElementType("float", 32),
    "float64": ElementType("float", 64),
    "handle": ElementType("handle", 64),
    "void": ElementType("void", 0),
}


@dataclass(frozen=True)
class ScalableLanes:
    """``factor`` lanes times ``vscale``, which is at least 1 and the same all through a machine.

    It stands where a vector of a fixed length has an ``int``, and compares with numbers as far as
    that doesn't depend on the machine. Whatever would need the number raises ``VerifyError``, so
    that code for fixed lengths never gives a wrong one. Its text is LLVM's.
    """

    factor: int

    def __str__(self) -> str:
        return f"vscale x {self.factor}"

    def __repr__(self) -> str:
        return f"vscale() * {self.factor}"

    def __gt__(self, other: int | ScalableLanes) -> bool:
        if isinstance(other, ScalableLanes):
            return self.factor > other.factor
        return other < self.factor or self._unknown()

    def __ge__(self, other: int | ScalableLanes) -> bool:
        if isinstance(other, ScalableLanes):
            return self.factor >= other.factor
        return other <= self.factor or self._unknown()

    def __lt__(self, other: int | ScalableLanes) -> bool:
        return not self >= other

    def __le__(self, other: int | ScalableLanes) -> bool:
        return not self > other

    def __mul__(self, other: int) -> ScalableLanes:
        return self if other == 1 else self._unknown()

    __rmul__ = __floordiv__ = __mul__

    def __mod__(self, other: int) -> int:
        return 0 if other == 1 else self._unknown()

    def _unknown(self, *_: object) -> NoReturn:
        raise VerifyError(
            f"a vector of {self} lanes is scalable: vscale is known where the code runs, and this "
            "needs a fixed number of lanes"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __neg__ = __index__ = _unknown
    __rfloordiv__ = __rmod__ = __truediv__ = __rtruediv__ = __and__ = __rand__ = _unknown
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _unknown


@cache
def split_dtype(dtype: str) -> tuple[str, int]:
    """Return element type and number of lanes; raise ``VerifyError`` for an unknown dtype.

    Of a scalable vector the lanes are ``ScalableLanes``, which no caller takes for a number.
    """
    if not isinstance(dtype, str):
        raise _no_text(dtype)
    if dtype in ELEMENT_TYPES:
        return dtype, 1
    element, _, count = dtype.rpartition("x")
    scalable = element.endswith(_SCALABLE)
    element = element.removesuffix(_SCALABLE)
    if element in ELEMENT_TYPES and _LANES.fullmatch(count) and int(count) > 1:
        lanes: Any = ScalableLanes(int(count)) if scalable else int(count)
        return element, lanes
    raise VerifyError(f"unknown dtype {dtype!r}; {near_matches(dtype, list(ELEMENT_TYPES))}")


def check_dtype(dtype: object) -> None:
    """Raise an error for anything that is not a dtype."""
    if not isinstance(dtype, str):  # it need not have a hash
        raise _no_text(dtype)
    split_dtype(dtype)


def dtype_text(dtype: object) -> str:
    """Return a dtype as text; what stands for one (``T.float32``) has it as ``stated_dtype``."""
    found = dtype if isinstance(dtype, str) else getattr(dtype, "stated_dtype", dtype)
    check_dtype(found)
    return str(found)


def _no_text(dtype: object) -> VerifyError:
    return VerifyError(f"a dtype is text such as 'float32', got {dtype!r}")


@cache
def element_of(dtype: str) -> str:
    """Return the dtype of one lane."""
    return split_dtype(dtype)[0]


@cache
def lanes_of(dtype: str) -> int:
    """Return the number of lanes."""
    return split_dtype(dtype)[1]


@cache
def kind_of(dtype: str) -> str:
    """Return the element's kind: ``int``, ``uint``, ``float``, ``bool``, ``handle``, ``void``."""
    return ELEMENT_TYPES[split_dtype(dtype)[0]].kind


@cache
def bits_of(dtype: str) -> int:
    """Return the bits of one element in memory."""
    return ELEMENT_TYPES[split_dtype(dtype)[0]].bits


def bytes_of(dtype: str) -> int:
    """Return the bytes of the whole value in memory; 4-bit elements are packed in pairs.

    Raises ``VerifyError`` for a scalable vector.
    """
    element, lanes = split_dtype(dtype)
    return (ELEMENT_TYPES[element].bits * lanes + 7) // 8


@cache
def vector_dtype(element: str, lanes: int) -> str:
    """Return ``element`` with ``lanes`` lanes."""
    if isinstance(lanes, ScalableLanes):
        return f"{element}{_SCALABLE}x{lanes.factor}"
    return element if lanes == 1 else f"{element}x{lanes}"


@cache
def is_scalable(dtype: str) -> bool:
    """Whether the number of lanes is known only where the code runs."""
    return isinstance(split_dtype(dtype)[1], ScalableLanes)


@cache
def is_float(dtype: str) -> bool:
    """Whether the elements are floating-point numbers."""
    return kind_of(dtype) == "float"


@cache
def is_integer(dtype: str) -> bool:
    """Whether the elements are signed or unsigned integers (bool is not)."""
    return kind_of(dtype) in ("int", "uint")


@cache
def is_bool(dtype: str) -> bool:
    """Whether the elements are truth values."""
    return kind_of(dtype) == "bool"


@cache
def integer_limits(dtype: str) -> tuple[int, int]:
    """Return the minimum and maximum value of an integer or bool dtype."""
    kind, bits = kind_of(dtype), bits_of(dtype)
    if kind == "bool":
        return 0, 1
    if kind == "uint":
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
