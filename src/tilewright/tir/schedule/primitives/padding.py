"""Separating padding from what is padded.

``decompose_padding`` turns a block that stores a value inside and a constant outside a box into one
that fills and one that copies the box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer, conjuncts
from tilewright.ir import (
    GE,
    GT,
    LE,
    LT,
    Call,
    Cast,
    Expr,
    FloatImm,
    IntImm,
    Range,
    Select,
    Var,
    and_,
    as_int,
    const,
    expr_equal,
    not_,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir import (
    THREAD_BINDING,
    Block,
    BlockRealize,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    SeqStmt,
    Stmt,
    renew_definitions,
    seq,
)
from tilewright.tir.analysis import COMPLETE, block_access_regions, block_facts
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.legality import covers
from tilewright.tir.schedule.primitives._block_checks import check_only_writer
from tilewright.tir.schedule.primitives._layout_padding import simplified_indices
from tilewright.tir.schedule.primitives._scope import scope_of
from tilewright.tir.schedule.state import ScheduleState

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@dataclass(frozen=True)
class _Padding:
    """A padding block: where ``inside`` is true it stores ``value``, elsewhere ``filling``."""

    realize: BlockRealize
    store: BufferStore
    inside: Expr
    value: Expr
    filling: Expr
    chain: list[For]
    """The loops from the given one down to the block."""


@primitive
def decompose_padding(sch: Schedule, block: BlockRV, loop: LoopRV) -> BlockRV:
    """Split a padding block into one that fills with the constant and one that copies the rest.

    The filling block is put before ``loop``, the copy stays; its loops shrink to the box if each
    drives one axis, else a predicate restricts it. Returns the block that fills.

    Preconditions:
        - ``loop`` is around the block, with nothing but loops and sequences between them
        - the block is complete, has no views, stores once, and chooses between a value and a
          constant
        - the choice depends on the block's axes alone, not on memory
        - blocks under ``loop`` read only elements of the buffer that the block has stored in the
          same iteration
    Before:
        for i in range(20):
            with T.block("B"):
                vi = T.axis.spatial(20, i)
                B[vi] = T.if_then_else(vi >= 2 and vi < 18, A[vi - 2], T.float32(0))
    After ``decompose_padding(B, i)``:
        for i in range(20):
            with T.block("B_pad_const"):
                vi = T.axis.spatial(20, i)
                T.reads()
                T.writes(B[vi])
                B[vi] = T.float32(0)
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi + 2] = A[vi]
    """
    state: ScheduleState = sch.state
    found = _find_padding(sch, block, loop)
    func_name = block.func
    name = state.fresh_block_name(func_name, f"{found.realize.block.name}_pad_const")
    old = found.realize.block
    filling = Block(
        old.iter_vars,
        (),
        old.writes,
        name,
        found.store.replace(value=found.filling),
    )
    nest: Stmt = found.realize.replace(block=filling)
    for item in reversed(found.chain):
        nest = item.replace(body=nest)
    fill: Stmt = renew_definitions(nest)
    outer = found.chain[0]
    state.replace(outer, seq(fill, state.rebuilt(outer, _inner_copy(state, found))))
    return BlockRV(func_name, name)


@primitive(pure=True, recorded=False)
def can_decompose_padding(sch: Schedule, block: BlockRV, loop: LoopRV) -> bool:
    """Return whether ``decompose_padding`` would accept the block and the loop.

    Preconditions: none
    """
    try:
        _find_padding(sch, block, loop)
    except ScheduleError:
        return False
    return True


def _find_padding(sch: Schedule, block: BlockRV, loop: LoopRV) -> _Padding:
    """Find the padding, with all checks."""
    state = sch.state
    realize, outer = state.get_block(block), state.get_loop(loop)
    scope = scope_of(state, realize)
    parents = state.index(scope.func_name).parents
    chain: list[For] = []
    current = parents[realize]
    while type(current) in (For, SeqStmt):
        if type(current) is For:
            chain.insert(0, current)
        if current is outer:
            break
        current = parents[current]
    if current is not outer:
        raise state.error(
            f"between loop {outer.loop_var.name!r} and block {realize.block.name!r} there is more "
            "than loops, or the loop is not around the block",
            realize,
            outer,
        )
    store, inside, value, filling = padding_choice(state, realize)
    for reader in scope.readers(store.buffer):
        if outer not in state.parents(reader):
            continue
        fresh = not state.loops_above(outer) and not scope.is_visible_outside(store.buffer)
        later = scope.position[reader] > scope.position[realize]
        if not later or not (fresh or covers(state, realize, reader, store.buffer, outer)):
            raise state.error(
                f"block {reader.block.name!r} under loop {outer.loop_var.name!r} may read of "
                f"{store.buffer.name} what an earlier iteration stored, and would find the padding",
                reader,
                realize,
                remedy="give a loop further in",
            )
    return _Padding(realize, store, inside, value, filling, chain)


def padding_choice(
    state: ScheduleState, realize: BlockRealize
) -> tuple[BufferStore, Expr, Expr, Expr]:
    """Return the store, when it stores the value, the value and the constant."""
    block, store = realize.block, realize.block.body
    facts = block_facts(block)
    value = store.value if isinstance(store, BufferStore) else None
    if facts.kind != COMPLETE or not isinstance(store, BufferStore) or block.match_buffers:
        raise state.error(
            f"block {block.name!r} is no padding: "
            f"{facts.reason or 'it must be complete and store once, into no view'}",
            realize,
        )
    check_only_writer(scope_of(state, realize), realize, store.buffer)
    if isinstance(value, Select):
        condition, then, other = value.condition, value.true_value, value.false_value
    elif isinstance(value, Call) and value.op.name == "if_then_else":
        condition, then, other = value.args
    else:
        raise state.error(
            f"block {block.name!r} is no padding: it must store if_then_else or Select", realize
        )
    if _is_constant(other) == _is_constant(then):
        raise state.error(
            f"block {block.name!r} is no padding: exactly one branch must be a constant", realize
        )
    if any(isinstance(item, (BufferLoad, Call)) for item in pre_order(condition)):
        raise state.error(
            f"the padding of block {block.name!r} depends on what memory or a call gives", realize
        )
    if _is_constant(then):
        return store, not_(condition), other, then
    return store, condition, then, other


def _is_constant(expr: Expr) -> bool:
    if isinstance(expr, Cast):
        return _is_constant(expr.value)
    return isinstance(expr, (IntImm, FloatImm))


def _inner_copy(state: ScheduleState, found: _Padding) -> dict[Any, Any]:
    """Return the replacements that restrict the block to copying the box."""
    realize, block = found.realize, found.realize.block
    analyzer = state.analyzer_at(realize)
    for iter_var in block.iter_vars:
        analyzer.bind(iter_var.var, iter_var.dom)
    # Shorter loops run where the whole ones don't: sizes may be 0 there.
    outside = state.analyzer_at(found.chain[0])
    rest = list(conjuncts(analyzer.simplify(found.inside)))
    axes = {iter_var.var for iter_var in block.iter_vars}
    replaced: dict[Var, Expr] = {}
    extents: dict[For, Expr] = {}
    iter_vars: list[IterVar] = []
    for iter_var, value in zip(block.iter_vars, realize.iter_values):
        loop = _loop_of_axis(state, found, iter_var, value)
        bounds = _bounds_of_axis(iter_var, rest, axes, outside) if loop is not None else None
        if loop is None or bounds is None:
            iter_vars.append(iter_var)
            continue
        low, high, rest = bounds
        extents[loop] = analyzer.simplify(high - low)
        iter_vars.append(iter_var.replace(dom=Range.from_min_extent(const(0), extents[loop])))
        if as_int(low) != 0:
            replaced[iter_var.var] = iter_var.var + low
    shifted = {var: analyzer.simplify(expr) for var, expr in replaced.items()}
    store = found.store.replace(value=found.value)
    body = simplified_indices(substitute(store, shifted), analyzer)
    made = block.replace(iter_vars=tuple(iter_vars), body=body)
    reads, writes = block_access_regions(made)
    made = made.replace(reads=tuple(reads), writes=tuple(writes))
    # Conditions that are left are on axes as they were; shrunk axes don't occur in them.
    values = {axis.var: value for axis, value in zip(block.iter_vars, realize.iter_values)}
    conditions = [substitute(substitute(item, shifted), values) for item in rest]
    copied: Stmt = realize.replace(predicate=and_(realize.predicate, *conditions), block=made)
    inner: Stmt = realize
    for loop in reversed(state.loops_above(realize)):
        if loop.body is not inner:
            break
        copied = loop.replace(extent=extents.get(loop, loop.extent), body=copied)
        inner = loop
        if loop is found.chain[0]:
            break
    return {inner: copied}


def _loop_of_axis(
    state: ScheduleState, found: _Padding, iter_var: IterVar, value: Expr
) -> For | None:
    """The loop that drives only this axis, below the given one and around only the block."""
    realize = found.realize
    inner: Stmt = realize
    for loop in reversed(found.chain):
        if loop.body is not inner:
            return None
        inner = loop
        if loop.loop_var is value:
            break
    else:
        return None
    others = [item for item in realize.iter_values if item is not value]
    alone = not any(uses_var(item, {value}) for item in (*others, realize.predicate))
    alone = alone and sum(item is value for item in realize.iter_values) == 1
    inside = [item for item in found.chain if uses_var(item.extent, {value})]
    whole = (
        as_int(loop.min) == 0
        and as_int(iter_var.dom.min) == 0
        and expr_equal(loop.extent, iter_var.dom.extent)
    )
    # Loops of one thread axis have one extent everywhere.
    free = loop.kind != THREAD_BINDING and not inside
    return loop if alone and whole and free else None


def _bounds_of_axis(
    iter_var: IterVar, conditions: Sequence[Expr], axes: set[Var], analyzer: Analyzer
) -> tuple[Expr, Expr, list[Expr]] | None:
    """Return begin and end that conditions give an axis, and the conditions on other axes.

    ``None`` if a condition on the axis is no constant bound, or the bounds may leave the domain.
    """
    var, extent = iter_var.var, iter_var.dom.extent
    low: Expr = const(0)
    high: Expr = extent
    rest: list[Expr] = []
    for item in conditions:
        if not uses_var(item, {var}):
            rest.append(item)
            continue
        if isinstance(item, (LT, LE)):
            slack = item.b - item.a - (1 if isinstance(item, LT) else 0)
        elif isinstance(item, (GT, GE)):
            slack = item.a - item.b - (1 if isinstance(item, GT) else 0)
        else:
            return None
        # slack >= 0 is  var >= -(slack - var)  or  var <= slack + var.
        below, above = analyzer.simplify(slack - var), analyzer.simplify(slack + var)
        if not uses_var(below, axes):
            bound = analyzer.simplify(const(0) - below)
            low = bound if analyzer.can_prove(bound >= low) else low
            if low is not bound and not analyzer.can_prove(bound <= low):
                return None
        elif not uses_var(above, axes):
            bound = analyzer.simplify(above + 1)
            high = bound if analyzer.can_prove(bound <= high) else high
            if high is not bound and not analyzer.can_prove(bound >= high):
                return None
        else:
            return None
    if not (analyzer.can_prove(low <= high) and analyzer.can_prove(high <= extent)):
        return None
    return (low, high, rest) if analyzer.can_prove(low >= 0) else None
