"""Caches: a copy of a buffer in another memory, filled before reading or emptied after writing.

``cache_read`` puts a block that copies ``A`` into ``A_<scope>`` ahead of the consumers, which then
read the copy. ``cache_write`` lets a block write ``C_<scope>`` and puts a block that copies it into
``C`` behind. ``reindex`` does the same, and lays the copy out by the axes of the block. The copying
block goes to the innermost place that lies between all writers and all readers; it copies the
region that is accessed, not more. Moving it further in is the business of ``compute_at`` and
``reverse_compute_at``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.polynomial import poly_add
from tilewright.ir import (
    Expr,
    Range,
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
    SeqStmt,
    Stmt,
    fresh_name,
    seq,
)
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._regions import ONE, Regions, Span
from tilewright.tir.schedule.primitives._scope import (
    Scope,
    buffer_names,
    check_only_writer,
    check_predicate_is_domain,
    regions_buffers,
    scope_of,
)
from tilewright.tir.schedule.primitives.annotate import change_buffers
from tilewright.tir.schedule.state import ScheduleState


@primitive
def cache_read(
    sch: Any,
    block: BlockRV,
    read_buffer_index: int,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV] = (),
) -> BlockRV:
    """Copy a buffer that ``block`` reads into ``storage_scope`` before it is read.

    All consumers in the scope read the copy, or only ``consumer_blocks`` if given. Returns the
    block that copies.

    Before:
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A[vi] * T.float32(2)
    After (``cache_read(B, 0, "local")``):
        for ax0 in T.serial(128):
            with T.block("A_local"):
                v0 = T.axis.spatial(128, ax0)
                A_local[v0] = A[v0]
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A_local[vi] * T.float32(2)

    Raises ``ScheduleError`` if a consumer writes the buffer too, or if there is no place between
    those that write the buffer and those that read it.
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = _buffer_at(state, realize, realize.block.reads, read_buffer_index, "reads")
    consumers = _consumers(sch, scope, realize, buffer, consumer_blocks)
    for consumer in consumers:
        if buffer in regions_buffers(consumer.block.writes):
            raise state.error(
                f"block {consumer.block.name!r} writes {buffer.name} as well as reading it",
                consumer,
            )
    writers = scope.writers(buffer)
    anchor = _anchor(scope, writers, consumers, before=True)
    regions, spans = _accessed(scope, anchor, consumers, buffer, reads=True)
    cached, name = _cache_buffer(scope, buffer, storage_scope)
    copy = _copy_nest(regions, spans, buffer, cached, buffer.shape, name)
    renamed = {item: change_buffers(item, {buffer: cached}) for item in consumers}
    _insert(scope, anchor, copy, renamed, cached, before=True)
    return BlockRV(scope.func_name, name)


