"""Contractions of small numbers: int8, int16 and bf16 operands into 32-bit sums.

CPUs add the products of a few neighbours to one sum in one instruction: four bytes, two bf16. The
reduction is split by this number ``p``, and both operands are laid out so that what belongs to one
instruction lies side by side:

- one operand in panels ``[N / NR][K / p]...[NR][p]``, of which a vector holds neighbours along N. A
  constant one is packed when the program is built (``layout_free_buffers``), another in the call;
- of the other one a word of ``p`` neighbours along K is broadcast. It is read as it is where its
  last dimension is K and ``p`` divides that, else from a copy ``[...][K / p]...[p]``.

K is padded with zeros to a multiple of ``p``. The tile of results lives in registers as for fp32
(:mod:`tiled_reduction`), and what follows (bias, scales, clipping, casts) is computed from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.dlight.cpu.contraction.dot_epilogue import (
    column_of,
    split_epilogue,
    tiles_together,
)
from tilewright.dlight.cpu.contraction.dot_packing import (
    constants_of,
    dimension_of,
    known_before,
    lay_out,
)
from tilewright.dlight.cpu.contraction.pointwise import is_pointwise
from tilewright.dlight.cpu.contraction.register_tile import rank_tiles
from tilewright.dlight.cpu.contraction.tiled_reduction import (
    Tile,
    _columns_innermost,
    _lay_columns_last,
    choose_tile,
)
from tilewright.ir import (
    Add,
    Call,
    Cast,
    Div,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mul,
    Sub,
    as_int,
    collect,
    dtypes,
    pre_order,
    uses_var,
)
from tilewright.kernels.cpu.unsigned_product import (
    UNSIGNED_OPERAND,
    dot_operands,
    has_rows_to_sum,
    reads,
    schedule_row_sums,
    sums_of,
    wants_unsigned,
)
from tilewright.scheduling import NotApplicable, ScheduleRule, choose, is_exploring
from tilewright.scheduling.cpu import (
    SEPARATE,
    Axis,
    axes_of,
    fused_epilogue,
    inline_injective,
    is_injective,
    leaf_blocks,
    loads_of,
    parallelize,
    schedule_injective,
    schedule_reduction,
    size_of,
    stores_of,
    stride_of,
    vectorize_tile,
    work_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, Buffer, BufferLoad, BufferStore, PrimFunc
from tilewright.tir.attrs import PREFETCH_DISTANCE
from tilewright.tir.intrin import DotProduct, dot_product_of
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

logger = logging.getLogger("tilewright.dlight")

# Steps of the reduction that writing a tile through a buffer takes: element by element, and by
# shuffles, if its rows come in groups of four.
_TRANSPOSE_STEPS, _GROUP_STEPS = 8, 5
# What is computed of sums counts as steps, one each for a vector of every row.
_OPERATIONS = (Add, Call, Cast, Div, Max, Min, Mul, Sub)
# Rows from which sums over one operand are worth computing to have the other one unsigned.
_WORTHWHILE = 8
# Uses of an element that packing it in the call costs.
_PACK_USES = 24
# Bytes that panels are fetched ahead where they serve at most so many tiles.
_AHEAD, _FEW_TILES = 16384, 16
# What a search is offered beside the best tile comes after it.
_AFTER_BEST = 0.999


@dataclass(frozen=True)
class Plan:
    """The intrinsic, its operands, and the axes that make the tile."""

    dot: DotProduct
    reduce: Axis
    row: Axis | None
    vector: Axis
    tile: Tile
    panel: BufferLoad
    word: BufferLoad
    transposed: bool


class DotProductTile(ScheduleRule):
    """Applies to functions whose one large reduction multiplies small numbers."""

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Lay operands out for dot instructions, tile for registers, run tiles in parallel."""
        inline_injective(sch)
        found = [rv for rv in leaf_blocks(sch) if dot_operands(sch.get(rv)) is not None]
        if len(found) != 1:
            return NotApplicable(f"{len(found)} sums of products of small numbers, one is expected")
        main = found[0]
        consumers = sch.get_consumers(main)
        if len(consumers) > 1 or not all(is_injective(sch, rv) for rv in consumers):
            return NotApplicable("the sum has other consumers than one epilogue")
        _flatten_pixels(sch, main)
        axes = axes_of(sch, main)
        if axes is None:
            return NotApplicable("the loops are not the axes")
        plan = choose_plan(sch.mod["main"], sch.get(main), axes, target)
        if plan is None:
            return NotApplicable("no reduction axis and axis to vectorise that operands allow")
        if _is_signed(plan, target) and (plan.reduce.extent or 0) % plan.dot.width:
            plan = _with_whole_words(sch, main, plan, target)
        turned = _better_unsigned(sch, main, plan, target)
        if turned is not None:
            try:
                return _unsigned(sch.copy(), main, plan, turned, target)
            except ScheduleError as error:
                # The operands can stay as they are.
                logger.debug("signed operands: %s", str(error).split("\n")[0])
        return _scheduled(sch, main, None, target)


