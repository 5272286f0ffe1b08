"""Moving a block under a loop: a producer to its consumers, or a consumer to its producers.

``compute_at`` moves a block so that each iteration of the given loop computes just the elements
that the consumers under that loop read there. ``reverse_compute_at`` goes the other way: in each
iteration the block consumes what its producers under the loop have just made.

The new loops are built in three steps: (1) the regions that the blocks under the loop read (or
write) are relaxed over the loops between, which gives a box per buffer; (2) the block's own access
is solved for its axes, which turns the box into a range per axis; (3) each axis gets a loop of that
extent and is bound to ``start + loop``; where the range may leave the axis's domain, a predicate
keeps it inside; axes on which nothing is known run through their whole domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tir import (
    REDUCE,
    Buffer,
)
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instance_order import check_axes_in_order
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives import inline
from tilewright.tir.schedule.primitives._block_checks import (
    check_inputs_final,
    check_movable,
    check_not_output,
    check_only_writer,
)
from tilewright.tir.schedule.primitives._destination import Destination, new_nest
from tilewright.tir.schedule.primitives._domain import (
    check_predicate_is_domain,
    check_runs_whole,
)
from tilewright.tir.schedule.primitives._input_dependences import (
    check_inputs_stable,
)
from tilewright.tir.schedule.primitives._linear import Span
from tilewright.tir.schedule.primitives._reverse_checks import (
    check_all_run,
    check_finished,
    check_no_race,
    check_others_made,
    check_ready,
    check_same_order,
    check_still_runs,
)
from tilewright.tir.schedule.primitives._scope import regions_buffers
from tilewright.tir.schedule.primitives._solve import axes_of_inputs, axes_of_outputs
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.zero_trips import check_init_finds

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def compute_at(
    sch: Schedule,
    block: BlockRV,
    loop: LoopRV,
    preserve_unit_loops: bool = False,
    index: int = -1,
) -> None:
    """Compute, in each iteration of ``loop``, what its consumers under ``loop`` read there.

    ``index`` says where among the statements of the loop: a position, -1 for the last possible,
    -2 for the first possible. ``preserve_unit_loops`` creates loops of extent one too.

    If the buffer is in scope ``shared``, each iteration of ``loop`` computes what the consumers of
    all threads of a thread block read: for all iterations of the enclosing threadIdx and vthread
    loops (in scope ``warp``, of threadIdx.x).

    Preconditions:
        - the block is complete or a reduction, and the only writer of what it writes
        - what the block writes is allocated in its scope
        - updates of a reduction commute, or its loops run its axes in their order
        - nothing that the block reads is changed after it, nor by other iterations of a loop that
          it shares with the writer
        - the predicate of the block does no more than keep its axes inside their ranges, which
          depend on no loop
        - the loop is in the scope of the block, and not around the block already
        - the block has consumers, and all are under the loop
        - the loop, and those around it, surely run, or no consumer has an init that reads what the
          block writes and may run for an empty reduction
        - there is a place under the loop after what the block needs and ahead of its consumers, and
          ``index`` is such a place
        - the block is inside another block, in which it is not the only statement
    Before:
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A[vi] * T.float32(2)
        for i0, i1 in T.grid(16, 8):
            with T.block("C"):
                vi = T.axis.spatial(128, i0 * 8 + i1)
                C[vi] = B[vi] + T.float32(1)
    After ``compute_at(B, i0)``:
        for i0 in T.serial(16):
            for ax0 in T.serial(8):
                with T.block("B"):
                    vi = T.axis.spatial(128, i0 * 8 + ax0)
                    B[vi] = A[vi] * T.float32(2)
            for i1 in T.serial(8):
                with T.block("C"):
                    vi = T.axis.spatial(128, i0 * 8 + i1)
                    C[vi] = B[vi] + T.float32(1)
    """
    state: ScheduleState = sch.state
    if loop.is_root:
        return
    if loop.is_inline:
        inline.compute_inline(sch, block)
        return
    realize = state.get_block(block)
    target = state.get_loop(loop)
    place = Destination(state, realize, target)
    scope = place.scope
    check_not_output(scope, realize)
    for buffer in regions_buffers(realize.block.writes):
        check_only_writer(scope, realize, buffer)
    check_movable(scope, realize)
    check_inputs_final(scope, realize)
    check_inputs_stable(scope, realize)
    if any(iter_var.kind == REDUCE for iter_var in realize.block.iter_vars):
        check_runs_whole(scope, realize)
    else:
        check_predicate_is_domain(scope, realize)
    consumers = scope.consumers(realize)
    if not consumers:
        raise state.error(f"block {realize.block.name!r} has no consumer", realize)
    for consumer in consumers:
        if consumer not in place.paths:
            raise state.error(
                f"block {consumer.block.name!r} consumes block {realize.block.name!r} but is not "
                f"under loop {target.loop_var.name}",
                realize,
                consumer,
                remedy="choose a loop that all consumers are under",
            )
    producers = [item for item in scope.producers(realize) if item in place.paths]
    position = place.position(producers, consumers, index)
    check_init_finds(state, consumers, regions_buffers(realize.block.writes), target)

    regions = place.regions
    required: dict[Buffer, list[Span | None] | None] = {}
    outputs = regions_buffers(realize.block.writes)
    for consumer in consumers:
        for region in consumer.block.reads:
            if region.buffer in outputs:
                env, inner = place.relaxed(consumer, region.buffer.scope)
                touched = regions.touched(region, env, inner)
                required[region.buffer] = regions.unite(required.get(region.buffer), touched)
    spans = axes_of_outputs(regions, realize.block, required)
    check_axes_in_order(state, realize, scope.loops(realize), "computing it elsewhere")
    nest = new_nest(regions, realize, spans, preserve_unit_loops)
    place.move(nest, position)


@primitive
def reverse_compute_at(
    sch: Schedule,
    block: BlockRV,
    loop: LoopRV,
    preserve_unit_loops: bool = False,
    index: int = -1,
) -> None:
    """Consume, in each iteration of ``loop``, what the producers under ``loop`` made there.

    ``index`` and ``preserve_unit_loops`` as in ``compute_at``.

    Preconditions:
        - the block is complete or a reduction, and the only writer of what it writes
        - the loops around the block run all of its domain, under no further condition; the ranges
          of its axes depend on no loop
        - the loop is in the scope of the block, and not around the block already
        - a producer of the block is under the loop; none that is there comes after the block
        - all else that the block reads is computed before the loop, for all instances that would
          run in one iteration of the loops around
        - nobody reads what the block writes before it is written
        - one iteration of the loop completes what the producers compute in it: their reductions are
          inside, they run under no branch, and later iterations change nothing
        - no condition leaves producers out in some iterations of the loop, nor at the end of what
          one iteration computes, except to keep them inside their domain, or to end reductions
          that all begin; nor does a loop that may be empty
        - what one iteration computes has no holes, and determines the range of each axis of the
          block, the same for all inputs
        - all iterations together run the whole block, and each step of a reduction once
        - updates of a reduction commute, or its loops run its axes in their order, and one
          iteration runs all of them
        - there is a place under the loop after the producers and ahead of the consumers, and
          ``index`` is such a place
        - the block is inside another block
        - an axis goes along with each enclosing loop that may be empty (except loops already around
          a block without init), a spatial one with a loop bound to threads; a reduction that may be
          empty is not cut off at its end
    Before:
        for i0, i1 in T.grid(16, 8):
            with T.block("B"):
                vi = T.axis.spatial(128, i0 * 8 + i1)
                B[vi] = A[vi] * T.float32(2)
        for i in T.serial(128):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                C[vi] = B[vi] + T.float32(1)
    After ``reverse_compute_at(C, i0)``:
        for i0 in T.serial(16):
            for i1 in T.serial(8):
                with T.block("B"):
                    vi = T.axis.spatial(128, i0 * 8 + i1)
                    B[vi] = A[vi] * T.float32(2)
            for ax0 in T.serial(8):
                with T.block("C"):
                    vi = T.axis.spatial(128, i0 * 8 + ax0)
                    C[vi] = B[vi] + T.float32(1)
    """
    state: ScheduleState = sch.state
    if loop.is_root:
        return
    if loop.is_inline:
        inline.reverse_compute_inline(sch, block)
        return
    realize = state.get_block(block)
    target = state.get_loop(loop)
    place = Destination(state, realize, target)
    scope, regions = place.scope, place.regions
    for buffer in regions_buffers(realize.block.writes):
        check_only_writer(scope, realize, buffer)
    check_movable(scope, realize)
    check_runs_whole(scope, realize)
    producers = [item for item in scope.producers(realize) if item in place.paths]
    if not producers:
        raise state.error(
            f"no producer of block {realize.block.name!r} is under loop {target.loop_var.name}",
            realize,
            target,
        )
    check_ready(place, realize, producers)
    for producer in producers:
        check_finished(place, producer)
    consumers = [item for item in scope.consumers(realize) if item in place.paths]
    position = place.position(producers, consumers, index)

    provided: dict[Buffer, list[Span | None] | None] = {}
    inputs = regions_buffers(realize.block.reads)
    for producer in producers:
        env, inner = place.relaxed(producer)
        for region in producer.block.writes:
            if region.buffer in inputs:
                touched = regions.touched(region, env, inner)
                provided[region.buffer] = regions.unite(provided.get(region.buffer), touched)
    spans = axes_of_inputs(place, realize, provided)
    check_others_made(place, realize, producers, spans)
    check_all_run(place, realize, spans)
    check_still_runs(place, realize, spans)
    check_no_race(place, realize, spans)
    check_same_order(place, realize, spans)
    nest = new_nest(regions, realize, spans, preserve_unit_loops, strict=True)
    place.move(nest, position)


__all__ = ["compute_at", "reverse_compute_at"]
