"""Layouts: storing a buffer, or iterating over a block, in another order.

``transform_layout`` replaces a buffer by one whose indices are mapped by an ``IndexMap``: every
load and store in the buffer's scope is rewritten. If the map adds padding, no access reaches it,
because all go through the map; it is filled only on request. ``set_axis_separator`` says which
dimensions share a physical axis. ``transform_block_layout`` maps the axes of a block instead, which
gets new loops.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import (
    FALSE,
    INDEX,
    Expr,
    FloatImm,
    IntImm,
    Range,
    Var,
    and_,
    const,
    dtypes,
    free_vars,
    not_,
    substitute,
    uses_var,
)
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.tir import (
    OPAQUE,
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    For,
    IterVar,
    PrimFunc,
    Stmt,
)
from tilewright.tir.analysis import block_access_regions, block_facts
from tilewright.tir.attrs import LAYOUT_FREE
from tilewright.tir.index_map import IndexMap, as_index_map
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instance_order import check_axes_mapped_in_order
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._layout_padding import (
    Filling,
    own_loops,
    simplified_indices,
)
from tilewright.tir.schedule.primitives._layout_rewriter import LayoutRewriter
from tilewright.tir.schedule.primitives._scope import scope_of
from tilewright.tir.schedule.primitives.cache import resolve_buffer
from tilewright.tir.schedule.primitives.storage import change_buffers
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.zero_trips import check_means_nothing

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def transform_layout(
    sch: Schedule,
    block: BlockRV,
    buffer: Any,
    index_map: Any,
    pad_value: Any = None,
    *,
    assume_injective_transform: bool = False,
) -> None:
    """Store a buffer in another layout; all its accesses follow.

    ``buffer`` is ``("read", 0)``, ``("write", 0)`` … of ``block``, or the buffer's name.
    ``index_map`` is a function of the indices, an ``IndexMap``, or a lambda's text, which may name
    symbolic extents of the function; ``IndexMap.AXIS_SEPARATOR`` among its results separates
    physical axes. Where the map adds elements (16 rows for 10), no access reaches them. With
    ``pad_value``, a number or a function of the new indices that gives one (Python's numbers and
    what is computed from indices become the buffer's dtype), they are filled: by the block that
    writes the buffer, over new loops, if it is complete and has its own loops, else by a block
    after it. ``assume_injective_transform`` assumes without proof that no two indices are mapped to
    one.

    Preconditions:
        - the buffer is one that the block accesses
        - the index map takes one index per dimension and gives indices that are bounded and not
          negative
        - the index map is injective, unless ``assume_injective_transform``
        - the buffer is allocated in the function, or listed in the function's attribute
          ``layout_free_buffers``
        - the buffer is not a view of another one, nor matched by one
        - the buffer is accessed by its elements only, not through its pointer
        - ``pad_value`` is a number or a function of the new indices, of the buffer's dtype
        - with ``pad_value``, padding belongs to a buffer that is allocated in the function, by a
          map whose inverse can be derived
    Before:
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    After ``transform_layout(B, ("write", 0), lambda i, j: (i // 16, j, i % 16))``:
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi // 16, vj, vi % 16] = A[vi, vj] * T.float32(2)
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    is_read, position = resolve_buffer(state, realize, buffer)
    regions = realize.block.reads if is_read else realize.block.writes
    old = regions[position].buffer
    func_name = state.func_name_of(realize)
    mapping = _resolved_map(state, func_name, realize, index_map, old.ndim)
    sch.note(buffer=["read" if is_read else "write", position], index_map=mapping.to_json())
    owner = _owner(state, realize, old)
    func = state.func(func_name)
    if owner is None:
        _check_layout_free(state, realize, func, old)
    analyzer = state.analyzer(func_name)
    value: int | float | IndexMap | None = None
    if pad_value is not None:
        value = _pad_function(state, func_name, realize, pad_value, mapping, old)
        sch.note(pad_value=value.to_json() if isinstance(value, IndexMap) else value)
    inverse: IndexMap | None = None
    padding: Expr = FALSE
    try:
        shape = mapping.map_shape(old.shape, analyzer)
        if value is not None or not assume_injective_transform:
            inverse, padding = mapping.non_surjective_inverse(
                old.shape, analyzer, mapped_shape=shape
            )
    except ScheduleError as error:
        raise state.error(
            error.message,
            realize,
            remedy="if the map is injective all the same, pass assume_injective_transform=True",
        ) from None
    if value is not None and padding is not FALSE and owner is None:
        raise state.error(f"{old.name} is a parameter: its padding belongs to the caller", realize)
    new = old.with_fresh_data(
        shape=shape, strides=(), elem_offset=None, axis_separators=mapping.axis_separators
    )
    rewriter = LayoutRewriter(state, realize, old, new, mapping, analyzer)
    if owner is None:
        _lay_out_parameter(state, func_name, rewriter)
        return
    filling = None
    if value is not None and padding is not FALSE:
        assert inverse is not None
        filling = Filling(state, func_name, old, new, inverse, padding, value)
    _lay_out_allocated(state, owner, rewriter, filling)


def _lay_out_parameter(state: ScheduleState, func_name: str, rewriter: LayoutRewriter) -> None:
    """Replace a parameter's buffer, and the indices of all accesses to it."""
    func = state.func(func_name)
    buffer_map = {
        var: rewriter.new if known is rewriter.old else known
        for var, known in func.buffer_map.items()
    }
    root = func.body
    assert isinstance(root, BlockRealize)
    made = root.replace(block=root.block.replace(body=rewriter.visit(root.block.body)))
    state.set_func(func_name, func.replace(buffer_map=buffer_map, body=made))


def _lay_out_allocated(
    state: ScheduleState, owner: Block, rewriter: LayoutRewriter, filling: Filling | None
) -> None:
    """Replace a buffer in the block that allocates it; ``filling`` writes its padding."""
    rewriter.check_not_aliased(owner)
    if filling is None:
        body = rewriter.visit(owner.body)
    else:
        padded = filling.padded_writer(owner)
        if padded is not None:
            body = rewriter.visit(state.rebuilt(owner.body, padded))
        else:
            body = filling.after_last_write(rewriter.visit(owner.body))
    init = None if owner.init is None else rewriter.visit(owner.init)
    allocated = tuple(
        rewriter.new if item is rewriter.old else item for item in owner.alloc_buffers
    )
    state.replace(owner, owner.replace(body=body, init=init, alloc_buffers=allocated))


@primitive
def set_axis_separator(
    sch: Schedule, block: BlockRV, buffer: Any, axis_separators: Sequence[int]
) -> None:
    """Group a buffer's dimensions into physical axes.

    ``axis_separators`` are the dimensions before which a new physical axis starts: a buffer
    ``(4, 8, 16)`` with ``[1]`` is stored in two axes, ``4`` and ``8 * 16``. Memory with one axis
    (that of a CPU) stores the groups row-major, one after the other. ``buffer`` is ``("read", 0)``,
    ``("write", 0)`` … of ``block``, or the buffer's name.

    Preconditions:
        - the buffer is one that the block accesses
        - the separators ascend and lie between the first and the last dimension
        - the buffer is not a view of another one
    Before:
        B = T.alloc_buffer((64, 32))
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    After ``set_axis_separator(B, ("write", 0), [1])``:
        B = T.alloc_buffer((64, 32), axis_separators=[1])
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    is_read, position = resolve_buffer(state, realize, buffer)
    old = (realize.block.reads if is_read else realize.block.writes)[position].buffer
    sch.note(buffer=["read" if is_read else "write", position])
    made = tuple(axis_separators)
    if list(made) != sorted(set(made)) or any(not 0 < axis < old.ndim for axis in made):
        raise state.error(
            f"axis_separators {list(made)} must ascend and lie in [1, {old.ndim - 1}]: "
            f"{old.name} has {old.ndim} dimensions",
            realize,
        )
    owner = _owner(state, realize, old)
    if made == old.axis_separators:
        return
    new = old.replace(axis_separators=made)
    if owner is not None:
        state.replace(owner, change_buffers(owner, {old: new}))
        return
    func_name = state.func_name_of(realize)
    func = state.func(func_name)
    buffer_map = {var: new if known is old else known for var, known in func.buffer_map.items()}
    body = change_buffers(func.body, {old: new})
    state.set_func(func_name, func.replace(buffer_map=buffer_map, body=body))


def _resolved_map(
    state: ScheduleState, func_name: str, realize: BlockRealize, value: Any, ndim: int
) -> IndexMap:
    """Make the index map; its text may name the function's sizes."""
    symbols: dict[str, Var] = {}
    ambiguous: set[str] = set()
    for var in state.func(func_name).sizes():
        if var.name in symbols:
            ambiguous.add(var.name)
        symbols[var.name] = var
    for name in ambiguous:
        del symbols[name]
    try:
        made = as_index_map(value, ndim, symbols)
    except ScheduleError as error:
        raise state.error(error.message, realize) from None
    own = set(made.initial_indices)
    for expr in made.final_indices:
        for var in free_vars(expr):
            if var not in own and symbols.get(var.name) is not var:
                raise state.error(
                    f"the index map {made.to_text()} uses {var.name!r}, which is no symbolic "
                    "extent of the function",
                    realize,
                )
    return made


def _pad_function(
    state: ScheduleState,
    func_name: str,
    realize: BlockRealize,
    value: object,
    mapping: IndexMap,
    buffer: Buffer,
) -> int | float | IndexMap:
    """Return the padding as a number, or as a map from the new indices to one."""
    ndim = len(mapping.final_indices)
    if callable(value) and not isinstance(value, (Expr, IndexMap)):
        parameters = inspect.signature(value).parameters.values()
        variadic = any(item.kind is inspect.Parameter.VAR_POSITIONAL for item in parameters)
        count = ndim if variadic else len(parameters)
        constant = value(*(Var(f"i{axis}") for axis in range(count)))
        value = constant if isinstance(constant, (bool, int, float, IntImm, FloatImm)) else value
    number = getattr(value, "value", value)
    if isinstance(number, np.generic):
        number = number.item()
    if isinstance(number, (bool, int, float)):
        _check_pad_dtype(state, realize, value, number, buffer)
        return number
    if not isinstance(value, (str, IndexMap)) and not callable(value):
        raise state.error(
            f"pad_value must be a number or a function of the new indices, got {value!r}", realize
        )
    made = _resolved_map(state, func_name, realize, value, ndim)
    if len(made.final_indices) != 1:
        raise state.error(
            f"pad_value {made.to_text()} must give one number, it gives {len(made.final_indices)}",
            realize,
        )
    _check_pad_dtype(state, realize, made.final_indices[0], None, buffer)
    return made


def _check_pad_dtype(
    state: ScheduleState,
    realize: BlockRealize,
    value: object,
    number: int | float | None,
    buffer: Buffer,
) -> None:
    """Refuse padding that the buffer can't represent; ``number`` is its value if known."""
    found = "bool" if isinstance(value, bool) else str(getattr(value, "dtype", ""))
    if type(value) is float or isinstance(value, np.float64):
        # As everywhere, a number takes the dtype it meets, but no fraction becomes an integer.
        found = buffer.dtype if dtypes.is_float(buffer.dtype) else "float64"
    if found not in ("", INDEX, buffer.dtype):
        raise state.error(
            f"pad_value is of {found}, buffer {buffer.name} holds {buffer.dtype}", realize
        )
    try:
        if number is not None:
            const(number, buffer.dtype)
    except VerifyError:
        raise state.error(
            f"pad_value {number!r} is no {buffer.dtype}, which buffer {buffer.name} holds", realize
        ) from None


def _owner(state: ScheduleState, realize: BlockRealize, buffer: Buffer) -> Block | None:
    """Return the block that allocates ``buffer``; ``None`` for a parameter."""
    for item in (realize.block, *state.parents(realize.block)):
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


@primitive
def transform_block_layout(sch: Schedule, block: BlockRV, index_map: Any) -> None:
    """Iterate a block over mapped axes, with new loops, one per new axis.

    Where the map adds points (16 iterations for 10), a predicate leaves them out. ``index_map`` is
    what ``transform_layout`` takes.

    Preconditions:
        - the block's instances can run in another order
        - updates of a reduction commute, or the new axes keep the order of each element's updates
        - each axis of the block is bound to a serial loop of its own over its whole domain
        - these loops hold nothing else and carry no annotations
        - the index map takes one index per axis of the block
        - the index map is injective, with an inverse that can be derived
        - no empty axis runs an init
        - no new axis mixes spatial and reduction axes
        - the new reduction axes of a block with ``init`` are not padded
    Before:
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    After ``transform_block_layout(B, lambda i, j: (i * 32 + j,))``:
        for ax0 in T.serial(2048):
            with T.block("B"):
                v0 = T.axis.spatial(2048, ax0)
                B[v0 // 32, v0 % 32] = A[v0 // 32, v0 % 32] * T.float32(2)
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    old = realize.block
    mapping = _resolved_map(state, scope.func_name, realize, index_map, len(old.iter_vars))
    sch.note(index_map=mapping.to_json())
    facts = block_facts(old)
    if facts.kind == OPAQUE:
        raise state.error(
            f"the instances of block {old.name!r} can't run in another order: {facts.reason}",
            realize,
        )
    outermost = own_loops(state, realize)
    shape = [iter_var.dom.extent for iter_var in old.iter_vars]
    analyzer = state.analyzer(scope.func_name)
    try:
        extents = mapping.map_shape(shape, analyzer)
        inverse, padding = mapping.non_surjective_inverse(shape, analyzer, mapped_shape=extents)
    except ScheduleError as error:
        raise state.error(error.message, realize) from None
    iter_vars = _mapped_axes(state, realize, mapping, extents)
    new_vars = [iter_var.var for iter_var in iter_vars]
    _check_init_not_padded(state, realize, iter_vars, inverse, padding)
    for iter_var in iter_vars:
        analyzer.bind(iter_var.var, iter_var.dom)
    values = inverse.map_indices(new_vars, analyzer)
    loops_now = state.loops_above(realize)
    for loop in loops_now:
        if analyzer.can_prove(loop.extent <= 0):
            check_means_nothing(sch, loop, "the map")
    check_axes_mapped_in_order(state, realize, loops_now, values, iter_vars, analyzer)
    replaced = {iter_var.var: value for iter_var, value in zip(old.iter_vars, values)}
    body = substitute(old.body, replaced)
    init = None if old.init is None else substitute(old.init, replaced)
    made = old.replace(
        iter_vars=iter_vars,
        body=simplified_indices(body, analyzer),
        init=None if init is None else simplified_indices(init, analyzer),
        match_buffers=tuple(substitute(match, replaced) for match in old.match_buffers),
    )
    reads, writes = block_access_regions(made)
    made = made.replace(reads=tuple(reads), writes=tuple(writes))
    loops = tuple(Var(f"ax{axis}") for axis in range(len(iter_vars)))
    # Each old loop is one old axis, so the predicate follows the axes.
    in_loops = inverse.map_indices(loops, analyzer)
    old_loops = dict(zip(realize.iter_values, in_loops))
    predicate = substitute(realize.predicate, old_loops)
    if padding is not FALSE:
        inside = substitute(padding, dict(zip(inverse.initial_indices, loops)))
        # First: where the map adds points, what the predicate reads may not be there.
        predicate = and_(analyzer.simplify(not_(inside)), predicate)
    nest: Stmt = BlockRealize(loops, predicate, made)
    for loop_var, iter_var in zip(reversed(loops), reversed(iter_vars)):
        nest = For(loop_var, const(0), iter_var.dom.extent, SERIAL, nest)
    state.replace(outermost, nest)


def _mapped_axes(
    state: ScheduleState, realize: BlockRealize, mapping: IndexMap, extents: Sequence[Expr]
) -> tuple[IterVar, ...]:
    """The new axes, each of the kind of its source axes."""
    axes = realize.block.iter_vars
    kinds = {var: iter_var.kind for var, iter_var in zip(mapping.initial_indices, axes)}
    made: list[IterVar] = []
    for axis, (expr, extent) in enumerate(zip(mapping.final_indices, extents)):
        used = {kinds[var] for var in free_vars(expr) if var in kinds}
        if len(used) > 1:
            raise state.error(
                f"index {axis} of the map mixes {' and '.join(sorted(used))} axes", realize
            )
        kind = used.pop() if used else SPATIAL
        made.append(IterVar(Range.from_min_extent(const(0), extent), Var(f"v{axis}"), kind))
    return tuple(made)


def _check_init_not_padded(
    state: ScheduleState,
    realize: BlockRealize,
    iter_vars: Sequence[IterVar],
    inverse: IndexMap,
    padding: Expr,
) -> None:
    """Refuse padded reductions with init: the iteration that runs it might be padding."""
    if realize.block.init is None or padding is FALSE:
        return
    reduced = {var for var, axis in zip(inverse.initial_indices, iter_vars) if axis.kind != SPATIAL}
    if uses_var(padding, reduced):
        raise state.error(
            f"the map pads reduction axes of block {realize.block.name!r}, and its init would not "
            "run where the first iteration is padding",
            realize,
            remedy="decompose_reduction first, or choose factors that divide the extents",
        )
