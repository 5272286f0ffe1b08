"""Fourier transforms of known lengths in stages, each of which transforms a few numbers at a time.

A length is split into factors, one for each stage (Cooley and Tukey, 1965). Each stage leaves what
it makes in the order in which the next one reads (Stockham's form: Van Loan, *Computational
Frameworks for the Fast Fourier Transform*, 1992). Neighbours in memory are independent, so they are
lanes of vectors; only the second stage of a row alone reads its lanes from afar::

    x[k, p] ── butterflies, turned ──> [j, p] ──> [p', j', j] ──> … ──> [j'', j', j]

Blocks carry the annotation ``STAGE``. Factors of a length have prime factors up to 13; other
lengths become convolutions (``topi.fourier_chirps``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tilewright.ir import Expr, Var, call, const
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, compute, extern
from tilewright.tir import Buffer, Stmt, seq
from tilewright.tir.attrs import integer, register_annotation
from tilewright.tir.building import Axis, block, load, store
from tilewright.topi.butterflies import (
    Complex,
    butterfly,
    operations,
    prime_factors,
    rotated,
)

STAGE = register_annotation(
    "row_stage",
    integer(),
    means="A stage of what is made row by row: so many of the block's axes are those of rows. "
    "Along the last axis elements are independent, and alike.",
    read_by=("dlight.cpu.annotated_rows",),
)

Parts = tuple[Tensor, Tensor]
"""Real and imaginary part."""

_WIDE = "float64"
_LARGEST = 16
"""Numbers that a stage transforms at most; more don't stay in registers."""
_LARGEST_PRIME = 13
_LANES = 8
"""Lanes of vectors that factors are chosen for: those of 256 bits."""
_PASS, _CROSSED = 6.0, 6.0
"""What reading and writing an element costs, and reading it from afar; an addition costs 1."""


class Source(NamedTuple):
    """Where the first stage reads: ``element`` takes the buffers of ``tensors``, and a place."""

    tensors: tuple[Tensor, ...]
    element: Callable[..., Complex]


class Transform(NamedTuple):
    """What is transformed: ``sign`` is that of the exponent, ``dtype`` that of the arithmetic.

    ``cyclic``: the first elements follow the last one again, at least one of each column, so that
    who reads elements in the opposite order needs no modulo.
    """

    factors: tuple[int, ...]
    sign: float
    dtype: str
    scale: float = 1.0
    lanes: int = 1
    result: str | None = None
    cyclic: bool = False


def of_parts(parts: Parts, dtype: str) -> Source:
    """Read real and imaginary parts from two tensors."""

    def element(buffers: Sequence[Buffer], *place: Expr) -> Complex:
        re, im = (cast_expr(load(buffer, *place), dtype) for buffer in buffers)
        return re, im

    return Source(parts, element)


@lru_cache(maxsize=1024)
def factors_of(length: int) -> tuple[int, ...] | None:
    """Return the factors of a length, one for each stage; ``None`` if a prime factor is too large.

    Of all ways the one is chosen that takes the fewest operations in vectors.
    """
    if any(prime > _LARGEST_PRIME for prime in prime_factors(length)):
        return None
    if length <= _LARGEST:
        return (length,)
    orders = [
        (first, *sorted(split, reverse=True))
        for found in _splits(length, _LARGEST)
        for first in sorted(set(found))
        for split in [_without(found, first)]
    ]
    return min(orders, key=cost_of)


