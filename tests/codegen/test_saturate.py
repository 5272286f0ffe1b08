"""Vectors of floats become integers: truncated, clipped to the limits, NaN to zero."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import compile, te
from tilewright.codegen.llvm import jit
from tilewright.codegen.llvm.emit import emit_module
from tilewright.driver import lower
from tilewright.ir import Expr, const, maximum, minimum
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule

TARGETS = ["native", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def cast(source: str, dtype: str, lanes: int) -> PrimFunc:
    x = te.placeholder((lanes,), source, "x")
    sch = Schedule(te.create_prim_func([x, te.compute((lanes,), lambda i: x[i].astype(dtype))]))
    sch.vectorize(sch.get_loops(sch.get_child_blocks(sch.get_block("root"))[0])[0])
    made: PrimFunc = sch.mod["main"]
    return made


def expected(x: np.ndarray, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)

    def one(value: float) -> int:
        if value != value:
            return 0
        if abs(value) == np.inf:
            return int(info.max if value > 0 else info.min)
        return min(max(int(value), info.min), info.max)

    return np.array([one(float(value)) for value in x], dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_limits(source: str, dtype: str, target: str) -> None:
    info, kind = np.iinfo(dtype), np.dtype(source).type
    edges = [kind(info.min), kind(info.max), kind(info.max) + kind(1)]
    edges += [np.nextafter(edge, kind(side)) for edge in edges[:3] for side in (-np.inf, np.inf)]
    values = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, np.nan, -np.nan, np.inf, -np.inf, 1e-42, 1e30, -1e30]
    x = np.resize(np.array([*edges, *values], source), 32)
    found = np.zeros(32, dtype)
    compile(cast(source, dtype, 32), target)(x, found)
    np.testing.assert_array_equal(found, expected(x, dtype))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("source", "dtype"),
    [("float32", "int32"), ("float32", "int8"), ("float64", "int64"), ("float32", "uint64")],
)
@pytest.mark.parametrize("bounds", [(-128.0, 127.0), (-3e38, 100.0), (-1e3, 3e38), (5.0, -5.0)])
def test_what_is_clipped_is_within_its_bounds_or_nan(
    source: str, dtype: str, bounds: tuple[float, float], target: str
) -> None:
    low, high = bounds
    x = te.placeholder((16,), source, "x")

    def formula(i: Expr) -> Expr:
        return minimum(const(high, source), maximum(x[i], const(low, source))).astype(dtype)

    sch = Schedule(te.create_prim_func([x, te.compute((16,), formula)]))
    sch.vectorize(sch.get_loops(sch.get_child_blocks(sch.get_block("root"))[0])[0])
    edges = [0.4, -0.4, 126.7, 127.2, -128.2, 1e3, -1e4, 1e30, -1e30, np.inf, -np.inf, np.nan]
    given = np.resize(np.array(edges, source), 16)
    found = np.zeros(16, dtype)
    compile(sch.mod["main"], target)(given, found)
    clipped = np.minimum(np.maximum(given, np.float64(low)), np.float64(high))
    np.testing.assert_array_equal(found, expected(clipped, dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_vectors_stay_whole(dtype: str) -> None:
    target = Target("llvm -mcpu=x86-64-v4")
    text = emit_module(lower(cast("float32", dtype, 16), target), target).text
    assembly = jit.assembly(text, cpu=target.mcpu, features=target.feature_string)
    assert "cvttps2dq" in assembly and "cvttss2si" not in assembly
