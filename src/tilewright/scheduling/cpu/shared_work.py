"""Arithmetic that results share: forces along three axes need the same distance.

No operand is reused along such an axis, but a part of the formula is: computed once for several
results, it costs each of them less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Call, Div, Expr, Node, Var, collect, expr_equal, uses_var
from tilewright.scheduling.blocks import EXPENSIVE, Axis
from tilewright.target import Costs
from tilewright.tir import BufferLoad, BufferStore

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
    parts = _operations([formula], vector.var)
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


def pays_together(sums: Sequence[BufferStore], vector: Var, costs: Costs) -> bool:
    """Whether sums over the same elements, in vectors along a variable, share enough work.

    What they read counts, too; the sums themselves are in registers.
    """
    apart = [_work([item], vector, costs) for item in sums]
    together = _work(sums, vector, costs)
    if together is None or None in apart:
        return False
    return sum(item or 0.0 for item in apart) >= _LEAST_GAIN * together


def _work(sums: Sequence[BufferStore], vector: Var, costs: Costs) -> float | None:
    """What an element takes that is added to some sums; ``None`` of large formulas."""
    parts = _operations([item.value for item in sums], vector)
    if parts is None:
        return None
    results = {item.buffer for item in sums}
    loads: list[BufferLoad] = []
    for load in (load for item in sums for load in collect(item.value, BufferLoad)):
        moves = load.buffer not in results and uses_var(load, {vector})
        if moves and not any(expr_equal(load, other) for other in loads):
            loads.append(load)
    return len(loads) + sum(_cost(part, costs) for part in parts)


def _operations(formulas: Sequence[Expr], vector: Var) -> list[Expr] | None:
    """The different operations on vectors that results take; ``None`` of large formulas."""
    made: dict[tuple[type, str], list[Expr]] = {}
    stack: list[Node] = [*formulas]
    seen = 0
    while stack:
        item = stack.pop()
        seen += 1
        if seen > _MOST_NODES:
            return None
        if isinstance(item, (BufferLoad, Var)) or not isinstance(item, Expr):
            continue
        if not uses_var(item, {vector}):
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
