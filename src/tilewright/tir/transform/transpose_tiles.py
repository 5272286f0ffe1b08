"""Transpose tiles in registers.

Unrolled vector code that moves elements between two orders reads lanes that lie apart:

    for k in range(m):  B[b + k * d + lane] = f(A[a + k + lane * s])        # lane < n

Lane by lane that takes a load each. Instead, ``n`` vectors are read along the rows of ``A`` and
transposed by shuffles: pairs of rows are interleaved, then pairs of pairs, and last the quarters of
vectors are exchanged (what each step does to the bits of row and column numbers is noted below).
Runs after unrolling. Statements of a run are reordered, so that none of them may read what another
one writes, and no two may write the same element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    STRIDED,
    Call,
    Expr,
    IntImm,
    Mutator,
    Ramp,
    Shuffle,
    Var,
    as_int,
    const,
    contains,
    dtypes,
    pre_order,
)
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import BufferStore, IfThenElse, LetStmt, SeqStmt, Stmt, seq
from tilewright.tir.transform.base import FunctionTransform

#: Lanes that are exchanged together in the last steps: 128 bits of 32-bit elements.
_QUARTER = 4
_LANES = (4, 8, 16)
_has_stride = contains(STRIDED)


class TransposeTiles(FunctionTransform):
    """Replace groups of strided vector loads by whole rows and shuffles."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Transposer().visit) if _has_stride(func.body) else func


@dataclass(frozen=True)
class _Move:
    """A vector store of something of one strided load, with both places split: symbols, number."""

    store: BufferStore
    load: BufferLoad
    group: tuple[Any, ...]
    source: int
    target: int


# The columns of a tile, and which of them are to be stored.
_Tile = list[tuple[_Move, bool]]


class _Transposer(Mutator):
    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        # Under a mask, rows of a tile may be outside of the buffer.
        return node if dtypes.lanes_of(node.condition.dtype) > 1 else self.generic_visit(node)

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        made: list[Stmt] = []
        run: list[BufferStore] = []
        for stmt in node.stmts:
            if isinstance(stmt, BufferStore):
                run.append(stmt)
                continue
            made += self.rewritten(run)
            run = []
            made.append(self.visit(stmt))
        made += self.rewritten(run)
        if len(made) == len(node.stmts) and all(a is b for a, b in zip(made, node.stmts)):
            return node
        return seq(*made)

    def rewritten(self, run: Sequence[BufferStore]) -> Sequence[Stmt]:
        """Replace the tiles among stores that follow one another."""
        if len(run) < _QUARTER:
            return run
        found = [self.move(store) for store in run]
        moves = [item for item in found if item is not None]
        if len(moves) < _QUARTER or not self.independent(run):
            return run
        made: list[Stmt] = []
        taken: set[BufferStore] = set()
        for tile in _tiles(moves):
            made.append(_transposed(tile))
            taken.update(item.store for item, keep in tile if keep)
        return [*made, *(store for store in run if store not in taken)] if made else run

    def move(self, store: BufferStore) -> _Move | None:
        """Take a store apart, if it is a vector of a strided load."""
        if not _has_stride(store.value):
            return None
        lanes, place = dtypes.lanes_of(store.value.dtype), store.indices[0]
        if lanes not in _LANES or len(store.indices) != 1 or not _is_ramp(place, 1):
            return None
        parts = list(pre_order(store.value, _has_stride))
        if any(type(item) is Call and item.op.name == "if_then_else" for item in parts):
            return None  # rows of which no lane is chosen may be outside of the buffer
        strided = {
            id(item): item
            for item in parts
            if isinstance(item, BufferLoad) and len(item.indices) == 1 and _is_far(item.indices[0])
        }
        if len(strided) != 1:
            return None
        (load,) = strided.values()
        index = load.indices[0]
        assert isinstance(index, Ramp) and isinstance(place, Ramp)
        if dtypes.bits_of(load.buffer.dtype) != 32 or dtypes.lanes_of(load.dtype) != lanes:
            return None
        source, target = self.symbols_and_number(index.base), self.symbols_and_number(place.base)
        step = as_int(index.stride)
        group = (load.buffer.data, source[0], step, store.buffer.data, target[0], lanes)
        return _Move(store, load, group, source[1], target[1])

    def symbols_and_number(self, index: Expr) -> tuple[frozenset[Any], int]:
        """Split an index into what is symbolic and a number."""
        terms = dict(self.analyzer.to_polynomial(index).terms)
        number = terms.pop((), 0)
        return frozenset(terms.items()), number

    def independent(self, run: Sequence[BufferStore]) -> bool:
        """Whether stores may change places: all write different elements, and none reads them."""
        written = {store.buffer.data for store in run}
        spans: dict[Var, tuple[Any, list[tuple[int, int]]]] = {}
        for store in run:
            if any(
                isinstance(item, BufferLoad) and item.buffer.data in written
                for item in (*pre_order(store.value), *pre_order(store.indices[0]))
            ):
                return False
            place = store.indices[0]
            if len(store.indices) != 1 or not (_is_ramp(place, 1) or _is_scalar(place)):
                return False
            symbols, number = self.symbols_and_number(
                place.base if isinstance(place, Ramp) else place
            )
            known = spans.setdefault(store.buffer.data, (symbols, []))
            if known[0] != symbols:
                return False
            known[1].append((number, number + dtypes.lanes_of(place.dtype)))
        for _, places in spans.values():
            places.sort()
            if any(a[1] > b[0] for a, b in pairwise(places)):
                return False
        return True


def _is_ramp(index: Expr, stride: int) -> bool:
    return isinstance(index, Ramp) and as_int(index.stride) == stride


