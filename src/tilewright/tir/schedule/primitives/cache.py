"""Caches: a copy of a buffer in another memory, filled before reading or emptied after writing.

``cache_read`` puts a block that copies ``A`` into ``A_<scope>`` ahead of the consumers, which then
read the copy. ``cache_write`` makes a block write ``C_<scope>`` and adds a block after it that
copies this into ``C``. ``cache_inplace`` does both for a block that updates a buffer. The copying
block is put at the innermost place between all writers and all readers; it copies only the region
that is accessed. ``compute_at`` and ``reverse_compute_at`` can move it further in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import Range, const, free_vars
from tilewright.tir import NO_OP, BlockRealize, Buffer, For, fresh_name
from tilewright.tir.empty_reduction import begun_by_nothing
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._block_checks import check_only_writer, check_uses_are_seen
from tilewright.tir.schedule.primitives._copy import (
    Box,
    accessed,
    anchor_of,
    buffer_at,
    cache_buffer,
    consumers_of,
    copy_nest,
    insert,
    outer_loops,
    resolve_buffer,
)
from tilewright.tir.schedule.primitives._coverage import why_not_filled
from tilewright.tir.schedule.primitives._domain import check_predicate_is_domain
from tilewright.tir.schedule.primitives._scope import Scope, regions_buffers, scope_of
from tilewright.tir.schedule.primitives.storage import change_buffers
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.vocabulary import BufferIndex, StorageScope
from tilewright.tir.schedule.zero_trips import surely_runs
from tilewright.tir.stmt import Stmt

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def cache_read(
    sch: Schedule,
    block: BlockRV,
    read_buffer_index: BufferIndex,
    storage_scope: StorageScope,
    consumer_blocks: Sequence[BlockRV] | None = None,
) -> BlockRV:
    """Copy a buffer that ``block`` reads into ``storage_scope`` before it is read.

    All consumers in the scope read the copy, or only ``consumer_blocks`` if given. Returns the
    block that copies.

    Preconditions:
        - ``read_buffer_index`` is the position or name of a buffer that the block reads
        - each of ``consumer_blocks`` reads the buffer, in the scope of the block
        - no consumer of the copy writes the buffer as well
        - no consumer uses the buffer through its pointer, or hides that it does
        - there is a place after all writers of the buffer and ahead of the consumers
        - the block is inside another block
    Before:
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A[vi] * T.float32(2)
    After ``cache_read(B, 0, "local")``:
        for ax0 in T.serial(128):
            with T.block("A_local"):
                v0 = T.axis.spatial(128, ax0)
                A_local[v0] = A[v0]
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A_local[vi] * T.float32(2)
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = buffer_at(sch, realize, read_buffer_index, reads=True)
    consumers = consumers_of(scope, realize, buffer, consumer_blocks or ())
    for consumer in consumers:
        if buffer in regions_buffers(consumer.block.writes):
            raise state.error(
                f"block {consumer.block.name!r} writes {buffer.name} as well as reading it",
                consumer,
                remedy="cache_inplace makes a cache that is read and written",
            )
        check_uses_are_seen(scope, consumer, buffer)
    writers = scope.writers(buffer)
    anchor = anchor_of(scope, writers, consumers, before=True)
    box = accessed(scope, anchor, consumers, buffer, reads=True)
    cached, name = cache_buffer(scope, buffer, storage_scope)
    copy = copy_nest(box, buffer, cached, name, _whole(buffer))
    renamed = {item: change_buffers(item, {buffer: cached}) for item in consumers}
    insert(scope, anchor, copy, NO_OP, renamed, [cached])
    return BlockRV(scope.func_name, name)


