"""``logcumsumexp``: precise along long rows, and of infinities and NaN what the formula says."""

from __future__ import annotations

import numpy as np
import pytest
from by_rule import evaluate

from tilewright import topi


def wanted(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.longdouble)
    top = wide.max(-1, keepdims=True)
    return np.log(np.cumsum(np.exp(wide - top), -1)) + top


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 2e-14)])
def test_long_rows(dtype: str, tolerance: float) -> None:
    x = (np.random.default_rng(0).standard_normal((2, 10000)) * 3).astype(dtype)
    found = evaluate(lambda x: topi.logcumsumexp(x, -1), x)
    assert np.abs(found - wanted(x)).max() < tolerance


def test_infinities_and_nan() -> None:
    inf, nan = np.inf, np.nan
    x = np.array(
        [[-inf, -inf, 1, 1, inf, 3, inf, -inf], [3e38, -3e38, 3e38, -inf, 0, nan, inf, 1]],
        "float32",
    )
    found = evaluate(lambda x: topi.logcumsumexp(x, -1), x)
    two = np.float32(1 + np.log(2))
    np.testing.assert_allclose(found[0], [-inf, -inf, 1, two, inf, inf, inf, inf], rtol=1e-6)
    np.testing.assert_array_equal(found[1], np.float32([*[3e38] * 5, nan, nan, nan]))


def test_other_axes_and_empty_rows() -> None:
    x = np.random.default_rng(1).standard_normal((3, 4, 2)).astype("float32")
    found = evaluate(lambda x: topi.logcumsumexp(x, 1), x)
    np.testing.assert_allclose(found, np.moveaxis(wanted(np.moveaxis(x, 1, -1)), -1, 1), rtol=1e-6)
    assert evaluate(lambda x: topi.logcumsumexp(x, 1), x[:, :0]).shape == (3, 0, 2)
