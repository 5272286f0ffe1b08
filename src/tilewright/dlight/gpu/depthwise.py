"""Depthwise convolutions and pooling: a thread has a few results below each other, in registers.

Windows of neighbouring results overlap: rows of the image that a thread has read serve all of its
results, and what neighbouring threads read comes from the first-level cache. Nothing else is
reused, so memory decides, not shared memory or tiles.
"""

from __future__ import annotations

from functools import partial

from tilewright.dlight.gpu.matmul import has_windows
from tilewright.scheduling import (
    Contraction,
    GPUScheduleRule,
    NotApplicable,
    describe,
    dimensions_of,
)
from tilewright.scheduling.blocks import Axis, work_of
from tilewright.scheduling.gpu import (
    attach,
    bind_flat,
    first_lowered,
    flat_threads,
    fused,
    inline_into,
    is_bound,
    limits_of,
    schedule_rest,
)
from tilewright.target import Target
from tilewright.tir import BufferLoad
from tilewright.tir.schedule import Schedule, others_after

_MOST_TAPS = 64
"""Taps of a window, all results of a thread together, that are written out."""


class Depthwise(GPUScheduleRule):
    """Applies to windows of which each result has its own channel: nothing is shared but windows.

    That are depthwise convolutions, and sums and extrema of windows.
    """

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Give each thread a few results of a column of the image."""
        found = describe(sch)
        if isinstance(found, NotApplicable):
            return found
        if not has_windows(found):
            return NotApplicable("no operand is read in windows")
        image = max(found.loads, key=lambda load: len(_windows(found, load)))
        if any(not dimensions_of(image, axis) for axis in found.places):
            return NotApplicable("channels are mixed")
        options = sch.choices.preferring(f"{found.block.name}.own", _own_options(found))
        ways = ((own, partial(_schedule, found=found, own=own, target=target)) for own in options)
        return first_lowered(sch, ways, target, "it has no results")


def _windows(found: Contraction, load: BufferLoad) -> set[int]:
    """The dimensions of an operand whose index is the sum of a result's axis and a step."""
    return {
        d
        for result in found.spatial
        for step in found.steps
        for d in set(dimensions_of(load, result)) & set(dimensions_of(load, step))
    }


def _column(found: Contraction) -> Axis | None:
    """The axis along which a thread has several results: one of windows, not the contiguous one."""
    last = [axis for axis in found.places if found.is_contiguous(axis)]
    for axis in reversed(found.places):
        if axis not in last and any(found.taps(load, axis) for load in found.loads):
            return axis
    return None


def _own_options(found: Contraction) -> list[int]:
    """How many results a thread may have: numbers that divide the axis, the preferred one first."""
    axis = _column(found)
    extent = None if axis is None else axis.extent
    options = [n for n in (4, 2, 8) if extent and extent % n == 0]
    return others_after(options[0], [*options, 1]) if options else [1]


def _schedule(sch: Schedule, found: Contraction, own: int, target: Target) -> None:
    inline_into(sch, found.main)
    last = [axis for axis in found.places if found.is_contiguous(axis)][-1:]
    column = _column(found)
    outer = [axis.loop for axis in found.spatial if axis not in last]
    several = None
    if column is not None and own > 1:
        rest, several = sch.split(column.loop, [None, own])
        outer = [rest if loop is column.loop else loop for loop in outer]
    flat = [*outer, *(axis.loop for axis in last)]
    steps = [axis.loop for axis in found.steps]
    sch.reorder(*flat, *([several] if several is not None else []), *steps)
    result = fused(sch, flat) if flat else sch.add_unit_loop(steps[0])
    attach(sch, found.main, found.consumers, result)
    known = all(axis.extent is not None for axis in found.spatial)
    work = work_of(found.spatial) // own if known else None
    thread = bind_flat(sch, [result], flat_threads(limits_of(target), work))
    if several is not None:
        sch.unroll(several)
    around = len(sch.state.loops_above(sch.get(thread))) + 1
    for consumer in found.consumers:
        if is_bound(sch, consumer):
            for loop in sch.get_loops(consumer)[around:]:
                sch.unroll(loop)
    taps = work_of(found.steps) if all(a.extent is not None for a in found.steps) else 0
    if 0 < taps * own <= _MOST_TAPS:
        for step in steps:
            sch.unroll(step)
    schedule_rest(sch, target)
