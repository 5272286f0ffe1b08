"""The place under a loop to which a block is moved, and the new loops of the block there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith.polynomial import Poly, constant_of, poly_add, poly_sub
from tilewright.ir import Expr, Range, Var, and_, as_int, const
from tilewright.tir import (
    NO_OP,
    SERIAL,
    Block,
    BlockRealize,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
)
from tilewright.tir.schedule.primitives._index_arithmetic import ONE
from tilewright.tir.schedule.primitives._linear import Span
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.primitives._scope import Scope, removal_root, scope_of
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.thread_scope import is_block_tag, is_shared


def shares(storage: str, thread: str) -> bool:
    """Whether threads along an axis share one tile in memory of a scope.

    Memory of scope ``shared`` belongs to a block of threads, that of scope ``warp`` to neighbours
    along ``threadIdx.x``. Global memory, which all see, isn't made of tiles.
    """
    if storage == "warp":
        return thread == "threadIdx.x"
    return is_shared(storage) and not is_block_tag(thread)


class Destination:
    """A loop under which a block is moved: what is there, and how to insert something."""

    def __init__(self, state: ScheduleState, realize: BlockRealize, loop: For) -> None:
        self.state = state
        self.realize = realize
        self.loop = loop
        self.scope: Scope = scope_of(state, realize)
        self.parents = state.index(self.scope.func_name).parents
        self.outer = self._loops_around()
        self.regions = Regions(state, self.scope.func_name, self.outer)
        self.regions.add_block_axes(self.scope.block)
        # Those with more than one iteration.
        self.counted = [item for item in self.outer if as_int(item.extent) != 1]
        body = loop.body
        self.items: tuple[Stmt, ...] = body.stmts if type(body) is SeqStmt else (body,)
        # For each block under the loop: which statement of the loop's body it is in.
        self.paths: dict[BlockRealize, int] = {}
        self.between: dict[BlockRealize, list[For]] = {}
        self.branches: dict[BlockRealize, IfThenElse] = {}
        numbers: dict[Any, int] = {item: number for number, item in enumerate(self.items)}
        for child in self.scope.blocks:
            self._enter(child, numbers)
        if realize in self.paths:
            raise state.error(
                f"block {realize.block.name!r} is under loop {loop.loop_var.name} already",
                realize,
                loop,
                remedy="choose another loop, or reorder its own loops",
            )

    def _loops_around(self) -> list[For]:
        """The loops of the scope that end with this one, the outermost first."""
        around = self.parents.get(self.loop, None)
        outer = [self.loop]
        while around is not None and type(around) is not Block:
            if type(around) is For:
                outer.append(around)
            around = self.parents[around]
        if around is not self.scope.block:
            raise self.state.error(
                f"loop {self.loop.loop_var.name} is not in the scope of block "
                f"{self.realize.block.name!r}",
                self.realize,
                self.loop,
                remedy="both must be in the same block; schedule inside or outside of it",
            )
        outer.reverse()
        return outer

    def _enter(self, child: BlockRealize, numbers: Mapping[Any, int]) -> None:
        """Note where in the loop's body a block is, if it is there, by statement ``numbers``."""
        found: list[For] = []
        branch = None
        current: Stmt = child
        while True:
            if type(current) is For:
                found.append(current)
            elif type(current) is IfThenElse:
                branch = current
            if current in numbers:
                break
            current = self.parents[current]
            if current is self.loop or type(current) is Block:
                return
        self.paths[child] = numbers[current]
        self.between[child] = found
        if branch is not None:
            self.branches[child] = branch

    def relaxed(
        self, child: BlockRealize, storage: str = "global"
    ) -> tuple[dict[Var, Poly], dict[int, tuple[Poly, Poly]]]:
        """Bindings of a block under the loop, and the loops to relax.

        These are the loops between, and thread loops around whose threads share memory of scope
        ``storage``.
        """
        threads = [item for item in self.outer if item.thread and shares(storage, item.thread)]
        inner = self.regions.inner_loops([*threads, *self.between[child]])
        return self.regions.axis_values(child), inner

    def position(
        self, before: Sequence[BlockRealize], after: Sequence[BlockRealize], index: int
    ) -> int:
        """Resolve ``index`` to a position after all of ``before`` and ahead of all of ``after``."""
        first = max((self.paths[item] + 1 for item in before), default=0)
        last = min((self.paths[item] for item in after), default=len(self.items))
        if first > last:
            raise self.state.error(
                f"there is no place under loop {self.loop.loop_var.name} that is after the "
                f"producers and ahead of the consumers of block {self.realize.block.name!r}",
                self.realize,
                self.loop,
            )
        if index == -1:
            return last
        if index == -2:
            return first
        if not first <= index <= last:
            raise self.state.error(
                f"index {index} is not between {first} and {last}, the positions under loop "
                f"{self.loop.loop_var.name} where block {self.realize.block.name!r} may go",
                self.realize,
                self.loop,
            )
        return index

    def move(self, nest: Stmt, position: int) -> None:
        """Remove the block from its place and put ``nest`` under the loop."""
        items = (*self.items[:position], nest, *self.items[position:])
        loop = self.loop.replace(body=SeqStmt(items))
        gone = removal_root(self.state, self.realize)
        self.state.replace_all({gone: NO_OP, self.loop: loop})


