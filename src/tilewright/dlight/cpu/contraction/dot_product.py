"""Contractions of small numbers: int8, int16 and bf16 operands into 32-bit sums.

CPUs add the products of a few neighbours to one sum in one instruction: four bytes, two bf16. The
reduction is split by this number ``p``, and both operands are laid out so that the inputs of one
instruction are contiguous:

- one operand in panels ``[N / NR][K / p]...[NR][p]``, of which a vector holds neighbours along N. A
  constant one is packed when the program is built (``layout_free_buffers``), any other in the call;
- of the other one a word of ``p`` neighbours along K is broadcast. It is read in place if its last
  dimension is K and ``p`` divides that, else from a copy ``[...][K / p]...[p]``.

Where the target only multiplies pairs of 16-bit numbers (x86 before VNNI), operands that are reused
are widened to 16 bits when they are copied, and nothing saturates.

K is padded with zeros to a multiple of ``p``. The tile of results lives in registers as for fp32
(:mod:`tiled_reduction`), and the epilogue (bias, scales, clipping, casts) is computed from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.dlight.cpu.contraction.dot_epilogue import (
    column_of,
    split_epilogue,
    tiles_together,
)
from tilewright.dlight.cpu.contraction.form import (
    Nest,
    cut_tile,
    lay_columns_last,
    schedule_others,
    sum_in_registers,
)
from tilewright.dlight.cpu.contraction.joined_axes import join_pixels, join_symbolic_axes
from tilewright.dlight.cpu.contraction.packing import (
    Panels,
    comes_from_memory,
    copy_operand,
    known_before,
    lay_out_words,
)
from tilewright.dlight.cpu.contraction.plan import Plan, is_scattered
from tilewright.dlight.cpu.contraction.pointwise import is_pointwise
from tilewright.dlight.cpu.contraction.register_tile import Limits, Tile, choose_tile, rank_tiles
from tilewright.dlight.cpu.contraction.wider_copies import WIDENED_OPERAND
from tilewright.ir import (
    Add,
    Call,
    Cast,
    Div,
    FloorDiv,
    Max,
    Min,
    Mul,
    Sub,
    as_int,
    collect,
    dtypes,
    pre_order,
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
from tilewright.scheduling import (
    Contraction,
    CPUScheduleRule,
    NotApplicable,
    contraction_of,
    depends,
    dimension_of,
    longest,
    stride,
)
from tilewright.scheduling.cpu import (
    SEPARATE,
    Axis,
    fused_epilogue,
    inline_injective,
    is_injective,
    leaf_blocks,
    loads_of,
    parallelize,
    size_of,
    stores_of,
    vectorize_tile,
    work_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, Buffer, BufferLoad
from tilewright.tir.attrs import PREFETCH_DISTANCE
from tilewright.tir.intrin import DotProduct, dot_product_of
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

logger = logging.getLogger("tilewright.dlight")

# What is computed of sums counts as steps, one each for a vector of every row.
_OPERATIONS = (Add, Call, Cast, Div, Max, Min, Mul, Sub)
# Rows from which sums over one operand are worth computing to have the other one unsigned.
_WORTHWHILE = 8
# Panels are fetched ahead where they serve at most so many tiles.
_FEW_TILES = 16
# The most rows of a tile that are tried: the higher, the more is written through a buffer.
_HEIGHTS = (14, 12, 8, 4)
# What brings products of bytes to x86.
_BYTE_DOTS = ("avx512vnni", "avxvnni", "avxvnniint8")
# What a search is offered beside the best tile comes after it.
_AFTER_BEST = 0.999


@dataclass(frozen=True)
class _Words:
    """How an instruction takes its operands: the axis of neighbours, and which one is in panels.

    Words of the other one are broadcast.
    """

    dot: DotProduct
    reduce: Axis
    panel: BufferLoad
    word: BufferLoad

    @property
    def signed(self) -> bool:
        """Whether both operands are signed bytes."""
        return self.panel.dtype == self.word.dtype == "int8"


@dataclass(frozen=True, kw_only=True)
class DotPlan(Plan):
    """A tile that is computed by an instruction on words."""

    words: _Words


class DotProductTile(CPUScheduleRule):
    """Applies to functions whose one large reduction multiplies small numbers."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Lay operands out for dot instructions, tile for registers, run tiles in parallel."""
        inline_injective(sch)
        mains = [rv for rv in leaf_blocks(sch) if dot_operands(sch.get(rv)) is not None]
        if len(mains) != 1:
            return NotApplicable(f"{len(mains)} sums of products of small numbers, one is expected")
        (main,) = mains
        found = contraction_of(sch, main)
        if isinstance(found, NotApplicable):
            return found
        if len(found.consumers) > 1 or not all(is_injective(sch, rv) for rv in found.consumers):
            return NotApplicable("the sum has other consumers than one epilogue")
        if _flatten_pixels(sch, found):
            found = _described(sch, main)
        found = join_symbolic_axes(sch, found)
        plan = choose_plan(sch, found, target)
        if plan is None:
            return NotApplicable("no reduction axis and axis to vectorise that operands allow")
        if _better_in_float32(found, plan, target):
            return NotApplicable("multiply-adds are faster than dot products of bfloat16 here")
        if _better_in_pairs(found, plan, target):
            _widen(sch, found)
            return _scheduled(sch, main, None, target)
        faster = plan.words.signed and wants_unsigned(target)
        if faster and (plan.words.reduce.extent or 0) % plan.words.dot.width:
            # Whole words add nothing to sums either.
            along = found.axes.index(plan.vector)
            _pad_words(sch, found, plan)
            found = _described(sch, main)
            plan = choose_plan(sch, found, target, along)
            assert plan is not None
        turned = _better_unsigned(found, plan) if faster else None
        if turned is not None:
            try:
                return _unsigned(sch.copy(), found, plan, turned, target)
            except ScheduleError as error:
                # The operands can stay as they are.
                logger.debug("signed operands: %s", error.summary)
        return _scheduled(sch, main, None, target)