def _splits(length: int, most: int) -> list[tuple[int, ...]]:
    """All ways to write a length as factors up to ``most``, greatest first."""
    if length == 1:
        return [()]
    divisors = [d for d in range(min(most, length), 1, -1) if length % d == 0]
    return [(d, *rest) for d in divisors for rest in _splits(length // d, d)]


def _without(items: Sequence[int], item: int) -> list[int]:
    place = items.index(item)
    return [*items[:place], *items[place + 1 :]]


def cost_of(order: Sequence[int]) -> float:
    """Operations for each element, those of vectors that aren't full included."""
    total, inner = 0.0, math.prod(order) // order[0]
    for number, factor in enumerate(order):
        full, rest = divmod(inner, _LANES)
        filled = inner / (_LANES * (full + rest.bit_count()))
        spent = _PASS + operations(factor) + (_CROSSED if number == 1 else 0)
        total += spent / filled
        inner = math.prod(order[: number + 1])
    return total


def transform(source: Source, rows: Sequence[Expr], what: Transform) -> Parts:
    """Transform rows ``[*rows, n]``, where ``n`` is the product of ``what.factors``.

    With ``what.lanes`` above 1, the source is ``[*rows, n, lanes]``: neighbouring columns are
    transformed, and the result is ``[*rows, n * lanes]``.
    """
    left, inner, single = math.prod(what.factors), what.lanes, what.lanes == 1
    for number, factor in enumerate(what.factors):
        left //= factor
        stage = _Stage(tuple(rows), (factor, left, inner), what)
        if single and number == 0 and left > 1:
            made = stage.columns(source)
        else:
            made = stage.plain(source, crossed=single and number == 1)
        source = of_parts(made, what.dtype)
        inner *= factor
    return made


class _Stage(NamedTuple):
    rows: tuple[Expr, ...]
    sizes: tuple[int, int, int]
    what: Transform

    def columns(self, source: Source) -> Parts:
        """Element ``k * left + p`` becomes row ``j``, column ``p``."""
        factor, left, _ = self.sizes

        def reads(place: Sequence[Var], k: int) -> tuple[Expr, ...]:
            return (place[-1] + k * left,)

        def writes(place: Sequence[Var], j: int) -> tuple[Expr, ...]:
            return (const(j), place[-1])

        return self._made(source, (left,), (factor, left), reads, writes)

    def plain(self, source: Source, *, crossed: bool) -> Parts:
        """Element ``k * left + p`` of column ``q`` becomes ``j * inner + q`` of row ``p``.

        ``crossed``: columns are rows in memory.
        """
        factor, left, inner = self.sizes

        def reads(place: Sequence[Var], k: int) -> tuple[Expr, ...]:
            p, q = place[-2:]
            if inner == 1:
                return (p + k * left,)
            return (q, p + k * left) if crossed else (p + k * left, q)

        def writes(place: Sequence[Var], j: int) -> tuple[Expr, ...]:
            p, q = place[-2:]
            return (q + j * inner,) if left == 1 else (p, q + j * inner)

        width = (factor + (left == 1 and self.what.cyclic)) * inner
        shape = (width,) if left == 1 else (left, width)
        return self._made(source, (left, inner), shape, reads, writes)

    def _made(
        self,
        source: Source,
        axes: Sequence[int],
        shape: Sequence[int],
        reads: Callable[[Sequence[Var], int], tuple[Expr, ...]],
        writes: Callable[[Sequence[Var], int], tuple[Expr, ...]],
    ) -> Parts:
        factor, left, _ = self.sizes
        what, last = self.what, left == 1
        dtype = what.result or what.dtype if last else what.dtype
        turns = () if last else _turns(factor, left, what.sign, what.dtype)
        count = len(source.tensors)

        def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
            owned: list[Buffer] = []

            def element(*place: Var) -> Stmt:
                row = place[: len(self.rows)]
                column = place[len(row)]

                def give(j: int, value: Complex) -> Stmt:
                    if last:
                        value = _scaled(value, what.scale)
                    elif j:
                        value = rotated(value, *(load(t, j, column) for t in operands[count:]))
                    rows = [j, factor] if last and what.cyclic and j == 0 else [j]
                    return seq(
                        *(
                            store(buffer, cast_expr(part, dtype), *row, *writes(place, number))
                            for number in rows
                            for buffer, part in zip(outputs, value)
                        )
                    )

                values = [
                    source.element(operands[:count], *row, *reads(place, k)) for k in range(factor)
                ]
                memory, stmts = butterfly(values, what.sign, what.dtype, give)
                owned.append(memory)
                return stmts

            extents: list[Expr | int] = [*self.rows, *axes]
            loops = [Axis(f"i{n}", extent) for n, extent in enumerate(extents)]
            return block("fourier", loops, element, owned, {STAGE: len(self.rows)})

        shapes = [(*self.rows, *shape)] * 2
        operands = [*source.tensors, *turns]
        re, im = extern(shapes, operands, body, dtype=[dtype, dtype], name="fourier")
        return re, im


def _turns(factor: int, left: int, sign: float, dtype: str) -> Parts:
    """Cosines and sines of ``j * p`` parts of a circle of ``factor * left``, by ``j`` and ``p``."""

    def element(j: Expr, p: Expr) -> tuple[Expr, Expr]:
        angle = cast_expr(j * p, _WIDE) * const(sign * 2 * math.pi / (factor * left), _WIDE)
        return cast_expr(call("cos", angle), dtype), cast_expr(call("sin", angle), dtype)

    cosines, sines = compute((factor, left), element, name="fourier_turns", tag="injective")
    return cosines, sines


def turns_of(count: int, sign: float, dtype: str, most: int) -> Parts:
    """Cosines and sines of the first ``most`` parts of a circle of ``count``."""

    def element(part: Expr) -> tuple[Expr, Expr]:
        angle = cast_expr(part, _WIDE) * const(sign * 2 * math.pi / count, _WIDE)
        return cast_expr(call("cos", angle), dtype), cast_expr(call("sin", angle), dtype)

    cosines, sines = compute((most,), element, name="fourier_turns", tag="injective")
    return cosines, sines


def _scaled(value: Complex, scale: float) -> Complex:
    if scale == 1.0:
        return value
    factor = const(scale, value[0].dtype)
    return value[0] * factor, value[1] * factor
