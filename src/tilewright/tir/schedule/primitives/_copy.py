"""Blocks that copy a buffer into another memory: where they are inserted, and what they copy.

Used by the primitives that put a copy between the writers and the readers of a buffer
(``cache_read``, ``cache_write``, ``cache_inplace``, ``reindex``, ``read_at`` …).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith.polynomial import Poly, constant_of, poly_add, poly_sub
from tilewright.ir import (
    Call,
    Expr,
    Range,
    Var,
    and_,
    as_int,
    const,
    expr_equal,
    free_vars,
    maximum,
    minimum,
    pre_order,
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
    MatchBufferRegion,
    SeqStmt,
    Stmt,
    fresh_name,
    seq,
)
from tilewright.tir.schedule.arguments import CONVERTERS
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.primitives._destination import fit_span, shares
from tilewright.tir.schedule.primitives._domain import is_whole
from tilewright.tir.schedule.primitives._index_arithmetic import ONE
from tilewright.tir.schedule.primitives._linear import Span
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import Scope, buffer_names
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.vocabulary import BufferIndex

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def _buffer_index(value: object) -> Any:
    if isinstance(value, Buffer):
        return value.name
    return CONVERTERS["int | str"](value)


CONVERTERS["BufferIndex"] = _buffer_index

Indices = tuple[Expr, ...]

# ---- which buffer, which blocks -----------------------------------------------------------------


def resolve_buffer(state: ScheduleState, realize: BlockRealize, buffer: object) -> tuple[bool, int]:
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
    return is_read, _position(state, realize, buffer[1], is_read)


def buffer_at(sch: Schedule, realize: BlockRealize, index: BufferIndex, *, reads: bool) -> Buffer:
    """Return a buffer that a block reads (or writes), by position or name; record the position."""
    position = _position(sch.state, realize, index, reads)
    if reads:
        sch.note(read_buffer_index=position)
        return realize.block.reads[position].buffer
    sch.note(write_buffer_index=position)
    return realize.block.writes[position].buffer


def _position(state: ScheduleState, realize: BlockRealize, index: object, is_read: bool) -> int:
    regions = realize.block.reads if is_read else realize.block.writes
    if isinstance(index, str):
        for position, region in enumerate(regions):
            if region.buffer.name == index:
                return position
    elif isinstance(index, bool) or not hasattr(index, "__index__"):
        raise state.error(f"a buffer is given by its name or position, got {index!r}", realize)
    elif 0 <= index.__index__() < len(regions):
        return int(index.__index__())
    names = ", ".join(f"{n}: {region.buffer.name}" for n, region in enumerate(regions))
    raise state.error(
        f"block {realize.block.name!r} {'reads' if is_read else 'writes'} {len(regions)} buffers "
        f"({names}), there is no buffer {index}",
        realize,
    )


def consumers_of(
    scope: Scope, realize: BlockRealize, buffer: Buffer, chosen: Sequence[BlockRV]
) -> list[BlockRealize]:
    """Return the readers of a buffer in the scope, or those of ``chosen``."""
    readers = scope.readers(buffer)
    if not chosen:
        return readers
    found = []
    for handle in chosen:
        consumer = scope.state.get_block(handle)
        if consumer not in readers:
            raise scope.state.error(
                f"block {consumer.block.name!r} in consumer_blocks doesn't read {buffer.name} in "
                f"the scope of block {realize.block.name!r}",
                consumer,
            )
        found.append(consumer)
    return sorted(dict.fromkeys(found), key=scope.position.__getitem__)


def accesses(state: ScheduleState, realize: BlockRealize, buffer: Buffer) -> list[Indices]:
    """Return the indices by which the block accesses ``buffer``, different ones in text order."""
    found: list[Indices] = []
    for root in (realize.block.body, realize.block.init, *realize.block.match_buffers):
        if root is None:
            continue
        for item in pre_order(root):
            if type(item) is MatchBufferRegion and item.source.buffer is buffer:
                raise state.error(
                    f"block {realize.block.name!r} accesses {buffer.name} through a view of a part "
                    f"of it, {item.buffer.name}",
                    realize,
                )
            if isinstance(item, (BufferLoad, BufferStore)) and item.buffer is buffer:
                if not any(all(map(expr_equal, own, item.indices)) for own in found):
                    found.append(item.indices)
            elif (
                type(item) is Call
                and item.op.name in ("address_of", "access_ptr", "tile_of")
                and any(getattr(part, "buffer", None) is buffer for part in item.args)
            ):
                raise state.error(
                    f"block {realize.block.name!r} uses {buffer.name} through its pointer", realize
                )
    if not found:
        raise state.error(
            f"block {realize.block.name!r} doesn't access {buffer.name} by its elements", realize
        )
    return found


def one_access(
    state: ScheduleState, realize: BlockRealize, buffer: Buffer, number: int | None = None
) -> Indices:
    """Return the indices of one of the block's accesses to ``buffer``; of the only one, if none."""
    found = accesses(state, realize, buffer)
    if number is None and len(found) > 1:
        raise state.error(
            f"block {realize.block.name!r} accesses {buffer.name} by different indices", realize
        )
    if number is not None and not 0 <= number < len(found):
        raise state.error(
            f"block {realize.block.name!r} accesses {buffer.name} by {len(found)} different "
            f"indices, there is no access {number}",
            realize,
        )
    chosen = found[number or 0]
    known = {*free_vars(realize.block), *(item.var for item in realize.block.iter_vars)}
    if any(var not in known for index in chosen for var in free_vars(index)):
        raise state.error(
            f"block {realize.block.name!r} accesses {buffer.name} by variables that are defined "
            "inside of it",
            realize,
            remedy="choose the block that has the access in its own body",
        )
    return chosen


