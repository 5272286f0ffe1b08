"""Kernels whose sizes come with the call, scheduled by rule: none, one, a few, more than a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.attention_reference import attention
from tests.everyday import few
from tilewright import dlight, te, topi
from tilewright.dlight.cpu import TiledReduction
from tilewright.ir import IRModule
from tilewright.runtime import guarded
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule

SIZES = (0, 1, 19, 130)
TARGET = Target("native").with_options(num_cores=2)
Sizes = Sequence["str | int"]


def softmax(x: np.ndarray) -> np.ndarray:
    if not x.size:
        return x
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def layer_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * w + b


def pointwise(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.einsum("nchw,fc->nfhw", x, w[:, :, 0, 0])


def attended(*operands: np.ndarray) -> np.ndarray:
    """Of no keys the weighted mean is zero."""
    if not operands[0].size or not operands[1].size:
        return np.zeros_like(operands[0])
    return attention(*operands)


# The operator, its meaning, shapes of operands; their dtypes where these aren't float32.
Case = tuple[Callable[..., Any], Callable[..., Any], Sequence[Sizes], tuple[str, ...]]
ROWS = ["nm"]
CASES: dict[str, Case] = {
    "relu": (topi.nn.relu, lambda x: np.maximum(x, 0), ROWS, ()),
    "transpose": (topi.transpose, np.transpose, ROWS, ()),
    "sum of rows": (lambda x: topi.sum(x, axis=1), lambda x: x.sum(1), ROWS, ()),
    "sum of columns": (lambda x: topi.sum(x, axis=0), lambda x: x.sum(0), ROWS, ()),
    "sum of all": (topi.sum, np.sum, ROWS, ()),
    "mean": (lambda x: topi.mean(x, axis=1), lambda x: x.mean(1), ROWS, ()),
    "max": (lambda x: topi.max(x, axis=1), lambda x: x.max(1, initial=-np.inf), ROWS, ()),
    "softmax": (topi.nn.softmax, softmax, ROWS, ()),
    "layer_norm": (topi.nn.layer_norm, layer_norm, ["nm", "m", "m"], ()),
    "cumsum": (lambda x: topi.cumsum(x, axis=1), lambda x: np.cumsum(x, 1), ROWS, ()),
    "sort": (topi.sort, lambda x: np.sort(x, 1), ROWS, ()),
    "argsort": (topi.argsort, lambda x: np.argsort(x, 1, kind="stable"), ROWS, ()),
    "matmul": (topi.matmul, np.matmul, ["nk", "km"], ()),
    "matmul, known columns": (topi.matmul, np.matmul, ["nk", ("k", 70)], ()),
    "matmul of bytes": (
        lambda a, b: topi.matmul(a, b, out_dtype="int32"),
        np.matmul,
        ["nk", "km"],
        ("uint8", "int8"),
    ),
    "matmul of bytes, rows of a batch": (
        lambda a, b: topi.matmul(a, b, out_dtype="int32"),
        np.matmul,
        [("n", "m", 21), (21, 70)],
        ("uint8", "int8"),
    ),
    "epilogue": (
        lambda a, b, c: topi.nn.relu(topi.add(topi.matmul(a, b), c)),
        lambda a, b, c: np.maximum(a @ b + c, 0),
        ["nk", "km", "m"],
        (),
    ),
    "rows of a batch": (topi.matmul, np.matmul, [("n", "m", 20), (20, 70)], ()),
    "rows of a batch, epilogue": (
        lambda a, b, c, d: topi.nn.relu(topi.add(topi.add(topi.matmul(a, b), c), d)),
        lambda a, b, c, d: np.maximum(a @ b + c + d, 0),
        [("n", "m", 20), (20, 33), (33,), ("n", "m", 33)],
        (),
    ),
    "rows of a batch, two sums": (
        lambda a, b, c: topi.add(topi.matmul(a, b), topi.reshape(c, (c.shape[0], 1, 33))),
        lambda a, b, c: a @ b + c[:, None],
        [("n", "m", 20), (20, 33), ("n", 33)],
        (),
    ),
    "known rows of a batch": (topi.matmul, np.matmul, [("n", 7, 20), (20, 70)], ()),
    "rows of some of a batch": (topi.matmul, np.matmul, [("n", 3, "m", 20), (20, 70)], ()),
    "products of a batch": (topi.matmul, np.matmul, [("n", "m", 20), ("n", 20, 70)], ()),
    "convolution": (topi.nn.conv2d, pointwise, [("n", 16, 5, 7), (24, 16, 1, 1)], ()),
    "attention": (
        topi.nn.scaled_dot_product_attention,
        attended,
        [(1, 2, "n", 16), (1, 2, "m", 16), (1, 2, "m", 16)],
        (),
    ),
}


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@few("name", CASES, every=3)
def test_results(name: str) -> None:
    compute, reference, shapes, dtypes = CASES[name]
    kinds = dtypes or ("float32",) * len(shapes)
    names = sorted({size for shape in shapes for size in shape if isinstance(size, str)})
    symbols = {size: te.var(size) for size in names}
    operands = [
        te.placeholder([symbols.get(size, size) for size in shape], kind, f"x{number}")
        for number, (shape, kind) in enumerate(zip(shapes, kinds))
    ]
    func = te.create_prim_func([*operands, compute(*operands)])
    mod = dlight.default_schedule(TARGET)(IRModule({"main": func}))
    kernel = tilewright.compile(mod, TARGET)["main"]
    rng = np.random.default_rng(0)
    for values in product(SIZES, repeat=len(names)):
        known = dict(zip(names, values))
        arrays = []
        for shape, kind in zip(shapes, kinds):
            extents = [known.get(size, size) for size in shape]
            drawn = rng.standard_normal(extents) * (30 if "int" in kind else 1)
            arrays.append((abs(drawn) if kind == "uint8" else drawn).astype(kind))
        wide = [x.astype("float64" if x.dtype.kind == "f" else "int64") for x in arrays]
        with np.errstate(all="ignore"):
            expected = np.asarray(reference(*wide))
        found = np.full(expected.shape, 7, func.buffers[-1].dtype)
        kernel(*arrays, found)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=str(known))


@pytest.mark.parametrize("columns", [6, 16, 33, 96])
@pytest.mark.parametrize("cpu", ["native", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
def test_each_number_of_rows(cpu: str, columns: int) -> None:
    """The last tile is as high as it must be: none, one, and all numbers up to two whole tiles."""
    target = Target(cpu).with_options(num_cores=1)
    rows = te.var("n")
    a, b = te.placeholder((rows, 20), name="a"), te.placeholder((20, columns), name="b")
    c = te.placeholder((rows, columns), name="c")
    func = te.create_prim_func([a, b, c, topi.nn.relu(topi.add(topi.matmul(a, b), c))])
    kernel = tilewright.compile(dlight.default_schedule(target)(IRModule({"main": func})), target)
    rng = np.random.default_rng(0)
    for n in range(31):
        x, y, z = (
            guarded(rng.standard_normal(shape, dtype=np.float32))
            for shape in [(n, 20), (20, columns), (n, columns)]
        )
        found = guarded(np.zeros((n, columns), "float32"))
        kernel["main"](x, y, z, found)
        np.testing.assert_allclose(found, np.maximum(x @ y + z, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cpu", ["native", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
def test_products_of_rows_with_rows(cpu: str) -> None:
    """Panels of as many rows as the call says are gathered; the last one may be narrow."""
    target = Target(cpu).with_options(num_cores=1)
    b, n, steps = te.var("b"), te.var("n"), te.reduce_axis((0, 20), "r")
    x, y = te.placeholder((b, 2, n, 20), name="x"), te.placeholder((b, 2, n, 20), name="y")
    mask = te.placeholder((b, 1, n, n), name="m")
    sums = te.compute(
        (b, 2, n, n),
        lambda i, h, p, q: te.sum(x(i, h, p, steps.var) * y(i, h, q, steps.var), axis=[steps]),
    )
    made = te.compute(sums.shape, lambda i, h, p, q: sums(i, h, p, q) + mask(i, 0, p, q))
    sch = Schedule(IRModule({"main": te.create_prim_func([x, y, mask, made])}))
    tiled = TiledReduction().apply_to(sch, target)
    assert isinstance(tiled, Schedule), tiled.reason
    kernel = tilewright.compile(tiled.mod["main"].with_attr(IS_SCHEDULED, 1), target)
    rng = np.random.default_rng(0)
    for size in (0, 1, 5, 16, 33, 64, 70):
        shapes = [(2, 2, size, 20), (2, 2, size, 20), (2, 1, size, size), (2, 2, size, size)]
        arrays = [guarded(rng.standard_normal(shape, dtype=np.float32)) for shape in shapes]
        kernel(*arrays)
        expected = arrays[0] @ arrays[1].transpose(0, 1, 3, 2) + arrays[2]
        np.testing.assert_allclose(arrays[3], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cpu", ["native", "llvm -mcpu=x86-64-v3"])
def test_each_width_of_an_image(cpu: str) -> None:
    """Tiles may run along either the width or the filters; the last one may be narrow or low."""
    target = Target(cpu).with_options(num_cores=2)
    height, width = te.var("h"), te.var("w")
    a = te.placeholder((2, 3, height, width), name="a")
    b = te.placeholder((10, 3, 3, 3), name="b")
    func = te.create_prim_func([a, b, topi.nn.conv2d(a, b, 1, 1)])
    kernel = tilewright.compile(dlight.default_schedule(target)(IRModule({"main": func})), target)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((10, 3, 3, 3), dtype=np.float32)
    for columns in (*range(1, 20), 31, 33, 47, 48, 49, 64, 65, 97):
        x = rng.standard_normal((2, 3, 4, columns), dtype=np.float32)
        found = guarded(np.zeros((2, 10, 4, columns), "float32"))
        kernel["main"](guarded(x), guarded(w), found)
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        expected = np.einsum("nchwij,fcij->nfhw", windows, w)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cpu", ["native", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_over_images_of_any_size(cpu: str, stride: int) -> None:
    """Depthwise convolution and pooling: the edges of the image are known with the call."""
    target = Target(cpu).with_options(num_cores=2)
    sizes = te.var("n"), 5, te.var("h"), te.var("w")
    a = te.placeholder(sizes, name="a")
    b = te.placeholder((5, 1, 3, 3), name="b")
    depthwise = topi.nn.conv2d(a, b, stride, 1, groups=5)
    pooled = topi.nn.max_pool2d(a, 3, stride, 1)
    func = te.create_prim_func([a, b, depthwise])
    other = te.create_prim_func([a, pooled])
    mod = dlight.default_schedule(target)(IRModule({"depthwise": func, "pooled": other}))
    kernels = tilewright.compile(mod, target)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((5, 1, 3, 3), dtype=np.float32)
    for batch, rows, columns in [
        (0, 3, 3),
        (2, 0, 5),
        (1, 1, 1),
        (2, 5, 7),
        (1, 16, 33),
        (1, 9, 70),
    ]:
        x = rng.standard_normal((batch, 5, rows, columns), dtype=np.float32)
        out = [(size - 1) // stride + 1 for size in (rows, columns)]
        made = guarded(np.zeros((batch, 5, *out), "float32"))
        found = guarded(np.zeros((batch, 5, *out), "float32"))
        kernels["depthwise"](guarded(x), guarded(w), made)
        kernels["pooled"](guarded(x), found)
        if not rows:
            continue
        for result, fill in ((made, 0.0), (found, -np.inf)):
            edges = ((0, 0), (0, 0), (1, 1), (1, 1))
            padded = np.pad(x, edges, constant_values=fill)
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
            windows = windows[:, :, ::stride, ::stride]
            expected = (
                windows.max((-2, -1)) if fill else np.einsum("nchwij,cij->nchw", windows, w[:, 0])
            )
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_rows_of_a_batch_are_those_of_one_product(dtype: str) -> None:
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n, m, 20), dtype, "a"), te.placeholder((20, 70), dtype, "b")
    mod = IRModule(
        {
            "main": te.create_prim_func(
                [a, b, topi.matmul(a, b, out_dtype="float32" if dtype != "int8" else "int32")]
            )
        }
    )
    made = dlight.default_schedule(TARGET)(mod)["main"].script()
    assert "T.axis.spatial(n * m" in made


def test_long_loop_bodies_over_symbolic_rows() -> None:
    """What a parallel loop takes is the sum of some hundred terms here, most of them equal."""
    text = """
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "uint8")
    Z = T.match_buffer(z, (n, m), "uint8")
    R = T.alloc_buffer((n,), "uint8")
    Q = T.alloc_buffer((n,), "uint8")
    for i, k in T.grid(n, m):
        with T.block("R"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                R[vi] = T.uint8(1)
            R[vi] = T.max(R[vi], A[vi, vk])
    for i, k in T.grid(n, m):
        with T.block("Q"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Q[vi] = T.uint8(0)
            Q[vi] = Q[vi] + A[vi, vk] * R[vi]
    for i, j in T.grid(n, m):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = A[vi, vj] * R[vi] - Q[vi]
"""
    mod = dlight.default_schedule(TARGET)(IRModule({"main": parse(text)}))
    kernel = tilewright.compile(mod, TARGET)["main"]
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (3, 70), (40, 129)):
        x = rng.integers(0, 256, shape).astype("uint8")
        found = np.zeros(shape, "uint8")
        kernel(x, found)
        top = np.maximum(x.max(1, keepdims=True), np.uint8(1))
        sums = (x * top).sum(1, keepdims=True, dtype="uint8")
        np.testing.assert_array_equal(found, x * top - sums)


def test_the_call_decides_on_threads() -> None:
    """A size that the call tells may be worth threads; a known small one isn't."""
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=4")
    for size, parallel in ((te.var("n"), True), (64, False)):
        x = te.placeholder((size,), name="x")
        mod = IRModule({"main": te.create_prim_func([x, topi.exp(x)])})
        made = dlight.ApplyDefaultSchedule(target=target)(mod)
        assert ("T.parallel" in made.script()) == parallel


@pytest.mark.parametrize("cpu", ["haswell", "x86-64"])
def test_tiles_of_products_of_any_size_are_several_vectors_wide(cpu: str) -> None:
    target = Target(f"llvm -mcpu={cpu} -num-cores=1")
    n, m, k = (te.var(name, "int64") for name in "nmk")
    a, b = te.placeholder((n, k), "float32", "a"), te.placeholder((k, m), "float32", "b")
    func = te.create_prim_func([a, b, topi.matmul(a, b)])
    text = dlight.default_schedule(target)(IRModule({"main": func})).script()
    assert f"in T.vectorized({2 * target.vector_lanes(32)})" in text
