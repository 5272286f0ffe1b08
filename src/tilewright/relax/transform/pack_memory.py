"""Where tensors lie in a workspace: packing of lifetimes, of known and of symbolic sizes.

Tensors are placed one after the other by best fit, where they overlap no tensor that is live at the
same time: the largest first, as in Pisarchyk & Lee, "Efficient Memory Management for Deep Neural
Net Inference" (2020), or in other orders, until the peak of the live tensors is reached, below
which no plan can go. What sticks out goes first in the next attempt.

Symbolic sizes are packed at a sample. That says which tensor lies above which; each then starts
where the highest of those below it ends, whatever the sizes are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.arith import Analyzer, evaluate, simplify
from tilewright.arith.polynomial import poly_key
from tilewright.ir import Expr, as_int, const, dtypes, free_vars, maximum, product
from tilewright.relax.struct_info import TensorStructInfo

ALIGNMENT = 64
"""Pieces start at multiples of this many bytes: a cache line, and the widest vector."""

# How often another order is tried where the peak of live tensors isn't reached.
_ATTEMPTS = 40
# An offset is the greatest of at most so many sums of sizes.
_MOST_SUMS = 16

Amount = Mapping[object, int]
"""Bytes: factors of products of symbolic extents, by key; ``()`` is the product of none."""


@dataclass(eq=False)
class Piece:
    """A tensor in a workspace: the first and last step of its life, its bytes, and its place."""

    first: int
    last: int
    amount: Amount
    offset: Expr | None = None

    def overlaps(self, other: Piece) -> bool:
        """Whether both are live in some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass
