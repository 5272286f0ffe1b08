"""Convolutions whose taps meet mostly padding: those are left out, tile by tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import dlight, driver, te, topi
from tilewright.dlight.cpu import TiledReduction
from tilewright.ir import IRModule, as_int, collect, is_const
from tilewright.target import Target
from tilewright.tir import Allocate, BlockRealize, IfThenElse, PrimFunc
from tilewright.tir.schedule import Schedule

torch = pytest.importorskip("torch")
F = torch.nn.functional

NATIVE = Target("native")
# Its tiles leave no tail in the cases that count conditions.
WIDE = Target("llvm -mcpu=skylake-avx512 -num-cores=1")


def convolution(
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    *,
    constant: bool = True,
    residual: bool = False,
) -> PrimFunc:
    a, b = te.placeholder(x, name="A"), te.placeholder(w, name="B")
    function = {3: topi.nn.conv1d, 4: topi.nn.conv2d, 5: topi.nn.conv3d}[len(x)]
    made = function(a, b, stride, padding, dilation)
    inputs = [a, b]
    if residual:
        c = te.placeholder(made.shape, name="C")
        inputs.append(c)
        made = topi.nn.relu(topi.add(made, c))
    func = te.create_prim_func([*inputs, made])
    return func.with_attr("layout_free_buffers", [1]) if constant else func


def scheduled(func: PrimFunc, cores: int, target: Target = NATIVE) -> PrimFunc:
    made = TiledReduction().apply_to(
        Schedule(IRModule({"main": func})), target.with_options(num_cores=cores)
    )
    assert not isinstance(made, dlight.NotApplicable), made.reason
    return made.mod["main"]


def guarded_blocks(func: PrimFunc) -> int:
    """How many blocks run under a condition."""
    return sum(not is_const(item.predicate, True) for item in collect(func, BlockRealize))


def check(func: PrimFunc, made: PrimFunc, cores: int, **options: int) -> None:
    rng = np.random.default_rng(0)
    arrays: list[Any] = [
        rng.standard_normal([as_int(e) for e in buffer.shape]).astype("float32")
        for buffer in func.buffers
    ]
    out = np.full(arrays.pop().shape, np.nan, "float32")
    x, w, *rest = (torch.from_numpy(array).double() for array in arrays)
    expected = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim](x, w, None, **options)
    if rest:
        expected = F.relu(expected + rest[0])
    driver.compile(made, NATIVE.with_options(num_cores=cores))(*arrays, out)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cores", [1, 2])
@few(
    ("x", "w", "stride", "padding", "dilation"),
    [
        ((1, 16, 14, 14), (32, 16, 3, 3), 1, 12, 12),
        ((2, 8, 14, 14), (40, 8, 3, 3), 1, 6, 6),
        ((1, 5, 17, 17), (33, 5, 3, 3), 1, 6, 6),  # no tile divides the rows
        ((1, 8, 33, 30), (16, 8, 3, 3), 1, 12, 12),
        ((1, 8, 20, 24), (32, 8, 5, 3), 2, 8, 5),
        ((1, 8, 12, 12), (32, 8, 2, 2), 1, 5, 9),  # more padding on one side is used
        ((1, 1, 14, 14), (32, 1, 3, 3), 1, 12, 12),  # nothing but taps
        ((1, 32, 60), (32, 32, 3), 1, 40, 40),
        ((1, 4, 6, 6, 12), (32, 4, 3, 3, 3), 1, 4, 4),
    ],
    every=3,
)
def test_distant_taps(
    x: tuple[int, ...], w: tuple[int, ...], stride: int, padding: int, dilation: int, cores: int
) -> None:
    func = convolution(x, w, stride, padding, dilation, residual=cores == 2)
    made = scheduled(func, cores)
    assert guarded_blocks(made) > 0
    check(func, made, cores, stride=stride, padding=padding, dilation=dilation)


def test_filters_of_the_call() -> None:
    func = convolution((1, 16, 28, 28), (48, 16, 3, 3), 1, 18, 18, constant=False)
    made = scheduled(func, 1)
    check(func, made, 1, stride=1, padding=18, dilation=18)


def test_conditions_stand_around_the_channels() -> None:
    """Lowered, a tap's test is evaluated once for a tile; where it fails nothing is left."""
    made = scheduled(convolution((1, 16, 14, 14), (32, 16, 3, 3), 1, 12, 12), 1, WIDE)
    lowered = driver.lower(IRModule({"main": made}), WIDE)["main"]
    branches = collect(lowered, IfThenElse)
    assert len(branches) == 2
    assert all(item.else_case is None for item in branches)