@primitive
def cache_write(
    sch: Schedule,
    block: BlockRV,
    write_buffer_index: BufferIndex,
    storage_scope: StorageScope,
    consumer_blocks: Sequence[BlockRV] | None = None,
) -> BlockRV:
    """Make ``block`` write into ``storage_scope``, and copy the result from there afterwards.

    ``consumer_blocks`` read the new buffer instead of the old one. Returns the block that copies.

    Preconditions:
        - ``write_buffer_index`` is the position or name of a buffer that the block writes
        - no other block of the scope writes the buffer
        - the predicate of the block does no more than keep its axes inside their ranges, which
          depend on no loop
        - the block doesn't read what was in the buffer before
        - the block doesn't use the buffer through its pointer, or hides that it does
        - each of ``consumer_blocks`` reads the buffer, in the scope of the block
        - there is a place after the block and ahead of all others that read the buffer
        - every element of the box that the block writes is surely written, if the buffer is visible
          outside of the scope or the copy is inside a loop
        - the block is inside another block
    Before:
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A[vi] * T.float32(2)
    After ``cache_write(B, 0, "local")``:
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B_local[vi] = A[vi] * T.float32(2)
        for ax0 in T.serial(128):
            with T.block("B_local"):
                v0 = T.axis.spatial(128, ax0)
                B[v0] = B_local[v0]
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = buffer_at(sch, realize, write_buffer_index, reads=False)
    check_only_writer(scope, realize, buffer)
    check_predicate_is_domain(scope, realize)
    if buffer in regions_buffers(realize.block.reads):
        raise state.error(
            f"block {realize.block.name!r} updates {buffer.name}: a cache would not hold the old "
            "values",
            realize,
            remedy="apply cache_write before decompose_reduction, or use cache_inplace",
        )
    redirected = consumers_of(scope, realize, buffer, consumer_blocks) if consumer_blocks else []
    for item in (realize, *redirected):
        check_uses_are_seen(scope, item, buffer)
    others = [item for item in scope.readers(buffer) if item is not realize]
    anchor = anchor_of(scope, [realize], others, before=False)
    box = accessed(scope, anchor, [realize], buffer, reads=False)
    if scope.is_visible_outside(buffer) or box.outer:
        check_filled(box, [realize], buffer)
        check_surely_written(box, [realize], buffer)
    if redirected and scope.is_visible_outside(buffer) and not box.is_all_of(buffer):
        raise state.error(
            f"block {redirected[0].block.name!r} may read elements of {buffer.name} that block "
            f"{realize.block.name!r} does not write, which the cache would not hold",
            redirected[0],
            remedy="leave out consumer_blocks, or cache_read for the consumer",
        )
    cached, name = cache_buffer(scope, buffer, storage_scope)
    copy = copy_nest(box, cached, buffer, name, box.domains(buffer.shape), strict=True)
    renamed = {item: change_buffers(item, {buffer: cached}) for item in (realize, *redirected)}
    insert(scope, anchor, NO_OP, copy, renamed, [cached])
    return BlockRV(scope.func_name, name)


@primitive
def cache_inplace(
    sch: Schedule, block: BlockRV, read_buffer_index: BufferIndex, storage_scope: StorageScope
) -> list[BlockRV]:
    """Update a buffer in ``storage_scope``, with copies in before and out after.

    Returns the block that copies in and the block that copies out. Elements inside the box that are
    not updated are copied back unchanged.

    Preconditions:
        - ``read_buffer_index`` is the position or name of a buffer that the block reads
        - the block writes that buffer as well
        - the block doesn't use the buffer through its pointer, or hides that it does
        - if others that use the buffer share a loop with the block, it updates the very box that it
          reads, without holes and wherever it runs
        - the block is inside another block
    Before:
        for i in T.serial(128):
            with T.block("A"):
                vi = T.axis.spatial(128, i)
                A[vi] = A[vi] * T.float32(2)
    After ``cache_inplace(A, 0, "local")``:
        for ax0 in T.serial(128):
            with T.block("A_local_in"):
                v0 = T.axis.spatial(128, ax0)
                A_local[v0] = A[v0]
        for i in T.serial(128):
            with T.block("A"):
                vi = T.axis.spatial(128, i)
                A_local[vi] = A_local[vi] * T.float32(2)
        for ax0 in T.serial(128):
            with T.block("A_local_out"):
                v0 = T.axis.spatial(128, ax0)
                A[v0] = A_local[v0]
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = buffer_at(sch, realize, read_buffer_index, reads=True)
    if buffer not in regions_buffers(realize.block.writes):
        raise state.error(
            f"block {realize.block.name!r} reads {buffer.name} but doesn't write it",
            realize,
            remedy="use cache_read for what is only read, cache_write for what is only written",
        )
    check_uses_are_seen(scope, realize, buffer)
    anchor = _own_statement(scope, realize, buffer)
    outer = outer_loops(scope, anchor)
    box = Box(scope, outer)
    box.add(realize, realize.block.writes, buffer)
    written, limits = box.spans, box.limits
    box.add(realize, realize.block.reads, buffer)
    if outer:
        check_predicate_is_domain(scope, realize)
        check_filled(box, [realize], buffer)
        assert box.spans is not None and written is not None
        if any(
            a is None or b is None or a.min != b.min or a.extent != b.extent
            for a, b in zip(box.spans, written)
        ):
            raise state.error(
                f"block {realize.block.name!r} reads more of {buffer.name} than it updates, inside "
                f"loop {outer[-1].loop_var.name}, where others use {buffer.name} too",
                realize,
            )
    box.limits = limits
    suffix = storage_scope.replace(".", "_")
    cached, _ = cache_buffer(scope, buffer, storage_scope)
    taken = set(state.index(scope.func_name).blocks)
    names = [fresh_name(f"{buffer.name}_{suffix}_{way}", taken) for way in ("in", "out")]
    domains = box.domains(buffer.shape) if outer else _whole(buffer)
    copy_in = copy_nest(box, buffer, cached, names[0], domains, strict=True)
    copy_out = copy_nest(box, cached, buffer, names[1], domains, strict=True)
    renamed = {realize: change_buffers(realize, {buffer: cached})}
    insert(scope, anchor, copy_in, copy_out, renamed, [cached])
    return [BlockRV(scope.func_name, name) for name in names]


