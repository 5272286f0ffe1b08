"""Queries of rules about a block: its kind, and how its loops and accesses relate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ir import Call, Expr, Var, as_int, collect, free_vars
from tilewright.meta_schedule.schedule_rule.base import NotApplicable
from tilewright.scheduling.cpu import EXPENSIVE
from tilewright.tir import (
    REDUCE,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
)
from tilewright.tir.analysis import block_dependencies, is_output_block
from tilewright.tir.attrs import LAYOUT_REWRITE, TILED
from tilewright.tir.layout_rewrite import constants_of
from tilewright.tir.schedule import BlockRV, Schedule
from tilewright.tir.walk import child_blocks


def is_spatial(block: Block) -> bool:
    """Whether a block computes each element independently: no reduction, nothing opaque."""
    return (
        block.init is None
        and bool(block.iter_vars)
        and all(iter_var.kind == SPATIAL for iter_var in block.iter_vars)
    )


def has_reduction(block: Block) -> bool:
    """Whether a block reduces and still holds its init."""
    return block.init is not None and any(item.kind == REDUCE for item in block.iter_vars)


def single_store(block: Block) -> BufferStore | None:
    """Return a block's body if it is one store and there are no blocks inside."""
    return block.body if type(block.body) is BufferStore else None


def is_expensive(block: Block) -> bool:
    """Whether a block evaluates intrinsics that cost many instructions."""
    return any(item.op.name in EXPENSIVE for item in collect(block.body, Call))


def operations(block: Block) -> int:
    """Operations on data in a block: those that compute indices aren't counted."""
    count = 0
    stack: list[Any] = [block.body]
    while stack:
        node = stack.pop()
        if isinstance(node, BufferStore):
            stack.append(node.value)
        elif not isinstance(node, BufferLoad):
            below = node.child_nodes()
            count += isinstance(node, Expr) and bool(below)
            stack.extend(below)
    return count


def reads_of(block: Block, buffer: Buffer) -> int:
    """How often a block's body reads a buffer."""
    return sum(load.buffer is buffer for load in collect(block.body, BufferLoad))


def is_output(sch: Schedule, block: BlockRV) -> bool:
    """Whether a block writes a buffer that its scope doesn't own."""
    realize = sch.state.get_block(block)
    return is_output_block(realize, sch.state.scope_block(realize))


def own_loops(sch: Schedule, realize: BlockRealize) -> list[For] | None:
    """Return a block's loops if there is one for each axis, in order, and nothing else there."""
    loops = sch.state.loops_above(realize)
    if len(loops) != len(realize.iter_values) or not loops:
        return None
    for loop, value in zip(loops, realize.iter_values):
        if value is not loop.loop_var:
            return None
    if len(child_blocks(loops[0])) != 1:
        return None
    return loops


def why_not_tiled(
    sch: Schedule, block: BlockRV, filter_fn: Callable[[Block], bool] | None
) -> str | None:
    """Return why a block can't be tiled around tensor intrinsics; ``None`` if it may be."""
    realize = sch.state.get_block(block)
    item = realize.block
    if TILED in item.annotations or not has_reduction(item) or single_store(item) is None:
        return "tiled already, or not a reduction"
    if own_loops(sch, realize) is None:
        return "it has no loops of its own"
    if filter_fn is not None and not filter_fn(item):
        return "the filter leaves the block out"
    return None


@dataclass(frozen=True)
class Operand:
    """A buffer that a reduction reads: its position, and the block axes in each of its indices."""

    position: int
    buffer: Buffer
    axes: tuple[frozenset[int], ...]
    is_direct: bool
    """Whether each index is just one axis (or a constant)."""

    @property
    def used(self) -> frozenset[int]:
        """All axes that occur."""
        return frozenset().union(*self.axes) if self.axes else frozenset()


@dataclass(frozen=True)
class Reduction:
    """A reduction block as tiling sees it: extents and kinds of its axes, and its operands."""

    extents: tuple[int, ...]
    spatial: tuple[int, ...]
    reduce: tuple[int, ...]
    output: Buffer
    output_axes: tuple[int, ...]
    """The axis that stands in each index of the output."""
    operands: tuple[Operand, ...]

    def reused(self) -> bool:
        """Whether an operand is read again for different outputs."""
        return any(
            self.extents[axis] > 1 and axis not in operand.used
            for operand in self.operands
            for axis in self.spatial
        )

    def moves_along(self, axis: int) -> bool:
        """Whether consecutive values of an axis read consecutive elements of some operand."""
        return any(operand.axes and axis in operand.axes[-1] for operand in self.operands)


