"""Convolutions of 16-bit floats: sums in float32, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.everyday import few
from tilewright import compile, te, topi
from tilewright.dlight.cpu import rules
from tilewright.scheduling import first_schedule
from tilewright.target import Target
from tilewright.tir.interpreter import run

NATIVE = Target("native").with_options(num_cores=1)


def conv2d(x: Any, w: Any, out_dtype: str | None = None) -> Any:
    return topi.nn.conv2d(x, w, 1, 1, out_dtype=out_dtype)


def depthwise(x: Any, w: Any, out_dtype: str | None = None) -> Any:
    return topi.nn.conv2d(x, w, 1, 2, groups=4, out_dtype=out_dtype)


def transposed(x: Any, w: Any, out_dtype: str | None = None) -> Any:
    return topi.nn.conv2d_transpose(x, w, 2, 1, out_dtype=out_dtype)


CONVOLUTIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "conv1d": (topi.nn.conv1d, (1, 24, 7), (5, 24, 3)),
    "conv2d": (conv2d, (1, 16, 4, 5), (5, 16, 3, 3)),
    "depthwise": (depthwise, (1, 4, 5, 6), (4, 1, 5, 5)),
    "conv3d": (topi.nn.conv3d, (1, 8, 3, 4, 5), (3, 8, 2, 2, 2)),
    "conv2d_transpose": (transposed, (1, 16, 4, 3), (16, 4, 3, 3)),
}


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


@few("name", CONVOLUTIONS, every=3)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("out", [None, "float16", "bfloat16", "float32"])
def test_sums_are_rounded_once(name: str, dtype: str, out: str | None) -> None:
    convolve, shape, filters = CONVOLUTIONS[name]
    wanted = out or dtype
    tensors = [te.placeholder(s, dtype, n) for s, n in ((shape, "x"), (filters, "w"))]
    made = convolve(*tensors, out_dtype=out)
    assert made.dtype == wanted
    func = te.create_prim_func([*tensors, made])
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(dtype_of(dtype)) for s in (shape, filters))
    size = [extent.value for extent in made.shape]
    found, same = np.zeros(size, dtype_of(wanted)), np.zeros(size, dtype_of(wanted))
    sch = first_schedule(func, rules(), NATIVE)
    assert sch is not None
    compile(sch.mod, NATIVE)(x, w, found)
    run(func, x, w, same)
    wide = [te.placeholder(s, "float64", n) for s, n in ((shape, "x"), (filters, "w"))]
    reference = convolve(*wide)
    expected = np.zeros(size)
    run(te.create_prim_func([*wide, reference]), x.astype("float64"), w.astype("float64"), expected)
    step = {"float32": 2e-6, "float16": 2.0**-11, "bfloat16": 2.0**-8}[wanted]
    for result in (found, same):
        # Half a step of the result, and what float32 loses where terms cancel.
        error = np.abs(result.astype("float64") - expected)
        assert (error <= np.abs(expected) * step + 2e-5).all()


def test_many_small_terms_are_not_lost() -> None:
    x, w = (
        te.placeholder((1, 4096, 1, 1), "float16", "x"),
        te.placeholder((1, 4096, 1, 1), "float16", "w"),
    )
    func = te.create_prim_func([x, w, topi.nn.conv2d(x, w)])
    found = np.zeros((1, 1, 1, 1), "float16")
    ones = np.ones((1, 4096, 1, 1), "float16")
    compile(func, NATIVE)(ones, ones, found)
    assert found.item() == 4096
