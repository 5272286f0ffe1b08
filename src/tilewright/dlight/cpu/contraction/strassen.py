"""Strassen's products (``topi.nn.matmul_strassen``): sums and products in the cache.

Rows of the halves are processed in groups. For a group, the sums of quarters of the data come
first; then, some columns at a time, the seven products, and where they are joined, the epilogue.
What the products give stays in the second-level cache. Sums of quarters of the constant matrix are
packed in the order in which they are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.arith import Analyzer
from tilewright.dlight.cpu.contraction.form import (
    Nest,
    schedule_others,
    sum_in_registers,
    unroll_long_sum,
)
from tilewright.dlight.cpu.contraction.packing import (
    Panels,
    is_fetched_ahead,
    pack_operand,
)
from tilewright.dlight.cpu.contraction.register_tile import (
    MOST_ROWS,
    rows_in_cache,
    step_cycles,
    tile_registers,
)
from tilewright.dlight.cpu.contraction.winograd_stages import join_epilogue, written_by
from tilewright.ir import Expr, as_int, dtypes
from tilewright.scheduling import CPUScheduleRule, NotApplicable
from tilewright.scheduling.cpu import (
    fused_epilogue,
    is_injective,
    leaf_blocks,
    loads_of,
    parallelize,
    vectorize_tile,
)
from tilewright.target import Target
from tilewright.tir import Block, Buffer
from tilewright.tir.attrs import PREFETCH_NEXT
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.topi.nn import STRASSEN, STRASSEN_PRODUCTS

# Vectors side by side in a tile; the fewest sums of one that keep multiply-adds busy.
_MOST_VECTORS, _FEWEST_SUMS = 6, 12
# Share of the time of transfers that isn't hidden behind arithmetic.
_SEEN = 0.5


@dataclass(frozen=True)
class _Stages:
    """The blocks of a product by Strassen's algorithm."""

    sums: BlockRV
    products: BlockRV
    result: BlockRV
    output: BlockRV
    axis: int


@dataclass(frozen=True)
class _Plan:
    """Rows of a half per group, groups of each image, images, and the register tile.

    ``streams``: the matrix comes from far caches and is prefetched.
    """

    group: int
    groups: int
    images: int
    rows: int
    columns: int
    lanes: int
    streams: bool


class Strassen(CPUScheduleRule):
    """Applies to functions with the stages of one product by Strassen's algorithm."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Group rows, and fuse all stages over the groups."""
        stages = _stages_of(sch)
        if isinstance(stages, NotApplicable):
            return stages
        plan = _choose_plan(sch, stages, target)
        if isinstance(plan, NotApplicable):
            return plan
        names = {rv.name for rv in (stages.sums, stages.products, stages.result, stages.output)}
        schedule_others(sch, leaf_blocks(sch), names, target)
        _schedule(sch, stages, plan, target)
        return sch


def _stages_of(sch: Schedule) -> _Stages | NotApplicable:
    found = [rv for rv in leaf_blocks(sch) if STRASSEN in sch.get(rv).annotations]
    if len(found) != 1:
        return NotApplicable(f"{len(found)} blocks of Strassen's products, one is expected")
    products = found[0]
    block = sch.get(products)
    sums = [
        rv for rv in sch.get_producers(products) if written_by(sch, rv) is block.reads[0].buffer
    ]
    results = sch.get_consumers(products)
    if not sums or len(results) != 1 or not is_injective(sch, results[0]):
        return NotApplicable("the stages around the products aren't there")
    (quarters,) = results
    axis, made = as_int(block.annotations[STRASSEN]) or 0, written_by(sch, quarters)
    after = sch.get_consumers(quarters)
    if len(after) != 1 or not is_injective(sch, after[0]):
        return NotApplicable("the quarters of the result aren't put together")
    for moves in (True, False):
        attempt = sch.copy()
        output = join_epilogue(attempt, after[0], moves)
        if isinstance(output, NotApplicable):
            return output
        if _keeps_layout(attempt.get(output), made, axis):
            sch.become(attempt)
            return _Stages(sums[0], products, quarters, output, axis)
    return NotApplicable("the epilogue changes the layout")


