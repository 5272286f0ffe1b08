"""Operands that are read in windows, or padded, come by vectors where what a vector holds does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_rules import compiled, function, tensor

from tests.everyday import few
from tilewright import dlight, te, topi
from tilewright.ir import Call, IRModule, pre_order
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.transform import gpu_pipeline

A100, H200, T4 = (Target(f"nvidia/{name}") for name in ("nvidia-a100", "nvidia-h200", "tesla-t4"))
n = te.var("n")


def lowered(func: PrimFunc, target: Target) -> IRModule:
    with target:
        return gpu_pipeline(target)(dlight.default_schedule(target)(IRModule({"main": func})))


def conv(
    channels: int,
    filters: int,
    dtype: str = "float16",
    *,
    side: int = 5,
    images: Any = 2,
    taps: int = 3,
    layout: str = "HWIO",
    options: tuple[int, int, int] = (1, 1, 1),
) -> PrimFunc:
    """A convolution whose channels are side by side; ``options``: stride, padding, dilation."""
    total = "int32" if dtype == "int8" else "float32"
    shape = (taps, taps, channels, filters) if layout == "HWIO" else (filters, taps, taps, channels)
    return function(
        lambda x, w: topi.nn.conv2d(x, w, *options, "NHWC", layout, total),
        tensor(images, side, side, channels, dtype=dtype),
        tensor(*shape, dtype=dtype, name="w"),
    )


def agrees(func: PrimFunc, mod: IRModule, **sizes: int) -> None:
    """Simulate kernels, races reported; sums of small whole numbers are exact."""
    rng = np.random.default_rng(0)
    buffers = [func.buffer_map[var] for var in func.params]
    shapes = [[sizes.get(str(x)) if str(x) in sizes else int(x) for x in b.shape] for b in buffers]
    given: list[Any] = [
        rng.integers(-3, 4, shape).astype(buffer.dtype) for shape, buffer in zip(shapes, buffers)
    ]
    expected, found = [x.copy() for x in given], [x.copy() for x in given]
    run(func, *expected)
    run(mod, *found, check_races=True)
    np.testing.assert_array_equal(found[-1], expected[-1])


def copied(mod: IRModule) -> set[tuple[int, bool]]:
    """Bytes of each asynchronous copy, and whether it is under a condition."""
    return {
        (int(x.args[2].value), len(x.args) > 3)
        for func in mod.functions.values()
        for x in pre_order(func.body)
        if isinstance(x, Call) and x.op.name == "ptx_cp_async"
    }


CASES: dict[str, tuple[PrimFunc, Target, set[tuple[int, bool]]]] = {
    "padded": (conv(16, 16), A100, {(16, True)}),
    "the sum ends inside of a step": (conv(24, 16, side=3), A100, {(16, True)}),
    "half vectors": (conv(12, 8, side=3), A100, {(8, True), (16, True)}),
    "stride and dilation": (
        conv(16, 16, side=9, images=1, options=(2, 2, 2)), A100, {(16, True)}
    ),
    "filters first": (conv(16, 16, side=3, layout="OHWI"), A100, {(16, True), (16, False)}),
    "bytes": (conv(32, 16, "int8", side=3), A100, {(16, True), (8, True)}),
    "a warpgroup": (conv(64, 64, side=3, images=1), H200, {(16, True), (16, False)}),
    "without padding": (
        conv(64, 64, side=4, images=1, taps=2, options=(1, 0, 1)), H200, {(16, True), (16, False)}
    ),
}  # fmt: skip


@few("name", CASES, "padded", "the sum ends inside of a step")
def test_windows_come_by_vectors(name: str) -> None:
    func, target, copies = CASES[name]
    mod = lowered(func, target)
    assert copied(mod) == copies
    agrees(func, mod)
    assert all(item.spill_bytes == 0 for item in compiled(mod, target).values())


@pytest.mark.parametrize("images", [0, 1, 3])
def test_images_may_come_with_the_call(images: int) -> None:
    func = conv(16, 16, side=3, images=n)
    mod = lowered(func, A100)
    assert copied(mod) == {(16, True)}
    agrees(func, mod, n=images)


def test_odd_channels_come_one_by_one() -> None:
    func = conv(3, 8, side=4, images=1)
    mod = lowered(func, A100)
    assert (16, True) not in copied(mod)
    agrees(func, mod)


def test_plain_threads_load_vectors_too() -> None:
    func = conv(8, 16, "float32", side=4, images=1)
    mod = lowered(func, T4)
    assert "T.Ramp(" in mod.script() or "float32x4" in mod.script()
    agrees(func, mod)


def test_a_sum_of_any_whole_vectors_comes_by_them() -> None:
    """A depth that ends inside of a step."""
    func = function(
        lambda a, b: topi.nn.matmul(a, b, out_dtype="float32"),
        tensor(16, 136, dtype="float16", name="a"),
        tensor(136, 24, dtype="float16", name="b"),
    )
    mod = lowered(func, A100)
    assert copied(mod) == {(16, True), (16, False)}
    agrees(func, mod)


def test_nothing_but_the_cache_limits_a_convolution() -> None:
    mod = lowered(conv(64, 64, side=28, images=8), H200)
    (bound,) = kernel_bounds(mod, H200)
    assert bound.limiter == "l2"
    assert bound.worst(shared=True) == bound.worst(shared=False) == 1


def channels_first(
    channels: int,
    filters: int,
    dtype: str,
    height: int,
    width: int,
    *options: int,
    images: Any = 2,
) -> PrimFunc:
    total = "int32" if dtype == "int8" else "float32"
    return function(
        lambda x, w: topi.nn.conv2d(x, w, *options, "NCHW", "OIHW", total),
        tensor(images, channels, height, width, dtype=dtype),
        tensor(filters, channels, 3, 3, dtype=dtype, name="w"),
    )


@few(
    "name",
    ROWS := {
        "padded": (16, 32, "float16", 6, 9, 1, 1, 1),
        "odd": (5, 7, "bfloat16", 7, 5, 1, 0, 1),
        "steps of two": (16, 16, "float16", 9, 9, 2, 1, 1),
        "apart": (8, 16, "float16", 9, 8, 1, 2, 2),
        "bytes": (32, 16, "int8", 6, 9, 1, 1, 1),
        "one row": (16, 16, "float16", 3, 40, 1, 0, 1),
    },
    "steps of two",
)
def test_pixels_of_channels_that_lie_apart(name: str) -> None:
    func = channels_first(*ROWS[name])
    mod = lowered(func, A100)
    assert "T.ptx_mma(" in mod.script()
    compiled(mod, A100)
    agrees(func, mod)


@pytest.mark.slow
def test_images_of_any_number_whose_channels_lie_apart() -> None:
    func = channels_first(16, 16, "float16", 5, 9, 1, 1, 1, images=n)
    mod = lowered(func, A100)
    compiled(mod, A100)
    for number in (0, 1, 3):
        agrees(func, mod, n=number)


def test_neighbouring_threads_fetch_neighbouring_pixels() -> None:
    """Not the taps of a pixel's window, whose rows and channels lie apart."""
    mod = lowered(channels_first(64, 64, "float16", 56, 56, 1, 1, 1), H200)
    (bound,) = kernel_bounds(mod, H200)
    assert bound.worst(shared=False) <= 1.5 and bound.worst(shared=True) == 1
    assert bound.seconds < 5e-6
    (taken,) = compiled(mod, H200).values()
    assert taken.spill_bytes == 0
