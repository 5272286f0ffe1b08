"""Copies of narrow operands in a wider type, made by rewriting a function.

``widened_operand`` makes a copy of a whole operand, ``widened_copy`` changes the type of a copy
that is there. What is read from them needs no conversion.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import Cast, Expr, Mutator, Var, cast, collect, substitute
from tilewright.scheduling import ReadInstead, block_named, over, replaced_nest, with_block
from tilewright.scheduling.cpu import loads_of
from tilewright.tir import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    PrimFunc,
    Stmt,
    decl_buffer,
    fresh_name,
)
from tilewright.tir.schedule import KERNELS

# Names that stand in records.
WIDENED_OPERAND, WIDENED_COPY = "widened_operand", "widened_copy"

SMALL, WIDE = ("float16", "bfloat16"), "float32"
# What copies of narrow operands are of, and what they are converted to where they are read.
_WIDER = {
    **dict.fromkeys(SMALL, (WIDE, WIDE)),
    **dict.fromkeys(("int8", "uint8"), ("int16", "int32")),
}


@KERNELS.decorator(WIDENED_OPERAND)
def widened_operand(func: PrimFunc, options: Mapping[str, object]) -> Block | str:
    """The function with a wider copy of an operand, which a block reads instead.

    16-bit floats become float32, bytes int16. Options name the ``block`` and the buffer of the
    ``operand``.
    """
    block, operand = block_named(func, options.get("block")), options.get("operand")
    if block is None:
        return f"there is no block {options.get('block')!r}"
    loads = [load for load in loads_of(block) if load.buffer.name == operand]
    if not loads or loads[0].dtype not in _WIDER:
        return f"{operand!r} is no operand of {', '.join(_WIDER)}"
    dtype, used = _WIDER[loads[0].dtype]
    wide = {id(c.value) for c in collect(block.body, Cast) if c.dtype == used}
    if any(id(load) not in wide for load in loads):
        return f"{operand!r} isn't converted to {used} wherever it is read"
    source = loads[0].buffer
    taken = {buffer.name for buffer in (*func.buffers, *func.root.alloc_buffers)}
    taken |= {item.name for item in collect(func.body, Block)}
    name = fresh_name(f"{source.name}_wide", taken)
    copy = decl_buffer(source.shape, dtype, name)

    def widen(*at: Var) -> BufferStore:
        return BufferStore(copy, cast(BufferLoad(source, at), dtype), at)

    def write(nest: Stmt) -> list[Stmt]:
        body = ReadInstead(source, copy).visit(block.body)
        return [over(copy.shape, widen, name), with_block(nest, block.replace(body=body))]

    made = replaced_nest(func, block, write, (copy,))
    return "the block's loops are not by themselves" if made is None else made


@KERNELS.decorator(WIDENED_COPY)
def widened_copy(func: PrimFunc, options: Mapping[str, object]) -> Block | str:
    """The function with the only copy of an ``operand`` in float32."""
    operand = options.get("operand")
    copies = [
        block
        for block in collect(func.body, Block)
        if [region.buffer.name for region in block.reads] == [operand]
        and len(block.writes) == 1
        and block.init is None
    ]
    if len(copies) != 1 or copies[0].writes[0].buffer.dtype not in SMALL:
        return f"{operand!r} is packed into {len(copies)} copies of 16-bit floats, not into one"
    narrow = copies[0].writes[0].buffer
    wide = decl_buffer(narrow.shape, WIDE, narrow.name, scope=narrow.scope)
    allocated = tuple(wide if item is narrow else item for item in func.root.alloc_buffers)
    if wide not in allocated:
        return f"the copy of {operand!r} is not at the root of the function"
    root = substitute(_Widened(narrow, wide).visit(func.root), {narrow: wide})
    made: Block = root.replace(alloc_buffers=allocated)
    return made


class _Widened(Mutator):
    """Stores converted values to another buffer, and drops conversions of reads from it."""

    def __init__(self, narrow: Buffer, wide: Buffer) -> None:
        self.narrow, self.wide = narrow, wide

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        """Convert where the copy is written."""
        made: BufferStore = self.generic_visit(node)
        if made.buffer is not self.narrow:
            return made
        return BufferStore(self.wide, cast(made.value, WIDE), made.indices)

    def visit_Cast(self, node: Cast) -> Expr:
        """Drop conversions of wide values."""
        load = node.value
        if isinstance(load, BufferLoad) and load.buffer is self.narrow and node.dtype == WIDE:
            return BufferLoad(self.wide, tuple(self.visit(index) for index in load.indices))
        made: Expr = self.generic_visit(node)
        return made

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        """Narrow again where the unconverted value is used."""
        made: BufferLoad = self.generic_visit(node)
        if made.buffer is not self.narrow:
            return made
        return cast(BufferLoad(self.wide, made.indices), self.narrow.dtype)
