"""Argmax and argmin of rows in one pass: each lane keeps its best element so far and its step.

The definition (``topi.argmax``) first finds the extremum of a row, and then its index, which reads
rows twice. Lanes need no comparison of indices: a later element replaces an earlier one only if it
is better, or not worse if the last of equals is requested. The kernel ``extremum_lanes`` inserts
that pass first, and the two reductions then run over the lanes' results.

If there are fewer rows than threads, each thread searches a section of every row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    Range,
    Var,
    and_,
    as_int,
    cast,
    const,
    dtypes,
    greatest_of,
    if_then_else,
    maximum,
    minimum,
    select,
    substitute,
)
from tilewright.kernels.kernel import Kernel
from tilewright.kernels.problems.arg_extremum import Search, inline_elements, read_search
from tilewright.scheduling import (
    Choices,
    NotApplicable,
    nest_of,
    nests_of,
    others_after,
)
from tilewright.scheduling.cpu import (
    is_injective,
    parallelize,
    schedule_injective,
    schedule_reduction,
)
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir import (
    REDUCE,
    SPATIAL,
    Block,
    BufferLoad,
    BufferStore,
    IterVar,
    PrimFunc,
    Stmt,
    decl_buffer,
    fresh_name,
    seq,
)
from tilewright.tir.building import Axis, block, load
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.script.parser import expand

EXTREMUM_LANES = "extremum_lanes"

# Vectors that go along a row together: they hide the latency of a comparison and a choice, but
# must be joined. Each takes some registers.
_VECTORS, _VECTORS_OF_LONG_ROWS, _REGISTERS = 4, 8, 3
# Vectors of a row that is long.
_LONG_ROW = 512
# Vectors of a row that are worth joining so many lanes.
_LEAST_VECTORS = 16
# What the block of the lanes is called after the extremum's.
_SUFFIX = "_lanes"


@dataclass(frozen=True)
class ExtremumTiles:
    """Sizes: lanes of a vector, vectors per step, and sections of a row."""

    lanes: int
    vectors: int
    parts: int

    def fault(self) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if min(self.lanes, self.vectors, self.parts) < 1:
            return "lanes, vectors and parts are at least one"
        return None


class ArgExtremumKernel(Kernel[Search]):
    """For functions that begin with extrema of rows and their indices."""

    forms: ClassVar = {EXTREMUM_LANES: ExtremumTiles}

    def prepare(self, sch: Schedule) -> None:
        """Inline the computation of the elements, if there may be a search of them."""
        inline_elements(sch)

    def recognise(self, func: PrimFunc) -> Search | NotApplicable:
        """Recognise the search that a function begins with."""
        return read_search(func)

    def plan(
        self, problem: Search, target: Target, choices: Choices
    ) -> ExtremumTiles | NotApplicable:
        """Choose sizes; with few rows, sections of rows for the threads."""
        return choose_tiles(problem, target, choices)

    def fault(self, problem: Search, plan: ExtremumTiles) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        return plan.fault()

    def build(self, func: PrimFunc, problem: Search, plan: ExtremumTiles) -> Block:
        """Insert a first pass by lanes before the search."""
        made = _Lanes(func, problem, plan)
        body = seq(made.first_pass(), *made.joins(), *nests_of(func)[2:])
        buffers = (*func.root.alloc_buffers, made.values, made.places)
        return func.root.replace(body=body, alloc_buffers=buffers)

    def schedule(
        self,
        sch: Schedule,
        problem: Search,
        plan: ExtremumTiles,
        kept: Sequence[str],
        target: Target,
    ) -> None:
        """Run rows, or sections of them, in parallel; other blocks separately."""
        value, place, *others = map(sch.get_block, kept)
        self._lanes(sch, problem, (value, place), plan, target)
        for rv in reversed(others):
            if is_injective(sch, rv):
                schedule_injective(sch, rv, target)
            else:
                schedule_reduction(sch, rv, target)

    def _lanes(
        self,
        sch: Schedule,
        search: Search,
        joins: Sequence[BlockRV],
        tiles: ExtremumTiles,
        target: Target,
    ) -> None:
        lanes = sch.get_block(search.value.name + _SUFFIX)
        loops = sch.get_loops(lanes)
        extents = [as_int(axis.dom.extent) for axis in (*search.rows, search.along)]
        work = math.prod(64 if n is None else n for n in extents)
        if tiles.parts > 1 or not search.rows:
            for rv in joins:
                schedule_reduction(sch, rv, target)
            parallelize(sch, loops, target, work)
            return
        row = loops[0] if len(loops) == 1 else sch.fuse(*loops)
        for rv in joins:
            sch.reverse_compute_at(rv, row)
        for rv in joins:
            schedule_reduction(sch, rv, target, skip=1)
        parallelize(sch, [row], target, 2 * work)


def choose_tiles(search: Search, target: Target, choices: Choices) -> ExtremumTiles | NotApplicable:
    """Whole rows if there are enough for the threads; not applicable if rows are short."""
    lanes = target.vector_lanes(max(32, dtypes.bits_of(search.best.dtype)))
    extent = as_int(search.along.dom.extent)
    if extent is not None and extent < _LEAST_VECTORS * lanes:
        return NotApplicable("rows are short")
    is_long = extent is not None and extent >= _LONG_ROW * lanes
    vectors = _VECTORS_OF_LONG_ROWS if is_long else _VECTORS
    while _REGISTERS * (vectors + 1) > target.vector_registers:
        vectors //= 2
    vectors = choices.choose(f"{search.value.name}.vectors", others_after(vectors, (8, 4, 2)))
    known = [as_int(axis.dom.extent) for axis in search.rows]
    rows = math.prod(64 if n is None else n for n in known)
    least = target.costs.parallel_work
    few = rows < target.num_cores and extent is not None and rows * extent >= least
    return ExtremumTiles(lanes, vectors, target.num_cores if few else 1)


# ---- the kernel ---------------------------------------------------------------------------------


class _Lanes:
    """The buffers and nests that replace a search."""

    def __init__(self, func: PrimFunc, search: Search, tiles: ExtremumTiles) -> None:
        self.search, self.tiles = search, tiles
        self.width = tiles.lanes * tiles.vectors
        self.extent = search.along.dom.extent
        taken = {buffer.name for buffer in (*func.buffers, *func.root.alloc_buffers)}
        rows = [axis.dom.extent for axis in search.rows]
        shape = (*rows, const(tiles.parts), const(self.width))
        best, where = search.best, search.where
        self.values = decl_buffer(shape, best.dtype, fresh_name(f"{best.name}{_SUFFIX}", taken))
        self.places = decl_buffer(shape, where.dtype, fresh_name(f"{where.name}{_SUFFIX}", taken))
        registers = (tiles.vectors, tiles.lanes)
        self.kept = decl_buffer(registers, best.dtype, "kept", scope="local")
        self.steps = decl_buffer(registers, "int32", "steps", scope="local")
        self.nans = decl_buffer(registers, "int32", "nans", scope="local")
        self.now = decl_buffer((tiles.lanes,), "int32", "now", scope="local")

    def first_pass(self) -> Stmt:
        """Find the best element of each lane, and its index."""
        axes = [Axis(f"i{n}", axis.dom.extent) for n, axis in enumerate(self.search.rows)]
        axes.append(Axis("part", self.tiles.parts))
        name = f"{self.search.value.name}{_SUFFIX}"
        registers = [self.kept, self.steps, self.now, *([self.nans] if self.search.has_nan else [])]
        return block(name, axes, self._part, registers)

    def joins(self) -> list[Stmt]:
        """The two reductions over the lanes' results."""
        search = self.search
        rows = [IterVar(axis.dom, Var(axis.var.name), SPATIAL) for axis in search.rows]
        part = IterVar(
            Range.from_min_extent(const(0), const(self.tiles.parts)), Var("v_part"), REDUCE
        )
        lane = IterVar(Range.from_min_extent(const(0), const(self.width)), Var("v_lane"), REDUCE)
        axes = [*rows, *([part] if self.tiles.parts > 1 else []), lane]
        at = tuple(axis.var for axis in rows)
        inner = (*at, part.var if self.tiles.parts > 1 else const(0), lane.var)
        element, best = BufferLoad(self.values, inner), BufferLoad(search.best, at)
        value = search.joined_value(best, element)
        before, found = BufferLoad(search.where, at), BufferLoad(self.places, inner)
        place = search.joined_place(before, element, best, found)
        made = []
        for old, joined, start in (
            (search.value, value, search.worst), (search.place, place, search.never),
        ):  # fmt: skip
            buffer = old.writes[0].buffer
            fresh = [axis.replace(var=Var(axis.var.name)) for axis in axes]
            renamed = {axis.var: new.var for axis, new in zip(axes, fresh)}
            where = tuple(renamed[var] for var in at)
            body = BufferStore(buffer, substitute(joined, renamed), where)
            made.append(nest_of(fresh, body, old.name, BufferStore(buffer, start, where)))
        return made

    def _part(self, *axes: Var) -> Stmt:
        """Find the best element of a section of a row."""
        *row, part = axes
        if self.tiles.parts == 1:
            return expand(self.search_run, row, part, const(0), self.extent)
        return expand(self.search_part, row, part)

    @T.macro
    def search_part(self, row: Sequence[Expr], part: Expr) -> None:
        """Search a section; sections are whole vectors, and the last ones may be empty."""
        whole = T.meta_var(self._part_size())
        start = simplify(part * whole)
        size = simplify(maximum(minimum(self.extent - start, whole), 0))
        self.search_run(row, part, start, size)

    def _at(self, start: Expr, step: Expr) -> Expr:
        return start + step * self.width

    def _part_size(self) -> Expr:
        return simplify(-(-self.extent // (self.tiles.parts * self.width)) * self.width)

    @T.macro
    def search_run(self, row: Sequence[Expr], part: Expr, start: Expr, length: Expr) -> None:
        """Search ``length`` elements of a row, in steps of some vectors."""
        vectors, lanes = self.tiles.vectors, self.tiles.lanes
        steps = T.meta_var(simplify(length // self.width))
        rest = T.meta_var(simplify(length - steps * self.width))
        end = T.meta_var(simplify(start + length))
        for lane in T.vectorized(lanes):
            self.now[lane] = T.int32(0)
        for v, lane in T.grid(T.unroll(vectors), T.vectorized(lanes)):
            self.kept[v, lane] = self.search.worst
            self.steps[v, lane] = T.int32(0)
            if self.search.has_nan:
                self.nans[v, lane] = self._no_step
        for step in T.serial(steps):
            for v, lane in T.grid(T.unroll(vectors), T.vectorized(lanes)):
                first = T.meta_var(self._at(start, step))
                self.compare(row, first + v * lanes + lane, v, lane, None)
            # In all lanes: a vector that stays one is cheaper than to make it anew.
            for lane in T.vectorized(lanes):
                self.now[lane] = self.now[lane] + 1
        if as_int(rest) != 0:
            for v, lane in T.grid(T.unroll(vectors), T.vectorized(lanes)):
                first = T.meta_var(self._at(start, steps))
                self.compare(row, first + v * lanes + lane, v, lane, end)
        for v, lane in T.grid(T.unroll(vectors), T.vectorized(lanes)):
            at = T.meta_var(v * lanes + lane)
            self.values[(*row, part, at)] = self._best_of(v, lane)
            self.places[(*row, part, at)] = self._place_of(v, lane, start, end)

    @T.macro
    def compare(
        self, row: Sequence[Expr], index: Expr, v: Expr, lane: Expr, end: Expr | None
    ) -> None:
        """Keep a better element and its step number; none from ``end`` on."""
        element = self._element(row, index, end)
        now = T.meta_var(self.now[lane])
        better = T.meta_var(self._is_better(element, self.kept[v, lane], index, end))
        self.steps[v, lane] = T.Select(better, now, self.steps[v, lane])
        self.kept[v, lane] = T.Select(better, element, self.kept[v, lane])
        if self.search.has_nan:
            first = T.meta_var(now if self.search.last else T.min(self.nans[v, lane], now))
            self.nans[v, lane] = T.Select(element != element, first, self.nans[v, lane])

    @property
    def _no_step(self) -> Expr:
        return const(-1, "int32") if self.search.last else greatest_of("int32")

    def _element(self, row: Sequence[Expr], index: Expr, end: Expr | None) -> Expr:
        axes = (*self.search.rows, self.search.along)
        made: Expr = substitute(
            self.search.element, {axis.var: at for axis, at in zip(axes, (*row, index))}
        )
        return made if end is None else if_then_else(index < end, made, self.search.worst)

    def _is_better(self, element: Expr, kept: Expr, index: Expr, end: Expr | None) -> Expr:
        better = self.search.replaces(element, kept)
        return and_(better, index < end) if end is not None and self.search.last else better

    def _best_of(self, v: Expr, lane: Expr) -> Expr:
        """A lane's result: NaN before any number."""
        value: Expr = load(self.kept, v, lane)
        if not self.search.has_nan:
            return value
        return select(self._has_nan(v, lane), const(math.nan, value.dtype), value)

    def _has_nan(self, v: Expr, lane: Expr) -> Expr:
        found: Expr = load(self.nans, v, lane) != self._no_step
        return found

    def _place_of(self, v: Expr, lane: Expr, start: Expr, end: Expr) -> Expr:
        """The index of a lane's result; none if it had no elements."""
        step: Expr = load(self.steps, v, lane)
        if self.search.has_nan:
            step = select(self._has_nan(v, lane), load(self.nans, v, lane), step)
        at = v * self.tiles.lanes + lane
        place = cast(start + at + cast(step, "int64") * self.width, self.places.dtype)
        made: Expr = select(start + at < end, place, self.search.never)
        return made
