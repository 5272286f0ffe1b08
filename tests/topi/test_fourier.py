"""Fourier transforms in stages, of frames and as convolutions, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from by_rule import TARGET, evaluate, results

from tests.everyday import few
from tilewright import te, topi
from tilewright.dlight.cpu.annotated_rows import RowStages
from tilewright.ir import IRModule
from tilewright.scheduling import NotApplicable
from tilewright.tir.schedule import Schedule
from tilewright.topi.fourier import factors_of
from tilewright.topi.fourier_axes import (
    transform_axis,
    transform_real_axis,
    transform_to_real_axis,
)

TOLERANCE = {"float16": 1e-3, "float32": 4e-7, "float64": 1e-15}


def signal(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def agrees(found: np.ndarray, wanted: np.ndarray, dtype: str = "float32") -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= TOLERANCE[dtype] * np.abs(wanted).max()


def transformed(re: np.ndarray, im: np.ndarray, inverse: bool = False) -> np.ndarray:
    real, imaginary = results(lambda a, b: topi.dft(a, b, inverse), re, im)
    return real.astype("float64") + 1j * imaginary


def spectra(x: np.ndarray, window: np.ndarray, size: int, hop: int) -> np.ndarray:
    """Windows in the middle of frames, as ``[*batch, frames, size]``."""
    left = (size - len(window)) // 2
    weights = np.pad(window.astype("float64"), (left, size - len(window) - left))
    places = np.arange((x.shape[-1] - size) // hop + 1)[:, None] * hop + np.arange(size)
    return np.fft.fft(x.astype("float64")[..., places] * weights)


def spectrogram(
    x: np.ndarray, window: np.ndarray, size: int, hop: int, *, onesided: bool = True
) -> np.ndarray:
    count = size // 2 + 1 if onesided else size
    shape = (*x.shape[:-1], count, (x.shape[-1] - size) // hop + 1, 2)
    found = evaluate(
        lambda a, w: topi.stft(a, size, hop, len(window), w, False, onesided, shape), x, window
    )
    return np.swapaxes(found[..., 0].astype("float64") + 1j * found[..., 1], -1, -2)


def test_factors() -> None:
    """Each stage has few numbers; large prime factors have no stages."""
    assert factors_of(1) == (1,)
    assert factors_of(16) == (16,)
    assert factors_of(17) is None and factors_of(34) is None
    for length in (26, 256, 400, 480, 1000, 1001, 4096, 1 << 20):
        found = factors_of(length)
        assert found is not None and math.prod(found) == length and max(found) <= 16


@few("length", [1, 2, 13, 24, 105, 256], 1, 13, 256)
def test_lengths(length: int) -> None:
    re, im = signal(3, length), signal(3, length, seed=1)
    agrees(transformed(re, im), np.fft.fft(re + 1j * im.astype("float64")))


def test_large_prime_factors() -> None:
    re, im = signal(2, 34), signal(2, 34, seed=1)
    agrees(transformed(re, im, inverse=True), np.fft.ifft(re + 1j * im.astype("float64")))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_precisions(dtype: str) -> None:
    re, im = signal(2, 2, 20, dtype=dtype), signal(2, 2, 20, dtype=dtype, seed=1)
    wanted = np.fft.ifft(re.astype("float64") + 1j * im)
    agrees(transformed(re, im, inverse=True), wanted, dtype)


def test_rows() -> None:
    """A row alone, no row, and numbers of rows that fill no vectors."""
    row = signal(12)
    agrees(transformed(row, row), np.fft.fft(row + 1j * row.astype("float64")))
    assert transformed(signal(0, 12), signal(0, 12)).shape == (0, 12)
    rows = te.var("rows")
    for count in (0, 11):
        re = signal(count, 12)
        real, imaginary = results(
            lambda a, b: topi.dft(a, b, False), re, re, shapes=[(rows, 12)] * 2, rows=count
        )
        if count:
            agrees(real + 1j * imaginary, np.fft.fft(re + 1j * re.astype("float64")))


def test_rows_do_not_mix() -> None:
    re = signal(3, 20)
    re[1, 4], re[1, 7] = np.nan, np.inf
    found = transformed(re, signal(3, 20))
    assert np.isnan(found[1].real).all() and np.isfinite(found[[0, 2]]).all()


@few(
    "size, hop, width, samples",
    [(1, 2, 1, 5), (2, 1, 1, 20), (15, 4, 15, 90), (16, 5, 11, 96), (60, 7, 60, 64)],
    (2, 1, 1, 20), (15, 4, 15, 90), (16, 5, 11, 96),
)  # fmt: skip
def test_frames(size: int, hop: int, width: int, samples: int) -> None:
    """One frame, a few, and more than the lanes of a vector; even and odd sizes."""
    x, window = signal(2, samples), signal(width, seed=1)
    wanted = spectra(x, window, size, hop)
    agrees(spectrogram(x, window, size, hop), wanted[..., : size // 2 + 1])


def test_both_sides_of_frames() -> None:
    x, window = signal(70, dtype="float64"), signal(12, dtype="float64")
    agrees(spectrogram(x, window, 12, 5, onesided=False), spectra(x, window, 12, 5), "float64")


@pytest.mark.slow
def test_frames_with_large_prime_factors() -> None:
    x, window = signal(2, 300), signal(134, seed=1)
    wanted = spectra(x, window, 134, 20)
    agrees(spectrogram(x, window, 134, 20), wanted[..., :68])


def test_symbolic_signals() -> None:
    batch, samples = te.var("batch"), te.var("samples")
    window = signal(8, seed=1)
    for b, n in ((2, 40), (0, 9)):
        x = signal(b, n)
        (found,) = results(
            lambda a, w: topi.stft(
                a, 8, 3, 8, w, True, True, [batch, 5, (samples - 8) // 3 + 1, 2]
            ),
            x,
            window,
            shapes=[(batch, samples), (8,)],
            batch=b,
            samples=n,
        )
        assert found.shape == (b, 5, (n - 8) // 3 + 1, 2)
        if b:
            wanted = spectra(x, window, 8, 3)[..., :5] / math.sqrt(8)
            agrees(np.swapaxes(found[..., 0] + 1j * found[..., 1], -1, -2), wanted)


def test_what_is_outside_the_window_does_not_count() -> None:
    x, window = signal(1, 64), np.ones(4, "float32")
    x[0, 0] = np.nan  # of the first frame, but not in its window
    x[0, 60] = np.inf
    found = spectrogram(x, window, 8, 8)
    assert np.isfinite(found[:, :7]).all() and not np.isfinite(found[:, 7]).any()


def test_stages_of_a_row_are_together() -> None:
    re, im = (te.placeholder((4, 64), name=name) for name in ("re", "im"))
    func = te.create_prim_func([re, im, *topi.dft(re, im, False)])
    made = RowStages().apply_to(Schedule(IRModule({"main": func})), TARGET)
    assert not isinstance(made, NotApplicable)
    stages = [made.get_block(name) for name in ("fourier", "fourier_1")]
    first, second = (made.get_loops(rv) for rv in stages)
    assert made.get(first[0]) is made.get(second[0])
    assert all(made.get(loops[-1]).kind == "vectorized" for loops in (first, second))


def test_stages_run_through_no_more_than_there_is() -> None:
    """Of an odd count of real numbers only half of the frequencies are read."""
    x, window = te.placeholder((1, 85), name="x"), te.placeholder((45,), name="window")
    made = topi.stft(x, 45, 5, 45, window, False, True, [1, 23, 9, 2])
    func = te.create_prim_func([x, window, made])
    sch = RowStages().apply_to(Schedule(IRModule({"main": func})), TARGET)
    assert not isinstance(sch, NotApplicable)
    first = [sch.get(loop).extent for loop in sch.get_loops(sch.get_block("fourier"))]
    factors = factors_of(45)
    assert factors is not None
    assert math.prod(map(int, first)) == 2 * 8 * 45 // factors[0]


AXES = [((3, 20), -1), ((20, 3), 0), ((2, 15, 37), 1), ((4, 3, 2, 21), 1), ((1, 5), 0)]


@few("shape, axis", [*AXES, ((2, 34), 1), ((34, 19), 0)], *AXES[2:])
def test_axes(shape: tuple[int, ...], axis: int) -> None:
    """Complex and real numbers, both ways; columns that fill no vectors, axes in between."""
    re, im, length = signal(*shape), signal(*shape, seed=1), shape[axis]
    found = results(lambda a, b: transform_axis((a, b), axis, length, 1.0, 0.5), re, im)
    wanted = np.fft.ifft(re + 1j * im.astype("float64"), axis=axis) * length / 2
    agrees(found[0] + 1j * found[1].astype("float64"), wanted)
    found = results(lambda a: transform_real_axis(a, axis, length, 0.5), re)
    agrees(found[0] + 1j * found[1].astype("float64"), np.fft.rfft(re, axis=axis) / 2)
    half = np.arange(length // 2 + 1)
    a, b = re.take(half, axis), im.take(half, axis)
    back = evaluate(lambda a, b: transform_to_real_axis((a, b), axis, length, 1 / length), a, b)
    wanted = np.fft.irfft(a + 1j * b.astype("float64"), length, axis=axis)
    agrees(back.reshape(wanted.shape), wanted)


def test_symbolic_columns() -> None:
    """Fewer than the lanes of a vector, and more."""
    count = te.var("count")
    for number in (1, 3, 40):
        x = signal(6, number)
        re, im = results(
            lambda a: transform_real_axis(a, 0, 6, 1.0), x, shapes=[(6, count)], count=number
        )
        agrees(re + 1j * im.astype("float64"), np.fft.rfft(x, axis=0))
