"""Queries about blocks and their axes, and inlining, for every kind of target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.arith import Analyzer, same_extent, sum_terms
from tilewright.ir import (
    Call,
    Div,
    Expr,
    Var,
    as_int,
    collect,
    const,
    dtypes,
    expr_equal,
    free_vars,
    pre_order,
    uses_var,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir import REDUCE, SPATIAL, Block, Buffer, BufferLoad, BufferStore, For, Stmt
from tilewright.tir.analysis import has_branch
from tilewright.tir.attrs import FLAG, register_annotation
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV, LoopRV

# Vectors are picked from neighbours so far apart.
_NEAR = 8
# What a symbolic extent counts as.
_UNKNOWN = 64
# A table of indices that is read so often is computed once.
_TABLE_USES = 8
# Nodes of formulas that are copied to each use. Chains of slices and joins, as writes into parts of
# a tensor are, use each tensor more than once: copies of copies would double at each.
_MOST_COPIED = 1 << 11

EXPENSIVE = frozenset(
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt tanh sigmoid silu erf gelu gelu_tanh sin "
    "cos tan sinh cosh asin acos atan asinh acosh atanh pow atan2 fmod hypot".split()
)
"""Intrinsics that cost many instructions: not to be evaluated again and again in a reduction."""


@dataclass(frozen=True)
class Axis:
    """A loop of a block together with the iteration variable that it drives."""

    loop: LoopRV
    var: Var
    kind: str
    extent: int | None

    @property
    def is_reduce(self) -> bool:
        """Whether the axis is reduced over."""
        return self.kind == REDUCE


def leaf_blocks(sch: Schedule, scope: str = "root") -> list[BlockRV]:
    """Return the blocks of the function, or of the block ``scope``, in program order."""
    return list(sch.get_child_blocks(sch.get_block(scope)))


def axes_of(sch: Schedule, rv: BlockRV, skip: int = 0) -> list[Axis] | None:
    """Pair the loops of a block, below the first ``skip``, with its iteration variables.

    ``None`` unless each such loop drives exactly one variable, as itself or plus an expression of
    outer loops.
    """
    realize = sch.state.get_block(rv)
    loops = sch.get_loops(rv)[skip:]
    by_var = {sch.get(loop).loop_var: loop for loop in loops}
    axes: dict[LoopRV, Axis] = {}
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        if iter_var.kind not in (SPATIAL, REDUCE):
            return None
        driven = [var for var in free_vars(value) if var in by_var]
        if not driven:
            continue
        loop = by_var[driven[0]]
        if len(driven) > 1 or loop in axes or coefficient_of(value, driven[0]) != 1:
            return None
        axes[loop] = Axis(loop, iter_var.var, iter_var.kind, as_int(sch.get(loop).extent))
    if len(axes) != len(loops):
        return None
    return [axes[loop] for loop in loops]


def stride_of(indices: Sequence[Expr], buffer: Buffer, var: Var) -> int | None:
    """Elements between neighbours along ``var`` in a compact buffer; ``None`` if not constant.

    0 means that the access does not depend on the variable.
    """
    stride, total = 1, 0
    for index, extent in zip(reversed(indices), reversed(buffer.shape)):
        step = coefficient_of(index, var)
        if step is None:
            return _stride_of_offset(indices, buffer, var)
        total += step * stride
        size = as_int(extent)
        if size is None:
            if total == 0 and not any(uses_var(i, {var}) for i in indices):
                return 0
            return total if total else None
        stride *= size
    return total


def _stride_of_offset(indices: Sequence[Expr], buffer: Buffer, var: Var) -> int | None:
    """Find the stride where several indices are quotients and remainders of one axis."""
    offset: Expr = const(0)
    known = Analyzer()
    for index, extent in zip(indices, buffer.shape):
        offset = offset * extent + (index if uses_var(index, {var}) else 0)
        if isinstance(extent, Var):
            known.bind_positive(extent)  # where an element is accessed there are some
    return coefficient_of(known.simplify(offset), var)


def are_side_by_side(
    access: BufferLoad | BufferStore, outer: Var, inner: Var, extent: Expr
) -> bool:
    """Whether an access to a compact buffer has one stride along two axes fused to one.

    ``extent`` is that of the inner axis.
    """
    far, near = (stride_of(access.indices, access.buffer, var) for var in (outer, inner))
    if far == 0 and near == 0:
        return True
    known = as_int(extent)
    if far is not None and near is not None and known is not None:
        return far == near * known
    return bool(are_contiguous(access, outer, inner, extent))


def are_contiguous(
    access: BufferLoad | BufferStore, outer: Var, inner: Var, extent: Expr
) -> bool | None:
    """Whether an access uses two axes as two whole dimensions in succession.

    ``extent`` is that of the inner axis. ``None`` if the access uses neither axis.
    """
    using = [d for d, index in enumerate(access.indices) if uses_var(index, {outer, inner})]
    if not using:
        return None
    return (
        len(using) == 2
        and using[1] == using[0] + 1
        and [access.indices[d] for d in using] == [outer, inner]
        and are_equal(access.buffer.shape[using[1]], extent)
    )


def are_equal(a: Expr, b: Expr) -> bool:
    """Whether two extents are equal, also where they are written in other ways."""
    return same_extent(a, b) or Analyzer().can_prove_equal(a, b)


def coefficient_of(index: Expr, var: Var) -> int | None:
    """Return the factor of a variable in an index, ``None`` unless the index is linear in it."""
    total = 0
    for item, factor in sum_terms(index):
        if item is var:
            total += factor
        elif uses_var(item, {var}):
            return None
    return total


def loads_of(block: Block) -> list[BufferLoad]:
    """Return the reads of a block's body, without those of buffers that it writes itself."""
    written = {region.buffer for region in block.writes}
    return [load for load in collect(block.body, BufferLoad) if load.buffer not in written]