def _scheduled(
    sch: Schedule,
    main: BlockRV,
    sums: BlockRV | None,
    target: Target,
    along: int | None = None,
) -> Schedule:
    """Schedule all blocks; ``sums`` is the one that sums an operand by itself, if there is one.

    Vectors lie ``along`` the axis of that number, if given.
    """
    blocks, consumers, axes = leaf_blocks(sch), sch.get_consumers(main), axes_of(sch, main)
    assert axes is not None
    plan = choose_plan(sch.mod["main"], sch.get(main), axes, target, along)
    if plan is None:
        raise ScheduleError(f"{main.name}: operands along axis {along} make no panels any more")
    done = _schedule(sch, main, sums, consumers, axes, plan, target)
    taken = {rv.name for rv in (main, *consumers, *done)}
    for rv in blocks:
        if rv.name in taken:
            continue
        if is_injective(sch, rv):
            schedule_injective(sch, rv, target)
        else:
            schedule_reduction(sch, rv, target)
    return sch


def _is_signed(plan: Plan, target: Target) -> bool:
    """Whether both operands are signed, and would be faster if one were not."""
    return plan.panel.dtype == plan.word.dtype == "int8" and wants_unsigned(target)


def _with_whole_words(sch: Schedule, main: BlockRV, plan: Plan, target: Target) -> Plan:
    """Pad the reduction to whole words, which adds nothing to sums either; the plan after it."""
    vector = [axis.var for axis in axes_of(sch, main) or []].index(plan.vector.var)
    _pad_words(sch, main, plan)
    axes = axes_of(sch, main)
    assert axes is not None
    found = choose_plan(sch.mod["main"], sch.get(main), axes, target, vector)
    assert found is not None
    return found


def _pad_words(sch: Schedule, main: BlockRV, plan: Plan) -> None:
    width = plan.dot.width
    padding = [width if item.var is plan.reduce.var else 1 for item in sch.get(main).iter_vars]
    sch.pad_einsum(main, padding)


def _better_unsigned(sch: Schedule, main: BlockRV, plan: Plan, target: Target) -> BufferLoad | None:
    """Which of two signed operands is better unsigned, if that makes products faster.

    Panels are turned while they are packed, and then rows of the other operand are summed. Where
    these can't be read as they are, their copy is turned instead, and panels are summed.
    """
    if not _is_signed(plan, target):
        return None
    many = plan.row is not None and (plan.row.extent or _WORTHWHILE) >= _WORTHWHILE
    constant = plan.panel.buffer in constants_of(sch.mod["main"])
    if (many or constant) and has_rows_to_sum(sch.get(main), plan.word, plan.reduce):
        return plan.panel
    return plan.word if many else None


