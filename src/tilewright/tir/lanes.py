"""One lane of a vector of integers, as an expression of the lane's number.

What is asked of an index is asked of each of its lanes: whether it is inside of its buffer, what it
spans, which threads meet there.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import (
    INDEX,
    Broadcast,
    Call,
    Cast,
    Expr,
    Mutator,
    Ramp,
    Range,
    Shuffle,
    Var,
    const,
    dtypes,
    lane_count,
)
from tilewright.tir.buffer import BufferLoad


def lane_range(lanes: int) -> Range:
    """Return the range of the numbers of a vector's lanes."""
    return Range.from_min_extent(const(0), lane_count(lanes, INDEX))


def scalarized(expr: Expr, lane: Var) -> Expr | None:
    """Return lane number ``lane`` of a vector expression of integers, if it can be written down."""
    try:
        made: Expr = _Scalarizer(lane).visit(expr)
    except _NoScalar:
        return None
    return made


class _NoScalar(Exception):
    pass


class _Scalarizer(Mutator):
    def __init__(self, lane: Var) -> None:
        self.lane = lane

    def visit_Expr(self, node: Expr) -> Expr:
        if dtypes.lanes_of(node.dtype) == 1:
            return node
        if type(node) in (BufferLoad, Call, Var) or not node.child_nodes():
            raise _NoScalar
        return self.generic_visit(node)

    def visit_Ramp(self, node: Ramp) -> Expr:
        return node.base + node.stride * self.lane.astype(node.base.dtype)

    def visit_Broadcast(self, node: Broadcast) -> Expr:
        return node.value

    def visit_Shuffle(self, node: Shuffle) -> Expr:
        raise _NoScalar

    def visit_Cast(self, node: Cast) -> Any:
        if dtypes.lanes_of(node.dtype) == 1:
            return node
        return self.visit(node.value).astype(dtypes.element_of(node.dtype))
