"""Fourier transforms of lengths with large prime factors, as convolutions with chirps.

As ``j * k`` is ``(j * j + k * k - (j - k) * (j - k)) / 2``, a transform of ``n`` elements is their
convolution with ``exp(i pi k * k / n)`` (Bluestein, 1970). That is done by transforms of a length
of at least ``2 n - 1`` with small factors. Chirps and their spectrum are the same for all rows::

    x ── times chirp, zeros ──> stages ── times spectrum ──> stages ── times chirp ──> result
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from tilewright.ir import Expr, Var, call, const, if_then_else, select
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, compute, extern
from tilewright.tir import Buffer, Stmt, seq
from tilewright.tir.building import Axis, block, load, store
from tilewright.topi.butterflies import Complex, negative, rotated
from tilewright.topi.fourier import (
    STAGE,
    Parts,
    Source,
    Transform,
    cost_of,
    factors_of,
    of_parts,
    transform,
)

_WIDE = "float64"


def transform_any(source: Source, rows: Sequence[Expr], length: int, what: Transform) -> Parts:
    """Transform rows of any known length; arguments and result are those of ``transform``.

    ``what.factors`` is found here.
    """
    factors = factors_of(length)
    if factors is not None:
        return transform(source, rows, what._replace(factors=factors))
    longer = _longer(length)
    factors = factors_of(longer)
    assert factors is not None
    chirp = _chirp(length, what)
    spectrum = transform(
        of_parts(_response(length, longer, chirp), what.dtype),
        (),
        Transform(factors, -1.0, what.dtype, 1 / longer),
    )
    there = Transform(factors, -1.0, what.dtype, 1.0, what.lanes)
    padded = _padded(source, rows, chirp, (length, longer), what)
    made = transform(of_parts(padded, what.dtype), rows, there)
    back = transform(_filtered(made, spectrum, what.lanes), rows, there._replace(sign=1.0))
    return _turned_back(back, rows, chirp, length, what)


@lru_cache(maxsize=1024)
def _longer(length: int) -> int:
    """The cheapest length of at least ``2 * length - 1`` with small factors."""
    least = 2 * length - 1
    top = 16 << max(0, (least - 1).bit_length() - 4)
    found: list[int] = [
        size
        for a in range(3, top.bit_length())
        for b in range(4)
        for c in range(4)
        if least <= (size := math.prod((1 << a, *[3] * b, *[5] * c))) <= top
    ]
    return min(found, key=lambda size: size * cost_of(factors_of(size) or ()))


def _chirp(length: int, what: Transform) -> Parts:
    """``exp(sign * i pi k * k / length)`` for each ``k``."""

    def element(k: Expr) -> tuple[Expr, Expr]:
        part = cast_expr(k, "int64") * cast_expr(k, "int64") % (2 * length)
        angle = cast_expr(part, _WIDE) * const(what.sign * math.pi / length, _WIDE)
        return cast_expr(call("cos", angle), what.dtype), cast_expr(call("sin", angle), what.dtype)

    cosines, sines = compute((length,), element, name="fourier_chirp", tag="injective")
    return cosines, sines


def _response(length: int, longer: int, chirp: Parts) -> Parts:
    """What the elements are convolved with: the opposite chirp, to both sides of the first."""

    def element(k: Expr) -> tuple[Expr, Expr]:
        zero = const(0.0, chirp[0].dtype)
        place = select(k < length, k, longer - k)
        re, im = (if_then_else(place < length, part(place), zero) for part in chirp)
        return re, negative(im)

    re, im = compute((longer,), element, name="fourier_response", tag="injective")
    return re, im


def _filtered(x: Parts, spectrum: Parts, lanes: int) -> Source:
    """Read transformed elements times the spectrum."""

    def element(buffers: Sequence[Buffer], *place: Expr) -> Complex:
        *row, k = place if lanes == 1 else place[:-1]
        at = (*row, k) if lanes == 1 else (*row, k * lanes + place[-1])
        re, im = (load(buffer, *at) for buffer in buffers[:2])
        return rotated((re, im), *(load(buffer, k) for buffer in buffers[2:]))

    return Source((*x, *spectrum), element)


def _padded(
    source: Source, rows: Sequence[Expr], chirp: Parts, sizes: tuple[int, int], what: Transform
) -> Parts:
    """Elements times the chirp, then zeros."""
    length, longer = sizes
    count = len(source.tensors)

    def value(buffers: Sequence[Buffer], place: Sequence[Expr]) -> Complex:
        k = place[len(rows)]
        x = source.element(buffers[:count], *place)
        turned = rotated(x, *(load(buffer, k) for buffer in buffers[count:]))
        zero = const(0.0, what.dtype)
        re, im = (if_then_else(k < length, part, zero) for part in turned)
        return re, im

    shape: list[Expr | int] = [*rows, longer, *([what.lanes] if what.lanes > 1 else [])]
    return _each("padded", (*source.tensors, *chirp), rows, shape, what.dtype, value)


def _turned_back(
    x: Parts, rows: Sequence[Expr], chirp: Parts, length: int, what: Transform
) -> Parts:
    """The first elements times the chirp, and scaled."""
    count = (length + what.cyclic) * what.lanes

    def value(buffers: Sequence[Buffer], place: Sequence[Expr]) -> Complex:
        at = place[-1] % (length * what.lanes) if what.cyclic else place[-1]
        k = at // what.lanes
        x = load(buffers[0], *place[:-1], at), load(buffers[1], *place[:-1], at)
        re, im = rotated(x, *(load(buffer, k) for buffer in buffers[2:]))
        factor = const(what.scale, what.dtype)
        dtype = what.result or what.dtype
        return cast_expr(re * factor, dtype), cast_expr(im * factor, dtype)

    shape: list[Expr | int] = [*rows, count]
    return _each("turned", (*x, *chirp), rows, shape, what.result or what.dtype, value)


def _each(
    name: str,
    operands: Sequence[Tensor],
    rows: Sequence[Expr],
    shape: Sequence[Expr | int],
    dtype: str,
    value: Callable[[Sequence[Buffer], Sequence[Expr]], Complex],
) -> Parts:
    """A stage that computes each element by itself."""

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def element(*place: Var) -> Stmt:
            return seq(*(store(out, part, *place) for out, part in zip(outs, value(ins, place))))

        axes = [Axis(f"i{n}", extent) for n, extent in enumerate(shape)]
        return block(name, axes, element, (), {STAGE: len(rows)})

    re, im = extern([tuple(shape)] * 2, list(operands), body, dtype=[dtype] * 2, name=name)
    return re, im