def stores_of(block: Block) -> list[BufferStore]:
    """Return the writes of a block's body."""
    return collect(block.body, BufferStore)


def accesses_of(block: Block) -> list[BufferLoad | BufferStore]:
    """Return the reads and writes of a block's body, as ``loads_of`` and ``stores_of`` do."""
    return [*loads_of(block), *stores_of(block)]


def is_injective(sch: Schedule, rv: BlockRV) -> bool:
    """Whether a block computes each element independently, without a reduction."""
    block = sch.get(rv)
    return block.init is None and all(item.kind == SPATIAL for item in block.iter_vars)


def is_costly(block: Block) -> bool:
    """Whether an element costs more than a handful of additions (exp, division …)."""
    return any(
        isinstance(item, Div)
        or (
            isinstance(item, Call)
            and item.op.name not in ("if_then_else", "likely", "ignore_loop_partition")
        )
        for item in pre_order(block.body)
    )


SEPARATE = register_annotation(
    "dlight.separate",
    FLAG,
    means="Another rule has made the block to stay: it is not computed where it is used.",
    read_by=("scheduling.blocks",),
)


def inline_injective(sch: Schedule, scope: str = "root") -> None:
    """Compute cheap intermediate elements of a block, the function's root, where they are used.

    Producers are inlined into consumers that use each element about once: not if a reduction reads
    them many times, unless they only move elements; not padding, whose conditions would slow the
    inner loop; not costly functions with several consumers.

    All rules begin with this, one after another on copies of the same schedule, so the result is
    kept with the function's other analyses.
    """
    if sch.trace or scope != "root":
        _inline_all(sch, scope)
        return
    results = sch.state.index(sch.working_func).cache
    key = ("inlined", sch.trace is None, sch.checked)
    known = results.get(key)
    if known is None:
        _inline_all(sch, scope)
        results[key] = sch.copy()
    else:
        sch.become(known)


def fused_epilogue(sch: Schedule, main: BlockRV, consumers: Sequence[BlockRV]) -> BlockRV:
    """Keep a reduction's sums in registers; return the block that writes them: epilogue or copy."""
    if consumers:
        sch.set_scope(main, 0, "local")
        return consumers[0]
    copy: BlockRV = sch.cache_write(main, 0, "local")
    return copy


def _inline_all(sch: Schedule, scope: str) -> None:
    for rv in leaf_blocks(sch, scope):
        block = sch.get(rv)
        if not is_injective(sch, rv) or _writes_output(sch, block):
            continue
        consumers = sch.get_consumers(rv)
        if not consumers or SEPARATE in block.annotations:
            continue
        seldom = all(
            is_injective(sch, consumer) or _iterates_alike(block, sch.get(consumer))
            for consumer in consumers
        )
        if not seldom and (has_branch(block) or not only_moves(block)):
            continue
        if len(consumers) > 1 and is_costly(block):
            continue
        users = [sch.get(consumer) for consumer in consumers]
        if any(_looks_up(user, block) for user in users) or _is_much_to_copy(block, users):
            continue
        if _transposes(block) and any(_reads_at_times(user, block) for user in users):
            continue
        try:
            sch.compute_inline(rv)
        except ScheduleError:
            continue  # it stays a block of its own, which is always right


def _iterates_alike(producer: Block, consumer: Block) -> bool:
    """Whether two blocks run equally often, so that a reduction reads each element once."""
    sizes = []
    for block in (producer, consumer):
        extents = [item.dom.extent for item in block.iter_vars]
        fixed = math.prod(value for e in extents if (value := as_int(e)) is not None)
        symbolic = sorted(repr(e) for e in extents if as_int(e) is None)
        sizes.append((fixed, symbolic))
    return sizes[0] == sizes[1]


