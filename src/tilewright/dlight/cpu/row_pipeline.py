"""Software pipelines over rows: several stages, on different rows, in one loop.

A softmax makes three passes over each row. Run separately, they leave memory idle while they
compute and arithmetic idle while they wait for memory. So one loop does a step of each: it reads a
row for the first stage, computes the second stage on the previous row, and writes the one before
that (``software_pipeline_stage`` and ``software_pipeline_fuse`` on the loop over rows, see
``InjectSoftwarePipeline``). Rows in flight stay in the nearer caches.

This pays off where results go to memory and a pass takes long: because elements are costly
(exponentials), or because rows come from beyond the L1 cache each time. In the latter case each
additional stage loads another row at once: with three cheap ones (``layer_norm``) separate passes
are faster. Used by ``row_wise``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Call, Sequential, collect, uses_var
from tilewright.scheduling import others_after
from tilewright.scheduling.cpu import (
    Axis,
    element_bits,
    exceeds,
    is_injective,
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
)
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.transform.pipeline import block_passes

logger = logging.getLogger("tilewright.dlight")

# Vectors that a step computes of each stage: all stages share the registers.
_VECTORS = 4
# Steps of a row, and rows of a thread, that are worth filling and draining a pipeline.
_LEAST_STEPS, _LEAST_ROWS = 8, 8
# Chunks of the rows for each thread.
_CHUNKS_PER_THREAD = 4


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