# ---- where the copy goes ------------------------------------------------------------------------


def anchor_of(
    scope: Scope, writers: Sequence[BlockRealize], readers: Sequence[BlockRealize], *, before: bool
) -> Stmt | None:
    """Return the statement next to which a copy goes: after the writers, ahead of the readers.

    It goes ahead of the returned statement if ``before`` (then that holds the first reader), else
    behind it (then it holds the last writer).
    """
    state = scope.state
    parents = state.index(scope.func_name).parents
    around = readers if before else writers
    other = writers if before else readers

    def path(item: BlockRealize) -> list[Any]:
        found = [item]
        while parents[found[-1]] is not scope.block:
            found.append(parents[found[-1]])
        if found[-1] is not scope.block.body:
            raise state.error(
                f"block {item.block.name!r} is in the init of block {scope.block.name!r}, where no "
                "copies go",
                item,
                remedy="decompose_reduction first",
            )
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


def outer_loops(scope: Scope, anchor: object) -> list[For]:
    """Loops of the scope around a statement, the outermost first."""
    parents = scope.state.index(scope.func_name).parents
    found = []
    current = parents[anchor]
    while current is not scope.block:
        if type(current) is For:
            found.append(current)
        current = parents[current]
    return found[::-1]


def insert(
    scope: Scope,
    anchor: Any,
    before: Stmt,
    after: Stmt,
    renamed: Mapping[BlockRealize, BlockRealize],
    cached: Sequence[Buffer],
) -> None:
    """Put copies around ``anchor``, replace blocks, allocate the buffers: the single edit."""
    state = scope.state
    parents = state.index(scope.func_name).parents

    def is_inside(item: object) -> bool:
        while item is not None and item is not anchor:
            item = parents[item]
        return item is anchor

    inside = {old: new for old, new in renamed.items() if is_inside(old)}
    mapping: dict[Any, Any] = {old: new for old, new in renamed.items() if old not in inside}
    changed = state.rebuilt(anchor, inside)
    mapping[anchor] = seq(before, changed, after)
    body = state.rebuilt(scope.block.body, mapping)
    made = scope.block.replace(body=body, alloc_buffers=(*scope.block.alloc_buffers, *cached))
    state.replace(scope.block, made)


