"""Make loops parallel, vectorised and unrolled, as far as the root block's annotations allow.

- Parallel: the outermost loops of each nest, as many as stay within the allowed number of jobs (but
  at least one), fused. Reduction loops are never among them.
- Vectorised: the innermost loop around each block, if it is spatial and runs along memory in what
  the block writes. A loop longer than allowed is split first.
- Unrolled: the innermost loops around each block, from the inside, as long as the copies stay
  within the allowed number of statements. (Lowering unrolls loops that index register tiles by
  itself.) The packing of constant operands runs only once, so it is not unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import as_int, dtypes, uses_var
from tilewright.meta_schedule.postproc.base import Postproc, Rejected
from tilewright.meta_schedule.schedule_rule.patterns import (
    is_expensive,
    is_prepacking,
    lanes_for,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import REDUCE, SERIAL, VECTORIZED, BlockRealize, For, SeqStmt
from tilewright.tir.attrs import PARALLEL_KEY, UNROLL_KEY, VECTORIZE_KEY
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule
from tilewright.tir.schedule.sampling import divisors
from tilewright.tir.walk import child_blocks

_EXPENSIVE_STEPS = 16
"""How many simple statements a statement with an expensive intrinsic counts as."""


class RewriteParallelVectorizeUnroll(Postproc):
    """Follow and remove the root block's annotations; see the module's docstring."""

    name = "rewrite-parallel-vectorize-unroll"

    def __init__(self) -> None:
        self.vector_bits = 256

    def initialize(self, target: Target) -> None:
        """Learn the vector width."""
        self.vector_bits = target.vector_bits

    def apply(self, sch: Schedule) -> Rejected | None:
        """Rewrite all nests of all functions."""
        for func_name in sch.state.func_names():
            root = sch.state.func(func_name).body
            if type(root) is not BlockRealize:
                continue
            wanted = {
                key: as_int(root.block.annotations.get(key, 0)) or 0
                for key in (PARALLEL_KEY, VECTORIZE_KEY, UNROLL_KEY)
            }
            root_rv = sch.get_block(root.block.name, func_name)
            for key in wanted:
                if key in root.block.annotations:
                    sch.unannotate(root_rv, key)
            self._rewrite(sch, func_name, root.block.name, wanted)
        return None

    def _rewrite(self, sch: Schedule, func: str, root: str, wanted: dict[str, int]) -> None:
        leaves = [realize.block.name for realize in leaf_blocks(sch.state.index(func).blocks[root])]
        if wanted[VECTORIZE_KEY] > 1:
            for name in leaves:
                self._vectorize(sch, sch.get_block(name, func), wanted[VECTORIZE_KEY])
        if wanted[PARALLEL_KEY] > 1:
            for name in leaves:
                self._parallelize(sch, BlockRV(func, name), wanted[PARALLEL_KEY])
        if wanted[UNROLL_KEY] > 0:
            for name in leaves:
                self._unroll(sch, sch.get_block(name, func), wanted[UNROLL_KEY])

    def _vectorize(self, sch: Schedule, block: BlockRV, limit: int) -> None:
        realize = sch.state.get_block(block)
        loops = sch.state.loops_above(realize)
        position = vector_loop(realize, loops)
        if position is None:
            return
        loop = loops[position]
        extent = as_int(loop.extent)
        if extent is None or extent == 1 or loop.kind != SERIAL:
            return
        inner = sch.get_loops(block)[position]
        bits = dtypes.bits_of(realize.block.writes[0].buffer.dtype)
        size = vector_piece(extent, limit, lanes_for(bits, self.vector_bits))
        if size != extent:
            inner = sch.split(inner, [None, size])[1]
        attempt(sch, lambda: sch.vectorize(inner))

    def _parallelize(self, sch: Schedule, block: BlockRV, limit: int) -> None:
        loops = parallel_loops(sch, sch.state.get_block(block))
        if not loops or loops[0].kind != SERIAL:
            return
        count, product = 0, 1
        for loop in loops:
            extent = as_int(loop.extent)
            if extent is None or loop.kind != SERIAL or (product > 1 and product * extent > limit):
                break
            product *= extent
            count += 1
        if product == 1:
            return
        block = sch.get_block(block.name, block.func)
        handles: Sequence[LoopRV] = sch.get_loops(block)[:count]

        def fused() -> None:
            sch.parallel(sch.fuse(*handles) if len(handles) > 1 else handles[0])

        if attempt(sch, fused) or count == 1:
            return
        # Independence may be easier to see before loops are fused.
        widest = max(range(count), key=lambda n: (as_int(loops[n].extent) or 0, -n))
        attempt(sch, lambda: sch.parallel(handles[widest]))

    @staticmethod
    def _unroll(sch: Schedule, block: BlockRV, limit: int) -> None:
        realize = sch.state.get_block(block)
        if is_prepacking(realize.block):
            return
        steps = _EXPENSIVE_STEPS if is_expensive(realize.block) else 1
        loops = sch.state.loops_above(realize)
        handles = sch.get_loops(block)
        for loop, handle in zip(reversed(loops), reversed(handles)):
            extent = as_int(loop.extent)
            if loop.kind == VECTORIZED or extent == 1:
                continue
            alone = type(loop.body) in (For, BlockRealize)
            if extent is None or loop.kind != SERIAL or not alone or steps * extent > limit:
                return
            steps *= extent
            sch.unroll(handle)


def attempt(sch: Schedule, action: Any) -> bool:
    """Apply an action to a schedule, or leave it unchanged if a primitive refuses."""
    state, length = sch.state.snapshot(), len(sch.trace)
    try:
        action()
    except ScheduleError:
        sch.state.restore(state)
        del sch.trace.insts[length:]
        return False
    return True


def leaf_blocks(realize: BlockRealize) -> list[BlockRealize]:
    """Return the innermost blocks below a block, in program order."""
    found: list[BlockRealize] = []
    stack = list(reversed(child_blocks(realize.block)))
    while stack:
        item = stack.pop()
        inner = child_blocks(item.block)
        if inner:
            stack.extend(reversed(inner))
        else:
            found.append(item)
    return found


def vector_loop(realize: BlockRealize, loops: Sequence[For]) -> int | None:
    """Return the position of the loop to vectorise: the innermost that is not of extent one, if it
    runs along memory in what the block writes and nothing else is below it.
    """  # noqa: D205
    block = realize.block
    if not block.writes or not block.writes[0].region:
        return None
    last = block.writes[0].region[-1].min
    binding = {item.var: value for item, value in zip(block.iter_vars, realize.iter_values)}
    kinds = {item.var: item.kind for item in block.iter_vars}
    for position in range(len(loops) - 1, -1, -1):
        loop = loops[position]
        if as_int(loop.extent) == 1:
            continue
        if len(child_blocks(loop)) != 1:
            return None
        used = [var for var, value in binding.items() if uses_var(value, {loop.loop_var})]
        if any(kinds[var] == REDUCE for var in used) or not used:
            return None
        return position if uses_var(last, set(used)) else None
    return None


def vector_piece(extent: int, limit: int, lanes: int) -> int:
    """The extent of the vectorised loop for a loop of ``extent``."""
    if extent <= limit:
        return extent
    good = [d for d in divisors(extent) if d <= limit and d % lanes == 0]
    return good[-1] if good else min(limit, 4 * lanes)


def parallel_loops(sch: Schedule, realize: BlockRealize) -> list[For]:
    """Return the outermost loops around a block that no reduction below them runs over.

    Only the first of several statements in a loop may be parallelised further, so the chain ends
    at the first loop that holds more than one.
    """
    loops = sch.state.loops_above(realize)
    found: list[For] = []
    if not loops:
        return found
    below = child_blocks(loops[0])
    reducing = [
        value
        for item in below
        for iter_var, value in zip(item.block.iter_vars, item.iter_values)
        if iter_var.kind == REDUCE
    ]
    for loop in loops:
        if any(uses_var(value, {loop.loop_var}) for value in reducing):
            break
        found.append(loop)
        if type(loop.body) is SeqStmt or type(loop.body) is not For:
            break
    return found
