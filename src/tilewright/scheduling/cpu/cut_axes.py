"""Splitting axes that operands use as quotient and remainder.

In reshaping, repeating and tiling, image patches, pixel shuffles, and conversions from blocked
layouts (``NCHW16c`` to ``NCHW``), the operand's indices contain ``v // 16`` and ``v % 16`` of one
axis. With such an axis split in two (or more), every index is linear again, so that contiguous
accesses and transpositions are recognised. Rows of a length that isn't a multiple, as of dilated
images, are cut into whole turns and a rest. Used by
:func:`~tilewright.scheduling.cpu.elementwise.schedule_injective`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import Analyzer
from tilewright.ir import Expr, FloorDiv, FloorMod, Range, Var, as_int, const, pre_order, substitute
from tilewright.scheduling.blocks import (
    Axis,
    axes_of,
    coefficient_of,
    loads_of,
    stores_of,
    stride_of,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir import Block
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# So many elements of a turn are stored together.
_MOST_TURNS = 8
# Rows with fewer turns have no vectors.
_LEAST_TURNS = 4


def with_cut_axes(sch: Schedule, rv: BlockRV) -> tuple[Schedule, list[Axis]] | None:
    """Return a copy of the schedule in which a block's axes are split, and the axes.

    ``None`` if there is nothing to split.
    """
    block = sch.get(rv)
    variables = [item.var for item in block.iter_vars]
    cuts = {
        item.var: found
        for item in block.iter_vars
        if (found := _chain(_divisors(block, item.var), as_int(item.dom.extent)))
    }
    if not cuts:
        return None

    def cut(*index: Expr) -> tuple[Expr, ...]:
        return tuple(
            digit
            for var, item in zip(variables, index)
            for digit in (_digits(item, cuts[var]) if var in cuts else [item])
        )

    attempt = sch.copy()
    try:
        attempt.transform_block_layout(rv, cut)
    except ScheduleError:
        return None  # the loops hold something else, too
    axes = axes_of(attempt, rv)
    return None if axes is None else (attempt, axes)


def _divisors(block: Block, var: Var) -> set[int]:
    """The divisors of the axis, including those of nested divisions."""
    found: set[int] = set()

    def scale(expr: Expr) -> int | None:
        """How much of the axis makes one of an expression; notes the ends of its parts."""
        if expr is var:
            return 1
        if not isinstance(expr, (FloorDiv, FloorMod)):
            return None
        low, number = scale(expr.a), as_int(expr.b)
        if low is None or number is None or number < 1:
            return None
        found.add(low * number)
        return low * number if isinstance(expr, FloorDiv) else low

    for load in loads_of(block):
        for index in load.indices:
            for item in pre_order(index):
                if isinstance(item, Expr):
                    scale(item)
    return found


def _chain(divisors: set[int], extent: int | None) -> list[int]:
    """The divisors, in ascending order, each of which divides the next and the axis."""
    found: list[int] = []
    for number in sorted(divisors):
        whole = extent and 1 < number < extent and extent % number == 0
        if whole and (not found or number % found[-1] == 0):
            found.append(number)
    return found


def _digits(index: Expr, cuts: Sequence[int]) -> list[Expr]:
    """The digits of an index, the highest first."""
    digits = [index // cuts[-1]]
    for high, low in zip(reversed(cuts), [*reversed(cuts[:-1]), 1]):
        digits.append(index % high // low if low != 1 else index % high)
    return digits


def turn_of(block: Block, last: Axis) -> int | None:
    """Return after how many elements of a row it goes on alike, with neighbours of the operands.

    Element ``o * turn + q`` comes from neighbours for neighbouring ``o``. ``None`` if there is no
    such number, or one that ``with_cut_axes`` takes, which divides the row.
    """
    stores, extent = stores_of(block), last.extent
    if len(stores) != 1 or extent is None:
        return None
    if stride_of(stores[0].indices, stores[0].buffer, last.var) != 1:
        return None
    turn = max(_divisors(block, last.var), default=0)
    if not 2 <= turn <= _MOST_TURNS or extent % turn == 0 or extent < _LEAST_TURNS * turn:
        return None
    outer, known = Var("o"), Analyzer()
    known.bind(outer, Range(const(0), const(extent // turn)))
    for load in loads_of(block):
        for q in range(turn):
            place = {last.var: outer * turn + q}
            *rows, column = (known.simplify(substitute(i, place)) for i in load.indices)
            if any(coefficient_of(row, outer) != 0 for row in rows):
                return None
            if coefficient_of(column, outer) not in (0, 1):
                return None
    return turn


def schedule_turns(
    sch: Schedule, axes: Sequence[Axis], turn: int, lanes: int
) -> tuple[list[LoopRV], list[BlockRV]]:
    """Process the elements of several turns together, and a rest one by one.

    Returns the loops that may run in parallel, and the blocks.
    """
    left, widths, sizes = axes[-1].extent or 0, [], []
    for width in (lanes, lanes // 2):
        if size := left // (width * turn) * width * turn:
            widths.append(width)
            sizes.append(size)
            left -= size
    loops = sch.loop_partition(axes[-1].loop, [*sizes, left])
    blocks = [rv for loop in loops for rv in sch.get_child_blocks(loop)]
    outer = [axis.loop for axis in axes[:-1]]
    for loop, width in zip(loops, widths):
        whole, inner, _ = sch.split(loop, [None, width, turn])
        sch.vectorize(inner)
        outer = outer or [whole]
    return outer, blocks
