"""Integers as arguments: the whole range of their type, and nothing beyond it."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import driver, script
from tilewright.support.errors import RunError
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run

DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def keep(dtype: str) -> PrimFunc:
    return script.parse(f"""
from tilewright.script import tir as T

@T.prim_func
def main(n: T.{dtype}, X: T.Buffer((1,), "{dtype}"), B: T.Buffer((1,), "{dtype}")):
    with T.block("B"):
        v = T.axis.spatial(1, 0)
        B[v] = n + X[v]
""")


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_whole_range_is_taken(dtype: str) -> None:
    compiled = driver.compile(keep(dtype))["main"]
    limits = np.iinfo(dtype)
    zero = np.zeros(1, dtype)
    for value in (limits.min, 0, limits.max // 2 + 1, limits.max):
        for given in (int(value), np.dtype(dtype).type(value)):
            out, reference = np.zeros(1, dtype), np.zeros(1, dtype)
            compiled(given, zero, out)
            run(keep(dtype), given, zero, reference)
            assert int(out[0]) == int(reference[0]) == value


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_out_of_range_is_refused(dtype: str) -> None:
    compiled = driver.compile(keep(dtype))["main"]
    limits = np.iinfo(dtype)
    zero, out = np.zeros(1, dtype), np.zeros(1, dtype)
    for value in (int(limits.min) - 1, int(limits.max) + 1, 1 << 64, 1 << 70, -(1 << 63) - 1):
        with pytest.raises((TypeError, ValueError), match="argument #0 'n': expected"):
            compiled(value, zero, out)
        with pytest.raises(RunError, match=f"argument 'n': expected a value of {dtype}"):
            run(keep(dtype), value, zero, out)
    assert out[0] == 0


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_message_says_which_integers_there_are(dtype: str) -> None:
    compiled = driver.compile(keep(dtype))["main"]
    zero = np.zeros(1, dtype)
    with pytest.raises(TypeError, match=r"expected an int, got one outside of -2\*\*63 \.\. 2"):
        compiled(1 << 63, zero, zero.copy())


def test_wide_integers_go_with_arrays_that_need_our_export() -> None:
    compiled = driver.compile(keep("uint64"))["main"]
    zero, out = np.zeros(1, "uint64"), np.zeros(1, "uint64")
    zero.flags.writeable = False
    for value in (1 << 63, (1 << 64) - 1):
        compiled(value, zero, out)
        assert int(out[0]) == value