def _unsigned(
    sch: Schedule, main: BlockRV, plan: Plan, turned: BufferLoad, target: Target
) -> Schedule:
    """Schedule the function with an unsigned operand in place of a signed one."""
    before = {rv.name for rv in leaf_blocks(sch)}
    options = {
        "block": main.name,
        "turned": turned.buffer.name,
        "along": plan.reduce.var.name,
    }
    other = plan.word if turned is plan.panel else plan.panel
    along = [axis.var for axis in axes_of(sch, main) or []].index(plan.vector.var)
    sch.use_kernel("root", UNSIGNED_OPERAND, options)
    stem = sums_of(other.buffer)
    made = [rv for rv in leaf_blocks(sch) if rv.name not in before and rv.name.startswith(stem)]
    inline_injective(sch)
    sums = sch.get_block(made[0].name)
    return _scheduled(sch, sch.get_block(main.name), sums, target, along)


def _flatten_pixels(sch: Schedule, main: BlockRV) -> None:
    """Make rows and columns of a 1 x 1 convolution one axis, so that tiles fit all of an image."""
    block = sch.get(main)
    if not is_pointwise(block):
        return
    width = as_int(block.iter_vars[3].dom.extent)
    if width is None:
        return
    consumers = sch.get_consumers(main)
    if consumers and not _goes_on_alike(sch.get(consumers[0]), stores_of(block)[0].buffer):
        return
    epilogue = consumers[0] if consumers else sch.cache_write(main, 0, "global")
    (data, _) = loads_of(block)
    buffers = [region.buffer for region in sch.get(main).reads]
    copy = sch.cache_read(main, buffers.index(data.buffer), "global")
    sch.annotate(copy, SEPARATE, 1)

    def flat(n: Expr, c: Expr, h: Expr, w: Expr, *rest: Expr) -> tuple[Expr, ...]:
        return (n, c, h * width + w, *rest)

    for rv in (copy, main):
        sch.transform_layout(rv, ("write", 0), flat)
    for rv in (copy, main, epilogue):
        sch.transform_block_layout(rv, flat)


def _goes_on_alike(epilogue: Block, sums: Buffer) -> bool:
    """Whether an epilogue goes through sums in their order."""
    axes = [item.var for item in epilogue.iter_vars]
    found = [load for load in loads_of(epilogue) if load.buffer is sums]
    return len(axes) == sums.ndim and all(
        all(index is axis for index, axis in zip(load.indices, axes)) for load in found
    )


# ---- choosing -------------------------------------------------------------------------------


def choose_plan(
    func: PrimFunc,
    block: Block,
    axes: Sequence[Axis],
    target: Target,
    along: int | None = None,
) -> Plan | None:
    """Return the best way to tile a sum of products; ``None`` if no axes will do.

    Vectors lie ``along`` the axis of that number, if given.
    """
    found = dot_operands(block)
    if found is None:
        return None
    dot, a, b = found
    reduce = _reduction_axis(dot, a, b, axes)
    if reduce is None:
        return None
    plans = [
        plan
        for panel, word in ((a, b), (b, a))
        for vector in (axes if along is None else [axes[along]])
        for plan in _plans_along(dot, reduce, vector, panel, word, axes, block, func, target)
    ]
    plans.reverse()
    plans.sort(key=lambda plan: plan.tile.score, reverse=True)
    return choose("dot_product.plan", plans) if plans else None


def _reduction_axis(
    dot: DotProduct, a: BufferLoad, b: BufferLoad, axes: Sequence[Axis]
) -> Axis | None:
    """The longest reduction axis that is a dimension of both operands."""
    usable = [
        axis
        for axis in axes
        if axis.is_reduce
        and axis.extent is not None
        and axis.extent >= max(2, dot.width - 1)
        and dimension_of(a, axis) is not None
        and dimension_of(b, axis) is not None
    ]
    return max(reversed(usable), key=lambda axis: axis.extent or 0, default=None)


