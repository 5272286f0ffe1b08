"""The first few elements of long rows, reading most elements twice at most.

1. The elements are divided into groups, a few times as many as requested elements, and the first
   element of each group is found by vector minima of keys. The ``k``-th of these is a bound: so
   many elements come before it or are it.
2. Elements up to the bound are collected: slightly more than ``k`` for random rows. Vectors in
which
   there are none are passed over with one test for several of them.
3. What was collected is sorted with its places by :mod:`.network`, and the first ``k`` remain.

The first elements of groups are sorted by the same code, in the first iteration of the same loop:
the network is most of the program, so there is only one copy.

When the collection buffer is full, step 3 runs early and tightens the bound: so no order of the
elements takes longer than a sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    as_int,
    call,
    ceildiv,
    const,
    minimum,
    or_,
)
from tilewright.kernels.cpu.sort.network import KEPT, SortNetwork
from tilewright.kernels.cpu.sort.rows import give_packed
from tilewright.kernels.problems.sort_keys import greatest, key_of, pack
from tilewright.kernels.problems.sorting import Sorting
from tilewright.script import tir as T
from tilewright.tir import Stmt, decl_buffer
from tilewright.tir.building import block, lanes_from, load
from tilewright.tir.script.parser import expand

# Vectors that are passed over together.
_TOGETHER = 4
# Keys beyond all others, with places and without.
LAST, NEVER = const(greatest(64), "int64"), const(greatest(32), "int32")


@dataclass(frozen=True)
class TopKTiles:
    """Sizes: bits of a vector, vectors sorted in registers together, groups, elements at a time.

    After each ``segment`` elements the remaining room is checked.
    """

    vector_bits: int
    tile: int
    groups: int
    segment: int

    @property
    def lanes(self) -> int:
        """Keys of a vector."""
        return self.vector_bits // 32

    def fault(self, sorting: Sorting) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if self.vector_bits < 64 or self.vector_bits & (self.vector_bits - 1):
            return "vector_bits is a power of two of at least 64"
        if self.tile < 2 or self.tile & (self.tile - 1) or self.tile % (self.lanes // 2):
            return "tile is a power of two and a multiple of the 64-bit lanes"
        if self.groups % (self.tile * self.lanes // 2) or self.segment % (_TOGETHER * self.lanes):
            return "groups are whole tiles of 64-bit lanes, and a segment is tested in whole steps"
        count = sorting.options.count
        if count is None or not 0 < count <= self.groups:
            return "it is for a known number of elements, and as many groups"
        if sorting.coder(exact=False).bits != 32:
            return "places don't fit beside keys of 64 bits"
        return None


class TopK:
    """Builds the body of the function; see the module's docstring."""

    def __init__(self, sorting: Sorting, tiles: TopKTiles) -> None:
        assert sorting.options.count is not None, "the rule refuses others"
        self.sorting, self.tiles, self.count = sorting, tiles, sorting.options.count
        self.coder = sorting.coder(exact=False)
        lanes = tiles.lanes
        self.accumulators = decl_buffer((tiles.tile, lanes), "int32", "accumulators", scope="local")
        # Room for what is kept, a segment, whole tiles, and a vector of padding.
        self.room = self.count + tiles.segment
        whole = -(-self.room // (tiles.tile * lanes // 2)) * (tiles.tile * lanes // 2)
        self.found = decl_buffer((whole + lanes,), "int64", "found")
        self.network = SortNetwork(self.found, max(1, lanes // 2), tiles.tile)
        self.nearest = decl_buffer((lanes,), "int32", "nearest", scope="local")
        self.length = decl_buffer((1,), "int64", "length", scope="local")
        self.bound = decl_buffer((1,), "int64", "bound", scope="local")

    def build(self) -> Stmt:
        """Build the whole computation: one block over the rows."""
        alloc = [
            self.accumulators, self.found, *self.network.alloc, self.nearest, self.length,
            self.bound,
        ]  # fmt: skip
        return block("top_k", self.sorting.axes(), lambda *row: expand(self.top_k, row), alloc)

    @T.macro
    def top_k(self, row: Sequence[Expr]) -> None:
        """Find a bound in the first iteration; collect elements up to it in the others."""
        self.bound[0] = LAST
        for turn in T.serial(simplify(self._segments() + 1), annotations=KEPT):
            if turn == 0:
                self.firsts(row)
            else:
                self.segment(row, turn - 1)
            full = T.meta_var(self.length[0] > self.room - self.tiles.segment)
            if or_(turn == 0, turn == self._segments(), full):
                self.keep_first()
            if turn == 0:
                self.length[0] = T.int64(0)  # the bound was made; nothing is found yet
        give_packed(self.sorting, self.found, row, self.tiles.lanes // 2)

    def _segments(self) -> Expr:
        return ceildiv(self.sorting.extent, const(self.tiles.segment))

    def _key(self, row: Sequence[Expr], index: Expr) -> Expr:
        return self.coder.encode(self.sorting.read(row, index))

    # ---- a bound ----

    @T.macro
    def firsts(self, row: Sequence[Expr]) -> None:
        """Find the first key of each group. Elements after the last whole step are in no group."""
        lanes, groups = self.tiles.lanes, self.tiles.groups
        vectors = self._vectors_of_groups()
        for band in T.serial(groups // (vectors * lanes)):
            for r, lane in T.grid(T.unroll(vectors), T.vectorized(lanes)):
                self.accumulators[r, lane] = NEVER
            for step in T.serial(simplify(self.sorting.extent // groups)):
                first = T.meta_var(step * groups + band * (vectors * lanes))
                for r, lane in T.grid(T.unroll(vectors), T.vectorized(lanes)):
                    self.accumulators[r, lane] = T.min(
                        self.accumulators[r, lane], self._key(row, first + r * lanes + lane)
                    )
            for r, lane in T.grid(T.unroll(vectors), T.vectorized(lanes)):
                self.found[band * (vectors * lanes) + r * lanes + lane] = pack(
                    self.accumulators[r, lane], T.int64(2**32 - 1)
                )
        self.length[0] = T.int64(groups)

    def _vectors_of_groups(self) -> int:
        """Vectors whose first keys are found at a time; groups are several times as many."""
        vectors = self.tiles.tile
        return vectors // 2 if self.tiles.groups % (vectors * self.tiles.lanes) else vectors

    # ---- collecting ----

    @T.macro
    def segment(self, row: Sequence[Expr], number: Expr) -> None:
        """Collect the elements of a segment up to the bound."""
        step = _TOGETHER * self.tiles.lanes
        start = T.meta_var(number * self.tiles.segment)
        size = simplify(minimum(self.tiles.segment, self.sorting.extent - start))
        for s in T.serial(size // step):
            self.pass_over(row, start + s * step)
        rest = T.meta_var(simplify(size - size // step * step))
        if as_int(rest) != 0:
            for e in T.serial(rest):
                self.append(row, start + size // step * step + e)

    @T.macro
    def pass_over(self, row: Sequence[Expr], first: Expr) -> None:
        """Collect from those of a few vectors that contain elements up to the bound."""
        lanes = self.tiles.lanes
        self.find_nearest(row, first, _TOGETHER)
        if self._has_near():
            for n in T.serial(_TOGETHER):
                start = T.meta_var(first + n * lanes)
                self.find_nearest(row, start, 1)
                if self._has_near():
                    for e in T.serial(lanes):
                        self.append(row, start + e)

    @T.macro
    def find_nearest(self, row: Sequence[Expr], first: Expr, count: int) -> None:
        """The first key of each lane in ``count`` vectors."""
        for lane in T.vectorized(self.tiles.lanes):
            self.nearest[lane] = self._least_of(
                [self._key(row, first + n * self.tiles.lanes + lane) for n in range(count)]
            )

    def _least_of(self, keys: Sequence[Expr]) -> Expr:
        while len(keys) > 1:
            keys = [minimum(a, b) for a, b in zip(keys[::2], keys[1::2])]
        return keys[0]

    def _has_near(self) -> Expr:
        """Whether any of the tested elements is within the bound."""
        nearest = load(self.nearest, lanes_from(0, self.tiles.lanes))
        least = call("vector_reduce_min", nearest, dtype="int32")
        return least <= key_of(load(self.bound, 0))

    @T.macro
    def append(self, row: Sequence[Expr], index: Expr) -> None:
        """Write an element after those found; it is kept if it is within the bound."""
        packed = pack(self._key(row, index), index)
        self.found[self.length[0]] = packed
        self.length[0] = self.length[0] + T.Select(packed <= self.bound[0], T.int64(1), T.int64(0))

    @T.macro
    def keep_first(self) -> None:
        """Sort the collected elements, and keep only the first."""
        lanes, tile = self.network.lanes, self.network.tile
        self.sort_found(simplify(ceildiv(self.length[0], const(tile * lanes)) * tile))
        # Until there are enough, everything is the first; later places don't come before.
        self.bound[0] = T.Select(
            self.length[0] >= self.count, self.found[self.count - 1], self.bound[0]
        )
        self.length[0] = T.min(self.length[0], self.count)

    @T.macro
    def sort_found(self, count: Expr) -> None:
        """Pad to whole tiles of vectors with the greatest key, and sort."""
        lanes = self.network.lanes
        vectors = count
        missing = T.meta_var(vectors * lanes - self.length[0])
        for v, lane in T.grid(simplify(ceildiv(missing, lanes)), T.vectorized(lanes)):
            self.found[self.length[0] + v * lanes + lane] = LAST
        self.network.build(vectors)
