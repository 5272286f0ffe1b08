"""The rule for windows over images with channels in blocks: depthwise convolution, pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import driver, te, topi
from tilewright.dlight.cpu import BlockedWindow
from tilewright.ir import IRModule, Var, pre_order
from tilewright.runtime import guarded
from tilewright.scheduling import NotApplicable
from tilewright.target import Target
from tilewright.tir import For, PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule

NATIVE = Target("native")
LANES = NATIVE.vector_lanes(32)


def image(channels: int, height: Any, width: Any, block: int = LANES, batch: Any = 1) -> te.Tensor:
    return te.placeholder((batch, channels // block, height, width, block), name="x")


def depthwise(x: te.Tensor, size: int = 3, epilogue: bool = True, **options: Any) -> PrimFunc:
    _, blocks, _, _, block = (getattr(extent, "value", None) for extent in x.shape)
    w = te.placeholder((blocks, 1, size, size, block), name="w")
    layouts = f"NCHW{block}c", f"OIHW{block}o"
    options = {"strides": 1, "padding": size // 2, "dilation": 1, **options}
    y = topi.nn.conv2d(x, w, *options.values(), *layouts, groups=blocks * block)
    inputs = [x, w]
    if epilogue:
        bias = te.placeholder((1, blocks, 1, 1, block), name="b")
        y, inputs = topi.nn.relu6(topi.add(y, bias)), [x, w, bias]
    return te.create_prim_func([*inputs, y])


def pool(x: te.Tensor, how: Callable[..., te.Tensor], *options: Any, **more: Any) -> PrimFunc:
    layout = f"NCHW{x.shape[-1].value}c"  # type: ignore[attr-defined]
    return te.create_prim_func([x, how(x, *options, layout=layout, **more)])


FUNCTIONS = {
    "depthwise": depthwise(image(2 * LANES, 9, 14)),
    "without epilogue": depthwise(image(LANES, 11, 13), epilogue=False),
    "strided": depthwise(image(LANES, 15, 30), strides=2),
    "dilated, lopsided": depthwise(image(LANES, 9, 8), dilation=2, padding=(2, 0, 1, 3)),
    "large window": depthwise(image(LANES, 12, 12), 7),
    "no padding": depthwise(image(LANES, 8, 8), padding=0),
    "half blocks": depthwise(image(3 * LANES // 2, 6, 7, LANES // 2)),
    "one and a half": depthwise(image(3 * LANES // 2, 6, 17, 3 * LANES // 2)),
    "one pixel": depthwise(image(LANES, 1, 1)),
    "all tiles at an edge": depthwise(image(LANES, 5, 28), 5),
    "last columns at once": depthwise(image(LANES, 7, 57), 3, strides=(2, 1)),
    "more padding than image": depthwise(image(LANES, 2, 3), 7),
    "many rows": depthwise(image(LANES, 120, 60)),
    "several images": depthwise(image(LANES, 5, 5, batch=3)),
    "max": pool(image(LANES, 12, 12), topi.nn.max_pool2d, 3, 2, 1),
    "mean": pool(image(LANES, 9, 10), topi.nn.avg_pool2d, 3, 1, 1),
    "mean of whole windows": pool(image(LANES, 8, 8), topi.nn.avg_pool2d, 2, 2),
}


def apply(func: PrimFunc, target: Target) -> PrimFunc | str:
    made = BlockedWindow().apply_to(Schedule(IRModule({"main": func})), target)
    if isinstance(made, NotApplicable):
        return made.reason
    return made.mod["main"].with_attr(IS_SCHEDULED, 1)


def check(func: PrimFunc, target: Target, batch: int = 1) -> None:
    made = apply(func, target)
    assert isinstance(made, PrimFunc), made
    rng = np.random.default_rng(0)
    *inputs, out = (
        rng.standard_normal(
            [batch if isinstance(e, Var) else e.value for e in buffer.shape],  # type: ignore[attr-defined]
            dtype=np.float32,
        )
        for buffer in func.buffers
    )
    expected, found = np.empty_like(out), np.empty_like(out)
    driver.compile(func.with_attr(IS_SCHEDULED, 1), target, name="f")["f"](*inputs, expected)
    driver.compile(IRModule({"main": made}), target)(*inputs, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cores", [1, 2])
@few("name", FUNCTIONS, every=2)
def test_results(name: str, cores: int) -> None:
    check(FUNCTIONS[name], NATIVE.with_options(num_cores=cores))


def test_symbolic_batch() -> None:
    func = depthwise(image(LANES, 6, 7, batch=te.var("n")))
    check(func, NATIVE.with_options(num_cores=2), batch=3)


def test_infinities_and_nan_go_through_windows() -> None:
    func = FUNCTIONS["max"]
    made = apply(func, NATIVE)
    assert isinstance(made, PrimFunc)
    x = np.full((1, 1, 12, 12, LANES), -np.inf, np.float32)
    x[0, 0, 5, 5] = np.inf
    found = np.empty((1, 1, 6, 6, LANES), np.float32)
    driver.compile(IRModule({"main": made}), NATIVE)(x, found)
    assert np.isposinf(found[0, 0, 2:4, 2:4]).all() and np.isinf(found).all()
    assert np.isposinf(found).sum() == 4 * LANES


def is_padded(func: PrimFunc, target: Target = NATIVE) -> bool:
    """Whether a function as scheduled copies its input into a padded buffer."""
    made = apply(func, target)
    assert isinstance(made, PrimFunc), made
    return "pad_temp" in made.script()


@pytest.mark.parametrize("batch", [1, te.var("n")], ids=["known", "symbolic"])
def test_inputs_are_read_in_place(batch: Any) -> None:
    assert not is_padded(depthwise(image(LANES, 28, 28, batch=batch)))
    assert not is_padded(depthwise(image(LANES, 9, 57, batch=batch), 5, strides=2))
    assert not is_padded(pool(image(LANES, 12, 12, batch=batch), topi.nn.max_pool2d, 3, 2, 1))


def test_wide_padding_is_copied() -> None:
    """Tiles of which several are partly beside the image would run under masks."""
    assert is_padded(depthwise(image(LANES, 9, 40), dilation=9, padding=9))
    assert is_padded(depthwise(image(LANES, te.var("h"), te.var("w")), dilation=9, padding=9))
    assert not is_padded(depthwise(image(LANES, te.var("h"), te.var("w"))))


SIZES = [(1, 1), (2, 3), (3, 6), (2, 7), (1, 8), (5, 9), (4, 13), (3, 14), (2, 15), (4, 31), (0, 9)]
NARROW = Target("llvm -mcpu=x86-64-v3")


@few(
    ("size", "options"),
    [
        (3, {}),
        (3, {"strides": 2}),
        (5, {}),
        (5, {"strides": 2}),
        (3, {"padding": (2, 0, 1, 3)}),
        (3, {"padding": 0}),
        (3, {"dilation": 2, "padding": 2}),
        (7, {"padding": 3}),
        (2, {"padding": 1, "strides": (2, 3)}),
    ],
    every=3,
)
@pytest.mark.parametrize("target", [NATIVE, NARROW], ids=["native", "narrow"])
@pytest.mark.parametrize("known", ["batch", "height", "width", "none"])
def test_symbolic_images(size: int, options: dict[str, Any], target: Target, known: str) -> None:
    """One kernel for all sizes; NaN and infinities of one image don't reach another."""
    lanes = target.vector_lanes(32)
    height = 4 if known == "height" else te.var("h")
    width = 31 if known == "width" else te.var("w")
    batch = 2 if known == "batch" else te.var("n")
    func = depthwise(
        image(lanes, height, width, lanes, batch),
        size,
        **options,
    )
    made = apply(func, target)
    assert isinstance(made, PrimFunc), made
    kernel = driver.compile(IRModule({"main": made}), target)["main"]
    plain = driver.compile(func.with_attr(IS_SCHEDULED, 1), target, name="f")["f"]
    rng = np.random.default_rng(0)
    for rows, columns in SIZES:
        n = 2 if known == "batch" else rows % 3
        shape = (n, 1, 4 if known == "height" else rows, 31 if known == "width" else columns, lanes)
        x = rng.standard_normal(shape, dtype=np.float32)
        if x.size:
            x.reshape(-1)[rng.integers(0, x.size, 2)] = np.nan, np.inf
        w = rng.standard_normal((1, 1, size, size, lanes), dtype=np.float32)
        b = rng.standard_normal((1, 1, 1, 1, lanes), dtype=np.float32)
        padding = options.get("padding", size // 2)
        around = (padding,) * 4 if isinstance(padding, int) else padding
        strides = np.broadcast_to(options.get("strides", 1), 2)
        reach = options.get("dilation", 1) * (size - 1) + 1
        out = [
            (extent + around[axis] + around[axis + 2] - reach) // strides[axis] + 1
            for axis, extent in enumerate(shape[2:4])
        ]
        if min(out) < 0 or (min(out) == 0 and n):
            continue
        found, expected = (np.empty((n, 1, *out, lanes), np.float32) for _ in range(2))
        plain(x, w, b, expected)
        kernel(guarded(x), guarded(w), guarded(b), held := guarded(found))
        np.testing.assert_allclose(held, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("width", "size", "vectors", "columns"),
    [
        (16, 3, 1, 8), (17, 3, 1, 6), (19, 5, 1, 7), (28, 3, 1, 7), (9, 5, 1, 5), (16, 7, 1, 8),
        (28, 3, 2, 4), (3, 5, 1, 3), (1, 3, 1, 1), (0, 3, 1, 1),
    ],
)  # fmt: skip
def test_columns_of_a_tile(width: int, size: int, vectors: int, columns: int) -> None:
    """Sums fill half of the registers; few columns begin too often, large windows most of all."""
    lanes = NARROW.vector_lanes(32)
    func = depthwise(image(vectors * lanes, 9, width, vectors * lanes), size)
    made = apply(func, NARROW)
    assert isinstance(made, PrimFunc), made
    loops = [node for node in pre_order(made.body) if isinstance(node, For)]
    (tile,) = {node.extent.value for node in loops if node.loop_var.name == "w_1"}
    assert tile == columns
    check(func, NARROW)


def test_tiles_are_wide_enough_to_read_in_place() -> None:
    assert not is_padded(depthwise(image(8, 9, 9, 8), 5), NARROW)
    assert not is_padded(depthwise(image(8, 16, 16, 8), 7), NARROW)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("width", [3, 14, 28, 31, 57])
def test_padding_is_multiplied(width: int, size: int) -> None:
    """Zeros beside an image times infinite weights are NaN, in each row and column of the edge."""
    func = depthwise(image(LANES, 6, width), size, epilogue=False, padding=(1, 2, 2, 1))
    made = apply(func, NATIVE)
    assert isinstance(made, PrimFunc)
    kernel = driver.compile(IRModule({"main": made}), NATIVE)["main"]
    shapes = [[extent.value for extent in buffer.shape] for buffer in func.buffers]  # type: ignore[attr-defined]
    x, out = np.ones(shapes[0], np.float32), np.empty(shapes[2], np.float32)
    rows, columns = (np.arange(extent) for extent in shapes[2][2:4])
    for i, j in np.ndindex(size, size):
        w = np.zeros(shapes[1], np.float32)
        w[0, 0, i, j] = np.inf
        kernel(x, w, out)
        row, column = rows + i - 1, columns + j - 2
        inside = ((row >= 0) & (row < 6))[:, None] & (column >= 0) & (column < width)
        found = out[0, 0, ..., 0]
        # The operator has no taps that are beside the image everywhere.
        other = np.isnan if inside.any() else np.isfinite
        assert np.isposinf(found[inside]).all() and other(found[~inside]).all()


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (pool(image(LANES, 30, 30), topi.nn.avg_pool2d, 20, 1), "no small window"),
        (
            te.create_prim_func([x := te.placeholder((1, 3, 8, 8)), topi.nn.max_pool2d(x, 2)]),
            "no axis of blocks",
        ),
    ],
    ids=["large window", "plain"],
)
def test_refusals(func: PrimFunc, reason: str) -> None:
    made = apply(func, NATIVE)
    assert isinstance(made, str) and reason in made
