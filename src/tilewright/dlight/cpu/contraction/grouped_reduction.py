"""Sums over groups, scaled and added up: products with group-quantised weights.

``out[m, n] = sum_g scale[g, n] * (sum_k x[m, g, k] * decode(w[g, k, n]))``: an inner reduction over
the members of a group, whose only reader is an outer one over the groups. The sums of one group are
computed for a register tile of results, and are added to it when the group is complete, so neither
decoded weights nor sums of groups go through memory. Constant operands along the vectors are packed
into panels as in :mod:`tiled_reduction`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dlight.cpu.contraction.form import (
    Nest,
    cut_tile,
    schedule_others,
    sum_in_registers,
    sum_up,
)
from tilewright.dlight.cpu.contraction.packing import Panels, copy_in_use, copy_operand, lay_out
from tilewright.dlight.cpu.contraction.plan import Plan
from tilewright.dlight.cpu.contraction.register_tile import Limits, Tile, rank_tiles, tile_registers
from tilewright.ir import dtypes
from tilewright.scheduling import (
    Contraction,
    CPUScheduleRule,
    NotApplicable,
    contraction_of,
    dimension_of,
    longest,
    others_after,
    stride,
)
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    fused_epilogue,
    inline_injective,
    is_injective,
    leaf_blocks,
    parallelize,
    work_of,
)
from tilewright.target import Target
from tilewright.tir import BufferLoad
from tilewright.tir.attrs import PREFETCH_DISTANCE
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

# Registers that decoding takes: words, constants, a decoded vector.
_DECODING = 6
# Members of a group that are written out one by one, so that what they are shifted by is constant.
_UNROLLED = 16


@dataclass(frozen=True, kw_only=True)
class GroupedPlan(Plan):
    """A tile of the outer reduction, inside which the inner one sums up a group."""

    inner: Contraction
    outer: Contraction


class GroupedReduction(CPUScheduleRule):
    """Applies to functions with a reduction over groups of another reduction's results."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
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
        plan = _choose_plan(sch, inner, outer, target)
        if isinstance(plan, NotApplicable):
            return plan
        done = {rv.name for rv in (inner, outer, *plan.outer.consumers)}
        for part in (plan.inner, plan.outer):
            done |= _pack_constants(sch, part, plan.tile.columns)
        _schedule_tile(sch, plan, target)
        schedule_others(sch, blocks, done, target)
        return sch


def _choose_plan(
    sch: Schedule, inner_block: BlockRV, outer_block: BlockRV, target: Target
) -> GroupedPlan | NotApplicable:
    inner, outer = contraction_of(sch, inner_block), contraction_of(sch, outer_block)
    if isinstance(inner, NotApplicable):
        return inner
    if isinstance(outer, NotApplicable):
        return outer
    if work_of(inner.steps) == 1:
        return NotApplicable("each group has one member")
    if len(outer.consumers) > 1 or not all(is_injective(sch, rv) for rv in outer.consumers):
        return NotApplicable("the reduction has several consumers")
    sums = inner.store.buffer
    reads = [load for load in outer.loads if load.buffer is sums]
    if len(outer.steps) != 1 or len(reads) != 1:
        return NotApplicable("the outer reduction is not over one axis of groups")
    if {id(index) for index in reads[0].indices} != {id(axis.var) for axis in outer.axes}:
        return NotApplicable("the outer reduction does not read each group's sum once")
    if not outer.places or not outer.is_contiguous(outer.places[-1]):
        return NotApplicable("no contiguous axis of results")
    *others, vector = outer.places
    place = dimension_of(reads[0], vector)
    own = [axis for axis in inner.spatial if place == dimension_of(inner.store, axis)]
    # What the outer reduction reads is little; it may lie apart.
    if not own or not all(_is_contiguous(inner, load, own[0]) for load in inner.loads):
        return NotApplicable("operands are not contiguous along the results")
    row = longest(others)
    lanes = target.vector_lanes(max(16, dtypes.bits_of(sums.dtype)))
    limits = Limits(lanes, tile_registers(target) - _DECODING, target.costs)
    tile = sch.choices.choose("grouped.tile", rank_tiles(row, vector, limits) or [Tile(1, lanes)])
    return GroupedPlan(row, vector, tile, None, False, False, inner=inner, outer=outer)


def _is_contiguous(found: Contraction, load: BufferLoad, axis: Axis) -> bool:
    """Whether neighbours along an axis are contiguous, or can be packed so beforehand."""
    packed = load.buffer in found.constants and any(i is axis.var for i in load.indices)
    return packed or stride(load, axis) in (0, 1)


def _pack_constants(sch: Schedule, found: Contraction, width: int) -> set[str]:
    """Pack constant operands in the order in which tiles read them; return the copies' names."""
    last = [axis for axis in found.axes if axis.var is found.store.indices[-1]]
    made = set()
    for load in found.loads:
        dims = [dimension_of(load, axis) for axis in last]
        if not dims or dims[0] is None or sum(x.buffer is load.buffer for x in found.loads) > 1:
            continue
        copy = _constant_copy(sch, found, load)
        if copy is not None:
            lay_out(sch, copy, Panels(dims[0], width))
            made.add(copy.name)
    return made


def _constant_copy(sch: Schedule, found: Contraction, load: BufferLoad) -> BlockRV | None:
    """The block that copies an operand when the program is built, if it is constant."""
    if load.buffer in found.constants:
        return copy_operand(sch, found.main, load.buffer)
    made = copy_in_use(sch, found.main, load.buffer)
    sources = {region.buffer for region in sch.get(made).reads} if made is not None else set()
    return made if len(sources) == 1 and sources <= found.constants else None


def _schedule_tile(sch: Schedule, plan: GroupedPlan, target: Target) -> None:
    inner, outer, (group,) = plan.inner.main, plan.outer.main, plan.outer.steps
    epilogue = fused_epilogue(sch, outer, plan.outer.consumers)
    around, tile = cut_tile(sch, plan.outer, plan)
    sum_in_registers(sch, outer, epilogue, Nest(around, [group.loop], tile))
    sch.compute_at(inner, group.loop)
    sch.set_scope(inner, 0, "local")
    _group_in_registers(sch, inner, len(around) + 1, target)
    parallelize(sch, around, target, 2 * work_of(plan.inner.axes))


def _group_in_registers(sch: Schedule, inner: BlockRV, skip: int, target: Target) -> None:
    """Move the loop over a group's members outside the tile."""
    axes = axes_of(sch, inner, skip)
    assert axes is not None
    members = [axis for axis in axes if axis.is_reduce]
    tile = [axis.loop for axis in axes if not axis.is_reduce]
    steps = [axis.loop for axis in members]
    sch.reorder(*steps, *tile)
    sum_up(sch, inner, steps, skip)
    last = members[-1]
    if len(tile) == 1:
        # Each weight is used once.
        ahead = int(target.costs.weights_ahead)
        ahead = sch.choices.choose("grouped.ahead", others_after(ahead, (ahead // 2, 2 * ahead)))
        sch.annotate(members[0].loop, PREFETCH_DISTANCE, ahead)
    if len(members) > 1 and last.extent is not None and last.extent <= _UNROLLED:
        sch.unroll(last.loop)
