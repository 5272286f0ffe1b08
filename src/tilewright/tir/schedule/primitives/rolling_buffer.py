"""``rolling_buffer``: a sliding window keeps what the previous iteration has computed.

After ``compute_at`` a producer computes, in each iteration of its consumers' loops, the whole
window that they read there, most of it again. With a rolling buffer it computes only what is new,
and the buffer holds one window as a circular buffer (``row % window``).

Why that is exact. Let ``[start, start + extent)`` be the rows made in one iteration of loop ``l``,
``start = stride * l + rest`` with ``rest`` free of ``l`` and of the loops inside, while the other
dimensions don't depend on ``l``. Rows below ``start - stride + extent`` were made in the iteration
before, with all loops inside at the same values. A row's slot is reused by the row ``extent``
further on, which no iteration computes while the old one is in the window. The first iteration
computes all of its window, so each run of the loop starts afresh. The same holds, without reuse of
slots, for the windows of inner loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.arith.polynomial import (
    Poly,
    constant_of,
    linear_in,
    poly_add,
    poly_atoms,
    poly_const,
    poly_sub,
)
from tilewright.ir import Expr, Range, and_, as_int, const, free_vars, or_, substitute
from tilewright.tir import (
    OPAQUE,
    SERIAL,
    UNROLLED,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    MatchBufferRegion,
    SeqStmt,
)
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.legality import covers
from tilewright.tir.schedule.primitives._block_checks import (
    check_movable,
    check_only_writer,
    check_uses_are_seen,
)
from tilewright.tir.schedule.primitives._copy import Box, buffer_at
from tilewright.tir.schedule.primitives._coverage import why_not_filled
from tilewright.tir.schedule.primitives._scope import Scope, regions_buffers, scope_of
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.vocabulary import BufferIndex

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def rolling_buffer(sch: Schedule, block: BlockRV, write_buffer_index: BufferIndex) -> None:
    """Make a producer in its consumers' loops compute only what the previous iteration did not.

    The outermost loop over which windows overlap becomes the one along which the buffer rolls: in
    that dimension it shrinks to one window. Overlaps along inner loops are not recomputed either.
    The rolling axis becomes opaque, which fixes the order of the iterations.

    Preconditions:
        - ``write_buffer_index`` is the position or name of a buffer that the block writes
        - the block is complete or a reduction, and the only writer of the buffer
        - the buffer is allocated in the scope of the block, without strides, and nobody uses it
          through its pointer or in a tensorized block
        - all consumers share a loop with the block and come after it there
        - the loops around the block are serial or unrolled, and it runs in each iteration
        - one iteration computes a box without holes, which contains what the consumers read there
        - the boxes of consecutive iterations of a loop overlap in one dimension, at a constant
          stride
        - what the block reads is complete in the iteration that reads it
        - the block is inside another block
    Before:
        for i in T.serial(14):
            for j in T.serial(3):
                with T.block("B"):
                    vi = T.axis.spatial(16, i + j)
                    B[vi] = A[vi] * T.float32(2)
            with T.block("C"):
                vi = T.axis.spatial(14, i)
                C[vi] = B[vi] + B[vi + 1] + B[vi + 2]
    After ``rolling_buffer(B, 0)``:
        for i in T.serial(14):
            for j in T.serial(3):
                with T.block("B"):
                    vi = T.axis.opaque(16, i + j)
                    T.where(i == 0 or i + j >= i + 2)
                    T.reads(A[vi])
                    T.writes(B[vi % 3])
                    B[vi % 3] = A[vi] * T.float32(2)
            with T.block("C"):
                vi = T.axis.spatial(14, i)
                T.reads(B[0:3])
                T.writes(C[vi])
                C[vi] = B[vi % 3] + B[(vi + 1) % 3] + B[(vi + 2) % 3]
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = buffer_at(sch, realize, write_buffer_index, reads=False)
    check_only_writer(scope, realize, buffer)
    check_movable(scope, realize)
    if scope.is_visible_outside(buffer):
        raise state.error(
            f"{buffer.name} is visible outside of the scope of block {realize.block.name!r}: all "
            "of it is needed",
            realize,
        )
    if buffer.strides:
        raise state.error(f"{buffer.name} has strides", realize)
    consumers = [item for item in scope.readers(buffer) if item is not realize]
    for item in (realize, *consumers):
        check_uses_are_seen(scope, item, buffer)
    shared = _shared_loops(scope, realize, consumers, buffer)
    _check_inputs_complete(scope, realize)
    _check_runs_always(scope, realize, shared)
    box = Box(scope, shared)
    box.add(realize, realize.block.writes, buffer)
    why = why_not_filled(box, [realize], buffer)
    if why:
        raise state.error(
            f"what block {realize.block.name!r} makes in one iteration of loop "
            f"{shared[-1].loop_var.name} is no full box: {why}",
            realize,
        )
    _check_contains(scope, box, consumers, buffer)
    windows = _windows(box)
    if not windows:
        raise state.error(
            f"what block {realize.block.name!r} makes of {buffer.name} in one iteration does not "
            "overlap, by a constant stride, with what it makes in the next",
            realize,
            shared[-1],
            remedy="compute_at a loop that a sliding window of the consumer moves along",
        )
    _rewrite(scope, box, realize, consumers, buffer, windows)


