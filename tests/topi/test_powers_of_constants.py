"""Powers of known integers, to exponents that only data tell."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.ir import const
from tilewright.tir.powers import power_of


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
@pytest.mark.parametrize("base", [0, 1, 2, 3, -1, -2, 7, 100])
def test_they_wrap_as_products_do(base: int, dtype: str) -> None:
    if base < 0 and dtype.startswith("u"):
        pytest.skip("no number of this type")
    exponents = np.arange(0, 100, dtype=dtype)
    y = te.placeholder(exponents.shape, dtype, name="y")
    z = te.compute(exponents.shape, lambda i: power_of(const(base, dtype), y[i]), name="z")
    out = np.empty_like(exponents)
    tw.compile(te.create_prim_func([y, z]))["main"](exponents, out)
    bits = 8 * exponents.itemsize
    wanted = [pow(base, int(e)) % (1 << bits) for e in exponents]
    got = [int(v) % (1 << bits) for v in out]
    assert got == wanted
