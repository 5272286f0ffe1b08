"""Attempts to match patterns with values, and what is known of an operand."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from tilewright.relax.expr import (
    RelaxExpr,
    RelaxVar,
)
from tilewright.relax.struct_info import (
    StructInfo,
    prove_equal,
)
from tilewright.support.errors import VerifyError

Bindings = Mapping[RelaxVar, RelaxExpr]
"""Values by the variable that they are bound to, as ``relax.analysis.get_var2val`` gives them."""

COMMUTATIVE = ("add", "multiply")
"""Operators whose operands match in both orders."""


class OpenContexts(threading.local):
    """The contexts that are open in a thread, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[Any] = []

    def current(self) -> Any:
        """The innermost context, or ``None``."""
        return self.stack[-1] if self.stack else None


OPEN_CONTEXTS = OpenContexts()


class Pattern(Protocol):
    """What a pattern offers: to go through the ways in which it matches a value."""

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Go through them; ``matching.found`` holds each while it is looked at."""


class Matching:
    """An attempt to match: the operand that each pattern has matched so far."""

    def __init__(self, var2val: Bindings | None = None) -> None:
        self.values: Bindings = var2val or {}
        self.found: dict[Any, RelaxExpr] = {}

    def source(self, expr: RelaxExpr) -> RelaxExpr:
        """Follow aliases: ``y`` of ``y = x`` is ``x``."""
        while isinstance(expr, RelaxVar) and isinstance(self.values.get(expr), RelaxVar):
            expr = self.values[expr]
        return expr

    def value(self, expr: RelaxExpr) -> RelaxExpr:
        """Follow variables to what they are bound to."""
        while isinstance(expr, RelaxVar) and expr in self.values:
            expr = self.values[expr]
        return expr

    def ways(self, pattern: Pattern, operand: RelaxExpr) -> Iterator[None]:
        """Go through all ways to match; ``found`` holds each while it is looked at."""
        known = self.found.get(pattern)
        if known is not None:
            if self.source(known) is self.source(operand):
                yield
            return
        for _ in pattern.ways(operand, self):
            self.found[pattern] = operand
            yield
            del self.found[pattern]

    def all_ways(
        self, patterns: Sequence[Pattern], operands: Sequence[RelaxExpr]
    ) -> Iterator[None]:
        """Go through all ways to match several operands at once."""
        if not patterns:
            yield
            return
        for _ in self.ways(patterns[0], operands[0]):
            yield from self.all_ways(patterns[1:], operands[1:])

    def matches(self, pattern: Pattern, operand: RelaxExpr) -> bool:
        """Match in the first way there is, which ``found`` then holds."""
        return any(True for _ in self.ways(pattern, operand))


def info_of(operand: RelaxExpr) -> StructInfo | None:
    """What is known of a value; nothing of a callee."""
    return getattr(operand, "struct_info", None)


def has_extents(operand: RelaxExpr, shape: Sequence[Any]) -> bool:
    """Whether a value is known to have a shape of these extents."""
    with suppress(VerifyError, AttributeError):  # no known shape
        found = operand.shape
        return len(found) == len(shape) and all(map(prove_equal, found, shape))
    return False


def as_tuples(value: object) -> object:
    """Lists in a value as tuples: attributes compare equal in either form."""
    return tuple(map(as_tuples, value)) if isinstance(value, (list, tuple)) else value
