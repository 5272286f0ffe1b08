"""Loop-carried dependences: iterations that read of a buffer what earlier iterations wrote.

A buffer may live inside of a loop only if they don't. PlanBufferAllocation asks that. An iteration
makes all that it reads if each of its reads lies in what one of its blocks writes there; blocks
under conditions count as far as these are shown to leave no hole.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.arith import Analyzer, conjuncts
from tilewright.ir import (
    TRUE,
    Add,
    Expr,
    Range,
    Var,
    as_int,
    const,
    expr_equal,
    free_vars,
    not_,
    substitute,
)
from tilewright.tir.analysis.enumeration import enumerate_points
from tilewright.tir.analysis.footprint import disjoint, inside_box, region_below
from tilewright.tir.buffer import Buffer, BufferRegion
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import BlockRealize, For
from tilewright.tir.transform.base import function_analyzer


class _Access:
    """What a block below a loop reads or writes, and in which loops."""

    def __init__(self, region: BufferRegion, realize: BlockRealize, inner: list[For]) -> None:
        self.region, self.realize, self.inner = region, realize, inner

    def places(self) -> list[tuple[Expr, Expr]]:
        """Start and extent per dimension in terms of the loops."""
        axes = dict(zip((v.var for v in self.realize.block.iter_vars), self.realize.iter_values))
        return [(substitute(r.min, axes), substitute(r.extent, axes)) for r in self.region.region]

    def counted_box(self, conditions: list[Expr]) -> list[Range] | None:
        """The box that the instances under ``conditions`` fill, found by counting them.

        ``None`` if they leave a hole, are too many, or depend on more than the loops below.
        """
        domain = {item.loop_var: Range(item.min, item.extent) for item in self.inner}
        starts, indices = [], []
        for low, extent in self.places():
            found = _apart(low, {*domain})
            if found is None or as_int(extent) != 1:
                return None
            starts.append(found[0])
            indices.append(found[1])
        points = enumerate_points(domain, conditions, indices)
        if points is None or not points.count:
            return None
        first, last = points.places.min(axis=0), points.places.max(axis=0)
        if len(points.places) != math.prod(map(int, last - first + 1)):
            return None
        ends = zip(starts, map(int, first), map(int, last))
        return [Range(start + low, const(high - low + 1)) for start, low, high in ends]

    def runs_with(self, other: _Access, conditions: list[Expr]) -> bool:
        """Whether this runs wherever another does, on the same elements, under ``conditions``.

        That is seen by form: loop by loop from the inside, with the same places and conditions.
        """
        renamed = {
            theirs.loop_var: mine.loop_var
            for mine, theirs in zip(reversed(self.inner), reversed(other.inner))
            if expr_equal(mine.extent, theirs.extent) and expr_equal(mine.min, theirs.min)
        }
        holding = [substitute(item, renamed) for item in conjuncts(other.realize.predicate)]
        places = zip(self.places(), other.places())
        return all(
            expr_equal(a, substitute(b, renamed)) for x, y in places for a, b in zip(x, y)
        ) and all(any(expr_equal(one, item) for item in holding) for one in conditions)


def _apart(value: Expr, loops: set[Var]) -> tuple[Expr, Expr] | None:
    """Split a sum into what is free of some loops and what depends on nothing else."""
    rest: Expr = const(0)
    moving: Expr = const(0)
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if type(item) is Add:
            stack += [item.b, item.a]
        elif (used := set(free_vars(item))) <= loops and used:
            moving = moving + item
        elif used & loops:
            return None
        else:
            rest = rest + item
    return rest, moving


class LoopCarried:
    """What the blocks of one iteration of a loop write and read of a buffer, as boxes."""

    def __init__(self, loop: For, buffer: Buffer, path: tuple[Any, ...], func: PrimFunc) -> None:
        self.path, self.func = path[: path.index(loop) + 1], func
        self.known: Analyzer | None = None
        self.conditions: dict[_Access, list[Expr]] = {}
        self.boxes: dict[_Access, list[Range]] = {}
        reads: list[_Access] = []
        self.writes: list[_Access] = []
        for realize, inner in _blocks_below(loop):
            block = realize.block
            for regions, found in ((block.reads, reads), (block.writes, self.writes)):
                found += [_Access(r, realize, inner) for r in regions if r.buffer is buffer]
        self.open_reads = [
            self.box(read)
            for read in reads
            if not any(self._makes(write, read) for write in self.writes)
        ]

    def box(self, access: _Access) -> list[Range]:
        """What one iteration of the loop accesses there."""
        if access not in self.boxes:
            region, realize = access.region, access.realize
            self.boxes[access] = region_below(
                region.region,
                realize,
                access.inner,
                region.buffer,
                realize.predicate,
                self.analyzer,
            )
        return self.boxes[access]

    def _makes(self, write: _Access, read: _Access) -> bool:
        """Whether a block surely writes all that another one reads."""
        if write not in self.conditions:
            self.conditions[write] = self._conditions(write)
        conditions = self.conditions[write]
        if conditions and write.runs_with(read, conditions):
            return True
        filled = write.counted_box(conditions) if conditions else self.box(write)
        buffer = read.region.buffer
        return filled is not None and inside_box(self.box(read), filled, buffer, self.analyzer)

    def _conditions(self, write: _Access) -> list[Expr]:
        """The conditions of a block that may keep it from writing elements of the buffer.

        A condition that leaves out only what is outside of the buffer, as that of a cut-off tile
        does, is not one of them.
        """
        if write.realize.predicate is TRUE:
            return []
        known = self.analyzer()
        left = []
        with known.constraint(TRUE):  # the loops below have iterations here only
            for item in write.inner:
                known.bind(item.loop_var, Range(item.min, item.extent))
            for condition in conjuncts(write.realize.predicate):
                if known.can_prove(condition):
                    continue
                with known.constraint(not_(condition)):
                    outside = any(
                        known.can_prove(low >= extent)
                        for (low, _), extent in zip(write.places(), write.region.buffer.shape)
                    )
                if not outside:
                    left.append(condition)
        return left

    def analyzer(self) -> Analyzer:
        """Knows symbolic sizes, loops and axes around."""
        if self.known is None:
            self.known = function_analyzer(self.func)
            for item in self.path:
                if isinstance(item, For):
                    self.known.bind(item.loop_var, Range(item.min, item.extent))
                else:
                    for iter_var in item.iter_vars:
                        self.known.bind(iter_var.var, iter_var.dom)
        return self.known


def _blocks_below(loop: For) -> list[tuple[BlockRealize, list[For]]]:
    """The blocks below a loop, not in others, each with the loops between."""
    found: list[tuple[BlockRealize, list[For]]] = []
    stack: list[tuple[Any, list[For]]] = [(loop.body, [])]
    while stack:
        node, inner = stack.pop()
        if isinstance(node, BlockRealize):
            found.append((node, inner))
        elif isinstance(node, For):
            stack.append((node.body, [*inner, node]))
        elif not isinstance(node, Expr):
            stack.extend((item, inner) for item in node.child_nodes())
    return found


def is_loop_carried(loop: For, buffer: Buffer, path: tuple[Any, ...], func: PrimFunc) -> bool:
    """Whether an iteration of a loop may read what an earlier one wrote.

    It does not if all that its blocks read is what its blocks write, or if no earlier iteration
    writes that.
    """
    found = LoopCarried(loop, buffer, path, func)
    if not found.open_reads:
        return False
    var, analyzer = loop.loop_var, found.analyzer()
    earlier = Var(var.name, var.dtype)
    analyzer.bind(earlier, Range(loop.min, var - loop.min))
    before = [
        [
            Range(substitute(r.min, {var: earlier}), substitute(r.extent, {var: earlier}))
            for r in found.box(write)
        ]
        for write in found.writes
    ]
    return not all(disjoint(box, other, analyzer) for box in found.open_reads for other in before)
