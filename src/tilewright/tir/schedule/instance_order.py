"""Do the instances of a reduction still update each element in the same order?

The loops of a reduction whose updates don't commute (``analysis.update_order``) may be changed only
if the instances of each element keep their order. That holds

- for a reordering, if the loops that choose among the instances of an element keep their order
  (loops that choose elements may go anywhere);
- for a new nest that runs through the axes in their order, if the old loops did so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer
from tilewright.ir import Expr, Var, as_int, const, free_vars, is_const
from tilewright.tir import REDUCE, BlockRealize, For
from tilewright.tir.analysis import linear_terms
from tilewright.tir.analysis.update_order import check_updates_commute
from tilewright.tir.schedule.state import ScheduleState

if TYPE_CHECKING:
    from tilewright.support.errors import ScheduleError
    from tilewright.tir.schedule.schedule import Schedule


def check_order_kept(
    sch: Schedule, realize: BlockRealize, old: Sequence[For], new: Sequence[For], what: str
) -> None:
    """Refuse a reordering of loops around a reduction if an element's updates may change order.

    The bindings must be injective.
    """
    why = check_updates_commute(realize.block)
    if not why:
        return
    spatial, reduce = _variables(realize)
    if spatial & reduce:
        involved = [item for item in old if not is_const(item.extent, 1)]
    else:
        involved = [
            item for item in old if item.loop_var not in spatial and not is_const(item.extent, 1)
        ]
    if involved != [item for item in new if item in involved]:
        raise _ordered(sch.state, realize, what, why)


def check_axes_in_order(
    state: ScheduleState, realize: BlockRealize, loops: Sequence[For], what: str
) -> None:
    """Refuse a new nest for a reduction whose loops don't run its axes in their order."""
    why = check_updates_commute(realize.block)
    if why and not _runs_in_order(state, realize, loops):
        raise _ordered(state, realize, what, why)


def check_axes_mapped_in_order(
    state: ScheduleState,
    realize: BlockRealize,
    loops: Sequence[For],
    values: Sequence[Expr],
    axes: Iterable[Any],
    analyzer: Analyzer,
) -> None:
    """Refuse new ``axes`` that would run a reduction in another order than its ``loops``.

    Each loop is an axis of the block; ``values`` are these axes in terms of the new ones.
    """
    why = check_updates_commute(realize.block)
    if not why:
        return
    places = {var: n for n, var in enumerate(realize.iter_values)}
    old: Expr = const(0)
    for loop in loops:
        place = places.get(loop.loop_var)
        if place is not None and realize.block.iter_vars[place].kind == REDUCE:
            old = old * loop.extent + values[place]
    new: Expr = const(0)
    for axis in axes:
        if axis.kind == REDUCE:
            new = new * axis.dom.extent + axis.var
    if not analyzer.can_prove_equal(old, new):
        raise _ordered(state, realize, "the map", why)


def _ordered(state: ScheduleState, realize: BlockRealize, what: str, why: str) -> ScheduleError:
    return state.error(
        f"the updates of reduction block {realize.block.name!r} don't commute: {why}; {what} "
        "could change the result",
        realize,
        remedy="keep the order of the reduction's loops; a reducer of your own can be registered "
        "by tir.register_reducer",
    )


def _variables(realize: BlockRealize) -> tuple[set[Var], set[Var]]:
    """The variables that choose elements, and those that choose among updates of one."""
    spatial: set[Var] = set()
    reduce: set[Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        (reduce if iter_var.kind == REDUCE else spatial).update(free_vars(value))
    return spatial, reduce


def _runs_in_order(state: ScheduleState, realize: BlockRealize, loops: Sequence[For]) -> bool:
    """Whether the instances of each element run in the order of the block's reduction axes."""
    spatial, reduce = _variables(realize)
    if spatial & reduce:
        return False
    involved = [item for item in loops if item.loop_var in reduce and not is_const(item.extent, 1)]
    place: Expr = const(0)
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        if iter_var.kind == REDUCE:
            place = place * iter_var.dom.extent + value
    known = linear_terms(place)
    sizes = [as_int(item.extent) for item in involved]
    if known is not None and None not in sizes:
        # Each step of a loop goes further than all that is inside of it.
        reach = 0
        for item, size in zip(reversed(involved), reversed(sizes)):
            step = known[0].get(item.loop_var, 0)
            if step <= reach:
                return False
            reach += step * (size - 1)  # type: ignore[operator]
        return True
    flat: Expr = const(0)
    for item in involved:
        flat = flat * item.extent + (item.loop_var - item.min)
    analyzer = state.analyzer_at(realize)
    start = analyzer.simplify(place - flat)
    return not any(var in reduce for var in free_vars(start))