def _readers(func: PrimFunc, sums: Buffer) -> list[Block]:
    """The blocks that use sums."""
    return [
        block
        for block in collect(func.body, Block)
        if any(region.buffer is sums for region in block.reads)
        and all(region.buffer is not sums for region in block.writes)
    ]


def _writing(
    readers: Sequence[Block], store: BufferStore, vector: Axis, operations: int, lanes: int
) -> Callable[[Tile], float]:
    """Steps that a transposed tile takes to be written, after what is computed of its sums."""
    size, along = dtypes.bytes_of(store.buffer.dtype), False
    if readers:
        block = readers[0]
        dim = next(d for d, index in enumerate(store.indices) if index is vector.var)
        size = dtypes.bytes_of(stores_of(block)[0].buffer.dtype)
        along = column_of(block, store.buffer, dim) is not None

    def steps(tile: Tile) -> float:
        if along and size < 4:  # several tiles together, whatever their rows
            return operations + _TRANSPOSE_STEPS * size / 4
        groups = _GROUP_STEPS if tile.rows % 4 == 0 else _TRANSPOSE_STEPS
        return operations * (1 if along else lanes / min(tile.rows, lanes)) + groups

    return steps


def _plans_along(
    dot: DotProduct,
    reduce: Axis,
    vector: Axis,
    panel: BufferLoad,
    word: BufferLoad,
    axes: Sequence[Axis],
    block: Block,
    func: PrimFunc,
    target: Target,
) -> list[Plan]:
    """The best tile along an axis; all that are worth trying if a search asks."""
    if vector.is_reduce or vector.extent in (None, 1) or uses_var(word, {vector.var}):
        return []
    if dimension_of(panel, vector) is None or any(as_int(e) is None for e in panel.buffer.shape):
        return []
    store = stores_of(block)[0]
    contiguous = stride_of(store.indices, store.buffer, vector.var) == 1
    rows = [
        axis
        for axis in axes
        if not axis.is_reduce
        and axis.extent != 1
        and uses_var(word, {axis.var})
        and not uses_var(panel, {axis.var})
    ]
    if contiguous:
        row = max(rows, key=lambda axis: axis.extent or 64, default=None)
    elif rows and stride_of(store.indices, store.buffer, rows[-1].var) == 1:
        row = rows[-1]  # the tile's rows are written side by side
    else:
        return []
    steps = work_of([axis for axis in axes if axis.is_reduce]) / dot.width
    lanes, size = target.vector_lanes(32), (target.vector_registers, target.costs)
    readers = _readers(func, store.buffer)
    operations = sum(isinstance(i, _OPERATIONS) for b in readers for i in pre_order(b.body))
    writing = _writing(readers, store, vector, operations, lanes)

    def promise(tile: Tile) -> float:
        written = operations if contiguous else writing(tile)
        return tile.score * steps / (steps + written)

    heights = (14,) if contiguous else (14, 12, 8, 4)
    tiles = [choose_tile(row, vector, lanes, *size, most_rows=most) for most in heights]
    best = max(tiles, key=promise)
    uses, constants = work_of(rows), known_before(func)
    worth = 1.0 if panel.buffer in constants else uses / (uses + _PACK_USES)
    made = {(best.rows, best.columns): replace(best, score=worth * promise(best))}
    for most in range(14, 3, -2) if is_exploring() else ():
        for tile in rank_tiles(row, vector, lanes, *size, most_rows=most)[:3]:
            score = worth * min(promise(tile), _AFTER_BEST * promise(best))
            made.setdefault((tile.rows, tile.columns), replace(tile, score=score))
    return [
        Plan(dot, reduce, row, vector, tile, panel, word, not contiguous) for tile in made.values()
    ]


# ---- scheduling -----------------------------------------------------------------------------


