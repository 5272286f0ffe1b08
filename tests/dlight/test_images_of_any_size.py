"""Images in blocks whose batch, rows and columns come with the call: any size, odd ones and one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import driver, te, topi
from tilewright.arith import Analyzer
from tilewright.dlight.cpu import BlockedConvolution, BlockedWindow
from tilewright.ir import IRModule, Var, as_int, const, substitute
from tilewright.scheduling import NotApplicable
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule
from tilewright.topi.layout import layout_of

NATIVE = Target("native")
TARGETS = {
    "one core": NATIVE.with_options(num_cores=1),
    "two cores": NATIVE.with_options(num_cores=2),
    "narrow": Target("llvm -mcpu=x86-64-v3 -num-cores=1"),
}
#: Batch, rows, columns: below a tile, whole tiles, and some more.
SIZES = [(1, 1, 1), (2, 7, 5), (3, 2, 15), (1, 14, 14)]


def image(channels: int, lanes: int, plain: bool) -> te.Tensor:
    layout = layout_of("NCHW" if plain else f"NCHW{lanes}c")
    extents = {"N": te.var("n"), "C": channels, "H": te.var("h"), "W": te.var("w")}
    return te.placeholder(layout.shape(extents), name="x")


def convolution(
    lanes: int, taken: int, made: int, size: int, *, strides: int = 1, groups: int = 1
) -> PrimFunc:
    plain = taken == 3
    x = image(taken, lanes, plain)
    inner = f"{lanes}i" if not plain and groups == 1 else ""
    kernel = layout_of(f"OIHW{inner}{lanes}o")
    extents = {"O": made, "I": taken // groups, "H": size, "W": size}
    w = te.placeholder(kernel.shape(extents), name="w")
    layouts = "NCHW" if plain else f"NCHW{lanes}c", kernel.name, f"NCHW{lanes}c"
    y = topi.nn.conv2d(
        x, w, strides, size // 2, 1, *layouts[:2], groups=groups, out_layout=layouts[2]
    )
    bias = te.placeholder((1, made // lanes, 1, 1, lanes), name="b")
    rest = te.placeholder(y.shape, name="r")
    return te.create_prim_func([x, w, bias, rest, topi.nn.relu(topi.add(topi.add(y, bias), rest))])


def functions(n: int) -> dict[str, tuple[PrimFunc, Any]]:
    """Functions of ``n`` channels per block, and the rules for them."""
    pooled = image(2 * n, n, False)
    return {
        "window": (convolution(n, n, 2 * n, 3), BlockedConvolution),
        "strided": (convolution(n, 2 * n, n, 3, strides=2), BlockedConvolution),
        "points": (convolution(n, 2 * n, 4 * n, 1), BlockedConvolution),
        "many points": (convolution(n, 16 * n, 40 * n, 1), BlockedConvolution),
        "strided points": (convolution(n, n, n, 1, strides=2), BlockedConvolution),
        "few channels": (convolution(n, 3, n, 3, strides=2), BlockedConvolution),
        "depthwise": (convolution(n, 2 * n, 2 * n, 3, groups=2 * n), BlockedWindow),
        "large depthwise": (convolution(n, n, n, 5, strides=2, groups=n), BlockedWindow),
        "largest": (
            te.create_prim_func([pooled, topi.nn.max_pool2d(pooled, 3, 2, 1, layout=f"NCHW{n}c")]),
            BlockedWindow,
        ),
    }


def shape_of(extents: Any, sizes: dict[Var, int]) -> list[int]:
    known = {var: const(size, var.dtype) for var, size in sizes.items()}
    simplify = Analyzer().simplify
    return [as_int(simplify(substitute(extent, known))) or 0 for extent in extents]


@pytest.mark.parametrize("on", TARGETS)
@few("name", functions(8), every=3)
def test_results(name: str, on: str) -> None:
    target = TARGETS[on]
    func, rule = functions(target.vector_lanes(32))[name]
    made = rule().apply_to(Schedule(IRModule({"main": func})), target)
    assert not isinstance(made, NotApplicable), made.reason
    scheduled = driver.compile(made.mod["main"].with_attr(IS_SCHEDULED, 1), target)
    defined = driver.compile(func.with_attr(IS_SCHEDULED, 1), target)
    rng = np.random.default_rng(0)
    shape = func.buffers[0].shape
    variables = shape[0], *(shape[2:4])
    for sizes in SIZES:
        known = dict(zip(variables, sizes))
        shapes = [shape_of(buffer.shape, known) for buffer in func.buffers]
        *inputs, out = (rng.standard_normal(item, dtype=np.float32) for item in shapes)
        expected, found = np.empty_like(out), np.empty_like(out)
        defined(*inputs, expected)
        scheduled(*inputs, found)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
