"""The definition of Strassen's product, interpreted, against NumPy's products."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run
from tilewright.topi.nn import (
    STRASSEN_PRODUCTS,
    matmul_strassen,
    strassen_scales,
    strassen_weight,
)


def integers(*shape: int, seed: int) -> np.ndarray:
    """Small whole numbers: sums of any order are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def multiplied(x: np.ndarray, w: np.ndarray, axis: int = 0) -> np.ndarray:
    """What the interpreter makes of the definition."""
    scales = strassen_scales(w)
    arguments = [x, strassen_weight(w, *scales), *scales]
    tensors = [te.placeholder(item.shape, "float32") for item in arguments]
    func = te.create_prim_func([*tensors, matmul_strassen(*tensors, axis)])
    found = np.full((*x.shape[:-1], w.shape[1]), -1, "float32")
    run(func, *arguments, found)
    return found


@pytest.mark.parametrize(
    "shape, axis",
    [
        ((4, 6), 0), ((5, 2), 0), ((1, 4), 0), ((3, 4, 2), 0), ((3, 4, 2), 1), ((2, 3, 4), 1),
        ((3, 1, 4), 0), ((2, 1, 3, 2), 2), ((0, 4), 0),
    ],
)  # fmt: skip
def test_halves_of_any_axis_of_rows(shape: tuple[int, ...], axis: int) -> None:
    x, w = integers(*shape, seed=1), integers(shape[-1], 6, seed=2)
    made = strassen_weight(w, *strassen_scales(w))
    assert made.shape == (STRASSEN_PRODUCTS, shape[-1] // 2, 3) and made.dtype == w.dtype
    np.testing.assert_array_equal(multiplied(x, w, axis), x @ w)


def test_a_matrix_is_brought_to_one_size() -> None:
    w = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")
    w *= np.float32(10) ** np.array([[-17], [-5], [0], [0], [3], [0], [0], [1]], "float32")
    w[:, 1] *= np.float32(1e15)
    w[3], w[:, 4] = 0, 0
    depths, widths = strassen_scales(w)
    for scales in (depths, widths):
        assert scales.dtype == w.dtype and set(np.frexp(scales)[0]) == {0.5}
    scaled = w / depths[:, None].astype("float64") / widths
    norms = np.linalg.norm(scaled, axis=0)
    used = [0, 1, 2, 3, 5]
    assert norms.max() < 2 and norms[used].min() >= 1
    assert depths.max() == 1 and depths.min() < 1e-15
    np.testing.assert_array_equal(norms[4], 0)


@pytest.mark.parametrize("small", [1e-3, 1e-15])
def test_scales_of_the_depth_make_no_column_much_longer(small: float) -> None:
    """A column that has small rows only would be large there, where the data was made small."""
    w = np.random.default_rng(1).standard_normal((64, 8)).astype("float32")
    w[:32] *= np.float32(small)
    w[32:, 3] = 0
    depths, widths = strassen_scales(w)
    norms = np.linalg.norm(w.astype("float64"), axis=0)
    assert (widths / norms < 5**0.5).all()
    w[:, 3] = w[:, 2]
    depths, widths = strassen_scales(w)
    norms = np.linalg.norm(w.astype("float64"), axis=0)
    assert (widths / norms < 5**0.5).all() and depths[:32].max() <= 64 * small


@pytest.mark.parametrize("value", [1e-45, 1e-38, 1.0, 1e30])
def test_rows_of_zeros_and_rows_far_apart_keep_their_own_error(value: float) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype("float32") for shape in ((6, 8), (8, 4)))
    x[:3] *= np.float32(value)
    x[4] = 0
    found, expected = multiplied(x, w), x.astype("float64") @ w
    norms = np.linalg.norm(x.astype("float64"), axis=1)[:, None] * np.linalg.norm(w, axis=0)
    assert (np.abs(found - expected) <= 1e-6 * norms + 3e-44).all()
    np.testing.assert_array_equal(found[4], 0)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_row_that_is_not_finite_is_nan_and_no_other_is(value: float) -> None:
    x, w = integers(6, 4, seed=1), integers(4, 6, seed=2)
    expected = x @ w
    x[1, 2] = value
    expected[1] = np.nan
    np.testing.assert_array_equal(multiplied(x, w), expected)


def test_only_what_is_out_of_range_overflows() -> None:
    """Maxima of a row and a column that don't meet."""
    x, w = np.zeros((2, 4), "float32"), np.zeros((4, 2), "float32")
    x[0, :2], w[1:3, 0] = (3e38, 1e-30), (2e20, 2e28)
    x[1, 0], w[0, 1] = 3e38, 1e10
    found = multiplied(x, w)
    assert found[1, 1] == np.inf and found[1, 0] == 0
    # 2e-10 next to 3e38 * 2e28: nothing of it is left, but no infinity either.
    assert np.isfinite(found[0, 0])


@pytest.mark.parametrize(
    "shape, weight, axis",
    [
        ((4, 6), (7, 3, 2), 1),
        ((4, 6), (7, 3, 2), -1),
        ((4, 6), (8, 3, 2), 0),
        ((4, 6), (7, 2, 2), 0),
    ],
)
def test_what_does_not_fit_is_refused(
    shape: tuple[int, ...], weight: tuple[int, ...], axis: int
) -> None:
    tensors = [te.placeholder(item, "float32") for item in (shape, weight, (6,), (4,))]
    with pytest.raises(VerifyError, match="matmul_strassen"):
        matmul_strassen(*tensors, axis)


def test_other_types_are_refused() -> None:
    shapes = (4, 6), (7, 3, 2), (6,), (4,)
    tensors = [te.placeholder(item, "float64") for item in shapes]
    with pytest.raises(VerifyError, match="float32"):
        matmul_strassen(*tensors, 0)
