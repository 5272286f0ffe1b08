"""Winograd convolutions: the matrices, the stages, and how far rounding takes them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tilewright import compile as compile_module
from tilewright import te, topi
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run
from tilewright.topi.nn import winograd_matrices, winograd_weight


def direct(x: Any, w: Any, padding: Any) -> Any:
    """Convolve in float64; padding is one number or (top, left, bottom, right)."""
    top, left, bottom, right = padding if isinstance(padding, tuple) else (padding,) * 4
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64))


@pytest.mark.parametrize("m, r", [(2, 3), (4, 3), (3, 3), (2, 5), (3, 2), (6, 3), (1, 3), (4, 1)])
def test_matrices_compute_a_filter_exactly(m: int, r: int) -> None:
    made = winograd_matrices(m, r)
    signal = [Fraction(7 * k * k - 5, k + 2) for k in range(m + r - 1)]
    taps = [Fraction(3 * k - 4, 5) for k in range(r)]

    def dot(row: Any, values: Any) -> Fraction:
        return sum((a * b for a, b in zip(row, values, strict=True)), Fraction(0))

    product = [dot(g, taps) * dot(b, signal) for g, b in zip(made.filter, made.input)]
    for i, row in enumerate(made.result):
        assert dot(row, product) == sum(taps[k] * signal[i + k] for k in range(r))


def test_factors_of_the_usual_tiles_are_exact_in_float32() -> None:
    for m in (2, 4):
        made = winograd_matrices(m, 3)
        for factor in (f for matrix in (made.result, made.input) for row in matrix for f in row):
            assert Fraction(float(np.float32(float(factor)))) == factor


def test_more_points_than_there_are_is_an_error() -> None:
    with pytest.raises(VerifyError, match=r"F\(8, 3\) needs 9 points"):
        winograd_matrices(8, 3)


@pytest.mark.parametrize(
    "shape, filters, window, padding, tile",
    [
        ((1, 3, 8, 8), 4, 3, 1, 4),
        ((2, 2, 7, 9), 3, 3, 1, 2),
        ((1, 2, 6, 5), 2, 3, (0, 2, 1, 0), 4),
        ((1, 1, 9, 6), 1, 5, 2, 2),
        ((1, 2, 6, 6), 2, 3, 0, 2),
        ((1, 1, 3, 3), 1, 3, 0, 4),
    ],
)
def test_results(shape: tuple, filters: int, window: int, padding: object, tile: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, dtype=np.float32)
    w = rng.standard_normal((filters, shape[1], window, window), dtype=np.float32)
    expected = direct(x, w, padding)
    data, weight = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    func = te.create_prim_func([data, weight, topi.nn.conv2d_winograd(data, weight, padding, tile)])
    found = np.empty(expected.shape, np.float32)
    compile_module(func)(x, w, found)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_filters_transformed_beforehand() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 3, 6, 6), dtype=np.float32)
    w = rng.standard_normal((2, 3, 3, 3), dtype=np.float32)
    wide = winograd_weight(w, 2)
    assert wide.shape == (4, 4, 3, 2) and wide.dtype == np.float32
    data, weight = te.placeholder(x.shape, name="x"), te.placeholder(wide.shape, name="w")
    made = topi.nn.conv2d_winograd_without_weight_transform(data, weight, 1, 2)
    found = np.empty((1, 2, 6, 6), np.float32)
    compile_module(te.create_prim_func([data, weight, made]))(x, wide, found)
    np.testing.assert_allclose(found, direct(x, w, 1), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("filters", "channels"), [(1500, 7), (5000, 2), (3, 0)])
def test_filters_are_transformed_in_parts(filters: int, channels: int) -> None:
    w = np.random.default_rng(2).standard_normal((filters, channels, 3, 3), dtype=np.float32)
    rows = np.array(winograd_matrices(4, 3).filter, np.float64)
    expected = np.einsum("xi,yj,fcij->xycf", rows, rows, w.astype(np.float64))
    np.testing.assert_allclose(winograd_weight(w, 4), expected, rtol=1e-6, atol=1e-7)


def test_windows_must_be_square() -> None:
    x, w = te.placeholder((1, 3, 8, 8), name="x"), te.placeholder((4, 3, 3, 1), name="w")
    with pytest.raises(VerifyError, match="square"):
        topi.nn.conv2d_winograd(x, w)


def test_channels_must_agree() -> None:
    x, w = te.placeholder((1, 3, 8, 8), name="x"), te.placeholder((4, 5, 3, 3), name="w")
    with pytest.raises(VerifyError, match="channels"):
        topi.nn.conv2d_winograd(x, w)


@pytest.mark.parametrize(("tile", "window"), [(2, 3), (4, 3), (6, 3), (2, 5)])
def test_matrices_by_name(tile: int, window: int) -> None:
    """``A^T [(G g) * (B^T d)]`` is a convolution of one dimension."""
    matrices = []
    for tensor in topi.nn.winograd_transform_matrices(tile, window, "float64"):
        made = np.zeros([int(extent) for extent in tensor.shape], tensor.dtype)
        run(te.create_prim_func([tensor]), made)
        matrices.append(made)
    a, b, g = matrices
    alpha = tile + window - 1
    assert [m.shape for m in matrices] == [(alpha, tile), (alpha, alpha), (alpha, window)]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(alpha), rng.standard_normal(window)
    np.testing.assert_allclose(a.T @ ((g @ w) * (b.T @ x)), np.correlate(x, w, "valid"))