def _described(sch: Schedule, main: BlockRV) -> Contraction:
    found = contraction_of(sch, main)
    if isinstance(found, NotApplicable):
        raise ScheduleError(f"{main.name}: {found.reason}")
    return found


def _scheduled(
    sch: Schedule,
    main: BlockRV,
    sums: BlockRV | None,
    target: Target,
    along: int | None = None,
) -> Schedule:
    """Schedule all blocks; ``sums`` is the block that sums one operand, if there is one.

    Vectors lie ``along`` the axis of that number, if given.
    """
    found = _described(sch, main)
    plan = choose_plan(sch, found, target, along)
    if plan is None:
        raise ScheduleError(f"{main.name}: operands along axis {along} make no panels any more")
    done = {rv.name for rv in _schedule(sch, found, sums, plan, target)}
    schedule_others(sch, found.others, done, target)
    return sch


def _pad_words(sch: Schedule, found: Contraction, plan: DotPlan) -> None:
    width, reduce = plan.words.dot.width, plan.words.reduce
    padding = [width if item.var is reduce.var else 1 for item in found.block.iter_vars]
    sch.pad_einsum(found.main, padding)


def _lacks_byte_dots(target: Target) -> bool:
    """Whether a target has multiply-adds of pairs of 16-bit numbers, but not of bytes."""
    return target.has("sse2") and not any(target.has(feature) for feature in _BYTE_DOTS)


def _better_in_float32(found: Contraction, plan: DotPlan, target: Target) -> bool:
    """Whether bfloat16 operands should be converted in advance and multiplied as float32."""
    words = plan.words
    if words.dot.a != "bfloat16" or target.has_fast_bf16_dots:
        return False
    uses = [
        work_of([axis for axis in found.spatial if not depends(load, axis)])
        for load in (words.panel, words.word)
    ]
    return min(uses) >= target.costs.promotion_uses


