"""Is all that a block reads written before, in the same iteration of the loops they share?

This *region cover*, with blocks that are complete or reductions and depend on each other only by
reading what was written, makes a scope a *stage pipeline*: its blocks are stages that may be moved
into each other's loops, inlined and cached.

What a producer writes counts only if every element of it is surely written; what a consumer reads
is taken to be all that it may read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arith import Analyzer
from tilewright.ir import (
    Range,
    Var,
    and_,
    is_const,
    uses_var,
)
from tilewright.tir.analysis.accesses import Access, detect_accesses
from tilewright.tir.analysis.block_kind import COMPLETE, REDUCTION, block_kind
from tilewright.tir.analysis.boxes import merge_boxes
from tilewright.tir.analysis.dependency import RAW, DependencyGraph, block_dependencies
from tilewright.tir.analysis.enumeration import enumerate_points
from tilewright.tir.analysis.footprint import filled_box, inside_box
from tilewright.tir.analysis.regions import relax
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Block, BlockRealize, For, SeqStmt

Box = tuple[Range, ...]


@dataclass(frozen=True)
class Uncovered:
    """``consumer`` may read elements of ``buffer`` that no producer has written by then."""

    consumer: str
    buffer: Buffer
    producers: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return self.reason


def check_region_cover(func: PrimFunc, scope: Block | None = None) -> list[Uncovered]:
    """Return the reads of a scope (by default the root block) that are not shown to be covered.

    Buffers from outside that nobody in the scope writes before hold what they held.
    """
    return _Cover(func, func.root if scope is None else scope).check()


def check_stage_pipeline(func: PrimFunc, scope: Block | None = None) -> list[str]:
    """Say why a scope (by default the root block) is no stage pipeline; empty if it is one."""
    scope = func.root if scope is None else scope
    found = [
        f"there is a {type(item).__name__} between its blocks" for item in _other_statements(scope)
    ]
    graph = block_dependencies(scope)
    for name, realize in graph.children.items():
        kind, why = block_kind(realize.block, scope)
        if kind not in (COMPLETE, REDUCTION):
            found.append(f"block {name!r} is neither complete nor a reduction: {why or kind}")
    for edge in graph.edges:
        if edge.kind != RAW:
            text = f"block {edge.target!r} comes after {edge.source!r} by {edge.kind}"
            found.append(f"{text} of {edge.buffer.name!r}")
    for opaque in graph.opaque:
        text = f"block {opaque.target!r} must stay after {opaque.source!r}"
        found.append(f"{text}: {opaque.reason}")
    return found + [str(item) for item in check_region_cover(func, scope)]


def is_stage_pipeline(func: PrimFunc, scope: Block | None = None) -> bool:
    """Whether a scope (by default the root block) is a stage pipeline; see the module's text."""
    return not check_stage_pipeline(func, scope)


def _other_statements(scope: Block) -> list[object]:
    """Statements of a scope that are neither loops nor blocks."""
    found: list[Any] = []
    stack: list[Any] = [scope.body]
    while stack:
        item = stack.pop()
        if type(item) is SeqStmt:
            stack.extend(reversed(item.stmts))
        elif type(item) is For:
            stack.append(item.body)
        elif type(item) is not BlockRealize:
            found.append(item)
    return found


