"""The stages of a Winograd convolution as blocks, found in a function; schedules of the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from tilewright.arith import Analyzer
from tilewright.ir import Expr, as_int
from tilewright.scheduling import NotApplicable
from tilewright.scheduling.cpu import (
    is_injective,
    leaf_blocks,
    loads_of,
    only_moves,
    parallelize,
    vectorize_tile,
)
from tilewright.target import Target
from tilewright.tir import Block, Buffer
from tilewright.tir.analysis import has_branch
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.topi.nn import WINOGRAD_TILE

# Axes of the products: two in a tile, image, row and column of tiles, filter and channel. Where
# tiles are in a row, they have one axis.
PRODUCT_AXES = 7

# Columns of an image whose channels are put last together.
_PIECE = 64


@dataclass(frozen=True)
class WinogradStages:
    """The blocks of a Winograd convolution, from the padded input to the epilogue."""

    pad: BlockRV
    input_rows: BlockRV
    input: BlockRV
    products: BlockRV
    result_rows: BlockRV
    result: BlockRV
    output: BlockRV

    @property
    def names(self) -> set[str]:
        """The names of the blocks (handles compare by identity)."""
        return {getattr(self, item.name).name for item in fields(self)}


def stages_of(sch: Schedule) -> WinogradStages | NotApplicable:
    """Find the stages around the products, and fuse everything after them into one block."""
    found = [rv for rv in leaf_blocks(sch) if WINOGRAD_TILE in sch.get(rv).annotations]
    if len(found) != 1:
        return NotApplicable(f"{len(found)} blocks of Winograd products, one is expected")
    if len(sch.get(found[0]).iter_vars) not in (PRODUCT_AXES, PRODUCT_AXES - 1):
        return NotApplicable("the annotated block doesn't multiply tiles")
    before = [found[0]]
    for _ in range(3):
        # The filters may have a transform as well, but come second.
        reads = sch.get(before[0]).reads
        producers = sch.get_producers(before[0]) if reads else []
        made = [rv for rv in producers if written_by(sch, rv) is reads[0].buffer]
        if not made:
            return NotApplicable("the stages before the products aren't there")
        before.insert(0, made[0])
    after = found
    for _ in range(3):
        consumers = sch.get_consumers(after[-1])
        if len(consumers) != 1 or not is_injective(sch, consumers[0]):
            return NotApplicable("the stages after the products aren't there")
        after = [*after, consumers[0]]
    places, computed = _places(sch, before[0], before[-1]), written_by(sch, after[-2])
    for moves in (True, False):
        attempt = sch.copy()
        output = join_epilogue(attempt, after[-1], moves)
        if isinstance(output, NotApplicable):
            return output
        if _keeps_layout(attempt.get(output), computed, places):
            sch.become(attempt)
            break
    else:
        return NotApplicable("the epilogue changes the layout")
    pad, input_rows, inputs, products = before
    _, result_rows, result, _ = after
    return WinogradStages(pad, input_rows, inputs, products, result_rows, result, output)


def join_epilogue(sch: Schedule, output: BlockRV, moves: bool) -> BlockRV | NotApplicable:
    """Inline the whole epilogue into its last block; values may be used several times.

    Without ``moves`` what only moves the result, to another shape, is left apart.
    """
    pending, last = [output], []
    while pending:
        rv = pending.pop(0)
        consumers = sch.get_consumers(rv)
        apart = not moves and any(only_moves(sch.get(consumer)) for consumer in consumers)
        if not consumers or apart:
            last.append(rv)
            continue
        if not all(is_injective(sch, consumer) for consumer in consumers):
            return NotApplicable("what follows is no epilogue")
        sch.compute_inline(rv)
        waiting = {other.name for other in pending}
        pending += [consumer for consumer in consumers if consumer.name not in waiting]
    return last[0] if len(last) == 1 else NotApplicable("several results follow")


def filter_stages(sch: Schedule, products: BlockRV) -> tuple[BlockRV, BlockRV, BlockRV] | None:
    """The blocks that transform filters which come with the call, if the function does that."""
    made: list[BlockRV] = []
    wanted = sch.get(products).reads[1].buffer
    pending = [rv for rv in sch.get_producers(products) if written_by(sch, rv) is wanted]
    while pending:
        made.insert(0, pending[0])
        pending = sch.get_producers(pending[0])
    return (made[0], made[1], made[2]) if len(made) == 3 else None


def written_by(sch: Schedule, rv: BlockRV) -> Buffer:
    """Return what a block writes."""
    written: Buffer = sch.get(rv).writes[0].buffer
    return written


def _places(
    sch: Schedule, pad: BlockRV, products: BlockRV
) -> Callable[[Expr, Expr], Sequence[Expr]]:
    """Where the result of a row and a column is, between its image and its channel."""
    block = sch.get(products)
    if len(block.iter_vars) == PRODUCT_AXES:
        return lambda h, w: (h, w)
    tile, alpha = as_int(block.annotations[WINOGRAD_TILE]) or 1, block.iter_vars[0].dom.extent
    across = (written_by(sch, pad).shape[2] - (alpha - tile)) // tile
    return lambda h, w: (h // tile * across + w // tile, h % tile, w % tile)


def _keeps_layout(
    block: Block, result: Buffer, places: Callable[[Expr, Expr], Sequence[Expr]]
) -> bool:
    """Whether a block with axes ``n, f, h, w`` reads the result, whose channels are last.

    Channels may be in blocks, the fifth axis.
    """
    axes = [item.var for item in block.iter_vars]
    if len(axes) not in (4, 5):
        return False
    channel: Expr = axes[1]
    if len(axes) == 5:
        channel = axes[1] * block.iter_vars[4].dom.extent + axes[4]
    expected = [axes[0], *places(axes[2], axes[3]), channel]
    loads = [load for load in loads_of(block) if load.buffer is result]
    known = Analyzer()
    for item in block.iter_vars:
        known.bind(item.var, item.dom)
    return all(
        len(load.indices) == len(expected)
        and all(map(known.can_prove_equal, load.indices, expected))
        for load in loads
    )


# ---- schedules ---------------------------------------------------------------------------------


def transform_in_registers(
    sch: Schedule, rows: BlockRV, tiles: BlockRV, lanes: int, depth: int = 0
) -> list[LoopRV]:
    """Transform one tile of one vector of channels at a time, ``depth`` loops inside others.

    Return the loops over images, rows and columns of tiles.
    """
    x, y, batch, down, across, channel = sch.get_loops(tiles)[depth:]
    vector, channel = sch.split(channel, [None, lanes])
    sch.reorder(batch, down, across, vector, x, y, channel)
    sch.compute_at(rows, vector)
    sch.set_scope(rows, 0, "local")
    vectorize_tile(sch, [x, y, channel])
    vectorize_tile(sch, sch.get_loops(rows)[depth + 4 :])
    return [batch, down, across]


def put_channels_last(sch: Schedule, pad: BlockRV, lanes: int, target: Target) -> None:
    """Fill with zeros, if there are any, then copy squares of pixels and channels."""
    blocks = [pad]
    if has_branch(sch.get(pad)):
        blocks.insert(0, sch.decompose_padding(pad, sch.get_loops(pad)[0]))
    for rv in blocks:
        batch, row, column, channel = sch.get_loops(rv)
        vector, channel = sch.split(channel, [None, lanes])
        sch.vectorize(channel)
        if rv is pad:
            extent = as_int(sch.get(column).extent) or 1
            size = max(size for size in range(1, _PIECE + 1) if extent % size == 0)
            piece, column = sch.split(column, [None, size])
            sch.reorder(vector, piece, column, channel)
            sch.unroll(column)
        parallelize(sch, [batch, row], target, target.costs.parallel_work)


def transform_back(
    sch: Schedule, stages: WinogradStages, around: LoopRV, tile: int, lanes: int, depth: int
) -> None:
    """Transform the result one tile of one vector of channels at a time, in ``depth`` loops."""
    sch.compute_at(stages.result, around, preserve_unit_loops=True)
    _, row, column, channel = sch.get_loops(stages.result)[depth:]
    tile_row, row = sch.split(row, [None, tile])
    tile_column, column = sch.split(column, [None, tile])
    vector, channel = sch.split(channel, [None, lanes])
    sch.reorder(tile_row, tile_column, vector, row, column, channel)
    sch.compute_at(stages.result_rows, vector, preserve_unit_loops=True)
    sch.set_scope(stages.result_rows, 0, "local")
    vectorize_tile(sch, [row, column, channel])
    vectorize_tile(sch, sch.get_loops(stages.result_rows)[depth + 4 :])


def put_channels_first(sch: Schedule, channel: LoopRV, pixel: LoopRV, lanes: int) -> None:
    """Write the result with channels first: square tiles of pixels and channels in registers."""
    vector, channel = sch.split(channel, [None, lanes])
    piece, pixel = sch.split(pixel, [None, lanes])
    sch.reorder(vector, piece, channel, pixel)
    sch.unroll(channel)
    sch.vectorize(pixel)