class Sizes:
    """Sizes of tensors as amounts; equal products of extents have one key."""

    products: dict[object, Expr] = field(default_factory=dict)
    _analyzer: Analyzer = field(default_factory=Analyzer)

    def of(self, info: TensorStructInfo) -> Amount:
        """Return the bytes of a tensor, rounded up to the alignment."""
        factor, symbolic = dtypes.bytes_of(info.dtype), []
        for extent in info.shape:
            number = as_int(extent)
            if number is None:
                symbolic.append(extent)
            else:
                factor *= number
        if not symbolic:
            return {(): -(-factor // ALIGNMENT) * ALIGNMENT}
        keys = sorted(sorted(poly_key(self._analyzer.poly(extent))) for extent in symbolic)
        key: object = tuple(map(tuple, keys))
        total = product(symbolic)
        if factor % ALIGNMENT:
            key = (factor, key)
            total = simplify((total * factor + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)
            factor = 1
        self.products.setdefault(key, total)
        return {key: factor}

    def samples(self) -> dict[object, int]:
        """Values of all products at some sizes, another one for each variable."""
        names = {var: None for total in self.products.values() for var in free_vars(total)}
        values = {var: 97 + 6 * number for number, var in enumerate(names)}
        found = {key: int(evaluate(total, values)) for key, total in self.products.items()}
        return {(): 1, **found}

    def expr(self, sums: Sequence[Amount]) -> Expr:
        """Return the greatest of some amounts as an expression."""
        made: Expr | None = None
        for amount in sums:
            total: Expr = const(amount.get((), 0))
            for key, factor in amount.items():
                if key != ():
                    total = total + self.products[key] * factor
            made = total if made is None else maximum(made, total)
        return const(0) if made is None else simplify(made)


def assign_offsets(pieces: Sequence[Piece], sizes: Sizes) -> Expr:
    """Give each piece its offset; return the size of the workspace."""
    samples = sizes.samples()
    weights = [_value(piece.amount, samples) for piece in pieces]
    beside = _neighbours(pieces)
    places = _packed(pieces, weights, beside)
    starts: dict[int, list[Amount]] = {}
    ends: list[Amount] = []
    for number in sorted(range(len(pieces)), key=lambda n: (places[n], pieces[n].first)):
        below = [
            _plus(start, pieces[other].amount)
            for other in beside[number]
            for start in starts.get(other, ())
        ]
        starts[number] = _greatest([{}, *below], samples)
        pieces[number].offset = sizes.expr(starts[number])
        ends += [_plus(start, pieces[number].amount) for start in starts[number]]
        ends = _greatest(ends, samples)
    return sizes.expr(ends)


def peak(pieces: Sequence[Piece], weights: Sequence[int]) -> int:
    """Return the most bytes that are live at once: no plan has fewer."""
    changes: dict[int, int] = {}
    for piece, weight in zip(pieces, weights):
        changes[piece.first] = changes.get(piece.first, 0) + weight
        changes[piece.last + 1] = changes.get(piece.last + 1, 0) - weight
    most = live = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most


def _value(amount: Amount, samples: Mapping[object, int]) -> int:
    return sum(factor * samples[key] for key, factor in amount.items())


def _neighbours(pieces: Sequence[Piece]) -> list[list[int]]:
    """The pieces that are live at the same time as each."""
    beside: list[list[int]] = [[] for _ in pieces]
    live: list[int] = []
    for number in sorted(range(len(pieces)), key=lambda n: pieces[n].first):
        live = [other for other in live if pieces[other].last >= pieces[number].first]
        for other in live:
            beside[number].append(other)
            beside[other].append(number)
        live.append(number)
    return beside


def _packed(
    pieces: Sequence[Piece], weights: Sequence[int], beside: Sequence[Sequence[int]]
) -> list[int]:
    """Return offsets at the sample, in the best of several orders of placement."""
    least, numbers = peak(pieces, weights), range(len(pieces))
    orders = [
        sorted(numbers, key=lambda n: (-weights[n], pieces[n].first)),
        sorted(numbers, key=lambda n: -weights[n] * (1 + pieces[n].last - pieces[n].first)),
        sorted(numbers, key=lambda n: (pieces[n].first, -weights[n])),
    ]
    best: list[int] = []
    places: list[int] = []
    lowest = -1
    for attempt in range(len(orders) + _ATTEMPTS):
        if attempt >= len(orders):
            outside = max(numbers, key=lambda n: places[n] + weights[n])
            orders.append([outside, *(n for n in orders[-1] if n != outside)])
        places = _placed(orders[attempt], weights, beside)
        end = max(places[n] + weights[n] for n in numbers)
        if lowest < 0 or end < lowest:
            best, lowest = places, end
        if lowest <= least:
            break
    return best


def _placed(
    order: Sequence[int], weights: Sequence[int], beside: Sequence[Sequence[int]]
) -> list[int]:
    """Place pieces one after the other, each into the smallest gap that holds it."""
    places = [-1] * len(weights)
    for number in order:
        weight = weights[number]
        busy = sorted((places[n], places[n] + weights[n]) for n in beside[number] if places[n] >= 0)
        chosen, smallest, cursor = -1, -1, 0
        for start, stop in busy:
            gap = start - cursor
            if gap >= weight and (smallest < 0 or gap < smallest):
                chosen, smallest = cursor, gap
            cursor = max(cursor, stop)
        places[number] = cursor if chosen < 0 else chosen
    return places


def _plus(a: Amount, b: Amount) -> Amount:
    return {**a, **{key: a.get(key, 0) + factor for key, factor in b.items()}}


def _greatest(sums: Sequence[Amount], samples: Mapping[object, int]) -> list[Amount]:
    """Leave out sums that others exceed for all sizes; where many are left, join two."""
    kept: list[Amount] = []
    for amount in sorted(sums, key=lambda item: -_value(item, samples)):
        if not any(_exceeds(other, amount) for other in kept):
            kept = [other for other in kept if not _exceeds(amount, other)]
            kept.append(amount)
    while len(kept) > _MOST_SUMS:
        pairs = [(n, m) for m in range(len(kept)) for n in range(m)]
        n, m = min(pairs, key=lambda pair: _value(_maximum(kept[pair[0]], kept[pair[1]]), samples))
        joined = _maximum(kept[n], kept[m])
        kept = [x for k, x in enumerate(kept) if k not in (n, m) and not _exceeds(joined, x)]
        kept.append(joined)
    return kept


def _exceeds(a: Amount, b: Amount) -> bool:
    """Whether an amount is at least another for all sizes: no product of extents is negative."""
    return all(a.get(key, 0) >= factor for key, factor in b.items())


def _maximum(a: Amount, b: Amount) -> Amount:
    """The least amount that exceeds two."""
    return {key: max(a.get(key, 0), b.get(key, 0)) for key in {**a, **b}}
