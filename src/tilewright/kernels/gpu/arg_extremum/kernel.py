"""Argmax and argmin of rows in one pass over them: a reduction of pairs of index and element.

The definition (``topi.argmax``) first finds the extremum of a row, and then its index, which reads
rows twice. One block of the reducer ``argmax`` takes the place of both, and threads share its rows
as those of any reduction. If there are fewer rows than multiprocessors, thread blocks search parts
of each row, and a second kernel joins their pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir import Expr, Var, as_int, cast, substitute
from tilewright.kernels.gpu.sizes import known_product
from tilewright.kernels.kernel import Kernel
from tilewright.kernels.problems.arg_extremum import Search, inline_elements, read_search
from tilewright.scheduling import Choices, NotApplicable, block_of, nest_of, nests_of
from tilewright.scheduling.blocks import is_injective
from tilewright.scheduling.gpu import limits_of, schedule_injective, schedule_reduction
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import (
    REDUCE,
    SPATIAL,
    Block,
    BufferLoad,
    BufferStore,
    LetStmt,
    PrimFunc,
    Stmt,
    seq,
)
from tilewright.tir.reducer import REDUCERS
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

EXTREMUM_PAIRS = "extremum_pairs"

# Elements of a part of a row, at least: a second kernel must pay off.
_LEAST_PART = 4096
# Thread blocks that a multiprocessor runs at a time.
_BLOCKS_PER_PROCESSOR = 4


@dataclass(frozen=True)
class ExtremumPairs:
    """Into how many parts rows are divided."""

    parts: int = 1


class ArgExtremumKernel(Kernel[Search]):
    """For functions that begin with extrema of rows and their indices.

    Extrema along other axes than the last are reductions of pairs already: they are for rules.
    """

    forms: ClassVar = {EXTREMUM_PAIRS: ExtremumPairs}

    def prepare(self, sch: Schedule) -> None:
        """Inline the computation of the elements, if there may be a search of them."""
        inline_elements(sch)

    def recognise(self, func: PrimFunc) -> Search | NotApplicable:
        """Recognise the search that a function begins with."""
        others = map(block_of, nests_of(func)[2:])
        if not all(other is not None and _is_bindable(other) for other in others):
            return NotApplicable("what follows the search is no element-wise block or reduction")
        return read_search(func)

    def plan(self, problem: Search, target: Target, choices: Choices) -> ExtremumPairs:
        """Divide rows if they are fewer than the multiprocessors."""
        usual = parts_of_rows(problem, target)
        options = [usual, *({1, 2 * usual} if usual > 1 else ())]
        return ExtremumPairs(choices.choose(f"{problem.value.name}.parts", options))

    def fault(self, problem: Search, plan: ExtremumPairs) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        return None if plan.parts >= 1 else "rows have at least one part"

    def build(self, func: PrimFunc, problem: Search, plan: ExtremumPairs) -> Block:
        """Put one reduction of pairs in the place of two reductions."""
        return func.root.replace(body=seq(pair_reduction(problem), *nests_of(func)[2:]))

    def schedule(
        self,
        sch: Schedule,
        problem: Search,
        plan: ExtremumPairs,
        kept: Sequence[str],
        target: Target,
    ) -> None:
        """Bind rows and threads; what follows joins the kernel if it may."""
        name = problem.value.name
        pairs = sch.get_block(name)
        if plan.parts > 1:
            part, *_ = sch.split(sch.get_loops(pairs)[-1], [plan.parts, None])
            schedule_reduction(sch, sch.rfactor(part, 0), target)
        schedule_reduction(sch, pairs, target)
        row = _row_of(sch, pairs)
        others = [sch.get_block(other) for other in kept if other != name]
        apart = [other for other in others if row is None or not _joins(sch, other, row)]
        for other in apart:
            way = schedule_injective if is_injective(sch, other) else schedule_reduction
            way(sch, other, target)
        if not apart and row is not None:  # then a thread reads what it has found itself
            _keep_in_registers(sch, pairs)


def _row_of(sch: Schedule, block: BlockRV) -> LoopRV | None:
    """The loop in whose iterations a reduction's results are: the last of those bound first."""
    found = None
    for loop in sch.get_loops(block):
        if sch.get(loop).thread is None:
            return found
        found = loop
    return None


def _joins(sch: Schedule, block: BlockRV, row: LoopRV) -> bool:
    """Compute a block where the search of its row ends, if that is possible."""
    try:
        sch.reverse_compute_at(block, row)
    except ScheduleError:
        return False
    return True


def _keep_in_registers(sch: Schedule, block: BlockRV) -> None:
    outputs = set(sch.mod["main"].buffers)
    for number, region in enumerate(sch.get(block).writes):
        if region.buffer not in outputs:
            sch.set_scope(block, number, "local")


def _is_bindable(block: Block) -> bool:
    kinds = {axis.kind for axis in block.iter_vars}
    if block.init is None:
        return kinds <= {SPATIAL}
    return REDUCE in kinds and kinds <= {SPATIAL, REDUCE}


def parts_of_rows(search: Search, target: Target) -> int:
    """Thread blocks that share a row: several for long rows that are few."""
    processors = limits_of(target).processors
    extent = as_int(search.along.dom.extent)
    rows = known_product(axis.dom.extent for axis in search.rows)
    if rows is None or extent is None or not 0 < rows < processors:
        return 1
    return max(1, min(processors * _BLOCKS_PER_PROCESSOR // rows, extent // _LEAST_PART))


# ---- the kernel ---------------------------------------------------------------------------------


def pair_reduction(search: Search) -> Stmt:
    """The loops and the block that reduce pairs of index and element."""
    axes = [*search.rows, search.along]
    fresh = [axis.replace(var=Var(axis.var.name)) for axis in axes]
    renamed: dict[Var, Expr] = {old.var: new.var for old, new in zip(axes, fresh)}
    at = tuple(axis.var for axis in fresh[:-1])
    where, best = BufferLoad(search.where, at), BufferLoad(search.best, at)
    name = ("argmin" if search.least else "argmax") + ("_last" if search.last else "")
    reducer = REDUCERS.get(name)(where.dtype, best.dtype)
    element = substitute(search.element, renamed)
    made = reducer.combine((where, best), (cast(fresh[-1].var, where.dtype), element))
    place, value = Var("place", where.dtype), Var("value", best.dtype)
    stores = [BufferStore(search.where, place, at), BufferStore(search.best, value, at)]
    body = LetStmt(place, made[0], LetStmt(value, made[1], seq(*stores)))
    starts = zip((search.where, search.best), reducer.identity)
    init = seq(*(BufferStore(buffer, start, at) for buffer, start in starts))
    return nest_of(fresh, body, search.value.name, init)
