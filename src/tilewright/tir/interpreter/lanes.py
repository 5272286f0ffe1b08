"""One lane of a vector statement: what stands under a vector condition runs lane by lane."""

from __future__ import annotations

from tilewright.ir import (
    INDEX,
    Broadcast,
    Call,
    Cast,
    Expr,
    Mutator,
    Ramp,
    ScalableLanes,
    Shuffle,
    Var,
    child,
    const,
    derived,
    dtypes,
    lane_count,
    node,
)
from tilewright.tir.stmt import For, IfThenElse


def by_lanes(node: IfThenElse) -> For:
    """Return a loop over the lanes of a branch with a vector condition."""
    lanes = dtypes.lanes_of(node.condition.dtype)
    var = Var("lane")
    return For(var, const(0), lane_count(lanes, INDEX), "serial", _Lane(var).visit(node))


def in_lane(expr: Expr, lane: Var) -> Expr:
    """Return one lane of a vector, as an expression of the lane's number."""
    made: Expr = _Lane(lane).visit(expr)
    return made


def lane_text(expr: Expr) -> str:
    """Return the number of a vector's lanes as Python; ``vscale`` is given where a program runs."""
    lanes = dtypes.lanes_of(expr.dtype)
    return f"{lanes.factor} * vscale" if isinstance(lanes, ScalableLanes) else str(lanes)


@node
class LaneOf(Expr):
    """One lane of a vector that is there as a whole: a variable."""

    vector: Expr = child()
    lane: Expr = child()
    dtype: str = derived(lambda item: dtypes.element_of(item.vector.dtype))


class _Lane(Mutator):
    def __init__(self, lane: Var) -> None:
        self.lane = lane

    def visit_Expr(self, node: Expr) -> Expr:
        if dtypes.lanes_of(node.dtype) == 1:
            scalar: Expr = self.generic_visit(node)
            return scalar
        element = dtypes.element_of(node.dtype)
        if isinstance(node, Ramp):
            start: Expr = self.visit(node.base)
            stride: Expr = self.visit(node.stride)
            return start + stride * self.lane.astype(element)
        if isinstance(node, Broadcast):
            value: Expr = self.visit(node.value)
            return value
        if isinstance(node, Cast):
            return Cast(element, self.visit(node.value))
        if isinstance(node, Call):
            return Call.of_fields(node.op, tuple(map(self.visit, node.args)), element)
        if isinstance(node, (Shuffle, Var)):
            return LaneOf(node, self.lane)
        made: Expr = self.generic_visit(node)
        return made