def _better_in_pairs(found: Contraction, plan: DotPlan, target: Target) -> bool:
    """Whether bytes should be widened to 16 bits in advance, rather than at each use.

    A matrix that is used once is not widened: it comes from memory. Nor is an operand that would be
    copied in each call for few uses and not fit the nearer caches.
    """
    if not _lacks_byte_dots(target) or plan.words.dot.width != 4 or plan.row is None:
        return False
    for load in (plan.words.panel, plan.words.word):
        uses = work_of([axis for axis in found.spatial if not depends(load, axis)])
        near = 2 * (size_of(load.buffer) or 0) <= target.l2_bytes
        few = near or load.buffer in found.constants
        if uses < (_WORTHWHILE if few else target.costs.pair_uses):
            return False
    return True


def _widen(sch: Schedule, found: Contraction) -> None:
    """Make the product read 16-bit copies of both operands, written by their producers."""
    for load in _factors(found):
        before = {rv.name for rv in leaf_blocks(sch)}
        options = {"block": found.main.name, "operand": load.buffer.name}
        sch.use_kernel("root", WIDENED_OPERAND, options)
        (copy,) = [rv for rv in leaf_blocks(sch) if rv.name not in before]
        sch.annotate(copy, SEPARATE, 1)
    inline_injective(sch)


def _better_unsigned(found: Contraction, plan: DotPlan) -> BufferLoad | None:
    """Which of two signed operands to make unsigned, if that makes products faster.

    Panels are shifted while they are packed, and rows of the other operand are summed. If the other
    operand must be copied anyway, its copy is shifted instead, and panels are summed.
    """
    panel, word = plan.words.panel, plan.words.word
    many = plan.row is not None and (plan.row.extent or _WORTHWHILE) >= _WORTHWHILE
    constant = panel.buffer in found.constants
    if (many or constant) and has_rows_to_sum(found.block, word, plan.words.reduce):
        return panel
    return word if many else None


def _unsigned(
    sch: Schedule, found: Contraction, plan: DotPlan, turned: BufferLoad, target: Target
) -> Schedule:
    """Schedule the function with an unsigned operand in place of a signed one."""
    before = {rv.name for rv in leaf_blocks(sch)}
    main, words = found.main, plan.words
    options = {
        "block": main.name,
        "turned": turned.buffer.name,
        "along": words.reduce.var.name,
    }
    other = words.word if turned is words.panel else words.panel
    sch.use_kernel("root", UNSIGNED_OPERAND, options)
    stem = sums_of(other.buffer)
    made = [rv for rv in leaf_blocks(sch) if rv.name not in before and rv.name.startswith(stem)]
    inline_injective(sch)
    sums, along = sch.get_block(made[0].name), found.axes.index(plan.vector)
    return _scheduled(sch, sch.get_block(main.name), sums, target, along)


def _flatten_pixels(sch: Schedule, found: Contraction) -> bool:
    """Fuse rows and columns of a 1 x 1 convolution, so that tiles span the whole image."""
    if not is_pointwise(found):
        return False
    main, consumers = found.main, found.consumers
    width = as_int(found.block.iter_vars[3].dom.extent)
    if width is None or (
        consumers and not _goes_on_alike(sch.get(consumers[0]), found.store.buffer)
    ):
        return False
    epilogue = consumers[0] if consumers else sch.cache_write(main, 0, "global")
    copy = copy_operand(sch, main, found.loads[0].buffer)
    sch.annotate(copy, SEPARATE, 1)
    join_pixels(sch, [copy], main, epilogue, width)
    return True


def _goes_on_alike(epilogue: Block, sums: Buffer) -> bool:
    """Whether an epilogue reads sums in order."""
    axes = [item.var for item in epilogue.iter_vars]
    found = [load for load in loads_of(epilogue) if load.buffer is sums]
    return len(axes) == sums.ndim and all(
        all(index is axis for index, axis in zip(load.indices, axes)) for load in found
    )