def _is_scalar(index: Expr) -> bool:
    return dtypes.lanes_of(index.dtype) == 1


def _is_far(index: Expr) -> bool:
    return (
        isinstance(index, Ramp) and isinstance(index.stride, IntImm) and abs(index.stride.value) > 1
    )


def _tiles(moves: Sequence[_Move]) -> list[_Tile]:
    """Find moves whose sources are neighbours and whose targets are equally far apart."""
    groups: dict[tuple[Any, ...], dict[tuple[int, int], _Move]] = {}
    for item in moves:
        groups.setdefault(item.group, {})[item.source, item.target] = item
    tiles = []
    for group, members in groups.items():
        left = dict(members)
        # What is left over in the end is too short for a tile of its own: it goes with some of
        # its neighbours once more, which aren't stored again.
        targets: dict[int, list[int]] = {}
        for source, target in members:
            targets.setdefault(source, []).append(target)
        for again in (False, True):
            found: list[_Tile] = []
            for first in sorted(left, reverse=again):
                tile = _tile_at(first, members if again else left, targets, group[-1], again)
                stored = [item is not None and key in left for key, item in tile]
                if any(stored) and first in left:
                    found.append([(item, keep) for (_, item), keep in zip(tile, stored)])
                    for key, _ in tile:
                        left.pop(key, None)
            # By rising addresses: stores of private buffers that LLVM 22 joins to one vector
            # (``sroa``) would otherwise use values before they are there.
            tiles += found[::-1] if again else found
    return tiles


def _tile_at(
    first: tuple[int, int],
    members: dict[tuple[int, int], _Move],
    targets: dict[int, list[int]],
    lanes: int,
    last: bool,
) -> list[tuple[tuple[int, int], _Move]]:
    """Return the largest tile that starts (or a small one that ends) with a move, if any."""
    source, target = first
    sign = -1 if last else 1
    steps = [other - target for other in targets.get(source + sign, ())]
    for columns in (_QUARTER,) if last else [size for size in reversed(_LANES) if size <= lanes]:
        for step in steps:
            keys = [(source + sign * k, target + k * step) for k in range(columns)]
            if all(key in members for key in keys):
                return [(key, members[key]) for key in keys[::sign]]
    return []


def _transposed(tile: _Tile) -> Stmt:
    """Return the statements of a tile: loads of rows, shuffles, stores."""
    columns, load = len(tile), tile[0][0].load
    lanes = dtypes.lanes_of(load.dtype)
    lets: list[tuple[Var, Expr]] = []

    def let(value: Expr) -> Var:
        lets.append((Var("tile", value.dtype), value))
        return lets[-1][0]

    registers = [let(value) for value in _rows(load, columns, lanes)]
    # Bits of numbers, from the lowest. Lanes: columns c0, c1, then c2, c3 as far as there are so
    # many, and rows; registers: rows r0, r1 and the others that are not in lanes.
    quarters = range(lanes // _QUARTER)
    quarter = range(_QUARTER)
    # Lanes c0, c1 become r0, c0; the register's r0 becomes c1.
    low = [q * 4 + k // 2 + (k % 2) * lanes for q in quarters for k in quarter]
    steps = [(low, [pick + 2 for pick in low])]
    # Lanes r0, c0 become r0, r1; the register's r1 becomes c0.
    low = [q * 4 + k % 2 + (k // 2) * lanes for q in quarters for k in quarter]
    steps.append((low, [pick + 2 for pick in low]))
    # The upper lane bits move down by one, a row comes in at the top, a column goes out.
    low = [p * 4 + k for p in range(0, 2 * len(quarters), 2) for k in quarter]
    steps += [(low, [pick + 4 for pick in low])] * ((columns // _QUARTER).bit_length() - 1)
    for bit, (first, second) in enumerate(steps):
        for number in (n for n in range(columns) if not n >> bit & 1):
            pair = registers[number], registers[number | 1 << bit]
            registers[number] = let(Shuffle(pair, tuple(first)))
            registers[number | 1 << bit] = let(Shuffle(pair, tuple(second)))
    stores = []
    for column, (item, keep) in enumerate(tile):
        number = column & ~3 | (column & 1) << 1 | (column & 2) >> 1
        if keep:
            stores.append(_with_value(item, registers[number]))
    body = seq(*stores)
    for var, value in reversed(lets):
        body = LetStmt(var, value, body)
    return body


def _rows(load: BufferLoad, columns: int, lanes: int) -> list[Expr]:
    """Read whole rows; short ones are joined, rows ``columns`` apart to one vector."""
    index = load.indices[0]
    assert isinstance(index, Ramp)

    def row(number: int) -> Expr:
        base = index.base + index.stride * const(number, index.stride.dtype)
        return BufferLoad(load.buffer, (Ramp(base, const(1, index.stride.dtype), columns),))

    joined = lanes // columns
    made = []
    for register in range(columns):
        # Bits r0, r1 are the register's lowest; those in lanes come next.
        low, high = register % _QUARTER, register // _QUARTER
        vectors = [row(low + _QUARTER * (part + joined * high)) for part in range(joined)]
        while len(vectors) > 1:
            vectors = [
                Shuffle((a, b), tuple(range(2 * dtypes.lanes_of(a.dtype))))
                for a, b in zip(vectors[::2], vectors[1::2])
            ]
        made.append(vectors[0])
    return made


def _with_value(item: _Move, var: Var) -> BufferStore:
    """Return the store with a variable in place of the load."""
    value = _Replacer(item.load, var).visit(item.store.value)
    made: BufferStore = item.store.replace(value=value)
    return made


class _Replacer(Mutator):
    def __init__(self, load: BufferLoad, var: Var) -> None:
        self.load = load
        self.var = var

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        return self.var if node is self.load else node
