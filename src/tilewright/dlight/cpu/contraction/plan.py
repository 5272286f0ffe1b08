"""Tilings of a contraction: the plans from which ``TiledReduction`` chooses.

A plan says along which axis of the result vectors run, how large the register tile is, and whether
the operand that varies along the vectors is read in place, packed or gathered. Plans are ranked by
an estimate: cycles of a step (``register_tile``), the cost of packing, and the cost of writing the
result. The search uses them too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.dlight.cpu.contraction.register_tile import (
    MOST_ROWS,
    Limits,
    Tile,
    rank_tiles,
    rows_in_cache,
    tile_registers,
    tile_score,
)
from tilewright.ir import Expr, as_int, dtypes, free_vars, uses_var
from tilewright.scheduling import Reduction, depends, dimensions_of, longest, stride
from tilewright.scheduling.cpu import Axis, coefficient_of, element_bits, sharing_of, work_of
from tilewright.target import Costs, Target
from tilewright.tir import BufferLoad
from tilewright.tir.analysis import has_branch

# With fewer rows than this, packing an operand in the call costs more than it saves.
_ROWS_TO_PACK = 8
# Neighbours at small distances (strided convolutions) are loaded one by one; long ones are packed.
_SMALL_STRIDE = 4
# An operand whose elements for one step of a reduction are so many bytes from those of the next,
# for so many steps, shares few cache sets and touches many pages.
_FAR_APART, _DEEP = 1024, 128
# The largest distance of neighbours that are laid side by side.
_MOST_APART = 8
# Rows of a multiple of so many elements are transposed as they are packed.
_LINE = 4
# Vectors of a tile that is narrow enough for the deepest panel, and of a wide one.
_NARROW, _WIDE = 3, 4
# Bytes of a cache line, and the share of the first-level cache for lines of an operand in place.
_CACHE_LINE, _L1_SHARE = 64, 0.75
#: Iterations of a parallel loop per core that keep cores evenly busy.
TASKS_PER_CORE = 4


@dataclass(frozen=True)
class Plan:
    """The axes of the tile, and how operand and result are handled for it.

    ``gathered``: a panel holds what the reduction reads, step by step: the operand's elements as
    often as they are used (as im2col does). ``overlapped``: the last tile along the vectors begins
    early enough to be whole.
    """

    row: Axis | None
    vector: Axis
    tile: Tile
    packed: BufferLoad | None
    constant: bool
    transposed: bool
    padded: bool = False
    gathered: bool = False
    overlapped: bool = False


def rank_plans(
    found: Reduction,
    target: Target,
    *,
    widths: int = 1,
    row_step: int = 1,
    most_rows: int = MOST_ROWS,
    partly: bool = False,
    overlap: bool = False,
) -> list[Plan]:
    """Return the ways to tile a reduction, best first; none if no axis is suitable.

    For each axis and way of packing there are up to ``widths`` tiles, of a multiple of ``row_step``
    rows, at most ``most_rows``. ``partly``: all operands may vary along the vectors, if rows of a
    tile share what is loaded of some. ``overlap``: results may be written twice.
    """
    wanted = _Wanted(target, widths, row_step, most_rows, partly, overlap)
    plans = [plan for vector in found.places for plan in _plans_along(found, vector, wanted)]
    # The contiguous axis, which is last, wins a tie.
    plans.reverse()
    return sorted(plans, key=lambda plan: plan.tile.score, reverse=True)


@dataclass(frozen=True)
class _Wanted:
    """The target and the limits of tiles."""

    target: Target
    widths: int
    row_step: int
    most_rows: int
    partly: bool
    overlap: bool


def _plans_along(found: Reduction, vector: Axis, wanted: _Wanted) -> list[Plan]:
    """The plans with vectors along an axis, along which the result may be contiguous."""
    moving = found.along(vector)
    if len(moving) == len(found.loads):
        shared = _partly_shared(found, vector) if wanted.partly else []
        return _Along(found, vector, moving, shared, wanted).in_place() if shared else []
    computed = uses_var(found.store.value, {vector.var})
    if not moving and not (found.is_contiguous(vector) and computed):
        return []
    rows = [axis for axis in found.reusing(*moving) if axis is not vector]
    if not (found.is_contiguous(vector) or rows):
        return []
    moving = [load for load in moving if not _is_kept(load, vector, found.steps)] or moving
    return _Along(found, vector, moving, rows, wanted).plans()


class _Along:
    """Plans with vectors along one axis: operand in place, packed, packed and padded, gathered.

    ``moving`` are the operands that vary along it, ``rows`` the axes that these don't depend on. If
    there are none, a tile's rows are along an axis that shares arithmetic (``shared_work``).
    """

    def __init__(
        self,
        found: Reduction,
        vector: Axis,
        moving: Sequence[BufferLoad],
        rows: Sequence[Axis],
        wanted: _Wanted,
    ) -> None:
        self.found, self.target, self.wanted = found, wanted.target, wanted
        self.vector, self.moving = vector, moving
        self.contiguous = found.is_contiguous(vector)
        self.columns = vector.extent or 0
        if self.contiguous:
            self.row = longest(rows) or _sharing_axis(found, vector, wanted.target.costs)
        else:
            # The tile's rows are written side by side: they are the axis that is stored that way.
            self.row = rows[-1]
        self.others = found.other_than(*moving)
        self.strides = [stride(load, vector) for load in moving]
        self.side_by_side = all(apart == 1 for apart in self.strides)
        self.parts = _has_parts(moving, vector)
        self.constant = len(moving) == 1 and moving[0].buffer in found.constants
        self.uses = work_of(rows)
        steps = work_of(found.steps)
        self.step_bytes = sum(dtypes.bytes_of(load.buffer.dtype) for load in moving) * steps

    def plans(self) -> list[Plan]:
        """All plans; of equal ones the last wins."""
        moving, strides, uses = self.moving, self.strides, self.uses
        costs = self.target.costs
        worth = self._worth()
        made = self._in_place(worth)
        packable = len(moving) == 1 and _is_packable(moving[0], self.vector)
        if packable and not self.constant:
            worth *= uses / (uses + (costs.copy_uses if strides[0] == 1 else costs.transpose_uses))
        panels = []
        if packable and (self.constant or uses >= _ROWS_TO_PACK):
            panels = self._tiled(moving[0], self.constant, not self.parts, worth)
            if strides[0] != 1 and _run_after(moving[0], self.vector) % _LINE:
                made, panels = made + panels, []
        gathers = self.contiguous and not self.constant and uses >= _ROWS_TO_PACK
        gathers = gathers and not any(map(self.found.is_read_otherwise, moving))
        if gathers and _is_gathered(moving, strides, self.vector, self.target):
            if not packable:
                worth *= uses / (uses + costs.gather_uses)
            made += self._tiled(moving[0], False, False, worth, gathered=True)
        return made + panels

    def in_place(self) -> list[Plan]:
        """The plans that read operands in place, whose neighbours are side by side."""
        return self._in_place(self._worth()) if self.side_by_side else []

    def _worth(self) -> float:
        """The fraction of a tile's rate that remains, however the operand is read."""
        reduce = self.found.steps
        costs, far = self.target.costs, any(_is_scattered(load, reduce) for load in self.others)
        worth = costs.scattered if far else 1.0
        if not self.contiguous:
            worth *= work_of(reduce) / (work_of(reduce) + costs.transpose_steps)
        return worth

    def _in_place(self, worth: float) -> list[Plan]:
        """Plans that read the operand in place."""
        near = all(s is not None and abs(s) <= _SMALL_STRIDE for s in self.strides)
        costs = self.target.costs
        if not (self.contiguous and near):
            return []
        if not self.side_by_side:
            worth *= costs.one_by_one
        elif any(_is_scattered(load, self.found.steps) for load in self.moving):
            worth *= costs.scattered
        # What lies beyond the end is not read under a mask.
        return self._tiled(None, False, self.side_by_side and self.target.has("avx512f"), worth)

    def _tiled(
        self,
        packed: BufferLoad | None,
        constant: bool,
        whole: bool,
        worth: float,
        gathered: bool = False,
    ) -> list[Plan]:
        """Plans with the best tiles, including padded ones if the last tile may be ``whole``."""
        extent, made = self.vector.extent or 1, []
        for padded in (False, True) if whole else (False,):
            tiles = self._tiles(padded, packed is not None)
            if packed is not None and not gathered and (self.parts or not (constant or padded)):
                # No panel reaches from one part into the next, none is packed cut off in the call.
                tiles = [tile for tile in tiles if extent % tile.columns == 0]
            if whole and self.contiguous and not padded and self._by_columns():
                tiles = [t for t in tiles if not leaves_few_columns(t, self.columns, self.target)]
            if packed is None and not self.constant:
                tiles = self._preferring_one_pass(tiles)
            share = self._share_of_rate(packed, padded, constant)
            for tile in tiles[: self.wanted.widths]:
                if not padded or self.columns % tile.columns:
                    scored = replace(tile, score=tile.score * worth * share)
                    plan = Plan(
                        self.row, self.vector, scored, packed, constant, not self.contiguous
                    )
                    made.append(replace(plan, padded=padded, gathered=gathered))
        if not gathered and self._may_overlap(packed, constant):
            made += self._overlapped(packed, worth)
        return made

    def _share_of_rate(self, packed: BufferLoad | None, padded: bool, constant: bool) -> float:
        """The fraction of a tile's rate that remains if tiles or panels are padded."""
        if not padded:
            return 1.0
        if packed is None:
            return self.target.costs.masked_tile
        return 1.0 if constant else self._padding_share()

    def _may_overlap(self, packed: BufferLoad | None, constant: bool) -> bool:
        """Whether the last tile may begin early; with AVX-512 masks cost less than that."""
        plain = self.wanted.overlap and self.contiguous and self.side_by_side and not constant
        able = (
            self.row is not None and len(self.found.steps) == 1 and not self.target.has("avx512f")
        )
        return plain and able and (packed is None or not self.found.is_read_otherwise(packed))

    def _overlapped(self, packed: BufferLoad | None, worth: float) -> list[Plan]:
        """Plans with whole tiles, the last of which begins before the end of the one before."""
        made, known = [], self.row is not None and self.row.extent is not None
        # Tall tiles of one vector suit few rows; of a number that comes with the call most aren't.
        least = 0 if known else 2 * self.target.vector_lanes(element_bits(self.found.block))
        for tile in self._tiles(True, packed is not None):
            cut = self.columns > tile.columns and self.columns % tile.columns
            if cut and tile.columns >= least:
                share = worth * self.target.costs.overlapped
                share *= self._unpacked_share(tile) if packed is None else 1.0
                scored = replace(tile, score=tile.score * share)
                plan = Plan(self.row, self.vector, scored, packed, False, False, overlapped=True)
                made.append(plan)
        return made[: self.wanted.widths]

    def _unpacked_share(self, tile: Tile) -> float:
        """The fraction of the rate that remains where the first cache doesn't hold a tile's lines.

        Each row of the operand begins and ends within one.
        """
        steps = work_of(self.found.steps)
        lines = self.step_bytes * tile.columns + _CACHE_LINE * steps
        return 1.0 if lines <= _L1_SHARE * self.target.l1_bytes else self.target.costs.split_lines

    def _tiles(self, padded: bool, packed: bool) -> list[Tile]:
        target, wanted = self.target, self.wanted
        fitting = (_rows_of(load, self.row, target) for load in self.others)
        lanes = target.vector_lanes(max(16, element_bits(self.found.block)))
        widest = int(target.costs.panel_share * target.l2_bytes / max(1, self.step_bytes))
        step_costs = self._step_costs()
        if step_costs is not target.costs:
            # Rows pass through the cache beside the panel.
            room = int(target.costs.far_panel_share * target.l2_bytes / max(1, self.step_bytes))
            widest = min(widest, max(room, _NARROW * lanes))
        limits = Limits(
            lanes,
            tile_registers(target),
            step_costs,
            most_rows=min([wanted.most_rows, *fitting]),
            most_columns=widest,
            whole=padded,
            masked=target.has("avx512f") and (self.side_by_side or packed),
            row_step=wanted.row_step,
            # Where steps are left out, cutting rows off as well costs more than the wait.
            waits=not has_branch(self.found.block),
        )
        tiles = rank_tiles(self.row, self.vector, limits)
        if step_costs is target.costs:
            return tiles
        # That rows come late says which tile is best here, not which plan: others copy from afar.
        limits = replace(limits, costs=target.costs)
        return [
            replace(t, score=tile_score(self.row, self.vector, (t.rows, t.columns), limits))
            for t in tiles
        ]

    def _step_costs(self) -> Costs:
        """The costs of a step; scalars of an operand that the near caches don't hold come late.

        Each column of tiles reads all rows again, so wide tiles read them less often. Operands that
        are constant are laid out and fetched ahead.
        """
        costs, constants = self.target.costs, self.found.constants
        if any(load.buffer in constants for load in self.found.loads):
            return costs
        cores, lanes = self.target.num_cores, self.target.vector_lanes(32)
        if cores > 1 and 0 < self.columns < TASKS_PER_CORE * cores * _WIDE * lanes:
            return costs  # wide tiles would be too few for all threads
        size = max((_known_bytes(load) for load in self.others), default=0)
        # Little of an operand twice as large as the cache is still there in the next pass.
        if size <= self.target.l2_bytes:
            return costs
        missing = min(1.0, 2 - 2 * self.target.l2_bytes / size)
        return replace(costs, scalar_wait=costs.scalar_wait + costs.far_scalar_wait * missing)

    def _preferring_one_pass(self, tiles: Sequence[Tile]) -> list[Tile]:
        """Tiles, with a better score for those as wide as the result: they read rows only once."""
        one_pass = self.target.costs.one_pass
        scored = [
            replace(tile, score=tile.score * (one_pass if tile.columns == self.columns else 1.0))
            for tile in tiles
        ]
        return sorted(scored, key=lambda tile: tile.score, reverse=True)

    def _by_columns(self) -> bool:
        return not pass_by_rows(self.step_bytes * self.columns, self.target)

    def _padding_share(self) -> float:
        """The fraction of the rate that remains if panels are padded elementwise in each call."""
        if self.strides[0] == 1:
            return 1.0
        costs = self.target.costs
        return (self.uses + costs.transpose_uses) / (self.uses + costs.scatter_uses)