# ---- choosing -------------------------------------------------------------------------------


def choose_plan(
    sch: Schedule, found: Contraction, target: Target, along: int | None = None
) -> DotPlan | None:
    """Return the best way to tile a sum of products; ``None`` if no axes are suitable.

    Vectors lie ``along`` the axis of that number, if given.
    """
    operands = dot_operands(found.block)
    if operands is None:
        return None
    dot, a, b = operands
    usable = [axis for axis in found.steps if _is_deep(axis, dot, a, b)]
    reduce = max(reversed(usable), key=lambda axis: axis.extent or 0, default=None)
    if reduce is None:
        return None
    plans = [
        plan
        for words in (_Words(dot, reduce, a, b), _Words(dot, reduce, b, a))
        for vector in (found.axes if along is None else [found.axes[along]])
        for plan in _plans_along(sch, found, words, vector, target)
    ]
    plans.reverse()
    plans.sort(key=lambda plan: plan.tile.score, reverse=True)
    return sch.choices.choose("dot_product.plan", plans) if plans else None


def _is_deep(axis: Axis, dot: DotProduct, a: BufferLoad, b: BufferLoad) -> bool:
    """Whether an axis is a dimension of both operands and can be divided into words."""
    both = dimension_of(a, axis) is not None and dimension_of(b, axis) is not None
    return both and axis.extent is not None and axis.extent >= max(2, dot.width - 1)


def _writing(
    found: Contraction, epilogue: Block | None, vector: Axis, operations: int, target: Target
) -> Callable[[Tile], float]:
    """The cost of writing a transposed tile, in steps, including its epilogue."""
    store, lanes, costs = found.store, target.vector_lanes(32), target.costs
    size, along = dtypes.bytes_of(store.buffer.dtype), False
    if epilogue is not None:
        dim = dimension_of(store, vector)
        size = dtypes.bytes_of(stores_of(epilogue)[0].buffer.dtype)
        along = dim is not None and column_of(epilogue, store.buffer, dim) is not None

    def steps(tile: Tile) -> float:
        if along and size < 4:  # several tiles together, whatever their rows
            return operations + costs.dot_transpose_steps * size / 4
        grouped = tile.rows % 4 == 0
        groups = costs.dot_shuffle_steps if grouped else costs.dot_transpose_steps
        return operations * (1 if along else lanes / min(tile.rows, lanes)) + groups

    return steps


def _plans_along(
    sch: Schedule, found: Contraction, words: _Words, vector: Axis, target: Target
) -> list[DotPlan]:
    """The best tile along an axis; for a search, all that are worth trying."""
    panel, word = words.panel, words.word
    if vector.is_reduce or vector.extent in (None, 1) or depends(word, vector):
        return []
    if dimension_of(panel, vector) is None or any(as_int(e) is None for e in panel.buffer.shape):
        return []
    contiguous = found.is_contiguous(vector)
    rows = [axis for axis in found.reusing(panel) if depends(word, axis)]
    if contiguous:
        row = longest(rows)
    elif rows and found.is_contiguous(rows[-1]):
        row = rows[-1]  # the tile's rows are written side by side
    else:
        return []
    steps, lanes = work_of(found.steps) / words.dot.width, target.vector_lanes(32)
    epilogue = sch.get(found.consumers[0]) if found.consumers else None
    computed = [] if epilogue is None else pre_order(epilogue.body)
    operations = sum(isinstance(item, _OPERATIONS) for item in computed)
    writing = _writing(found, epilogue, vector, operations, target)

    def promise(tile: Tile) -> float:
        written = operations if contiguous else writing(tile)
        return tile.score * steps / (steps + written)

    # Pairs are added to a sum by an instruction of its own.
    registers = target.vector_registers - (1 if _lacks_byte_dots(target) else 0)

    def limits(most: int) -> Limits:
        return Limits(lanes, registers, target.costs, most_rows=most)

    heights = _HEIGHTS[:1] if contiguous else _HEIGHTS
    best = max((choose_tile(row, vector, limits(most)) for most in heights), key=promise)
    uses, constant = work_of(rows), panel.buffer in known_before(sch.mod["main"])
    worth = 1.0 if constant else uses / (uses + target.costs.word_uses)
    apart = (stride(word, words.reduce) or 0) * words.dot.width
    if is_scattered(apart * dtypes.bytes_of(word.buffer.dtype), steps):
        worth *= target.costs.scattered
    made = {(best.rows, best.columns): replace(best, score=worth * promise(best))}
    for most in range(_HEIGHTS[0], 3, -2) if sch.choices.is_search else ():
        for tile in rank_tiles(row, vector, limits(most))[:3]:
            score = worth * min(promise(tile), _AFTER_BEST * promise(best))
            made.setdefault((tile.rows, tile.columns), replace(tile, score=score))
    return [
        DotPlan(row, vector, tile, panel, constant, not contiguous, words=words)
        for tile in made.values()
    ]


