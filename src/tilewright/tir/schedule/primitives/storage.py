"""How an intermediate buffer is stored: its memory, the alignment of its rows, its element type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ir import Call, Expr, Mutator, Node, cast, pre_order
from tilewright.tir import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    MatchBufferRegion,
    Stmt,
    access_dtype,
)
from tilewright.tir.attrs import BUFFER_DIM_ALIGN, wrong_annotation
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._element_rewriter import ElementRewriter
from tilewright.tir.schedule.vocabulary import ElementType, StorageScope

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


class _BufferChanger(Mutator):
    """Replaces buffers in the blocks that define them and where they are used."""

    def __init__(self, mapping: Mapping[Buffer, Buffer]) -> None:
        self.mapping = dict(mapping)

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return self.mapping.get(node, node)

    def visit_Block(self, node: Block) -> Block:
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


def change_buffers(node: Node, mapping: Mapping[Buffer, Buffer]) -> Any:
    """Replace buffers everywhere below ``node``, their definitions by blocks included."""
    return _BufferChanger(mapping).visit(node)


def allocating_block(sch: Schedule, stmt: Block, buffer: Buffer) -> Block:
    """Return the block around ``stmt`` (or ``stmt``) that allocates ``buffer``."""
    for item in (stmt, *sch.state.parents(stmt)):
        if isinstance(item, Block) and any(buffer is own for own in item.alloc_buffers):
            return item
    raise sch.error(
        f"buffer {buffer.name!r} is a parameter or a matched buffer, not an intermediate one",
        stmt,
        remedy="cache_write the buffer, and apply the primitive to the copy",
    )


def _check_one_name(sch: Schedule, owner: Block, buffer: Buffer) -> None:
    """Refuse if something relies on the layout of an allocated buffer."""
    for node in pre_order(owner):
        others: tuple[Buffer, ...] = ()
        if isinstance(node, Block):
            others = node.alloc_buffers
        elif isinstance(node, DeclBuffer):
            others = (node.buffer,)
        for other in others:
            if other is not buffer and other.data is buffer.data:
                raise sch.error(
                    f"{buffer.name} and {other.name} are names of the same memory, so its layout "
                    "can't change",
                    node,
                    remedy="use one name for the memory",
                )
        taken = (
            isinstance(node, Call) and node.op.name in ("address_of", "tile_of") and _loaded(node)
        )
        if node is buffer.data or (taken and buffer in taken):
            raise sch.error(
                f"buffer {buffer.name!r} is used through its pointer, so its layout can't change",
                owner,
            )


def _loaded(call: Call) -> list[Buffer]:
    return [arg.buffer for arg in call.args if isinstance(arg, BufferLoad)]


def written_buffer(sch: Schedule, block: Block, buffer_index: int | str) -> tuple[int, Buffer]:
    """Return position and buffer of what a block writes, by position or name."""
    if isinstance(buffer_index, str):
        for position, region in enumerate(block.writes):
            if region.buffer.name == buffer_index:
                return position, region.buffer
        names = ", ".join(repr(region.buffer.name) for region in block.writes)
        raise sch.error(f"the block does not write {buffer_index!r}; it writes {names}", block)
    if not 0 <= buffer_index < len(block.writes):
        raise sch.error(
            f"the block writes {len(block.writes)} buffers; there is no number {buffer_index}",
            block,
        )
    return buffer_index, block.writes[buffer_index].buffer


@primitive
def set_scope(
    sch: Schedule, block: BlockRV, buffer_index: int | str, storage_scope: StorageScope
) -> None:
    """Place the intermediate buffer that a block writes in another memory.

    ``buffer_index`` counts the buffers that the block writes, or is a buffer's name. Memories are
    ``global``, ``local``, ``shared``, ``shared.dyn``, ``warp``, ``wmma.accumulator`` and others of
    the target.

    Preconditions:
        - the block writes the buffer
        - the buffer is allocated in the function
        - ``storage_scope`` is the name of a memory
    Before:
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    After ``set_scope(B, 0, "local")``:
        B = T.alloc_buffer((16,), scope="local")
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    """
    realize = sch.state.get_block(block)
    _, buffer = written_buffer(sch, realize.block, buffer_index)
    owner = allocating_block(sch, realize.block, buffer)
    if buffer.scope == storage_scope:
        return
    made = change_buffers(owner, {buffer: buffer.replace(scope=storage_scope)})
    sch.state.replace(owner, made)


@primitive(marks=True)
def storage_align(
    sch: Schedule, block: BlockRV, buffer_index: int | str, axis: int, factor: int, offset: int
) -> None:
    """Request ``stride[axis] % factor == offset`` for the buffer that a block writes.

    Padding between rows keeps threads that go down a column in different memory banks. A negative
    ``axis`` counts from the end; for each axis of a buffer, the last call takes effect.

    Preconditions:
        - the block writes the buffer
        - the buffer is allocated in the function
        - the buffer's memory has no other name, and is not used through its pointer
        - ``axis`` is a dimension of the buffer
        - ``factor`` is positive and ``offset`` lies in ``[0, factor)``
    Before:
        B = T.alloc_buffer((16, 32))
        for i, j in T.grid(16, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + 1.0
    After ``storage_align(B, 0, 0, 32, 1)``:
        B = T.alloc_buffer((16, 32))
        for i, j in T.grid(16, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.block_attr({"buffer_dim_align": [[0, 0, 32, 1]]})
                B[vi, vj] = A[vi, vj] + 1.0
    """
    realize = sch.state.get_block(block)
    position, buffer = written_buffer(sch, realize.block, buffer_index)
    _check_one_name(sch, allocating_block(sch, realize.block, buffer), buffer)
    if not -buffer.ndim <= axis < buffer.ndim:
        raise sch.error(
            f"{buffer.name} has {buffer.ndim} dimensions; there is no axis {axis}", realize
        )
    if factor <= 0 or not 0 <= offset < factor:
        raise sch.error(
            f"factor {factor} must be positive and offset {offset} lie in [0, factor): no stride "
            "has another remainder",
            realize,
        )
    axis %= buffer.ndim
    known = realize.block.annotations.get(BUFFER_DIM_ALIGN, ())
    kept = [list(entry) for entry in known if list(entry[:2]) != [position, axis]]
    annotations = {
        **realize.block.annotations,
        BUFFER_DIM_ALIGN: [*kept, [position, axis, factor, offset]],
    }
    made = realize.block.replace(annotations=annotations)
    wrong = wrong_annotation(made)
    if wrong is not None:
        raise sch.error(wrong, realize)
    sch.state.replace(realize.block, made)


@primitive
def unsafe_set_dtype(
    sch: Schedule, block: BlockRV, buffer_index: int | str, dtype: ElementType
) -> None:
    """Store the intermediate buffer that a block writes with another element type.

    Values are cast when they are stored and cast back when they are loaded. Unsafe: the narrower
    type may not hold them, and results differ by its rounding.

    Preconditions:
        - the block writes the buffer
        - the buffer is allocated in the function
        - the buffer is accessed by its elements only: not matched by another, nor used through
          its pointer
        - ``dtype`` is the type of one number
        - no threads combine a reduction into the buffer: with another type they could not
    Before:
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
        for i in range(16):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = B[vi] * 2.0
    After ``unsafe_set_dtype(B, 0, "float16")``:
        B = T.alloc_buffer((16,), "float16")
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = T.Cast("float16", A[vi] + 1.0)
        for i in range(16):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = T.Cast("float32", B[vi]) * 2.0
    """
    realize = sch.state.get_block(block)
    _, buffer = written_buffer(sch, realize.block, buffer_index)
    owner = allocating_block(sch, realize.block, buffer)
    if buffer.dtype == dtype:
        return
    made = _DtypeChanger(sch.state, realize, buffer, buffer.with_fresh_data(dtype=dtype)).visit(
        owner
    )
    sch.state.replace(owner, made)


class _DtypeChanger(ElementRewriter):
    """Replaces a buffer by one of another element type, with casts around each access."""

    change = "its type can't be changed in all places"

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return self.new if node is self.old else node

    def visit_MatchBufferRegion(self, node: MatchBufferRegion) -> MatchBufferRegion:
        if node.source.buffer is self.old:
            raise self.refuse(f"is matched by {node.buffer.name}")
        return self.generic_visit(node)

    def visit_Block(self, node: Block) -> Block:
        made = self.generic_visit(node)
        self.check_not_aliased(node)
        if self.old not in node.alloc_buffers:
            return made
        swapped = tuple(self.new if item is self.old else item for item in node.alloc_buffers)
        return made.replace(alloc_buffers=swapped)

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        indices = tuple(map(self.visit, node.indices))
        if node.buffer is not self.old:
            return node.replace(indices=indices) if indices != node.indices else node
        return cast(BufferLoad(self.new, indices), node.dtype)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        made: BufferStore = self.generic_visit(node)
        if node.buffer is not self.old:
            return made
        wanted = access_dtype(self.new, made.indices)
        return BufferStore(self.new, cast(made.value, wanted), made.indices)
