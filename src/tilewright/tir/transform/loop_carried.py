"""Loop-carried dependences: iterations that read of a buffer what earlier iterations wrote.

A buffer may live inside of a loop only if they don't. PlanBufferAllocation asks that. An iteration
makes all that it reads if each of its reads lies in what one of its blocks writes there; blocks
under conditions count as far as these are shown to leave no hole.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import Expr, Node, Range, pre_order
from tilewright.tir.analysis.iterations import Touched, apart, makes_all
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import BlockRealize, For, IfThenElse, Stmt, While
from tilewright.tir.transform.base import function_analyzer

Branches = tuple[Any, ...]
"""The branches of conditional statements that something is in, the outermost first."""


class LoopCarried:
    """What one iteration of a loop writes of a buffer, and what it reads that it didn't write."""

    def __init__(self, loop: For, buffer: Buffer, path: tuple[Any, ...], func: PrimFunc) -> None:
        self.path, self.func, self.buffer = path[: path.index(loop) + 1], func, buffer
        self.cache: dict[Any, Any] = {}
        self.open_reads, self.writes = self._accesses(loop.body)
        self.uses_apart = _uses_apart(loop.body, buffer)

    @property
    def reads_only_its_own(self) -> bool:
        """Whether each iteration writes all that it reads before it does."""
        return not self.open_reads and not self.uses_apart

    def _accesses(self, body: Stmt) -> tuple[list[Touched], list[Touched]]:
        """The reads of what no block of a body has written before, and the writes."""
        reads: list[Touched] = []
        writes: list[Touched] = []
        before: list[tuple[Touched, Branches]] = []
        for realize, inner, branches in _blocks_below(body):
            block = realize.block
            mine = [Touched(r, realize, inner) for r in block.writes if r.buffer is self.buffer]
            if not (mine and self._reads_its_own(realize)):
                # What is written in a branch is there for what else is in it.
                sure = [write for write, of in before if branches[: len(of)] == of]
                reads += [
                    read
                    for read in (Touched(region, realize, inner) for region in block.reads)
                    if read.region.buffer is self.buffer
                    and not any(makes_all(w, read, lambda: self.known, self.cache) for w in sure)
                ]
            writes += mine
            before += [(write, branches) for write in mine]
        return reads, writes

    def _reads_its_own(self, realize: BlockRealize) -> bool:
        """Whether a block reads of the buffer only what blocks in it have written before."""
        block = realize.block
        if any(match.source.buffer is self.buffer for match in block.match_buffers):
            return False
        if any(_uses_apart(node, self.buffer) for node in (block.init, block.body) if node):
            return False
        return not self._accesses(block.body)[0]

    def boxes(self, accesses: Iterable[Touched]) -> list[list[Range]]:
        """What one iteration of the loop touches by each of these, as boxes."""
        return [item.box(lambda: self.known, item.realize.predicate) for item in accesses]

    @functools.cached_property
    def known(self) -> Analyzer:
        """Knows symbolic sizes, loops and axes around."""
        known = function_analyzer(self.func)
        for item in self.path:
            if isinstance(item, For):
                known.bind(item.loop_var, Range.from_min_extent(item.min, item.extent))
            else:
                for iter_var in item.iter_vars:
                    known.bind(iter_var.var, iter_var.dom)
        return known


def _blocks_below(body: Stmt) -> list[tuple[BlockRealize, list[For], Branches]]:
    """The blocks in a body, not in others, in order, each with the loops and branches around."""
    found: list[tuple[BlockRealize, list[For], Branches]] = []
    stack: list[tuple[Any, list[For], Branches]] = [(body, [], ())]
    while stack:
        node, inner, branches = stack.pop()
        if isinstance(node, BlockRealize):
            found.append((node, inner, branches))
        elif isinstance(node, For):
            stack.append((node.body, [*inner, node], branches))
        elif not isinstance(node, Expr):
            conditional = isinstance(node, (IfThenElse, While))
            for item in reversed(list(node.child_nodes())):
                stack.append((item, inner, (*branches, item) if conditional else branches))
    return found


def _uses_apart(body: Node, buffer: Buffer) -> bool:
    """Whether something in a body that is in no block of it uses the buffer."""
    found = False
    for item in pre_order(body, enter=lambda node: type(node) is not BlockRealize):
        if type(item) is BlockRealize:
            parts = (*item.iter_values, item.predicate)
            found = found or any(_uses_apart(part, buffer) for part in parts)
        found = found or item is buffer or item is buffer.data
    return found


def is_loop_carried(loop: For, buffer: Buffer, path: tuple[object, ...], func: PrimFunc) -> bool:
    """Whether an iteration of a loop may read what an earlier one wrote.

    It does not if all that its blocks read is what its blocks write before, or if no earlier
    iteration writes that.
    """
    found = LoopCarried(loop, buffer, path, func)
    if found.reads_only_its_own:
        return False
    if found.uses_apart:
        return True  # no block tells which elements
    later, earlier = found.boxes(found.open_reads), found.boxes(found.writes)
    return not apart((later, [loop]), (earlier, [loop]), buffer, found.known.copy, ordered=True)
