"""Which loops of a block a tensor intrinsic can replace, and how to tile them for it.

A rule that uses an intrinsic calls ``get_tensorize_loop_mapping`` first;
``tile_with_tensor_intrin`` splits the loops found by the intrinsic's extents and brings the inner
parts inside, where ``tensorize`` finds its nest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.arith import Analyzer
from tilewright.ir import Expr, Var, as_int, floormod, is_const, sub, uses_var
from tilewright.tir import OPAQUE, BlockRealize, For, IterVar, PrimFunc
from tilewright.tir.analysis import block_facts
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.primitives._tensor_match import (
    Axis,
    Description,
    Nest,
    Unreadable,
    assignments,
    description,
    match_body,
)
from tilewright.tir.tensor_intrin import TensorIntrin

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@dataclass(frozen=True)
class TensorizeInfo:
    """How a description's loops correspond to a block's.

    ``loop_map`` maps loops of the block to the loops of the description that will run their
    innermost tiles, ``desc_loop_indexer`` has the positions of these, outermost first. ``iter_map``
    maps iteration variables of the block to the description's. ``block_iter_paddings`` has the
    multiple that each iteration variable of the block must be padded to, or is ``None`` if nothing
    must be padded.
    """

    loop_map: dict[LoopRV, For]
    desc_loop_indexer: dict[For, int]
    iter_map: dict[IterVar, Var]
    block_iter_paddings: tuple[int, ...] | None


def get_tensorize_loop_mapping(
    sch: Schedule, block: BlockRV, desc_func: PrimFunc, allow_padding: bool = False
) -> TensorizeInfo | None:
    """Find loops of a block whose innermost tiles can become the loops of a description.

    The block must compute, element by element, what the description does: its iteration variables
    are assigned to the description's by what the bodies access, the last ones first. Each must be
    bound to a loop of its own of which the description's extent is a divisor; with
    ``allow_padding`` extents need not divide, and the result says what ``pad_einsum`` must pad.
    Returns ``None`` if there is no such correspondence.

    Raises ``ScheduleError`` if the description can't be read.
    """
    realize = sch.state.get_block(block)
    try:
        described = description(desc_func)
    except Unreadable as error:
        raise sch.error(f"the description can't be read: {error}") from None
    if not is_const(realize.predicate, 1) or block_facts(realize.block).kind == OPAQUE:
        return None
    analyzer = sch.state.analyzer_at(realize)
    for iter_var in realize.block.iter_vars:
        analyzer.bind(iter_var.var, iter_var.dom)
    loops = sch.state.loops_above(realize)
    places = {
        iter_var.var: place
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
        if (place := _loop_of(value, loops, realize, analyzer)) is not None
    }
    offered = [
        Axis(item.var, item.dom.extent, item.kind)
        for item in reversed(realize.block.iter_vars)
        if item.var in places and is_const(item.dom.min, 0)
    ]

    def fits(wanted: Axis, axis: Axis) -> bool:
        if wanted.kind and wanted.kind != axis.kind:
            return False
        if allow_padding:
            return as_int(axis.extent) is not None and as_int(wanted.extent) is not None
        extent = places[axis.var].extent
        return is_const(analyzer.simplify(floormod(extent, wanted.extent)), 0)

    theirs = described.nest
    last_first = Nest(tuple(reversed(theirs.axes)), theirs.body, theirs.ordered)
    mine = Nest(tuple(offered), realize.block.body, False)
    orders = assignments(last_first.axes, offered, fits)
    found, _ = match_body(mine, last_first, orders, analyzer)
    if found is None or theirs.ordered:
        return None
    return _info(sch, block, realize, described, found.axes, places)


def _loop_of(
    value: Expr, loops: list[For], realize: BlockRealize, analyzer: Analyzer
) -> For | None:
    """The innermost loop that counts in steps of one in a binding, and is used by no other."""
    for loop in reversed(loops):
        var = {loop.loop_var}
        if not uses_var(value, var) or not is_const(loop.min, 0):
            continue
        if uses_var(analyzer.simplify(sub(value, loop.loop_var)), var):
            continue
        if sum(uses_var(other, var) for other in realize.iter_values) == 1:
            return loop
    return None


def _info(
    sch: Schedule,
    block: BlockRV,
    realize: BlockRealize,
    described: Description,
    axes: dict[Var, Axis],
    places: dict[Var, For],
) -> TensorizeInfo | None:
    iters = {item.var: item for item in realize.block.iter_vars}
    loop_map: dict[LoopRV, For] = {}
    paddings = [1] * len(iters)
    order = list(iters)
    for axis in described.nest.axes:
        given = axes[axis.var]
        theirs = described.loop_of(axis)
        if theirs is None:
            return None
        place = places[given.var]
        wanted, present = as_int(axis.extent), as_int(place.extent)
        if wanted is not None and present is not None and present % wanted:
            if place.extent is not iters[given.var].dom.extent and present != as_int(given.extent):
                return None  # split already: padding the domain would not make this loop longer
            paddings[order.index(given.var)] = wanted
        loop_map[LoopRV(block.func, place.loop_var)] = theirs
    if len({id(handle.var) for handle in loop_map}) < len(loop_map):
        return None
    used = set(loop_map.values())
    indexer = {loop: n for n, loop in enumerate(x for x in described.loops if x in used)}
    return TensorizeInfo(
        loop_map,
        indexer,
        {iters[given.var]: theirs for theirs, given in axes.items()},
        tuple(paddings) if any(number > 1 for number in paddings) else None,
    )


def tile_with_tensor_intrin(
    sch: Schedule, block: BlockRV, intrin_name: str, allow_padding: bool = False
) -> LoopRV | None:
    """Split and reorder the loops of a block so that a tensor intrinsic fits the innermost ones.

    Returns the outermost of these loops, for ``tensorize``, or ``None`` if the intrinsic does not
    fit the block; then nothing is changed. With ``allow_padding`` the block is padded first
    (``pad_einsum``) where its extents are no multiples. The trace records the individual
    primitives.

    Raises ``ScheduleError`` if it doesn't fit even when padded.
    """
    desc = TensorIntrin.get(intrin_name).desc
    info = get_tensorize_loop_mapping(sch, block, desc, allow_padding)
    if info is None:
        return None
    if info.block_iter_paddings is not None:
        sch.pad_einsum(block, list(info.block_iter_paddings))
        info = get_tensorize_loop_mapping(sch, block, desc)
        if info is None:
            raise sch.error(f"block {block.name!r} does not fit {intrin_name!r} after padding")
    # Handles of the trace: those that get_loops returns.
    recorded = {handle.var: handle for handle in sch.get_loops(block)}
    inner: dict[int, LoopRV] = {}
    order: list[LoopRV] = []
    for var, handle in recorded.items():
        theirs = next((x for known, x in info.loop_map.items() if known.var is var), None)
        if theirs is None:
            order.append(handle)
            continue
        extent = as_int(theirs.extent)
        outer, tile = sch.split(handle, [None, extent])
        order.append(outer)
        inner[info.desc_loop_indexer[theirs]] = tile
    innermost = [inner[n] for n in sorted(inner)]
    first = min(n for n, handle in enumerate(order) if handle not in recorded.values())
    sch.reorder(*order[first:], *innermost)
    return innermost[0]
