"""Windows and axes that are taken apart: results against float64, and the form of the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.dlight.cpu import SlidingWindow, StridedAxes
from tilewright.ir import Call, FloorMod, IRModule, Mul, collect
from tilewright.scheduling import Contraction, contraction_of, divisors_of
from tilewright.scheduling.cpu import is_injective, leaf_blocks
from tilewright.target import Target
from tilewright.tir import Allocate, BufferStore, For, IfThenElse, PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

torch = pytest.importorskip("torch")
F = torch.nn.functional

TARGET = Target("native").with_options(num_cores=1)
WIDE = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=1")
NARROW = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=1")


def function(build: Callable[..., te.Tensor], *shapes: tuple[int, ...]) -> PrimFunc:
    tensors = [te.placeholder(shape, name=f"x{n}") for n, shape in enumerate(shapes)]
    return te.create_prim_func([*tensors, build(*tensors)])


def scheduled(func: PrimFunc, rule: Any, target: Target = TARGET) -> PrimFunc:
    made = rule.apply_to(Schedule(IRModule({"main": func})), target)
    assert isinstance(made, Schedule), made
    return made.mod["main"]  # type: ignore[no-any-return]


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def agree(func: PrimFunc, inputs: list[Any], expected: Any, target: Target = TARGET) -> None:
    out = np.full(expected.shape, 7.0, "float32")
    driver.compile(func, target)(*inputs, out)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5)


def relu6_bias(y: te.Tensor, b: te.Tensor) -> te.Tensor:
    added = te.compute(y.shape, lambda n, c, h, w: y[n, c, h, w] + b[c], name="bias")
    return te.compute(y.shape, lambda *i: te.minimum(te.maximum(added[i], 0.0), 6.0), name="relu6")


@pytest.mark.parametrize(
    ("channels", "height", "width", "kernel", "stride", "padding", "dilation"),
    [
        (3, 14, 14, 3, 1, 1, 1),
        (2, 7, 7, 3, 1, 1, 1),
        (2, 1, 3, 3, 1, 1, 1),
        (2, 13, 37, 3, 1, 1, 1),  # tiles that end beyond the image, both ways
        (3, 28, 33, 3, 2, 1, 1),
        (2, 17, 19, 5, 2, 2, 1),
        (2, 20, 18, 3, 1, 2, 2),
        (2, 16, 16, 2, 2, 0, 1),
        (2, 11, 40, 3, 3, 1, 1),
        (2, 9, 64, (1, 7), 1, (0, 3), 1),
        (2, 12, 12, 11, 1, 5, 1),
    ],
)
def test_depthwise_convolutions(
    channels: int, height: int, width: int, kernel: Any, stride: int, padding: Any, dilation: int
) -> None:
    sides = (kernel, kernel) if isinstance(kernel, int) else kernel
    x, w = arrays((2, channels, height, width), (channels, 1, *sides))
    func = function(
        lambda a, b: topi.nn.depthwise_conv2d(a, b, stride, padding, dilation), x.shape, w.shape
    )
    expected = F.conv2d(
        torch.from_numpy(x).double(), torch.from_numpy(w).double(),
        None, stride, padding, dilation, channels,
    ).numpy()  # fmt: skip
    agree(scheduled(func, SlidingWindow()), [x, w], expected)


def test_what_lies_beyond_the_edge_is_not_read() -> None:
    """Not even NaN from the neighbouring channel or row reaches a result."""
    x, w = arrays((1, 3, 6, 15), (3, 1, 3, 3))
    x[0, 1] = np.nan
    func = function(lambda a, b: topi.nn.depthwise_conv2d(a, b, 1, 1), x.shape, w.shape)
    out = np.zeros(x.shape, "float32")
    driver.compile(scheduled(func, SlidingWindow()), TARGET)(x, w, out)
    assert np.isnan(out[0, 1]).all()
    assert np.isfinite(out[0, [0, 2]]).all()


def test_an_epilogue_is_part_of_the_tile() -> None:
    x, w, b = arrays((1, 4, 10, 21), (4, 1, 3, 3), (4,))
    func = function(
        lambda a, k, c: relu6_bias(topi.nn.depthwise_conv2d(a, k, 1, 1), c),
        x.shape, w.shape, b.shape,
    )  # fmt: skip
    made = scheduled(func, SlidingWindow())
    expected = F.relu6(
        F.conv2d(*(torch.from_numpy(item).double() for item in (x, w, b)), 1, 1, 1, 4)
    )
    agree(made, [x, w, b], expected.numpy())
    lowered = driver.lower(scheduled(func, SlidingWindow(), WIDE), WIDE)["main"]
    kept = [item.buffer.scope for item in collect(lowered.body, Allocate)]
    assert kept == ["local"]  # neither the padded input nor the sums go through memory


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_pooling(kernel: int, stride: int, padding: int, ceil_mode: bool) -> None:
    (x,) = arrays((2, 3, 15, 22))
    x[0, 0, 3, 3], x[0, 1, 5, 5], x[1, 2] = np.nan, np.inf, -np.inf
    t = torch.from_numpy(x)
    largest = function(
        lambda a: topi.nn.max_pool2d(a, kernel, stride, padding, ceil_mode=ceil_mode), x.shape
    )
    out = F.max_pool2d(t, kernel, stride, padding, ceil_mode=ceil_mode).numpy()
    agree(scheduled(largest, SlidingWindow()), [x], out)
    mean = function(
        lambda a: topi.nn.avg_pool2d(a, kernel, stride, padding, 1, ceil_mode, True), x.shape
    )
    agree(
        scheduled(mean, SlidingWindow()), [x],
        F.avg_pool2d(t, kernel, stride, padding, ceil_mode, True).numpy(),
    )  # fmt: skip


def test_windows_over_one_and_three_axes() -> None:
    x, w = arrays((1, 4, 50), (4, 1, 9))
    func = function(lambda a, b: topi.nn.conv1d(a, b, 1, 4, 1, 4), x.shape, w.shape)
    agree(
        scheduled(func, SlidingWindow()), [x, w],
        F.conv1d(torch.from_numpy(x), torch.from_numpy(w), None, 1, 4, 1, 4).numpy(),
    )  # fmt: skip
    (x,) = arrays((1, 2, 5, 6, 19))
    func = function(lambda a: topi.nn.max_pool3d(a, 3, 2, 1), x.shape)
    agree(scheduled(func, SlidingWindow()), [x], F.max_pool3d(torch.from_numpy(x), 3, 2, 1).numpy())


def test_one_copy_of_the_window() -> None:
    """Edges and cut-off tiles share the code: no branch, and no second nest of loops."""
    func = function(lambda a, b: topi.nn.depthwise_conv2d(a, b, 1, 1), (1, 8, 29, 45), (8, 1, 3, 3))
    body = driver.lower(scheduled(func, SlidingWindow(), WIDE), WIDE)["main"].body
    loops = collect(body, For)
    assert len(loops) == 3
    tests = [item for item in collect(body, IfThenElse) if item.else_case is not None]
    assert not tests


def test_without_masks_padding_is_copied() -> None:
    """Where masked loads are no instructions, the padded input is made channel by channel."""
    func = function(lambda a, b: topi.nn.depthwise_conv2d(a, b, 1, 1), (1, 8, 9, 21), (8, 1, 3, 3))
    made = scheduled(func, SlidingWindow(), NARROW)
    kept = {item.buffer.name for item in collect(driver.lower(made, NARROW)["main"].body, Allocate)}
    assert "pad_temp" in kept
    x, w = arrays((1, 8, 9, 21), (8, 1, 3, 3))
    out = np.zeros(x.shape, "float32")
    run(made, x, w, out)
    expected = F.conv2d(torch.from_numpy(x), torch.from_numpy(w), None, 1, 1, 1, 8)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "filters", "groups", "size", "stride"),
    [(8, 8, 2, 14, 1), (8, 16, 4, 9, 2), (6, 4, 2, 7, 1), (64, 64, 2, 6, 1), (16, 8, 8, 5, 1)],
)
def test_grouped_convolutions(
    channels: int, filters: int, groups: int, size: int, stride: int
) -> None:
    x, w = arrays((1, channels, size, size), (filters, channels // groups, 3, 3))
    func = function(
        lambda a, b: topi.nn.conv2d(a, b, stride, 1, 1, groups=groups), x.shape, w.shape
    ).with_attr("layout_free_buffers", [1])
    expected = F.conv2d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), None, stride,
                        1, 1, groups).numpy()  # fmt: skip
    rule = StridedAxes() if filters > groups else SlidingWindow()
    agree(scheduled(func, rule), [x, w], expected)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "extra", "size", "filters"),
    [(4, 2, 1, 0, 7, 20), (3, 2, 1, 1, 6, 16), (2, 2, 0, 0, 5, 3), (5, 3, 1, 2, 4, 17),
     (1, 2, 0, 0, 4, 16), (3, 2, 0, 0, 1, 8)],
)  # fmt: skip
def test_transposed_convolutions(
    kernel: int, stride: int, padding: int, extra: int, size: int, filters: int
) -> None:
    x, w = arrays((1, 8, size, size), (8, filters, kernel, kernel))
    func = function(
        lambda a, b: topi.nn.conv2d_transpose(a, b, stride, padding, extra), x.shape, w.shape
    ).with_attr("layout_free_buffers", [1])
    made = scheduled(func, StridedAxes())
    expected = F.conv_transpose2d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), None,
                                  stride, padding, extra).numpy()  # fmt: skip
    agree(made, [x, w], expected)


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "extra", "size", "filters"),
    [(3, 2, 1, 0, (9, 12), 40), (4, 2, 1, 0, (5, 37), 64), (5, 3, 1, 1, (7, 8), 33)],
)
def test_rows_of_transposed_convolutions_are_written_whole(
    kernel: int, stride: int, padding: int, extra: int, size: tuple[int, int], filters: int,
    cores: int,
) -> None:  # fmt: skip
    """Places of all remainders are put together again before the tiles are written."""
    x, w = arrays((2, 16, *size), (16, filters, kernel, kernel))
    target = TARGET.with_options(num_cores=cores)
    func = function(
        lambda a, b: topi.nn.conv2d_transpose(a, b, stride, padding, extra), x.shape, w.shape
    ).with_attr("layout_free_buffers", [1])
    made = scheduled(func, StridedAxes(), target)
    assert made.buffers[-1] in {
        store.buffer for store in collect(made.body, BufferStore) if not _is_strided(store)
    }
    expected = F.conv_transpose2d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), None,
                                  stride, padding, extra).numpy()  # fmt: skip
    agree(made, [x, w], expected, target)


def _is_strided(store: BufferStore) -> bool:
    return any(collect(index, Mul) for index in store.indices)


def test_a_transposed_convolution_keeps_its_epilogue() -> None:
    x, w, b = arrays((1, 8, 5, 5), (8, 16, 4, 4), (16,))
    func = function(
        lambda a, k, c: relu6_bias(topi.nn.conv2d_transpose(a, k, 2, 1), c),
        x.shape, w.shape, b.shape,
    )  # fmt: skip
    expected = F.relu6(
        F.conv_transpose2d(*(torch.from_numpy(item).double() for item in (x, w, b)), 2, 1)
    )
    agree(scheduled(func, StridedAxes()), [x, w, b], expected.numpy())


def test_taps_that_are_missing_cost_no_arithmetic() -> None:
    """Of 3 taps at stride 2, odd places meet one: a test around the tile's step skips the other."""
    func = function(
        lambda a, b: topi.nn.conv2d_transpose(a, b, 2, 1), (1, 16, 6, 6), (16, 16, 3, 3)
    )
    body = driver.lower(scheduled(func, StridedAxes(), WIDE), WIDE)["main"].body
    tests = [item.condition for item in collect(body, IfThenElse)]
    assert any(collect(test, FloorMod) for test in tests)
    chosen = [item for item in collect(body, Call) if item.op.name == "if_then_else"]
    assert not [item for item in chosen if collect(item.args[0], FloorMod)]


