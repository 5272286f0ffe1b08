"""What must be known of an expression before it is evaluated where it isn't wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import (
    And,
    Broadcast,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    Node,
    Or,
    dtypes,
    expr_equal,
    is_const,
    pre_order,
)
from tilewright.tir import BufferLoad
from tilewright.tir.transform.effects import ExprTable, is_pure


def _is_guarded(expr: Node) -> bool:
    return isinstance(expr, (BufferLoad, Call))


def needs_guard(expr: Expr, after: Expr | None = None) -> bool:
    """Whether evaluating an expression where it isn't wanted could fault, or costs much.

    Divisions don't fault, but take as long as a mispredicted branch. What is evaluated ``after``
    another expression costs nothing where it says the same as parts of that one.
    """
    if after is not None and is_pure(after) and any(map(_is_guarded, pre_order(after))):
        table = ExprTable()
        there = {table.number(item) for item in pre_order(after, _goes_on)}
        return _faults_or_costs(expr, lambda item: table.number(item) not in there)
    return _faults_or_costs(expr, None)


def _goes_on(expr: Node) -> bool:
    """Whether all of an expression's operands are evaluated whenever it is."""
    return not isinstance(expr, (And, Or)) and not (
        isinstance(expr, Call) and expr.op.name == "if_then_else"
    )


def _faults_or_costs(expr: Expr, enter: Callable[[Node], bool] | None) -> bool:
    cost = 0
    for item in pre_order(expr, enter):
        if enter is not None and not enter(item):
            continue
        if _is_guarded(item):
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


def always_read(expr: Expr) -> list[BufferLoad]:
    """The loads of an expression that are evaluated whenever it is."""
    found: list[BufferLoad] = []
    pending: list[Node] = [expr]
    while pending:
        item = pending.pop()
        if isinstance(item, BufferLoad):
            found.append(item)
        below = item.child_nodes()
        pending += below if _goes_on(item) else below[:1]
    return found


def reads_more(expr: Expr, known: Sequence[BufferLoad]) -> bool:
    """Whether an expression has loads beside those that were evaluated before."""
    loads = [item for item in pre_order(expr) if isinstance(item, BufferLoad)]
    return any(not any(expr_equal(item, other) for other in known) for item in loads)
