"""Contractions of 16-bit floats, and of decoded constants, that are computed in float32.

Vectors are converted where they are loaded, which is cheap since several rows share them. Scalars
that are broadcast would be converted at each use. So an operand that is not constant is converted
once, into a copy, and tiled as float32. Constant operands that are loaded as vectors stay narrow:
half the bytes to read; where many tiles of rows go through a panel, ``TiledReduction`` converts it
once. Those that are loaded as scalars (filters of a convolution) become float32
where they are packed, when the program is built.

Encoded constants (8-bit weights with scales and zero points) are decoded in registers in the same
way, if they are loaded as vectors.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from tilewright.dlight.cpu.contraction.plan import rank_plans
from tilewright.dlight.cpu.contraction.tiled_reduction import TiledReduction
from tilewright.dlight.cpu.contraction.wider_copies import (
    SMALL,
    WIDE,
    WIDENED_COPY,
    WIDENED_OPERAND,
)
from tilewright.ir import (
    Cast,
    collect,
    dtypes,
    free_vars,
    uses_var,
)
from tilewright.scheduling import (
    Contraction,
    CPUScheduleRule,
    NotApplicable,
    ScheduleRule,
    contraction_of,
    depends,
    describe,
    first_applied,
)
from tilewright.scheduling.cpu import is_costly, is_injective, loads_of, stores_of, work_of
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import (
    Buffer,
    BufferLoad,
)
from tilewright.tir.analysis import has_branch
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

logger = logging.getLogger("tilewright.dlight")


class PromotedOperand(CPUScheduleRule):
    """Applies to reductions that reuse narrow operands converted to float32.

    The result is scheduled by the first of ``rules`` that applies.
    """

    def __init__(self, *rules: ScheduleRule) -> None:
        self.rules = rules or (TiledReduction(),)

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
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
        and load.buffer.dtype in SMALL
        and last
        and not uses_var(load, last)
    ]


def _narrow_operands(found: Contraction, target: Target) -> list[BufferLoad]:
    """Non-constant operands that are converted wherever they are read."""
    casts, narrow = collect(found.block.body, Cast), []
    for load in found.loads:
        same = [item for item in found.loads if item.buffer is load.buffer]
        wide = [c for c in casts if c.value is load and c.dtype == WIDE]
        around = [axis for axis in found.spatial if not depends(load, axis)]
        if load.buffer.dtype not in SMALL or load.buffer in found.constants or len(same) != 1:
            continue
        if len(wide) == 1 and work_of(around) >= target.costs.promotion_uses:
            narrow.append(load)
    return narrow
