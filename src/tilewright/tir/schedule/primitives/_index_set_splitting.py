"""Index-set splitting: copies of a loop's body for subranges, for loop_partition and peeled tiles.

The subranges run the same iterations in the same order as the loop did, so splitting a range is
always legal. Copies get fresh loop variables, buffers and block names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer, conjuncts
from tilewright.ir import (
    TRUE,
    Expr,
    Range,
    Var,
    and_,
    as_int,
    const,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir import OPAQUE, REDUCE, SERIAL, Block, BlockRealize, For, Stmt
from tilewright.tir.analysis import block_facts
from tilewright.tir.analysis.data_variables import know_lets
from tilewright.tir.empty_reduction import begun_by_nothing
from tilewright.tir.rewrite import fresh_name, renew_definitions
from tilewright.tir.schedule.primitives._rewrite import rewrite_outside_blocks, substitute_index
from tilewright.tir.schedule.state import trivially_true
from tilewright.tir.schedule.zero_trips import analyzer_where_begun

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def subrange_of(
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

    Block names get the ``suffix`` (``taken`` has all names in use and gets the new ones; the pairs
    go to ``renamed``). Predicates that always hold in this subrange are dropped, and so is the init
    of a reduction that has started in an earlier one.
    """
    mapping = {loop.loop_var: value}
    body = rewrite_outside_blocks(loop.body, lambda expr: substitute_index(expr, mapping))
    known = sch.state.analyzer_at(loop)
    # Loops around that have no iterations: all can be proven inside of them.
    idle = int(known.can_prove(extent <= 0))
    whole = For(var, const(0, var.dtype), extent, SERIAL, renew_definitions(body))
    known.bind(var, Range.from_min_extent(whole.min, extent))
    know_lets(known, whole.body)
    around: list[Any] = [*reversed(list(sch.state.parents(loop))), whole]
    facts = _WhereBegun(sch, loop, whole, around)

    def go(node: Stmt) -> Any:
        nonlocal idle
        if isinstance(node, Expr):
            return node
        if type(node) is For:
            is_idle = known.can_prove(node.extent <= 0)
            idle += is_idle
            around.append(node)
            with known.constraint(TRUE):
                known.bind(node.loop_var, Range.from_min_extent(node.min, node.extent))
                inner = node.map_children(go)
            around.pop()
            idle -= is_idle
            return inner
        made = node.map_children(go)
        if type(made) is Block:
            name = fresh_name(made.name + suffix, taken)
            if renamed is not None:
                renamed[made.name] = name
            return made.replace(name=name)
        if type(made) is BlockRealize and not idle:
            return _narrowed(made, known, facts)
        return made

    made = whole.replace(body=go(whole.body))
    _check_begun_before(sch, loop, made, value)
    return made


def _check_begun_before(sch: Schedule, loop: For, subrange: For, value: Expr) -> None:
    """Refuse a later subrange that would run inits again where it has no iterations.

    Bindings such as ``i % n`` are back at their start where the subrange would begin.
    """
    known = analyzer_where_begun(sch.state, loop)
    if known.can_prove_ge(subrange.extent, 1):
        return
    begun = begun_by_nothing(subrange)
    if not begun:
        return
    start = substitute(value, {subrange.loop_var: subrange.min})
    known.assume(start >= loop.min + 1)
    known.assume(subrange.extent <= 0)
    for item in pre_order(subrange.body):
        if type(item) is For:
            known.bind(item.loop_var, Range.from_min_extent(item.min, item.extent))
    at_start = {subrange.loop_var: subrange.min}
    for item in pre_order(subrange.body):
        if type(item) is BlockRealize and item.block.name in begun:
            reducing = [
                substitute(bound, at_start) > axis.dom.min
                for axis, bound in zip(item.block.iter_vars, item.iter_values)
                if axis.kind == REDUCE
            ]
            if not any(map(known.can_prove, reducing)):
                raise sch.error(
                    f"a part of loop {loop.loop_var.name!r} may have no iterations, and would then "
                    f"run the init of block {item.block.name!r} again",
                    loop,
                    remedy="decompose_reduction first, or use tail='predicate'",
                )


class _WhereBegun:
    """The facts that hold wherever a block's ``init`` runs, including for empty reductions.

    The loops of such a reduction have no iterations, so nothing follows from their extents.
    """

    def __init__(self, sch: Schedule, loop: For, whole: For, around: list[object]) -> None:
        self.sch, self.around = sch, around
        self.func_name = sch.state.func_name_of(loop)
        self.whole = whole

    def can_prove(self, condition: Expr, realize: BlockRealize) -> bool:
        """Whether a condition holds, without facts that an init can't rely on."""
        pairs = list(zip(realize.block.iter_vars, realize.iter_values))
        reducing = [value for item, value in pairs if item.kind == REDUCE]
        rest = [value for item, value in pairs if item.kind != REDUCE]
        unsure = frozenset(
            item.loop_var
            for item in self.around
            if type(item) is For
            and as_int(item.extent) is None
            and not uses_var(condition, {item.loop_var})  # an init isn't asked about these
            and any(uses_var(value, {item.loop_var}) for value in reducing)
            and not any(uses_var(value, {item.loop_var}) for value in rest)
        )
        return not unsure or self.analyzer(unsure).can_prove(condition)

    def analyzer(self, unsure: frozenset[Var]) -> Analyzer:
        known = self.sch.state.analyzer(self.func_name)
        know_lets(known, self.whole.body)
        for item in self.around:
            if type(item) is Block:
                for axis in item.iter_vars:
                    known.bind(axis.var, axis.dom)
            elif type(item) is For and (
                item.loop_var not in unsure or known.can_prove_ge(item.extent, 1)
            ):
                known.bind(item.loop_var, Range.from_min_extent(item.min, item.extent))
        return known


def _narrowed(realize: BlockRealize, known: Analyzer, begun: _WhereBegun) -> BlockRealize:
    """Drop conditions that always hold, and an ``init`` that never runs."""
    predicate, block = realize.predicate, realize.block
    if block.init is not None and any(
        item.kind == REDUCE and known.can_prove(value > item.dom.min)
        for item, value in zip(block.iter_vars, realize.iter_values)
    ):
        # Without init the block reads what it reduces into.
        without = block.replace(init=None, reads=(*block.writes, *block.reads))
        # The update alone must be seen to be one, else other primitives could do less with it.
        if block_facts(without).kind != OPAQUE:
            block = without
    if not trivially_true(predicate):
        kept = [
            item
            for item in conjuncts(predicate)
            if not known.can_prove(item)
            or (block.init is not None and not begun.can_prove(item, realize))
        ]
        predicate = and_(*kept) if kept else TRUE
    if predicate is realize.predicate and block is realize.block:
        return realize
    return BlockRealize(realize.iter_values, predicate, block)
