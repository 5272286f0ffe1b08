"""Join the lanes of a partial reduction by one vector operation instead of a loop.

A reduction split over lanes ends with a short loop over them, ``for l in 16: acc = acc +
part[l]``: a chain of dependent additions. Where the parts are an intermediate buffer of the
function, side by side, and their number is a power of two, they are reduced as a vector, in the
tree that the hardware likes. Runs after vectorising, so that what is left is scalar code.

Several such results at once, ``for l in 16: acc[0:8] = acc[0:8] + part[l], part[16 + l] …``, share
their tree: two vectors become one that holds half as many parts of twice as many results, until
one vector holds a result in each lane. That takes two shuffles a result instead of four.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.arith import linear_coefficients
from tilewright.ir import (
    GT,
    Add,
    Broadcast,
    Expr,
    Max,
    Min,
    Mutator,
    Ramp,
    Select,
    Shuffle,
    Var,
    as_int,
    call,
    const,
    dtypes,
    expr_equal,
    maximum,
    minimum,
)
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import SERIAL, Allocate, BufferStore, For, LetStmt, Stmt
from tilewright.tir.transform.base import FunctionTransform, uses_any

Combine = Callable[[Any, Any], Expr]

# The operation of a join, and what reduces all lanes of a vector by it.
_JOINS: dict[type, tuple[str, Combine]] = {
    Add: ("vector_reduce_add", operator.add),
    Max: ("vector_reduce_max", maximum),
    Min: ("vector_reduce_min", minimum),
}
_DTYPES = ("float32", "float64", "int32", "int64", "uint32", "uint64")
#: More elements than that are a reduction of their own, not the lanes of one.
MAX_LANES = 128
# Shuffles within parts of a register of so many bits come first: they are the quickest.
_PART_BITS = 128


@dataclass(frozen=True)
class _Join:
    """``combine(total, part)``; ``name`` is the operator that does it for all lanes, if any."""

    total: Expr
    partial: Expr
    combine: Combine
    name: str | None


def _join_of(value: Expr) -> _Join | None:
    """Take the value of a join apart."""
    known = _JOINS.get(type(value))
    if known is not None:
        return _Join(value.a, value.b, known[1], known[0])  # type: ignore[attr-defined]
    if type(value) is Select and type(value.condition) is GT:
        partial, total = value.true_value, value.false_value
        above: Any = value.condition
        if expr_equal(above.a, partial) and expr_equal(above.b, total):
            return _Join(total, partial, _greater_number, None)
    return None


def _greater_number(total: Expr, partial: Expr) -> Expr:
    return Select(partial > total, partial, total)


class JoinLanes(FunctionTransform):
    """Replace loops over the lanes of partial results by vector reductions."""

    def __init__(self, vector_bits: int = 512) -> None:
        self.vector_bits = vector_bits

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Joiner(self.vector_bits).visit)


class _Joiner(Mutator):
    def __init__(self, vector_bits: int) -> None:
        self.vector_bits = vector_bits
        self.own: set[Var] = set()

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_Allocate(self, node: Allocate) -> Allocate:
        self.own.add(node.buffer.data)
        return self.generic_visit(node)

    def visit_For(self, node: For) -> Stmt:
        return self.joined(node) or self.generic_visit(node)

    def joined(self, loop: For) -> Stmt | None:
        """The loop as one store; ``None`` if it isn't a join of lanes."""
        lanes, start, store = as_int(loop.extent), as_int(loop.min), loop.body
        if loop.kind != SERIAL or lanes is None or start is None or type(store) is not BufferStore:
            return None
        join = _join_of(store.value)
        if join is None or not 4 <= lanes <= MAX_LANES or lanes & (lanes - 1):
            return None
        total, partial = join.total, join.partial
        if type(total) is not BufferLoad or type(partial) is not BufferLoad:
            return None
        if dtypes.element_of(store.value.dtype) not in _DTYPES:
            return None
        if (
            total.buffer.data is not store.buffer.data
            or partial.buffer.data is store.buffer.data
            or partial.buffer.data not in self.own
            or len(partial.indices) != 1
            or len(store.indices) != 1
            or not expr_equal(total.indices[0], store.indices[0])
            or uses_any(store.indices[0], [loop.loop_var])
        ):
            return None
        index = partial.indices[0]
        first = index.base if isinstance(index, Ramp) else index
        linear = linear_coefficients(first, [loop.loop_var])
        if linear is None or as_int(linear[0]) != 1:
            return None
        base = linear[1] + start if start else linear[1]
        if dtypes.is_scalable(index.dtype):
            return None
        if isinstance(index, Ramp):
            return self._several(store, join, index.replace(base=base), lanes)
        if join.name is None:
            rows = Ramp(base, const(lanes), 1)
            return self._several(store, join, rows, lanes)
        vector = BufferLoad(partial.buffer, (Ramp(base, const(1), lanes),))
        made = call(join.name, vector, dtype=store.value.dtype)
        joined: BufferStore = store.replace(value=join.combine(total, made))
        return joined

    def _several(self, store: BufferStore, join: _Join, rows: Ramp, lanes: int) -> Stmt | None:
        """Join the lanes of several results, whose parts are ``rows.stride`` apart."""
        partial = join.partial
        assert isinstance(partial, BufferLoad)
        bits = dtypes.bits_of(partial.buffer.dtype)
        stride, count, width = as_int(rows.stride), rows.lanes, self.vector_bits // bits
        if stride is None or stride < lanes or count & (count - 1) or width * bits < _PART_BITS:
            return None
        if isinstance(store.indices[0], Broadcast) or count > min(width, lanes):
            return None
        tree = _Tree(join.combine, min(width, lanes), _PART_BITS // bits)
        vectors = []
        for row in range(count):
            start = rows.base + stride * row
            slices: list[Expr] = [
                BufferLoad(partial.buffer, (Ramp(start + at, const(1), tree.width),))
                for at in range(0, lanes, tree.width)
            ]
            vectors.append(tree.sum(slices))
        value = tree.join(vectors)
        if count == 1:
            value = Shuffle((value,), (0,))
        made: Stmt = store.replace(value=join.combine(join.total, value))
        for var, value in reversed(tree.lets):
            made = LetStmt(var, value, made)
        return made


class _Tree:
    """Joins the lanes of vectors; collects the steps as variables."""

    def __init__(self, combine: Combine, width: int, partial: int) -> None:
        self.combine = combine
        self.width = width
        self.partial = min(partial, width)
        self.lets: list[tuple[Var, Expr]] = []

    def let(self, value: Expr) -> Var:
        """Give a value a name."""
        self.lets.append((Var("joined", value.dtype), value))
        return self.lets[-1][0]

    def sum(self, values: list[Expr]) -> Expr:
        """Combine whole vectors, pairwise."""
        while len(values) > 1:
            half = len(values) // 2
            values = [self.let(self.combine(a, b)) for a, b in zip(values[:half], values[half:])]
        return values[0]

    def join(self, vectors: list[Expr]) -> Expr:
        """One lane for each vector, in order: what combines all of that vector's lanes.

        Each step drops one bit of the lanes' numbers, over which it combines, and takes in one bit
        of the vectors' numbers.
        """
        # Bits of lanes from the lowest: negative ones count parts of a result, others results.
        bits = [-1 - bit for bit in range(self.width.bit_length() - 1)]
        split = self.partial.bit_length() - 1
        steps = len(vectors).bit_length() - 1
        for step in range(steps):
            low = step < split
            first, last = (0, split) if low else (split, len(bits))
            dropped = max(bit for bit in range(first, last) if bits[bit] < 0)
            kept = [bit for bit in range(len(bits)) if bit != dropped]
            # Two of four elements from each vector: unpacked by turns, or one after the other.
            kept.insert(sum(bits[bit] >= 0 for bit in range(first, last)) if low else last - 1, -1)
            picks = [
                [self._pick(lane, kept, dropped, half) for lane in range(self.width)]
                for half in (0, 1)
            ]
            vectors = [
                self.let(self.combine(*(self.let(Shuffle((a, b), tuple(p))) for p in picks)))
                for a, b in zip(vectors[::2], vectors[1::2])
            ]
            bits = [step if bit < 0 else bits[bit] for bit in kept]
        return self._folded(vectors[0], bits)

    def _pick(self, lane: int, kept: list[int], dropped: int, half: int) -> int:
        """Where a lane comes from: bit ``place`` of its number is bit ``kept[place]`` there."""
        source = half << dropped
        for place, bit in enumerate(kept):
            value = lane >> place & 1
            source |= value * (self.width if bit < 0 else 1 << bit)
        return source

    def _folded(self, vector: Expr, bits: list[int]) -> Expr:
        """Combine over the bits of lanes that still count parts."""
        while any(bit < 0 for bit in bits):
            dropped = max(place for place, bit in enumerate(bits) if bit < 0)
            lanes = [lane for lane in range(1 << len(bits)) if not lane >> dropped & 1]
            halves = (
                self.let(Shuffle((vector,), tuple(lane | bit for lane in lanes)))
                for bit in (0, 1 << dropped)
            )
            vector = self.let(self.combine(*halves))
            bits = bits[:dropped] + bits[dropped + 1 :]
        order = sorted(range(len(bits)), key=lambda place: bits[place])
        if order == list(range(len(bits))):
            return vector
        picks = [
            sum((lane >> bits[place] & 1) << place for place in range(len(bits)))
            for lane in range(1 << len(bits))
        ]
        return self.let(Shuffle((vector,), tuple(picks)))
