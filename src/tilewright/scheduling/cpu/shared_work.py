"""Arithmetic that results share: forces along three axes need the same distance.

No operand is reused along such an axis, but a part of the formula is: computed once for several
results, it costs each of them less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Call, Div, Expr, Node, Var, expr_equal, uses_var
from tilewright.scheduling.blocks import EXPENSIVE, Axis
from tilewright.target import Costs
from tilewright.tir import BufferLoad

# Results that share arithmetic are worth computing together from this speed-up on.
_LEAST_GAIN = 1.25
# Larger formulas aren't looked through.
_MOST_NODES = 1 << 10


@dataclass(frozen=True)
class Sharing:
    """The axis along which results share most of a formula of so many operations."""

    axis: Axis
    operations: int


def sharing_of(
    formula: Expr, places: Sequence[Axis], vector: Axis, most: int, costs: Costs
) -> Sharing | None:
    """Return along which of some axes results share arithmetic; ``None`` if little is shared.

    At most ``most`` of them are computed together, in vectors along another axis.
    """
    parts = _operations(formula, vector)
    if parts is None:
        return None
    best, gained = None, _LEAST_GAIN
    whole = sum(_cost(part, costs) for part in parts)
    for axis in places:
        if axis is vector:
            continue
        rows = min(axis.extent or most, most)
        own = sum(_cost(part, costs) for part in parts if uses_var(part, {axis.var}))
        gain = whole / (own + (whole - own) / rows) if whole else 0.0
        if gain > gained:
            best, gained = axis, gain
    return None if best is None else Sharing(best, len(parts))


def _operations(formula: Expr, vector: Axis) -> list[Expr] | None:
    """The different operations on vectors that a result takes; ``None`` of a large formula."""
    made: dict[tuple[type, str], list[Expr]] = {}
    stack: list[Node] = [formula]
    seen = 0
    while stack:
        item = stack.pop()
        seen += 1
        if seen > _MOST_NODES:
            return None
        if isinstance(item, (BufferLoad, Var)) or not isinstance(item, Expr):
            continue
        if not uses_var(item, {vector.var}):
            continue
        alike = made.setdefault((type(item), item.dtype), [])
        if any(expr_equal(item, other) for other in alike):
            continue
        alike.append(item)
        stack += item.child_nodes()
    return [item for items in made.values() for item in items]


def _cost(item: Expr, costs: Costs) -> float:
    if isinstance(item, Div):
        return costs.vector_division
    if isinstance(item, Call) and item.op.name in EXPENSIVE:
        return costs.vector_function
    return 1.0
