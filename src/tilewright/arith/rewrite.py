"""Rule tables: ``(pattern, result, condition)`` over expressions.

A pattern is an ordinary expression over *wildcards*: variables made by :func:`wild` match any
expression, those made by :func:`wild_const` match constants. A wildcard that appears twice must
match the same expression. The result is an expression over the same wildcards, or a function of
the match. The condition sees the match and the analyzer. Each operator family has its table in
``rules_<family>.py``; a table tries its rules in order at the root of an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith.polynomial import same_expr
from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Sub,
    Var,
    add,
    and_,
    call,
    compare,
    div,
    floordiv,
    floormod,
    if_then_else,
    maximum,
    minimum,
    mul,
    not_,
    or_,
    select,
    sub,
    value_in_memory,
)

WILD: dict[Var, str] = {}
"""All wildcards with what they match: ``"any"`` or ``"const"``."""


def wild(name: str, dtype: str = "int64") -> Var:
    """Make a wildcard that matches any expression."""
    var = Var(name, dtype)
    WILD[var] = "any"
    return var


def wild_const(name: str, dtype: str = "int64") -> Var:
    """Make a wildcard that matches an integer constant."""
    var = Var(name, dtype)
    WILD[var] = "const"
    return var


class Match(dict[str, Any]):
    """What the wildcards matched, by name, also as attributes; constants as Python numbers."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@dataclass(frozen=True)
class Rule:
    """``pattern`` becomes ``result`` where ``condition`` holds."""

    pattern: Any
    result: Any
    condition: Callable[[Match, Any], bool] | None = None


_BUILD: dict[type, Callable[..., Expr]] = {
    Add: add,
    Sub: sub,
    Mul: mul,
    Div: div,
    FloorDiv: floordiv,
    FloorMod: floormod,
    Min: minimum,
    Max: maximum,
    And: and_,
    Or: or_,
    Not: not_,
    Select: select,
    **{kind: (lambda a, b, kind=kind: compare(kind, a, b)) for kind in (EQ, NE, LT, LE, GT, GE)},
}


def operation(kind: type, a: Expr, b: Expr) -> Expr:
    """Build a binary operation, folded where both sides are constants."""
    return _BUILD[kind](a, b)


def match(pattern: Any, expr: Any, found: Match) -> bool:
    """Match at the root; ``found`` is filled as far as the match went."""
    kind = type(pattern)
    if kind is Var:
        wanted = WILD.get(pattern)
        if wanted is None:
            return pattern is expr
        if wanted == "const":
            if type(expr) is not IntImm:
                return False
            expr = expr.value
        if pattern.name in found:
            known = found[pattern.name]
            return known == expr if isinstance(expr, int) else same_expr(known, expr)
        found[pattern.name] = expr
        return True
    if kind is IntImm or kind is FloatImm:
        # Truth values are no numbers: select(p, 1, 0) is not p.
        if (pattern.dtype == "bool") != (getattr(expr, "dtype", None) == "bool"):
            return False
        return type(expr) is kind and repr(pattern.value) == repr(value_in_memory(expr))
    if kind is not type(expr):
        return False
    if kind is Call:
        return pattern.op is expr.op and _match_all(pattern.args, expr.args, found)
    if kind is Ramp:
        return match(pattern.base, expr.base, found) and match(pattern.stride, expr.stride, found)
    if kind is Cast:
        return match(pattern.value, expr.value, found)
    return _match_all(pattern.child_nodes(), expr.child_nodes(), found)


def _match_all(patterns: Sequence[object], exprs: Sequence[object], found: Match) -> bool:
    return len(patterns) == len(exprs) and all(
        match(pattern, expr, found) for pattern, expr in zip(patterns, exprs)
    )


def build(result: Any, found: Match) -> Any:
    """Instantiate a result pattern; constants take the dtype of what they meet."""
    kind = type(result)
    if kind is Var:
        return found[result.name]
    if kind is IntImm:
        return bool(result.value) if result.dtype == "bool" else result.value
    if kind is FloatImm:
        return result.value
    if kind is Call:
        args = [build(arg, found) for arg in result.args]
        return if_then_else(*args) if result.op.name == "if_then_else" else call(result.op, *args)
    return _BUILD[kind](*(build(item, found) for item in result.child_nodes()))


class Table:
    """Rules indexed by the class at the root of their patterns."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._by_root: dict[type, list[Rule]] = {}
        for rule in rules:
            self._by_root.setdefault(type(rule.pattern), []).append(rule)

    def apply(self, expr: Expr, analyzer: object) -> Expr | None:
        """Return the first matching rule's result, or ``None``."""
        for rule in self._by_root.get(type(expr), ()):
            found = Match()
            if match(rule.pattern, expr, found) and (
                rule.condition is None or rule.condition(found, analyzer)
            ):
                made = rule.result(found) if callable(rule.result) else build(rule.result, found)
                if not isinstance(made, Expr):
                    made = (IntImm if isinstance(made, (int, bool)) else FloatImm)(expr.dtype, made)
                return made  # type: ignore[no-any-return]
        return None