def _looks_up(consumer: Block, producer: Block) -> bool:
    """Whether a block looks up elements, with indices or weights of a table that another computes.

    Inlined, the formula of such a number would be computed for each dimension and each element.
    """
    tables = {region.buffer for region in producer.writes}
    loads = loads_of(consumer)
    if not any(collect(index, BufferLoad) for load in loads for index in load.indices):
        return False
    places: list[BufferLoad] = []
    for load in loads:
        if load.buffer in tables and not any(expr_equal(load, known) for known in places):
            places.append(load)
    return bool(places) and _TABLE_USES * _work(producer) <= len(places) * _work(consumer)


def _is_much_to_copy(block: Block, users: Sequence[Block]) -> bool:
    """Whether a block's formula becomes many nodes where it is used, and that more than once."""
    size = sum(1 for _ in pre_order(block.body))
    if 2 * size <= _MOST_COPIED:
        return False
    made = {region.buffer for region in block.writes}
    uses = sum(load.buffer in made for user in users for load in collect(user.body, BufferLoad))
    return uses > 1 and uses * size > _MOST_COPIED


def _transposes(block: Block) -> bool:
    """Whether neighbours in what a block writes come from afar."""
    last = block.iter_vars[-1].var if block.iter_vars else None
    return last is not None and any(
        (stride_of(load.indices, load.buffer, last) or 0) > _NEAR for load in loads_of(block)
    )


def _reads_at_times(consumer: Block, producer: Block) -> bool:
    """Whether a condition says where a block reads another one's result, as in a concatenation.

    What is transposed for such a part of a row is no tile for the whole row.
    """
    made = {region.buffer for region in producer.writes}
    return any(load.buffer in made for load in loads_at_times(consumer))


def loads_at_times(block: Block) -> list[BufferLoad]:
    """Return the reads that a condition within the block's formula may leave out."""
    branches = [call for call in collect(block.body, Call) if call.op.name == "if_then_else"]
    return [load for branch in branches for load in collect(branch, BufferLoad)]


def _work(block: Block) -> int:
    """Iterations of a block; symbolic extents count as in :func:`work_of`."""
    return math.prod(as_int(item.dom.extent) or _UNKNOWN for item in block.iter_vars)


def only_moves(block: Block) -> bool:
    """Whether a block copies elements of a buffer, computing none."""
    stores = stores_of(block)
    return len(stores) == 1 and isinstance(stores[0].value, BufferLoad)


def _writes_output(sch: Schedule, block: Block) -> bool:
    outputs = set(sch.mod["main"].buffers)
    return any(region.buffer in outputs for region in block.writes)


def work_of(axes: Sequence[Axis], unknown: int = _UNKNOWN) -> int:
    """Number of iterations; symbolic extents count as ``unknown``."""
    total = 1
    for axis in axes:
        total *= unknown if axis.extent is None else axis.extent
    return total


def work_inside(stmt: Stmt) -> int:
    """Iterations of the loops in a statement, such as the body of a block; 1 without loops."""
    inner = [item for item in stmt.child_nodes() if isinstance(item, Stmt)]
    below = max(1, sum(map(work_inside, inner)))
    return below * (as_int(stmt.extent) or _UNKNOWN) if isinstance(stmt, For) else below


def element_bits(block: Block) -> int:
    """Bits of the widest element that a block reads or writes."""
    buffers = [region.buffer for region in (*block.reads, *block.writes)]
    return max((dtypes.bits_of(buffer.dtype) for buffer in buffers), default=32)


def size_of(buffer: Buffer) -> int | None:
    """Bytes of a buffer; ``None`` if its shape is symbolic."""
    size = dtypes.bytes_of(buffer.dtype)
    for extent in buffer.shape:
        number = as_int(extent)
        if number is None:
            return None
        size *= number
    return size


def exceeds(buffer: Buffer, most: int) -> bool:
    """Whether a buffer of known size takes ``most`` bytes or more."""
    size = size_of(buffer)
    return size is not None and size >= most


def can_vectorize(block: Block, axis: Axis) -> bool:
    """Whether neighbours along an axis are neighbours (or the same) in every access."""
    accesses: list[tuple[Sequence[Expr], Buffer]] = [
        (load.indices, load.buffer) for load in loads_of(block)
    ]
    accesses += [(store.indices, store.buffer) for store in stores_of(block)]
    return all(stride_of(indices, buffer, axis.var) in (0, 1) for indices, buffer in accesses)


def reads_along(block: Block, axis: Axis) -> bool:
    """Whether neighbours along an axis are neighbours in some operand of a block."""
    return any(stride_of(x.indices, x.buffer, axis.var) == 1 for x in loads_of(block))


def is_flat(block: Block, axes: Sequence[Axis]) -> bool:
    """Whether all accesses traverse their buffers in memory order, element by element."""
    if len(axes) < 2:
        return False
    variables = [axis.var for axis in axes]
    accesses = accesses_of(block)
    return all(
        len(item.indices) == len(axes)
        and all(index is var for index, var in zip(item.indices, variables))
        and all(
            as_int(extent) == axis.extent for extent, axis in zip(item.buffer.shape[1:], axes[1:])
        )
        for item in accesses
    )
