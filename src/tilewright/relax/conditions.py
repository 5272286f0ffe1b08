"""Conditions on sizes that inference needs but can't prove: checked when the graph is called.

``matmul`` of ``(3, 4)`` by ``(k, 6)`` is right if ``k`` is 4. Rules of inference state what they
need with :func:`require`: what is proven costs nothing, what is proven wrong is refused at once,
and what depends on sizes that aren't known yet stays with the call as its ``conditions``.
``CheckShapes`` makes assertions of them, which run before the first kernel does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from tilewright.arith import simplify
from tilewright.ir import Expr, ExprLike, as_expr, as_int
from tilewright.support.errors import TilewrightError

Parts = tuple[str | Expr, ...]


class InferenceError(TilewrightError):
    """Says inside an inference rule what is wrong; users see a ``VerifyError`` with the call."""


@dataclass(frozen=True)
class Condition:
    """A condition on symbolic extents, and what to say where it does not hold."""

    expr: Expr
    parts: Parts

    def of(self, name: str) -> Condition:
        """The condition of an operator, whose name its message begins with."""
        return Condition(self.expr, (f"{name}: ", *self.parts))

    @property
    def message(self) -> str:
        """The message, with ``{}`` where a value belongs that is known when the graph is called."""
        return "".join(
            part
            if isinstance(part, str)
            else repr(part)
            if as_int(part) is not None
            else f"{part!r} = {{}}"
            for part in self.parts
        )

    @property
    def values(self) -> tuple[Expr, ...]:
        """What stands for each ``{}``."""
        return tuple(part for part in self.parts if isinstance(part, Expr) and as_int(part) is None)


_pending: ContextVar[list[Condition] | None] = ContextVar("conditions", default=None)

_Result = TypeVar("_Result")


def collect_conditions(infer: Callable[[], _Result]) -> tuple[_Result, tuple[Condition, ...]]:
    """Run an inference; return its result, and what it needs but couldn't prove."""
    found: list[Condition] = []
    token = _pending.set(found)
    try:
        return infer(), tuple(found)
    finally:
        _pending.reset(token)


def require(condition: ExprLike, *parts: str | Expr) -> None:
    """State what must hold; ``parts`` are the words and extents that say why it does not."""
    made = simplify(as_expr(condition))
    value = as_int(made)
    if value is None:
        found = _pending.get()
        if found is not None:
            found.append(Condition(made, parts))
    elif not value:
        raise InferenceError("".join(p if isinstance(p, str) else repr(p) for p in parts))


def require_equal(what: str, a: ExprLike, b: ExprLike) -> None:
    """State that two extents are equal."""
    x, y = as_expr(a), as_expr(b)
    if x is not y and (as_int(x) is None or as_int(x) != as_int(y)):
        require(x == y, f"{what}: ", x, " against ", y)
