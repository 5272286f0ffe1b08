"""Arithmetic that results share: forces along three axes need the same distance.

No operand is reused along such an axis, but a part of the formula is: computed once for all rows of
a tile, it costs each of them less.
"""

from __future__ import annotations

from tilewright.dlight.cpu.contraction.register_tile import MOST_ROWS
from tilewright.ir import Call, Div, Expr, Node, Var, expr_equal, uses_var
from tilewright.scheduling import Reduction
from tilewright.scheduling.cpu import EXPENSIVE, Axis
from tilewright.target import Costs
from tilewright.tir import BufferLoad

# Rows that share arithmetic are worth a tile from this speed-up on.
_LEAST_GAIN = 1.25
# Larger formulas aren't looked through.
_MOST_NODES = 1 << 10


def computes_along(found: Reduction, axis: Axis) -> bool:
    """Whether what is reduced depends on an axis, be it by arithmetic only."""
    return uses_var(found.store.value, {axis.var})


def sharing_axis(found: Reduction, vector: Axis, costs: Costs) -> Axis | None:
    """The axis of the result along which tiles share the most arithmetic; ``None`` if little."""
    parts = _operations(found, vector)
    if parts is None:
        return None
    best, most = None, _LEAST_GAIN
    for axis in found.places:
        rows = min(axis.extent or MOST_ROWS, MOST_ROWS)
        whole = sum(_cost(part, costs) for part in parts)
        own = sum(_cost(part, costs) for part in parts if uses_var(part, {axis.var}))
        gain = whole / (own + (whole - own) / rows) if axis is not vector else 0.0
        if gain > most:
            best, most = axis, gain
    return best


def _operations(found: Reduction, vector: Axis) -> list[Expr] | None:
    """The different operations on vectors that a step takes; ``None`` of a large formula."""
    made: dict[tuple[type, str], list[Expr]] = {}
    stack: list[Node] = [found.store.value]
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
