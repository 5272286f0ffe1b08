"""Caches with their own layout: what a block reads or writes, laid out by its axes.

``reindex`` takes the axes that an access uses, in order; ``reindex_cache_read`` and
``reindex_cache_write`` take a map from all axes of the block. The copying block has an instance for
each element that the block accesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith.polynomial import poly_add
from tilewright.ir import (
    Expr,
    Var,
    and_,
    as_int,
    const,
    expr_equal,
    free_vars,
    pre_order,
    substitute,
)
from tilewright.tir import (
    NO_OP,
    REDUCE,
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    Stmt,
    fresh_name,
)
from tilewright.tir.analysis import block_access_regions, is_injective_binding
from tilewright.tir.attrs import TRUSTED_REGIONS
from tilewright.tir.index_map import as_index_map
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._block_checks import (
    check_movable,
    check_only_writer,
    check_uses_are_seen,
)
from tilewright.tir.schedule.primitives._copy import (
    Indices,
    accesses,
    anchor_of,
    buffer_at,
    element,
    insert,
    one_access,
    outer_loops,
    resolve_buffer,
)
from tilewright.tir.schedule.primitives._coverage import why_conditional
from tilewright.tir.schedule.primitives._domain import check_predicate_is_domain, check_runs_whole
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import Scope, buffer_names, regions_buffers, scope_of
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.vocabulary import BufferIndex, StorageScope

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def reindex(sch: Schedule, block: BlockRV, buffer: Any) -> BlockRV:
    """Copy an accessed buffer into a layout by the axes of ``block`` that its access uses.

    ``buffer`` is ``("read", 0)``, ``("write", 0)`` … or the buffer's name. Where a block reads a
    buffer by different indices, as in ``A[vi, vk] * A[vj, vk]``, a third element says which of
    them: ``("read", 0, 1)`` are the second ones in the block's text. Returns the block that copies.

    Preconditions:
        - ``buffer`` names one of the buffers that the block accesses
        - the block accesses the buffer element by element, by the same indices everywhere or those
          that are asked for, not through its pointer, or hides that it does
        - what is asked for by its indices is read
        - a block that reads the copy doesn't write the buffer
        - the block writes no buffer whose data say which elements it accesses
        - a block that writes the copy is the only writer of the buffer, and complete or a reduction
        - a block that writes the copy writes under no condition
        - the predicate of the block does no more than keep its axes inside their ranges, which
          depend on no loop
        - the axes that the access uses start at zero
        - what is read is inside the buffer for all values of the axes, and so are the data that
          say what is read
        - the block shares no loop with the producers of what it reads, or consumers of what it
          writes
        - the block is inside another block
    Before:
        for i, j in T.grid(128, 64):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi] * T.float32(2)
    After ``reindex(B, ("read", 0))``:
        for ax0, ax1 in T.grid(128, 64):
            with T.block("A_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_reindex[v0, v1] = A[v1, v0]
        for i, j in T.grid(128, 64):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A_reindex[vi, vj] * T.float32(2)
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    number = None
    if isinstance(buffer, (tuple, list)) and len(buffer) == 3:
        *buffer, number = buffer
    is_read, position = resolve_buffer(state, realize, buffer)
    noted: list[str | int] = ["read" if is_read else "write", position]
    if number is not None:
        number = _access_number(sch, realize, number, is_read)
        noted.append(number)
    sch.note(buffer=noted)
    regions_of = realize.block.reads if is_read else realize.block.writes
    work = _Reindex(scope, realize, regions_of[position].buffer, is_read, number)
    return work.run(tuple(axis.var for axis in work.axes), "reindex", "global")


@primitive
def reindex_cache_read(
    sch: Schedule,
    block: BlockRV,
    read_buffer_index: BufferIndex,
    storage_scope: StorageScope,
    index_map: Any,
) -> BlockRV:
    """Copy what ``block`` reads into a buffer laid out by a map of the block's axes.

    ``index_map`` takes all axes of the block and gives the indices into the copy: a function, an
    ``IndexMap`` or a lambda's text. Returns the block that copies.

    Preconditions:
        - ``read_buffer_index`` is the position or name of a buffer that the block reads
        - the block reads the buffer element by element, by the same indices everywhere, not
          through its pointer, or hides that it does
        - the block doesn't write the buffer, nor data that say which of its elements are read
        - the map uses no reduction axis if the init reads the buffer
        - the map takes as many indices as the block has axes, and gives no negative index
        - the map uses each axis that the access uses, and is injective in the axes it uses
        - the axes that the map uses start at zero
        - the predicate of the block does no more than keep its axes inside their ranges, which
          depend on no loop
        - what is read is inside the buffer for all values of the axes, and so are the data that
          say what is read
        - the block shares no loop with the producers of what it reads
        - the block is inside another block
    Before:
        for i, j in T.grid(8, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi + vj * 8] * T.float32(2)
    After ``reindex_cache_read(B, 0, "shared", lambda i, j: (j, i))``:
        for ax0, ax1 in T.grid(8, 16):
            with T.block("A_shared"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_shared[v1, v0] = A[v0 + v1 * 8]
        for i, j in T.grid(8, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A_shared[vj, vi] * T.float32(2)
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = buffer_at(sch, realize, read_buffer_index, reads=True)
    where = _mapped_axes(sch, realize, index_map)
    return _Reindex(scope, realize, buffer, is_read=True).run(where, None, storage_scope)


@primitive
def reindex_cache_write(
    sch: Schedule,
    block: BlockRV,
    write_buffer_index: BufferIndex,
    storage_scope: StorageScope,
    index_map: Any,
) -> BlockRV:
    """Make ``block`` write into a buffer laid out by a map of its axes, and copy from there.

    ``index_map`` takes all axes of the block and gives the indices into the copy: a function, an
    ``IndexMap`` or a lambda's text. Returns the block that copies.

    Preconditions:
        - ``write_buffer_index`` is the position or name of a buffer that the block writes
        - the block accesses the buffer element by element, by the same indices everywhere, not
          through its pointer, or hides that it does
        - the block is the only writer of the buffer, and complete or a reduction
        - the block writes under no condition
        - the map takes as many indices as the block has axes, and gives no negative index
        - the map uses exactly the axes that the access uses, and is injective
        - the map uses no reduction axis
        - the axes that the map uses start at zero
        - the predicate of the block does no more than keep its axes inside their ranges, which
          depend on no loop
        - the block shares no loop with the consumers of what it writes
        - the block is inside another block
    Before:
        for i, j in T.grid(8, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi + vj * 8] = A[vi, vj] * T.float32(2)
    After ``reindex_cache_write(B, 0, "local", lambda i, j: (j, i))``:
        for i, j in T.grid(8, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B_local[vj, vi] = A[vi, vj] * T.float32(2)
        for ax0, ax1 in T.grid(8, 16):
            with T.block("B_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v0 + v1 * 8] = B_local[v1, v0]
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = buffer_at(sch, realize, write_buffer_index, reads=False)
    where = _mapped_axes(sch, realize, index_map)
    return _Reindex(scope, realize, buffer, is_read=False).run(where, None, storage_scope)


def _access_number(sch: Schedule, realize: BlockRealize, number: object, is_read: bool) -> int:
    """Check what says which of a buffer's accesses is meant."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise sch.error(f"an access is given by its number, got {number!r}", realize)
    if not is_read:
        raise sch.error(
            "accesses by different indices are told apart where a block reads, not where it writes",
            realize,
        )
    return int(number.__index__())


def _mapped_axes(sch: Schedule, realize: BlockRealize, index_map: Any) -> tuple[Expr, ...]:
    """Return the map's indices in terms of the block's axes, and record the map."""
    block = realize.block
    mapping = as_index_map(index_map)
    if len(mapping.initial_indices) != len(block.iter_vars):
        raise sch.error(
            f"the map takes {len(mapping.initial_indices)} indices, block {block.name!r} has "
            f"{len(block.iter_vars)} axes",
            realize,
        )
    sch.note(index_map=mapping.to_text())
    return mapping.map_indices([iter_var.var for iter_var in block.iter_vars])


class _Reindex:
    """One access of a block, to be redirected to a copy with another layout."""

    def __init__(
        self,
        scope: Scope,
        realize: BlockRealize,
        buffer: Buffer,
        is_read: bool,
        number: int | None = None,
    ) -> None:
        self.scope, self.state = scope, scope.state
        self.realize, self.buffer, self.is_read = realize, buffer, is_read
        self._check_role()
        check_uses_are_seen(scope, realize, buffer)
        if is_read:
            check_predicate_is_domain(scope, realize)
        else:
            check_runs_whole(scope, realize)
        self.indices = one_access(self.state, realize, buffer, number)
        self.number = number
        self.domain = {iter_var.var: iter_var for iter_var in realize.block.iter_vars}
        self.used = {var for index in self.indices for var in free_vars(index)}
        self.axes = [item for item in realize.block.iter_vars if item.var in self.used]
        # Data that say which element is accessed: the copy reads them, too.
        self.looked_up = [
            node for index in self.indices for node in pre_order(index) if type(node) is BufferLoad
        ]
        self._check_looked_up()

    def _check_role(self) -> None:
        realize, buffer, state = self.realize, self.buffer, self.state
        if self.is_read:
            if buffer in regions_buffers(realize.block.writes):
                raise state.error(
                    f"block {realize.block.name!r} also writes {buffer.name}", realize
                )
            return
        check_only_writer(self.scope, realize, buffer)
        check_movable(self.scope, realize)
        why = why_conditional(realize.block, buffer)
        if why:
            raise state.error(
                f"block {realize.block.name!r} may not write all elements of {buffer.name}: {why}; "
                "copying would overwrite the others",
                realize,
            )

    def _check_looked_up(self) -> None:
        """Refuse if the block itself writes what says which element it accesses."""
        written = regions_buffers(self.realize.block.writes)
        for load in self.looked_up:
            if load.buffer in written:
                raise self.state.error(
                    f"block {self.realize.block.name!r} writes {load.buffer.name}, which says what "
                    f"it accesses of {self.buffer.name}: a copy would go by other values",
                    self.realize,
                )

    def run(self, where: tuple[Expr, ...], suffix: str | None, storage_scope: str) -> BlockRV:
        """Make the copy, indexed by ``where`` (of the block's axes), and use it."""
        scope, state, old = self.scope, self.state, self.buffer
        mapped = {var for index in where for var in free_vars(index)}
        axes = [item for item in self.realize.block.iter_vars if item.var in mapped | self.used]
        shape = self._shape(axes, where, mapped)
        if self.is_read:
            self._check_init(mapped)
            self._check_in_bounds(axes)
        tag = suffix or storage_scope.replace(".", "_")
        copied = old.with_fresh_data(
            name=fresh_name(f"{old.name}_{tag}", buffer_names(state, scope.func_name)),
            shape=shape,
            strides=(),
            elem_offset=None,
            axis_separators=(),
            scope=storage_scope if suffix is None else old.scope,
        )
        name = state.fresh_block_name(scope.func_name, copied.name)
        nest = self._copy_nest(axes, copied, where, name)
        anchor = self._anchor()
        block = self.realize.block
        if self.number is not None and len(accesses(state, self.realize, old)) > 1:
            changed = _partly_exchanged(block, old, self.indices, copied, where)
        else:
            changed = _exchanged(block, old, copied, where)
        renamed = {self.realize: self.realize.replace(block=changed)}
        before, after = (nest, NO_OP) if self.is_read else (NO_OP, nest)
        insert(scope, anchor, before, after, renamed, [copied])
        return BlockRV(scope.func_name, name)

    def _check_init(self, mapped: set[Var]) -> None:
        block = self.realize.block
        reduced = {item.var for item in block.iter_vars if item.kind == REDUCE}
        if block.init is None or not reduced & mapped:
            return
        if any(type(x) is BufferLoad and x.buffer is self.buffer for x in pre_order(block.init)):
            raise self.state.error(
                f"the init of block {block.name!r} reads {self.buffer.name}, and reduction axes, "
                "which the map uses, have no value there",
                self.realize,
                remedy="use spatial axes only, or decompose_reduction first",
            )

    def _anchor(self) -> Stmt | None:
        scope, realize, old = self.scope, self.realize, self.buffer
        around = [w for load in self.looked_up for w in scope.writers(load.buffer)]
        around = [item for item in around if item is not realize]
        if self.is_read:
            anchor = anchor_of(scope, [*scope.writers(old), *around], [realize], before=True)
        else:
            others = [*(item for item in scope.readers(old) if item is not realize), *around]
            anchor = anchor_of(scope, [realize], others, before=False)
        if outer_loops(scope, anchor):
            raise self.state.error(
                f"{old.name} is written and read inside one loop nest: all of it would be copied "
                "in each iteration",
                realize,
                remedy="reindex before compute_at",
            )
        return anchor

    def _shape(
        self, axes: Sequence[IterVar], where: Sequence[Expr], mapped: set[Var]
    ) -> tuple[Expr, ...]:
        """Check that ``where`` is injective on accessed elements; return the extents it reaches."""
        state, realize, name = self.state, self.realize, self.realize.block.name
        for axis in axes:
            if as_int(axis.dom.min) != 0:
                raise state.error(
                    f"axis {axis.var.name} of block {name!r} doesn't start at zero", realize
                )
            trivial = as_int(axis.dom.extent) == 1
            if axis.var not in mapped and not trivial:
                raise state.error(
                    f"the map doesn't use axis {axis.var.name} of block {name!r}, which the access "
                    f"to {self.buffer.name} does",
                    realize,
                )
            if not self.is_read and axis.var not in self.used and not trivial:
                raise state.error(
                    f"the map uses axis {axis.var.name} of block {name!r}, which the access to "
                    f"{self.buffer.name} doesn't: one element would have several places",
                    realize,
                )
            if not self.is_read and axis.kind == REDUCE:
                raise state.error(
                    f"axis {axis.var.name} of block {name!r} is reduced over: it can't choose a "
                    "place for the result",
                    realize,
                    remedy="use spatial axes only",
                )
        regions = Regions(state, self.scope.func_name, ())
        regions.add_block_axes(self.scope.block)
        domain = {axis.var: axis.dom for axis in axes}
        inner = regions.inner_vars(domain)
        if not regions.is_injective([regions.poly(index) for index in where], inner) and not (
            is_injective_binding(
                tuple(where), domain, analyzer=lambda: state.analyzer(self.scope.func_name)
            )
        ):
            raise state.error(
                f"the map {', '.join(map(repr, where))} may give one place to several elements",
                realize,
                remedy="split, fuse and permute the axes only",
            )
        shape = []
        for index in where:
            span = regions.relax_expr(index, const(1), {}, inner)
            if span is None or not regions.surely_at_least(span.min, {}):
                raise state.error(
                    f"`{index!r}` of the map may be negative, or has no known bound", realize
                )
            shape.append(regions.expr(poly_add(span.min, span.extent)))
        return tuple(shape)

    def _check_in_bounds(self, axes: Sequence[IterVar]) -> None:
        """Refuse if only some condition keeps the block's reads inside the buffer."""
        regions = Regions(self.state, self.scope.func_name, ())
        regions.add_block_axes(self.scope.block)
        inner = regions.inner_vars({item.var: item.dom for item in axes})
        known = self.state.analyzer(self.scope.func_name)
        for item in axes:  # where something is copied, there is an element along each of them
            known.bind(item.var, item.dom)
        places = [BufferLoad(self.buffer, self.indices), *self.looked_up]
        for buffer, index, size in (
            (load.buffer, *item) for load in places for item in zip(load.indices, load.buffer.shape)
        ):
            span = regions.relax_expr(index, const(1), {}, inner)
            # Of a dimension without elements none may be copied, whatever `v % size` promises.
            if known.can_prove(size >= 1):
                if span is not None:
                    end = poly_add(span.min, span.extent)
                    if regions.surely_at_least(span.min, {}) and regions.surely_at_least(
                        regions.poly(size), end
                    ):
                        continue
                if known.can_prove(index >= 0) and known.can_prove(index < size):
                    continue
            raise self.state.error(
                f"`{index!r}` may be outside of {buffer.name}: block "
                f"{self.realize.block.name!r} reads it under a condition, which a copy of all of "
                "it would not heed",
                self.realize,
                remedy="cache_read copies what is inside the buffer only",
            )

    def _copy_nest(
        self, axes: Sequence[IterVar], copied: Buffer, where: Sequence[Expr], name: str
    ) -> Stmt:
        """Build the block that copies, with one loop for each axis."""
        fresh = {axis.var: Var(f"v{number}") for number, axis in enumerate(axes)}
        here = tuple(substitute(index, fresh) for index in self.indices)
        there = tuple(substitute(index, fresh) for index in where)
        source, target = ((self.buffer, here), (copied, there))
        if not self.is_read:
            source, target = target, source
        block = Block(
            tuple(IterVar(axis.dom, fresh[axis.var], SPATIAL) for axis in axes),
            (),
            (),
            name,
            BufferStore(target[0], BufferLoad(*source), target[1]),
        )
        reads, writes = block_access_regions(block)
        block = block.replace(reads=reads, writes=writes)
        loops = tuple(Var(f"ax{number}") for number in range(len(axes)))
        nest: Stmt = BlockRealize(loops, and_(), block)
        for var, axis in zip(reversed(loops), reversed(axes)):
            nest = For(var, const(0), axis.dom.extent, SERIAL, nest)
        return nest


def _exchanged(block: Block, old: Buffer, new: Buffer, where: Indices) -> Block:
    """Replace every access to one buffer by an access to another at fixed indices."""

    def go(node: Any) -> Any:
        kind = type(node)
        if getattr(node, "buffer", None) is old:
            if kind is BufferLoad:
                return BufferLoad(new, where)
            if kind is BufferStore:
                return BufferStore(new, go(node.value), where)
            if kind is BufferRegion:
                return element(new, where)
        return node.map_children(go)

    made: Block = go(block)
    return made


def _partly_exchanged(
    block: Block, old: Buffer, indices: Indices, new: Buffer, where: Indices
) -> Block:
    """Replace what is read at some indices of a buffer, which is read at others as well."""

    def go(node: Any) -> Any:
        kind = type(node)
        if (
            kind is BufferLoad
            and node.buffer is old
            and all(map(expr_equal, node.indices, indices))
        ):
            return BufferLoad(new, where)
        made = node.map_children(go)
        if kind is Block and made is not node:
            return _with_region(made, old, element(new, where))
        return made

    made: Block = go(block)
    return made


def _with_region(block: Block, old: Buffer, added: BufferRegion) -> Block:
    """Declare a read, and of the old buffer only what is still read of it."""
    inferred, _ = block_access_regions(block)
    left = block.reads if block.annotations.get(TRUSTED_REGIONS) else inferred
    of_old = [region for region in left if region.buffer is old]
    reads: list[BufferRegion] = []
    for region in block.reads:
        reads += [added, *of_old] if region.buffer is old else [region]
    return block.replace(reads=tuple(reads))


__all__ = ["reindex", "reindex_cache_read", "reindex_cache_write"]