def _schedule(
    sch: Schedule,
    main: BlockRV,
    sums: BlockRV | None,
    consumers: Sequence[BlockRV],
    axes: Sequence[Axis],
    plan: Plan,
    target: Target,
) -> list[BlockRV]:
    """Schedule the product and its operands; return the blocks that this dealt with.

    ``sums`` sums the operand in panels by itself, if that is needed.
    """
    width = plan.dot.width
    places = {axis.var: place for place, axis in enumerate(axes)}
    first, _ = _factors(sch, main)
    panel_first = first is plan.panel
    if (plan.reduce.extent or 0) % width:
        _pad_words(sch, main, plan)
    renewed = axes_of(sch, main)
    assert renewed is not None and len(renewed) == len(axes)
    row = None if plan.row is None else renewed[places[plan.row.var]]
    vector, reduce = renewed[places[plan.vector.var]], renewed[places[plan.reduce.var]]
    copies: list[BlockRV] = []
    tile = (width, plan.tile.columns)
    by_rows = sums is not None and reads(sch, sums, plan.word.buffer)
    if sums is not None:
        copies.append(sums)
        if by_rows:
            copies += schedule_row_sums(sch, sums, target)
        else:
            _share_copy(sch, main, sums, plan)
    for is_panel in (True, False):
        operand = _factors(sch, main)[0 if panel_first == is_panel else 1]
        along = vector if is_panel else None
        readers = 2 if sums is not None and is_panel != by_rows else 1
        copy = lay_out(sch, main, operand, reduce, along, readers, tile, target)
        copies += [] if copy is None else [copy]
    if sums is not None and not by_rows:
        _schedule_sums(sch, sums, axes, plan)
    _schedule_tile(sch, main, consumers, renewed, row, vector, reduce, plan, target)
    return copies


def _share_copy(sch: Schedule, main: BlockRV, sums: BlockRV, plan: Plan) -> None:
    """Let the sums of an operand and the product read the same copy of it."""
    if plan.panel.buffer in sch.mod["main"].buffers:
        buffers = [region.buffer for region in sch.get(sums).reads]
        sch.cache_read(sums, buffers.index(plan.panel.buffer), "global")


def _schedule_sums(sch: Schedule, sums: BlockRV, axes: Sequence[Axis], plan: Plan) -> None:
    """Sum panels: a product with one row, of 128s. ``axes`` are those of the product."""
    own = axes_of(sch, sums)
    dot = dot_product_of("uint8", "int8", "int32", "global")
    assert own is not None and dot is not None
    kept = [axis.var for axis in axes if not axis.is_reduce and uses_var(plan.panel, {axis.var})]
    steps = [axis.var for axis in axes if axis.is_reduce]
    spatial = [axis.loop for axis in own if not axis.is_reduce]
    reduce = [axis.loop for axis in own if axis.is_reduce]
    vector = spatial.pop(kept.index(plan.vector.var))
    place = steps.index(plan.reduce.var)
    outer, column = sch.split(vector, [None, plan.tile.columns])
    reduce[place], neighbour = sch.split(reduce[place], [None, dot.width])
    sch.reorder(*spatial, outer, *reduce, column, neighbour)
    init = sch.decompose_reduction(sums, reduce[0])
    update = sch.tensorize(neighbour, dot.name)
    for rv in (update, init):
        sch.vectorize(sch.get_loops(rv)[-1])


def _factors(sch: Schedule, main: BlockRV) -> tuple[BufferLoad, BufferLoad]:
    found = dot_operands(sch.get(main))
    assert found is not None
    return found[1:]


