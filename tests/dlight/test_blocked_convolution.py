"""The rule for convolutions with channels in blocks: right results, fused, nothing transposed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import driver, te, topi
from tilewright.dlight.cpu import BlockedConvolution
from tilewright.ir import IRModule, Var, collect
from tilewright.scheduling import NotApplicable
from tilewright.target import Target
from tilewright.tir import PARALLEL, VECTORIZED, Block, For, PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule
from tilewright.topi.layout import layout_of

NATIVE = Target("native")
LANES = NATIVE.vector_lanes(32)
WIDE = Target("llvm -mcpu=znver4 -num-cores=1")


def conv(
    shape: tuple[Any, ...],
    filters: int,
    size: int = 3,
    *,
    epilogue: bool = True,
    block: int = LANES,
    image: str | None = None,
    groups: int = 1,
    **options: Any,
) -> PrimFunc:
    """A convolution of a plain ``shape``; ``block`` channels of its result lie together."""
    data, out = layout_of(image or f"NCHW{block}c"), f"NCHW{block}c"
    inner = f"{data.block('C')}i" if data.block("C") > 1 and groups != shape[1] else ""
    kernel = layout_of(f"OIHW{inner}{block}o")
    x = te.placeholder(data.shape(dict(zip("NCHW", shape))), name="x")
    taken = {"O": filters, "I": shape[1] // groups, "H": size, "W": size}
    w = te.placeholder(kernel.shape(taken), name="w")
    options = {"strides": 1, "padding": size // 2, "dilation": 1, **options}
    y = topi.nn.conv2d(
        x, w, *options.values(), data.name, kernel.name, groups=groups, out_layout=out
    )
    inputs = [x, w]
    if epilogue:
        bias = te.placeholder((1, filters // block, 1, 1, block), name="b")
        rest = te.placeholder(y.shape, name="r")
        y, inputs = topi.nn.relu(topi.add(topi.add(y, bias), rest)), [x, w, bias, rest]
    return te.create_prim_func([*inputs, y])


def apply(func: PrimFunc, target: Target) -> PrimFunc | str:
    made = BlockedConvolution().apply_to(Schedule(IRModule({"main": func})), target)
    if isinstance(made, NotApplicable):
        return made.reason
    return made.mod["main"].with_attr(IS_SCHEDULED, 1)


def check(func: PrimFunc, target: Target, batch: int = 1) -> PrimFunc:
    """Compare with the function as it is defined; sums are made in the same order."""
    made = apply(func, target)
    assert isinstance(made, PrimFunc), made
    rng = np.random.default_rng(0)
    shapes = [
        [batch if isinstance(e, Var) else e.value for e in buffer.shape]  # type: ignore[attr-defined]
        for buffer in func.buffers
    ]
    *inputs, out = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    expected, found = np.empty_like(out), np.empty_like(out)
    driver.compile(func.with_attr(IS_SCHEDULED, 1), target, name="f")["f"](*inputs, expected)
    driver.compile(IRModule({"main": made}), target)(*inputs, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    return made


SHAPES = {
    "whole": {"shape": (1, 2 * LANES, 8, 14), "filters": 2 * LANES},
    "odd rows and columns": {"shape": (2, LANES, 11, 13), "filters": 3 * LANES},
    "strided": {"shape": (1, LANES, 9, 12), "filters": 2 * LANES, "strides": 2},
    "dilated": {"shape": (1, LANES, 9, 9), "filters": LANES, "dilation": 2, "padding": 2},
    "lopsided padding": {"shape": (1, LANES, 7, 9), "filters": LANES, "padding": (0, 2, 1, 0)},
    "points": {"shape": (1, 2 * LANES, 7, 7), "filters": 4 * LANES, "size": 1},
    "strided points": {"shape": (2, LANES, 8, 10), "filters": 2 * LANES, "size": 1, "strides": 2},
    "one pixel": {"shape": (1, 2 * LANES, 1, 1), "filters": 2 * LANES, "size": 1},
    "one column": {"shape": (1, LANES, 9, 1), "filters": LANES},
    "few channels": {
        "shape": (1, 3, 12, 30), "filters": LANES, "size": 7, "strides": 2, "image": "NCHW",
    },
    "groups": {"shape": (1, 4 * LANES, 6, 6), "filters": 4 * LANES, "groups": 2},
    "half blocks": {
        "shape": (1, 3 * LANES // 2, 6, 9), "filters": 3 * LANES // 2, "block": LANES // 2
    },
    "many rows": {"shape": (1, 2 * LANES, 150, 40), "filters": LANES},
}  # fmt: skip


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("epilogue", [True, False])
@few("name", SHAPES, every=3)
def test_results(name: str, epilogue: bool, cores: int) -> None:
    check(conv(**SHAPES[name], epilogue=epilogue), NATIVE.with_options(num_cores=cores))


def test_symbolic_batch() -> None:
    func = conv((te.var("n"), LANES, 6, 7), 2 * LANES)
    check(func, NATIVE.with_options(num_cores=2), batch=3)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("strides", [2, 3])
@pytest.mark.parametrize("shape", [(1, 3 * LANES, 28, 28), (2, LANES, 13, 15)])
def test_what_is_read_of_images_from_afar_is_copied_without_what_is_skipped(
    shape: tuple[int, ...], strides: int, cores: int
) -> None:
    """What a convolution of stride two reads is copied first, all channels of a pixel together."""
    for l2, copied in ((4096, True), (1 << 22, False)):
        func = conv(shape, 2 * LANES, 1, strides=strides, padding=0)
        made = check(func, NATIVE.with_options(num_cores=cores, l2=l2), shape[0])
        assert any("reindex" in block.name for block in collect(made.body, Block)) == copied


def test_many_filters_are_shared_out_between_threads() -> None:
    made = check(conv((1, 8 * LANES, 3, 3), 16 * LANES), NATIVE.with_options(num_cores=2))
    shared = [loop.extent.value for loop in collect(made.body, For) if loop.kind == PARALLEL]
    # There are fewer rows than parts.
    assert shared and shared[-1] >= 4


def test_the_tile_fills_the_registers() -> None:
    func = apply(conv((1, 64, 56, 56), 64, block=16, epilogue=False), WIDE)
    assert isinstance(func, PrimFunc)
    tile = [item for item in func.body.block.alloc_buffers if item.scope == "local"]  # type: ignore[attr-defined]
    assert len(tile) == 1
    unrolled = [loop.extent.value for loop in collect(func.body, For) if loop.kind == "unrolled"]  # type: ignore[attr-defined]
    assert 16 <= math.prod(unrolled[:2]) <= 30
    vectors = {loop.extent.value for loop in collect(func.body, For) if loop.kind == VECTORIZED}  # type: ignore[attr-defined]
    assert vectors == {16}


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (
            conv((1, 16, 5, 5), 16, image="NCHW16c", block=16, groups=16, size=3),
            "vector of filters",
        ),
        (conv((1, te.var("c"), 5, 5), 16, block=16, image="NCHW"), "channels are symbolic"),
        (conv((1, 16, 5, 5), 12, block=4, image="NCHW16c"), "not those of a convolution"),
    ],
    ids=["depthwise", "symbolic channels", "small blocks"],
)
def test_refusals(func: PrimFunc, reason: str) -> None:
    made = apply(func, WIDE)
    assert isinstance(made, str) and reason in made
