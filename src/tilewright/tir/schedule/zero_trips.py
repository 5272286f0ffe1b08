"""Loops that may have no iterations: what primitives must preserve about them.

A reduction loop with no iterations runs the ``init`` of its blocks (``tir.empty_reduction``). So a
loop that replaces others must be empty exactly where they were, and mean the same then; and what an
``init`` reads can't be computed in a loop that may be empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from tilewright.arith import Analyzer
from tilewright.ir import Expr, as_int, pre_order
from tilewright.tir import BlockRealize, Buffer, BufferLoad, For, IfThenElse, Stmt
from tilewright.tir.empty_reduction import begun_by_nothing
from tilewright.tir.schedule.state import ScheduleState

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def surely_at_least(state: ScheduleState, loop: For, value: Expr, least: int) -> bool:
    """Whether an expression is at least a number wherever ``loop`` is reached, for sizes from 0."""
    number = as_int(value)
    if number is not None:
        return number >= least
    return analyzer_where_begun(state, loop).can_prove_ge(value, least)


def surely_runs(state: ScheduleState, loop: For) -> bool:
    """Whether a loop is known to have an iteration wherever it is reached.

    Remembered for this version of the function: each loop asks the same of those around it, which
    would take time exponential in their number.
    """
    number = as_int(loop.extent)
    if number is not None:
        return number >= 1
    cache = state.index(state.func_name_of(loop)).cache
    key = ("surely runs", loop, len(state.symbolic))
    if key not in cache:
        cache[key] = surely_at_least(state, loop, loop.extent, 1)
    return bool(cache[key])


def analyzer_where_begun(state: ScheduleState, loop: For) -> Analyzer:
    """Return an analyzer of the facts around a loop wherever it is reached, sizes from 0.

    An ``init`` inside also runs where an enclosing reduction loop is empty, so the enclosing loops
    can't be assumed to have iterations.
    """
    inside = {item.block.name for item in pre_order(loop.body) if type(item) is BlockRealize}
    for around in state.loops_above(loop):
        if not surely_runs(state, around) and inside & begun_by_nothing(around):
            return state.analyzer(state.func_name_of(loop))
    return state.analyzer_at(loop)


def check_not_negative(sch: Schedule, loop: For) -> None:
    """Refuse a loop whose extent may be negative: it runs no iterations either."""
    if not surely_at_least(sch.state, loop, loop.extent, 0):
        raise sch.error(
            f"the extent {loop.extent!r} of loop {loop.loop_var.name!r} may be negative",
            loop,
            remedy="declare it as the size of a buffer, or take its maximum with 0",
        )


def check_means_nothing(sch: Schedule, loop: For, what: str) -> None:
    """Refuse a loop that may be empty and runs an init then, which ``what`` would lose."""
    if surely_runs(sch.state, loop):
        return
    begun = begun_by_nothing(loop)
    if begun:
        raise sch.error(
            f"loop {loop.loop_var.name!r} may have no iterations, and then runs the init of "
            f"{_named(begun)}; {what} would lose that",
            loop,
            remedy="decompose_reduction first, or choose other factors",
        )


def check_guard_keeps_inits(sch: Schedule, loop: For, body: Stmt, guard: Expr) -> None:
    """Refuse a branch on ``guard`` in ``body`` that would come between a loop and its init.

    Without iterations of the loop ``guard`` is never evaluated, so no init would run.
    """
    branches = [x for x in pre_order(body) if type(x) is IfThenElse and x.condition is guard]
    below = {id(item) for branch in branches for item in pre_order(branch)}
    guarded = {
        item.block.name
        for branch in branches
        for item in pre_order(branch)
        if type(item) is BlockRealize and item.block.init is not None
    }
    if not guarded:
        return
    inner = [x for x in pre_order(body) if type(x) is For and id(x) not in below]
    for around in (loop, *sch.state.loops_above(loop)):
        if not surely_runs(sch.state, around) and guarded & begun_by_nothing(around):
            raise _guarded(sch, around, guarded)
    known = sch.state.analyzer_at(loop)
    for around in inner:
        if not known.can_prove_ge(around.extent, 1):
            raise _guarded(sch, around, guarded)


def _guarded(sch: Schedule, loop: For, blocks: Collection[str]) -> Exception:
    return sch.error(
        f"loop {loop.loop_var.name!r} may have no iterations, and then runs the init of "
        f"{_named(blocks)}, which would be under a branch, since what it runs reads memory",
        loop,
        remedy="decompose_reduction first, or choose factors that divide the extent",
    )


def check_fused_alike(sch: Schedule, chain: Sequence[For], fused: For) -> None:
    """Refuse to fuse loops if the fused one would mean something else where one of them is empty.

    An empty loop over reduction axes only runs inits; one that drives other axes, or none, does
    nothing.
    """
    idle = [loop for loop in chain if not surely_runs(sch.state, loop)]
    if not idle:
        return
    negative = [x for x in idle if not surely_at_least(sch.state, x, x.extent, 0)]
    if len(negative) > 1:
        check_not_negative(sch, negative[0])
    together = begun_by_nothing(fused)
    for loop in idle:
        alone = begun_by_nothing(loop)
        if alone != together:
            raise sch.error(
                f"loop {loop.loop_var.name!r} may have no iterations, and then "
                f"{'runs the init of ' + _named(alone) if alone else 'does nothing'}; "
                "the fused loop would "
                + (f"run the init of {_named(together)}" if together else "lose that"),
                loop,
                remedy="fuse reduction loops with each other only",
            )


def check_init_finds(
    state: ScheduleState, readers: Iterable[BlockRealize], made: Collection[Buffer], loop: For
) -> None:
    """Refuse to compute buffers inside a loop if the ``init`` of an empty reduction reads them.

    ``readers`` are below ``loop``; it and the loops around it may be empty.
    """
    reading = [item for item in readers if _init_reads(item, made)]
    if not reading:
        return
    for around in (loop, *state.loops_above(loop)):
        begun = frozenset() if surely_runs(state, around) else begun_by_nothing(around)
        for item in reading:
            if item.block.name in begun:
                raise state.error(
                    f"loop {around.loop_var.name!r} may have no iterations: the init of block "
                    f"{item.block.name!r} would run without what it reads",
                    item,
                    around,
                    remedy="choose a loop that is outside of the reduction, or "
                    "decompose_reduction first",
                )


def _init_reads(realize: BlockRealize, made: Collection[Buffer]) -> bool:
    """Whether an ``init`` of a block, or of one inside of it, reads one of some buffers."""
    return any(
        type(item) is BufferLoad and item.buffer in made
        for init in _inits(realize)
        for item in pre_order(init)
    )


def _inits(realize: BlockRealize) -> list[Stmt]:
    blocks = (item.block for item in pre_order(realize) if type(item) is BlockRealize)
    return [block.init for block in blocks if block.init is not None]


def _named(blocks: Collection[str]) -> str:
    return "block " + " and ".join(repr(name) for name in sorted(blocks))