@pytest.mark.parametrize("size", [1, 2])
def test_transposed_on_the_smallest_images(size: int) -> None:
    """Each result meets one tap or a few: the others aren't multiplied with zeros."""
    a = te.placeholder((1, 20, size, size), name="A")
    b = te.placeholder((20, 48, 4, 4), name="B")
    func = te.create_prim_func([a, b, topi.nn.conv2d_transpose(a, b)])
    made = scheduled(func.with_attr("layout_free_buffers", [1]), 1)
    assert guarded_blocks(made) > 0
    x = np.random.default_rng(0).standard_normal((1, 20, size, size)).astype("float32")
    w = np.random.default_rng(1).standard_normal((20, 48, 4, 4)).astype("float32")
    expected = F.conv_transpose2d(torch.from_numpy(x), torch.from_numpy(w)).numpy()
    out = np.full(expected.shape, np.nan, "float32")
    driver.compile(made, NATIVE.with_options(num_cores=1))(x, w, out)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_rows_of_padding_that_nobody_reads_are_not_made() -> None:
    made = scheduled(convolution((1, 16, 14, 14), (32, 16, 3, 3), 1, 12, 12), 1, WIDE)
    lowered = driver.lower(IRModule({"main": made}), WIDE)["main"]
    sizes = [as_int(item.buffer.shape[0]) or 0 for item in collect(lowered, Allocate)]
    assert max(sizes) == 14 * 16 * 38


@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"])
def test_an_axis_of_which_only_padding_is_read(target: str) -> None:
    """Steps of 3 with a dilation of 2 pass by the only column of the image."""
    a = te.placeholder((2, 3, 1, 8, 1), name="A")
    b = te.placeholder((5, 3, 1, 3, 5), name="B")
    out = topi.nn.conv3d(a, b, (1, 2, 3), (1, 1, 7, 2, 2, 1), (2, 1, 2))
    func = te.create_prim_func([a, b, out])
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=Target(target))(
        IRModule({"main": func})
    )
    assert mod["main"].attrs["tir.is_scheduled"]
    x = np.ones((2, 3, 1, 8, 1), "float32")
    w = np.ones((5, 3, 1, 3, 5), "float32")
    made = np.full([as_int(extent) for extent in out.shape], np.nan, "float32")
    driver.compile(mod, Target("native"))(x, w, made)
    padded = F.pad(torch.from_numpy(x), (7, 1, 1, 2, 1, 2))
    expected = F.conv3d(padded, torch.from_numpy(w), None, (1, 2, 3), 0, (2, 1, 2))
    np.testing.assert_array_equal(made, expected.numpy())


def test_taps_close_together_are_not_tested() -> None:
    made = scheduled(convolution((1, 16, 56, 56), (32, 16, 3, 3), 1, 1), 1, WIDE)
    assert guarded_blocks(made) == 0


def test_symbolic_images_are_left_alone() -> None:
    n = te.var("n")
    a, b = te.placeholder((1, 8, n, 14), name="A"), te.placeholder((32, 8, 3, 3), name="B")
    func = te.create_prim_func([a, b, topi.nn.conv2d(a, b, 1, 12, 12)])
    made = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=NATIVE)(IRModule({"main": func}))
    x = np.random.default_rng(0).standard_normal((1, 8, 13, 14)).astype("float32")
    w = np.random.default_rng(1).standard_normal((32, 8, 3, 3)).astype("float32")
    out = np.full((1, 32, 13, 14), np.nan, "float32")
    driver.compile(made, NATIVE)["main"](x, w, out)
    expected = F.conv2d(torch.from_numpy(x), torch.from_numpy(w), None, 1, 12, 12).numpy()
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
