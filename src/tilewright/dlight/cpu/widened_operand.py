"""Contractions of 16-bit floats that are computed in float32.

Vectors are converted where they are loaded, which costs little next to the rows that share them.
Scalars that are broadcast would be converted at each use. So an operand that comes at run time is
converted once, into a copy, and tiled as one of float32. Constant operands stay as they are: half
the bytes to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.dlight.base import NotApplicable, ScheduleRule, first_applied
from tilewright.dlight.cpu.blocks import (
    axes_of,
    loads_of,
    sole_reduction,
    work_of,
)
from tilewright.dlight.cpu.dot_product import _constants
from tilewright.dlight.cpu.nests import ReadInstead, block_named, over, replaced_nest, with_block
from tilewright.dlight.cpu.tiled_reduction import TiledReduction
from tilewright.ir import Cast, Var, cast, collect, uses_var
from tilewright.target import Target
from tilewright.tir import (
    Block,
    BufferLoad,
    BufferStore,
    PrimFunc,
    Stmt,
    decl_buffer,
    fresh_name,
)
from tilewright.tir.schedule import KERNELS, Schedule
from tilewright.tir.schedule.handles import BlockRV

WIDENED_OPERAND = "widened_operand"
_SMALL = ("float16", "bfloat16")
_WIDE = "float32"
# Uses of an element from which converting it once is worth a copy.
_USES = 32


class WidenedOperand(ScheduleRule):
    """Applies to reductions that read 16-bit floats, converted to float32, many times.

    What they become is scheduled by the first of ``rules`` that applies.
    """

    def __init__(self, *rules: ScheduleRule) -> None:
        self.rules = rules or (TiledReduction(),)

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Convert operands once; the rest is left to rules for float32."""
        opening = sole_reduction(sch)
        if isinstance(opening, NotApplicable):
            return opening
        main, _ = opening
        names = [load.buffer.name for load in _narrow_operands(sch, main)]
        if not names:
            return NotApplicable("no 16-bit operand is used many times")
        for name in names:
            sch.use_kernel("root", WIDENED_OPERAND, {"block": main.name, "operand": name})
        return first_applied(sch, self.rules, target)


def _narrow_operands(sch: Schedule, rv: BlockRV) -> list[BufferLoad]:
    """Operands that are converted wherever they are read, and change from call to call."""
    block, axes = sch.get(rv), axes_of(sch, rv) or []
    constants = _constants(sch.mod["main"])
    casts = collect(block.body, Cast)
    found = []
    for load in loads_of(block):
        same = [item for item in loads_of(block) if item.buffer is load.buffer]
        wide = [c for c in casts if c.value is load and c.dtype == _WIDE]
        around = [
            axis
            for axis in axes
            if not axis.is_reduce and not any(uses_var(i, {axis.var}) for i in load.indices)
        ]
        if load.buffer.dtype not in _SMALL or load.buffer in constants or len(same) != 1:
            continue
        if len(wide) == 1 and work_of(around) >= _USES:
            found.append(load)
    return found


@KERNELS.decorator(WIDENED_OPERAND)
def widened_operand(func: PrimFunc, options: Mapping[str, Any]) -> Block | str:
    """The function with a copy in float32 of an operand, that a block reads in its place.

    Options name the ``block`` and the buffer of the ``operand``.
    """
    block, operand = block_named(func, options.get("block")), options.get("operand")
    if block is None:
        return f"there is no block {options.get('block')!r}"
    loads = [load for load in loads_of(block) if load.buffer.name == operand]
    wide = {id(c.value) for c in collect(block.body, Cast) if c.dtype == _WIDE}
    if not loads or any(id(load) not in wide or load.dtype not in _SMALL for load in loads):
        return f"{operand!r} is no operand of 16-bit floats that are converted to {_WIDE}"
    source = loads[0].buffer
    taken = {buffer.name for buffer in (*func.buffers, *func.root.alloc_buffers)}
    taken |= {item.name for item in collect(func.body, Block)}
    name = fresh_name(f"{source.name}_wide", taken)
    copy = decl_buffer(source.shape, _WIDE, name)

    def widen(*at: Var) -> BufferStore:
        return BufferStore(copy, cast(BufferLoad(source, at), _WIDE), at)

    def write(nest: Stmt) -> list[Stmt]:
        body = ReadInstead(source, copy).visit(block.body)
        return [over(copy.shape, widen, name), with_block(nest, block.replace(body=body))]

    made = replaced_nest(func, block, write, (copy,))
    return "the block's loops are not by themselves" if made is None else made
