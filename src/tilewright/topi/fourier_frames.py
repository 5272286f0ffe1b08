"""Fourier transforms of real frames of a signal, several frames in the lanes of vectors.

``n`` real numbers, an even count, are transformed as ``n / 2`` complex ones, of which the even
elements are the real and the odd ones the imaginary parts; what belongs to which is separated
afterwards (Sorensen, Jones, Heideman and Burrus, 1987). An odd count is transformed with imaginary
parts of zero. Frames at the end go with frames before them, so that all lanes are in the signal.
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
    call,
    compare,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, extern
from tilewright.tir import Buffer, IfThenElse, LetStmt, Stmt, seq
from tilewright.tir.building import Axis, block, load, loop, store
from tilewright.topi.butterflies import Complex, negative, rotated
from tilewright.topi.fourier import (
    STAGE,
    Parts,
    Source,
    Transform,
    factors_of,
    turns_of,
)
from tilewright.topi.fourier_chirps import transform_any
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
    def together(self) -> int:
        """Frames in the lanes of vectors."""
        known = as_int(self.number)
        return _LANES if known is None else max(1, min(_LANES, known))


def factors_of_frames(length: int) -> tuple[int, ...] | None:
    """Return the factors of the complex transform of real numbers, ``None`` if there are none."""
    return factors_of(length // 2 if length % 2 == 0 else length)


def transform_frames(frames: Frames, frequencies: int, scale: float) -> Tensor:
    """Return ``[*batch, frequencies, frames, 2]``, times ``scale``."""
    length, lanes = frames.length, frames.together
    dtype = sum_dtype(frames.data.dtype)
    groups = (frames.number + (lanes - 1)) // lanes
    rows = (*frames.data.shape[:-1], groups)
    what = Transform((), -1.0, dtype, 1.0, lanes)
    count = length // 2 if length % 2 == 0 else length
    made = transform_any(_samples(frames, dtype), rows, count, what)
    return _separated(made, frames, rows, frequencies, scale)


def _first_frame(frames: Frames, group: Expr) -> Expr:
    """The frame in the first lane."""
    start = group * frames.together
    known = as_int(frames.number)
    if known is not None and known % frames.together == 0:
        return start
    first = minimum(start, frames.number - frames.together)
    return maximum(first, 0) if known is None else first


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
        frame = _first_frame(frames, group)
        if frames.together > 1:
            frame = frame + place[-1]
        if as_int(frames.number) is None:
            frame = minimum(frame, frames.number - 1)
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
    length, lanes, dtype = frames.length, frames.together, made[0].dtype
    half = length // 2
    paired = length % 2 == 0
    turns = turns_of(length, -1.0, dtype, half + 1) if paired else ()
    result = frames.data.dtype
    factor = const(scale / 2 if paired else scale, dtype)

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        (out,) = outputs

        def spectrum(row: Sequence[Expr], f: Expr, lane: Expr) -> tuple[Complex, list[Stmt]]:
            lets: list[Stmt] = []

            def named(value: Expr) -> Expr:
                var = Var("x", value.dtype)
                lets.append(LetStmt(var, value))
                return var

            def at(place: Expr) -> Complex:
                re, im = (load(b, *row, place * lanes + lane) for b in operands[:2])
                return named(re), named(im)

            if not paired:
                return at(f), lets
            near = f if frequencies <= half + 1 else minimum(f, length - f)
            a, b = at(near % half), at((half - near) % half)
            even = a[0] + b[0], a[1] - b[1]
            odd = named(a[1] + b[1]), named(b[0] - a[0])
            turned = rotated(odd, *(load(t, near) for t in operands[2:]))
            re, im = even[0] + turned[0], even[1] + turned[1]
            return (re, im if near is f else select(f > half, negative(im), im)), lets

        def element(*place: Var) -> Stmt:
            *row, f, lane = place
            group = row[-1]
            frame = group * lanes + lane

            def write(first: Expr, *, whole: bool) -> Stmt:
                value, lets = spectrum(row, f, frame - first)
                re, im = (cast_expr(x * factor, result) for x in value)

                def give(part: Expr) -> Stmt:
                    chosen = select(compare(EQ, part, 0), re, im)
                    return store(out, chosen, *row[:-1], f, frame, part)

                # Neighbours of whole vectors are stored by turns; masked ones one part at a time.
                if whole:
                    return seq(*lets, loop("part", 2, give))
                return seq(*lets, *(give(const(part)) for part in range(2)))

            known = as_int(frames.number)
            if known is not None and known % lanes == 0:
                return write(group * lanes, whole=True)
            all_lanes = call("ignore_loop_partition", group * lanes + lanes <= frames.number)
            first = _first_frame(frames, group)
            rest = IfThenElse(frame < frames.number, write(first, whole=False))
            return IfThenElse(all_lanes, write(group * lanes, whole=True), rest)

        extents: list[Expr | int] = [*rows, frequencies, lanes]
        axes = [Axis(f"i{n}", extent) for n, extent in enumerate(extents)]
        return block("spectra", axes, element, (), {STAGE: len(rows)})

    shape = (*rows[:-1], frequencies, frames.number, 2)
    found: Tensor = extern([shape], [*made, *turns], body, dtype=[result], name="stft")
    return found
