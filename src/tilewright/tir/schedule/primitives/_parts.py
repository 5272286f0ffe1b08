"""Copies of a loop's body for a part of its range, for loop_partition and peeled tiles.

A part runs the same iterations in the same order as the loop did, so cutting a range is always
legal. Copies get fresh loop variables, buffers and block names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer, conjuncts
from tilewright.ir import TRUE, Expr, Range, Var, and_, const
from tilewright.tir import OPAQUE, REDUCE, SERIAL, Block, BlockRealize, For, Stmt
from tilewright.tir.analysis import block_facts
from tilewright.tir.analysis.data_variables import know_lets
from tilewright.tir.rewrite import fresh_name, renew_definitions
from tilewright.tir.schedule.primitives._rewrite import rewrite_outside_blocks, substitute_index
from tilewright.tir.schedule.state import trivially_true

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def part_of(
    sch: Schedule,
    loop: For,
    var: Var,
    extent: Expr,
    value: Expr,
    *,
    suffix: str,
    taken: set[str],
    renamed: dict[str, str] | None = None,
) -> Stmt:
    """Return a loop over ``extent`` with a copy of the body, the loop variable being ``value``.

    Blocks are named with ``suffix`` (``taken`` has all names in use and gets the new ones; the
    pairs go to ``renamed``). Predicates that always hold in this part are dropped, and so is the
    init of a reduction that has started in an earlier part.
    """
    mapping = {loop.loop_var: value}
    body = rewrite_outside_blocks(loop.body, lambda expr: substitute_index(expr, mapping))
    known = sch.state.analyzer_at(loop)
    # Loops around that have no iterations: all can be proven inside of them.
    idle = int(known.can_prove(extent <= 0))
    known.bind(var, Range(const(0, var.dtype), extent))
    body = renew_definitions(body)
    know_lets(known, body)

    def go(node: Any) -> Any:
        nonlocal idle
        if isinstance(node, Expr):
            return node
        if type(node) is For:
            is_idle = known.can_prove(node.extent <= 0)
            idle += is_idle
            with known.constraint(TRUE):
                known.bind(node.loop_var, Range(node.min, node.extent))
                inner = node.map_children(go)
            idle -= is_idle
            return inner
        made = node.map_children(go)
        if type(made) is Block:
            name = fresh_name(made.name + suffix, taken)
            if renamed is not None:
                renamed[made.name] = name
            return made.replace(name=name)
        return _narrowed(made, known) if type(made) is BlockRealize and not idle else made

    return For(var, const(0, var.dtype), extent, SERIAL, go(body))


def _narrowed(realize: BlockRealize, known: Analyzer) -> BlockRealize:
    """Drop conditions that hold, and an ``init`` that can't be due."""
    predicate, block = realize.predicate, realize.block
    if not trivially_true(predicate):
        kept = [item for item in conjuncts(predicate) if not known.can_prove(item)]
        predicate = and_(*kept) if kept else TRUE
    if block.init is not None and any(
        item.kind == REDUCE and known.can_prove(value > item.dom.min)
        for item, value in zip(block.iter_vars, realize.iter_values)
    ):
        # Without init the block reads what it reduces into.
        without = block.replace(init=None, reads=(*block.writes, *block.reads))
        # The update alone must be seen to be one, else other primitives could do less with it.
        if block_facts(without).kind != OPAQUE:
            block = without
    if predicate is realize.predicate and block is realize.block:
        return realize
    return BlockRealize(realize.iter_values, predicate, block)
