"""Tile a reduction for the memory hierarchy and the register file.

The structure is a string of S (all spatial axes) and R (all reduction axes), from the outermost
loops inwards. The accumulators are a separate buffer (``cache_write``, or the intermediate buffer
when an elementwise block consumes it) in registers: it is initialised before the first R and
written back after the last one. So on CPUs the default is ``SSSRRS``: parallel tiles, cache tiles,
panels, then the reduction around a register tile that is kept from the first step to the last.
(With the ``SSRSRS`` of Ansor, accumulators of several register tiles are live at once and must be
in memory; it remains available.)

Structure forks:

- Which axis is vectorised: the output's last axis, or one along which an operand can be packed.
- Whether the operand along the vector axis is packed (``cache_read`` of a panel) before it is used.
  A constant operand (``layout_free_buffers``) is never packed in the call: it is packed at the root
  into panels as wide as the register tile, once, before the program runs (``LAYOUT_REWRITE``). The
  width is part of the layout, so each width is a separate fork.
- An axis whose extent has no useful divisors (a prime) is first split into tiles of a fixed size
  that does not divide it. Lowering separates the last, partial tile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from tilewright.ir import as_int, dtypes
from tilewright.meta_schedule.schedule_rule.base import NotApplicable, ScheduleRule
from tilewright.meta_schedule.schedule_rule.level_tiling import (
    Levels,
    ReuseType,
    levels_of,
    make_levels,
    tile_by_levels,
)
from tilewright.meta_schedule.schedule_rule.patterns import (
    Operand,
    Reduction,
    describe_reduction,
    elementwise_consumer,
    lanes_for,
    layout_free_operand,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block
from tilewright.tir.attrs import LAYOUT_REWRITE, TILED
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule
from tilewright.tir.schedule.sampling import divisors

logger = logging.getLogger("tilewright.meta_schedule")

SHORT_REDUCTION = 4
"""Reduction axes up to this length (windows of convolutions) are not split: there is no gain."""


@dataclass(frozen=True)
class TilePlan:
    """One way to tile: the vector axis, the operand to pack, fixed inner tiles by axis.

    A ``prepacked`` operand is packed at the root, into panels of the vector axis' tile.
    """

    vector_axis: int
    pack: Operand | None = None
    inner_tiles: dict[int, int] = field(default_factory=dict)
    prepacked: bool = False


class MultiLevelTiling(ScheduleRule):
    """Tile reductions that reuse data or run along memory; see the module's text.

    ``max_innermost_factor`` limits the innermost factor of each tile, ``pack`` allows packing,
    ``max_forks`` limits the number of forks of one schedule. Blocks for which ``filter_fn`` is
    false are left alone.

    With ``tile_binds``, ``vector_load_lens``, ``reuse_read`` or ``reuse_write``, tiles are what
    these say (``level_tiling``), and nothing is packed. For GPUs that is so by default.
    """

    name = "multi-level-tiling"

    def __init__(
        self,
        structure: str | None = None,
        tile_binds: Sequence[str] | None = None,
        max_innermost_factor: int = 64,
        vector_load_lens: Sequence[int] | None = None,
        reuse_read: ReuseType | None = None,
        reuse_write: ReuseType | None = None,
        filter_fn: Callable[[Block], bool] | None = None,
        *,
        pack: bool = True,
        max_forks: int = 8,
    ) -> None:
        self.tile_binds = tuple(tile_binds or ())
        self.structure = structure or "SSSRRS"
        self.max_innermost_factor = max_innermost_factor
        self.filter_fn = filter_fn
        self.levels: Levels | None = None
        self._by_target = True
        if any(x is not None for x in (tile_binds, vector_load_lens, reuse_read, reuse_write)):
            self._by_target = False
            self.levels = make_levels(
                self.structure,
                tile_binds=tile_binds,
                max_innermost_factor=max_innermost_factor,
                vector_load_lens=vector_load_lens,
                reuse_read=reuse_read,
                reuse_write=reuse_write,
            )
        self.pack = pack
        self.max_forks = max_forks
        self.vector_bits = 256

    def initialize(self, target: Target) -> None:
        """Learn the vector width, and whether this is a GPU."""
        self.vector_bits = target.vector_bits
        if self._by_target:
            usual = levels_of(target)
            limit = self.max_innermost_factor
            self.levels = None if usual is None else replace(usual, max_innermost_factor=limit)

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule] | NotApplicable:
        """Return one schedule for each way to tile the block."""
        if self.filter_fn is not None and not self.filter_fn(sch.get(block)):
            return NotApplicable("the filter leaves the block out")
        found = describe_reduction(sch, block)
        if isinstance(found, NotApplicable):
            return found
        if not found.output_axes or max(found.extents[a] for a in found.output_axes) == 1:
            return NotApplicable("the output is a scalar")
        if self.levels is not None:
            return self._by_levels(sch, block, found, self.levels)
        constant = {
            operand.position
            for operand in found.operands
            if operand.is_direct and layout_free_operand(sch, block, operand)
        }
        plans = self.plans(found, constant)
        if not plans:
            return NotApplicable("no data is reused and no axis runs along memory")
        made = []
        for plan in plans[: self.max_forks]:
            fork = sch.copy(seed=sch.fork_seed())
            try:
                self._tile(fork, block, found, plan)
            except ScheduleError as error:
                logger.debug("multi-level-tiling of %s by %s: %s", block, plan, error)
                continue
            made.append(fork)
        return made or NotApplicable("every way to tile it is refused")

    def _by_levels(
        self, sch: Schedule, block: BlockRV, found: Reduction, levels: Levels
    ) -> list[Schedule] | NotApplicable:
        if not found.reused():
            return NotApplicable("no data is reused")
        try:
            return tile_by_levels(sch, block, levels)
        except ScheduleError as error:
            return NotApplicable(error.message)

    # ---- which ways there are -------------------------------------------------------------

    def lanes(self, found: Reduction) -> int:
        """Elements of the output in one vector register."""
        return lanes_for(dtypes.bits_of(found.output.dtype), self.vector_bits)

    def plans(self, found: Reduction, constant: Collection[int] = ()) -> list[TilePlan]:
        """List the ways to tile a reduction, the most promising first.

        ``constant`` are the positions of operands that can be packed before the program runs.
        """
        plans = []
        for axis, operands in self._vector_axes(found, constant):
            for operand in operands:
                prepacked = operand is not None and operand.position in constant
                for inner_tiles in self._inner_tiles(found, axis, prepacked):
                    plans.append(TilePlan(axis, operand, inner_tiles, prepacked))
        # What costs nothing when the program runs comes first.
        return sorted(plans, key=lambda plan: not plan.prepacked)

    def _vector_axes(
        self, found: Reduction, constant: Collection[int]
    ) -> list[tuple[int, list[Operand | None]]]:
        """Return axes worth vectorizing, each with the operands to pack (``None``: no packing)."""
        ways: list[tuple[int, list[Operand | None]]] = []
        lanes = self.lanes(found)
        last = found.output_axes[-1]
        for axis in dict.fromkeys((last, *reversed(found.output_axes))):
            if found.extents[axis] == 1:
                continue
            choices = self._operands_along(found, axis, constant)
            packable = next((item for item in choices if item is not None), None)
            if axis != last:
                if len(found.reduce) == 0 or packable is None:
                    continue
                # A transposed write-back pays if the last axis is too short for vectors, or if
                # the packing is for nothing.
                if packable.position in constant:
                    choices = [packable]
                elif found.extents[last] % lanes == 0 or found.extents[axis] % lanes:
                    continue
            if choices:
                ways.append((axis, choices))
        if len(ways) > 1 and ways[0][0] == last and found.extents[last] % lanes:
            # Rows that don't fill vectors are worse than panels that do.
            panels = [way for way in ways[1:] if way[1][0] and way[1][0].position in constant]
            return panels or ways
        return ways

    def _operands_along(
        self, found: Reduction, axis: int, constant: Collection[int]
    ) -> list[Operand | None]:
        """Return the operand to pack for vectors along an axis, and ``None`` if none needs it."""
        along = [item for item in found.operands if axis in item.used]
        if not along:
            return []
        packable = self.pack and len(along) == 1 and along[0].is_direct
        if along[0].position not in constant and not self._worth(found, along[0]):
            packable = False
        # Other operands are read once for a whole vector, so only these must be in order.
        in_order = all(item.axes and axis in item.axes[-1] for item in along)
        return [*([None] if in_order else []), *(along if packable else [])]

    def _worth(self, found: Reduction, operand: Operand) -> bool:
        """Whether a packed panel of an operand would be read more than a few times."""
        times = 1
        for axis in found.spatial:
            if axis not in operand.used:
                times *= found.extents[axis]
        return times >= 8

    def _panels(self, found: Reduction, vector_axis: int) -> list[int]:
        """Return widths of panels, those that fit the axis with least waste."""
        lanes, extent = self.lanes(found), found.extents[vector_axis]
        # Two vectors and many rows are best for two operands; 4 need fewer rows.
        sizes = [lanes * n for n in (2, 4, 3, 1) if lanes * n <= extent]
        if extent <= 4 * lanes and extent not in sizes:
            sizes.append(extent)
        best = _least_waste(extent, sizes, 2, digits=1)
        # Padded panels only where nothing else fits.
        return [size for size in best if extent % size == 0] or best

    def _inner_tiles(
        self, found: Reduction, vector_axis: int, prepacked: bool = False
    ) -> list[dict[int, int]]:
        """Return choices of fixed inner tiles: panels, and for axes without useful divisors."""
        lanes = self.lanes(found)
        choices: list[dict[int, int]] = [{}]
        extent = found.extents[vector_axis]
        if prepacked:
            choices = [{vector_axis: size} for size in self._panels(found, vector_axis)]
        elif extent > 4 * lanes and not any(
            d % lanes == 0 for d in divisors(extent) if d <= self.max_innermost_factor
        ):
            sizes = [lanes * n for n in (4, 2, 1, 3) if lanes * n <= self.max_innermost_factor]
            choices = [{vector_axis: size} for size in _least_waste(extent, sizes, 2)]
        rows = [axis for axis in found.spatial if axis != vector_axis]
        row = max(rows, key=lambda axis: found.extents[axis], default=None)
        if row is not None and found.extents[row] > 16:
            extent = found.extents[row]
            if not any(4 <= d <= 14 for d in divisors(extent)):
                sizes = _least_waste(extent, [6, 8, 4, 5, 7, 10, 12], 2)
                choices = [{**choice, row: size} for size in sizes for choice in choices]
        return choices

    # ---- doing it -------------------------------------------------------------------------

    def _tile(self, sch: Schedule, block: BlockRV, found: Reduction, plan: TilePlan) -> None:
        consumer = elementwise_consumer(sch, block)
        dim = found.output_axes.index(plan.vector_axis)
        copy = None
        if plan.prepacked and plan.vector_axis != found.output_axes[-1]:
            # Registers hold vectors along one axis, memory wants another: a small buffer between
            # them takes whole vectors, and is read in the output's order.
            if consumer is not None:
                write_back = sch.get_block(consumer, block.func)
            else:
                write_back = sch.cache_write(block, 0, "global")
            copy = sch.cache_write(block, 0, "local")
            _put_last(sch, copy, "write", 0, dim)
        elif consumer is not None:
            sch.set_scope(block, 0, "local")
            write_back = sch.get_block(consumer, block.func)
        else:
            write_back = sch.cache_write(block, 0, "local")
        _put_last(sch, block, "write", 0, dim)
        packed = None
        if plan.pack is not None:
            position = _read_position(sch, block, plan.pack)
            packed = sch.cache_read(block, position, "global", [block])
            along = next(n for n, axes in enumerate(plan.pack.axes) if plan.vector_axis in axes)
            if plan.prepacked:
                _lay_in_panels(sch, packed, along, plan.inner_tiles[plan.vector_axis])
                packed = None
            else:
                _put_last(sch, packed, "write", 0, along)
        levels, vector_loop = self._split(sch, block, found, plan)
        sch.reorder(*[loop for level in levels for loop in level])
        first = self.structure.index("R")
        holder = next(level for level in reversed(levels[:first]) if level)[-1]
        if copy is not None:
            depth = len(sch.get_loops(copy))
            sch.reverse_compute_at(copy, holder, preserve_unit_loops=True)
            own = sch.get_loops(copy)[-depth:]
            sch.reorder(*own[:dim], *own[dim + 1 :], own[dim])
        sch.reverse_compute_at(write_back, holder, preserve_unit_loops=True)
        if packed is not None:
            sch.compute_at(packed, vector_loop, preserve_unit_loops=True)
        sch.annotate(block, TILED, self.structure)

    def _split(
        self, sch: Schedule, block: BlockRV, found: Reduction, plan: TilePlan
    ) -> tuple[list[list[LoopRV]], LoopRV]:
        """Split all loops; returns the loops of each level, and where packing goes.

        The vector axis comes first in the level that holds the register tiles, so that one packed
        panel serves all of them, and last in the innermost one.
        """
        loops = sch.get_loops(block)
        levels: list[list[LoopRV]] = [[] for _ in self.structure]
        places = {
            "S": [n for n, kind in enumerate(self.structure) if kind == "S"],
            "R": [n for n, kind in enumerate(self.structure) if kind == "R"],
        }
        holder = max(n for n in places["S"] if n < self.structure.index("R"))
        vector_loop: LoopRV | None = None
        others = [axis for axis in range(len(loops)) if axis != plan.vector_axis]
        for axis in (*others, plan.vector_axis):
            slots = places["S" if axis in found.spatial else "R"]
            if axis in found.reduce and found.extents[axis] <= SHORT_REDUCTION:
                levels[slots[-1]].append(loops[axis])
                continue
            for slot, loop in zip(slots, self._factors(sch, loops[axis], axis, found, plan, slots)):
                if slot == holder and axis == plan.vector_axis:
                    levels[slot].insert(0, loop)
                    vector_loop = loop
                else:
                    levels[slot].append(loop)
        assert vector_loop is not None  # the vector axis has an extent above one
        return levels, vector_loop

    def _factors(
        self,
        sch: Schedule,
        loop: LoopRV,
        axis: int,
        found: Reduction,
        plan: TilePlan,
        slots: Sequence[int],
    ) -> list[LoopRV]:
        if found.extents[axis] == 1:
            return [loop]
        inner_tile = plan.inner_tiles.get(axis)
        if inner_tile is None:
            factors = sch.sample_perfect_tile(loop, len(slots), self.max_innermost_factor)
            return list(sch.split(loop, factors))
        outer, inner = sch.split(loop, [None, inner_tile])
        factors = sch.sample_perfect_tile(outer, len(slots) - 1, 0)
        return [*sch.split(outer, factors), inner]


def _least_waste(extent: int, sizes: Sequence[int], count: int, *, digits: int = 2) -> list[int]:
    """Return the tile sizes that overshoot an extent least, earlier ones first among equals."""
    waste = [round(-(-extent // size) * size / extent, digits) for size in sizes]
    ranked = sorted(range(len(sizes)), key=lambda n: (waste[n], n))
    return [sizes[n] for n in ranked[:count]]


def _put_last(sch: Schedule, block: BlockRV, side: str, index: int, dim: int) -> None:
    """Move a dimension of an intermediate buffer to the end."""
    item = sch.get(block)
    regions = item.writes if side == "write" else item.reads
    ndim = regions[index].buffer.ndim
    if dim == ndim - 1:
        return
    names = [f"i{n}" for n in range(ndim)]
    order = [*names[:dim], *names[dim + 1 :], names[dim]]
    sch.transform_layout(block, [side, index], f"lambda {', '.join(names)}: ({', '.join(order)})")


def _lay_in_panels(sch: Schedule, packed: BlockRV, dim: int, width: int) -> None:
    """Split a dimension of an operand's copy into panels: panel index first, offset last."""
    buffer = sch.get(packed).writes[0].buffer
    names = [f"i{n}" for n in range(buffer.ndim)]
    others = [*names[:dim], *names[dim + 1 :]]
    order = ", ".join((f"{names[dim]} // {width}", *others, f"{names[dim]} % {width}"))
    sch.transform_layout(packed, ["write", 0], f"lambda {', '.join(names)}: ({order})")
    sch.annotate(packed, LAYOUT_REWRITE, True)
    if (as_int(buffer.shape[dim]) or 0) % width == 0:
        loops = sch.get_loops(packed)
        outer, inner = sch.split(loops[dim], [None, width])
        sch.reorder(outer, *loops[:dim], *loops[dim + 1 :], inner)


def _read_position(sch: Schedule, block: BlockRV, operand: Operand) -> int:
    """The current position of an operand among the block's reads."""
    reads = sch.get(block).reads
    return next(n for n, region in enumerate(reads) if region.buffer is operand.buffer)
