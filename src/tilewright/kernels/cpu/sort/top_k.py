"""The first few elements of long rows: most of a row is read twice and otherwise left alone.

1. The elements are dealt out to groups, a few times as many as elements are wanted, and the first
   element of each group is found by vector minima of keys. The ``k``-th of these is a bound: so
   many elements come before it or are it.
2. Elements up to the bound are collected: some more than ``k`` for random rows. Vectors in which
   there are none are passed over with one test for several of them.
3. What was collected is sorted with its places by :mod:`.network`, and the first ``k`` remain.

The first elements of groups are sorted by the same code, in the first turn of the same loop: the
network is most of the program, so there is one of it.

When there is no more room for what is collected, step 3 happens early, and the bound becomes what
was found: no order of the elements takes more than a sort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    Var,
    as_int,
    call,
    ceildiv,
    const,
    minimum,
    or_,
    select,
)
from tilewright.kernels.cpu.sort.keys import greatest, key_of, pack
from tilewright.kernels.cpu.sort.network import SortNetwork, kept_loop
from tilewright.kernels.cpu.sort.rows import Sorting, give_packed
from tilewright.tir import (
    UNROLLED,
    VECTORIZED,
    IfThenElse,
    LetStmt,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.building import block, lanes_from, let, load, loop, store

# Vectors that are passed over together.
_TOGETHER = 4


@dataclass(frozen=True)
class TopKTiles:
    """Sizes: bits of a vector, vectors sorted in registers together, groups, elements at a time.

    There is a test for lack of room after each ``segment`` elements.
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
    """Builds the body of the function; see the module's text."""

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
        """Make the whole computation: one block over the rows."""
        alloc = [
            self.accumulators, self.found, *self.network.alloc, self.nearest, self.length,
            self.bound,
        ]  # fmt: skip
        return block("top_k", self.sorting.axes(), self._row, alloc)

    def _row(self, *row: Var) -> Stmt:
        segments = ceildiv(self.sorting.extent, const(self.tiles.segment))

        def turn(t: Expr) -> Stmt:
            full = load(self.length, 0) > self.room - self.tiles.segment
            return seq(
                IfThenElse(t == 0, self._firsts(row), self._segment(row, t - 1)),
                IfThenElse(or_(t == 0, t == segments, full), self._keep_first()),
                # The bound was made; nothing is found yet.
                IfThenElse(t == 0, store(self.length, 0, 0)),
            )

        return seq(
            store(self.bound, const(greatest(64), "int64"), 0),
            kept_loop("turn", segments + 1, turn),
            give_packed(self.sorting, self.found, row, self.tiles.lanes // 2),
        )

    def _key(self, row: Sequence[Expr], index: Expr) -> Expr:
        return self.coder.encode(self.sorting.read(row, index))

    # ---- a bound ----

    def _firsts(self, row: Sequence[Expr]) -> Stmt:
        """Find the first key of each group. What makes no whole step is in no group."""
        tiles = self.tiles
        lanes, vectors = tiles.lanes, tiles.tile
        if tiles.groups % (vectors * lanes):
            vectors //= 2
        band = vectors * lanes

        def over(body: Callable[[Expr, Expr], Stmt]) -> Stmt:
            def vector(r: Expr) -> Stmt:
                return loop("lane", lanes, lambda lane: body(r, lane), VECTORIZED)

            return loop("r", vectors, vector, UNROLLED)

        def bands(b: Expr) -> Stmt:
            def update(step: Expr) -> Stmt:
                first = step * tiles.groups + b * band

                def nearer(r: Expr, lane: Expr) -> Stmt:
                    key = self._key(row, first + r * lanes + lane)
                    made = minimum(load(self.accumulators, r, lane), key)
                    return store(self.accumulators, made, r, lane)

                return over(nearer)

            def start(r: Expr, lane: Expr) -> Stmt:
                return store(self.accumulators, const(greatest(32), "int32"), r, lane)

            def give(r: Expr, lane: Expr) -> Stmt:
                packed = pack(load(self.accumulators, r, lane), const(2**32 - 1, "int64"))
                return store(self.found, packed, b * band + r * lanes + lane)

            steps = self.sorting.extent // tiles.groups
            return seq(over(start), loop("step", steps, update), over(give))

        return seq(
            loop("band", tiles.groups // band, bands),
            store(self.length, tiles.groups, 0),
        )

    # ---- collecting ----

    def _segment(self, row: Sequence[Expr], segment: Expr) -> Stmt:
        tiles = self.tiles
        step = _TOGETHER * tiles.lanes
        start = segment * tiles.segment

        def collect(size: Expr) -> Stmt:
            def some(s: Expr) -> Stmt:
                return self._pass_over(row, start + s * step)

            stmts = [loop("s", size // step, some)]
            rest = simplify(size - size // step * step)
            if as_int(rest) != 0:
                first = start + size // step * step
                stmts.append(loop("e", rest, lambda e: self._append(row, first + e)))
            return seq(*stmts)

        size = minimum(tiles.segment, self.sorting.extent - start)
        return let("size", size, collect)

    def _pass_over(self, row: Sequence[Expr], first: Expr) -> Stmt:
        """Collect from a few vectors if there is anything in them: from those where it is."""
        lanes = self.tiles.lanes

        def vector(n: Expr) -> Stmt:
            start = first + n * lanes
            elements = loop("e", lanes, lambda e: self._append(row, start + e))
            return self._where_within(row, start, 1, elements)

        return self._where_within(row, first, _TOGETHER, loop("n", _TOGETHER, vector))

    def _where_within(self, row: Sequence[Expr], first: Expr, count: int, body: Stmt) -> Stmt:
        """Do something if an element of so many vectors isn't beyond the bound."""
        lanes = self.tiles.lanes

        def nearest(lane: Expr) -> Stmt:
            keys = [self._key(row, first + n * lanes + lane) for n in range(count)]
            while len(keys) > 1:
                keys = [minimum(a, b) for a, b in zip(keys[::2], keys[1::2])]
            return store(self.nearest, keys[0], lane)

        least = call("vector_reduce_min", load(self.nearest, lanes_from(0, lanes)), dtype="int32")
        return seq(
            loop("lane", lanes, nearest, VECTORIZED),
            IfThenElse(least <= key_of(load(self.bound, 0)), body),
        )

    def _append(self, row: Sequence[Expr], index: Expr) -> Stmt:
        """Write an element behind what was found; it stays if it isn't beyond the bound."""
        packed = Var("packed", "int64")
        kept = select(packed <= load(self.bound, 0), const(1), const(0))
        length = load(self.length, 0)
        body = seq(store(self.found, packed, length), store(self.length, length + kept, 0))
        return LetStmt(packed, pack(self._key(row, index), index), body)

    def _keep_first(self) -> Stmt:
        """Sort what was found, and forget all but the first."""
        lanes, tile = self.network.lanes, self.network.tile
        length = load(self.length, 0)

        def sort(vectors: Expr) -> Stmt:
            def pad(v: Expr) -> Stmt:
                def lane_of(lane: Expr) -> Stmt:
                    last = const(greatest(64), "int64")
                    return store(self.found, last, length + v * lanes + lane)

                return loop("lane", lanes, lane_of, VECTORIZED)

            missing = vectors * lanes - length
            return seq(loop("v", ceildiv(missing, const(lanes)), pad), self.network.build(vectors))

        # Until there are enough, everything is the first; later places don't come before.
        last = load(self.found, self.count - 1)
        known = select(length >= self.count, last, load(self.bound, 0))
        return seq(
            let("vectors", ceildiv(length, const(tile * lanes)) * tile, sort),
            store(self.bound, known, 0),
            store(self.length, minimum(length, self.count), 0),
        )
