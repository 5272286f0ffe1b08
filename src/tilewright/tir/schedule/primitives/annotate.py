"""Primitives that attach information: annotations, storage scopes, the start of post-processing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

from tilewright.ir import Mutator
from tilewright.tir import Block, Buffer
from tilewright.tir.schedule.handles import BlockRV, ExprRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.trace import POSTPROC

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule

Annotation = Union[int, float, str, bool, list[Any], dict[str, Any], ExprRV, None]


def _resolved(value: Any) -> Any:
    """Put the values of handles in."""
    if type(value) is ExprRV:
        number = getattr(value.value, "value", None)
        return value.value if number is None else number
    if isinstance(value, list):
        return [_resolved(item) for item in value]
    if isinstance(value, dict):
        return {key: _resolved(item) for key, item in value.items()}
    return value


@primitive
def annotate(
    sch: Schedule, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: Annotation
) -> None:
    """Attach a value to a block or loop under a key; an older value is replaced.

    Preconditions: none
    Before:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    After ``annotate(i, "unroll_hint", 4)``:
        for i in T.serial(16, annotations={"unroll_hint": 4}):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    """
    value = _resolved(ann_val)
    target: Any
    if isinstance(block_or_loop, BlockRV):
        target = sch.state.get_block(block_or_loop).block
    else:
        target = sch.state.get_loop(block_or_loop)
    sch.state.replace(target, target.replace(annotations={**target.annotations, ann_key: value}))


@primitive
def unannotate(sch: Schedule, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
    """Remove an annotation from a block or loop.

    Preconditions:
        - the block or loop has the annotation
    Before:
        for i in T.serial(16, annotations={"unroll_hint": 4}):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    After ``unannotate(i, "unroll_hint")``:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    """
    target: Any
    if isinstance(block_or_loop, BlockRV):
        target = sch.state.get_block(block_or_loop).block
    else:
        target = sch.state.get_loop(block_or_loop)
    if ann_key not in target.annotations:
        raise sch.error(
            f"there is no annotation {ann_key!r}; there are {sorted(target.annotations)}", target
        )
    kept = {key: value for key, value in target.annotations.items() if key != ann_key}
    sch.state.replace(target, target.replace(annotations=kept))


class _BufferChanger(Mutator):
    """Replaces buffers where they are defined by blocks and where they are used."""

    def __init__(self, mapping: Mapping[Buffer, Buffer]) -> None:
        self.mapping = dict(mapping)

    def visit_Buffer(self, node: Buffer) -> Any:
        return self.mapping.get(node, node)

    def visit_Block(self, node: Block) -> Any:
        for match in node.match_buffers:
            made = self.mapping.get(match.source.buffer)
            if made is not None and match.buffer.scope != made.scope:
                self.mapping[match.buffer] = match.buffer.replace(scope=made.scope)
        made_block = self.generic_visit(node)
        if any(buffer in self.mapping for buffer in node.alloc_buffers):
            made_block = made_block.replace(
                alloc_buffers=tuple(self.mapping.get(item, item) for item in node.alloc_buffers)
            )
        if any(match.buffer in self.mapping for match in node.match_buffers):
            made_block = made_block.replace(
                match_buffers=tuple(
                    match.replace(buffer=self.mapping.get(match.buffer, match.buffer))
                    for match in made_block.match_buffers
                )
            )
        return made_block


def change_buffers(node: Any, mapping: Mapping[Buffer, Buffer]) -> Any:
    """Replace buffers everywhere below ``node``, their definitions by blocks included."""
    return _BufferChanger(mapping).visit(node)


def allocating_block(sch: Schedule, stmt: Any, buffer: Buffer) -> Block:
    """Return the block around ``stmt`` (or ``stmt``) that allocates ``buffer``."""
    for item in (stmt, *sch.state.parents(stmt)):
        if isinstance(item, Block) and any(buffer is own for own in item.alloc_buffers):
            return item
    raise sch.error(
        f"buffer {buffer.name!r} is a parameter or a matched buffer, not an intermediate one", stmt
    )


def written_buffer(sch: Schedule, block: Block, buffer_index: int | str) -> Buffer:
    """Return a buffer that a block writes, by position or name."""
    if isinstance(buffer_index, str):
        for region in block.writes:
            if region.buffer.name == buffer_index:
                return region.buffer
        names = ", ".join(repr(region.buffer.name) for region in block.writes)
        raise sch.error(f"the block does not write {buffer_index!r}; it writes {names}", block)
    if not 0 <= buffer_index < len(block.writes):
        raise sch.error(
            f"the block writes {len(block.writes)} buffers; there is no number {buffer_index}",
            block,
        )
    return block.writes[buffer_index].buffer


@primitive
def set_scope(sch: Schedule, block: BlockRV, buffer_index: int | str, storage_scope: str) -> None:
    """Put the intermediate buffer that a block writes into another memory.

    After ``set_scope(block, 0, "local")``:
        B = T.alloc_buffer((128, 128), scope="local")
    """
    realize = sch.state.get_block(block)
    buffer = written_buffer(sch, realize.block, buffer_index)
    if not storage_scope:
        raise sch.error("the storage scope must be named", realize)
    owner = allocating_block(sch, realize.block, buffer)
    if buffer.scope == storage_scope:
        return
    made = change_buffers(owner, {buffer: buffer.replace(scope=storage_scope)})
    sch.state.replace(owner, made)


@primitive
def enter_postproc(sch: Schedule) -> None:
    """Mark in the trace where post-processing begins; the program stays as it is."""


assert enter_postproc.__name__ == POSTPROC
