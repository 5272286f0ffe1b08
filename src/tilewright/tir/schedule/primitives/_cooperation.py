"""A loop on a thread axis inside another one on the same axis: the threads share its work.

In the program, each iteration of the outer loop runs the inner one from start to end: each thread
fetches a whole tile. In the kernel the inner loop variable becomes the thread's index: each thread
fetches its share of the tile, and they wait for each other. Both are equivalent if the inner loop
writes memory that the threads share, with the same values in each of them, and all threads reach
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tilewright.ir import Node, Var, as_int, expr_equal, pre_order, uses_var
from tilewright.tir import (
    REDUCE,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    For,
    IfThenElse,
    LetStmt,
    While,
)
from tilewright.tir.analysis import COMPLETE, REDUCTION, block_dependencies, block_facts
from tilewright.tir.schedule.legality import starts_afresh
from tilewright.tir.thread_scope import is_private, is_shared
from tilewright.tir.walk import child_blocks

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule

_REMEDY = (
    "bind the outer loop first and compute_at the block in scope 'shared', so that it makes what "
    "all threads need; or bind another axis"
)


def check_cooperative(sch: Schedule, outer: For, inner: For, tag: str) -> None:
    """Refuse two loops on the axis ``tag``, one inside the other, unless both mean the same."""
    state = sch.state

    def refuse(rule: str, *culprits: Node) -> Exception:
        return sch.error(
            f"loop {inner.loop_var.name!r} is inside loop {outer.loop_var.name!r}, both on {tag}, "
            f"so threads share its work out; but {rule}",
            *(culprits or (inner,)),
            remedy=_REMEDY,
        )

    if not tag.startswith("threadIdx"):
        raise refuse("only threads of a block (threadIdx) can do that", outer, inner)
    if state.scope_block(outer) is not state.scope_block(inner):
        raise refuse("a block is between them", outer, inner)
    if not _fits(sch, outer, inner):
        raise refuse("it is not shown to have no more iterations than the outer loop")
    threads = {
        item.loop_var
        for item in state.loops_above(inner)
        if (item.thread or "").startswith("threadIdx") or item is outer
    }
    for stmt, decisive in _between(state, outer, inner):
        if uses_var(decisive, threads) or _loads_private(decisive, ()):
            raise refuse("not all threads come by equally often", stmt)
    if uses_var(inner, {outer.loop_var}):
        raise refuse("what it makes differs between them", _first_user(inner, outer.loop_var))
    graph = block_dependencies(state.scope_block(inner))
    below = child_blocks(inner)
    names = {realize.block.name for realize in below}
    made_here = {
        region.buffer
        for realize in below
        for region in realize.block.writes
        if {*graph.writers.get(region.buffer, ()), *graph.readers.get(region.buffer, ())} <= names
    }
    for realize in below:
        for region in realize.block.writes:
            if not is_shared(region.buffer.scope) and region.buffer not in made_here:
                raise refuse(
                    f"block {realize.block.name!r} writes {region.buffer.name!r} of scope "
                    f"{region.buffer.scope!r}, not 'shared'",
                    realize,
                )
        if _loads_private(realize, made_here):
            raise refuse(
                f"block {realize.block.name!r} reads memory that each thread has for itself",
                realize,
            )
        _check_once(sch, realize, outer, inner, refuse)


def _check_once(sch: Schedule, realize: BlockRealize, outer: For, inner: For, refuse: Any) -> None:
    """Each outer iteration must compute everything anew: it happens once for all of them."""
    kind = block_facts(realize.block).kind
    if kind == COMPLETE:
        return
    loops = sch.state.loops_above(realize)
    around = {loop.loop_var for loop in loops[: loops.index(outer) + 1]} | {inner.loop_var}
    reduced = [
        value
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
        if iter_var.kind == REDUCE
    ]
    if (
        kind != REDUCTION
        or any(uses_var(value, around) for value in reduced)
        or not starts_afresh(sch.state, realize)
    ):
        raise refuse(
            f"block {realize.block.name!r} is not shown to make the same each time it runs", realize
        )


def _fits(sch: Schedule, outer: For, inner: For) -> bool:
    a, b = as_int(outer.extent), as_int(inner.extent)
    if a is not None and b is not None:
        return b <= a
    if expr_equal(outer.extent, inner.extent):
        return True
    return sch.state.analyzer_at(outer).can_prove(inner.extent <= outer.extent)


def _between(state: Any, outer: For, inner: For) -> Iterator[tuple[Any, Any]]:
    """Yield statements between two loops, each with an expression that decides what runs below."""
    for item in state.parents(inner):
        if item is outer:
            return
        kind = type(item)
        if kind is For:
            yield item, item.min
            yield item, item.extent
        elif kind is IfThenElse or kind is While:
            yield item, item.condition
        elif kind is LetStmt:
            yield item, item.value


def _loads_private(node: Node, own: set[Buffer] | tuple[()]) -> bool:
    """Whether a node reads a thread's private memory, other than ``own``."""
    allocated: set[Buffer] = set(own)
    for item in pre_order(node):
        if type(item) is Block:
            allocated.update(item.alloc_buffers)
    return any(
        type(item) is BufferLoad and is_private(item.buffer.scope) and item.buffer not in allocated
        for item in pre_order(node)
    )


def _first_user(loop: For, var: Var) -> BlockRealize | For:
    """Return the first block below that depends on a variable, or the loop."""
    return next((item for item in child_blocks(loop) if uses_var(item, {var})), loop)
