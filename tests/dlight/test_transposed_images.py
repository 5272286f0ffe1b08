"""Transposed convolutions whose panels are larger than the caches: remainders image by image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import driver, te, topi
from tilewright.dlight import NotApplicable
from tilewright.dlight.cpu import StridedAxes
from tilewright.ir import IRModule, as_int, collect
from tilewright.target import Target
from tilewright.tir import For, PrimFunc
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule

torch = pytest.importorskip("torch")
F = torch.nn.functional

_TOPI = {3: topi.nn.conv1d_transpose, 4: topi.nn.conv2d_transpose, 5: topi.nn.conv3d_transpose}
_TORCH = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}


def small_caches(cores: int) -> Target:
    return Target("native").with_options(num_cores=cores, l2=1 << 16)


def wide(l2: int) -> Target:
    return Target(f"llvm -mcpu=skylake-avx512 -num-cores=1 -l2={l2}")


def transposed(
    x: tuple[int, ...], w: tuple[int, ...], options: dict[str, int], epilogue: bool
) -> PrimFunc:
    a, b = te.placeholder(x, name="A"), te.placeholder(w, name="B")
    names = {"stride": "strides"}
    made = _TOPI[len(x)](a, b, **{names.get(key, key): value for key, value in options.items()})
    if epilogue:
        made = topi.nn.relu(made)
    return te.create_prim_func([a, b, made]).with_attr("layout_free_buffers", [1])


def scheduled(func: PrimFunc, target: Target) -> PrimFunc:
    made = StridedAxes().apply_to(Schedule(IRModule({"main": func})), target)
    assert not isinstance(made, NotApplicable), made.reason
    return made.mod["main"]


def check(made: PrimFunc, target: Target, options: dict[str, int], epilogue: bool) -> None:
    rng = np.random.default_rng(0)
    arrays: list[Any] = [
        rng.standard_normal([as_int(e) for e in buffer.shape]).astype("float32")
        for buffer in made.buffers
    ]
    out = np.full(arrays.pop().shape, np.nan, "float32")
    x, w = (torch.from_numpy(array).double() for array in arrays)
    expected = _TORCH[x.ndim](x, w, **options)
    expected = F.relu(expected) if epilogue else expected
    kernel, packers = split_layout_rewrite(made)
    for position, packer in packers.items():
        shape = [as_int(extent) for extent in packer.buffers[1].shape]
        packed = np.zeros(shape, "float32")  # what only fills up the last panel is zero
        driver.compile(packer, target)(arrays[position], packed)
        arrays[position] = packed
    driver.compile(kernel, target)(*arrays, out)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize("cores", [1, 2])
@few(
    ("x", "w", "options"),
    [
        ((1, 64, 4, 4), (64, 32, 4, 4), {"stride": 2, "padding": 1}),
        ((2, 40, 5, 3), (40, 72, 4, 4), {"stride": 2, "padding": 1}),
        ((1, 48, 4, 4), (48, 512, 2, 2), {"stride": 2}),
        ((1, 64, 3, 4), (64, 32, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
        ((1, 64, 4, 4), (64, 32, 3, 3), {"stride": 2, "padding": 1}),  # rows are cut off
        ((1, 32, 2, 3), (32, 16, 6, 6), {"stride": 3, "padding": 2}),
        ((1, 64, 9), (64, 48, 16), {"stride": 8, "padding": 4}),
        ((1, 16, 2, 2, 2), (16, 16, 4, 4, 4), {"stride": 2, "padding": 1}),
    ],
    every=3,
)
def test_results(
    x: tuple[int, ...], w: tuple[int, ...], options: dict[str, int], cores: int, epilogue: bool
) -> None:
    target = small_caches(cores)
    check(scheduled(transposed(x, w, options, epilogue), target), target, options, epilogue)


def around_the_sum(func: PrimFunc, channels: int) -> list[int | None]:
    """Extents of the loops around that over the channels, from outside."""
    (reduction,) = [loop for loop in collect(func, For) if as_int(loop.extent) == channels][-1:]
    around = [loop for loop in collect(func, For) if reduction in collect(loop, For)]
    return [as_int(loop.extent) for loop in around if loop is not reduction]


def test_a_remainder_stays_for_all_rows() -> None:
    """The loops over remainders are around those over the rows of the image, unless all fits."""
    func = transposed((1, 256, 5, 3), (256, 32, 4, 4), {"stride": 2, "padding": 1}, False)
    extents = around_the_sum(scheduled(func, wide(1 << 16)), 256)
    assert extents.index(2) < extents.index(5)
    extents = around_the_sum(scheduled(func, wide(1 << 24)), 256)
    assert extents.index(5) < extents.index(2)


def test_each_remainder_has_its_run_of_a_panel() -> None:
    func = transposed((1, 64, 4, 4), (64, 32, 4, 6), {"stride": 2, "padding": 1}, False)
    _, packers = split_layout_rewrite(scheduled(func, small_caches(1)))
    shape = [as_int(extent) for extent in packers[1].buffers[1].shape]
    assert shape[:6] == [32 // shape[-1], 2, 2, 64, 2, 3]