def _partly_shared(found: Reduction, vector: Axis) -> list[Axis]:
    """The axes on which some operand doesn't depend, if results are contiguous along another."""
    if not found.is_contiguous(vector):
        return []
    return [
        axis
        for axis in reversed(found.places)  # of equal ones that of the nearest elements wins
        if axis is not vector and not all(depends(load, axis) for load in found.loads)
    ]


def _sharing_axis(found: Reduction, vector: Axis, costs: Costs) -> Axis | None:
    """The axis along which results share most of what each step computes."""
    shared = sharing_of(found.store.value, found.places, vector, MOST_ROWS, costs)
    return None if shared is None else shared.axis


def pass_by_rows(size: int, target: Target) -> bool:
    """Whether ``size`` bytes of an operand stay in the cache between tiles of rows."""
    return size <= target.costs.columns_share * target.l2_bytes


def leaves_few_columns(tile: Tile, extent: int, target: Target) -> bool:
    """Whether there are too few columns of tiles, the last one partial, for all threads."""
    few = -(-extent // tile.columns) < TASKS_PER_CORE * target.num_cores
    return target.num_cores > 1 and few and extent % tile.columns != 0


def _rows_of(load: BufferLoad, row: Axis | None, target: Target) -> int:
    """The most rows of a tile that read an operand without evicting each other from the cache."""
    apart = None if row is None else stride(load, row)
    return rows_in_cache(abs(apart or 1) * dtypes.bytes_of(load.buffer.dtype), target)


def _known_bytes(load: BufferLoad) -> int:
    """The size of an operand; 0 if it comes with the call."""
    extents = [as_int(extent) or 0 for extent in load.buffer.shape]
    return math.prod(extents) * dtypes.bytes_of(load.buffer.dtype)


def is_scattered(pitch: int, steps: float) -> bool:
    """Whether so many steps of a reduction, ``pitch`` bytes apart, are far from each other."""
    return pitch >= _FAR_APART and steps >= _DEEP


def _is_scattered(operand: BufferLoad, steps: Sequence[Axis]) -> bool:
    """Whether steps of the reduction are far apart in an operand."""
    pitch = max(abs(stride(operand, axis) or 0) for axis in steps)
    return is_scattered(pitch * dtypes.bytes_of(operand.buffer.dtype), work_of(steps))


def _is_packable(load: BufferLoad, vector: Axis) -> bool:
    """Whether an axis indexes one dimension of an operand, or equal sections of one."""
    dims = dimensions_of(load, vector)
    return len(dims) == 1 and _is_part(load.indices[dims[0]], vector)


def _is_part(index: Expr, axis: Axis) -> bool:
    """Whether an axis counts the elements of one of several equal sections of a dimension.

    Filters of a grouped convolution do: ``group * filters + filter``.
    """
    if not axis.extent:
        return False
    factors = {var: coefficient_of(index, var) for var in free_vars(index)}
    own = factors.pop(axis.var, None)
    return own == 1 and all(f is not None and f % axis.extent == 0 for f in factors.values())


def _has_parts(moving: Sequence[BufferLoad], vector: Axis) -> bool:
    """Whether an axis covers only a section of a dimension of the operands that vary along it."""
    using = [load.indices[d] for load in moving for d in dimensions_of(load, vector)]
    return any(index is not vector.var for index in using)


def _run_after(load: BufferLoad, axis: Axis) -> int:
    """How many elements are contiguous in the dimensions after an axis; 1 if unknown."""
    extents = [as_int(extent) for extent in load.buffer.shape[dimensions_of(load, axis)[0] + 1 :]]
    return math.prod(extent or 0 for extent in extents) or 1


def _is_kept(load: BufferLoad, vector: Axis, steps: Sequence[Axis]) -> bool:
    """Whether an operand is a vector that is constant during the reduction, such as scales."""
    return stride(load, vector) == 1 and not any(depends(load, axis) for axis in steps)


def _is_gathered(
    moving: Sequence[BufferLoad],
    strides: Sequence[int | None],
    vector: Axis,
    target: Target,
) -> bool:
    """Whether each step's elements can be gathered into a panel, without reading out of bounds."""
    if len(moving) != 1 or not strides[0]:
        return False
    if vector.extent is None:
        # There are no other panels of what is as large as the call says.
        dims = dimensions_of(moving[0], vector)
        return strides[0] != 1 and len(dims) == 1 and moving[0].indices[dims[0]] is vector.var
    if _is_packable(moving[0], vector):
        # Under masks neither panels nor tiles need padding.
        return target.has("avx512f")
    return 1 < strides[0] <= _MOST_APART
