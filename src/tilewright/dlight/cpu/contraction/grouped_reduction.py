"""Reductions of groups, scaled and added up: products with group-quantised weights.

``out[m, n] = sum_g scale[g, n] * (sum_k x[m, g, k] * decode(w[g, k, n]))``: an inner reduction over
the members of a group, whose only reader is an outer one over the groups. The sums of one group
are computed for a register tile of results, and are added to it when the group is done, so neither
decoded weights nor sums of groups go through memory. Operands along the vectors are packed into
panels as in :mod:`tiled_reduction`, if they are known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.dot_packing import constants_of
from tilewright.dlight.cpu.contraction.register_tile import Tile, rank_tiles
from tilewright.ir import Expr, Var, dtypes, uses_var
from tilewright.scheduling import NotApplicable, ScheduleRule, choose, others_after
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    inline_injective,
    is_injective,
    leaf_blocks,
    loads_of,
    parallelize,
    schedule_injective,
    schedule_reduction,
    stores_of,
    stride_of,
    vectorize_tile,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import BufferLoad
from tilewright.tir.attrs import LAYOUT_REWRITE, PREFETCH_DISTANCE
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Registers that decoding takes: words, constants, a decoded vector.
_DECODING = 6
# Members of a group that are written out one by one, so that what they are shifted by is constant.
_UNROLLED = 16
# Bytes that weights are fetched ahead where each is used once.
_AHEAD = 8192


@dataclass(frozen=True)
class Plan:
    """The two reductions, the axes of the outer one that make the tile, and the tile."""

    inner: BlockRV
    outer: BlockRV
    group: Axis
    row: Axis | None
    vector: Axis
    tile: Tile


class GroupedReduction(ScheduleRule):
    """Applies to functions with a reduction over groups of another one's results."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Compute the sums of a group in registers, next to the sum of all groups."""
        inline_injective(sch)
        blocks = leaf_blocks(sch)
        reductions = [rv for rv in blocks if not is_injective(sch, rv)]
        if len(reductions) < 2:
            return NotApplicable(f"{len(reductions)} reductions, two or more are expected")
        outer = reductions[-1]
        inner = max(reductions[:-1], key=lambda rv: work_of(axes_of(sch, rv) or []))
        if any([r.name for r in sch.get_consumers(rv)] != [outer.name] for rv in reductions[:-1]):
            return NotApplicable("the last reduction is not all that reads the others")
        consumers = sch.get_consumers(outer)
        if len(consumers) > 1 or not all(is_injective(sch, rv) for rv in consumers):
            return NotApplicable("the reduction has several consumers")
        plan = _choose_plan(sch, inner, outer, target)
        if isinstance(plan, NotApplicable):
            return plan
        taken = {rv.name for rv in (inner, outer, *consumers)}
        others = [rv for rv in blocks if rv.name not in taken]
        for block in (inner, outer):
            _pack_constants(sch, block, plan)
        _schedule_tile(sch, consumers, plan, target)
        for rv in others:
            if sch.get(rv).annotations.get(LAYOUT_REWRITE):
                continue
            if is_injective(sch, rv):
                schedule_injective(sch, rv, target)
            else:
                schedule_reduction(sch, rv, target)
        return sch


def _choose_plan(
    sch: Schedule, inner: BlockRV, outer: BlockRV, target: Target
) -> Plan | NotApplicable:
    axes, below = axes_of(sch, outer), axes_of(sch, inner)
    if axes is None or below is None:
        return NotApplicable("the loops are not the axes")
    groups = [axis for axis in axes if axis.is_reduce]
    block = sch.get(outer)
    sums = sch.get(inner).writes[0].buffer
    reads = [load for load in loads_of(block) if load.buffer is sums]
    if len(groups) != 1 or len(reads) != 1 or len(sch.get(inner).writes) != 1:
        return NotApplicable("the outer reduction is not over one axis of groups")
    if {id(index) for index in reads[0].indices} != {id(axis.var) for axis in axes}:
        return NotApplicable("the outer reduction does not read each group's sum once")
    store = stores_of(block)[0]
    spatial = [axis for axis in axes if not axis.is_reduce and axis.extent != 1]
    if not spatial or stride_of(store.indices, store.buffer, spatial[-1].var) != 1:
        return NotApplicable("no contiguous axis of results")
    vector = spatial[-1]
    place = next(d for d, index in enumerate(reads[0].indices) if index is vector.var)
    own = next(axis for axis in below if axis.var is stores_of(sch.get(inner))[0].indices[place])
    # What the outer reduction reads is little; it may lie apart.
    if not _is_contiguous(sch, inner, own):
        return NotApplicable("operands are not contiguous along the results")
    row = max(spatial[:-1], key=lambda axis: axis.extent or 64, default=None)
    lanes = target.vector_lanes(max(16, dtypes.bits_of(sums.dtype)))
    tiles = rank_tiles(row, vector, lanes, target.vector_registers - _DECODING, target.costs)
    tile = choose("grouped.tile", tiles or [Tile(1, lanes)])
    return Plan(inner, outer, groups[0], row, vector, tile)


