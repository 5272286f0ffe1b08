"""Scans of rows by tiles: each thread folds some elements, then lanes, then warps.

::

    thread   e0 e1 e2 e3          folds of its own elements, in registers
    warp     inclusive fold of the threads' last ones, by shuffles (Kogge, Stone 1973)
    block    folds of the warps, through shared memory
    row      carry of the tiles before

If thread blocks share a row (reduce, then scan: Merrill, Grimshaw 2009), a first kernel folds each
part, and in the second each thread block folds the parts before its own, before it scans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    ExprLike,
    Var,
    and_,
    as_int,
    ceildiv,
    const,
    maximum,
    minimum,
    product,
)
from tilewright.kernels.gpu.lanes import WARP, from_lane, from_lane_before
from tilewright.kernels.gpu.sizes import MOST_THREADS, is_power
from tilewright.kernels.problems.scan import Scan, State
from tilewright.script import tir as T
from tilewright.tir import Buffer, LetStmt, Stmt, decl_buffer, seq
from tilewright.tir.building import load, store
from tilewright.tir.script.parser import expand


@dataclass(frozen=True)
class ScanThreads:
    """Sizes: threads of a row, elements of a thread, rows of a block, and parts of a row.

    ``lanes`` is a power of two. A thread block has several rows only if these are of one warp.
    """

    lanes: int
    items: int
    rows: int = 1
    parts: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.rows

    @property
    def tile(self) -> int:
        """Elements of a row that are processed together."""
        return self.lanes * self.items

    def fault(self) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if not is_power(self.lanes) or min(self.items, self.rows, self.parts) < 1:
            return "lanes is a power of two; items, rows and parts are at least one"
        if self.lanes > WARP and self.rows > 1:
            return "threads of more than a warp have one row"
        if self.threads > MOST_THREADS or (self.threads > WARP and self.threads % WARP):
            return f"a block is part of a warp, or whole warps up to {MOST_THREADS} threads"
        return None


class States:
    """Memory for some states: a buffer for each of their values."""

    def __init__(
        self, dtypes: Sequence[str], name: str, shape: Sequence[ExprLike], scope: str
    ) -> None:
        self.buffers = [
            decl_buffer(shape, dtype, f"{name}_{number}" if number else name, scope=scope)
            for number, dtype in enumerate(dtypes)
        ]

    def at(self, *place: ExprLike) -> State:
        """A state."""
        return tuple(load(buffer, *place) for buffer in self.buffers)

    def put(self, state: State, *place: ExprLike) -> Stmt:
        """Store a state, all of it computed before."""
        names = [Var(f"new_{buffer.name}", buffer.dtype) for buffer in self.buffers]
        stmt = seq(*(store(b, name, *place) for b, name in zip(self.buffers, names)))
        for name, value in reversed(list(zip(names, state))):
            stmt = LetStmt(name, value, stmt)
        return stmt


class ScanTiles:
    """Builds the body of the function; see the module's docstring."""

    def __init__(self, scan: Scan, sizes: ScanThreads) -> None:
        self.scan, self.sizes = scan, sizes
        self.width = min(sizes.lanes, WARP)
        self.warps = sizes.lanes // self.width
        self.rows = simplify(product(scan.rows))

        self.folds = self._states("folds", "global", self.rows, sizes.parts)
        self._declare()

    def _states(self, name: str, scope: str, *shape: ExprLike) -> States:
        return States(self.scan.dtypes, name, shape, scope)

    def _declare(self) -> None:
        """Declare the memory of one kernel."""
        self.items = self._states("items", "local", self.sizes.items)
        # The fold of the thread's elements, then of those of all lanes up to it.
        self.last = self._states("last", "local", 1)
        self.before = self._states("before", "local", 1)
        self.carry = self._states("carry", "local", 1)
        self.warp_folds = self._states("warp_folds", "shared", self.warps)

    @property
    def root_buffers(self) -> tuple[Buffer, ...]:
        """Buffers between the kernels."""
        return tuple(self.folds.buffers) if self.sizes.parts > 1 else ()

    def build(self) -> Stmt:
        """Build the whole computation: a kernel, or two if thread blocks share rows."""
        scanning = expand(self.scan_parts)
        if self.sizes.parts == 1:
            return scanning
        self._declare()
        return seq(expand(self.fold_parts), scanning)

    # ---- the algorithm ----

    @T.macro
    def fold_parts(self) -> None:
        """Fold each part of a row."""
        for block, thread in T.grid(*self._grid()):
            with T.block("fold_part"):
                vblock, vthread = T.axis.remap("SS", [block, thread])
                for buffer in self._buffers():
                    T.alloc_buffer(buffer)
                self._enter(vblock, vthread)
                self.carry.put(self.scan.identity, 0)
                self.fold_tiles(self._element, self.start, self.end, False)
                if self.lane == 0:
                    self.folds.put(self.carry.at(0), self.row, self.part)

    @T.macro
    def scan_parts(self) -> None:
        """Scan each part of a row, after folding those before it."""
        for block, thread in T.grid(*self._grid()):
            with T.block("scan_part"):
                vblock, vthread = T.axis.remap("SS", [block, thread])
                for buffer in self._buffers():
                    T.alloc_buffer(buffer)
                self._enter(vblock, vthread)
                self.carry.put(self.scan.identity, 0)
                if self.sizes.parts > 1:
                    self.fold_tiles(self._fold_of_part, T.int64(0), self.part, False)
                self.fold_tiles(self._element, self.start, self.end, True)

    @T.macro
    def fold_tiles(
        self, read: Callable[[Expr], State], start: Expr, end: Expr, writes: bool
    ) -> None:
        """Fold elements from ``start`` to ``end`` into the carry; write running results."""
        for tile in T.serial(self._tiles(start, end)):
            first = T.meta_var(start + tile * self.sizes.tile + self.lane * self.sizes.items)
            self.load_items(read, first, end)
            self.fold_lanes()
            if self.warps > 1:
                self.fold_warps()
            else:
                self.before.put(self.scan.combine(self.carry.at(0), self.before.at(0)), 0)
                self.last.put(self._last_lane(), 0)
                self.carry.put(self.scan.combine(self.carry.at(0), self.last.at(0)), 0)
            if writes:
                self.write_items(first, end)

    @T.macro
    def load_items(self, read: Callable[[Expr], State], first: Expr, end: Expr) -> None:
        """Load the thread's elements and fold them one by one."""
        for i in T.unroll(self.sizes.items):
            if self._is_inside(first + i, end):
                self.items.put(read(first + i), i)
            else:
                self.items.put(self.scan.identity, i)
        for i in T.unroll(1, self.sizes.items):
            self.items.put(self.scan.combine(self.items.at(i - 1), self.items.at(i)), i)
        self.last.put(self.items.at(self.sizes.items - 1), 0)

    @T.macro
    def fold_lanes(self) -> None:
        """Fold the lanes of a warp: up to each, and before each."""
        place = T.meta_var(self.lane % self.width)
        for step in [1 << bit for bit in range(self.width.bit_length() - 1)]:
            self.before.put(self._lane_before(step), 0)
            if place >= step:
                self.last.put(self.scan.combine(self.before.at(0), self.last.at(0)), 0)
        if self.width > 1:
            self.before.put(self._lane_before(1), 0)
        if place == 0:
            self.before.put(self.scan.identity, 0)

    @T.macro
    def fold_warps(self) -> None:
        """Fold the warps before each, and all of them."""
        warp = T.meta_var(self.lane // self.width)
        if self.lane % self.width == self.width - 1:
            self.warp_folds.put(self.last.at(0), warp)
        self.last.put(self.carry.at(0), 0)
        for other in T.unroll(self.warps):
            if other < warp:
                self.last.put(self.scan.combine(self.last.at(0), self.warp_folds.at(other)), 0)
            self.carry.put(self.scan.combine(self.carry.at(0), self.warp_folds.at(other)), 0)
        self.before.put(self.scan.combine(self.last.at(0), self.before.at(0)), 0)

    @T.macro
    def write_items(self, first: Expr, end: Expr) -> None:
        """Write running results."""
        for i in T.unroll(self.sizes.items):
            if self._is_inside(first + i, end):
                self.items.put(self.scan.combine(self.before.at(0), self.items.at(i)), i)
                self._write_results(first + i, self.items.at(i))

    # ---- where the thread is ----

    def _grid(self) -> tuple[Any, Any]:
        blocks = simplify(ceildiv(self.rows, const(self.sizes.rows)) * self.sizes.parts)
        return (
            T.thread_binding(blocks, thread="blockIdx.x"),
            T.thread_binding(self.sizes.threads, thread="threadIdx.x"),
        )

    def _buffers(self) -> list[Buffer]:
        states = [self.items, self.last, self.before, self.carry]
        if self.warps > 1:
            states.append(self.warp_folds)
        return [buffer for item in states for buffer in item.buffers]

    def _enter(self, block: Var, thread: Var) -> None:
        """Enter a part of some rows."""
        parts, tile = self.sizes.parts, self.sizes.tile
        self.lane = thread % self.sizes.lanes
        self.row = simplify(block // parts * self.sizes.rows + thread // self.sizes.lanes)
        self.part = simplify(block % parts)
        size = simplify(ceildiv(self.scan.extent, const(parts * tile)) * tile)
        self.start = simplify(self.part * size)
        self.end = self.scan.extent
        if parts > 1:
            self.end = simplify(minimum(self.start + size, self.end))

    def _tiles(self, start: Expr, end: Expr) -> Expr:
        return simplify(maximum(ceildiv(end - start, const(self.sizes.tile)), 0))

    def _is_inside(self, k: Expr, end: Expr) -> Expr:
        """Whether an element is one of the row's part, and the row one of the rows."""
        rows = as_int(self.rows)
        if rows is not None and rows % self.sizes.rows == 0:
            return k < end
        return and_(self.row < self.rows, k < end)

    # ---- states ----

    def _place(self) -> list[Expr]:
        """The indices of the row."""
        made: list[Expr] = []
        rest: Expr = self.row
        for extent in reversed(self.scan.rows[1:]):
            made.insert(0, rest % extent)
            rest = rest // extent
        return [rest, *made] if self.scan.rows else []

    def _element(self, k: Expr) -> State:
        return self.scan.element(self._place(), k)

    def _fold_of_part(self, part: Expr) -> State:
        return self.folds.at(self.row, part)

    def _write_results(self, k: Expr, state: State) -> Stmt:
        place = self.scan.place(self._place(), k)
        results = zip(self.scan.outputs, self.scan.results(state))
        return seq(*(store(buffer, value, *place) for buffer, value in results))

    def _lane_before(self, step: int) -> State:
        """The fold of the lane ``step`` before."""
        threads = self.sizes.threads
        return tuple(from_lane_before(v, step, self.width, threads) for v in self.last.at(0))

    def _last_lane(self) -> State:
        """The fold of all lanes."""
        if self.width == 1:
            return self.last.at(0)
        last, threads = self.width - 1, self.sizes.threads
        return tuple(from_lane(v, last, self.width, threads) for v in self.last.at(0))


__all__ = ["ScanThreads", "ScanTiles"]
