"""The sorting problem, and the kernel that sorts whole rows by a network.

Each row is converted to keys (:mod:`.keys`) in separate memory, sorted there by :mod:`.network` and
converted back.

Indices don't fit beside 64-bit integers, but do beside their differences from the row's minimum, if
these are small, as for indices of experts or tokens. Other rows are sorted by the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.arith import simplify
from tilewright.ir import (
    Expr,
    ExprLike,
    Var,
    and_,
    as_int,
    call,
    cast,
    ceildiv,
    const,
    maximum,
    minimum,
)
from tilewright.kernels.cpu.sort.network import SortNetwork
from tilewright.kernels.problems.sort_keys import greatest, key_of, pack, place_of
from tilewright.kernels.problems.sorting import Sorting
from tilewright.tir import (
    PARALLEL,
    SERIAL,
    VECTORIZED,
    Buffer,
    IfThenElse,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.building import block, lanes_from, load, loop, store
from tilewright.topi.sort import MergeSort


def by_vectors(count: Expr, lanes: int, body: Callable[[Expr], Stmt], kind: str = SERIAL) -> Stmt:
    """``body(i)`` for each ``i`` below ``count``: by vectors, then the remainder one by one."""
    whole = simplify(count // lanes)
    rest = simplify(count - whole * lanes)

    def vector(v: Expr) -> Stmt:
        return loop("lane", lanes, lambda lane: body(v * lanes + lane), VECTORIZED)

    stmts = [loop("v", whole, vector, kind)]
    if as_int(rest) != 0:
        stmts.append(loop("e", rest, lambda e: body(whole * lanes + e)))
    return seq(*stmts)


def give_packed(
    sorting: Sorting, packed: Buffer, row: Sequence[Expr], lanes: int, kind: str = SERIAL
) -> Stmt:
    """Store results from packed keys and indices."""
    coder = sorting.coder(exact=False)
    # Keys don't tell zeros apart, and may be less than elements by some number.
    apart = coder.is_float or coder.bits == 64

    def index(i: Expr) -> Stmt:
        assert sorting.indices is not None
        made = cast(place_of(load(packed, i)), sorting.indices.dtype)
        return store(sorting.indices, made, *sorting.place(row, i))

    def value(i: Expr) -> Stmt:
        assert sorting.values is not None
        if apart:
            made = sorting.read(row, place_of(load(packed, i)))
        else:
            made = coder.decode(key_of(load(packed, i)))
        return store(sorting.values, made, *sorting.place(row, i))

    stmts = []
    if sorting.indices is not None:
        stmts.append(by_vectors(sorting.count, lanes, index, kind))
    if sorting.values is not None:
        if apart:
            stmts.append(loop("i", sorting.count, value, kind))
        else:
            stmts.append(by_vectors(sorting.count, lanes, value, kind))
    return seq(*stmts)


@dataclass(frozen=True)
class SortTiles:
    """Sizes: bits of a vector, vectors that are sorted in registers together.

    With ``is_shared`` threads share each row, otherwise they may share the rows.
    """

    vector_bits: int
    tile: int
    is_shared: bool = False

    def fault(self, sorting: Sorting) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if self.vector_bits < 64 or self.vector_bits & (self.vector_bits - 1):
            return "vector_bits is a power of two of at least 64"
        if self.tile < 1 or self.tile & (self.tile - 1) or self.tile % self.lanes(sorting):
            return "tile is a power of two and a multiple of the lanes"
        if sorting.indices is not None and sorting.x.dtype in ("float64", "uint64"):
            return f"places don't fit beside {sorting.x.dtype}"
        return None

    def lanes(self, sorting: Sorting) -> int:
        """Keys of a vector."""
        return self.vector_bits // key_bits(sorting)


def key_bits(sorting: Sorting) -> int:
    """Bits of the sorted integers: keys, with indices if requested."""
    packed = sorting.indices is not None
    return 64 if packed else sorting.coder(exact=True).bits


class SortRows:
    """Builds the body of the function; see the module's docstring."""

    def __init__(self, sorting: Sorting, tiles: SortTiles) -> None:
        self.sorting = sorting
        self.lanes = tiles.lanes(sorting)
        self.bits = key_bits(sorting)
        self.packed = sorting.indices is not None
        self.coder = sorting.coder(exact=not self.packed)
        self.vectors = simplify(
            ceildiv(sorting.extent, const(tiles.tile * self.lanes)) * tiles.tile
        )
        self.keys = decl_buffer((self.vectors * self.lanes,), f"int{self.bits}", "keys")
        self.network = SortNetwork(self.keys, self.lanes, tiles.tile, is_shared=tiles.is_shared)
        self.kind = PARALLEL if tiles.is_shared else SERIAL
        # Places beside 64-bit keys: the least and the greatest key, in the first lane at last.
        self.narrows = self.packed and self.coder.bits == 64
        self.least, self.most = (
            decl_buffer((self.lanes,), "int64", name, scope="local") for name in ("least", "most")
        )
        outputs = [item for item in (sorting.values, sorting.indices) if item is not None]
        self.otherwise = MergeSort(sorting.x, outputs, sorting.options)

    def build(self) -> Stmt:
        """Build the whole computation: one block over the rows."""
        alloc = [self.keys, *self.network.alloc]
        if self.narrows:
            alloc += [self.least, self.most, *self.otherwise.alloc]
        return block("sort_rows", self.sorting.axes(), self._row, alloc)

    def _row(self, *row: Var) -> Stmt:
        made = self._sorted(row)
        if as_int(self.sorting.extent) is not None:
            return made
        # There are no keys where rows turn out to be empty, nor place for what fills them up.
        return IfThenElse(self.sorting.extent > 0, made)

    def _sorted(self, row: Sequence[Var]) -> Stmt:
        if not self.narrows:
            return self._by_network(row)
        least, most = load(self.least, 0), load(self.most, 0)
        # No difference overflows.
        fits = and_(least >= -(2**62), most < 2**62, most - least < 2**31)
        return seq(
            self._range(row),
            IfThenElse(fits, self._by_network(row), self.otherwise.row(*row)),
        )

    def _range(self, row: Sequence[Var]) -> Stmt:
        """Find the least and the greatest key."""
        lanes = self.lanes
        whole = simplify(self.sorting.extent // lanes)

        def start(lane: Expr) -> Stmt:
            top = const(greatest(64), "int64")
            return seq(store(self.least, top, lane), store(self.most, -top, lane))

        def widen(i: Expr, lane: ExprLike) -> Stmt:
            key = self.coder.encode(self.sorting.read(row, i))
            return seq(
                store(self.least, minimum(load(self.least, lane), key), lane),
                store(self.most, maximum(load(self.most, lane), key), lane),
            )

        def vector(v: Expr) -> Stmt:
            return loop("lane", lanes, lambda lane: widen(v * lanes + lane, lane), VECTORIZED)

        all_lanes = lanes_from(0, lanes)
        stmts = [
            loop("lane", lanes, start, VECTORIZED),
            loop("v", whole, vector),
            loop("e", self.sorting.extent - whole * lanes, lambda e: widen(whole * lanes + e, 0)),
        ]
        for buffer, name in ((self.least, "min"), (self.most, "max")):
            joined: Expr = load(buffer, all_lanes)
            if lanes > 1:
                joined = call(f"vector_reduce_{name}", joined, dtype="int64")
            stmts.append(store(buffer, joined, 0))
        return seq(*stmts)

    def _by_network(self, row: Sequence[Var]) -> Stmt:
        sorting, lanes = self.sorting, self.lanes
        tile = self.network.tile

        def pad(i: Expr) -> Stmt:
            where = (self.vectors - tile) * lanes + i
            return store(self.keys, const(greatest(self.bits), self.keys.dtype), where)

        def encode(i: Expr) -> Stmt:
            key = self.coder.encode(sorting.read(row, i))
            if self.narrows:
                key = key - load(self.least, 0)
            if self.packed:
                key = pack(key, i)
            return store(self.keys, key, i)

        encoded = by_vectors(sorting.extent, lanes, encode, self.kind)
        stmts = [encoded, self.network.build(self.vectors)]
        known = as_int(sorting.extent)
        if known is None or known % (tile * lanes):
            stmts.insert(0, by_vectors(const(tile * lanes), lanes, pad))
        return seq(*stmts, self._write_results(row))

    def _write_results(self, row: Sequence[Var]) -> Stmt:
        if self.packed:
            return give_packed(self.sorting, self.keys, row, self.lanes, self.kind)
        values = self.sorting.values
        assert values is not None

        def decode(i: Expr) -> Stmt:
            value = self.coder.decode(load(self.keys, i))
            return store(values, value, *self.sorting.place(row, i))

        return by_vectors(self.sorting.count, self.lanes, decode, self.kind)
