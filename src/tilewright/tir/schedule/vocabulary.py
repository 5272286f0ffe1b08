"""Types of primitives' arguments: memories, threads, tails, types, buffers, factors, annotations.

A parameter annotated with one of these names is checked before the primitive runs, also when a
trace from a database is replayed (``instruction.CONVERTERS``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from tilewright.ir import Expr, dtypes
from tilewright.support.errors import TilewrightError
from tilewright.tir.buffer import check_scope
from tilewright.tir.schedule.arguments import CONVERTERS
from tilewright.tir.schedule.handles import ExprRV
from tilewright.tir.stmt import THREAD_TAGS

READ, WRITE = "read", "write"
TAILS = ("predicate", "peel", "pad", "overlap")

StorageScope = str
"""The name of a memory, like ``global``, ``shared.dyn`` or ``wmma.accumulator``."""

ElementType = str
"""The type of one number."""

ThreadAxis = str
"""One of ``THREAD_TAGS``."""

AccessKind = str
"""``READ`` or ``WRITE``."""

Tail = str
"""One of ``TAILS``."""

BufferIndex = int | str
"""A buffer among those that a block reads or writes: its position or name; a ``Buffer`` too."""

Factor = Union[int, ExprRV, Expr, None]
"""A factor of a loop's extent; ``None`` is what the others leave."""

Annotation = Union[int, float, str, bool, list[Any], dict[str, Any], ExprRV, None]
"""The value of an annotation."""


def _word(check: Callable[[str], None]) -> Callable[[Any], str]:
    def convert(value: object) -> str:
        word: str = CONVERTERS["str"](value)
        try:
            check(word)
        except TilewrightError as error:
            raise ValueError(error.message) from None
        return word

    return convert


def _one_of(what: str, words: tuple[str, ...]) -> Callable[[Any], str]:
    def check(word: str) -> None:
        if word not in words:
            raise ValueError(f"unknown {what} {word!r}; known: {', '.join(words)}")

    return _word(check)


def _check_element_type(word: str) -> None:
    try:
        element, lanes = dtypes.split_dtype(word)
    except TilewrightError as error:
        raise ValueError(f"{word!r} is no element type: {error.message}") from None
    if lanes != 1 or element in ("handle", "void"):
        raise ValueError(f"{word!r} is not the type of one number")


CONVERTERS.update(
    {
        "StorageScope": _word(check_scope),
        "ElementType": _word(_check_element_type),
        "ThreadAxis": _one_of("thread axis", THREAD_TAGS),
        "AccessKind": _one_of("kind of access", (READ, WRITE)),
        "Tail": _one_of("tail", TAILS),
    }
)
