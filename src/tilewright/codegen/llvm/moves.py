"""16-bit floats that are only moved: as bits, since computing with them would convert twice.

A value in a register has single precision. What a store takes from memory as it is (a load, lanes
picked from some, zero where a condition doesn't hold) is read, moved and written as ``uint16``.
"""

from __future__ import annotations

from tilewright.ir import (
    Broadcast,
    Call,
    Expr,
    FloatImm,
    IntImm,
    Mutator,
    Select,
    Shuffle,
    dtypes,
    pre_order,
)
from tilewright.tir import Buffer, BufferLoad, BufferStore
from tilewright.tir.transform.legalize_float import number_bits

BITS = "uint16"
_SMALL = ("float16", "bfloat16")


def moved_as_bits(store: BufferStore) -> BufferStore:
    """Return the store on ``uint16``, or itself if it computes, or stores something else."""
    if store.buffer.dtype not in _SMALL or not _only_moves(store.value, store.buffer.dtype):
        return store
    bits = _Bits(store.buffer.dtype)
    return BufferStore(bits.view(store.buffer), bits.visit(store.value), store.indices)


def _only_moves(value: Expr, dtype: str) -> bool:
    """Whether a value has this element type throughout and comes from memory unchanged."""
    if dtypes.element_of(value.dtype) != dtype:
        return False
    if isinstance(value, (BufferLoad, FloatImm)):
        return True
    if isinstance(value, Broadcast):
        return _only_moves(value.value, dtype)
    if isinstance(value, Shuffle):
        return all(_only_moves(vector, dtype) for vector in value.vectors)
    if isinstance(value, Select):
        sides = (value.true_value, value.false_value)
    elif isinstance(value, Call) and value.op.name == "if_then_else":
        sides = (value.args[1], value.args[2])
    else:
        return False
    condition = value.condition if isinstance(value, Select) else value.args[0]
    computes = any(
        isinstance(item, (BufferLoad, FloatImm)) and dtypes.element_of(item.dtype) == dtype
        for item in pre_order(condition)
    )
    return not computes and all(_only_moves(side, dtype) for side in sides)


class _Bits(Mutator):
    """Rewrites the moved values; indices and conditions hold none of them."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def view(self, buffer: Buffer) -> Buffer:
        """The same memory, as integers."""
        made: Buffer = buffer.replace(dtype=BITS)
        return made

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        if node.buffer.dtype != self.dtype:
            return node
        return BufferLoad(self.view(node.buffer), node.indices)

    def visit_FloatImm(self, node: FloatImm) -> Expr:
        if dtypes.element_of(node.dtype) != self.dtype:
            return node
        return IntImm(BITS, number_bits(node.value, self.dtype))

    def visit_Call(self, node: Call) -> Call:
        made = self.generic_visit(node)
        if dtypes.element_of(node.dtype) != self.dtype:
            return made
        return Call.of_fields(
            node.op, made.args, dtypes.vector_dtype(BITS, dtypes.lanes_of(node.dtype))
        )
