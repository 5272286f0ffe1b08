"""``AnnotateTIROpPattern``: the access pattern of each tensor function, for fusion.

Kinds, from the least to the most restrictive: ``elementwise`` (reads where it writes),
``broadcast`` (reads a subset of the written axes), ``injective`` (reads anywhere, computes each
element once), ``reduction``, ``output_fusable`` (a contraction, or several stages of which the last
is elementwise: elementwise consumers may be fused), ``opaque``. The attribute ``op_pattern`` holds
the number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

from tilewright.ir import (
    Call,
    Expr,
    IRModule,
    Pass,
    Var,
    as_int,
    collect,
    expr_equal,
    is_const,
    pre_order,
)
from tilewright.tir import (
    REDUCE,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    PrimFunc,
    While,
)
from tilewright.tir.attrs import IS_SCHEDULED, OP_PATTERN
from tilewright.topi.nn.attention import ATTENTION


class OpPattern(IntEnum):
    """Kinds of tensor functions; a fused group has the greatest of its members' kinds."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OUTPUT_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


#: Attributes of a tensor function whose result is read from memory, not computed again by others.
OPAQUE = {OP_PATTERN: int(OpPattern.OPAQUE)}


class AnnotateTIROpPattern(Pass):
    """Set ``op_pattern`` on tensor functions that lack it."""

    def transform(self, mod: IRModule) -> IRModule:
        """Analyse each function."""
        return mod.map_functions(
            lambda _, func: (
                func
                if OP_PATTERN in func.attrs
                else func.with_attr(OP_PATTERN, int(analyze_pattern(func)))
            ),
            PrimFunc,
        )


def analyze_pattern(func: PrimFunc) -> OpPattern:
    """Classify a tensor function by its blocks."""
    if not isinstance(func.body, BlockRealize) or func.attrs.get(IS_SCHEDULED):
        return OpPattern.OPAQUE
    blocks = []
    for item in pre_order(func.root.body):
        if isinstance(item, While) or (isinstance(item, Call) and item.op.effect == "opaque"):
            return OpPattern.OPAQUE
        if isinstance(item, Block):
            if ATTENTION in item.annotations:
                return OpPattern.OPAQUE  # its kernels take it whole and alone
            blocks.append(item)
    if not blocks:
        return OpPattern.OPAQUE
    kinds = [_block_pattern(block) for block in blocks]
    if OpPattern.OPAQUE in kinds or len(_written(func)) != 1:
        return OpPattern.OPAQUE
    if len(kinds) == 1:
        return kinds[0]
    worst = max(kinds)
    if worst <= OpPattern.INJECTIVE:
        return OpPattern.INJECTIVE
    # Several stages, one of which reduces: what follows may join if the last stage lets it.
    last = kinds[-1]
    if last <= OpPattern.INJECTIVE or last == OpPattern.OUTPUT_FUSABLE:
        return OpPattern.OUTPUT_FUSABLE
    return OpPattern.REDUCTION


def is_read_once(func: PrimFunc, buffer: Buffer) -> bool:
    """Whether each stage that reads an operand runs once per element of it, as a norm does.

    The operand may then be computed where it is read; a matrix product would recompute it.
    """
    elements = count_elements(buffer.shape)
    return all(
        count_elements([item.dom.extent for item in block.iter_vars]) == elements
        for block in collect(func.root.body, Block)
        if any(load.buffer is buffer for load in collect(block.body, BufferLoad))
    )


def count_elements(extents: Sequence[Expr]) -> tuple[int, list[str]]:
    """Return the product of the constant extents, and the symbolic ones as text."""
    numbers = [value for extent in extents if (value := as_int(extent)) is not None]
    return math.prod(numbers), sorted(repr(e) for e in extents if as_int(e) is None)


def _written(func: PrimFunc) -> set[Buffer]:
    params = set(func.buffers)
    return {
        item.buffer
        for item in pre_order(func.body)
        if isinstance(item, BufferStore) and item.buffer in params
    }


def _block_pattern(block: Block) -> OpPattern:
    stores = collect(block.body, BufferStore)
    if len({store.buffer for store in stores}) != 1:
        return OpPattern.OPAQUE
    if any(isinstance(item, Block) for item in pre_order(block.body)):
        return OpPattern.OPAQUE
    reduces = block.init is not None or any(v.kind == REDUCE for v in block.iter_vars)
    store = stores[0]
    if reduces:
        return _reduction_pattern(store)
    spatial = {v.var for v in block.iter_vars if v.kind == SPATIAL}
    where = [index for index in store.indices if not is_const(index, 0)]
    if any(type(index) is not Var or index not in spatial for index in where):
        return OpPattern.OPAQUE
    kind = OpPattern.ELEMENTWISE
    for load in pre_order(store.value):
        if isinstance(load, BufferLoad):
            if load.buffer is store.buffer:
                return OpPattern.OPAQUE
            kind = max(kind, _load_pattern(load, store.indices, where))
    return kind


def _load_pattern(load: BufferLoad, stored: tuple[Expr, ...], where: list[Expr]) -> OpPattern:
    if len(load.indices) == len(stored) and all(map(_same, load.indices, stored)):
        return OpPattern.ELEMENTWISE
    # A subsequence of the written axes (zeros where an extent of one is repeated).
    position = 0
    for index in load.indices:
        if is_const(index, 0):
            continue
        while position < len(where) and where[position] is not index:
            position += 1
        if position == len(where):
            return OpPattern.INJECTIVE
        position += 1
    return OpPattern.BROADCAST


def _same(a: Expr, b: Expr) -> bool:
    return a is b or expr_equal(a, b)


def _reduction_pattern(store: BufferStore) -> OpPattern:
    """A contraction multiplies elements of two tensors; anything else is a reduction."""
    sources = {
        item.buffer
        for item in pre_order(store.value)
        if isinstance(item, BufferLoad) and item.buffer is not store.buffer
    }
    return OpPattern.OUTPUT_FUSABLE if len(sources) >= 2 else OpPattern.REDUCTION
