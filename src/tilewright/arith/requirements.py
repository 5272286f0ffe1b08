"""Conditions on sizes that an operator needs but can't prove: checked when its program is called.

``matmul`` of ``(3, 4)`` by ``(k, 6)`` is right if ``k`` is 4. Operators state what they need with
:func:`holds_or_stays`: what is proven costs nothing, what is proven wrong is refused at once, and
what depends on sizes that aren't known yet stays with what was being made, as its conditions:
``te.create_prim_func`` and ``relax`` make checks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from tilewright.arith.analyzer import simplify
from tilewright.ir import Expr, ExprLike, Var, as_expr, as_int, substitute

Phrases = tuple[str | Expr, ...]


@dataclass(frozen=True)
class Condition:
    """A condition on symbolic extents, and what to say where it does not hold."""

    expr: Expr
    phrases: Phrases

    def of(self, name: str) -> Condition:
        """The condition of an operator, whose name its message begins with."""
        return Condition(self.expr, (f"{name}: ", *self.phrases))

    def substitute(self, mapping: Mapping[Var, Expr]) -> Condition:
        """The condition once some variables are known."""
        if not mapping:
            return self
        phrases = tuple(
            phrase if isinstance(phrase, str) else simplify(substitute(phrase, mapping))
            for phrase in self.phrases
        )
        return Condition(simplify(substitute(self.expr, mapping)), phrases)

    @property
    def text(self) -> str:
        """The message with extents as they are written."""
        return "".join(
            phrase if isinstance(phrase, str) else repr(phrase) for phrase in self.phrases
        )

    @property
    def message(self) -> str:
        """The message, with ``{}`` where a value belongs that is known when the program runs."""
        return "".join(
            phrase
            if isinstance(phrase, str)
            else repr(phrase)
            if as_int(phrase) is not None
            else f"{phrase!r} = {{}}"
            for phrase in self.phrases
        )

    @property
    def values(self) -> tuple[Expr, ...]:
        """What stands for each ``{}``."""
        return tuple(
            phrase for phrase in self.phrases if isinstance(phrase, Expr) and as_int(phrase) is None
        )


_pending: ContextVar[list[Condition] | None] = ContextVar("conditions", default=None)

_Result = TypeVar("_Result")


def collect_conditions(make: Callable[[], _Result]) -> tuple[_Result, tuple[Condition, ...]]:
    """Run what states conditions; return its result, and what it needs but couldn't prove."""
    found: list[Condition] = []
    token = _pending.set(found)
    try:
        return make(), tuple(found)
    finally:
        _pending.reset(token)


def collects_conditions() -> bool:
    """Whether what is being made keeps conditions."""
    return _pending.get() is not None


def holds_or_stays(condition: ExprLike, phrases: Phrases) -> bool:
    """Whether a condition can hold; if that isn't known yet, it stays with what is made."""
    made = simplify(as_expr(condition))
    value = as_int(made)
    if value is not None:
        return bool(value)
    found = _pending.get()
    if found is not None:
        found.append(Condition(made, phrases))
    return True


def same_extent(a: ExprLike, b: ExprLike) -> bool:
    """Whether two extents are obviously equal: the cheap test before a condition is made."""
    x, y = as_expr(a), as_expr(b)
    return x is y or (as_int(x) is not None and as_int(x) == as_int(y))
