"""Taps of windows that read only padding, and the gain of skipping them.

With large dilations, or on small images, many products of a convolution are with zeros: a window
with dilation 12 reads only a quarter of an image of 14 rows. ``TiledReduction`` runs the channels
of a tap only for tiles whose pixels read the image with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.arith import Analyzer, conjuncts, linear_coefficients
from tilewright.dlight.cpu.contraction.plan import Plan
from tilewright.ir import GE, LT, Call, Expr, FloatImm, IntImm, Var, as_int, free_vars
from tilewright.scheduling import Reduction
from tilewright.scheduling.cpu import Axis, stores_of
from tilewright.target import Costs
from tilewright.tir import Block
from tilewright.tir.analysis import match_reduction
from tilewright.tir.schedule import Schedule

# Share of the steps that may be left for skipping the others to be worth its tests.
_WORTH = 0.96
# The same for lower tiles, of single places, to be worth looking at.
_WORTH_LOWER = 0.8
# Heights of tiles to choose from: higher ones meet the image with more taps.
_HEIGHTS = range(1, 15)


@dataclass(frozen=True)
class PaddedAxis:
    """An axis of a result, and the axis of its taps.

    A pixel reads element ``place * stride + tap * dilation - begin`` of an image of ``size``.
    """

    place: Axis
    tap: Axis
    stride: int
    dilation: int
    begin: int
    size: int

    def share(self, tile: int) -> float:
        """The fraction of taps that read the image, over all tiles of ``tile`` pixels."""
        places, taps = self.place.extent or 1, self.tap.extent or 1
        met = 0
        for tap in range(taps):
            for start in range(0, places, tile):
                first = start * self.stride + tap * self.dilation - self.begin
                last = first + (min(tile, places - start) - 1) * self.stride
                met += first < self.size and last >= 0
        return met / (taps * -(-places // tile))


def padded_axes(sch: Schedule, reduction: Reduction) -> list[PaddedAxis]:
    """Find the axes of a sum of products that read beyond an image, in a zero-padded copy."""
    found = []
    for rv in sch.get_producers(reduction.main):
        block = sch.get(rv)
        written = [region.buffer for region in block.writes]
        loads = [load for load in reduction.loads if load.buffer in written]
        if len(loads) != 1:
            continue
        for var, (low, high) in _bounds_of_padding(block).items():
            index = loads[0].indices[stores_of(block)[0].indices.index(var)]
            axis = _padded_axis(index, reduction.axes, low, high)
            if axis is not None:
                found.append(axis)
    return found


def _padded_axis(index: Expr, axes: Sequence[Axis], low: int, high: int) -> PaddedAxis | None:
    used = free_vars(index)
    places = [axis for axis in axes if axis.var in used and not axis.is_reduce]
    taps = [axis for axis in axes if axis.var in used and axis.is_reduce]
    if len(used) != 2 or len(places) != 1 or len(taps) != 1:
        return None
    (place,), (tap,) = places, taps
    linear = linear_coefficients(index, [place.var, tap.var])
    if linear is None or place.extent is None or tap.extent is None:
        return None
    stride, dilation, start = map(as_int, linear)
    if not stride or not dilation or start is None or stride < 0:
        return None
    return PaddedAxis(place, tap, stride, dilation, low - start, high - low)


def _bounds_of_padding(block: Block) -> dict[Var, tuple[int, int]]:
    """The bounds of its axes between which a block stores more than zeros."""
    stores = stores_of(block)
    value = stores[0].value if len(stores) == 1 else None
    if not isinstance(value, Call) or value.op.name != "if_then_else":
        return {}
    condition, _, other = value.args
    if not isinstance(other, (FloatImm, IntImm)) or other.value != 0:
        return {}
    low: dict[Var, int] = {}
    high: dict[Var, int] = {}
    for part in conjuncts(condition):
        if isinstance(part, (GE, LT)) and isinstance(part.a, Var):
            bound = as_int(part.b)
            if bound is not None:
                (low if isinstance(part, GE) else high)[part.a] = bound
    inside = [index for index in stores[0].indices if isinstance(index, Var)]
    return {v: (low[v], high[v]) for v in inside if v in low and v in high}


def skipped(plan: Plan, padded: Sequence[PaddedAxis]) -> list[PaddedAxis]:
    """The axes whose taps whole tiles of a plan can skip; none if that doesn't pay off."""
    able = [
        axis
        for axis in padded
        if (axis.place.extent or 0) % _extent(plan, axis) == 0
        and axis.share(_extent(plan, axis)) < 1
    ]
    return able if _share(plan, able) <= _WORTH else []


def uneven_taps(found: Reduction, remainders: Sequence[Axis]) -> list[Axis]:
    """The axes of taps of which some remainders of positions have fewer than others.

    A transposed convolution of three taps and stride two has two for one remainder, one for the
    other: the sum adds zero for what is missing.
    """
    sums = match_reduction(found.block)
    (added,) = sums.values if sums is not None and len(sums.values) == 1 else (None,)
    if not isinstance(added, Call) or added.op.name != "if_then_else":
        return []
    condition, _, other = added.args
    if not isinstance(other, (FloatImm, IntImm)) or other.value != 0:
        return []
    analyzer, wanted = Analyzer(), {axis.var for axis in (*remainders, *found.steps)}
    used: set[Var] = set()
    for part in conjuncts(condition):
        variables = set(free_vars(analyzer.simplify(part)))
        used |= variables if variables <= wanted else set()
    return [axis for axis in found.steps if axis.var in used]


def prefer_skipping(
    plans: list[Plan],
    padded: Sequence[PaddedAxis],
    ranked: Callable[[int], list[Plan]],
    costs: Costs,
) -> list[Plan]:
    """Put first the plan that takes the least time when padding taps are skipped.

    ``ranked`` ranks plans of at most a given number of rows.
    """
    row = plans[0].row
    along = [axis for axis in padded if row is not None and axis.place.var is row.var]
    if row is None or row.extent is None or not any(a.share(1) <= _WORTH_LOWER for a in along):
        return plans
    if any(axis.share(1) == 0 for axis in padded):
        return plans  # all that is read is padding: no step is left for any plan
    heights = [rows for rows in _HEIGHTS if row.extent % rows == 0 and rows < plans[0].tile.rows]
    others = [plan for rows in heights for plan in ranked(rows)[:1]]
    best = max((plans[0], *others), key=lambda plan: _score(plan, costs) / steps_left(plan, padded))
    return plans if best is plans[0] else [best, *plans]


def _score(plan: Plan, costs: Costs) -> float:
    """The fraction of the peak that a plan's tile reaches; low tiles are bound by loads."""
    loading = costs.panel_vector * costs.multiply_adds
    return min(plan.tile.score, plan.tile.rows / loading)


def steps_left(plan: Plan, padded: Sequence[PaddedAxis]) -> float:
    """The fraction of a plan's steps that remains when padding taps are skipped."""
    return _share(plan, skipped(plan, padded))


def _extent(plan: Plan, axis: PaddedAxis) -> int:
    if plan.row is not None and axis.place.var is plan.row.var:
        return plan.tile.rows
    return plan.tile.columns if axis.place.var is plan.vector.var else 1


def _share(plan: Plan, padded: Sequence[PaddedAxis]) -> float:
    return math.prod(axis.share(_extent(plan, axis)) for axis in padded)