# ---- what is copied -----------------------------------------------------------------------------


class Box:
    """What blocks touch of one buffer in one execution of a statement under the loops ``outer``.

    For a copy in scope ``storage``: what all threads that share such memory touch.
    """

    def __init__(self, scope: Scope, outer: Sequence[For], storage: str = "global") -> None:
        self.scope = scope
        self.outer = outer
        self.fixed = {item for item in outer if not (item.thread and shares(storage, item.thread))}
        self.regions = Regions(scope.state, scope.func_name, outer)
        self.regions.add_block_axes(scope.block)
        self.spans: list[Span | None] | None = None
        # What the blocks touch in all executions together, if that is known to be less than what
        # their loops reach (a predicate keeps their axes inside the domain).
        self.limits: list[Span | None] | None = None

    def add(self, realize: BlockRealize, declared: Sequence[BufferRegion], buffer: Buffer) -> None:
        """Extend the box by the regions of ``buffer`` that a block declares."""
        regions, fixed = self.regions, self.scope.has_fixed_domain(realize)
        env, inner = self._reach(realize)
        whole = regions.inner_vars(axis_ranges(realize.block)) if env and fixed else inner
        for region in declared:
            if region.buffer is buffer:
                self.spans = regions.unite(self.spans, regions.touched(region, env, inner))
                if env and fixed:
                    touched = regions.touched(region, {}, whole)
                    self.limits = regions.unite(self.limits, touched)

    def _reach(self, realize: BlockRealize) -> tuple[dict[Var, Poly], dict[int, tuple[Poly, Poly]]]:
        """The values of a block's axes, and the loops to relax, as ``touched`` takes them."""
        regions = self.regions
        if (
            self.outer
            or self.scope.block.iter_vars
            or not self.scope.has_fixed_domain(realize)
            or not is_whole(self.scope, realize)
        ):
            inner = regions.inner_loops(
                loop for loop in self.scope.loops(realize) if loop not in self.fixed
            )
            return regions.axis_values(realize), inner
        # Its whole domain, whatever its loops look like.
        return {}, regions.inner_vars(axis_ranges(realize.block))

    def is_reached(self, realize: BlockRealize, region: BufferRegion) -> bool:
        """Whether one execution runs as many instances as the box of its region has elements.

        Even one-to-one indices, such as ``v // 2`` and ``v % 2``, may end within a row.
        """
        regions = self.regions
        env, inner = self._reach(realize)
        used = {var for item in region.region for var in free_vars(item.min)}
        axes = [var for var in axis_ranges(realize.block) if var in used]
        ran = [regions.relax_expr(var, const(1), env, inner) for var in axes]
        elements, instances = (
            [None if span is None else constant_of(span.extent) for span in spans]
            for spans in (regions.touched(region, env, inner), ran)
        )
        if None in elements or None in instances:
            return False
        return math.prod(x or 0 for x in elements) == math.prod(x or 0 for x in instances)

    def is_all_of(self, buffer: Buffer) -> bool:
        """Whether the blocks surely touch the whole buffer."""
        regions = self.regions
        return self.spans is not None and all(
            span is not None
            and span.exact
            and regions.same(span.min, {})
            and regions.same(span.extent, regions.poly(size))
            for span, size in zip(self.spans, buffer.shape)
        )

    def domains(self, shape: Sequence[Expr]) -> list[Range]:
        """The domains that a copy must stay inside, where it could write what others did not."""
        regions, found = self.regions, []
        for axis, size in enumerate(shape):
            span = self.limits[axis] if self.limits is not None else None
            start: Poly = {}
            end = regions.poly(size)
            if span is not None:
                # What is declared, or a box around it, may reach out of the buffer.
                last = poly_add(span.min, span.extent)
                if regions.surely_at_least(span.min, start):
                    start = span.min
                elif span.exact:
                    start = regions.poly(maximum(regions.expr(span.min), 0))
                if regions.surely_at_least(end, last):
                    end = last
                elif span.exact:
                    end = regions.poly(minimum(regions.expr(last), size))
            found.append(
                Range.from_min_extent(regions.expr(start), regions.expr(poly_sub(end, start)))
            )
        return found