# ---- scheduling -----------------------------------------------------------------------------


def _schedule(
    sch: Schedule, found: Contraction, sums: BlockRV | None, plan: DotPlan, target: Target
) -> list[BlockRV]:
    """Schedule the product and its operands; return the other blocks that are done, too.

    ``sums`` is the block that sums the operand in panels, if needed.
    """
    main, words = found.main, plan.words
    panel_first = _factors(found)[0] is words.panel
    now = found
    if (words.reduce.extent or 0) % words.dot.width:
        _pad_words(sch, found, plan)
        now = _described(sch, main)
    # Padding makes new loops of the same axes.
    renewed = dict(zip(found.axes, now.axes, strict=True))
    plan = replace(
        plan,
        row=None if plan.row is None else renewed[plan.row],
        vector=renewed[plan.vector],
        words=replace(words, reduce=renewed[words.reduce]),
    )
    copies: list[BlockRV] = []
    by_rows = sums is not None and reads(sch, sums, words.word.buffer)
    if sums is not None:
        copies.append(sums)
        if by_rows:
            copies += schedule_row_sums(sch, sums, target)
        else:
            _share_copy(sch, sums, words.panel.buffer)
    for is_panel in (True, False):
        operand = _factors(_described(sch, main))[0 if panel_first == is_panel else 1]
        wide = dimension_of(operand, plan.vector) if is_panel else None
        deep = dimension_of(operand, plan.words.reduce)
        assert deep is not None
        panels = Panels(wide, plan.tile.columns, deep=deep, word=words.dot.width)
        readers = 2 if sums is not None and is_panel != by_rows else 1
        copy = lay_out_words(sch, main, operand.buffer, panels, readers, target)
        copies += [] if copy is None else [copy]
    if sums is not None and not by_rows:
        _schedule_sums(sch, sums, found, plan)
    _schedule_tile(sch, now, plan, target)
    return copies


def _share_copy(sch: Schedule, sums: BlockRV, panel: Buffer) -> None:
    """Make the sums of an operand and the product read the same copy of it."""
    if panel in sch.mod["main"].buffers:
        copy_operand(sch, sums, panel)