def _check_inputs_complete(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if an input is completed only in a later iteration: results are not recomputed."""
    for item in regions_buffers(realize.block.reads):
        for writer in scope.writers(item):
            loops = scope.shared_loops(writer, realize)
            if (
                writer is not realize
                and loops
                and not covers(scope.state, writer, realize, item, loops[-1])
            ):
                raise scope.state.error(
                    f"block {realize.block.name!r} reads parts of {item.name} that block "
                    f"{writer.block.name!r} may write in later iterations of loop "
                    f"{loops[-1].loop_var.name} only",
                    realize,
                    writer,
                )


@dataclass(frozen=True)
class _Window:
    """Along ``loop`` the box's dimension ``axis`` moves on by ``stride``."""

    loop: For
    depth: int
    axis: int
    stride: int


def _shared_loops(
    scope: Scope, realize: BlockRealize, consumers: list[BlockRealize], buffer: Buffer
) -> list[For]:
    """Return the loops around the block and all its consumers, the outermost first."""
    shared = scope.loops(realize)
    for item in consumers:
        shared = [a for a, b in zip(shared, scope.loops(item)) if a is b]
        if scope.position[item] < scope.position[realize]:
            raise scope.state.error(
                f"block {item.block.name!r} reads {buffer.name} ahead of block "
                f"{realize.block.name!r}, from the iteration before",
                realize,
                item,
            )
    if not shared or not consumers:
        raise scope.state.error(
            f"block {realize.block.name!r} shares no loop with all consumers of {buffer.name}",
            realize,
            *consumers,
            remedy="compute_at a loop of the consumer first",
        )
    return shared


def _check_runs_always(scope: Scope, realize: BlockRealize, shared: list[For]) -> None:
    parents = scope.state.index(scope.func_name).parents
    current = parents[realize]
    while current is not scope.block:
        if type(current) not in (For, SeqStmt):
            raise scope.state.error(
                f"block {realize.block.name!r} runs under a {type(current).__name__}: not in each "
                "iteration of its loops",
                realize,
            )
        current = parents[current]
    for loop in shared:
        if loop.kind not in (SERIAL, UNROLLED):
            raise scope.state.error(
                f"loop {loop.loop_var.name} is {loop.kind}: its iterations can't hand on what "
                "they have made",
                loop,
                remedy="to run in parallel, blockize the loops inside and give each block a buffer",
            )


def _check_contains(scope: Scope, box: Box, consumers: list[BlockRealize], buffer: Buffer) -> None:
    """Refuse if a consumer may read what the same iteration does not compute."""
    assert box.spans is not None
    regions = box.regions
    for item in consumers:
        env = regions.axis_values(item)
        inner = regions.inner_loops(x for x in scope.loops(item) if x not in set(box.outer))
        for region in item.block.reads:
            if region.buffer is not buffer:
                continue
            for made, needed, size in zip(
                box.spans, regions.touched(region, env, inner), buffer.shape
            ):
                assert made is not None
                if needed is not None:
                    made_end = poly_add(made.min, made.extent)
                    needed_end = poly_add(needed.min, needed.extent)
                    low = regions.surely_at_least(needed.min, made.min)
                    low = low or regions.surely_at_least({}, made.min)
                    high = regions.surely_at_least(made_end, needed_end)
                    high = high or regions.surely_at_least(made_end, regions.poly(size))
                    if low and high:
                        continue
                raise scope.state.error(
                    f"block {item.block.name!r} may read more of {buffer.name} than is made in "
                    f"the same iteration of loop {box.outer[-1].loop_var.name}",
                    item,
                )


def _windows(box: Box) -> list[_Window]:
    """Find the dimensions that slide along a loop, those of outer loops first."""
    assert box.spans is not None
    regions = box.regions
    numbers = [regions.table.var(loop.loop_var) for loop in box.outer]
    depends: list[list[int]] = []
    for span in box.spans:
        assert span is not None
        atoms = poly_atoms(span.min)
        depends.append(
            [
                depth
                for depth, number in enumerate(numbers)
                if any(regions.depends(atom, {number}) for atom in atoms)
            ]
        )
    found = []
    for axis, span in enumerate(box.spans):
        assert span is not None
        if not depends[axis]:
            continue
        depth = depends[axis][-1]
        loop = box.outer[depth]
        if as_int(loop.extent) == 1 or sum(depth in others for others in depends) > 1:
            continue
        split = linear_in(span.min, numbers[depth])
        stride = constant_of(split[0]) if split is not None else None
        if split is None or stride is None or stride <= 0:
            continue
        if any(regions.depends(atom, {numbers[depth]}) for atom in poly_atoms(split[1])):
            continue
        if not regions.is_outer_free(span.extent):
            continue
        if regions.surely_at_least(span.extent, poly_const(stride + 1)):
            found.append(_Window(loop, depth, axis, stride))
    return sorted(found, key=lambda window: window.depth)


def _rewrite(
    scope: Scope,
    box: Box,
    realize: BlockRealize,
    consumers: list[BlockRealize],
    buffer: Buffer,
    windows: list[_Window],
) -> None:
    """Give the buffer its new shape, all accesses the new index and the block its predicate."""
    state, regions = scope.state, box.regions
    assert box.spans is not None
    (written,) = [region for region in realize.block.writes if region.buffer is buffer]
    values = {
        iter_var.var: value for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
    }
    conditions: list[Expr] = [realize.predicate]
    for window in windows:
        span = box.spans[window.axis]
        assert span is not None
        known: Poly = poly_add(span.min, poly_sub(span.extent, poly_const(window.stride)))
        index = substitute(written.region[window.axis].min, values)
        loop = window.loop
        conditions.append(or_(loop.loop_var == loop.min, index >= regions.expr(known)))
    roll = windows[0]
    span = box.spans[roll.axis]
    assert span is not None
    extent = regions.expr(span.extent)
    if regions.surely_at_least(span.extent, regions.poly(buffer.shape[roll.axis])):
        extent = buffer.shape[roll.axis]
    shape = tuple(extent if n == roll.axis else size for n, size in enumerate(buffer.shape))
    rolled = buffer.with_fresh_data(shape=shape, elem_offset=None)
    roller = _Roller(state, realize, buffer, rolled, roll.axis)
    rolling = {var for var in free_vars(written.region[roll.axis].min) if var in values}
    made = roller.visit(realize.block)
    made = made.replace(
        iter_vars=tuple(
            item.replace(kind=OPAQUE) if item.var in rolling else item for item in made.iter_vars
        )
    )
    mapping: dict[Any, Any] = {
        realize: BlockRealize(realize.iter_values, and_(*conditions), made),
        **{item: item.replace(block=roller.visit(item.block)) for item in consumers},
    }
    body = state.rebuilt(scope.block.body, mapping)
    kept = tuple(rolled if item is buffer else item for item in scope.block.alloc_buffers)
    state.replace(scope.block, scope.block.replace(body=body, alloc_buffers=kept))


class _Roller:
    """Replaces accesses to a buffer by accesses to the rolling one."""

    def __init__(
        self, state: ScheduleState, realize: BlockRealize, old: Buffer, new: Buffer, axis: int
    ) -> None:
        self.state, self.realize = state, realize
        self.old, self.new, self.axis = old, new, axis
        self.extent = new.shape[axis]
        self.is_whole = self.extent is old.shape[axis]

    def visit(self, node: Any) -> Any:
        """Rewrite a node and what is below it."""
        kind = type(node)
        if kind is MatchBufferRegion and node.source.buffer is self.old:
            raise self.state.error(
                f"{self.old.name} is matched by a tensorized block: it can't roll", self.realize
            )
        made = node.map_children(self.visit)
        if getattr(made, "buffer", None) is not self.old:
            return made
        if kind is BufferLoad:
            return BufferLoad(self.new, self._around(made.indices))
        if kind is BufferStore:
            return BufferStore(self.new, made.value, self._around(made.indices))
        if kind is BufferRegion:
            return BufferRegion(self.new, self._region(made.region))
        return made

    def _around(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if self.is_whole:
            return indices
        return tuple(
            index % self.extent if n == self.axis else index for n, index in enumerate(indices)
        )

    def _region(self, region: tuple[Range, ...]) -> tuple[Range, ...]:
        if self.is_whole:
            return region
        made = list(region)
        item = made[self.axis]
        if as_int(item.extent) == 1:
            made[self.axis] = Range.from_min_extent(item.min % self.extent, item.extent)
        else:
            made[self.axis] = Range.from_min_extent(const(0), self.extent)
        return tuple(made)


__all__ = ["rolling_buffer"]