def _is_contiguous(sch: Schedule, rv: BlockRV, axis: Axis) -> bool:
    """Whether neighbours along an axis lie side by side, or can be packed so beforehand."""
    constants = constants_of(sch.mod["main"])
    for load in loads_of(sch.get(rv)):
        packed = load.buffer in constants and any(index is axis.var for index in load.indices)
        if not packed and stride_of(load.indices, load.buffer, axis.var) not in (0, 1):
            return False
    return True


def _pack_constants(sch: Schedule, rv: BlockRV, plan: Plan) -> None:
    """Lay what the tiles read of constant operands one after the other."""
    width = plan.tile.columns
    last = stores_of(sch.get(rv))[0].indices[-1]
    for load in loads_of(sch.get(rv)):
        dims = [d for d, index in enumerate(load.indices) if uses_var(index, _as_vars(last))]
        if len(dims) != 1 or load.indices[dims[0]] is not last:
            continue
        if sum(item.buffer is load.buffer for item in loads_of(sch.get(rv))) > 1:
            continue
        copy = _constant_copy(sch, rv, load)
        if copy is None:
            continue
        sch.transform_layout(copy, ("write", 0), _panels(dims[0], width))
        sch.annotate(copy, LAYOUT_REWRITE, True)


def _panels(dim: int, width: int) -> Callable[..., tuple[Expr, ...]]:
    """The layout that cuts a dimension into panels, within which it comes last."""

    def layout(*i: Expr) -> tuple[Expr, ...]:
        return (i[dim] // width, *i[:dim], *i[dim + 1 :], i[dim] % width)

    return layout


def _as_vars(index: Expr) -> set[Var]:
    return {index} if isinstance(index, Var) else set()


def _constant_copy(sch: Schedule, rv: BlockRV, load: BufferLoad) -> BlockRV | None:
    """The block that makes a copy of an operand when the program is built, if it is constant."""
    constants = constants_of(sch.mod["main"])
    if load.buffer in constants:
        buffers = [region.buffer for region in sch.get(rv).reads]
        copy: BlockRV = sch.cache_read(rv, buffers.index(load.buffer), "global")
        return copy
    for producer in sch.get_producers(rv):
        block = sch.get(producer)
        if load.buffer in [region.buffer for region in block.writes]:
            sources = {region.buffer for region in block.reads}
            alone = len(sch.get_consumers(producer)) == 1 and is_injective(sch, producer)
            return producer if alone and len(sources) == 1 and sources <= constants else None
    return None


def _schedule_tile(sch: Schedule, consumers: Sequence[BlockRV], plan: Plan, target: Target) -> None:
    inner, outer, row, vector = plan.inner, plan.outer, plan.row, plan.vector
    axes = axes_of(sch, outer)
    assert axes is not None
    work = work_of(axes_of(sch, inner) or axes)
    if consumers:
        epilogue = consumers[0]
        sch.set_scope(outer, 0, "local")
    else:
        epilogue = sch.cache_write(outer, 0, "local")
    around = [
        axis.loop for axis in axes if not axis.is_reduce and axis.var not in _vars(row, vector)
    ]
    tile: list[LoopRV] = []
    column_outer, column_inner = sch.split(vector.loop, [None, plan.tile.columns])
    around.insert(0, column_outer)
    if row is not None:
        row_outer, row_inner = sch.split(row.loop, [None, plan.tile.rows])
        around.append(row_outer)
        tile.append(row_inner)
    sch.reorder(*around, plan.group.loop, *tile, column_inner)
    sch.reverse_compute_at(epilogue, around[-1])
    init = sch.decompose_reduction(outer, plan.group.loop)
    sch.compute_at(inner, plan.group.loop)
    sch.set_scope(inner, 0, "local")
    depth = len(around)
    start = _group_in_registers(sch, inner, depth + 1)
    for rv, skip in ((outer, depth + 1), (init, depth), (epilogue, depth), (start, depth + 1)):
        vectorize_tile(sch, sch.get_loops(rv)[skip:])
    parallelize(sch, around, target, 2 * work)


def _vars(*axes: Axis | None) -> set[object]:
    return {axis.var for axis in axes if axis is not None}


def _group_in_registers(sch: Schedule, inner: BlockRV, skip: int) -> BlockRV:
    """Bring the members of a group outside of the tile; return the block that starts the sums."""
    axes = axes_of(sch, inner, skip)
    assert axes is not None
    members = [axis for axis in axes if axis.is_reduce]
    tile = [axis.loop for axis in axes if not axis.is_reduce]
    sch.reorder(*(axis.loop for axis in members), *tile)
    init: BlockRV = sch.decompose_reduction(inner, members[0].loop)
    vectorize_tile(sch, tile)
    last = members[-1]
    if len(tile) == 1:
        ahead = choose("grouped.ahead", others_after(_AHEAD, (_AHEAD // 2, 2 * _AHEAD)))
        sch.annotate(members[0].loop, PREFETCH_DISTANCE, ahead)
    if len(members) > 1 and last.extent is not None and last.extent <= _UNROLLED:
        sch.unroll(last.loop)
    return init
