"""Whole register tiles in the tails of loops touch no address outside of a buffer."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright import driver, te, tir, topi
from tilewright.dlight import ApplyDefaultSchedule
from tilewright.dlight.cpu import rules
from tilewright.ir import Expr, IRModule, Var, const, if_then_else
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


def _depthwise(channels: int, stride: int, padding: tuple[int, int, int, int]) -> tir.PrimFunc:
    h, w = Var("h"), Var("w")
    x = te.placeholder((1, channels, h, w), "float32", "x")
    f = te.placeholder((channels, 1, 3, 3), "float32", "f")
    made = topi.nn.conv2d(x, f, stride, padding, groups=channels)
    return te.create_prim_func([x, f, made])


@pytest.mark.parametrize(
    ("stride", "padding"), [(1, (1, 1, 1, 1)), (1, (2, 0, 0, 2)), (2, (1, 1, 1, 1))]
)
def test_padding_keeps_loads_of_whole_tiles_inside(
    stride: int, padding: tuple[int, int, int, int]
) -> None:
    mod = _partitioned(_depthwise(2, stride, padding))
    rng = np.random.default_rng(0)
    for rows, columns in [(3, 3), (4, 16), (5, 17), (7, 20), (12, 35)]:
        x = rng.random((1, 2, rows, columns), dtype=np.float32)
        f = rng.random((2, 1, 3, 3), dtype=np.float32)
        top, left, bottom, right = padding
        filled = np.pad(x[0], [(0, 0), (top, bottom), (left, right)])
        windows = np.lib.stride_tricks.sliding_window_view(filled, (3, 3), (1, 2))
        expected = np.einsum("chwij,cij->chw", windows[:, ::stride, ::stride], f[:, 0])
        out = np.zeros((1, *expected.shape), np.float32)
        run(mod["main"], x, f, out)
        np.testing.assert_allclose(out[0], expected, rtol=1e-5, atol=1e-6)


def test_guards_of_tiles_are_no_part_of_the_masks_of_padding() -> None:
    """Else rows that a tile's results share would be loaded once for each of them."""
    text = _partitioned(_depthwise(96, 1, (1, 1, 1, 1))).script()
    values = text.split("T.if_then_else(")[1:]
    assert len(values) == 3  # whole tiles, right edge, bottom edge
    for value in values:
        condition, found, _ = value.partition("x_1[")
        assert found and "T.if_then_else(" not in condition


def test_a_guard_stays_where_padding_is_of_another_axis() -> None:
    n, m = Var("n"), Var("m")
    x = te.placeholder((n, m), "float32", "x")
    d = te.reduce_axis((0, 3), "d")

    def windows(i: Expr, j: Expr) -> Expr:
        inside = if_then_else(j + d.var < m, x(i, j + d.var), const(0.0, "float32"))
        return te.sum(inside, axis=d)

    func = te.create_prim_func([x, te.compute((n, m), windows, name="y")])
    mod = _partitioned(func)
    for rows, columns in [(1, 1), (5, 17), (8, 16), (13, 40)]:
        data = np.random.default_rng(0).random((rows, columns), dtype=np.float32)
        out = np.zeros_like(data)
        run(mod["main"], data, out)
        filled = np.pad(data, [(0, 0), (0, 2)])
        expected = sum(filled[:, k : k + columns] for k in range(3))
        np.testing.assert_allclose(out, expected, rtol=1e-5)