def fit_span(
    regions: Regions, span: Span | None, dom: Range, *, strict: bool = False
) -> tuple[Poly, Poly, list[tuple[bool, Poly]]]:
    """Fit a required span into a domain; unless ``strict``, more may be covered.

    Returns start and extent of the new loop, and the ends (``(False, domain start)``,
    ``(True, domain end)``) that it may exceed, for which the block needs a predicate.
    """
    start, extent = regions.poly(dom.min), regions.poly(dom.extent)
    if span is None:
        return start, extent, []
    if regions.has_tiles:
        span = Span(regions.normal(span.min), regions.normal(span.extent), span.exact)
    end = poly_add(start, extent)
    wider = regions.difference(span.extent, extent)
    if not strict and wider is not None and wider >= 0 and span.min != start:
        return start, extent, []
    if regions.same(span.extent, extent) and regions.same(span.min, start):
        return start, extent, []
    span_end = poly_add(span.min, span.extent)
    below = regions.difference(span.min, start)
    above = regions.difference(span_end, end)
    low, high = span.min, span_end
    if below is not None and below < 0:
        low, below = start, 0
    if above is not None and above > 0:
        high, above = end, 0
    checks: list[tuple[bool, Poly]] = []
    if below is None and not regions.surely_at_least(low, start):
        checks.append((False, start))
    if above is None and not regions.surely_at_least(end, high):
        checks.append((True, end))
    made = poly_sub(high, low)
    if not regions.is_outer_free(made) or not _positive(made):
        # Clipping one end by a constant would make the extent depend on loops: keep the window.
        made = span.extent
        low, high = span.min, span_end
        checks = []
        if not regions.surely_at_least(low, start):
            checks.append((False, start))
        if not regions.surely_at_least(end, high):
            checks.append((True, end))
    return low, made, checks


def _positive(extent: Poly) -> bool:
    value = constant_of(extent)
    return value is None or value > 0


def new_nest(
    regions: Regions,
    realize: BlockRealize,
    spans: dict[Var, Span | None],
    preserve_unit_loops: bool,
    *,
    strict: bool = False,
) -> Stmt:
    """Build loops around the block so that its axes run through ``spans`` inside their domains."""
    block = realize.block
    loops: list[tuple[Var, Expr]] = []
    values: list[Expr] = []
    conditions: list[Expr] = []
    for iter_var in block.iter_vars:
        start, extent, ends = fit_span(
            regions, spans.get(iter_var.var), iter_var.dom, strict=strict
        )
        if extent == ONE and not preserve_unit_loops:
            value = regions.expr(start)
        else:
            var = Var(f"ax{len(loops)}")
            loops.append((var, regions.expr(extent)))
            value = regions.expr(poly_add(start, {(regions.table.var(var),): 1}))
        values.append(value)
        for is_end, limit in ends:
            bound = regions.expr(limit)
            conditions.append(value < bound if is_end else value >= bound)
    stmt: Stmt = BlockRealize(tuple(values), and_(*conditions), block)
    for var, count in reversed(loops):
        stmt = For(var, const(0), count, SERIAL, stmt)
    return stmt
