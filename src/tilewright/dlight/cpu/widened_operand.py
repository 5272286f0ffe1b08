"""Contractions of 16-bit floats that are computed in float32.

Vectors are converted where they are loaded, which costs little next to the rows that share them.
Scalars that are broadcast would be converted at each use. So an operand that comes at run time is
converted once, into a copy, and tiled as one of float32. Constant operands stay as they are: half
the bytes to read.
"""

from __future__ import annotations

from tilewright.dlight.base import NotApplicable, ScheduleRule, first_schedule
from tilewright.dlight.cpu.blocks import (
    axes_of,
    inline_injective,
    is_injective,
    leaf_blocks,
    loads_of,
    work_of,
)
from tilewright.dlight.cpu.dot_product import _constants
from tilewright.dlight.cpu.nests import ReadInstead, over, replaced_nest, with_block
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
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

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
        """Convert operands once; the rest is left to rules for float32.

        Not for schedules that record a trace: it would not lead there from the function as it was.
        """
        if sch.trace is not None:
            return NotApplicable("the schedule is recorded, rewriting a function can't be")
        inline_injective(sch)
        reductions = [rv for rv in leaf_blocks(sch) if not is_injective(sch, rv)]
        if len(reductions) != 1:
            return NotApplicable(f"{len(reductions)} reductions, one is expected")
        name = reductions[0].name
        func: PrimFunc = sch.mod["main"]
        loads = _narrow_operands(sch, reductions[0])
        if not loads:
            return NotApplicable("no 16-bit operand is used many times")
        for load in loads:
            widened = _widened(func, _block_named(func, name), load)
            if widened is None:
                return NotApplicable("the reduction's loops are not by themselves")
            func = widened
        made = first_schedule(func, self.rules, target, name=name)
        return NotApplicable("no rule for float32 applies") if made is None else made


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


def _block_named(func: PrimFunc, name: str) -> Block:
    return next(block for block in collect(func.body, Block) if block.name == name)


def _widened(func: PrimFunc, block: Block, load: BufferLoad) -> PrimFunc | None:
    """The function with a copy of an operand in float32, that a block reads in its place."""
    taken = {buffer.name for buffer in (*func.buffers, *func.root.alloc_buffers)}
    taken |= {item.name for item in collect(func.body, Block)}
    name = fresh_name(f"{load.buffer.name}_wide", taken)
    copy = decl_buffer(load.buffer.shape, _WIDE, name)

    def widen(*at: Var) -> BufferStore:
        return BufferStore(copy, cast(BufferLoad(load.buffer, at), _WIDE), at)

    def write(nest: Stmt) -> list[Stmt]:
        body = ReadInstead(load.buffer, copy).visit(block.body)
        return [over(copy.shape, widen, name), with_block(nest, block.replace(body=body))]

    return replaced_nest(func, block, write, (copy,))
