"""``read_at`` and ``write_at``: a tile of a buffer moved as one block, at a loop.

Unlike ``cache_read`` and ``compute_at``, which make a block per element, these make one block per
tile, annotated with ``auto_copy``: how the copy is carried out (vector width, threads) is decided
during lowering. Its body is a plain copy loop, which defines its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tilewright.arith.polynomial import Poly, poly_add, poly_atoms
from tilewright.ir import TRUE, Expr, IntImm, Range, Var, and_, as_int, const, substitute
from tilewright.tir import (
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    Stmt,
    seq,
)
from tilewright.tir.attrs import AUTO_COPY
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._block_checks import check_uses_are_seen
from tilewright.tir.schedule.primitives._copy import Box, buffer_at, cache_buffer
from tilewright.tir.schedule.primitives._destination import fit_span
from tilewright.tir.schedule.primitives._input_dependences import finishes_inside
from tilewright.tir.schedule.primitives._scope import Scope, regions_buffers, scope_of
from tilewright.tir.schedule.primitives.cache import check_filled, check_surely_written
from tilewright.tir.schedule.primitives.storage import change_buffers
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.vocabulary import BufferIndex, StorageScope
from tilewright.tir.schedule.zero_trips import check_init_finds

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def read_at(
    sch: Schedule,
    loop: LoopRV,
    block: BlockRV,
    read_buffer_index: BufferIndex,
    storage_scope: StorageScope,
) -> BlockRV:
    """Copy, in each iteration of ``loop``, the tile that is read there into ``storage_scope``.

    All blocks under the loop that read the buffer of ``block`` read the copy. Returns the block
    that copies; it is annotated with ``auto_copy``. In scope ``shared`` the tile is what all
    threads of a block read there, as in ``compute_at``.

    Preconditions:
        - ``read_buffer_index`` is the position or name of a buffer that the block reads
        - the block is under the loop, in the same block as the loop
        - no block under the loop writes the buffer, or uses it through its pointer, or hides that
          it does
        - the loops on which the tile depends have known bounds
        - the loop, and those around it, surely run, or no init that may run for an empty reduction
          reads the buffer
        - the block is inside another block
    Before:
        for i0, i1 in T.grid(8, 16):
            with T.block("B"):
                vi = T.axis.spatial(128, i0 * 16 + i1)
                B[vi] = A[vi] * T.float32(2)
    After ``read_at(i0, B, 0, "shared")``:
        for i0 in T.serial(8):
            with T.block("A_shared"):
                v0 = T.axis.spatial(8, i0)
                T.reads(A[v0 * 16:v0 * 16 + 16])
                T.writes(A_shared[v0 * 16:v0 * 16 + 16])
                T.block_attr({"auto_copy": 1})
                for ax0 in T.serial(16):
                    A_shared[v0 * 16 + ax0] = A[v0 * 16 + ax0]
            for i1 in T.serial(16):
                with T.block("B"):
                    vi = T.axis.spatial(128, i0 * 16 + i1)
                    B[vi] = A_shared[vi] * T.float32(2)
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = buffer_at(sch, realize, read_buffer_index, reads=True)
    target = state.get_loop(loop)
    below = _below(scope, realize, target)
    readers = [item for item in scope.readers(buffer) if item in below]
    for item in below:
        if buffer in regions_buffers(item.block.writes):
            raise state.error(
                f"block {item.block.name!r} under loop {target.loop_var.name} writes "
                f"{buffer.name}: the copy would not see it",
                item,
                target,
            )
        check_uses_are_seen(scope, item, buffer)
    check_init_finds(state, readers, [buffer], target)
    outer = [*scope.loops(realize)[: scope.loops(realize).index(target)], target]
    box = Box(scope, outer, storage_scope)
    for item in readers:
        box.add(item, item.block.reads, buffer)
    cached, name = cache_buffer(scope, buffer, storage_scope)
    domains = [Range.from_min_extent(const(0), size) for size in buffer.shape]
    copy = _copy_block(box, buffer, cached, name, domains, strict=False)
    renamed = {item: change_buffers(item, {buffer: cached}) for item in readers}
    body = seq(copy, state.rebuilt(target.body, renamed))
    _replace(scope, target, body, cached)
    return BlockRV(scope.func_name, name)