def _schedule_sums(sch: Schedule, sums: BlockRV, found: Contraction, plan: DotPlan) -> None:
    """Sum panels: a product with one row, of 128s."""
    own = _described(sch, sums)
    dot = dot_product_of("uint8", "int8", "int32", "global")
    assert dot is not None
    kept = [axis.var for axis in found.spatial if depends(plan.words.panel, axis)]
    spatial = [axis.loop for axis in own.spatial]
    reduce = [axis.loop for axis in own.steps]
    vector = spatial.pop(kept.index(plan.vector.var))
    place = [axis.var for axis in found.steps].index(plan.words.reduce.var)
    outer, column = sch.split(vector, [None, plan.tile.columns])
    reduce[place], neighbour = sch.split(reduce[place], [None, dot.width])
    sch.reorder(*spatial, outer, *reduce, column, neighbour)
    init = sch.decompose_reduction(sums, reduce[0])
    update = sch.tensorize(neighbour, dot.name)
    for rv in (update, init):
        sch.vectorize(sch.get_loops(rv)[-1])


def _factors(found: Contraction) -> tuple[BufferLoad, BufferLoad]:
    operands = dot_operands(found.block)
    assert operands is not None
    return operands[1:]


def _schedule_tile(sch: Schedule, found: Contraction, plan: DotPlan, target: Target) -> None:
    main, vector, words = found.main, plan.vector, plan.words
    copy, along = None, None
    if plan.transposed:
        epilogue = found.consumers[0] if found.consumers else sch.cache_write(main, 0, "global")
        copy, along = _along_columns(sch, found, vector)
        if along is not None:
            epilogue = along
        else:
            copy = sch.cache_write(main, 0, "local")
            lay_columns_last(sch, main, copy, vector)
    else:
        epilogue = fused_epilogue(sch, main, found.consumers)
    together = 1
    if along is not None and plan.row is not None:
        dtype = stores_of(sch.get(epilogue))[0].buffer.dtype
        together = tiles_together(plan.row.extent, plan.tile, dtype)
    outer, tile = cut_tile(sch, found, plan, together)
    deep, neighbour = sch.split(words.reduce.loop, [None, words.dot.width])
    steps = [deep if axis is words.reduce else axis.loop for axis in found.steps]
    held = 1 if together > 1 else 0
    written = len(outer) - held
    nest = Nest(outer, steps, [*tile, neighbour], held, dot=words.dot.name)
    sum_in_registers(sch, main, epilogue, nest, copy)
    near = (0, int(target.costs.panels_ahead))
    far = _passes_by(sch, plan, target)
    ahead = sch.choices.choose("dot_product.ahead", near[::-1] if far else near)
    if ahead and len(steps) == 1:
        sch.annotate(deep, PREFETCH_DISTANCE, ahead)
    if copy is not None:
        vectorize_tile(sch, sch.get_loops(epilogue)[written:])
    # A fused loop would hide that pixels of several rows of an image lie side by side.
    outer = outer[: written - 1] if _mixes_rows(sch.get(epilogue)) else outer[:written]
    parallelize(sch, outer, target, 2 * work_of(found.axes))


def _along_columns(
    sch: Schedule, found: Contraction, vector: Axis
) -> tuple[BlockRV | None, BlockRV | None]:
    """Compute an epilogue along the columns, if possible; return it and the final copy."""
    main, consumers = found.main, found.consumers
    dim = dimension_of(found.store, vector)
    if not consumers or dim is None:
        return None, None
    along = split_epilogue(sch, consumers[0], found.store.buffer, dim)
    if along is None:
        return None, None
    sch.transform_layout(main, ("write", 0), lambda *i: (*i[:dim], *i[dim + 1 :], i[dim]))
    sch.set_scope(main, 0, "local")
    return consumers[0], along


def _passes_by(sch: Schedule, plan: DotPlan, target: Target) -> bool:
    """Whether panels come from memory, and each serves few tiles."""
    size = size_of(plan.words.panel.buffer)
    if size is None or 2 * size < target.l2_bytes or not comes_from_memory(sch, size, target):
        return False
    rows = 1 if plan.row is None else plan.row.extent
    return rows is not None and rows <= _FEW_TILES * plan.tile.rows


def _mixes_rows(epilogue: Block) -> bool:
    """Whether the indices of the store contain quotients."""
    return any(collect(index, FloorDiv) for index in stores_of(epilogue)[0].indices)