def accessed(
    scope: Scope, anchor: object, blocks: Sequence[BlockRealize], buffer: Buffer, *, reads: bool
) -> Box:
    """Return the box of ``buffer`` that ``blocks`` access in one execution of ``anchor``."""
    box = Box(scope, outer_loops(scope, anchor))
    for realize in blocks:
        box.add(realize, realize.block.reads if reads else realize.block.writes, buffer)
    return box


def cache_buffer(scope: Scope, buffer: Buffer, storage_scope: str) -> tuple[Buffer, str]:
    """Make the buffer to copy into, and a name for the block that copies."""
    suffix = storage_scope.replace(".", "_")
    name = fresh_name(f"{buffer.name}_{suffix}", buffer_names(scope.state, scope.func_name))
    cached = buffer.with_fresh_data(name=name, scope=storage_scope, strides=(), elem_offset=None)
    return cached, scope.state.fresh_block_name(scope.func_name, name)


def copy_nest(
    box: Box,
    source: Buffer,
    target: Buffer,
    name: str,
    domains: Sequence[Range],
    *,
    strict: bool = False,
) -> Stmt:
    """Build loops around a block that copies a box, as far as it is in ``domains``.

    With ``strict`` nothing outside the box is copied. The axes are the dimensions of the buffer;
    one of which only a range is ever copied runs over that range.
    """
    regions = box.regions
    assert box.spans is not None
    iter_vars: list[IterVar] = []
    values: list[Expr] = []
    loops: list[tuple[Var, Expr]] = []
    conditions: list[Expr] = []
    where: list[Expr] = []
    for axis, (span, dom) in enumerate(zip(box.spans, domains)):
        start, extent, ends = fit_span(regions, span, dom, strict=strict)
        size, axis_var = source.shape[axis], Var(f"v{axis}")
        index: Expr = axis_var
        if (
            not ends
            and regions.is_outer_free(start)
            and not regions.same(extent, regions.poly(size))
        ):
            index = regions.expr(poly_add(start, {(regions.table.var(axis_var),): 1}))
            start, size = {}, regions.expr(extent)
        if extent == ONE and as_int(source.shape[axis]) != 1:
            value = regions.expr(start)
        else:
            var = Var(f"ax{axis}")
            loops.append((var, regions.expr(extent)))
            value = regions.expr(poly_add(start, {(regions.table.var(var),): 1}))
        for is_end, limit in ends:
            bound = regions.expr(limit)
            conditions.append(value < bound if is_end else value >= bound)
        iter_vars.append(IterVar(Range.from_min_extent(const(0), size), axis_var, SPATIAL))
        values.append(value)
        where.append(index)
    store = BufferStore(target, BufferLoad(source, tuple(where)), tuple(where))
    block = Block(
        tuple(iter_vars), (element(source, where),), (element(target, where),), name, store
    )
    nest: Stmt = BlockRealize(tuple(values), and_(*conditions), block)
    for var, extent_expr in reversed(loops):
        nest = For(var, const(0), extent_expr, SERIAL, nest)
    return nest


def element(buffer: Buffer, where: Sequence[Expr]) -> BufferRegion:
    """The region of one element."""
    return BufferRegion(buffer, tuple(Range.from_min_extent(index, const(1)) for index in where))


def axis_ranges(block: Block) -> dict[Var, Range]:
    """The ranges of a block's axes."""
    return {iter_var.var: iter_var.dom for iter_var in block.iter_vars}