def test_axes_that_one_operand_alone_uses_stay() -> None:
    """A matrix seen through a reshape is no reason to take its rows apart."""

    def build(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, 8), "k")
        return te.compute(
            (12, 16), lambda i, j: te.sum(a[i // 3, i % 3, k.var] * b[k.var, j], axis=k), name="C"
        )

    func = function(build, (4, 3, 8), (8, 16))
    sch = Schedule(IRModule({"main": func}))
    main = next(rv for rv in leaf_blocks(sch) if not is_injective(sch, rv))
    found = contraction_of(sch, main)
    assert isinstance(found, Contraction)
    assert divisors_of(found) == {}
    refused = StridedAxes().apply_to(sch, TARGET)
    assert isinstance(refused, dlight.NotApplicable)
    assert "no axis is used as quotient" in refused.reason


def test_an_epilogue_that_broadcasts_the_tile_is_not_written_out() -> None:
    # 128 x 8 vectors in a line take LLVM minutes.
    def build(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return topi.minimum(w, topi.nn.conv1d(x, w, 2, (1, 0), 1, groups=16))

    made = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=TARGET)(
        IRModule({"main": function(build, (1, 16, 4), (128, 1, 2))})
    )
    most, stack = 0, [(made["main"].body, 1)]
    while stack:
        item, copies = stack.pop()
        if isinstance(item, For) and item.kind == "unrolled":
            copies *= item.extent.value
        if isinstance(item, BufferStore):
            most = max(most, copies)
        stack += [(child, copies) for child in item.child_nodes()]
    assert 8 <= most <= 128
