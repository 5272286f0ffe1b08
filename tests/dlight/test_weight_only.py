"""Float activations times 8-bit weights with scales: constants are decoded in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import compile, dlight, te, topi
from tilewright.ir import IRModule
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import CONSTANT_BYTES, LAYOUT_FREE
from tilewright.tir.layout_rewrite import split_layout_rewrite

NATIVE = Target("native").with_options(num_cores=1)
WIDE = Target("llvm -mcpu=znver4 -num-cores=1")


def weight_only(
    m: Any, n: int, k: int, kind: str, *, zero_points: bool = False, after: bool = False
) -> PrimFunc:
    """A product with weights ``[N, K]`` that are scaled before it or ``after`` it."""
    x, w = te.placeholder((m, k), "float32", "x"), te.placeholder((n, k), kind, "w")
    scale, zero = te.placeholder((n,), "float32", "scale"), te.placeholder((n,), kind, "zero")
    args = [x, w, scale, zero] if zero_points else [x, w, scale]
    if after:
        total = topi.nn.matmul(x, topi.cast(w, "float32"), transpose_b=True)
        made = te.compute(total.shape, lambda i, j: total(i, j) * scale(j), "scaled")
    else:
        wide = topi.nn.dequantize(w, scale, zero if zero_points else 0, axis=0)
        made = topi.nn.matmul(x, wide, transpose_b=True)
    func = te.create_prim_func([*args, made])
    return func.with_attr(LAYOUT_FREE, list(range(1, len(args))))


def scheduled(func: PrimFunc, target: Target = NATIVE) -> PrimFunc:
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    made: PrimFunc = mod["main"]
    return made


def check(func: PrimFunc, m: int, n: int, k: int, kind: str, zero_points: bool = False) -> None:
    rng = np.random.default_rng(1)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max + 1
    x = rng.standard_normal((m, k), dtype="float32")
    w = rng.integers(low, high, (n, k), kind)
    scale = rng.uniform(0.001, 0.1, n).astype("float32")
    args = [x, w, scale]
    zero = rng.integers(low, high, n, kind) if zero_points else np.zeros(n, kind)
    args += [zero] if zero_points else []
    wide = (w.astype("float64") - zero[:, None]) * scale[:, None]
    out = np.full((m, n), np.nan, "float32")
    main, packers = split_layout_rewrite(func)
    for position, packer in packers.items():
        packed = packer.buffers[1]
        made = np.zeros([int(str(extent)) for extent in packed.shape], packed.dtype)
        compile(packer, NATIVE)(args[position], made)
        args[position] = made
    compile(main, NATIVE)(*args, out)
    np.testing.assert_allclose(out, x.astype("float64") @ wide.T, rtol=1e-4, atol=1e-3)


def writes_weights(func: PrimFunc, n: int, k: int) -> bool:
    """Whether decoded weights are written somewhere."""
    return any(
        buffer.dtype == "float32" and len(buffer.shape) > 1 and _size(buffer) >= n * k
        for buffer in func.root.alloc_buffers
    )


def _size(buffer: Any) -> int:
    return int(np.prod([int(str(extent)) for extent in buffer.shape]))


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize(
    "shape", [(1, 64, 256), (5, 64, 96), (33, 96, 128), (17, 50, 37), (1, 3, 5), (64, 1, 8)]
)
def test_products(shape: tuple[int, int, int], kind: str, after: bool) -> None:
    check(scheduled(weight_only(*shape, kind, after=after)), *shape, kind)


@pytest.mark.parametrize("shape", [(1, 64, 64), (16, 64, 96), (9, 30, 40)])
def test_zero_points(shape: tuple[int, int, int]) -> None:
    func = scheduled(weight_only(*shape, "uint8", zero_points=True))
    check(func, *shape, "uint8", zero_points=True)


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_decoded_weights_are_not_written(rows: int, after: bool) -> None:
    func = scheduled(weight_only(rows, 256, 512, "int8", after=after))
    assert not writes_weights(func, 256, 512)
    assert "layout_rewrite" in func.script()


def prefetches(func: PrimFunc, target: Target) -> int:
    main, _ = split_layout_rewrite(func)
    text: str = compile(main, target).get_source()
    return text.count("call void @llvm.prefetch")


def of_large_graph(func: PrimFunc) -> PrimFunc:
    """A function of a graph whose constants have left the caches from one call to the next."""
    return func.with_attr(CONSTANT_BYTES, 256 << 20)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_weights_from_afar_that_pass_once_are_fetched_ahead(rows: int) -> None:
    far, near = weight_only(rows, 768, 2048, "int8"), weight_only(rows, 64, 256, "int8")
    assert prefetches(scheduled(of_large_graph(far), WIDE), WIDE) > 0
    assert prefetches(scheduled(of_large_graph(near), WIDE), WIDE) == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_weights_of_a_graph_that_stays_in_the_caches_are_not_fetched_ahead(rows: int) -> None:
    assert prefetches(scheduled(weight_only(rows, 768, 2048, "int8"), WIDE), WIDE) == 0


def test_of_short_loads_in_a_line_the_first_one_asks() -> None:
    # 48 weights of 8 bits a step, in three vectors: as many as a cache of 48 KiB asks for.
    target = Target("llvm -mcpu=znver4 -l1=49152 -num-cores=1")
    func = scheduled(of_large_graph(weight_only(8, 48 * 20, 2048, "int8", after=True)), target)
    assert "T.vectorized(48)" in func.script()
    assert prefetches(func, target) == 1


def test_two_threads() -> None:
    func = scheduled(weight_only(24, 256, 512, "int8"), NATIVE.with_options(num_cores=2))
    assert "T.parallel" in func.script()
    check(func, 24, 256, 512, "int8")


def test_symbolic_rows() -> None:
    check(scheduled(weight_only(te.var("m"), 64, 128, "int8")), 19, 64, 128, "int8")


def test_weights_that_come_with_each_call_are_decoded_first() -> None:
    func = weight_only(64, 96, 128, "int8").with_attr(LAYOUT_FREE, [])
    made = scheduled(func)
    assert writes_weights(made, 96, 128)
    check(made, 64, 96, 128, "int8")


def test_filters_that_scalars_are_taken_from_are_decoded_first() -> None:
    x = te.placeholder((1, 16, 12, 12), "float32", "x")
    w, scale = te.placeholder((32, 16, 3, 3), "int8", "w"), te.placeholder((32,), "float32", "s")
    wide = topi.nn.dequantize(w, scale, axis=0)
    func = te.create_prim_func([x, w, scale, topi.nn.conv2d(x, wide, 1, 1)])
    made = scheduled(func.with_attr(LAYOUT_FREE, [1, 2]))
    assert "dequantize = T.alloc_buffer" in made.script()
