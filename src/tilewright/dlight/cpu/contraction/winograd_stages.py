"""The stages of a Winograd convolution as blocks, found in a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from tilewright.arith import Analyzer
from tilewright.ir import Expr, as_int
from tilewright.scheduling import NotApplicable
from tilewright.scheduling.cpu import is_injective, leaf_blocks, loads_of, only_moves
from tilewright.tir import Block, Buffer
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV
from tilewright.topi.nn import WINOGRAD_TILE

# Axes of the products: two in a tile, image, row and column of tiles, filter and channel. Where
# tiles are in a row, they have one axis.
PRODUCT_AXES = 7


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
        made = [rv for rv in producers if _written(sch, rv) is reads[0].buffer]
        if not made:
            return NotApplicable("the stages before the products aren't there")
        before.insert(0, made[0])
    after = found
    for _ in range(3):
        consumers = sch.get_consumers(after[-1])
        if len(consumers) != 1 or not is_injective(sch, consumers[0]):
            return NotApplicable("the stages after the products aren't there")
        after = [*after, consumers[0]]
    places, computed = _places(sch, before[0], before[-1]), _written(sch, after[-2])
    for moves in (True, False):
        attempt = sch.copy()
        output = _join_epilogue(attempt, after[-1], moves)
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


def _join_epilogue(sch: Schedule, output: BlockRV, moves: bool) -> BlockRV | NotApplicable:
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


def _written(sch: Schedule, rv: BlockRV) -> Buffer:
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
    across = (_written(sch, pad).shape[2] - (alpha - tile)) // tile
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
