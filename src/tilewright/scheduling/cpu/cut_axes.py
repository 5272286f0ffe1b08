"""Splitting axes that operands use as quotient and remainder.

In reshaping, repeating and tiling, image patches, pixel shuffles, and conversions from blocked
layouts (``NCHW16c`` to ``NCHW``), the operand's indices contain ``v // 16`` and ``v % 16`` of one
axis. With such an axis split in two (or more), every index is linear again, so that contiguous
accesses and transpositions are recognised. Used by
:func:`~tilewright.scheduling.cpu.elementwise.schedule_injective`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, FloorDiv, FloorMod, Var, as_int, pre_order
from tilewright.scheduling.blocks import Axis, axes_of, loads_of
from tilewright.support.errors import ScheduleError
from tilewright.tir import Block
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


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
