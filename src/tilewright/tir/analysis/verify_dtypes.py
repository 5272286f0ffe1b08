"""Which dtypes the parts of an expression must have: a rule per kind of node, for ``verify``.

Functions that build expressions (``ir.expr_operators``) convert or refuse; nodes that passes and
users put together themselves are checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Sub,
    Var,
    dtypes,
    wrong_operand,
)


def wrong_dtypes(expr: Expr) -> str | None:
    """Say what is wrong with the dtypes of an expression's own operands, if anything is."""
    rule = _RULES.get(type(expr))
    return None if rule is None else rule(expr)


def _alike(expr: Any) -> str | None:
    if expr.a.dtype == expr.b.dtype:
        return None
    return f"the operands of `{expr.symbol}` are {expr.a.dtype} and {expr.b.dtype}"


def _sum(expr: Any) -> str | None:
    if dtypes.is_bool(dtypes.element_of(expr.a.dtype)):
        return f"`{expr.symbol}` is of numbers, not of {expr.a.dtype}"
    return _alike(expr)


def _truth_values(expr: Any) -> str | None:
    if dtypes.is_bool(expr.a.dtype) and dtypes.is_bool(expr.b.dtype):
        return _alike(expr)
    return f"`{expr.symbol}` joins truth values, not {expr.a.dtype} and {expr.b.dtype}"


def _denied(expr: Not) -> str | None:
    return None if dtypes.is_bool(expr.a.dtype) else f"`not` denies bool, not {expr.a.dtype}"


def _choice(condition: Expr, a: Expr, b: Expr) -> str | None:
    if not dtypes.is_bool(condition.dtype):
        return f"a condition must be bool, this one is {condition.dtype}"
    if a.dtype != b.dtype:
        return f"a choice is between values of one dtype, these are {a.dtype} and {b.dtype}"
    lanes = dtypes.lanes_of(condition.dtype)
    if lanes not in (1, dtypes.lanes_of(a.dtype)):
        return f"a condition of {lanes} lanes chooses between values of {a.dtype}"
    return None


def _selection(expr: Select) -> str | None:
    return _choice(expr.condition, expr.true_value, expr.false_value)


def _call(expr: Call) -> str | None:
    if expr.op.arity not in (None, len(expr.args)):
        return f"{expr.op.name} takes {expr.op.arity} arguments, got {len(expr.args)}"
    if expr.op.name == "if_then_else":
        return _choice(*expr.args)
    return wrong_operand(expr.op, expr.args)


def _let(expr: Let) -> str | None:
    return bound_to(expr.var, expr.value)


def bound_to(var: Var, value: Expr) -> str | None:
    """Say what is wrong if a variable stands for a value of another dtype."""
    if var.dtype == value.dtype:
        return None
    return f"variable {var.name!r} is {var.dtype}, its value {value.dtype}"


def _ramp(expr: Ramp) -> str | None:
    if expr.base.dtype == expr.stride.dtype:
        return None
    return f"a ramp begins with {expr.base.dtype} and steps by {expr.stride.dtype}"


_RULES: dict[type, Callable[[Any], str | None]] = {
    **dict.fromkeys((Add, Sub), _sum),
    **dict.fromkeys((Mul, Div, FloorDiv, FloorMod, Min, Max), _alike),
    **dict.fromkeys((EQ, NE, LT, LE, GT, GE), _alike),
    **dict.fromkeys((And, Or), _truth_values),
    Not: _denied,
    Select: _selection,
    Call: _call,
    Let: _let,
    Ramp: _ramp,
}
