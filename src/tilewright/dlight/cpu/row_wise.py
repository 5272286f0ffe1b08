"""Softmax, norms and the like: several stages over the same rows, run row by row.

All stages move under the outer loops that they share, so that a row is read from memory once and
intermediate results stay in the L1 cache. Short rows are processed several at a time: alone, each
stage would wait for the previous one's result. If rows come from beyond the near caches, the next
ones are prefetched.

Run one after another, the stages of a softmax leave memory idle while they compute and arithmetic
idle while they wait for memory. So where that pays off, one loop is a software pipeline: it reads a
row for the first stage, computes the second stage on the previous row, and writes the one before
that (``software_pipeline_stage`` and ``software_pipeline_fuse`` on the loop over rows, see
``InjectSoftwarePipeline``). Rows in flight stay in the nearer caches. It does where results go to
memory and a pass takes long: because elements are costly (exponentials), or because rows come from
beyond the L1 cache each time. In the latter case each additional stage loads another row at once:
with three cheap ones (``layer_norm``) separate passes are faster.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Call, Sequential, collect, uses_var
from tilewright.scheduling import (
    CPUScheduleRule,
    NotApplicable,
    arrange_axes,
    others_after,
    shared_rows,
    stages_before_elements,
)
from tilewright.scheduling.cpu import (
    Axis,
    axes_of,
    come_from_afar,
    element_bits,
    exceeds,
    is_injective,
    parallelize,
    schedule_injective,
    schedule_reduction,
    stores_of,
    vector_extent,
    work_of,
)
from tilewright.support.errors import LowerError
from tilewright.target import Target
from tilewright.tir import SERIAL, VECTORIZED, Block, For, SeqStmt, Stmt
from tilewright.tir.attrs import (
    AUTO_STEP,
    PIPELINE_FUSE,
    PIPELINE_ORDER,
    PIPELINE_STAGE,
    PREFETCH_DISTANCE,
    PREFETCH_NEXT,
)
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.transform.pipeline import block_passes

# Rows that go together, by the most vectors that they have.
_TOGETHER = ((8, 4), (64, 2))
logger = logging.getLogger("tilewright.dlight")
# Vectors that a step computes of each stage: all stages share the registers.
_VECTORS = 4
# Steps of a row, and rows of a thread, that are worth filling and draining a pipeline.
_LEAST_STEPS, _LEAST_ROWS = 8, 8
# Chunks of the rows for each thread.
_CHUNKS_PER_THREAD = 4


class RowWise(CPUScheduleRule):
    """Applies where a last, injective block shares leading axes with every reduction before it."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Fuse the rows, compute every stage under them, vectorise within."""
        blocks = stages_before_elements(sch)
        if isinstance(blocks, NotApplicable):
            return blocks
        last = blocks[-1]
        arrange_axes(sch, last)
        axes = axes_of(sch, last)
        if axes is None:
            return NotApplicable("the last stage's loops are not its axes")
        rows = shared_rows(sch, blocks, axes)
        if rows is None:
            return NotApplicable("the stages do not share leading axes")
        if rows == len(axes):
            return NotApplicable("nothing is left within a row")
        outer = [axis.loop for axis in axes[:rows]]
        together = self._together(sch, blocks, axes[:rows], axes[rows:], target)
        if together > 1:
            outer[-1], _ = sch.split(outer[-1], [None, together])
        elif rows > 1:
            outer = [sch.fuse(*outer)]
        plan = None
        if together == 1:
            plan = plan_row_pipeline(sch, blocks, axes[:rows], axes[rows:], target)
        if plan is not None and sch.choices.choose("row_wise.pipeline", (True, False)):
            attempt = sch.copy()
            if self._in_pipeline(attempt, blocks, outer[0], plan, target):
                return attempt
        for rv in reversed(blocks[:-1]):
            sch.compute_at(rv, outer[-1])
        work, afar = work_of(axes), come_from_afar(sch, blocks, target)
        self._stages(sch, blocks, target, len(outer), together > 1)
        row = parallelize(sch, sch.get_loops(last)[: len(outer)], target, 4 * work)
        if row is not None and sch.choices.choose("row_wise.prefetch", (afar, not afar)):
            sch.annotate(row, PREFETCH_NEXT, 1)
        return sch

    def _in_pipeline(
        self, sch: Schedule, blocks: list[BlockRV], row: LoopRV, plan: RowPipeline, target: Target
    ) -> bool:
        """Run the stages of different rows in one loop; return whether that is possible."""
        outer = [row]
        if plan.chunks > 1:
            outer = sch.split(row, [plan.chunks, None])
        for rv in reversed(blocks[:-1]):
            sch.compute_at(rv, outer[-1])
        self._stages(sch, blocks, target, len(outer), False, plan.vectors)
        if plan.chunks > 1:
            sch.parallel(outer[0])
        return pipeline_rows(sch, outer[-1], target)

    def _stages(
        self,
        sch: Schedule,
        blocks: Sequence[BlockRV],
        target: Target,
        outer: int,
        several: bool,
        vectors: int | None = None,
    ) -> None:
        """Vectorise each stage below the loops over rows, with ``vectors`` per step if given."""
        waiting: BlockRV | None = None
        for rv in blocks:
            if is_injective(sch, rv):
                if waiting is not None:
                    self._elements(sch, waiting, target, outer, several)
                waiting = rv
                continue
            # Rows alone are longer: what was made would have left the registers, if not the cache.
            done = schedule_reduction(sch, rv, target, outer, None if several else waiting, vectors)
            if waiting is not None and not done:
                self._elements(sch, waiting, target, outer, several)
            waiting = None
        self._elements(sch, blocks[-1], target, outer, several, vectors)

    def _together(
        self,
        sch: Schedule,
        blocks: list[BlockRV],
        rows: list[Axis],
        columns: list[Axis],
        target: Target,
    ) -> int:
        """How many rows to process at once: single short ones would wait for their own results."""
        extent, width = rows[-1].extent, work_of(columns)
        if extent is None or any(axis.extent is None for axis in columns):
            return 1
        bits = max(element_bits(sch.get(rv)) for rv in blocks)
        vectors = -(-width // target.vector_lanes(bits))
        most = next((count for limit, count in _TOGETHER if vectors <= limit), 1)
        most = sch.choices.choose("row_wise.together", others_after(most, (1, 2, 4)))
        while most > 1 and extent % most:
            most //= 2
        return most

    def _elements(
        self,
        sch: Schedule,
        rv: BlockRV,
        target: Target,
        outer: int,
        several: bool,
        vectors: int | None = None,
    ) -> None:
        count = 1 if several else vectors or 4
        schedule_injective(sch, rv, target, skip=outer, vectors=count)
        loops = sch.get_loops(rv)[outer:]
        if several and len(loops) > 2:
            sch.reorder(*loops[1:-1], loops[0])
        if several:
            sch.unroll(loops[0])


@dataclass(frozen=True)
class RowPipeline:
    """A pipeline over rows: into how many chunks rows are divided, and vectors per step."""

    chunks: int
    vectors: int


def plan_row_pipeline(
    sch: Schedule,
    blocks: Sequence[BlockRV],
    rows: Sequence[Axis],
    columns: Sequence[Axis],
    target: Target,
) -> RowPipeline | None:
    """Return how to pipeline stages over rows, ``None`` if it doesn't pay off."""
    count, width = work_of(rows), work_of(columns)
    if any(axis.extent is None for axis in (*rows, *columns)):
        return None
    last = sch.get(blocks[-1])
    result = stores_of(last)[0].buffer
    if not all(exceeds(region.buffer, target.l3_bytes // 2) for region in last.writes):
        return None
    if result not in set(sch.mod["main"].buffers):
        return None
    bits = max(element_bits(sch.get(rv)) for rv in blocks)
    lanes = target.vector_lanes(bits)
    size = vector_extent(columns[-1].extent, lanes, _VECTORS * lanes)
    if size is None or size % lanes or width < _LEAST_STEPS * size:
        return None
    stages = 1 + sum(not is_injective(sch, rv) for rv in blocks)
    row_bytes = width * bits // 8
    # Each stage has a row of its own, and one more is there of what lies between two.
    if 2 * stages * row_bytes > target.l2_bytes:
        return None
    long = stages == 2 and 2 * row_bytes > target.l1_bytes
    if not long and not any(_has_costly_elements(sch.get(rv)) for rv in blocks):
        return None
    most = count // _LEAST_ROWS
    wanted = 1 if target.num_cores == 1 else _CHUNKS_PER_THREAD * target.num_cores
    chunks = next((n for n in range(min(wanted, most), 0, -1) if count % n == 0), 0)
    if chunks < target.num_cores:
        return None
    return RowPipeline(chunks, size // lanes)


def _has_costly_elements(block: Block) -> bool:
    """Whether an elementary function is computed for each element, not only once per row."""
    inner = {block.iter_vars[-1].var}
    return any(
        uses_var(item, inner)
        and item.op.name not in ("if_then_else", "likely", "ignore_loop_partition")
        for item in collect(block.body, Call)
    )


def pipeline_rows(sch: Schedule, row: LoopRV, target: Target) -> bool:
    """Annotate a scheduled loop over rows; return whether its stages can be pipelined."""
    _decompose_reductions(sch, row)
    stmts = _statements_of(sch, row)
    stages = _stages_of(stmts)
    if stages is None:
        return False
    ahead = int(target.costs.rows_ahead)
    ahead = sch.choices.choose(
        "row_pipeline.ahead", others_after(ahead, (0, ahead // 2, 2 * ahead))
    )
    if ahead:
        # The first stage reads rows from memory.
        for block in collect(stmts[stages.index((_PASS, 0))], Block):
            sch.annotate(sch.get_block(block.name), PREFETCH_DISTANCE, ahead)
    kinds = [kind for kind, _ in stages]
    order = sorted(range(len(stages)), key=lambda n: (kinds[n], n))
    # What few numbers a row leaves for the next stage need no registers: the loop stays one.
    sch.annotate(row, AUTO_STEP, 1)
    sch.annotate(row, PIPELINE_STAGE, [stage for _, stage in stages])
    sch.annotate(row, PIPELINE_ORDER, [order.index(n) for n in range(len(stages))])
    sch.annotate(row, PIPELINE_FUSE, [n for n, kind in enumerate(kinds) if kind == _PASS])
    try:
        Sequential(block_passes(), name="TryRowPipeline")(sch.mod)
    except LowerError as error:
        logger.debug("rows are not pipelined: %s", error.summary)
        return False
    return True


def _statements_of(sch: Schedule, row: LoopRV) -> Sequence[Stmt]:
    body = sch.get(row).body
    return body.stmts if isinstance(body, SeqStmt) else [body]


def _decompose_reductions(sch: Schedule, row: LoopRV) -> None:
    """Make the init of a reduction a statement of its own, as lowering would."""
    for stmt in _statements_of(sch, row):
        for block in collect(stmt, Block):
            if block.init is not None and isinstance(stmt, For):
                rv = sch.get_block(block.name)
                loops = sch.get_loops(rv)
                sch.decompose_reduction(rv, next(x for x in loops if x.var is stmt.loop_var))


# What a statement does for a row, in the order in which those of one time run.
_BEGIN, _PASS, _END = range(3)


def _stages_of(stmts: Sequence[Stmt]) -> list[tuple[int, int]] | None:
    """Kind and stage of each statement: a stage initialises, accumulates over a row, finishes."""
    made: list[tuple[int, int]] = []
    stage, passed = 0, False
    for stmt in stmts:
        kind = _kind_of(stmt)
        if kind != _END and passed:
            stage, passed = stage + 1, False
        if kind == _END and not passed:
            return None
        passed = passed or kind == _PASS
        made.append((kind, stage))
    passes = sum(kind == _PASS for kind, _ in made)
    return made if passes == stage + 1 > 1 else None


def _kind_of(stmt: Stmt) -> int:
    if isinstance(stmt, For) and stmt.kind == VECTORIZED:
        return _BEGIN
    inner = any(loop.kind == VECTORIZED for loop in collect(stmt, For))
    return _PASS if isinstance(stmt, For) and stmt.kind == SERIAL and inner else _END