@primitive
def write_at(
    sch: Schedule,
    loop: LoopRV,
    block: BlockRV,
    write_buffer_index: BufferIndex,
    storage_scope: StorageScope,
) -> BlockRV:
    """Make ``block`` write into ``storage_scope``, and copy a tile from there in each iteration.

    The copy comes at the end of the body of ``loop``. Returns the block that copies; it is
    annotated with ``auto_copy``.

    Preconditions:
        - ``write_buffer_index`` is the position or name of a buffer that the block writes
        - the block is under the loop, in the same block as the loop
        - all writers of the buffer are under the loop, and one iteration of it completes what they
          write
        - no other block under the loop reads the buffer, or uses it through its pointer, or hides
          that it does
        - every element of the tile is surely written in each iteration, and the loops on which the
          tile depends have known bounds
        - the block is inside another block
    Before:
        for i0, i1 in T.grid(8, 16):
            with T.block("B"):
                vi = T.axis.spatial(128, i0 * 16 + i1)
                B[vi] = A[vi] * T.float32(2)
    After ``write_at(i0, B, 0, "shared")``:
        for i0 in T.serial(8):
            for i1 in T.serial(16):
                with T.block("B"):
                    vi = T.axis.spatial(128, i0 * 16 + i1)
                    B_shared[vi] = A[vi] * T.float32(2)
            with T.block("B_shared"):
                v0 = T.axis.spatial(8, i0)
                T.reads(B_shared[v0 * 16:v0 * 16 + 16])
                T.writes(B[v0 * 16:v0 * 16 + 16])
                T.block_attr({"auto_copy": 1})
                for ax0 in T.serial(16):
                    B[v0 * 16 + ax0] = B_shared[v0 * 16 + ax0]
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = buffer_at(sch, realize, write_buffer_index, reads=False)
    target = state.get_loop(loop)
    below = _below(scope, realize, target)
    writers = scope.writers(buffer)
    loops = scope.loops(realize)
    outer = loops[: loops.index(target) + 1]
    for item in writers:
        _check_writes_inside(scope, item, buffer, below, outer)
    for item in below:
        if item not in writers and buffer in regions_buffers(item.block.reads):
            raise state.error(
                f"block {item.block.name!r} under loop {target.loop_var.name} reads {buffer.name}",
                item,
                target,
            )
        check_uses_are_seen(scope, item, buffer)
    box = Box(scope, outer)
    makers = [item for item in writers if buffer not in regions_buffers(item.block.reads)]
    for item in makers:
        box.add(item, item.block.writes, buffer)
    made = box.spans
    for item in writers:
        box.add(item, item.block.writes, buffer)
    if made is None or made != box.spans:
        raise state.error(
            f"block {realize.block.name!r} updates elements of {buffer.name} that were made "
            f"outside of loop {target.loop_var.name}",
            realize,
            target,
        )
    check_filled(box, makers, buffer)
    check_surely_written(box, makers, buffer)
    cached, name = cache_buffer(scope, buffer, storage_scope)
    copy = _copy_block(box, cached, buffer, name, box.domains(buffer.shape), strict=True)
    renamed = {item: change_buffers(item, {buffer: cached}) for item in writers}
    body = seq(state.rebuilt(target.body, renamed), copy)
    _replace(scope, target, body, cached)
    return BlockRV(scope.func_name, name)


def _check_writes_inside(
    scope: Scope,
    writer: BlockRealize,
    buffer: Buffer,
    below: Sequence[BlockRealize],
    outer: Sequence[For],
) -> None:
    """Refuse a writer that an iteration of the last loop of ``outer`` may run partly or not."""
    state, loop, name = scope.state, outer[-1], writer.block.name
    if writer not in below:
        raise state.error(
            f"block {name!r} writes {buffer.name} too, but not under loop {loop.loop_var.name}",
            writer,
            loop,
            remedy="choose a loop that all writers are under",
        )
    for parent in state.parents(writer):
        if parent is loop:
            break
        if type(parent) is IfThenElse:
            raise state.error(
                f"block {name!r} writes {buffer.name} in some iterations of loop "
                f"{loop.loop_var.name} only: there may be nothing to copy",
                writer,
                parent,
                remedy="choose a loop inside of the branch",
            )
    if not finishes_inside(writer, [x for x in outer if as_int(x.extent) != 1]):
        raise state.error(
            f"what block {name!r} makes of {buffer.name} is not complete in one iteration of "
            f"loop {loop.loop_var.name}",
            writer,
            loop,
            remedy="choose a loop outside of the reduction",
        )


def _below(scope: Scope, realize: BlockRealize, loop: For) -> list[BlockRealize]:
    """Return the blocks of the scope that are under ``loop``; ``realize`` must be one of them."""
    below = [item for item in scope.blocks if loop in scope.loops(item)]
    if realize not in below:
        raise scope.state.error(
            f"block {realize.block.name!r} is not under loop {loop.loop_var.name} in its scope",
            realize,
            loop,
            remedy="choose a loop around the block, inside the same outer block",
        )
    return below


def _replace(scope: Scope, loop: For, body: Stmt, cached: Buffer) -> None:
    state = scope.state
    made = state.rebuilt(scope.block.body, {loop: loop.replace(body=body)})
    buffers = (*scope.block.alloc_buffers, cached)
    state.replace(scope.block, scope.block.replace(body=made, alloc_buffers=buffers))


def _copy_block(
    box: Box,
    source: Buffer,
    target: Buffer,
    name: str,
    domains: Sequence[Range],
    *,
    strict: bool = False,
) -> Stmt:
    """Build one block that copies the box; its axes are the loops on which the box depends.

    With ``strict`` nothing outside of the box is copied.
    """
    regions = box.regions
    assert box.spans is not None
    placed = [fit_span(regions, span, dom, strict=strict) for span, dom in zip(box.spans, domains)]
    around = _loops_used(box, placed)
    axes = {loop.loop_var: Var(f"v{number}") for number, loop in enumerate(around)}

    def over_axes(poly: Poly) -> Expr:
        made: Expr = substitute(regions.expr(poly), axes)
        return made

    loops: list[tuple[Var, Expr]] = []
    where: list[Expr] = []
    conditions: list[Expr] = []
    region: list[Range] = []
    for number, (first, count, ends) in enumerate(placed):
        index, extent = over_axes(first), over_axes(count)
        region.append(Range.from_min_extent(index, extent))
        if as_int(extent) != 1:
            var = Var(f"ax{number}")
            loops.append((var, extent))
            index = regions.expr(poly_add(regions.poly(index), regions.poly(var)))
        where.append(index)
        for is_end, limit in ends:
            bound = over_axes(limit)
            conditions.append(index < bound if is_end else index >= bound)
    body: Stmt = BufferStore(target, BufferLoad(source, tuple(where)), tuple(where))
    condition = and_(*conditions)
    if condition is not TRUE:
        body = IfThenElse(condition, body)
    for var, extent in reversed(loops):
        body = For(var, const(0), extent, SERIAL, body)
    block = Block(
        tuple(IterVar(_range_of(box, loop), axes[loop.loop_var], SPATIAL) for loop in around),
        (BufferRegion(source, tuple(region)),),
        (BufferRegion(target, tuple(region)),),
        name,
        body,
        annotations={AUTO_COPY: 1},
    )
    return BlockRealize(tuple(loop.loop_var for loop in around), TRUE, block)


def _loops_used(
    box: Box, placed: Iterable[tuple[Poly, Poly, list[tuple[bool, Poly]]]]
) -> list[For]:
    """The loops around a box that the start, the extent or an end of a dimension depends on."""
    regions = box.regions
    atoms: set[int] = set()
    for start, extent, ends in placed:
        for poly in (start, extent, *(limit for _, limit in ends)):
            atoms |= poly_atoms(poly)
    return [
        loop
        for loop in box.outer
        if any(regions.depends(atom, {regions.table.var(loop.loop_var)}) for atom in atoms)
    ]


def _range_of(box: Box, loop: For) -> Range:
    """Return the range of a loop over all iterations of those around it."""
    regions = box.regions
    if type(loop.extent) is IntImm and type(loop.min) is IntImm:
        return Range.from_min_extent(loop.min, loop.extent)
    start, extent = regions.poly(loop.min), regions.poly(loop.extent)
    if regions.is_outer_free(start) and regions.is_outer_free(extent):
        return Range.from_min_extent(loop.min, loop.extent)
    inner = regions.inner_loops(box.outer)
    span = regions.relax({(regions.table.var(loop.loop_var),): 1}, inner)
    if span is None:
        raise box.scope.state.error(f"loop {loop.loop_var.name} has no known bounds", loop)
    return Range.from_min_extent(regions.expr(span.min), regions.expr(span.extent))


__all__ = ["AUTO_COPY", "read_at", "write_at"]
