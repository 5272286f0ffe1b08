"""Whole register tiles in the tails of loops touch no address outside of a buffer."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright import driver, te, tir, topi
from tilewright.dlight import ApplyDefaultSchedule
from tilewright.dlight.cpu import rules
from tilewright.ir import IRModule, Var
from tilewright.runtime import guarded
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir.interpreter import run
from tilewright.tir.transform.loop_partition import LoopPartition
from tilewright.tir.transform.pipeline import cpu_pipeline

AVX512 = Target("llvm -mcpu=skylake-avx512 -num-cores=2")


def _partitioned(func: tir.PrimFunc) -> IRModule:
    """A function by rule, lowered so far that the guards of tiles are gone."""
    mod = ApplyDefaultSchedule(*rules(), target=AVX512)(IRModule({"main": func}))
    for step in cpu_pipeline(AVX512).passes:
        mod = step(mod)
        if isinstance(step, LoopPartition):
            return mod
    raise AssertionError("the pipeline partitions no loops")


def test_a_guard_on_part_of_a_fused_loop_stays_with_loads_that_depend_on_it() -> None:
    x = te.placeholder((1, 3, 5, 8), "float32", "x")
    y = topi.nn.pad(topi.transpose(x, (1, 3, 2, 0)), (0, 3, 0, 3), (0, 3, 1, 1))
    mod = _partitioned(te.create_prim_func([x, y]))
    data = np.random.default_rng(0).random((1, 3, 5, 8)).astype("float32")
    out = np.zeros((3, 14, 6, 5), "float32")
    run(mod["main"], data, out)
    expected = np.pad(data.transpose(1, 3, 2, 0), [(0, 0), (3, 3), (0, 1), (3, 1)])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bfloat16"])
@pytest.mark.parametrize("rows", [0, 1, 5, 8])
def test_rows_beyond_a_symbolic_extent_are_not_read(dtype: str, rows: int) -> None:
    n = Var("n", "int64")
    x = te.placeholder((n, 16), dtype, "x")
    w = te.placeholder((16, 32), dtype, "w")
    out_dtype = "float32" if dtype == "bfloat16" else "int32"
    y = topi.matmul(x, w, out_dtype=out_dtype)
    mod = _partitioned(te.create_prim_func([x, w, y]))
    rng = np.random.default_rng(0)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    a, b = (rng.integers(0, 7, shape).astype(kind) for shape in ((rows, 16), (16, 32)))
    out = np.zeros((rows, 32), out_dtype)
    run(mod["main"], a, b, out)
    np.testing.assert_array_equal(out, a.astype("int64") @ b.astype("int64"))


def test_what_says_how_often_a_loop_runs_is_not_read_beyond_a_guard() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 9), "int32"), F: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "int32")):
    tile = T.alloc_buffer((4,), "int32", scope="local")
    for u, i in T.grid(1, 4):
        for j in T.vectorized(5):
            for h in T.unroll(2):
                if i * 5 + j < 2:
                    for k in range(T.Cast("int64", F[i * 10 + j * 2 + h])):
                        with T.block("sum"):
                            vi = T.axis.spatial(4, i * 10 + j * 2 + h)
                            vk = T.axis.reduce(9, k)
                            with T.init():
                                tile[vi] = T.int32(7)
                            tile[vi] = tile[vi] + A[vi, vk]
                with T.block("copy"):
                    v = T.axis.spatial(2, i * 5 + j)
                    w = T.axis.spatial(2, h)
                    T.where(i * 5 + j < 2)
                    Z[v * 2 + w] = tile[v * 2 + w]
""")
    a, f = np.arange(36, dtype="int32").reshape(4, 9), np.array([0, 5, 2, 6], "int32")
    out = np.zeros(4, "int32")
    driver.compile(func, Target("native"))(guarded(a), guarded(f), out)
    assert out.tolist() == [7 + int(a[i, :n].sum()) for i, n in enumerate(f)]
