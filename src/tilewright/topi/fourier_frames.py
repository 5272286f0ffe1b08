"""Fourier transforms of real frames of a signal, several frames in the lanes of vectors.

An even count of samples is transformed as half as many complex numbers (``topi.fourier_real``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.ir import (
    EQ,
    Expr,
    Var,
    and_,
    as_int,
    compare,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, extern
from tilewright.tir import Buffer, Stmt, seq
from tilewright.tir.building import Axis, block, load, loop, store
from tilewright.topi.butterflies import Complex
from tilewright.topi.fourier import (
    STAGE,
    Parts,
    Source,
    Transform,
    factors_of,
)
from tilewright.topi.fourier_chirps import transform_any
from tilewright.topi.fourier_columns import Columns
from tilewright.topi.fourier_real import Spectra
from tilewright.topi.utils import sum_dtype

_LANES = 8
"""Frames that are transformed together: two vectors of doubles, one of floats."""


class Frames(NamedTuple):
    """Frames of ``length`` samples, one each ``hop``; the window begins at ``left``."""

    data: Tensor
    window: Tensor
    length: int
    hop: int
    number: Expr

    @property
    def width(self) -> int:
        """Samples of the window."""
        width = as_int(self.window.shape[0])
        assert width is not None
        return width

    @property
    def columns(self) -> Columns:
        """Frames side by side."""
        return Columns(self.number, _LANES)


def factors_of_frames(length: int) -> tuple[int, ...] | None:
    """Return the factors of the complex transform of real numbers, ``None`` if there are none."""
    return factors_of(length // 2 if length % 2 == 0 else length)


def transform_frames(frames: Frames, frequencies: int, scale: float) -> Tensor:
    """Return ``[*batch, frequencies, frames, 2]``, times ``scale``."""
    length, columns = frames.length, frames.columns
    dtype = sum_dtype(frames.data.dtype)
    rows = (*frames.data.shape[:-1], columns.groups)
    paired = length % 2 == 0
    what = Transform((), -1.0, dtype, 1.0, columns.together, cyclic=paired)
    count = length // 2 if paired else length
    made = transform_any(_samples(frames, dtype), rows, count, what)
    return _separated(made, frames, rows, frequencies, scale)


def _samples(frames: Frames, dtype: str) -> Source:
    """Samples in the window, in pairs if there is an even count."""
    length, width = frames.length, frames.width
    left = (length - width) // 2
    paired = length % 2 == 0

    def sample(buffers: Sequence[Buffer], batch: Sequence[Expr], frame: Expr, n: Expr) -> Expr:
        data, window = buffers
        value = cast_expr(load(data, *batch, frame * frames.hop + n), dtype)
        if width == length:
            return value * cast_expr(load(window, n), dtype)
        inside = and_(n >= left, n < left + width)
        weight = cast_expr(load(window, maximum(minimum(n - left, width - 1), 0)), dtype)
        return select(inside, value * weight, const(0.0, dtype))

    def element(buffers: Sequence[Buffer], *place: Expr) -> Complex:
        *batch, group, n = place[: len(frames.data.shape) + 1]
        columns = frames.columns
        frame = columns.read(group, place[-1] if columns.together > 1 else None)
        if not paired:
            return sample(buffers, batch, frame, n), const(0.0, dtype)
        return (
            sample(buffers, batch, frame, 2 * n),
            sample(buffers, batch, frame, 2 * n + 1),
        )

    return Source((frames.data, frames.window), element)


def _separated(
    made: Parts, frames: Frames, rows: Sequence[Expr], frequencies: int, scale: float
) -> Tensor:
    """The last stage: the spectrum of each frame, in the order of results."""
    columns = frames.columns
    lanes = columns.together
    spectra = Spectra(frames.length, made[0].dtype, scale)
    turns = spectra.turns()
    result = frames.data.dtype

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        (out,) = outputs

        def element(*place: Var) -> Stmt:
            *row, f, lane = place

            def write(frame: Expr, lane: Expr, whole: bool) -> Stmt:
                def at(place: Expr) -> Complex:
                    re, im = (load(b, *row, place * lanes + lane) for b in operands[:2])
                    return re, im

                (re, im), lets = spectra.element(at, f, frequencies, operands[2:])

                def give(part: Expr) -> Stmt:
                    chosen = cast_expr(select(compare(EQ, part, 0), re, im), result)
                    return store(out, chosen, *row[:-1], f, frame, part)

                # Neighbours of whole vectors are stored by turns; masked ones one part at a time.
                if whole:
                    return seq(*lets, loop("part", 2, give))
                return seq(*lets, *(give(const(part)) for part in range(2)))

            return columns.written(row[-1], lane, write)

        extents: list[Expr | int] = [*rows, frequencies, lanes]
        axes = [Axis(f"i{n}", extent) for n, extent in enumerate(extents)]
        return block("spectra", axes, element, (), {STAGE: len(rows)})

    shape = (*rows[:-1], frequencies, frames.number, 2)
    found: Tensor = extern([shape], [*made, *turns], body, dtype=[result], name="stft")
    return found
