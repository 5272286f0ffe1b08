"""Sorts of rows: tiles in shared memory, whose runs are merged in passes over global memory.

A row that is one tile is sorted and written by one kernel. Else each tile becomes a run in global
memory, and a pass merges pairs of runs: each thread block finds where its own elements begin and
end in both runs, and merges these in shared memory. Passes alternate between two halves of memory.

If only the first ``k`` elements of rows are requested, runs are cut to ``k``: then the first pass
has little to do, and each other one half as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    Range,
    Var,
    as_int,
    cast,
    ceildiv,
    const,
    maximum,
    minimum,
    product,
    select,
)
from tilewright.kernels.gpu.sort.merging import Elements, Merging, SortThreads, Span, index
from tilewright.kernels.problems.sorting import Sorting
from tilewright.script import tir as T
from tilewright.tir import Buffer, BufferRegion, Stmt, seq
from tilewright.tir.script.parser import expand


class Pair(NamedTuple):
    """Two runs; a block merges what comes after the ``first`` elements, and puts it from ``to``."""

    left: Span
    right: Span
    first: Expr
    to: Expr


# Powers of two that the number of tiles may exceed: rows have fewer than 2**31 elements.
_MOST_PASSES = 31


class SortRows(Merging):
    """Builds the body of the function; see the module's docstring."""

    def __init__(self, sorting: Sorting, sizes: SortThreads) -> None:
        super().__init__(sorting, sizes)
        self.row_count = simplify(product(sorting.rows))
        self.tiles = simplify(ceildiv(sorting.extent, const(sizes.tile)))
        self.is_whole = as_int(self.tiles) == 1
        # The length of runs, if they are cut.
        count = sorting.options.count
        self.cut = count if count is not None and count <= sizes.tile else None
        length = sorting.extent if self.cut is None else self.tiles * self.cut
        self.runs = Elements(sorting, "runs", "global", 2, self.row_count, length)

    @property
    def root_buffers(self) -> tuple[Buffer, ...]:
        """Buffers between the kernels."""
        return () if self.is_whole else tuple(self.runs.buffers)

    def build(self) -> Stmt:
        """Build the whole computation."""
        if self.is_whole:
            return expand(self.sort_rows)
        made = [expand(self.sort_tiles)]
        self.declare()
        made.append(expand(self.merge_runs))
        self.declare()
        made.append(expand(self.write_rows))
        return seq(*made)

    # ---- kernels ----

    @T.macro
    def sort_rows(self) -> None:
        """Sort rows that fit into shared memory."""
        for block, thread in T.grid(*self.grid(self._blocks_of_rows())):
            with T.block("sort_rows"):
                vblock, vthread = T.axis.remap("SS", [block, thread])
                for buffer in self.buffers:
                    T.alloc_buffer(buffer)
                self.enter(vblock * self.sizes.rows, vthread)
                self.take(T.int64(0))
                self.sort_tile()
                for i in T.serial(self.sizes.items):
                    k = T.meta_var(i * self.sizes.threads + self.lane)
                    if self._is_inside(k, self.sorting.count):
                        self.give(k, self.shared.at(self.at(k)))

    @T.macro
    def sort_tiles(self) -> None:
        """Sort each tile of a row; runs are cut if only the first elements are requested."""
        for block, thread in T.grid(*self.grid(simplify(self.row_count * self.tiles))):
            with T.block("sort_tiles"):
                vblock, vthread = T.axis.remap("SS", [block, thread])
                for buffer in self.buffers:
                    T.alloc_buffer(buffer)
                self.enter(vblock // self.tiles, vthread)
                tile = T.meta_var(vblock % self.tiles)
                self.take(tile * self.sizes.tile)
                self.sort_tile()
                for i in T.serial(self.sizes.items):
                    k = T.meta_var(i * self.sizes.threads + self.lane)
                    to = T.meta_var(tile * (self.cut or self.sizes.tile) + k)
                    if self._is_kept(k, to):
                        self.runs.put(self.shared.at(self.at(k)), 0, self.row, to)

    @T.macro
    def merge_runs(self) -> None:
        """Merge pairs of runs until there is one."""
        for step in T.serial(self._passes()):
            for block, thread in T.grid(*self.grid(self._merging_blocks(step))):
                with T.block("merge_runs"):
                    vstep, vblock, vthread = T.axis.remap("OSS", [step, block, thread])
                    T.reads(*self._all_runs())
                    T.writes(*self._all_runs())
                    for buffer in self.buffers:
                        T.alloc_buffer(buffer)
                    pair = T.meta_var(self._pair(vstep, vblock, vthread))
                    # Named, as each is used many times.
                    left = pair.left.start
                    right = pair.right.start
                    left_count = pair.left.length
                    right_count = pair.right.length
                    first = pair.first
                    count = T.min(self.cut or self.sizes.tile, left_count + right_count - first)
                    self.merge_part(
                        Span(left, left_count), Span(right, right_count), first, count, pair.to
                    )

    @T.macro
    def merge_part(self, left: Span, right: Span, first: Expr, count: Expr, to: Expr) -> None:
        """Merge the block's elements of a pair of runs."""
        # Of the block's elements, those of the left run: from where, and up to where.
        self.search(self._key_of_runs(left), self._key_of_runs(right), left, right, first)
        start = index(self.low)
        self.search(self._key_of_runs(left), self._key_of_runs(right), left, right, first + count)
        share = index(self.low) - start
        for i in T.serial(self.sizes.items):
            k = T.meta_var(i * self.sizes.threads + self.lane)
            if k < count:
                source = T.Select(
                    k < share, left.start + start + k, right.start + (first - start) + (k - share)
                )
                self.shared.put(self.runs.at(self.half, self.row, source), self.at(k))
        before = T.min(self.lane * self.sizes.items, count)
        self.merge_own(Span(T.int64(0), share), Span(share, count - share), before)
        self.give_own()
        for i in T.serial(self.sizes.items):
            k = T.meta_var(i * self.sizes.threads + self.lane)
            if k < count:
                element = T.meta_var(self.shared.at(self.at(k)))
                self.runs.put(element, 1 - self.half, self.row, to + k)

    @T.macro
    def write_rows(self) -> None:
        """Write what is requested of the one run that is left."""
        count = T.meta_var(self.sorting.count)
        blocks = T.meta_var(simplify(ceildiv(count, const(self.sizes.tile))))
        for block, thread in T.grid(*self.grid(simplify(self.row_count * blocks))):
            with T.block("write_rows"):
                vblock, vthread = T.axis.remap("SS", [block, thread])
                self.enter(vblock // blocks, vthread)
                half = T.meta_var(self._passes() % 2)
                for i in T.serial(self.sizes.items):
                    part = T.meta_var(vblock % blocks * self.sizes.items + i)
                    k = T.meta_var(part * self.sizes.threads + self.lane)
                    if k < count:
                        self.give(k, self.runs.at(half, self.row, k))

    # ---- steps ----

    @T.macro
    def take(self, start: Expr) -> None:
        """Load a tile of the row through shared memory, so that neighbours read neighbours."""
        for i in T.serial(self.sizes.items):
            k = T.meta_var(i * self.sizes.threads + self.lane)
            if self._is_inside(start + k, self.sorting.extent):
                self.shared.put(self.read(start + k), self.at(k))
            else:
                self.shared.put(self.last(), self.at(k))
        for i in T.unroll(self.sizes.items):
            at = T.meta_var(self.at(self.lane * self.sizes.items + i))
            self.own.put(self.shared.at(at), i)

    # ---- where the block is ----

    def _blocks_of_rows(self) -> Expr:
        return simplify(ceildiv(self.row_count, const(self.sizes.rows)))

    def _is_inside(self, k: Expr, end: Expr) -> Expr:
        """Whether there is a ``k``-th element, and the row."""
        rows = as_int(self.row_count)
        if rows is not None and rows % self.sizes.rows == 0:
            return k < end
        made: Expr = T.And(self.row < self.row_count, k < end)
        return made

    def _is_kept(self, k: Expr, to: Expr) -> Expr:
        """Whether an element of a sorted tile is one of its run."""
        return to < self.sorting.extent if self.cut is None else k < self.cut

    def _passes(self) -> Expr:
        """The logarithm of the number of tiles, rounded up."""
        known = as_int(self.tiles)
        if known is not None:
            return const((known - 1).bit_length())
        passes: Expr = const(0)
        for power in range(_MOST_PASSES):
            passes = passes + cast(self.tiles > (1 << power), "int64")
        return passes

    def _merging_blocks(self, step: Expr) -> Expr:
        """Blocks of a pass: one for each tile, or for each run that it makes."""
        if self.cut is None:
            return simplify(self.row_count * self.tiles)
        return simplify(self.row_count * self._runs_after(step))

    def _runs_after(self, step: Expr) -> Expr:
        """The number of runs after a pass."""
        return ceildiv(self.tiles, T.shift_left(T.int64(2), step))

    def _pair(self, step: Var, block: Var, thread: Var) -> Pair:
        """Enter the block's part of a pair of runs."""
        self.half = step % 2
        per_row = self.tiles if self.cut is None else self._runs_after(step)
        self.enter(block // per_row, thread)
        number = block % per_row
        if self.cut is None:
            tile, extent = self.sizes.tile, self.sorting.extent
            run = T.shift_left(T.int64(tile), step)
            to = number * tile
            left = to // (run * 2) * (run * 2)
            right = left + run
            counts = minimum(run, extent - left), maximum(minimum(run, extent - right), 0)
            return Pair(Span(left, counts[0]), Span(right, counts[1]), to - left, to)
        runs = ceildiv(self.tiles, T.shift_left(T.int64(1), step))
        cut = const(self.cut)
        left = number * (2 * self.cut)
        lone = select(number * 2 + 1 < runs, cut, const(0))
        return Pair(Span(left, cut), Span(left + cut, lone), const(0), number * self.cut)

    def _all_runs(self) -> list[BufferRegion]:
        """The memory of the runs: where elements come from and go to depends on elements."""
        buffers = self.runs.buffers
        return [
            BufferRegion(b, tuple(Range.from_min_extent(const(0), n) for n in b.shape))
            for b in buffers
        ]

    def _key_of_runs(self, run: Span) -> Callable[[Expr], Expr]:
        return lambda i: self.runs.key(self.half, self.row, run.start + i)


__all__: Sequence[str] = ["SortRows", "SortThreads"]
