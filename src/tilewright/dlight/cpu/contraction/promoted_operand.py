"""Contractions of 16-bit floats, and of decoded constants, that are computed in float32.

Vectors are converted where they are loaded, which is cheap since several rows share them. Scalars
that are broadcast would be converted at each use. So an operand that is not constant is converted
once, into a copy, and tiled as float32. Constant operands that are loaded as vectors stay narrow:
half the bytes to read. Those that are loaded as scalars (filters of a convolution) become float32
where they are packed, when the program is built.

Encoded constants (8-bit weights with scales and zero points) are decoded in registers in the same
way, if they are loaded as vectors.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from tilewright.dlight.cpu.contraction.plan import rank_plans
from tilewright.dlight.cpu.contraction.tiled_reduction import TiledReduction
from tilewright.ir import (
    Cast,
    Expr,
    Mutator,
    Var,
    cast,
    collect,
    dtypes,
    free_vars,
    substitute,
    uses_var,
)
from tilewright.scheduling import (
    Contraction,
    NotApplicable,
    ReadInstead,
    ScheduleRule,
    block_named,
    contraction_of,
    depends,
    describe,
    first_applied,
    over,
    replaced_nest,
    with_block,
)
from tilewright.scheduling.cpu import is_costly, is_injective, loads_of, stores_of, work_of
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
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
from tilewright.tir.analysis import has_branch
from tilewright.tir.attrs import LAYOUT_REWRITE
from tilewright.tir.schedule import KERNELS, Schedule
from tilewright.tir.schedule.handles import BlockRV

# Names that stand in records.
WIDENED_OPERAND, WIDENED_COPY = "widened_operand", "widened_copy"
logger = logging.getLogger("tilewright.dlight")

_SMALL = ("float16", "bfloat16")
_WIDE = "float32"
# What copies of narrow operands are of, and what they are converted to where they are read.
_WIDER = {
    **dict.fromkeys(_SMALL, (_WIDE, _WIDE)),
    **dict.fromkeys(("int8", "uint8"), ("int16", "int32")),
}


class PromotedOperand(ScheduleRule):
    """Applies to reductions that reuse narrow operands converted to float32.

    The result is scheduled by the first of ``rules`` that applies.
    """

    def __init__(self, *rules: ScheduleRule) -> None:
        self.rules = rules or (TiledReduction(),)

    def apply(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        """Convert reused operands once, constants in registers; leave the rest to other rules."""
        found = describe(sch)
        if isinstance(found, NotApplicable):
            return found
        decoded = _decoded_in_registers(sch, found, target)
        names = [load.buffer.name for load in _narrow_operands(decoded or found, target)]
        if not names and decoded is None:
            return NotApplicable("no narrow operand is used many times")
        for name in names:
            sch.use_kernel("root", WIDENED_OPERAND, {"block": found.main.name, "operand": name})
        scalars = _constant_scalars(decoded or found)
        made = first_applied(sch, self.rules, target)
        if isinstance(made, NotApplicable):
            return made
        for name in scalars:
            try:
                made.use_kernel("root", WIDENED_COPY, {"operand": name})
            except ScheduleError as error:
                # It isn't packed, and is converted where it is read.
                logger.debug("constant operand: %s", error.summary)
        return made


def _decoded_in_registers(sch: Schedule, found: Contraction, target: Target) -> Contraction | None:
    """Inline the widening of constants into its use, if they are vectors; describe the result.

    8-bit weights with scales are a quarter of their decoded size, which would otherwise be written
    to memory and read again. A vector is decoded once for all rows of a tile.
    """
    attempt, sources = sch.copy(), []
    for rv in sch.get_producers(found.main):
        if len(sch.get_consumers(rv)) == 1 and _widens_constants(sch, rv, found.constants):
            sources.append(max(loads_of(sch.get(rv)), key=lambda load: load.buffer.ndim).buffer)
            attempt.compute_inline(rv)
    made = contraction_of(attempt, found.main)
    if not sources or isinstance(made, NotApplicable):
        return None
    best = next(iter(rank_plans(made, target)), None)
    if best is None or best.transposed or made.store.indices[-1] is not best.vector.var:
        return None
    if not all(depends(load, best.vector) for load in made.loads if load.buffer in sources):
        return None  # scalars would be decoded for each vector
    sch.become(attempt)
    return made


def _widens_constants(sch: Schedule, rv: BlockRV, known: Collection[Buffer]) -> bool:
    """Whether a block widens constants elementwise and cheaply."""
    block = sch.get(rv)
    if not is_injective(sch, rv) or has_branch(block) or is_costly(block):
        return False
    wide = dtypes.bytes_of(stores_of(block)[0].buffer.dtype)
    sizes = [
        dtypes.bytes_of(load.buffer.dtype)
        for load in loads_of(block)
        if load.buffer.ndim == len(block.iter_vars)
    ]
    constant = all(region.buffer in known for region in block.reads)
    return constant and bool(sizes) and max(sizes) < wide


def _constant_scalars(found: Contraction) -> list[str]:
    """16-bit constants that neighbouring results share."""
    last = set(free_vars(found.store.indices[-1])) if found.store.indices else set()
    return [
        load.buffer.name
        for load in found.loads
        if load.buffer in found.constants
        and load.buffer.dtype in _SMALL
        and last
        and not uses_var(load, last)
    ]


def _narrow_operands(found: Contraction, target: Target) -> list[BufferLoad]:
    """Non-constant operands that are converted wherever they are read."""
    casts, narrow = collect(found.block.body, Cast), []
    for load in found.loads:
        same = [item for item in found.loads if item.buffer is load.buffer]
        wide = [c for c in casts if c.value is load and c.dtype == _WIDE]
        around = [axis for axis in found.spatial if not depends(load, axis)]
        if load.buffer.dtype not in _SMALL or load.buffer in found.constants or len(same) != 1:
            continue
        if len(wide) == 1 and work_of(around) >= target.costs.promotion_uses:
            narrow.append(load)
    return narrow


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
    """The function with the packed copy of an ``operand`` in float32."""
    operand = options.get("operand")
    copies = [
        block
        for block in collect(func.body, Block)
        if block.annotations.get(LAYOUT_REWRITE)
        and [region.buffer.name for region in block.reads] == [operand]
        and len(block.writes) == 1
    ]
    if len(copies) != 1 or copies[0].writes[0].buffer.dtype not in _SMALL:
        return f"{operand!r} is packed into {len(copies)} copies of 16-bit floats, not into one"
    narrow = copies[0].writes[0].buffer
    wide = decl_buffer(narrow.shape, _WIDE, narrow.name, scope=narrow.scope)
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
        return BufferStore(self.wide, cast(made.value, _WIDE), made.indices)

    def visit_Cast(self, node: Cast) -> Expr:
        """Drop conversions of wide values."""
        load = node.value
        if isinstance(load, BufferLoad) and load.buffer is self.narrow and node.dtype == _WIDE:
            return BufferLoad(self.wide, tuple(self.visit(index) for index in load.indices))
        made: Expr = self.generic_visit(node)
        return made

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        """Narrow again where the unconverted value is used."""
        made: BufferLoad = self.generic_visit(node)
        if made.buffer is not self.narrow:
            return made
        return cast(BufferLoad(self.wide, made.indices), self.narrow.dtype)