@primitive
def cache_write(
    sch: Any,
    block: BlockRV,
    write_buffer_index: int,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV] = (),
) -> BlockRV:
    """Let ``block`` write into ``storage_scope`` and copy from there afterwards.

    ``consumer_blocks`` read the new buffer instead of the old. Returns the block that copies.

    Before:
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A[vi] * T.float32(2)
    After (``cache_write(B, 0, "local")``):
        for i in T.serial(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B_local[vi] = A[vi] * T.float32(2)
        for ax0 in T.serial(128):
            with T.block("B_local"):
                v0 = T.axis.spatial(128, ax0)
                B[v0] = B_local[v0]

    Raises ``ScheduleError`` if another block writes the buffer too, or the block updates what was
    there before.
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    buffer = _buffer_at(state, realize, realize.block.writes, write_buffer_index, "writes")
    check_only_writer(scope, realize, buffer)
    check_predicate_is_domain(scope, realize)
    if buffer in regions_buffers(realize.block.reads):
        raise state.error(
            f"block {realize.block.name!r} updates {buffer.name}: a cache would not hold the old "
            "values",
            realize,
            remedy="apply cache_write before decompose_reduction",
        )
    redirected = _consumers(sch, scope, realize, buffer, consumer_blocks) if consumer_blocks else []
    others = [item for item in scope.readers(buffer) if item is not realize]
    anchor = _anchor(scope, [realize], others, before=False)
    regions, spans = _accessed(scope, anchor, [realize], buffer, reads=False)
    if scope.is_visible_outside(buffer):
        for span, size in zip(spans, buffer.shape):
            if span is not None and not span.exact and not _is_all(regions, span, size):
                raise state.error(
                    f"block {realize.block.name!r} writes only some elements of {buffer.name}, "
                    "with holes between them: copying would overwrite the others",
                    realize,
                )
    cached, name = _cache_buffer(scope, buffer, storage_scope)
    copy = _copy_nest(regions, spans, cached, buffer, buffer.shape, name)
    renamed = {item: change_buffers(item, {buffer: cached}) for item in (realize, *redirected)}
    _insert(scope, anchor, copy, renamed, cached, before=False)
    return BlockRV(scope.func_name, name)


@primitive
def reindex(sch: Any, block: BlockRV, buffer: Any) -> BlockRV:
    """Lay a copy of an accessed buffer out by the axes of ``block`` that its access uses.

    ``buffer`` is ``("read", 0)``, ``("write", 0)`` … or the buffer's name. Returns the block that
    copies.

    Before:
        for i, j in T.grid(128, 64):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi] * T.float32(2)
    After (``reindex(B, ("read", 0))``):
        for ax0, ax1 in T.grid(128, 64):
            with T.block("A_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_reindex[v0, v1] = A[v1, v0]
        for i, j in T.grid(128, 64):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A_reindex[vi, vj] * T.float32(2)

    Raises ``ScheduleError`` if the block accesses the buffer by different indices, or if two
    instances would write one element of the copy.
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    is_read, position = resolve_buffer(state, realize, buffer)
    sch.note(buffer=["read" if is_read else "write", position])
    regions_of = realize.block.reads if is_read else realize.block.writes
    old = regions_of[position].buffer
    check_predicate_is_domain(scope, realize)
    if is_read:
        if old in regions_buffers(realize.block.writes):
            raise state.error(f"block {realize.block.name!r} also writes {old.name}", realize)
    else:
        check_only_writer(scope, realize, old)
        if old in regions_buffers(realize.block.reads):
            raise state.error(f"block {realize.block.name!r} updates {old.name}", realize)
    indices = _single_access(state, realize, old)
    domain = {iter_var.var: iter_var for iter_var in realize.block.iter_vars}
    used: dict[Var, None] = {}
    for index in indices:
        used.update((var, None) for var in free_vars(index) if var in domain)
    axes = [domain[iter_var.var] for iter_var in realize.block.iter_vars if iter_var.var in used]
    for axis in axes:
        if as_int(axis.dom.min) != 0:
            raise state.error(
                f"axis {axis.var.name} of block {realize.block.name!r} doesn't start at zero",
                realize,
            )
    if is_read:
        _check_in_bounds(scope, realize, old, indices)
    names = buffer_names(state, scope.func_name)
    copied = old.with_fresh_data(
        name=fresh_name(f"{old.name}_reindex", names),
        shape=tuple(axis.dom.extent for axis in axes),
        strides=(),
        elem_offset=None,
        axis_separators=(),
    )
    where: tuple[Expr, ...] = tuple(axis.var for axis in axes)
    changed = _Reindexer(old, copied, where).visit(realize.block)
    block_name = state.fresh_block_name(scope.func_name, copied.name)
    fresh = {axis.var: Var(f"v{number}") for number, axis in enumerate(axes)}
    iter_vars = tuple(IterVar(fresh[axis.var], axis.dom, SPATIAL) for axis in axes)
    here = tuple(substitute(index, fresh) for index in indices)
    there = tuple(fresh[axis.var] for axis in axes)
    source, target = ((old, here), (copied, there)) if is_read else ((copied, there), (old, here))
    copy_block = Block(
        iter_vars,
        (_element(*source),),
        (_element(*target),),
        block_name,
        BufferStore(target[0], BufferLoad(source[0], source[1]), target[1]),
    )
    loops = [Var(f"ax{number}") for number in range(len(axes))]
    nest: Stmt = BlockRealize(tuple(loops), and_(), copy_block)
    for var, axis in zip(reversed(loops), reversed(axes)):
        nest = For(var, const(0), axis.dom.extent, SERIAL, nest)
    if is_read:
        anchor = _anchor(scope, scope.writers(old), [realize], before=True)
    else:
        others = [item for item in scope.readers(old) if item is not realize]
        anchor = _anchor(scope, [realize], others, before=False)
    if _outer_loops(scope, anchor):
        raise state.error(
            f"{old.name} is written and read inside one loop nest: reindex would copy all of it "
            "in each iteration",
            realize,
            remedy="reindex before compute_at",
        )
    renamed = {realize: realize.replace(block=changed)}
    _insert(scope, anchor, nest, renamed, copied, before=is_read)
    return BlockRV(scope.func_name, block_name)


def _check_in_bounds(
    scope: Scope, realize: BlockRealize, buffer: Buffer, indices: Sequence[Expr]
) -> None:
    """Refuse if the block reads outside of the buffer under some condition only."""
    regions = Regions(scope.state, scope.func_name, ())
    regions.add_block_axes(scope.block)
    inner = regions.inner_vars({item.var: item.dom for item in realize.block.iter_vars})
    for index, size in zip(indices, buffer.shape):
        span = regions.relax_expr(index, const(1), {}, inner)
        if span is not None:
            end = poly_add(span.min, span.extent)
            inside = regions.surely_at_least(span.min, {}) and regions.surely_at_least(
                regions.poly(size), end
            )
            if inside:
                continue
        raise scope.state.error(
            f"`{index!r}` may be outside of {buffer.name}: block {realize.block.name!r} reads it "
            "under a condition, which a copy of all of it would not heed",
            realize,
            remedy="cache_read copies what is inside the buffer only",
        )


# ---- which buffer, which blocks -----------------------------------------------------------------


def resolve_buffer(state: ScheduleState, realize: BlockRealize, buffer: Any) -> tuple[bool, int]:
    """Resolve ``("read", 0)``, ``("write", 1)`` or a buffer's name; returns (is_read, position)."""
    block = realize.block
    if isinstance(buffer, str):
        for is_read, regions in ((False, block.writes), (True, block.reads)):
            for position, region in enumerate(regions):
                if region.buffer.name == buffer:
                    return is_read, position
        raise state.error(f"block {block.name!r} doesn't access a buffer {buffer!r}", realize)
    if isinstance(buffer, Buffer):
        return resolve_buffer(state, realize, buffer.name)
    if not (
        isinstance(buffer, (tuple, list)) and len(buffer) == 2 and buffer[0] in ("read", "write")
    ):
        raise state.error(
            f'expected ("read", index), ("write", index) or a buffer\'s name, got {buffer!r}'
        )
    is_read = buffer[0] == "read"
    regions = block.reads if is_read else block.writes
    _buffer_at(state, realize, regions, buffer[1], "reads" if is_read else "writes")
    return is_read, int(buffer[1])


def _buffer_at(
    state: ScheduleState,
    realize: BlockRealize,
    regions: Sequence[BufferRegion],
    index: int,
    what: str,
) -> Buffer:
    if not 0 <= index < len(regions):
        names = ", ".join(f"{n}: {region.buffer.name}" for n, region in enumerate(regions))
        raise state.error(
            f"block {realize.block.name!r} {what} {len(regions)} buffers ({names}), "
            f"there is no buffer {index}",
            realize,
        )
    return regions[index].buffer


def _consumers(
    sch: Any, scope: Scope, realize: BlockRealize, buffer: Buffer, chosen: Sequence[BlockRV]
) -> list[BlockRealize]:
    readers = scope.readers(buffer)
    if not chosen:
        return readers
    found = []
    for handle in chosen:
        consumer = sch.state.get_block(handle)
        if consumer not in readers:
            raise scope.state.error(
                f"block {consumer.block.name!r} in consumer_blocks doesn't read {buffer.name} in "
                f"the scope of block {realize.block.name!r}",
                consumer,
            )
        found.append(consumer)
    return sorted(found, key=scope.position.__getitem__)


def _single_access(state: ScheduleState, realize: BlockRealize, buffer: Buffer) -> tuple[Expr, ...]:
    """Return the indices by which the block accesses ``buffer``, the same everywhere."""
    found: tuple[Expr, ...] | None = None
    for root in (realize.block.body, realize.block.init):
        if root is None:
            continue
        for item in pre_order(root):
            if isinstance(item, (BufferLoad, BufferStore)) and item.buffer is buffer:
                if found is not None and not all(map(expr_equal, found, item.indices)):
                    raise state.error(
                        f"block {realize.block.name!r} accesses {buffer.name} by different indices",
                        realize,
                    )
                found = item.indices
    if found is None:
        raise state.error(
            f"block {realize.block.name!r} doesn't access {buffer.name} by its elements", realize
        )
    known = {*free_vars(realize.block), *(item.var for item in realize.block.iter_vars)}
    if any(var not in known for index in found for var in free_vars(index)):
        raise state.error(
            f"block {realize.block.name!r} accesses {buffer.name} by variables that are defined "
            "inside of it",
            realize,
            remedy="choose the block that has the access in its own body",
        )
    return found


# ---- where the copy goes ------------------------------------------------------------------------


def _anchor(
    scope: Scope, writers: Sequence[BlockRealize], readers: Sequence[BlockRealize], *, before: bool
) -> Any:
    """Return the statement next to which a copy goes: after the writers, ahead of the readers.

    It goes ahead of the returned statement if ``before`` (then that holds the first reader), else
    behind it (then it holds the last writer).
    """
    state = scope.state
    parents = state.index(scope.func_name).parents
    around = readers if before else writers
    other = writers if before else readers

    def path(item: Any) -> list[Any]:
        found = [item]
        while parents[found[-1]] is not scope.block:
            found.append(parents[found[-1]])
        return found[::-1]

    paths = [path(item) for item in around]
    others = [path(item) for item in other]
    # Where no block on the other side shares a statement, the outermost place will do.
    depth = 0
    if others:
        everything = paths + others
        shortest = min(map(len, everything))
        while depth < shortest and all(p[depth] is everything[0][depth] for p in everything):
            depth += 1
        depth = max(depth - 1, 0)
        holder = everything[0][depth]
        if depth < shortest - 1 and type(holder) is SeqStmt:
            order = {stmt: number for number, stmt in enumerate(holder.stmts)}
            mine = [order[p[depth + 1]] for p in paths]
            theirs = [order[p[depth + 1]] for p in others]
            if before and max(theirs) < min(mine):
                return holder.stmts[min(mine)]
            if not before and max(mine) < min(theirs):
                return holder.stmts[max(mine)]
        raise state.error(
            "there is no place between the blocks that write the buffer and those that read it",
            *around[:1],
            *other[:1],
        )
    body = scope.block.body
    if type(body) is SeqStmt:
        order = {stmt: number for number, stmt in enumerate(body.stmts)}
        numbers = [order[p[1]] for p in paths]
        return body.stmts[min(numbers) if before else max(numbers)]
    return body


def _outer_loops(scope: Scope, anchor: Any) -> list[For]:
    parents = scope.state.index(scope.func_name).parents
    found = []
    current = parents[anchor]
    while current is not scope.block:
        if type(current) is For:
            found.append(current)
        current = parents[current]
    return found[::-1]


def _insert(
    scope: Scope,
    anchor: Any,
    copy: Stmt,
    renamed: dict[BlockRealize, BlockRealize],
    cached: Buffer,
    *,
    before: bool,
) -> None:
    """Put ``copy`` next to ``anchor``, exchange blocks, allocate the buffer: the one edit."""
    state = scope.state
    parents = state.index(scope.func_name).parents

    def is_inside(item: Any) -> bool:
        while item is not None and item is not anchor:
            item = parents[item]
        return item is anchor

    inside = {old: new for old, new in renamed.items() if is_inside(old)}
    mapping: dict[Any, Any] = {old: new for old, new in renamed.items() if old not in inside}
    changed = state.rebuilt(anchor, inside)
    mapping[anchor] = seq(copy, changed) if before else seq(changed, copy)
    body = state.rebuilt(scope.block.body, mapping)
    made = scope.block.replace(body=body, alloc_buffers=(*scope.block.alloc_buffers, cached))
    state.replace(scope.block, made)


# ---- what is copied -----------------------------------------------------------------------------


def _accessed(
    scope: Scope, anchor: Any, blocks: Sequence[BlockRealize], buffer: Buffer, *, reads: bool
) -> tuple[Regions, list[Span | None]]:
    """Return the box of ``buffer`` that ``blocks`` access in one execution of ``anchor``."""
    outer = _outer_loops(scope, anchor)
    regions = Regions(scope.state, scope.func_name, outer)
    regions.add_block_axes(scope.block)
    found: list[Span | None] | None = None
    for realize in blocks:
        if outer or scope.block.iter_vars:
            mine = set(outer)
            inner = regions.inner_loops(
                loop for loop in scope.state.loops_above(realize) if loop not in mine
            )
            env = regions.axis_values(realize)
        else:
            # Outside of all loops and blocks a block runs its whole domain.
            env = {}
            inner = regions.inner_vars(
                {iter_var.var: iter_var.dom for iter_var in realize.block.iter_vars}
            )
        for region in realize.block.reads if reads else realize.block.writes:
            if region.buffer is buffer:
                found = regions.unite(found, regions.touched(region, env, inner))
    assert found is not None
    return regions, found


def _is_all(regions: Regions, span: Span, size: Expr) -> bool:
    return not span.min and regions.same(span.extent, regions.poly(size))


def _cache_buffer(scope: Scope, buffer: Buffer, storage_scope: str) -> tuple[Buffer, str]:
    suffix = storage_scope.replace(".", "_")
    name = fresh_name(f"{buffer.name}_{suffix}", buffer_names(scope.state, scope.func_name))
    cached = buffer.with_fresh_data(name=name, scope=storage_scope, strides=(), elem_offset=None)
    return cached, scope.state.fresh_block_name(scope.func_name, name)


def _copy_nest(
    regions: Regions,
    spans: Sequence[Span | None],
    source: Buffer,
    target: Buffer,
    shape: Sequence[Expr],
    name: str,
) -> Stmt:
    """Build loops around a block that copies a box element by element."""
    iter_vars: list[IterVar] = []
    values: list[Expr] = []
    loops: list[tuple[Var, Expr]] = []
    conditions: list[Expr] = []
    for axis, (span, size) in enumerate(zip(spans, shape)):
        dom = Range(const(0), size)
        start, extent, ends = regions.place(span, dom)
        var = Var(f"ax{axis}")
        if extent == ONE and as_int(size) != 1:
            value = regions.expr(start)
        else:
            loops.append((var, regions.expr(extent)))
            value = regions.expr(poly_add(start, {(regions.table.var(var),): 1}))
        for is_end, limit in ends:
            bound = regions.expr(limit)
            conditions.append(value < bound if is_end else value >= bound)
        iter_vars.append(IterVar(Var(f"v{axis}"), dom, SPATIAL))
        values.append(value)
    where = tuple(iter_var.var for iter_var in iter_vars)
    block = Block(
        tuple(iter_vars),
        (_element(source, where),),
        (_element(target, where),),
        name,
        BufferStore(target, BufferLoad(source, where), where),
    )
    nest: Stmt = BlockRealize(tuple(values), and_(*conditions), block)
    for var, extent_expr in reversed(loops):
        nest = For(var, const(0), extent_expr, SERIAL, nest)
    return nest


def _element(buffer: Buffer, where: Sequence[Expr]) -> BufferRegion:
    return BufferRegion(buffer, tuple(Range(index, const(1)) for index in where))


class _Reindexer:
    """Replaces every access to one buffer by an access to another at fixed indices."""

    def __init__(self, old: Buffer, new: Buffer, where: tuple[Expr, ...]) -> None:
        self.old = old
        self.new = new
        self.where = where

    def visit(self, block: Block) -> Block:
        """Rewrite a block with its signature."""
        made: Block = self._go(block)
        return made

    def _go(self, node: Any) -> Any:
        kind = type(node)
        if getattr(node, "buffer", None) is self.old:
            if kind is BufferLoad:
                return BufferLoad(self.new, self.where)
            if kind is BufferStore:
                return BufferStore(self.new, self._go(node.value), self.where)
            if kind is BufferRegion:
                return _element(self.new, self.where)
        return node.map_children(self._go)
