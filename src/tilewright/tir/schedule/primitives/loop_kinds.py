"""Primitives that set how a loop runs: parallel, vectorize, unroll, bind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.ir import Call, as_int, is_const, pre_order, uses_var
from tilewright.tir import (
    PARALLEL,
    SERIAL,
    THREAD_BINDING,
    UNROLLED,
    VECTORIZED,
    For,
    IfThenElse,
)
from tilewright.tir.schedule.handles import LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.legality import check_simultaneous
from tilewright.tir.schedule.primitives._cooperation import check_cooperative
from tilewright.tir.schedule.vocabulary import ThreadAxis
from tilewright.tir.schedule.zero_trips import check_means_nothing
from tilewright.tir.thread_scope import LARGEST_CLUSTER, is_cluster_tag
from tilewright.tir.walk import child_blocks

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def _mark(sch: Schedule, loop: For, kind: str, thread: str | None = None) -> None:
    if loop.kind not in (SERIAL, kind):
        raise sch.error(
            f"loop {loop.loop_var.name!r} is {loop.kind} already"
            + (f" (on {loop.thread})" if loop.thread else ""),
            loop,
            remedy="a loop has one kind; choose another loop, or split this one first",
        )
    made = For(loop.loop_var, loop.min, loop.extent, kind, loop.body, thread, loop.annotations)
    sch.state.replace(loop, made)


@primitive
def parallel(sch: Schedule, loop: LoopRV) -> None:
    """Run the iterations of a loop on the threads of a pool.

    Preconditions:
        - the loop is serial (or parallel already)
        - only blocks are below the loop
        - blocks below are complete, reductions or updates in place
        - the loop feeds no reduce iteration variable
        - iterations update different elements, unless only they use the buffer; those that run the
          same instance of a complete block write the same, which may meet
        - no iteration uses or overwrites what another one makes
    Before:
        for i in range(1024):
            with T.block("B"):
                vi = T.axis.spatial(1024, i)
                B[vi] = A[vi] * T.float32(2)
    After ``parallel(i)``:
        for i in T.parallel(1024):
            with T.block("B"):
                vi = T.axis.spatial(1024, i)
                B[vi] = A[vi] * T.float32(2)
    """
    target = sch.state.get_loop(loop)
    check_simultaneous(sch, target, "running it in parallel")
    _mark(sch, target, PARALLEL)


@primitive
def vectorize(sch: Schedule, loop: LoopRV) -> None:
    """Run the iterations of a loop as lanes of vector instructions.

    Preconditions:
        - the loop is serial (or vectorized already)
        - no loop around it or inside of it is vectorized
        - only blocks are below the loop
        - blocks below are complete, reductions or updates in place
        - the loop feeds no reduce iteration variable
        - iterations update different elements, unless only they use the buffer
        - no iteration uses or overwrites what another one makes
    Before:
        for i, j in T.grid(64, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    After ``vectorize(j)``:
        for i in range(64):
            for j in T.vectorized(16):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
    """
    target = sch.state.get_loop(loop)
    for item in _of_one_nest(sch, loop):
        if item.kind == VECTORIZED:
            raise sch.error(
                f"loop {item.loop_var.name!r} of the same nest is vectorized already", target, item
            )
    check_simultaneous(sch, target, "vectorizing it")
    _mark(sch, target, VECTORIZED)


@primitive(marks=True)
def unroll(sch: Schedule, loop: LoopRV) -> None:
    """Replicate the code of a loop for each iteration.

    Preconditions:
        - the loop is serial (or unrolled already)
    Before:
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)
    After ``unroll(i)``:
        for i in T.unroll(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)
    """
    _mark(sch, sch.state.get_loop(loop), UNROLLED)


@primitive
def bind(sch: Schedule, loop: LoopRV, thread_axis: ThreadAxis) -> None:
    """Replace a loop by a thread index of a GPU.

    ``thread_axis`` is ``blockIdx.x`` (or ``.y``, ``.z``), ``threadIdx.x`` (``.y``, ``.z``),
    ``clusterCtaIdx.x`` (``.y``, ``.z``): a block of a cluster, of which ``blockIdx`` then numbers
    the clusters; or ``vthread`` (also ``vthread.x`` …): a virtual thread, whose iterations one
    thread runs in turn.

    A loop on a threadIdx inside another one on the same axis is divided among the outer loop's
    threads: each fetches its share of a tile of ``shared`` memory, which in the program each of
    them fetches as a whole.

    Preconditions:
        - ``thread_axis`` is one of these
        - the loop is serial (or bound to it already) and starts at 0
        - a loop on a clusterCtaIdx has a constant number of iterations, at most 16
        - a loop around it or inside of it is bound to the same axis only if that is a threadIdx,
          and no block is between them; virtual threads may be nested
        - of two loops on one axis, the inner one has no more iterations than the outer one, and all
          threads come by it equally often
        - blocks below the inner one write ``shared`` memory, the same in each iteration of the
          outer one, and read no private memory of threads
        - only blocks are below the loop
        - blocks below are complete, reductions or updates in place
        - the loop feeds no reduce iteration variable, except a threadIdx loop of blocks whose
          reducer is registered
        - a loop that feeds a reduce iteration variable of a block with ``init`` has an iteration
        - iterations update different elements, unless only they use the buffer
        - no iteration uses or overwrites what another one makes
        - blocks with a barrier run in all iterations or in none
    Before:
        for i in range(32):
            with T.block("B"):
                vi = T.axis.spatial(32, i)
                B[vi] = A[vi] * T.float32(2)
    After ``bind(i, "threadIdx.x")``:
        for i in T.thread_binding(32, thread="threadIdx.x"):
            with T.block("B"):
                vi = T.axis.spatial(32, i)
                B[vi] = A[vi] * T.float32(2)
    """
    target = sch.state.get_loop(loop)
    if not is_const(target.min, 0):
        raise sch.error(f"the loop starts at {target.min!r}; a thread index starts at 0", target)
    blocks = as_int(target.extent)
    if is_cluster_tag(thread_axis) and (blocks is None or not 1 <= blocks <= LARGEST_CLUSTER):
        raise sch.error(
            f"the loop has {target.extent!r} iterations; a cluster has a constant number of "
            f"blocks, at most {LARGEST_CLUSTER}",
            target,
        )
    check_simultaneous(
        sch, target, f"binding it to {thread_axis}", cooperative=thread_axis.startswith("threadIdx")
    )
    check_means_nothing(sch, target, "a thread for each")
    _check_barriers(sch, target)
    if not thread_axis.startswith("vthread"):
        above = set(sch.state.parents(target))
        for item in _of_one_nest(sch, loop):
            if item.thread == thread_axis:
                outer, inner = (item, target) if item in above else (target, item)
                check_cooperative(sch, outer, inner, thread_axis)
    _mark(sch, target, THREAD_BINDING, thread_axis)


def _check_barriers(sch: Schedule, loop: For) -> None:
    """Refuse if only some iterations would reach a barrier."""
    for realize in child_blocks(loop.body):
        conditions = [realize.predicate]
        for item in sch.state.parents(realize):
            if item is loop:
                break
            if isinstance(item, IfThenElse):
                conditions.append(item.condition)
        if any(uses_var(item, {loop.loop_var}) for item in conditions) and any(
            isinstance(item, Call) and item.op.name == "storage_sync"
            for item in pre_order(realize.block)
        ):
            raise sch.error(
                f"block {realize.block.name!r} has a barrier, and runs in some iterations of loop "
                f"{loop.loop_var.name!r} only: not all threads would reach it",
                realize,
                loop,
                remedy="choose factors that divide the extent",
            )


def _of_one_nest(sch: Schedule, loop: LoopRV) -> Iterator[For]:
    """Yield the marked loops around a loop and inside of it, at any depth."""
    index = sch.state.index(loop.func)
    target = index.loops[loop.var]  # type: ignore[index]  # found before
    above = set(sch.state.parents(target))
    for item in index.loops.values():
        if item.kind == SERIAL or item is target:
            continue
        if item in above:
            yield item
            continue
        current = index.parents[item]
        while current is not None and current is not target:
            current = index.parents[current]
        if current is target:
            yield item
