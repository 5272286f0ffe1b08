"""Index maps as text, read without running it: ``lambda i, j: (i // 16, AXIS_SEPARATOR, j)``.

This is how traces and databases keep the maps of ``IndexMap``. Names that are no parameters stand
for symbolic extents, which the reader supplies.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import (
    Add,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Sub,
    Var,
    const,
    free_vars,
    maximum,
    minimum,
)
from tilewright.support.errors import ScheduleError, VerifyError

AXIS_SEPARATOR = "axis_separator"
"""Between the results of a map's function: here a new physical axis starts."""

SEPARATOR_NAME = "AXIS_SEPARATOR"

# Nobody writes longer ones, and the parser's time and stack have their bounds.
_LONGEST = 20_000

SYMBOLS: dict[type, tuple[str, int]] = {
    Add: ("+", 1),
    Sub: ("-", 1),
    Mul: ("*", 2),
    FloorDiv: ("//", 2),
    FloorMod: ("%", 2),
}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {"min": minimum, "max": maximum}


def map_text(
    parameters: Sequence[Var], results: Sequence[Expr], separators: Sequence[int] = ()
) -> str:
    """Return a map as a Python lambda."""
    taken = {var.name for expr in results for var in free_vars(expr) if var not in set(parameters)}
    names = _distinct_names(parameters, taken)
    items: list[str] = []
    for axis in range(len(results) + 1):
        items.extend(SEPARATOR_NAME for position in separators if position == axis)
        if axis < len(results):
            items.append(expr_text(results[axis], names))
    inside = ", ".join(items) + ("," if len(items) == 1 else "")
    arguments = ", ".join(names[var] for var in parameters)
    return f"lambda {arguments}: ({inside})" if arguments else f"lambda: ({inside})"


def _distinct_names(variables: Sequence[Var], taken: set[str]) -> dict[Var, str]:
    names: dict[Var, str] = {}
    used = taken | {SEPARATOR_NAME, "min", "max"}
    for position, var in enumerate(variables):
        name = var.name if var.name.isidentifier() else f"i{position}"
        while name in used:
            name = f"{name}_{position}"
        used.add(name)
        names[var] = name
    return names


def expr_text(expr: Expr, names: Mapping[Var, str], level: int = 0) -> str:
    """Render index arithmetic as Python; ``level`` is the binding strength around it.

    Raises ``ScheduleError`` for what is no index arithmetic.
    """
    if isinstance(expr, Var):
        return names.get(expr, expr.name)
    if isinstance(expr, IntImm):
        return str(expr.value) if expr.value >= 0 else f"({expr.value})"
    if isinstance(expr, (Min, Max)):
        return (
            f"{'min' if isinstance(expr, Min) else 'max'}"
            f"({expr_text(expr.a, names)}, {expr_text(expr.b, names)})"
        )
    found = SYMBOLS.get(type(expr))
    if found is None:
        raise ScheduleError(f"an index map holds + - * // % min max of integers only, not {expr!r}")
    symbol, strength = found
    text = (
        f"{expr_text(expr.a, names, strength)} {symbol} "  # type: ignore[attr-defined]
        f"{expr_text(expr.b, names, strength + 1)}"  # type: ignore[attr-defined]
    )
    return f"({text})" if strength < level else text


def parse_map(
    text: str, symbols: Mapping[str, Var] | None = None
) -> tuple[tuple[Var, ...], tuple[Expr, ...], tuple[int, ...]]:
    """Read what ``map_text`` gives, by its syntax tree, so that text from a stranger is harmless.

    Returns parameters, results and axis separators; ``symbols`` says what other names stand for.

    Raises ``ScheduleError`` for anything else.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ScheduleError(f"an index map is text of up to {_LONGEST} characters")
    return _MapReader(text, symbols or {}).map()


class _MapReader:
    """Reads a map from its syntax tree."""

    def __init__(self, text: str, symbols: Mapping[str, Var]) -> None:
        self.text = text
        self.tree = self._lambda()
        arguments = self.tree.args
        self.parameters = {
            item.arg: Var(item.arg) for item in (*arguments.posonlyargs, *arguments.args)
        }
        self.known = {**symbols, **self.parameters}

    def fail(self, reason: str) -> ScheduleError:
        return ScheduleError(f"{self.text!r} is not an index map: {reason}")

    def map(self) -> tuple[tuple[Var, ...], tuple[Expr, ...], tuple[int, ...]]:
        body = self.tree.body
        results: list[Expr] = []
        separators: list[int] = []
        for item in body.elts if isinstance(body, (ast.Tuple, ast.List)) else [body]:
            if isinstance(item, ast.Name) and item.id == SEPARATOR_NAME:
                separators.append(len(results))
                continue
            try:
                results.append(self.read(item))
            except RecursionError:
                raise self.fail("it is nested too deeply") from None
            except (ArithmeticError, VerifyError) as error:  # division by zero, a large number
                raise self.fail(str(error)) from error
        return tuple(self.parameters.values()), tuple(results), tuple(separators)

    def _lambda(self) -> ast.Lambda:
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self.fail(f"syntax error, {getattr(error, 'msg', error)}") from error
        if not isinstance(tree, ast.Lambda):
            raise self.fail("expected `lambda i, j: (…)`")
        arguments = tree.args
        if arguments.vararg or arguments.kwonlyargs or arguments.kwarg or arguments.defaults:
            raise self.fail("only parameters without defaults are allowed")
        return tree

    def read(self, item: ast.expr) -> Any:
        """Read index arithmetic."""
        if isinstance(item, ast.Constant) and type(item.value) is int:
            return const(item.value)
        if isinstance(item, ast.Name):
            if item.id not in self.known:
                raise self.fail(f"unknown name {item.id}")
            return self.known[item.id]
        if isinstance(item, ast.BinOp) and type(item.op) in _OPERATORS:
            return _OPERATORS[type(item.op)](self.read(item.left), self.read(item.right))
        if isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.USub):
            return -self.read(item.operand)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and not item.keywords:
            make = _FUNCTIONS.get(item.func.id)
            if make is not None and len(item.args) == 2:
                return make(self.read(item.args[0]), self.read(item.args[1]))
        raise self.fail(f"`{ast.unparse(item)}` is not index arithmetic")
