"""Facts about the tensor functions that graphs call."""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import Expr, as_expr, collect
from tilewright.tir import Block, Buffer, BufferLoad, BufferStore, PrimFunc


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
    if value.buffer is not source:
        return False
    analyzer = Analyzer()
    for axis in blocks[0].iter_vars:
        analyzer.bind(axis.var, axis.dom)
    return analyzer.can_prove_equal(
        _position(source, value.indices), _position(result, store.indices)
    )


def _position(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The place of an element in row-major order."""
    place: Expr = as_expr(0)
    for extent, index in zip(buffer.shape, indices):
        place = place * extent + index
    return place
