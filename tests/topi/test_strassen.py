"""The definition of Strassen's product, interpreted, against NumPy's products."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run
from tilewright.topi.nn import STRASSEN_PRODUCTS, matmul_strassen, strassen_weight


def integers(*shape: int, seed: int) -> np.ndarray:
    """Small whole numbers: sums of any order are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


@pytest.mark.parametrize(
    "shape, axis",
    [
        ((4, 6), 0), ((5, 2), 0), ((1, 4), 0), ((3, 4, 2), 0), ((3, 4, 2), 1), ((2, 3, 4), 1),
        ((3, 1, 4), 0), ((2, 1, 3, 2), 2), ((0, 4), 0),
    ],
)  # fmt: skip
def test_halves_of_any_axis_of_rows(shape: tuple[int, ...], axis: int) -> None:
    x, w = integers(*shape, seed=1), integers(shape[-1], 6, seed=2)
    made = strassen_weight(w)
    assert made.shape == (STRASSEN_PRODUCTS, shape[-1] // 2, 3) and made.dtype == w.dtype
    data, weight = te.placeholder(shape, "float32", "x"), te.placeholder(made.shape, "float32", "w")
    func = te.create_prim_func([data, weight, matmul_strassen(data, weight, axis)])
    found = np.full((*shape[:-1], 6), np.nan, "float32")
    run(func, x, made, found)
    np.testing.assert_array_equal(found, x @ w)


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
    with pytest.raises(VerifyError, match="matmul_strassen"):
        matmul_strassen(te.placeholder(shape, "float32"), te.placeholder(weight, "float32"), axis)
