"""Rewriting index expressions outside blocks, which is all that reshaping loops does.

Loops outside a block are visible to the block only through its bindings and predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from tilewright.ir import (
    Add,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Range,
    Var,
    add,
    and_,
    const,
    floordiv,
    floormod,
    is_const,
    mul,
    pre_order,
)
from tilewright.tir import (
    SERIAL,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)


def substitute_index(expr: object, mapping: dict[Var, Expr]) -> Any:
    """Replace variables in an index expression, multiplying constants out over sums.

    So ``i * 4`` with ``i = i0 * 8 + i1`` becomes ``i0 * 32 + i1 * 4``: repeated splits stay sums of
    products. The same object comes back if no variable is used.
    """

    def go(node: Any) -> Any:
        kind = type(node)
        if kind is Var:
            return mapping.get(node, node)
        if kind is IntImm:
            return node
        if kind is Add or kind is Mul:
            a, b = go(node.a), go(node.b)
            if a is node.a and b is node.b:
                return node
            return add(a, b) if kind is Add else scaled(a, b)
        made = node.map_children(go)
        if made is not node and (kind is FloorDiv or kind is FloorMod):
            return floordiv(made.a, made.b) if kind is FloorDiv else floormod(made.a, made.b)
        return made

    return go(expr)


def scaled(a: Any, b: Any) -> Expr:
    """Build ``a * b``, multiplied out where ``b`` is a constant and ``a`` a sum or product."""
    if type(b) is IntImm:
        if type(a) is Add:
            return add(scaled(a.a, b), scaled(a.b, b))
        if type(a) is Mul and type(a.b) is IntImm:
            return mul(a.a, const(a.b.value * b.value, b.dtype))
    return mul(a, b)


def rewrite_outside_blocks(
    stmt: object, on_expr: Callable[[Any], Any], guard: Expr | None = None
) -> Any:
    """Rewrite the expressions of loops, branches and block bindings below ``stmt``.

    ``guard`` is added to the predicate of each block; statements outside blocks are wrapped in a
    branch on it, and so is what reads memory to know what to run.
    """

    def go(node: Any) -> Any:
        kind = type(node)
        if guard is not None and _reads_memory(node):
            return IfThenElse(guard, rewrite_outside_blocks(node, on_expr))
        if kind is BlockRealize:
            values = tuple([on_expr(value) for value in node.iter_values])
            predicate = on_expr(node.predicate)
            if guard is not None:
                predicate = and_(predicate, guard)
            block = _with_domains(node.block, on_expr)
            if (
                block is node.block
                and predicate is node.predicate
                and all(map(is_, values, node.iter_values))
            ):
                return node
            return BlockRealize(values, predicate, block)
        if kind is BufferStore or kind is Evaluate:
            made = node.map_children(on_expr)
            return made if guard is None else IfThenElse(guard, made)
        return node.map_children(lambda item: go(item) if isinstance(item, Stmt) else on_expr(item))

    return go(stmt)


def _reads_memory(stmt: Any) -> bool:
    """Whether bounds, bindings, or the condition of a statement read buffers.

    They must not be evaluated where the guard is false: that could be out of bounds.
    """
    kind = type(stmt)
    if kind is BlockRealize:
        exprs: Sequence[Any] = (*stmt.iter_values, stmt.predicate)
    elif kind is For:
        exprs = (stmt.min, stmt.extent)
    elif kind is IfThenElse:
        exprs = (stmt.condition,)
    elif kind is LetStmt or kind is AttrStmt:
        exprs = (stmt.value,)
    else:
        return kind is While or kind is AssertStmt
    return any(
        type(expr) is not Var
        and type(expr) is not IntImm
        and any(type(item) is BufferLoad for item in pre_order(expr))
        for expr in exprs
    )


def _with_domains(block: Block, on_expr: Callable[[Any], Any]) -> Block:
    """Rewrite the domains of a block's axes, which a loop around it may bound."""
    if all(type(item.dom.extent) is IntImm for item in block.iter_vars):
        return block
    made = []
    for item in block.iter_vars:
        low, extent = on_expr(item.dom.min), on_expr(item.dom.extent)
        same = low is item.dom.min and extent is item.dom.extent
        made.append(item if same else item.replace(dom=Range.from_min_extent(low, extent)))
    if all(map(is_, made, block.iter_vars)):
        return block
    return block.replace(iter_vars=tuple(made))


def flattened(variables: Sequence[Var], extents: Sequence[Expr], keep_unit: bool = True) -> Expr:
    """Row-major index of a nest: ``v0*(e1*e2) + v1*e2 + v2``."""
    terms: list[Expr] = []
    stride: Expr = const(1)
    for var, extent in zip(reversed(variables), reversed(extents)):
        if keep_unit or not is_const(extent, 1):
            terms.append(mul(var, stride))
        stride = mul(extent, stride)
    result: Expr = const(0)
    for term in reversed(terms):
        result = add(result, term)
    return result


def nest(variables: Sequence[Var], extents: Sequence[Any], body: Stmt) -> Stmt:
    """Put serial loops from zero around ``body``, the first outermost."""
    for var, extent in zip(reversed(variables), reversed(extents)):
        body = For(var, const(0, var.dtype), extent, SERIAL, body)
    return body
