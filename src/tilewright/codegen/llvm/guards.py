"""What must be known of an expression before it is evaluated where it isn't wanted."""

from __future__ import annotations

from tilewright.ir import (
    Broadcast,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    dtypes,
    expr_equal,
    is_const,
    pre_order,
)
from tilewright.tir import BufferLoad


def needs_guard(expr: Expr) -> bool:
    """Whether evaluating an expression where it isn't wanted could fault, or costs much.

    Divisions don't fault, but take as long as a mispredicted branch.
    """
    cost = 0
    for item in pre_order(expr):
        if isinstance(item, (BufferLoad, Call)):
            return True
        if isinstance(item, (FloorDiv, FloorMod)) and not (
            is_const(item.b) and not is_const(item.b, 0)
        ):
            return True
        cost += 1
    return cost > 40


def loads_scalars(expr: Expr) -> bool:
    """Whether a vector expression holds loads of single elements, which no mask can guard."""
    return any(isinstance(item, BufferLoad) and loads_one(item) for item in pre_order(expr))


def loads_one(load: BufferLoad) -> bool:
    """Whether a load is of one element: for all lanes the same, if there are several."""
    if not load.indices:
        return True
    index = load.indices[-1]
    return isinstance(index, Broadcast) or dtypes.lanes_of(index.dtype) == 1


def reads_more(expr: Expr, than: Expr) -> bool:
    """Whether an expression has loads that another one, evaluated before, has not."""
    known = [item for item in pre_order(than) if isinstance(item, BufferLoad)]
    loads = [item for item in pre_order(expr) if isinstance(item, BufferLoad)]
    return any(not any(expr_equal(item, other) for other in known) for item in loads)
