"""How much work an expression is."""

from __future__ import annotations

import math

from tilewright.arith import (
    truncation,
)
from tilewright.ir import (
    Call,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Node,
    Var,
)

WEIGHT: dict[type, int] = {Var: 0, IntImm: 0, FloatImm: 0, FloorDiv: 4, FloorMod: 4, Min: 2, Max: 2}
"""Classes whose work differs from 1."""


def cost(expr: Node, enough: float = math.inf) -> int:
    """A measure of how much work an expression is; the simplifier never makes it grow.

    From ``enough`` on, it is not looked for more.
    """
    total = 0
    stack = [expr]
    while stack and total < enough:
        item = stack.pop()
        weight = WEIGHT.get(type(item), 1)
        if weight == 1 and type(item) is Call and item.op.name in truncation.NAMES:
            weight = WEIGHT[FloorDiv]
        if weight:
            total += weight
            stack.extend(item.child_nodes())
    return total


def dearer(made: Expr, expr: Expr) -> bool:
    """Whether what was made of an expression is more work."""
    least = cost(made)
    return least > cost(expr, least)