def describe_reduction(sch: Schedule, block: BlockRV) -> Reduction | NotApplicable:
    """Describe a reduction block that no rule has tiled yet."""
    realize = sch.state.get_block(block)
    item = realize.block
    if TILED in item.annotations:
        return NotApplicable("tiled already")
    other = NotApplicable("not a reduction with serial loops of constant extents")
    store = single_store(item)
    if store is None or not has_reduction(item) or own_loops(sch, realize) is None:
        return other
    extents = [as_int(iter_var.dom.extent) for iter_var in item.iter_vars]
    if 0 in extents:
        return NotApplicable("there is nothing to compute")
    if any(extent is None for extent in extents) or len(item.writes) != 1:
        return other
    place: dict[Var, int] = {iter_var.var: n for n, iter_var in enumerate(item.iter_vars)}
    varying = [index for index in store.indices if as_int(index) is None]
    if not all(type(index) is Var and index in place for index in varying):
        return other
    kinds = [iter_var.kind for iter_var in item.iter_vars]
    return Reduction(
        tuple(extent for extent in extents if extent is not None),
        tuple(n for n, kind in enumerate(kinds) if kind == SPATIAL),
        tuple(n for n, kind in enumerate(kinds) if kind == REDUCE),
        store.buffer,
        tuple(place[index] for index in varying if isinstance(index, Var)),
        tuple(_operands(item, store, place)),
    )


def _operands(item: Block, store: BufferStore, place: Mapping[Var, int]) -> list[Operand]:
    """The operands of a reduction besides its result; ``place`` numbers its axes."""
    loads = [load for load in collect(store.value, BufferLoad) if load.buffer is not store.buffer]
    operands = []
    for position, region in enumerate(item.reads):
        own = [load for load in loads if load.buffer is region.buffer]
        if not own:
            continue
        axes = tuple(
            frozenset(
                place[var] for load in own for var in free_vars(load.indices[dim]) if var in place
            )
            for dim in range(region.buffer.ndim)
        )
        is_direct = len(own) == 1 and all(
            type(index) is Var or as_int(index) is not None for index in own[0].indices
        )
        operands.append(Operand(position, region.buffer, axes, is_direct))
    return operands


def elementwise_consumer(sch: Schedule, block: BlockRV) -> str | None:
    """Return the name of the only consumer, if that reads each element once, in place."""
    realize = sch.state.get_block(block)
    scope = sch.state.scope_block(realize)
    graph = block_dependencies(scope)
    consumers = graph.consumers(realize.block.name)
    if len(consumers) != 1 or is_output_block(realize, scope):
        return None
    consumer = graph.children[consumers[0]]
    if not is_spatial(consumer.block) or own_loops(sch, consumer) is None:
        return None
    output = realize.block.writes[0].buffer
    loads = [item for item in collect(consumer.block.body, BufferLoad) if item.buffer is output]
    axes = {iter_var.var for iter_var in consumer.block.iter_vars}
    for load in loads:
        used = [index for index in load.indices if as_int(index) is None]
        if len(set(used)) != len(used) or any(index not in axes for index in used):
            return None
        sizes = {item.var: as_int(item.dom.extent) for item in consumer.block.iter_vars}
        if any(size != 1 for var, size in sizes.items() if var not in used):
            return None
    return consumer.block.name


def layout_free_operand(sch: Schedule, block: BlockRV, operand: Operand) -> bool:
    """Whether an operand is known before the program runs, and only this block reads it."""
    func = sch.state.func(block.func)
    if operand.buffer not in constants_of(func):
        return False
    readers = [
        realize.block.name
        for realize in sch.state.index(block.func).blocks.values()
        if not child_blocks(realize.block)
        and any(region.buffer is operand.buffer for region in realize.block.reads)
    ]
    return readers == [block.name]


def is_prepacking(block: Block) -> bool:
    """Whether a block packs an operand known before the program runs, which costs nothing."""
    return bool(block.annotations.get(LAYOUT_REWRITE))


def lanes_for(dtype_bits: int, vector_bits: int) -> int:
    """Elements in one vector register."""
    return max(1, vector_bits // dtype_bits)