def _schedule_tile(
    sch: Schedule,
    main: BlockRV,
    consumers: Sequence[BlockRV],
    axes: Sequence[Axis],
    row: Axis | None,
    vector: Axis,
    reduce: Axis,
    plan: Plan,
    target: Target,
) -> None:
    copy, along = None, None
    if plan.transposed:
        epilogue = consumers[0] if consumers else sch.cache_write(main, 0, "global")
        copy, along = _along_columns(sch, main, consumers, axes.index(vector))
        if along is not None:
            epilogue = along
        else:
            copy = sch.cache_write(main, 0, "local")
            _lay_columns_last(sch, main, copy, vector)
    else:
        epilogue = fused_epilogue(sch, main, consumers)
    outer = [axis.loop for axis in axes if not axis.is_reduce and axis not in (row, vector)]
    column_outer, column_inner = sch.split(vector.loop, [None, plan.tile.columns])
    deep, neighbour = sch.split(reduce.loop, [None, plan.dot.width])
    steps = [deep if axis is reduce else axis.loop for axis in axes if axis.is_reduce]
    inner: list[LoopRV] = []
    outer.insert(0, column_outer)  # a panel stays in the cache for all rows
    written = len(outer)
    if row is not None:
        dtype = stores_of(sch.get(epilogue))[0].buffer.dtype
        together = 1 if along is None else tiles_together(row.extent, plan.tile, dtype)
        blocks = [None, together, plan.tile.rows] if together > 1 else [None, plan.tile.rows]
        *row_outer, row_inner = sch.split(row.loop, blocks)
        outer += row_outer
        written += 1
        inner.append(row_inner)
    sch.reorder(*outer, *steps, *inner, column_inner, neighbour)
    if copy is not None:
        sch.reverse_compute_at(copy, outer[-1])
        _columns_innermost(sch, copy, len(outer))
    sch.reverse_compute_at(epilogue, outer[written - 1])
    init = sch.decompose_reduction(main, steps[0])
    update = sch.tensorize(neighbour, plan.dot.name)
    near = (0, _AHEAD) if not _streams(sch, plan, target) else (_AHEAD, 0)
    ahead = choose("dot_product.ahead", near)
    if ahead and len(steps) == 1:
        sch.annotate(deep, PREFETCH_DISTANCE, ahead)
    depth = len(outer)
    vectorize_tile(sch, sch.get_loops(update)[depth + len(steps) :])
    vectorize_tile(sch, sch.get_loops(init)[depth:])
    if copy is not None:
        vectorize_tile(sch, sch.get_loops(copy)[depth:])
    vectorize_tile(sch, sch.get_loops(epilogue)[written:])
    # A fused loop would hide that pixels of several rows of an image lie side by side.
    outer = outer[: written - 1] if _mixes_rows(sch.get(epilogue)) else outer[:written]
    parallelize(sch, outer, target, 2 * work_of(axes))


def _along_columns(
    sch: Schedule, main: BlockRV, consumers: Sequence[BlockRV], vector: int
) -> tuple[BlockRV | None, BlockRV | None]:
    """Compute an epilogue along the columns, if it can be; return it and what writes the result."""
    if not consumers:
        return None, None
    store, column = stores_of(sch.get(main))[0], sch.get(main).iter_vars[vector].var
    dim = next(d for d, index in enumerate(store.indices) if index is column)
    along = split_epilogue(sch, consumers[0], store.buffer, dim)
    if along is None:
        return None, None
    sch.transform_layout(main, ("write", 0), lambda *i: (*i[:dim], *i[dim + 1 :], i[dim]))
    sch.set_scope(main, 0, "local")
    return consumers[0], along


def _streams(sch: Schedule, plan: Plan, target: Target) -> bool:
    """Whether panels come from beyond the nearer caches, and serve few tiles each."""
    size = size_of(plan.panel.buffer)
    if size is None or 2 * size < target.l2_bytes:
        return False
    rows = 1 if plan.row is None else plan.row.extent
    return rows is not None and rows <= _FEW_TILES * plan.tile.rows


def _mixes_rows(epilogue: Block) -> bool:
    """Whether what is written has quotients among its indices."""
    return any(collect(index, FloorDiv) for index in stores_of(epilogue)[0].indices)
