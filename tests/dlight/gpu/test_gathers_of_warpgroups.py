"""Operands that don't come in vectors of 16 bytes, or are computed, go to wgmma all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_rules import agree, compiled, function, lowered, scheduled, tensor

from tests.everyday import few
from tilewright import te, topi
from tilewright.ir import IRModule
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.target import Target
from tilewright.tir import PrimFunc

HOPPER = Target("nvidia/nvidia-h200")


def convolution(image: Any, filters: Any, dtype: str, build: Callable[..., Any]) -> PrimFunc:
    x, w = tensor(*image, dtype=dtype, name="x"), tensor(*filters, dtype=dtype, name="w")
    return function(build, x, w)


def product(m: Any, n: Any, k: Any, dtype: str, total: str, turned: bool) -> PrimFunc:
    """A product; rows of B lie along ``k`` if ``turned``."""
    b = (n, k) if turned else (k, n)
    return function(
        lambda a, b: topi.nn.matmul(a, b, transpose_b=turned, out_dtype=total),
        tensor(m, k, dtype=dtype, name="a"),
        tensor(*b, dtype=dtype, name="b"),
    )


def decoded() -> PrimFunc:
    """Weights of bytes with a scale for each 24 of them, which divides no step."""
    return function(
        lambda a, w, s: topi.nn.matmul(
            a,
            te.compute((64, 72), lambda n, k: w[n, k].astype("float16") * s[n, k // 24], "decoded"),
            transpose_b=True,
            out_dtype="float32",
        ),
        tensor(33, 72, dtype="float16", name="a"),
        tensor(64, 72, dtype="int8", name="w"),
        tensor(64, 3, dtype="float16", name="s"),
    )


CASES: dict[str, Callable[[], PrimFunc]] = {
    "NCHW, strided": lambda: convolution(
        (1, 8, 11, 11), (24, 8, 3, 3), "float16", lambda x, w: topi.nn.conv2d(x, w, 2, 1)
    ),
    "NCHW, dilated": lambda: convolution(
        (2, 8, 9, 9), (8, 8, 3, 3), "bfloat16", lambda x, w: topi.nn.conv2d(x, w, 1, 2, 2)
    ),
    "NCHW, bytes, odd": lambda: convolution(
        (1, 5, 9, 9),
        (7, 5, 3, 3),
        "int8",
        lambda x, w: topi.nn.conv2d(x, w, out_dtype="int32"),
    ),
    "NCHW, groups": lambda: convolution(
        (4, 64, 6, 6),
        (64, 32, 3, 3),
        "float16",
        lambda x, w: topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 2),
    ),
    "NHWC, eighths": lambda: convolution(
        (1, 8, 8, 16),
        (3, 3, 16, 16),
        "float8_e4m3fn",
        lambda x, w: topi.nn.conv2d(x, w, 1, 1, 1, "NHWC", "HWIO", "float32"),
    ),
    "bytes of columns": lambda: product(70, 96, 130, "uint8", "int32", False),
    "vectors of 8 bytes": lambda: product(64, 64, 84, "float16", "float32", True),
    "odd": lambda: product(33, 65, 47, "bfloat16", "float32", False),
    "decoded": decoded,
}


@few("name", CASES, "NCHW, strided", "bytes of columns", "decoded")
def test_what_comes_one_by_one_is_gathered(name: str) -> None:
    module = agree(CASES[name](), target=HOPPER, tolerance=1e-2)
    assert "T.ptx_wgmma(" in module.script()
    assert all(item.spill_bytes == 0 for item in compiled(module, HOPPER).values())
    # What products read lies in rows of 128 bytes that all banks give at once.
    found = [bound.worst(shared=True) for bound in kernel_bounds(module, HOPPER)]
    assert max(found) <= 2


def test_columns_may_come_with_the_call() -> None:
    n = te.var("n")
    func = product(40, n, 64, "float16", "float32", False)
    module = agree(func, target=HOPPER, tolerance=1e-2, n=37)
    assert "T.ptx_wgmma(" in module.script()


def lowered_for(func: PrimFunc, target: Target = HOPPER) -> IRModule:
    made: IRModule = lowered(scheduled(func, target=target), target)
    return made


def resnet(channels: int, size: int, stride: int) -> PrimFunc:
    return convolution(
        (32, channels, size, size),
        (128, channels, 3, 3),
        "float16",
        lambda x, w: topi.nn.conv2d(x, w, stride, 1),
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_large_tiles_of_gathered_windows_leave_registers(stride: int) -> None:
    module = lowered_for(resnet(128, 28 * stride, stride))
    assert "T.ptx_wgmma(" in module.script()
    assert all(item.spill_bytes == 0 for item in compiled(module, HOPPER).values())


def test_weights_in_windows_come_in_vectors() -> None:
    text = lowered_for(resnet(64, 28, 1)).script()
    # All taps of all channels are one row, 16 bytes of which are copied at once.
    assert "T.ptx_cp_async(" in text and "16)" in text


def test_strided_pixels_are_read_by_neighbouring_threads() -> None:
    module = lowered_for(resnet(64, 56, 2), Target("nvidia/nvidia-a100"))
    (bound,) = kernel_bounds(module, Target("nvidia/nvidia-a100"))
    assert bound.worst(shared=False) < 4


def test_groups_of_filters_are_products_of_their_own() -> None:
    func = convolution(
        (32, 256, 28, 28),
        (256, 64, 3, 3),
        "float16",
        lambda x, w: topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 4),
    )
    module = lowered_for(func)
    assert "T.ptx_wgmma(" in module.script()
    (bound,) = kernel_bounds(module, HOPPER)
    assert bound.seconds < 50e-6


def test_gathered_lanes_are_counted_one_by_one() -> None:
    module = lowered_for(resnet(64, 28, 1))
    (bound,) = kernel_bounds(module, HOPPER)
    images = [item for item in bound.accesses if item.buffer == "x"]
    # Each element of a window is a load of its own: 9 taps of all pixels of 64 channels.
    loads = sum(item.warps for item in images)
    assert np.isclose(loads * 32, 32 * 28 * 28 * 64 * 9, rtol=0.2)