def _keeps_layout(block: Block, quarters: Buffer, axis: int) -> bool:
    """Whether a block reads the quarters of the result where it writes its own."""
    axes: list[Expr] = [item.var for item in block.iter_vars]
    _, _, *halves, width = quarters.shape
    if len(axes) != len(halves) + 1:
        return False
    *rows, column = axes
    high, rows[axis] = rows[axis] // halves[axis], rows[axis] % halves[axis]
    expected = [high, column // width, *rows, column % width]
    known = Analyzer()
    for item in block.iter_vars:
        known.bind(item.var, item.dom)
    return all(
        all(map(known.can_prove_equal, load.indices, expected))
        for load in loads_of(block)
        if load.buffer is quarters
    )


# ---- choosing -------------------------------------------------------------------------------


def _choose_plan(sch: Schedule, stages: _Stages, target: Target) -> _Plan | NotApplicable:
    """Balance repeated loads of the constant matrix against those of the sums."""
    block = sch.get(stages.products)
    extents = [as_int(item.dom.extent) for item in block.iter_vars]
    if not all(extents):
        return NotApplicable("sizes are symbolic or zero")
    _, *rows, width, depth = (extent or 1 for extent in extents)
    before, half, after = rows[: stages.axis], rows[stages.axis], rows[stages.axis + 1 :]
    images, inner = math.prod(before), math.prod(after)
    element = block.writes[0].buffer.dtype
    lanes = target.vector_lanes(dtypes.bits_of(element))
    if width % lanes:
        return NotApplicable(f"halves of {width} columns aren't multiples of {lanes}")
    size, costs = dtypes.bytes_of(element), target.costs
    each = size * STRASSEN_PRODUCTS
    weights, inputs = each * depth * width, each * half * inner * depth
    most = min(MOST_ROWS, rows_in_cache(size * depth * inner, target))
    streams = is_fetched_ahead(weights, target)
    plans = []
    for group in (size for size in range(1, half + 1) if half % size == 0):
        high, columns, cycles = _register_tile(group, width, lanes, most, target)
        groups = half // group
        kept = inputs // groups
        # The matrix is read once per group, unless it stays in the cache; sums are written and read
        # once per panel, unless these do.
        passes = 1 if weights + kept < target.l2_bytes else groups
        far = 0 if 2 * kept < target.l2_bytes else 1 + width // columns
        cost = STRASSEN_PRODUCTS * groups * inner * depth * cycles
        traffic = passes * weights / costs.weights_bandwidth + far * inputs / costs.l3_bandwidth
        cost += _SEEN * traffic
        plans.append((cost, _Plan(group, groups, images, high, columns, lanes, streams)))
    plans.sort(key=lambda item: item[0])
    return sch.choices.preferring("strassen.plan", plans)[0][1]


def _register_tile(
    rows: int, width: int, lanes: int, most: int, target: Target
) -> tuple[int, int, float]:
    """Choose the products' tile, of at most so many rows; return it with the cycles of a step."""
    best, registers = (1, lanes, math.inf), tile_registers(target)
    widths = [count for count in range(1, _MOST_VECTORS + 1) if width % (count * lanes) == 0]
    # With one vector, scalars of all rows are loaded for it alone.
    for vectors in widths[1:] or widths:
        for height in range(1, min(rows, most) + 1):
            if height * vectors + vectors + 1 > registers:
                break
            full, rest = divmod(rows, height)
            cycles = full * _step(height, vectors, target)
            if rest:
                cycles = (cycles + _step(rest, vectors, target)) / target.costs.cut_rows
            cycles *= width / (vectors * lanes)
            if cycles < best[2]:
                best = height, vectors * lanes, cycles
    return best


def _step(rows: int, vectors: int, target: Target) -> float:
    """Cycles of a step, during which a sum is in one multiply-add only."""
    least = _FEWEST_SUMS / target.costs.multiply_adds
    return max(step_cycles(rows, vectors, target.costs), least)


# ---- scheduling -----------------------------------------------------------------------------


def _schedule(sch: Schedule, stages: _Stages, plan: _Plan, target: Target) -> None:
    *rows, column = sch.get_loops(stages.output)
    before, row, after = rows[: stages.axis], rows[stages.axis], rows[stages.axis + 1 :]
    high, group, row = sch.split(row, [2, plan.groups, plan.group])
    wide, panel, vector, lane = sch.split(column, [2, None, plan.columns // plan.lanes, plan.lanes])
    sch.reorder(*before, group, panel, row, *after, vector, high, wide, lane)
    depth = len(before) + 2
    matrix = sch.get(stages.products).reads[1].buffer
    pack_operand(sch, stages.products, matrix, Panels(2, plan.columns), target)
    sch.compute_at(stages.result, vector, preserve_unit_loops=True)
    sch.set_scope(stages.result, 0, "local")
    vectorize_tile(sch, sch.get_loops(stages.result)[depth + len(after) + 2 :])
    vectorize_tile(sch, [high, wide, lane])
    _products(sch, stages, panel, depth, plan, target)
    # Threads share out groups; where those are too few, panels, which need all sums beforehand.
    inside = target.num_cores <= max(plan.images, plan.groups)
    if inside:
        sch.compute_at(stages.sums, group, preserve_unit_loops=True)
    _sums(sch, stages.sums, depth - 1 if inside else 0, plan, target)
    shared = [*before, group] if inside else [panel]
    parallelize(sch, shared, target, target.costs.parallel_work)


def _products(
    sch: Schedule, stages: _Stages, panel: LoopRV, depth: int, plan: _Plan, target: Target
) -> None:
    """Multiply: rows of a half, columns as lanes, sums in registers."""
    sch.compute_at(stages.products, panel, preserve_unit_loops=True)
    product, *rows, column, step = sch.get_loops(stages.products)[depth:]
    outer, inner = sch.split(rows.pop(stages.axis), [None, plan.rows])
    copy = fused_epilogue(sch, stages.products, ())
    nest = Nest([product, *rows, outer], [step], [inner, column], outside=depth)
    sum_in_registers(sch, stages.products, copy, nest)
    unroll_long_sum(sch, step, plan.rows * plan.columns // plan.lanes, target)
    if sch.choices.choose("strassen.ahead", (plan.streams, not plan.streams)):
        sch.annotate(product, PREFETCH_NEXT, 1)


def _sums(sch: Schedule, sums: BlockRV, depth: int, plan: _Plan, target: Target) -> None:
    """Add quarters of the data, all sums of a vector of columns at a time."""
    product, *rows, column = sch.get_loops(sums)[depth:]
    vector, lane = sch.split(column, [None, plan.lanes])
    sch.reorder(*rows, vector, product, lane)
    vectorize_tile(sch, [product, lane])
    if not depth:
        parallelize(sch, rows, target, target.costs.parallel_work)
