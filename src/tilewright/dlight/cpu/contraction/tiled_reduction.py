"""Contractions with reuse: matrix products and convolutions.

A tile of the result is kept in registers while the reduction runs: ``rows`` elements of an axis on
which one operand doesn't depend, times some vectors along another axis. Each step of the reduction
loads ``rows`` scalars and the vectors, and does ``rows`` times as many multiply-adds, so
arithmetic, not loading, is the bottleneck.

The vectors may run along any axis of the result:

- along its contiguous axis, reading in place an operand that is contiguous there;
- along any axis that indexes one dimension of an operand, if that operand is packed into panels
  (``packing``), so that the reduction reads it sequentially. The last panel is padded, so that all
  tiles are full, or the remainder gets a narrower tile under masks. If the axis isn't the result's
  contiguous one (the channels of a convolution), the tile goes through a small buffer, from which
  it is written in the result's order;
- along its contiguous axis, if what varies there is computed, not read (a distance of positions);
- along the result's contiguous axis, reading an operand that is not contiguous there, if many rows
  share what is gathered from it: a strided convolution's pixels, a transposed operand's rows.

Where all operands vary along the vectors, rows of a tile share vectors of some (a volume of
correlations). Where no operand is reused, they may share a part of the formula (``shared_work``).
Of a product of an operand with itself, both sides are read from the same panels.

The axis and the tile's size are chosen by an estimate (``plan``); so is the order of tiles
(``tile_order``).

If the epilogue fuses axes that were split into quotient and remainder (``strided_axes``), the
result is assembled in that small buffer, so that the epilogue writes whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dlight.cpu.contraction.form import (
    Form,
    Nest,
    lay_columns_last,
    sum_in_registers,
    unroll_long_sum,
    unroll_steps,
)
from tilewright.dlight.cpu.contraction.joined_axes import (
    join_rows,
    join_symbolic_axes,
    lay_channels_close,
    pixels_apart,
)
from tilewright.dlight.cpu.contraction.packing import (
    Panels,
    comes_from_memory,
    copy_operand,
    gather_at,
    gather_operand,
    lay_out,
    pack_at,
    pad_columns,
    schedule_packing,
)
from tilewright.dlight.cpu.contraction.padded_taps import (
    padded_axes,
    prefer_skipping,
    steps_left,
)
from tilewright.dlight.cpu.contraction.plan import (
    TASKS_PER_CORE,
    Plan,
    rank_plans,
)
from tilewright.dlight.cpu.contraction.register_tile import (
    chain_cycles,
)
from tilewright.dlight.cpu.contraction.sliding_window import window_of
from tilewright.dlight.cpu.contraction.tile_order import order_of
from tilewright.dlight.cpu.contraction.wider_copies import SMALL, WIDE, WIDENED_COPY
from tilewright.ir import Mul, Var, as_int, dtypes, free_vars, uses_var
from tilewright.scheduling import (
    Contraction,
    NotApplicable,
    Reduction,
    contraction_of,
    depends,
    dimensions_of,
    others_after,
    reduction_of,
)
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    coefficient_of,
    element_bits,
    fused_epilogue,
    loads_of,
    size_of,
    stores_of,
    work_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Buffer, BufferLoad
from tilewright.tir.analysis.added_terms import added_value, terms_by_arm
from tilewright.tir.attrs import KEEP_WHOLE, OVERLAP_LAST, PREFETCH_DISTANCE, PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.transform.overlap_tiles import may_be_in_place_of

# With fewer steps left of those that meet an image, rows aren't joined: they'd need all of them.
_MOST_SKIPPED = 0.5
# Columns of a tile that are transposed together, and vectors of a row that are written out.
_COLUMNS, _VECTORS = 16, 4

# Multiply-adds within which taps of small tiles are unrolled.
_UNROLLED = 80

# Tile widths that a search is offered, of each axis and way of packing.
_OFFERED = 3


class TiledReduction(Form):
    """Applies to functions with one reduction block that reuses its operands."""

    def tile(self, sch: Schedule, found: Contraction, target: Target) -> tuple[()] | NotApplicable:
        """Tile for registers, vectorise, run tiles in parallel."""
        if len(found.consumers) > 1:
            return NotApplicable("the reduction has several consumers")
        found = join_symbolic_axes(sch, found)
        apart, compact = pixels_apart(sch, found), sch.copy()
        overlap = _is_repeatable(sch, found)
        found, plans, step = _ranked(sch, found, target, overlap)
        partly = not plans and window_of(found) is None
        if partly:
            plans = rank_plans(found, target, partly=True)
        if not plans:
            return NotApplicable("no operand is reused along an axis that can be vectorised")
        if apart is not None and not apart.is_hidden(plans[0].tile, target):
            apart.copy(compact, target)
            again = _again(compact, found)
            others = rank_plans(again, target)
            if others and apart.pays(plans[0].tile, others[0].tile, target):
                sch.become(compact)
                found, plans, step = again, others, 1
        if plans[0].row is None and window_of(found) is not None:
            return NotApplicable("only a window is reused")
        if sch.choices.is_search:
            wide = rank_plans(
                found, target, widths=_OFFERED, row_step=step, partly=partly, overlap=overlap
            )
            plans = sch.choices.preferring("tiled_reduction.plan", others_after(plans[0], wide))
        refusal = ""
        for plan in plans:
            attempt = sch.copy()
            try:
                schedule_plan(attempt, found.main, plan, target)
            except ScheduleError as error:
                refusal = error.summary
                continue
            sch.become(attempt)
            return ()
        return NotApplicable(refusal)


def _is_repeatable(sch: Schedule, found: Contraction) -> bool:
    """Whether results may be written twice: nothing is read that a caller may have put there."""
    result = found.store.buffer
    read = {load.buffer for rv in found.consumers for load in loads_of(sch.get(rv))} - {result}
    return not any(may_be_in_place_of(buffer, result) for buffer in read)


def _ranked(
    sch: Schedule, found: Contraction, target: Target, overlap: bool
) -> tuple[Contraction, list[Plan], int]:
    """Lay out images; return the reduction, its plans, and of how many rows tiles are multiples."""
    if lay_channels_close(sch, found):
        found = _again(sch, found)
    plans, padded = rank_plans(found, target, overlap=overlap), padded_axes(sch, found)
    if not plans:
        return found, plans, 1
    plain = found
    plans = prefer_skipping(
        plans, padded, lambda most: rank_plans(plain, target, most_rows=most), target.costs
    )
    if plans[0].transposed and steps_left(plans[0], padded) > _MOST_SKIPPED:
        step = join_rows(sch, found, plans[0].row)
        if step is not None:
            found = _again(sch, found)
            return found, rank_plans(found, target, row_step=step), step
    return found, plans, 1


def _again(sch: Schedule, found: Contraction) -> Contraction:
    """Describe a contraction again, after its layout has changed."""
    made = contraction_of(sch, found.main)
    assert isinstance(made, Contraction)
    return made


# ---- scheduling -----------------------------------------------------------------------------


def schedule_plan(sch: Schedule, main: BlockRV, plan: Plan, target: Target) -> None:
    """Tile a reduction as planned; its single consumer, if there is one, is its epilogue.

    Raises ``ScheduleError`` if the block doesn't allow the plan, leaving the schedule half done.
    """
    found = reduction_of(sch, main)
    if isinstance(found, NotApplicable):
        raise ScheduleError(f"{main.name}: {found.reason}")
    _Tiling(sch, found, plan, target).schedule()


class _Tiling:
    """Carries out one plan."""

    def __init__(self, sch: Schedule, found: Reduction, plan: Plan, target: Target) -> None:
        self.sch, self.main, self.plan, self.target = sch, found.main, plan, target
        self.axes, self.work = found.axes, 2 * work_of(found.axes)
        self.order = order = order_of(sch, found, plan, target)
        if order.phases and (not plan.transposed or order.row not in order.phases):
            raise ScheduleError("remainders of places are put together along the tile's rows only")
        # Rows are read from panels, too, so all of these are there before the first tile.
        self.both_sides = plan.packed is not None and found.is_read_otherwise(plan.packed)
        self.panels = self._panels()

    def schedule(self) -> None:
        """Pack, tile, write the result from registers, run in parallel."""
        sch, main, plan = self.sch, self.main, self.plan
        panels = self._make_panels()
        axes = axes_of(sch, main) or []
        copy, epilogue = self._take_from_registers(axes)
        nest, column_outer = self._nest(axes)
        outer, reduce = nest.around, nest.steps
        written = len(outer) - nest.held
        sum_in_registers(sch, main, epilogue, nest, copy)
        self._unroll_taps([axis for axis in axes if axis.is_reduce][1:])
        if copy is not None:
            loops = sch.get_loops(epilogue)[written:]
            if self.order.by_images:
                column, *rows, pixel = loops
                loops = [*rows, column, pixel]
                sch.reorder(*loops)
            _transposed(sch, loops, self._lanes())
        fused, count = _run_in_parallel(sch, outer[:written], self.target, self.work)
        place = outer.index(column_outer)
        at = fused if place < count else column_outer
        if panels is not None:
            alone = count <= place + 1 and not self.order.by_rows and not self.both_sides
            self._schedule_panels(panels, at if alone else None)
            if alone:
                self._convert_panels(sch.get(panels).writes[0].buffer, at)
        self._fetch_ahead(at, reduce)
        self._unroll_steps(reduce)
        self._accumulate_terms()
        if plan.overlapped:
            sch.annotate(at, OVERLAP_LAST, 1)
        outside = [fused, *outer[count:written]]
        for loop in self._kept_whole(at, outside, outer[written:], self._skip_padding(reduce)):
            sch.annotate(loop, KEEP_WHOLE, 1)
        if plan.padded and plan.packed is None and plan.row is not None:
            # Rows of the tile are whole vectors, though the last ones are not all results.
            sch.storage_align(main, 0, -2, plan.tile.columns, 0)

    def _convert_panels(self, packed: Buffer, at: LoopRV) -> None:
        """Convert panels of constant 16-bit floats where several tiles of rows go through each.

        Conversions of vectors take the place of multiply-adds.
        """
        sch, plan, costs = self.sch, self.plan, self.target.costs
        if not plan.constant or packed.dtype not in SMALL or plan.row is None:
            return
        tiles = -(-(plan.row.extent or 1) // plan.tile.rows)
        steps = work_of([axis for axis in self.axes if axis.is_reduce])
        size = steps * plan.tile.columns * dtypes.bytes_of(WIDE)
        room = costs.far_panel_share * self.target.l2_bytes
        if tiles < costs.converted_tiles or size > room:
            return
        reads = [region.buffer for region in sch.get(self.main).reads]
        copy = sch.cache_read(self.main, reads.index(packed), "global")
        sch.compute_at(copy, at, preserve_unit_loops=True)
        sch.vectorize(sch.get_loops(copy)[-1])
        sch.use_kernel("root", WIDENED_COPY, {"operand": packed.name})

    def _unroll_taps(self, taps: Sequence[Axis]) -> None:
        """Unroll the inner axes of a reduction where a step's few sums wait for each other."""
        costs, tile = self.target.costs, self.plan.tile
        sums = tile.rows * -(-tile.columns // self._lanes())
        if not self.order.taps and sums <= costs.multiply_adds * chain_cycles(costs):
            unroll_steps(self.sch, taps[::-1], sums, _UNROLLED)

    def _unroll_steps(self, steps: Sequence[LoopRV]) -> None:
        """Unroll a few steps of a long reduction where those of one are few."""
        tile = self.plan.tile
        if len(steps) == 1 and not self._passes_once():
            sums = tile.rows * -(-tile.columns // self._lanes())
            unroll_long_sum(self.sch, steps[0], sums, self.target)

    def _accumulate_terms(self) -> None:
        """Add products of a sum one by one where enough others can go on meanwhile."""
        tile, costs = self.plan.tile, self.target.costs
        found = added_value(self.sch.get(self.main))
        if found is None or found[0].dtype not in ("float32", "float64") or self.order.taps:
            return
        sums = tile.rows * -(-tile.columns // self._lanes())
        enough = sums >= costs.multiply_adds * costs.multiply_add_latency
        # Where nothing is added unless a condition holds, the lowering leaves the step out.
        if enough and min(terms_by_arm(found[1], Mul)) > 1:
            self.sch.accumulate_terms(self.main)

    def _fetch_ahead(self, at: LoopRV, steps: Sequence[LoopRV]) -> None:
        """Prefetch the next panel, or the rest of the current one if it is used only once."""
        packed, order = self.plan.packed is not None, self.order
        streams = packed and self._streams()
        able = packed and not order.by_rows and not order.taps
        if able and self.sch.choices.choose("tiled_reduction.ahead", (streams, not streams)):
            self.sch.annotate(at, PREFETCH_NEXT, 1)
        if self._passes_once() and len(steps) == 1:
            near = (0, int(self.target.costs.panels_ahead))
            far = comes_from_memory(self.sch, self._packed_bytes(), self.target)
            ahead = self.sch.choices.choose("tiled_reduction.distance", near[::-1] if far else near)
            if ahead:
                self.sch.annotate(steps[0], PREFETCH_DISTANCE, ahead)

    def _kept_whole(
        self, at: LoopRV, outside: list[LoopRV], held: Sequence[LoopRV], skips: bool
    ) -> list[LoopRV]:
        """Loops whose last, partial tile runs under tests and masks, not in separate code."""
        plan = self.plan
        whole = [at] if plan.padded else []
        if self.order.phases or skips:
            whole = [*outside, *held] if skips else outside
        if skips and plan.row is not None and (plan.row.extent or 0) % plan.tile.rows:
            whole = whole[: max(1, len(whole) - 1)]
        return whole

    def _panels(self) -> Panels | None:
        """The panel layout of an operand that isn't gathered."""
        plan = self.plan
        if plan.packed is None or plan.gathered:
            return None
        taps = [self.axes[place] for place in self.order.taps]
        taps = [tap for tap in taps if plan.constant and depends(plan.packed, tap)]
        first = [dimensions_of(plan.packed, tap)[0] for tap in taps]
        dim = dimensions_of(plan.packed, plan.vector)[0]
        parts = self._interleaved(plan.packed)
        return Panels(dim, plan.tile.columns, tuple(first), parts)

    def _make_panels(self) -> BlockRV | None:
        plan, width = self.plan, self.plan.tile.columns
        if plan.packed is None:
            return None
        if self.panels is None:
            return gather_operand(self.sch, self.main, plan.packed, plan.vector)
        if plan.padded:
            copied = pad_columns(self.sch, self.main, plan.packed, plan.vector, width)
        else:
            copied = copy_operand(self.sch, self.main, plan.packed.buffer)
        if plan.overlapped:
            return copied  # its panels, one at a time, begin at any column
        lay_out(self.sch, copied, self.panels)
        return copied

    def _interleaved(self, operand: BufferLoad) -> dict[int, int]:
        """Dimensions of a panel of which a remainder of positions uses every n-th element.

        Each remainder's elements of a panel are contiguous.
        """
        if not self.order.phases or not self.plan.constant:
            return {}
        variables = [item.var for item in self.sch.get(self.main).iter_vars]
        remainders = {variables[place] for place in self.order.phases.values()}
        found = {}
        for dim, index in enumerate(operand.indices):
            steps = [v for v in free_vars(index) if v not in remainders]
            apart = coefficient_of(index, steps[0]) if len(steps) == 1 else None
            extent = as_int(operand.buffer.shape[dim])
            if uses_var(index, remainders) and apart and extent and extent % apart == 0:
                found[dim] = apart
        return found

    def _skip_padding(self, reduce: Sequence[LoopRV]) -> bool:
        """Run the loops inside those over taps only for taps that read the image."""
        if not self.order.taps:
            return False
        inside = [*reduce, *self.sch.get_loops(self.main)[-1:]][len(self.order.taps)]
        self.sch.unsafe_skip_padding(self.main, inside)
        return True

    def _take_from_registers(self, axes: Sequence[Axis]) -> tuple[BlockRV | None, BlockRV]:
        """The block that copies the tile to a buffer, if needed, and the one that writes it.

        The latter is the epilogue, or a copy where there is none.
        """
        sch, main = self.sch, self.main
        consumers = sch.get_consumers(main)
        if self.plan.transposed:
            epilogue = consumers[0] if consumers else sch.cache_write(main, 0, "global")
            copy = sch.cache_write(main, 0, "local")
            lay_columns_last(sch, main, copy, axes[self.order.vector], self._joined(axes))
            return copy, epilogue
        return None, fused_epilogue(sch, main, consumers)

    def _streams(self) -> bool:
        """Whether panels come from beyond the nearer caches, and each is used by several tiles."""
        plan = self.plan
        several = plan.row is not None and plan.row.extent != plan.tile.rows
        return several and self._comes_from_afar()

    def _passes_once(self) -> bool:
        """Whether panels come from beyond the nearer caches, and each is used by one tile."""
        plan = self.plan
        once = plan.row is None or plan.row.extent == plan.tile.rows
        return once and self._comes_from_afar()

    def _comes_from_afar(self) -> bool:
        plan = self.plan
        if plan.packed is None or not plan.constant:
            return False
        return 2 * self._packed_bytes() > self.target.l2_bytes

    def _packed_bytes(self) -> int:
        """The size of the packed operand; 0 if it comes with the call."""
        assert self.plan.packed is not None
        return size_of(self.plan.packed.buffer) or 0

    def _nest(self, axes: Sequence[Axis]) -> tuple[Nest, LoopRV]:
        """Split and order axes; return the nest, and the loop over columns of tiles."""
        sch, plan, order = self.sch, self.plan, self.order
        column_outer, column_inner = sch.split(axes[order.vector].loop, [None, plan.tile.columns])
        apart = (order.row, order.vector, *order.remainders)
        places = [n for n, axis in enumerate(axes) if not axis.is_reduce and n not in apart]
        # What one remainder uses of a panel stays in the cache for all rows of an image.
        image = [n for n in order.phases if n != order.row] if order.by_images else []
        # A panel stays in the cache for all rows.
        around = [n for n in places if n not in image]
        first = [n for n in around if plan.packed is None or n in order.with_panel]
        rest = [n for n in around if n not in first]
        outer = [*self._loops(axes, first), column_outer]
        outer += self._loops(axes, [*rest, *order.remainders, *image])
        inner = [column_inner]
        if order.row is not None:
            sizes = [order.row_blocks, None] if order.row_blocks > 1 else [None]
            *blocks, row_outer, row_inner = sch.split(
                axes[order.row].loop, [*sizes, plan.tile.rows]
            )
            outer = [*blocks, *outer, row_outer]
            inner = [row_inner, column_inner]
        if order.by_rows:
            outer = [loop for loop in outer if loop != column_outer] + [column_outer]
        steps = [n for n, axis in enumerate(axes) if axis.is_reduce]
        steps.sort(key=lambda n: n not in order.taps)
        return Nest(outer, self._loops(axes, steps), inner, order.held), column_outer

    def _loops(self, axes: Sequence[Axis], places: Sequence[int]) -> list[LoopRV]:
        return [axes[place].loop for place in places]

    def _joined(self, axes: Sequence[Axis]) -> dict[int, int]:
        """Dimensions of the result that are quotient and remainder of one axis."""
        store = stores_of(self.sch.get(self.main))[0]
        dims = {index: d for d, index in enumerate(store.indices) if isinstance(index, Var)}
        return {dims[axes[a].var]: dims[axes[b].var] for a, b in self.order.phases.items()}

    def _lanes(self) -> int:
        return self.target.vector_lanes(element_bits(self.sch.get(self.main)))

    def _schedule_panels(self, copied: BlockRV, at: LoopRV | None) -> None:
        plan = self.plan
        assert plan.packed is not None
        if self.panels is None:
            gather_at(self.sch, copied, at, self.target)
        elif plan.constant or at is None:
            schedule_packing(self.sch, copied, plan.packed, self.panels, self.target)
        else:
            pack_at(self.sch, copied, at, plan.packed, self.panels.wide, self.target)


def _run_in_parallel(
    sch: Schedule, loops: Sequence[LoopRV], target: Target, work: int
) -> tuple[LoopRV, int]:
    """Fuse outer loops until there is enough work for all cores, and run them in parallel.

    Returns the loop and how many were fused. A serial nest is unchanged.
    """
    if target.num_cores == 1 or work < target.costs.parallel_work:
        return loops[0], 1
    per_core = sch.choices.choose("tiled_reduction.tasks", others_after(TASKS_PER_CORE, (1, 2, 16)))
    tasks, count = 1, 0
    for loop in loops:
        extent = as_int(sch.get(loop).extent)
        count += 1
        if extent is None:
            break
        tasks *= extent
        if tasks >= per_core * target.num_cores:
            break
    fused = loops[0] if count == 1 else sch.fuse(*loops[:count])
    sch.parallel(fused)
    return fused, count


def _transposed(sch: Schedule, loops: Sequence[LoopRV], lanes: int) -> None:
    """Write vectors along the rows, ``lanes`` columns at a time, transposed by shuffles."""
    extent = as_int(sch.get(loops[-1]).extent)
    if len(loops) > 1 and extent is not None and extent > _VECTORS * lanes:
        chunk, row = sch.split(loops[-1], [None, lanes])
        loops = [*loops[:-2], chunk, loops[-2], row]
        sch.reorder(*loops)
    sch.vectorize(loops[-1])
    columns = as_int(sch.get(loops[-2]).extent) if len(loops) > 1 else None
    if columns is not None and columns % _COLUMNS == 0:
        _, column = sch.split(loops[-2], [None, _COLUMNS])
        sch.unroll(column)
