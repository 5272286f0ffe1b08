"""Evaluating expressions with Python numbers, and making random ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright import ir
from tilewright.ir import Expr, Range, Var


def truncated(a: int, b: int) -> int:
    """The quotient towards zero; a division by zero is zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0


BINARY: dict[type, Any] = {
    ir.Add: lambda a, b: a + b,
    ir.Sub: lambda a, b: a - b,
    ir.Mul: lambda a, b: a * b,
    ir.FloorDiv: lambda a, b: a // b if b else 0,
    ir.FloorMod: lambda a, b: a % b if b else 0,
    ir.Min: min,
    ir.Max: max,
    ir.EQ: lambda a, b: a == b,
    ir.NE: lambda a, b: a != b,
    ir.LT: lambda a, b: a < b,
    ir.LE: lambda a, b: a <= b,
    ir.GT: lambda a, b: a > b,
    ir.GE: lambda a, b: a >= b,
    ir.And: lambda a, b: a and b,
    ir.Or: lambda a, b: a or b,
    ir.Div: lambda a, b: a / b,
}
CALLS: dict[str, Any] = {
    "shift_left": lambda a, b: a << b,
    "shift_right": lambda a, b: a >> b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "abs": abs,
    "truncdiv": truncated,
    "truncmod": lambda a, b: a - b * truncated(a, b) if b else 0,
    "likely": lambda a: a,
}


def evaluate(expr: Expr, env: Mapping[Var, int]) -> Any:
    """The value of an expression."""
    kind = type(expr)
    if kind is Var:
        return env[expr]
    if kind in (ir.IntImm, ir.FloatImm):
        return bool(expr.value) if expr.dtype == "bool" else expr.value
    if kind in BINARY:
        return BINARY[kind](evaluate(expr.a, env), evaluate(expr.b, env))
    if kind is ir.Not:
        return not evaluate(expr.a, env)
    if kind is ir.Cast:
        return evaluate(expr.value, env)
    if kind is ir.Select:
        chosen = expr.true_value if evaluate(expr.condition, env) else expr.false_value
        return evaluate(chosen, env)
    if kind is ir.Broadcast:
        return [evaluate(expr.value, env)] * expr.lanes
    if kind is ir.Ramp:
        base, stride = evaluate(expr.base, env), evaluate(expr.stride, env)
        return [base + stride * lane for lane in range(expr.lanes)]
    if kind is ir.Let:
        return evaluate(expr.body, {**env, expr.var: evaluate(expr.value, env)})
    assert kind is ir.Call, expr
    if expr.op.name == "if_then_else":
        return evaluate(expr.args[1 if evaluate(expr.args[0], env) else 2], env)
    return CALLS[expr.op.name](*(evaluate(arg, env) for arg in expr.args))


class Maker:
    """Makes random integer and boolean expressions over some variables."""

    def __init__(self, seed: int, variables: Sequence[Var]) -> None:
        self.random = random.Random(seed)
        self.variables = list(variables)

    def integer(self, depth: int) -> Expr:
        """A random integer expression."""
        pick = self.random
        if depth == 0 or pick.random() < 0.1:
            if pick.random() < 0.3:
                return ir.const(pick.randint(-8, 16))
            return pick.choice(self.variables)
        kind = pick.choice("+ + - * // // % % min max select ite".split())
        a = self.integer(depth - 1)
        if kind == "*":
            return ir.mul(a, pick.choice([-3, -1, 2, 3, 4, 8, 16]))
        if kind == "//":
            return ir.floordiv(a, pick.choice([2, 3, 4, 6, 8, 16, -2, -3]))
        if kind == "%":
            return ir.floormod(a, pick.choice([2, 3, 4, 6, 8, 16, -4]))
        b = self.integer(depth - 1)
        if kind == "+":
            return a + b
        if kind == "-":
            return a - b
        if kind == "min":
            return ir.minimum(a, b)
        if kind == "max":
            return ir.maximum(a, b)
        condition = self.boolean(depth - 1)
        return (ir.select if kind == "select" else ir.if_then_else)(condition, a, b)

    def boolean(self, depth: int) -> Expr:
        """A random condition."""
        pick = self.random
        if depth > 0 and pick.random() < 0.4:
            a, b = self.boolean(depth - 1), self.boolean(depth - 1)
            return pick.choice([ir.and_, ir.or_, lambda x, _: ir.not_(x)])(a, b)
        kind = pick.choice([ir.EQ, ir.NE, ir.LT, ir.LE, ir.GT, ir.GE])
        depth = max(0, depth - 1)
        return ir.compare(kind, self.integer(depth), self.integer(depth))

    def point(self, ranges: Mapping[Var, tuple[int, int]]) -> dict[Var, int]:
        """Random values inside ranges (inclusive)."""
        return {var: self.random.randint(*ends) for var, ends in ranges.items()}


def rng(extent: Any, minimum: Any = 0) -> Range:
    """The range of a loop."""
    return Range.from_min_extent(minimum, extent)