class _Cover:
    def __init__(self, func: PrimFunc, scope: Block) -> None:
        self.scope = scope
        self.graph: DependencyGraph = block_dependencies(scope)
        self.sizes = Analyzer()
        for var in func.symbolic_vars():
            self.sizes.bind_positive(var)
        for iter_var in scope.iter_vars:
            self.sizes.bind(iter_var.var, iter_var.dom)
        self.loops: dict[str, tuple[For, ...]] = {}
        self._find_loops(scope.body, ())
        self.accesses: dict[str, list[Access]] = {
            name: detect_accesses(realize) for name, realize in self.graph.children.items()
        }

    def _find_loops(self, stmt: Any, loops: tuple[For, ...]) -> None:
        if type(stmt) is BlockRealize:
            self.loops[stmt.block.name] = loops
        elif type(stmt) is SeqStmt:
            for item in stmt.stmts:
                self._find_loops(item, loops)
        elif type(stmt) is For:
            self._find_loops(stmt.body, (*loops, stmt))
        else:
            for item in stmt.child_nodes():
                self._find_loops(item, loops)

    def check(self) -> list[Uncovered]:
        found = []
        for name, realize in self.graph.children.items():
            block = realize.block
            own = {region.buffer for region in block.writes} if block.init is not None else set()
            for buffer in dict.fromkeys(region.buffer for region in block.reads):
                if buffer not in own:
                    fault = self.check_reads(name, buffer)
                    if fault is not None:
                        found.append(fault)
        return found

    def check_reads(self, name: str, buffer: Buffer) -> Uncovered | None:
        edges = self.graph.before(name)
        producers = [e.source for e in edges if e.kind == RAW and e.buffer is buffer]
        if not producers:
            if buffer not in self.scope.alloc_buffers:
                return None
            text = f"block {name!r} reads {buffer.name!r}, which no block writes before"
            return Uncovered(name, buffer, (), text)
        groups: dict[int, list[str]] = {}
        for producer in producers:
            shared = _common(self.loops[name], self.loops[producer])
            groups.setdefault(shared, []).append(producer)
        if any(self.covered(name, group, shared, buffer) for shared, group in groups.items()):
            return None
        names = " and ".join(map(repr, producers))
        text = f"block {name!r} may read elements of {buffer.name!r} that {names}"
        where = self._where(name, max(groups))
        plural = "do" if len(producers) > 1 else "does"
        return Uncovered(
            name, buffer, tuple(producers), f"{text} {plural} not surely write before{where}"
        )

    def _where(self, name: str, shared: int) -> str:
        if not shared:
            return ""
        return f" in the same iteration of loop {self.loops[name][shared - 1].loop_var.name!r}"

    def covered(self, name: str, producers: list[str], shared: int, buffer: Buffer) -> bool:
        reads = [a for a in self.accesses[name] if a.buffer is buffer and not a.is_write]
        return all(self.is_inside(read, name, producers, shared) for read in reads) or (
            self.enumerated(reads, name, producers, shared, buffer)
        )

    def is_inside(self, read: Access, name: str, producers: list[str], shared: int) -> bool:
        """Whether what one access reads is in boxes that are surely written."""
        known = self.sizes.copy()
        for loop in self.loops[name][:shared]:
            known.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        # Conditions of the consumer on the shared loops hold for the producers as well.
        inside = self.domain(read, name, shared)
        for condition in read.conditions:
            if not uses_var(condition, inside):
                known.assume(condition)
        made: list[Box] = []
        for producer in producers:
            made += self.written(producer, shared, read.buffer, known)
        touched = self.touched(read, name, shared, known)
        return any(
            inside_box(touched, box, read.buffer, lambda: known) for box in merge_boxes(made, known)
        )

    def enumerated(
        self, reads: list[Access], name: str, producers: list[str], shared: int, buffer: Buffer
    ) -> bool:
        """Compare small nests element by element, for each iteration of the shared loops."""
        writes = [
            (access, producer)
            for producer in producers
            for access in self.accesses[producer]
            if access.buffer is buffer and access.is_write and not access.repeats
        ]
        written = [self.places(access, producer, shared) for access, producer in writes]
        read = [self.places(access, name, shared) for access in reads]
        if any(item is None for item in read):
            return False
        known = [item for item in written if item is not None]
        if not known:
            return False
        before = np.unique(np.concatenate(known), axis=0)
        after = np.unique(np.concatenate([before, *read]), axis=0)
        return len(after) == len(before)

    def places(self, access: Access, name: str, shared: int) -> Any:
        """Elements with the iteration of the shared loops, as rows; ``None`` if not a few."""
        if not all(is_const(item.extent, 1) for item in access.box):
            return None
        columns = [loop.loop_var for loop in self.loops[name][:shared]]
        points = enumerate_points(
            self.domain(access, name, 0),
            access.conditions,
            [*columns, *(item.min for item in access.box)],
        )
        return None if points is None else points.places

    def domain(self, access: Access, name: str, shared: int) -> Mapping[Var, Range]:
        outer = {
            loop.loop_var: Range.from_min_extent(loop.min, loop.extent)
            for loop in self.loops[name][shared:]
        }
        return {**outer, **access.domain}

    def written(self, name: str, shared: int, buffer: Buffer, known: Analyzer) -> list[Box]:
        """Boxes of which every element is surely written."""
        found = []
        for access in self.accesses[name]:
            if access.buffer is buffer and access.is_write and not access.repeats:
                box = filled_box(access, self.domain(access, name, shared), known)
                if box is not None:
                    found.append(tuple(box))
        return found

    def touched(self, access: Access, name: str, shared: int, known: Analyzer) -> Box:
        """A box around all that may be read."""
        domain = self.domain(access, name, shared)
        condition = and_(*access.conditions)
        return tuple(relax(list(access.box), domain, condition, access.buffer, known))


def _common(a: tuple[For, ...], b: tuple[For, ...]) -> int:
    count = 0
    for x, y in zip(a, b):
        if x is not y:
            break
        count += 1
    return count
