"""Padding of contractions that doesn't change their result.

``pad_einsum`` rounds up the extents of a sum of products: operands are first copied into
zero-padded buffers, and the result is cropped afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.arith import Analyzer
from tilewright.ir import (
    Add,
    Cast,
    Expr,
    FloatImm,
    IntImm,
    Max,
    Min,
    Mul,
    Range,
    Sub,
    Var,
    and_,
    ceildiv,
    const,
    dtypes,
    expr_equal,
    if_then_else,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir import (
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
    seq,
)
from tilewright.tir.analysis import COMPLETE, REDUCTION, block_access_regions, block_facts
from tilewright.tir.analysis.reduction import match_reduction
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._block_checks import check_only_writer
from tilewright.tir.schedule.primitives._copy import element
from tilewright.tir.schedule.primitives._layout_padding import own_loops
from tilewright.tir.schedule.primitives._scope import Scope, buffer_names, scope_of
from tilewright.tir.schedule.state import ScheduleState, trivially_true

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def pad_einsum(sch: Schedule, block: BlockRV, padding: Sequence[int]) -> None:
    """Round the extents of a sum of products up to multiples of ``padding``, one per axis.

    Operands with padded axes are copied into zero-padded buffers, the padded result is computed
    into a new buffer, and the unpadded region is copied out.

    Preconditions:
        - ``padding`` has one positive number per axis of the block
        - each axis of the block is bound to a loop of its own over its whole domain, and these
          loops hold nothing else
        - the block is complete or a reduction with init, without predicate and views, the only
          writer of its result, and stores once what it adds and multiplies
        - padded axes are indices by themselves, the spatial ones of the result, and each buffer is
          accessed in one way
        - padded reduction axes belong to a sum, whose terms are zero where they are padded
    Before:
        for i, j, k in T.grid(5, 4, 3):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    After ``pad_einsum(C, [4, 1, 1])``:
        for ax0, ax1 in T.grid(8, 3):
            with T.block("A_pad"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_pad[v0, v1] = T.if_then_else(v0 < 5, A[v0, v1], T.float32(0))
        for i, j, k in T.grid(8, 4, 3):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_pad[vi, vj] = T.float32(0)
                C_pad[vi, vj] = C_pad[vi, vj] + A_pad[vi, vk] * B[vk, vj]
        for ax0, ax1 in T.grid(5, 4):
            with T.block("C_pad"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                C[v0, v1] = C_pad[v0, v1]
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    scope = scope_of(state, realize)
    old = realize.block
    if len(padding) != len(old.iter_vars) or any(number < 1 for number in padding):
        raise state.error(
            f"padding {list(padding)} must have one positive number for each of the "
            f"{len(old.iter_vars)} axes of block {old.name!r}",
            realize,
        )
    outermost = own_loops(state, realize, replaced=False)
    store = _einsum_store(scope, realize)
    sizes = _padded_sizes(state, scope, old, padding)
    if not sizes:
        return
    for axis in old.iter_vars:
        if axis.kind != REDUCE and axis.var in sizes and axis.var not in store.indices:
            raise state.error(
                f"{store.buffer.name} is not indexed by {axis.var.name}: instances that padding "
                "adds would write what others write",
                realize,
            )
    accesses = _axis_accesses(state, realize, sizes)
    _check_zero_terms(state, realize, sizes)
    padded = _padded_buffers(buffer_names(state, scope.func_name), accesses, sizes)
    before: list[Stmt] = []
    after: list[Stmt] = []
    taken: set[str] = set()
    for buffer, made in padded.items():
        name = _block_name(state, scope.func_name, made.name, taken)
        if buffer is store.buffer:
            after.append(_crop(realize, made, store, name))
        else:
            known = state.analyzer(scope.func_name)
            before.append(_zero_padded(buffer, made, accesses[buffer], sizes, name, known))
    nest = _padded_nest(state, realize, accesses, padded, sizes)
    body = state.rebuilt(scope.block.body, {outermost: seq(*before, nest, *after)})
    allocated = (*scope.block.alloc_buffers, *padded.values())
    state.replace(scope.block, scope.block.replace(body=body, alloc_buffers=allocated))


def _padded_sizes(
    state: ScheduleState, scope: Scope, block: Block, padding: Sequence[int]
) -> dict[Var, tuple[Expr, Expr]]:
    """Extents of the axes that aren't multiples of their padding, before and after."""
    analyzer = state.analyzer(scope.func_name)
    sizes: dict[Var, tuple[Expr, Expr]] = {}
    for iter_var, number in zip(block.iter_vars, padding):
        extent = iter_var.dom.extent
        rounded = analyzer.simplify(ceildiv(extent, number) * number)
        if not analyzer.can_prove_equal(rounded, extent):
            sizes[iter_var.var] = (extent, rounded)
    return sizes


def _padded_buffers(
    names: set[str],
    accesses: Mapping[Buffer, Sequence[Expr]],
    sizes: Mapping[Var, tuple[Expr, Expr]],
) -> dict[Buffer, Buffer]:
    """The replacement of each buffer with a padded axis."""
    return {
        buffer: buffer.with_fresh_data(
            name=fresh_name(f"{buffer.name}_pad", names),
            shape=tuple(
                sizes[index][1] if index in sizes else size  # type: ignore[index]
                for index, size in zip(indices, buffer.shape)
            ),
            strides=(),
            elem_offset=None,
            axis_separators=(),
        )
        for buffer, indices in accesses.items()
        if any(index in sizes for index in indices)
    }


def _einsum_store(scope: Scope, realize: BlockRealize) -> BufferStore:
    """Check the kind of the block and return its store."""
    state, block = scope.state, realize.block
    facts = block_facts(block)
    store, init = block.body, block.init
    single = isinstance(store, BufferStore) and (init is None or isinstance(init, BufferStore))
    if (
        facts.kind not in (COMPLETE, REDUCTION)
        or not single
        or block.match_buffers
        or not trivially_true(realize.predicate)
    ):
        reason = (
            facts.reason or "it must store once, without predicate and views, and have its init"
        )
        raise state.error(f"block {block.name!r} is no sum of products: {reason}", realize)
    assert isinstance(store, BufferStore)
    check_only_writer(scope, realize, store.buffer)
    for item in (store, init):
        if isinstance(item, BufferStore) and not _is_arithmetic(item.value):
            raise state.error(
                f"block {block.name!r} is no sum of products: `{item.value!r}` may not be defined "
                "for padding",
                realize,
            )
    return store


def _is_arithmetic(expr: Expr) -> bool:
    """Whether an expression combines elements by operations defined for all numbers."""
    if isinstance(expr, (Add, Sub, Mul, Min, Max, Cast)):
        return all(_is_arithmetic(item) for item in expr.child_nodes() if isinstance(item, Expr))
    return isinstance(expr, (IntImm, FloatImm, Var, BufferLoad))


def _axis_accesses(
    state: ScheduleState, realize: BlockRealize, sizes: dict[Var, tuple[Expr, Expr]]
) -> dict[Buffer, tuple[Expr, ...]]:
    """Return the indices of each buffer; padded axes must be whole indices."""
    found: dict[Buffer, tuple[Expr, ...]] = {}
    for root in (realize.block.init, realize.block.body):
        for item in pre_order(root) if root is not None else ():
            if not isinstance(item, (BufferLoad, BufferStore)):
                continue
            known = found.setdefault(item.buffer, item.indices)
            if not all(map(expr_equal, known, item.indices)):
                raise state.error(
                    f"block {realize.block.name!r} accesses {item.buffer.name} by different "
                    "indices",
                    realize,
                )
            axes_used = [index for index in item.indices if index in sizes]
            if len(set(axes_used)) < len(axes_used) or any(
                index not in sizes and uses_var(index, sizes) for index in item.indices
            ):
                raise state.error(
                    f"block {realize.block.name!r} accesses {item.buffer.name} by more than single "
                    "axes: it is not clear what to pad",
                    realize,
                )
    # Operands first, the result last.
    result = realize.block.writes[0].buffer
    return dict(sorted(found.items(), key=lambda item: item[0] is result))


def _check_zero_terms(
    state: ScheduleState, realize: BlockRealize, sizes: dict[Var, tuple[Expr, Expr]]
) -> None:
    """Refuse to pad a reduction unless its padded terms are zeros of a sum."""
    reduced = [
        axis.var for axis in realize.block.iter_vars if axis.kind == REDUCE and axis.var in sizes
    ]
    if not reduced:
        return
    reduction = match_reduction(realize.block)
    if reduction is None or reduction.name != "sum":
        raise state.error(
            f"block {realize.block.name!r} is no sum: zeros in padded terms would change its "
            "result",
            realize,
            remedy="pad spatial axes only",
        )
    for axis in reduced:
        if not _is_zero(reduction.values[0], axis):
            raise state.error(
                f"a term of block {realize.block.name!r} is not surely zero where {axis.name} is "
                "padded: an operand without this axis may be infinite or no number",
                realize,
                remedy="pad spatial axes only",
            )


def _is_zero(expr: Expr, axis: Var) -> bool:
    """Whether an expression is zero if all loads that are indexed by ``axis`` are."""
    if isinstance(expr, BufferLoad):
        return axis in expr.indices
    if isinstance(expr, Cast):
        return _is_zero(expr.value, axis)
    if isinstance(expr, (IntImm, FloatImm)):
        return expr.value == 0
    if isinstance(expr, (Add, Sub)):
        return _is_zero(expr.a, axis) and _is_zero(expr.b, axis)
    if isinstance(expr, Mul):
        zeros = [_is_zero(expr.a, axis), _is_zero(expr.b, axis)]
        if all(zeros) or (any(zeros) and dtypes.is_integer(expr.dtype)):
            return True
        other = expr.b if zeros[0] else expr.a
        return any(zeros) and isinstance(other, (IntImm, FloatImm)) and abs(other.value) < 1e30
    return False


def _block_name(state: ScheduleState, func_name: str, base: str, taken: set[str]) -> str:
    name, number = state.fresh_block_name(func_name, base), 0
    while name in taken:
        number += 1
        name = state.fresh_block_name(func_name, f"{base}_{number}")
    taken.add(name)
    return name


def _copy_nest(axes: Sequence[Expr], body: Callable[[list[Var]], Stmt], name: str) -> Stmt:
    """Loops around a block with one spatial axis per extent; ``body`` builds its store."""
    iter_vars = tuple(
        IterVar(Range.from_min_extent(const(0), extent), Var(f"v{axis}"), SPATIAL)
        for axis, extent in enumerate(axes)
    )
    block = Block(iter_vars, (), (), name, body([item.var for item in iter_vars]))
    reads, writes = block_access_regions(block)
    loops = tuple(Var(f"ax{axis}") for axis in range(len(axes)))
    nest: Stmt = BlockRealize(
        loops, and_(), block.replace(reads=tuple(reads), writes=tuple(writes))
    )
    for var, extent in zip(reversed(loops), reversed(axes)):
        nest = For(var, const(0), extent, SERIAL, nest)
    return nest


def _zero_padded(
    source: Buffer,
    target: Buffer,
    indices: Sequence[Expr],
    sizes: dict[Var, tuple[Expr, Expr]],
    name: str,
    known: Analyzer,
) -> Stmt:
    """Copy an operand, with zeros where a padded axis is beyond its extent.

    Other axes of the block may be empty, so an axis may exceed the operand without effect.
    """

    def body(where: list[Var]) -> Stmt:
        inside = [
            var < sizes[index][0]  # type: ignore[index]
            for var, index in zip(where, indices)
            if index in sizes
        ]
        inside += [
            var < extent
            for var, index, extent in zip(where, indices, source.shape)
            if index in sizes and not known.can_prove(sizes[index][0] <= extent)  # type: ignore[index]
        ]
        zero = const(0, source.dtype)
        value = if_then_else(and_(*inside), BufferLoad(source, tuple(where)), zero)
        return BufferStore(target, value, tuple(where))

    return _copy_nest(target.shape, body, name)


def _crop(realize: BlockRealize, source: Buffer, store: BufferStore, name: str) -> Stmt:
    """Copy the unpadded region of the result."""
    axes = [item for item in realize.block.iter_vars if item.kind != REDUCE]

    def body(where: list[Var]) -> Stmt:
        mapping = dict(zip((axis.var for axis in axes), where))
        indices = tuple(substitute(index, mapping) for index in store.indices)
        return BufferStore(store.buffer, BufferLoad(source, indices), indices)

    return _copy_nest([axis.dom.extent for axis in axes], body, name)


def _padded_nest(
    state: ScheduleState,
    realize: BlockRealize,
    accesses: dict[Buffer, tuple[Expr, ...]],
    padded: dict[Buffer, Buffer],
    sizes: dict[Var, tuple[Expr, Expr]],
) -> Stmt:
    """The block over its padded axes, on padded buffers."""
    old = realize.block

    def accessed(region: BufferRegion) -> BufferRegion:
        """What is accessed now: a region that was declared may be too small for the padding."""
        buffer = region.buffer
        return element(padded.get(buffer, buffer), accesses[buffer])

    iter_vars = tuple(
        axis.replace(dom=Range.from_min_extent(axis.dom.min, sizes[axis.var][1]))
        if axis.var in sizes
        else axis
        for axis in old.iter_vars
    )
    made = old.replace(
        iter_vars=iter_vars,
        reads=tuple(map(accessed, old.reads)),
        writes=tuple(map(accessed, old.writes)),
        body=substitute(old.body, padded),
        init=None if old.init is None else substitute(old.init, padded),
    )
    extents = {value: axis.dom.extent for value, axis in zip(realize.iter_values, iter_vars)}
    nest: Stmt = realize.replace(block=made)
    for loop in reversed(state.loops_above(realize)):
        nest = loop.replace(extent=extents[loop.loop_var], body=nest)
    stmt: Stmt = nest
    return stmt
