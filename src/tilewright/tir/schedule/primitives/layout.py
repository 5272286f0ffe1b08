"""Layouts: storing a buffer, or iterating a block, in another order of indices.

``transform_layout`` replaces a buffer by one whose indices are mapped by an ``IndexMap``: every
load and store in the buffer's scope is rewritten. If the map must pad, the padding is reached by no
access, because all go through the map; it is filled only if a value is asked for.
``transform_block_layout`` maps the axes of a block instead, which gets new loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    FALSE,
    Expr,
    FloatImm,
    IntImm,
    Mutator,
    Range,
    Var,
    as_expr,
    as_int,
    cast,
    const,
    expr_equal,
    free_vars,
    substitute,
)
from tilewright.support.errors import ScheduleError
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
    PrimFunc,
    Stmt,
    seq,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.index_map import IndexMap, as_index_map
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._scope import scope_of
from tilewright.tir.schedule.primitives.cache import resolve_buffer
from tilewright.tir.schedule.state import ScheduleState

LAYOUT_FREE = "layout_free_buffers"


@primitive
def transform_layout(
    sch: Any,
    block: BlockRV,
    buffer: Any,
    index_map: Any,
    pad_value: Any = None,
    assume_injective_transform: bool = False,
) -> None:
    """Store a buffer in another layout; all its accesses follow.

    ``buffer`` is ``("read", 0)``, ``("write", 0)`` … of ``block``, or the buffer's name.
    ``index_map`` is a function of the indices, an ``IndexMap``, or a lambda's text. Where the map
    adds elements (16 rows for 10), ``pad_value`` fills them after the buffer has been written.

    Before:
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    After (``transform_layout(B, ("write", 0), lambda i, j: (i // 16, j, i % 16))``):
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi // 16, vj, vi % 16] = A[vi, vj] * T.float32(2)

    Raises ``ScheduleError`` if the map is not injective (unless ``assume_injective_transform``), if
    the buffer is used through its pointer, or if it is a parameter: its layout belongs to the
    caller, unless the function's attribute ``layout_free_buffers`` lists its position.
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    is_read, position = resolve_buffer(state, realize, buffer)
    regions = realize.block.reads if is_read else realize.block.writes
    old = regions[position].buffer
    mapping = as_index_map(index_map, old.ndim)
    sch.note(buffer=["read" if is_read else "write", position], index_map=mapping.to_text())
    func_name = state.func_name_of(realize)
    owner = _owner(state, realize, old)
    func = state.func(func_name)
    if owner is None:
        _check_layout_free(state, realize, func, old)
    analyzer = state.analyzer(func_name)
    padding: Expr = FALSE
    inverse: IndexMap | None = None
    if not assume_injective_transform:
        try:
            inverse, padding = mapping.non_surjective_inverse(old.shape)
        except ScheduleError as error:
            raise state.error(
                error.message,
                realize,
                remedy="if the map is injective all the same, pass assume_injective_transform=True",
            ) from None
    shape = mapping.map_shape(old.shape, analyzer)
    new = old.with_fresh_data(shape=shape, strides=(), elem_offset=None, axis_separators=())
    around: Any = func.body if owner is None else owner
    body = _LayoutRewriter(state, realize, old, new, mapping, analyzer).visit(
        around.block.body if owner is None else owner.body
    )
    if pad_value is not None and padding is not FALSE:
        if owner is None:
            raise state.error(
                f"{old.name} is a parameter: its padding belongs to the caller", realize
            )
        body = seq(body, _pad_nest(state, func_name, new, padding, inverse, pad_value))
    if owner is None:
        buffer_map = {var: new if known is old else known for var, known in func.buffer_map.items()}
        root = func.body
        assert isinstance(root, BlockRealize)
        made = root.replace(block=root.block.replace(body=body))
        state.set_func(func_name, func.replace(buffer_map=buffer_map, body=made))
        return
    allocated = tuple(new if item is old else item for item in owner.alloc_buffers)
    state.replace(owner, owner.replace(body=body, alloc_buffers=allocated))


def _owner(state: ScheduleState, realize: BlockRealize, buffer: Buffer) -> Block | None:
    """Return the block that allocates ``buffer``; ``None`` for a parameter."""
    for item in state.parents(realize.block.body):
        if isinstance(item, Block):
            if buffer in item.alloc_buffers:
                return item
            if any(match.buffer is buffer for match in item.match_buffers):
                raise state.error(
                    f"{buffer.name} is a view of another buffer: its layout is not its own",
                    realize,
                )
    return None


def _check_layout_free(
    state: ScheduleState, realize: BlockRealize, func: PrimFunc, buffer: Buffer
) -> None:
    free = {int(getattr(item, "value", item)) for item in func.attrs.get(LAYOUT_FREE, ())}
    for position, var in enumerate(func.params):
        if func.buffer_map.get(var) is buffer and position in free:
            return
    raise state.error(
        f"{buffer.name} is a parameter of the function: callers rely on its layout",
        realize,
        remedy="cache_read or cache_write it and transform the copy, or list its position in the "
        f"function's attribute {LAYOUT_FREE!r}",
    )


class _LayoutRewriter(Mutator):
    """Maps the indices of every access to one buffer and corrects the signatures around."""

    def __init__(
        self,
        state: ScheduleState,
        realize: BlockRealize,
        old: Buffer,
        new: Buffer,
        index_map: IndexMap,
        analyzer: Analyzer,
    ) -> None:
        self.state = state
        self.realize = realize
        self.old = old
        self.new = new
        self.index_map = index_map
        self.analyzer = analyzer

    def mapped(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return self.index_map.map_indices(indices, self.analyzer)

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        made: BufferLoad = self.generic_visit(node) if node.buffer is not self.old else node
        if made.buffer is not self.old:
            return made
        indices = tuple(map(self.visit, node.indices))
        return BufferLoad(self.new, self.mapped(indices))

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        value = self.visit(node.value)
        indices = tuple(map(self.visit, node.indices))
        if node.buffer is self.old:
            return BufferStore(self.new, value, self.mapped(indices))
        if value is node.value and all(a is b for a, b in zip(indices, node.indices)):
            return node
        return BufferStore(node.buffer, value, indices)

    def visit_For(self, node: For) -> Stmt:
        self.analyzer.bind(node.loop_var, Range(node.min, node.extent), override=True)
        return self.generic_visit(node)  # type: ignore[no-any-return]

    def visit_Block(self, node: Block) -> Stmt:
        accesses = any(region.buffer is self.old for region in (*node.reads, *node.writes))
        for iter_var in node.iter_vars:
            self.analyzer.bind(iter_var.var, iter_var.dom, override=True)
        for match in node.match_buffers:
            self.visit(match)
        body = self.visit(node.body)
        init = None if node.init is None else self.visit(node.init)
        if body is node.body and init is node.init:
            if accesses:
                raise self.refuse(f"is used opaquely by block {node.name!r}")
            return node
        made = node.replace(body=body, init=init)
        if accesses:
            reads, writes = block_access_regions(made)
            made = made.replace(reads=tuple(reads), writes=tuple(writes))
        return made

    def visit_MatchBufferRegion(self, node: MatchBufferRegion) -> Any:
        if node.source.buffer is self.old:
            raise self.refuse("is matched by a tensorized block")
        return node

    def visit_Var(self, node: Var) -> Var:
        if node is self.old.data:
            raise self.refuse("is used through its pointer")
        return node

    def refuse(self, reason: str) -> Exception:
        return self.state.error(
            f"{self.old.name} {reason}: its layout can't be changed", self.realize
        )


def _pad_nest(
    state: ScheduleState,
    func_name: str,
    buffer: Buffer,
    padding: Expr,
    inverse: IndexMap | None,
    pad_value: Any,
) -> Stmt:
    """Build a block that fills the padding."""
    assert inverse is not None
    value = cast(as_expr(getattr(pad_value, "value", pad_value)), buffer.dtype)
    if not isinstance(value, (IntImm, FloatImm)):
        raise state.error(f"pad_value must be a number, got {pad_value!r}")
    iter_vars = tuple(
        IterVar(Var(f"v{axis}"), Range(const(0), extent), SPATIAL)
        for axis, extent in enumerate(buffer.shape)
    )
    where = tuple(iter_var.var for iter_var in iter_vars)
    loops = tuple(Var(f"ax{axis}") for axis in range(buffer.ndim))
    writes = BufferRegion(buffer, tuple(Range(var, const(1)) for var in where))
    name = state.fresh_block_name(func_name, f"{buffer.name}_pad")
    block = Block(iter_vars, (), (writes,), name, BufferStore(buffer, value, where))
    predicate = substitute(padding, dict(zip(inverse.initial_indices, loops)))
    nest: Stmt = BlockRealize(loops, predicate, block)
    for var, extent in zip(reversed(loops), reversed(buffer.shape)):
        nest = For(var, const(0), extent, SERIAL, nest)
    return nest


@primitive
def transform_block_layout(sch: Any, block: BlockRV, index_map: Any) -> None:
    """Iterate a block over mapped axes, with new loops, one per new axis.

    Before:
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    After (``transform_block_layout(B, lambda i, j: (i * 32 + j,))``):
        for ax0 in T.serial(2048):
            with T.block("B"):
                v0 = T.axis.spatial(2048, ax0)
                B[v0 // 32, v0 % 32] = A[v0 // 32, v0 % 32] * T.float32(2)

    Raises ``ScheduleError`` unless the map is a bijection that keeps spatial and reduction axes
    apart, and each axis of the block is bound to a loop of its own that holds nothing else.
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    old = realize.block
    mapping = as_index_map(index_map, len(old.iter_vars))
    sch.note(index_map=mapping.to_text())
    outermost = _own_loops(state, realize)
    shape = [iter_var.dom.extent for iter_var in old.iter_vars]
    try:
        inverse = mapping.inverse(shape)
    except ScheduleError as error:
        raise state.error(error.message, realize) from None
    extents = mapping.map_shape(shape, state.analyzer(scope.func_name))
    kinds = {var: iter_var.kind for var, iter_var in zip(mapping.initial_indices, old.iter_vars)}
    iter_vars: list[IterVar] = []
    for axis, (expr, extent) in enumerate(zip(mapping.final_indices, extents)):
        used = {kinds[var] for var in free_vars(expr) if var in kinds}
        if len(used) > 1:
            raise state.error(
                f"index {axis} of the map mixes {' and '.join(sorted(used))} axes", realize
            )
        kind = used.pop() if used else SPATIAL
        iter_vars.append(IterVar(Var(f"v{axis}"), Range(const(0), extent), kind))
    analyzer = state.analyzer(scope.func_name)
    for iter_var in iter_vars:
        analyzer.bind(iter_var.var, iter_var.dom)
    values = inverse.map_indices([iter_var.var for iter_var in iter_vars], analyzer)
    replaced = {iter_var.var: value for iter_var, value in zip(old.iter_vars, values)}
    body = substitute(old.body, replaced)
    init = None if old.init is None else substitute(old.init, replaced)
    made = old.replace(
        iter_vars=tuple(iter_vars),
        body=_simplified(body, analyzer),
        init=None if init is None else _simplified(init, analyzer),
        match_buffers=tuple(substitute(match, replaced) for match in old.match_buffers),
    )
    reads, writes = block_access_regions(made)
    made = made.replace(reads=tuple(reads), writes=tuple(writes))
    loops = tuple(Var(f"ax{axis}") for axis in range(len(iter_vars)))
    # Each old loop is one old axis, so the predicate follows the axes.
    in_loops = inverse.map_indices(loops, analyzer)
    old_loops = dict(zip(realize.iter_values, in_loops))
    nest: Stmt = BlockRealize(loops, substitute(realize.predicate, old_loops), made)
    for var, iter_var in zip(reversed(loops), reversed(iter_vars)):
        nest = For(var, const(0), iter_var.dom.extent, SERIAL, nest)
    state.replace(outermost, nest)


def _own_loops(state: ScheduleState, realize: BlockRealize) -> Any:
    """Return the outermost of a block's loops, if each binds one axis and holds nothing else."""
    loops: dict[Var, For] = {}
    current: Any = realize
    for item in state.parents(realize):
        if type(item) is not For:
            break
        loops[item.loop_var] = item
        current = item
    bound: set[Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        loop = loops.get(value) if type(value) is Var else None
        if (
            loop is None
            or value in bound
            or as_int(loop.min) != 0
            or as_int(iter_var.dom.min) != 0
            or not expr_equal(loop.extent, iter_var.dom.extent)
        ):
            raise state.error(
                f"axis {iter_var.var.name} of block {realize.block.name!r} is not bound to a loop "
                "of its own over its whole domain",
                realize,
                remedy="transform the block before splitting, fusing or moving it",
            )
        bound.add(value)  # type: ignore[arg-type]
    if set(loops) - bound or state.loops_above(realize) != list(reversed(loops.values())):
        raise state.error(
            f"block {realize.block.name!r} shares its loops, or has loops that bind no axis",
            realize,
        )
    return current


def _simplified(stmt: Stmt, analyzer: Analyzer) -> Stmt:
    """Simplify the indices of accesses."""

    def go(node: Any) -> Any:
        made = node.map_children(go)
        if isinstance(made, (BufferLoad, BufferStore)):
            return made.replace(indices=tuple(map(analyzer.simplify, made.indices)))
        return made

    done: Stmt = go(stmt)
    return done
