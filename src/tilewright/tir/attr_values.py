"""What values the keys of attributes and annotations take: in words, and as tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tilewright.ir import (
    Expr,
    IntImm,
    Node,
    as_int,
    dtypes,
)
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Block


class Annotation(NamedTuple):
    """What values a key takes, in words and as a test of a value on a node."""

    expected: str
    fits: Callable[[object, Node], bool]


MOST = (1 << 31) - 1


def integer(low: int = 0, high: int = MOST) -> Annotation:
    """Describe an integer: a Python one or a constant."""

    def fits(value: object, node: Node) -> bool:
        found = as_int(value)
        return found is not None and low <= found <= high

    span = f"from {low} up" if high == MOST else f"from {low} to {high}"
    return Annotation(f"an integer {span}", fits)


def text() -> Annotation:
    """Describe a text."""
    return Annotation("a text", lambda value, node: isinstance(value, str))


def one_of(*choices: str | int | None) -> Annotation:
    """Describe a value that is one of some."""

    def fits(value: object, node: Node) -> bool:
        return any(type(value) is type(choice) and value == choice for choice in choices)

    return Annotation(" or ".join(map(repr, choices)), fits)


def list_of(item: Annotation, length: int | None = None) -> Annotation:
    """Describe a list of values of one kind."""

    def fits(value: object, node: Node) -> bool:
        return (
            isinstance(value, (list, tuple))
            and length in (None, len(value))
            and all(item.fits(one, node) for one in value)
        )

    what = "a list" if length is None else f"a list of {length}"
    return Annotation(f"{what}, each entry {item.expected}", fits)


def options_of(*optional: str, **fields: Annotation) -> Annotation:
    """Describe a dict of Python values that has just these keys; ``optional`` ones may lack."""
    required = set(fields).difference(optional)

    def fits(value: object, node: Node) -> bool:
        return (
            isinstance(value, Mapping)
            and required <= set(value) <= set(fields)
            and not any(isinstance(item, Expr) for item in value.values())
            and all(field.fits(value[key], node) for key, field in fields.items() if key in value)
        )

    parts = ", ".join(f"{key!r}: {field.expected}" for key, field in fields.items())
    return Annotation(f"a dict of {parts}", fits)


FLAG = Annotation("True or False", integer(0, 1).fits)

INTEGER_DTYPE = one_of(*(name for name in dtypes.ELEMENT_TYPES if dtypes.is_integer(name)))

REAL = Annotation(
    "a number",
    lambda value, node: isinstance(value, float) or (type(value) is int and abs(value) <= MOST),
)

COUNT = integer()


def is_flagged(annotations: Mapping[str, object], key: str) -> bool:
    """Whether a flag is among annotations, and isn't false."""
    return bool(as_int(annotations.get(key)))


def _is_write(value: object, node: Node) -> bool:
    return COUNT.fits(value, node) and isinstance(node, Block) and _at(value) < len(node.writes)


def _is_buffer_param(value: object, node: Node) -> bool:
    return (
        COUNT.fits(value, node)
        and isinstance(node, PrimFunc)
        and _at(value) < len(node.params)
        and node.params[_at(value)] in node.buffer_map
    )


def _at(value: object) -> int:
    found = as_int(value)
    assert found is not None
    return found


def _is_alignment(value: object, node: Node) -> bool:
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        return False
    if not all(isinstance(item, int) and 0 <= item <= MOST for item in value):
        return False
    return bool(value[3] < value[2])


ALIGNMENT = Annotation(
    "a list of write, axis, factor and offset, where 0 <= offset < factor", _is_alignment
)
BUFFER_PARAM = Annotation("the position of a parameter with a buffer", _is_buffer_param)


def _is_sampled(value: object, node: Node) -> bool:
    # While a search is planned, what will be sampled is a variable.
    if isinstance(value, Expr) and not isinstance(value, IntImm):
        return dtypes.is_integer(value.dtype)
    return COUNT.fits(value, node)


def are_constants(value: object, node: Node) -> bool:
    """Whether a value is a dict of tensors by name."""
    return isinstance(value, Mapping) and all(
        isinstance(symbol, str) and hasattr(data, "array") for symbol, data in value.items()
    )


SAMPLED = Annotation(COUNT.expected, _is_sampled)
A_WRITE = Annotation("the position of one of the block's writes", _is_write)