def check_filled(box: Box, writers: Sequence[BlockRealize], buffer: Buffer) -> None:
    """Refuse if copying the box to ``buffer`` may overwrite elements that writers don't write."""
    why = why_not_filled(box, writers, buffer)
    if why:
        raise box.scope.state.error(
            f"block {writers[0].block.name!r} may write only some elements of {buffer.name}: "
            f"{why}; copying would overwrite the others",
            *writers,
        )


def check_surely_written(box: Box, writers: Sequence[BlockRealize], buffer: Buffer) -> None:
    """Refuse if a copy to ``buffer`` may run where neither a writer nor its init has run."""
    idle = [loop for item in writers if (loop := _idle_loop(box, item, buffer)) is not None]
    if idle and len(idle) == len(writers):
        raise box.scope.state.error(
            f"loop {idle[0].loop_var.name!r} may have no iterations, and block "
            f"{writers[0].block.name!r} leaves {buffer.name} as it is then; copying would "
            "overwrite it",
            writers[0],
            idle[0],
            remedy="cache_inplace copies in what is there first",
        )


def _idle_loop(box: Box, realize: BlockRealize, buffer: Buffer) -> For | None:
    """A loop that may be empty although its output is not, and that runs no init then."""
    state, block = box.scope.state, realize.block
    written = {
        var
        for region in block.writes
        if region.buffer is buffer
        for item in region.region
        for var in free_vars(item.min)
    }
    used = {
        var
        for axis, value in zip(block.iter_vars, realize.iter_values)
        if axis.var in written
        for var in free_vars(value)
    }
    for loop in box.scope.loops(realize):
        if loop in box.outer or loop.loop_var in used or surely_runs(state, loop):
            continue
        if block.name not in begun_by_nothing(loop):
            return loop
    return None


def _own_statement(scope: Scope, realize: BlockRealize, buffer: Buffer) -> Stmt:
    """Return the outermost statement around a block in which no other block uses ``buffer``."""
    parents = scope.state.index(scope.func_name).parents
    others = {*scope.readers(buffer), *scope.writers(buffer)} - {realize}
    foreign: set[Any] = set()
    for other in others:
        current: Stmt = other
        while current is not scope.block:
            foreign.add(current)
            current = parents[current]
    current = realize
    while parents[current] is not scope.block and parents[current] not in foreign:
        current = parents[current]
    return current


def _whole(buffer: Buffer) -> list[Range]:
    return [Range.from_min_extent(const(0), size) for size in buffer.shape]


__all__ = ["cache_inplace", "cache_read", "cache_write", "resolve_buffer"]
