"""Loops over time (``te.scan``): recurrent layers, filters, simulations.

A step is scheduled like a function (``step_blocks`` makes a block of it): its products in tiles of
registers, everything else by vectors. A matrix that all steps multiply by is laid out once, before
the first step, so that neighbours are neighbouring results: in panels as wide as a tile where a
step has several rows. What comes before and after the steps is scheduled apart, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.dlight.cpu.contraction import (
    MOST_ROWS,
    Panels,
    lay_out,
    rank_plans,
    schedule_packing,
    schedule_plan,
)
from tilewright.dlight.cpu.fallback import schedule_apart
from tilewright.dlight.cpu.step_blocks import STEP_BLOCKS, step_of
from tilewright.ir import Var, uses_var
from tilewright.scheduling import (
    CPUScheduleRule,
    NotApplicable,
    nests_of,
    reduction_of,
    warn_of_unscheduled,
)
from tilewright.scheduling.cpu import (
    inline_injective,
    leaf_blocks,
    loads_of,
    stores_of,
    stride_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import OPAQUE, REDUCE, Block, Buffer, BufferLoad
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

# Rows of a tile where their number comes with the call: few sequences go together, often 2 ** n.
_UNKNOWN_ROWS = 4


class TimeSteps(CPUScheduleRule):
    """Applies to functions with loops over time."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Make a block of each step; schedule what is in it, before and after."""
        if not any(map(step_of, nests_of(sch.mod["main"]))):
            return NotApplicable("there is no loop over time")
        inline_injective(sch)
        matrices = [made for rv in leaf_blocks(sch) if (made := _copied(sch, rv)) is not None]
        before = {rv.name for rv in leaf_blocks(sch)}
        sch.use_kernel("root", STEP_BLOCKS, {})
        steps = [rv.name for rv in leaf_blocks(sch) if rv.name not in before]
        for step in steps:
            inline_injective(sch, step)
        blocks = [rv for scope in ("root", *steps) for rv in leaf_blocks(sch, scope)]
        done = {*steps, *(name for item in matrices for name in _multiply(sch, item, target))}
        rest = [rv for rv in blocks if rv.name not in done]
        warn_of_unscheduled(sch, schedule_apart(sch, rest, target))
        return sch


@dataclass(frozen=True)
class _Matrix:
    """The ``copy`` of a matrix that block ``main`` reads as ``operand``; results are along ``dim``.

    The copy has that dimension last.
    """

    main: str
    copy: str
    operand: BufferLoad
    dim: int

    def columns(self, *items: Any) -> tuple[Any, ...]:
        """Indices, or loops, with the dimension of results last."""
        return (*items[: self.dim], *items[self.dim + 1 :], items[self.dim])


def _copied(sch: Schedule, rv: BlockRV) -> _Matrix | None:
    """Make a block of a step read a copy of a matrix whose neighbours aren't results."""
    block = sch.get(rv)
    if block.init is None or not _is_of_a_step(block) or len(stores_of(block)) != 1:
        return None
    blocks = [sch.get(other) for other in leaf_blocks(sch)]
    written = {region.buffer for b in blocks if _is_of_a_step(b) for region in b.writes}
    for place, region in enumerate(block.reads):
        found = None if region.buffer in written else _across(block, region.buffer)
        if found is not None:
            copy = sch.cache_read(rv, place, "global")
            return _Matrix(rv.name, copy.name, *found)
    return None


def _is_of_a_step(block: Block) -> bool:
    return bool(block.iter_vars) and block.iter_vars[0].kind == OPAQUE


def _across(block: Block, buffer: Buffer) -> tuple[BufferLoad, int] | None:
    """The read of a matrix along the reduction, and its dimension along which results are."""
    (store,), loads = stores_of(block), [x for x in loads_of(block) if x.buffer is buffer]
    steps = [axis.var for axis in block.iter_vars if axis.kind == REDUCE]
    last, time = store.indices[-1], block.iter_vars[0].var
    if len(loads) != 1 or not isinstance(last, Var) or uses_var(loads[0], {time}):
        return None
    if not any(stride_of(loads[0].indices, buffer, var) == 1 for var in steps):
        return None
    dims = [dim for dim, index in enumerate(loads[0].indices[:-1]) if index is last]
    return (loads[0], dims[0]) if len(dims) == 1 else None


def _multiply(sch: Schedule, matrix: _Matrix, target: Target) -> Sequence[str]:
    """Lay out a matrix; return the blocks that are scheduled with it, if it is in panels."""
    attempt = sch.copy()
    try:
        if _in_panels(attempt, matrix, target):
            sch.become(attempt)
            return matrix.main, matrix.copy
    except ScheduleError:
        pass  # in columns, which any tile reads
    copy = sch.get_block(matrix.copy)
    sch.transform_layout(copy, ("write", 0), matrix.columns)
    loops = sch.get_loops(copy)
    sch.reorder(*matrix.columns(*loops))
    return ()


def _in_panels(sch: Schedule, matrix: _Matrix, target: Target) -> bool:
    """Multiply by panels that are as wide as a tile of several rows; return whether it is one."""
    main, copy = sch.get_block(matrix.main), sch.get_block(matrix.copy)
    sch.cache_write(main, 0, "global")  # where the sums are read
    columns = sch.copy()
    columns.transform_layout(copy, ("write", 0), matrix.columns)
    found = reduction_of(columns, main)
    if isinstance(found, NotApplicable):
        return False
    known = all(axis.extent is not None for axis in found.places)
    plans = rank_plans(found, target, most_rows=MOST_ROWS if known else _UNKNOWN_ROWS)
    plan = next((p for p in plans if p.packed is None and not p.padded and p.row is not None), None)
    if plan is None or (plan.vector.extent or 1) % plan.tile.columns:
        return False
    panels = Panels(matrix.dim, plan.tile.columns)
    lay_out(sch, copy, panels)
    schedule_packing(sch, copy, matrix.operand, panels, target)
    schedule_plan(sch, main, plan, target)
    return True
