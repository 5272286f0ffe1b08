"""Facts about the tensor functions that graphs call."""

from __future__ import annotations

from tilewright.arith import Analyzer, IterMapLevel, detect_iter_map
from tilewright.ir import Expr, Range, as_expr, collect, is_const, substitute
from tilewright.tir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    PrimFunc,
    While,
)


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Whether a tensor function gives its operand under another shape, element by element.

    ``False`` where that can't be proven.
    """
    if len(func.buffers) != 2 or len(func.params) != 2:
        return False
    source, result = func.buffers
    stores = collect(func.body, BufferStore)
    blocks = [block for block in collect(func.body, Block) if block.iter_vars]
    if len(stores) != 1 or len(blocks) != 1 or source.dtype != result.dtype:
        return False
    store, value = stores[0], stores[0].value
    if store.buffer is not result or not isinstance(value, BufferLoad):
        return False
    if value.buffer is not source or not _writes_all(func, store):
        return False
    analyzer = Analyzer()
    for axis in blocks[0].iter_vars:
        analyzer.bind(axis.var, axis.dom)
    same_size = analyzer.can_prove_equal(_size(source), _size(result))
    return same_size and analyzer.can_prove_equal(
        _position(source, value.indices), _position(result, store.indices)
    )


def _writes_all(func: PrimFunc, store: BufferStore) -> bool:
    """Whether the only store of a function writes each element of its buffer, once."""
    realizes = collect(func.body, BlockRealize)
    if collect(func.body, (IfThenElse, While)):
        return False
    if not all(is_const(realize.predicate, 1) for realize in realizes):
        return False
    values = {
        axis.var: value
        for realize in realizes
        for axis, value in zip(realize.block.iter_vars, realize.iter_values)
    }
    loops = {
        loop.loop_var: Range.from_min_extent(loop.min, loop.extent)
        for loop in collect(func.body, For)
    }
    times: Expr = as_expr(1)
    for space in loops.values():
        times = times * space.extent
    indices = [substitute(index, values) for index in store.indices]
    found = detect_iter_map(indices, loops, check_level=IterMapLevel.Bijective)
    return not found.errors and Analyzer().can_prove_equal(times, _size(store.buffer))


def _size(buffer: Buffer) -> Expr:
    """The number of elements."""
    size: Expr = as_expr(1)
    for extent in buffer.shape:
        size = size * extent
    return size


def _position(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The place of an element in row-major order."""
    place: Expr = as_expr(0)
    for extent, index in zip(buffer.shape, indices):
        place = place * extent + index
    return place
