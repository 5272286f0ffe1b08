"""Scales move into the weights of convolutions only where nobody can tell the difference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.relax.helpers import graph_of, values
from tilewright import relax
from tilewright.ir import PassContext
from tilewright.relax import transform as t


def scaled(dtype: Any, factor: float, *, weight: float = 1.0, bias: float | None = None) -> Any:
    """A convolution of ones, with a bias or without, times a constant."""
    kind = np.dtype(dtype)
    image = np.ones((1, 2, 4, 4), kind)
    filters = np.full((3, 2, 1, 1), weight, kind)

    def body(x: Any) -> Any:
        made = relax.op.nn.conv2d(x, relax.const(filters))
        if bias is not None:
            made = made + relax.const(np.full((3, 1, 1), bias, kind))
        return made * relax.const(np.full((3, 1, 1), factor, kind))

    return graph_of(body, image)


def folded(mod: Any) -> bool:
    return "multiply" not in values(t.FoldConvScale()(mod))


def test_scales_move_into_weights_and_bias() -> None:
    assert folded(scaled("float32", 3.0))
    assert folded(scaled("float64", 3.0, bias=2.0))
    assert folded(scaled("float32", 0.0))


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_operators_of_16_bits_round_one_after_another(dtype: Any) -> None:
    assert not folded(scaled(dtype, 3.0))
    with PassContext(config={"relax.excess_precision": True}):
        assert folded(scaled(dtype, 3.0))


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_integers_wrap_one_after_another(dtype: str) -> None:
    assert not folded(scaled(dtype, 100.0, weight=3.0))


@pytest.mark.parametrize(
    "case",
    [
        {"factor": 1e30, "weight": 1e10},
        {"factor": 1e-30, "weight": 1e-10},
        {"factor": np.inf, "weight": 1.0},
        {"factor": 1e30, "weight": 1.0, "bias": 1e10},
    ],
)
def test_what_overflows_or_loses_digits_stays(case: dict[str, float]) -> None:
    assert not folded(scaled("float32", **case))
    with PassContext(config={"relax.excess_precision": True}):
        assert not folded(scaled("float16", 65504.0, weight=2.0))


@pytest.mark.parametrize("fault", [None, 0, 299])
def test_weights_are_checked_to_the_last(fault: int | None) -> None:
    filters = np.ones((300, 400, 1, 1), "float32")
    factors = np.full((300, 1, 1), 2.0, "float32")
    if fault is not None:
        filters[fault, 399] = 3e38

    def body(x: Any) -> Any:
        return relax.op.nn.conv2d(x, relax.const(filters)) * relax.const(factors)

    mod = graph_of(body, np.ones((1, 400, 1, 1), "float32"))
    assert folded(mod) == (fault is None)


def test_halves_are_those_of_the_operators_in_order() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 1, 13)).astype("float16")
    w = rng.standard_normal((2, 16, 2, 3)).astype("float16")

    def body(x: Any) -> Any:
        made = relax.op.nn.conv2d(x, relax.const(w), padding=(1, 1, 0, 0))
        return made * relax.const(np.float16(65504.0))

    found = relax.build(graph_of(body, x))(x).numpy()
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x[0, :, 0], ((0, 0), (1, 0))), 3, 1)
    sums = np.einsum("cwk,fck->fw", windows.astype("float64"), w[:, :, 1].astype("float64"))
    with np.errstate(over="ignore"):
        expected = sums.astype("float16") * np.float16(65504.0)
    np.testing.assert_allclose(found[0, :, 0].astype("float64"), expected, rtol=2e-3)
