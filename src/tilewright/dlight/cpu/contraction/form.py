"""Shared by all forms of contractions: the steps of a rule, and the tile in registers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.dlight.cpu.contraction.plan import Plan
from tilewright.dlight.cpu.contraction.register_tile import MANY_REGISTERS, tile_registers
from tilewright.ir import Expr, as_int
from tilewright.scheduling import (
    Contraction,
    CPUScheduleRule,
    NotApplicable,
    Reduction,
    describe,
    dimensions_of,
)
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    is_injective,
    schedule_injective,
    schedule_reduction,
    stores_of,
    vectorize_tile,
)
from tilewright.target import Target
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Steps from which a reduction is long, how many are unrolled, and sums of tiles for which it pays.
_LONG, _COPIES, _FEWEST_SUMS = 128, (4, 3, 2), 8


class Form(CPUScheduleRule):
    """One way to schedule a contraction and its consumers; other blocks get separate schedules."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Describe the contraction, schedule it, then the rest."""
        found = describe(sch)
        if isinstance(found, NotApplicable):
            return found
        done = self.tile(sch, found, target)
        if isinstance(done, NotApplicable):
            return done
        schedule_others(sch, found.others, done, target)
        return sch

    def tile(
        self, sch: Schedule, found: Contraction, target: Target
    ) -> Collection[str] | NotApplicable:
        """Schedule the reduction and its consumers; return the names of other blocks done, too."""
        raise NotImplementedError(f"{self.name} must define tile")


def schedule_others(
    sch: Schedule, blocks: Sequence[BlockRV], done: Collection[str], target: Target
) -> None:
    """Schedule the blocks around a contraction, except those that are ``done``."""
    for rv in blocks:
        if rv.name in done:
            continue
        if is_injective(sch, rv):
            schedule_injective(sch, rv, target)
        else:
            schedule_reduction(sch, rv, target)


@dataclass(frozen=True)
class Nest:
    """The loops of a contraction: ``around`` tiles, ``steps`` of the reduction, within a ``tile``.

    The results of the innermost ``held`` loops of ``around`` are kept until all of them are
    written. There may be loops ``outside`` that contain other blocks too. The last loop of a tile
    may be the instruction ``dot``.
    """

    around: Sequence[LoopRV]
    steps: Sequence[LoopRV]
    tile: Sequence[LoopRV]
    held: int = 0
    outside: int = 0
    dot: str = ""


def cut_tile(
    sch: Schedule, found: Reduction, plan: Plan, together: int = 1
) -> tuple[list[LoopRV], list[LoopRV]]:
    """Split the axes of a plan's tile; return the loops around tiles, and those within one.

    Columns of tiles are outermost: a panel stays in the cache for all rows. ``together`` is the
    number of tiles of rows per iteration.
    """
    around = [axis.loop for axis in found.spatial if axis not in (plan.row, plan.vector)]
    columns, column = sch.split(plan.vector.loop, [None, plan.tile.columns])
    if plan.row is None:
        return [columns, *around], [column]
    sizes = [together, plan.tile.rows] if together > 1 else [plan.tile.rows]
    *rows, row = sch.split(plan.row.loop, [None, *sizes])
    return [columns, *around, *rows], [row, column]


def sum_in_registers(
    sch: Schedule, main: BlockRV, epilogue: BlockRV, nest: Nest, copy: BlockRV | None = None
) -> None:
    """Order loops so that a tile of sums is in registers, from which the epilogue reads it.

    A ``copy`` moves it to a buffer first; then the epilogue keeps its own loops.
    """
    depth = nest.outside + len(nest.around)
    sch.reorder(*nest.around, *nest.steps, *nest.tile)
    if copy is not None:
        sch.reverse_compute_at(copy, nest.around[-1])
        _columns_innermost(sch, copy, depth)
    sch.reverse_compute_at(epilogue, nest.around[-1 - nest.held])
    sum_up(sch, main, nest.steps, depth, (nest.tile[-1], nest.dot) if nest.dot else None)
    last = epilogue if copy is None else copy
    vectorize_tile(sch, sch.get_loops(last)[depth:])


def sum_up(
    sch: Schedule,
    main: BlockRV,
    steps: Sequence[LoopRV],
    depth: int,
    dot: tuple[LoopRV, str] | None = None,
) -> None:
    """Initialise a tile's sums before the steps, and vectorise; ``depth`` loops enclose the tile.

    An innermost loop may be an instruction, ``dot``.
    """
    init = sch.decompose_reduction(main, steps[0])
    update = sch.tensorize(*dot) if dot is not None else main
    for rv, skip in ((update, depth + len(steps)), (init, depth)):
        vectorize_tile(sch, sch.get_loops(rv)[skip:])


def unroll_steps(sch: Schedule, steps: Sequence[Axis], vectors: int, most: int) -> None:
    """Unroll steps of a tile of vectors, those of the first axes, while the code is short."""
    for axis in steps:
        vectors *= axis.extent or 1
        if vectors > most:
            break
        sch.unroll(axis.loop)


def unroll_long_sum(sch: Schedule, step: LoopRV, sums: int, target: Target) -> None:
    """Unroll a few steps of a long sum of a tile where registers hold few sums of one step.

    With more of a panel asked for at once, the processor fetches it further ahead.
    """
    extent = as_int(sch.get(step).extent)
    if tile_registers(target) >= MANY_REGISTERS or sums < _FEWEST_SUMS:
        return
    if not extent or extent < _LONG:
        return
    count = next((n for n in _COPIES if extent % n == 0), 1)
    if count > 1:
        _, inner = sch.split(step, [None, count])
        sch.unroll(inner)


def _columns_innermost(sch: Schedule, copy: BlockRV, skip: int) -> None:
    """Move the loop over the last index of a block's output innermost."""
    last = stores_of(sch.get(copy))[0].indices[-1]
    axes = axes_of(sch, copy, skip) or []
    columns = [axis.loop for axis in axes if axis.var is last]
    sch.reorder(*(axis.loop for axis in axes if axis.loop not in columns), *columns)


def lay_columns_last(
    sch: Schedule,
    main: BlockRV,
    copy: BlockRV,
    vector: Axis,
    joined: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Put the vector axis last in the registers and in the buffer that they are copied to.

    There dimensions of quotients and their remainders are fused again (``joined``).
    """
    store = stores_of(sch.get(main))[0]
    dim = dimensions_of(store, vector)[0]
    sizes = [as_int(extent) or 1 for extent in store.buffer.shape]

    def last(*i: Expr) -> tuple[Expr, ...]:
        return (*i[:dim], *i[dim + 1 :], i[dim])

    def together(*i: Expr) -> tuple[Expr, ...]:
        kept = [d for d in range(len(i)) if d != dim and d not in joined.values()]
        made = [i[d] * sizes[joined[d]] + i[joined[d]] if d in joined else i[d] for d in kept]
        return (*made, i[dim])

    sch.transform_layout(main, ("write", 0), last)
    sch.transform_layout(copy, ("write", 0), together)
