"""Convolutions of small images: rows of pixels share a tile; channels lie close in copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import dlight, driver, te, topi
from tilewright.dlight.cpu import TiledReduction, rules
from tilewright.ir import IRModule, as_int, collect
from tilewright.target import Target
from tilewright.tir import Block, BufferLoad, PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE
from tilewright.tir.schedule import Schedule

torch = pytest.importorskip("torch")
F = torch.nn.functional

NATIVE = Target("native")


def convolution(
    x: tuple[int, ...], w: tuple[int, ...], stride: int, padding: int, *, residual: bool = False
) -> PrimFunc:
    a, b = te.placeholder(x, name="A"), te.placeholder(w, name="B")
    made = topi.nn.conv2d(a, b, stride, padding)
    inputs = [a, b]
    if residual:
        c = te.placeholder(made.shape, name="C")
        inputs.append(c)
        made = topi.nn.relu(topi.add(made, c))
    return te.create_prim_func([*inputs, made]).with_attr("layout_free_buffers", [1])


def scheduled(func: PrimFunc, cores: int = 1, target: Target = NATIVE) -> PrimFunc:
    made = TiledReduction().apply_to(
        Schedule(IRModule({"main": func})), target.with_options(num_cores=cores)
    )
    assert not isinstance(made, dlight.NotApplicable), made.reason
    return made.mod["main"]


def check(func: PrimFunc, stride: int, padding: int, cores: int, target: Target = NATIVE) -> None:
    rng = np.random.default_rng(0)
    arrays: list[Any] = [
        rng.standard_normal([as_int(e) for e in buffer.shape]).astype("float32")
        for buffer in func.buffers
    ]
    out = np.full(arrays.pop().shape, np.nan, "float32")
    x, w, *rest = (torch.from_numpy(array).double() for array in arrays)
    expected = F.conv2d(x, w, None, stride, padding)
    if rest:
        expected = F.relu(expected + rest[0])
    made = scheduled(func, cores, target)
    driver.compile(made, target.with_options(num_cores=cores))(*arrays, out)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cores", [1, 2, 3])
@few(
    ("size", "kernel", "stride", "padding", "filters", "batch"),
    [
        ((7, 7), 3, 1, 1, 64, 1),
        ((14, 14), 3, 2, 1, 48, 2),  # three whole tiles and half of one
        ((5, 4), 3, 1, 1, 33, 1),
        ((9, 3), 3, 1, 1, 32, 1),
        ((2, 6), 3, 1, 1, 32, 3),
        ((6, 1), (3, 1), 1, 0, 32, 1),
        ((1, 7), (1, 3), 1, 0, 32, 1),
    ],
    every=2,
)
def test_small_images(
    size: tuple[int, int], kernel: Any, stride: int, padding: int, filters: int, batch: int,
    cores: int,
) -> None:  # fmt: skip
    window = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    func = convolution((batch, 24, *size), (filters, 24, *window), stride, padding)
    check(func, stride, padding, cores)


@pytest.mark.parametrize("cores", [1, 2])
def test_an_epilogue_sees_rows_and_columns(cores: int) -> None:
    func = convolution((2, 32, 7, 7), (40, 32, 3, 3), 1, 1, residual=True)
    check(func, 1, 1, cores)


def test_tiles_are_of_whole_rows() -> None:
    """Of 49 pixels 14 share a tile: two rows."""
    made = scheduled(convolution((1, 64, 14, 14), (64, 64, 3, 3), 2, 1))
    sums = next(block for block in collect(made.body, Block) if block.name.endswith("_update"))
    (written,) = (region.buffer for region in sums.writes)
    assert [as_int(extent) for extent in written.shape] == [1, 49, 64]


def test_channels_lie_close_in_padded_copies() -> None:
    made = scheduled(convolution((1, 16, 20, 20), (64, 16, 3, 3), 1, 1))
    copied = {
        load.buffer.name: [as_int(extent) for extent in load.buffer.shape]
        for load in collect(made.body, BufferLoad)
    }
    assert copied["pad_temp"] == [1, 22, 16, 22]


def test_operands_of_the_caller_stay_as_they_are() -> None:
    func = convolution((1, 16, 20, 20), (64, 16, 1, 1), 2, 0)
    made = scheduled(func)
    assert [as_int(extent) for extent in made.buffers[0].shape] == [1, 16, 20, 20]
    check(func, 2, 0, 1)


def test_products_are_no_images() -> None:
    """Rows of one operand and columns of the other don't make one axis."""
    a, b = te.placeholder((3, 64, 32), name="A"), te.placeholder((3, 7, 32), name="B")
    made = scheduled(te.create_prim_func([a, b, topi.nn.batch_matmul(a, b)]))
    assert not any(
        [as_int(extent) for extent in load.buffer.shape] == [3, 64 * 7]
        for load in collect(made.body, BufferLoad)
    )


AVX2 = Target("llvm -mcpu=x86-64-v3")


def copies_pixels(func: PrimFunc, target: Target) -> bool:
    blocks = collect(scheduled(func, target=target).body, Block)
    return any(block.name.endswith("_reindex") for block in blocks)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("residual", [False, True])
@few(
    ("x", "filters", "stride"),
    [
        ((1, 64, 14, 14), 1024, 2),
        ((2, 40, 15, 13), 520, 2),
        ((1, 7, 28, 28), 513, 3),
        ((3, 33, 9, 10), 1040, 2),
    ],
    every=2,
)
def test_pixels_that_a_stride_leaves_out_are_not_copied(
    x: tuple[int, ...], filters: int, stride: int, residual: bool, cores: int
) -> None:
    func = convolution(x, (filters, x[1], 1, 1), stride, 0, residual=residual)
    assert copies_pixels(func, AVX2)
    check(func, stride, 0, cores, AVX2)


def test_small_images_whose_channels_lie_apart_are_copied_as_a_whole() -> None:
    func = convolution((2, 64, 7, 7), (80, 64, 1, 1), 1, 0, residual=True)
    for target in (AVX2, AVX2.with_options(num_cores=1)):
        assert copies_pixels(func, target)
        check(func, 1, 0, target.num_cores, AVX2)
    assert not copies_pixels(func, Target("llvm -mcpu=znver4 -num-cores=1"))


@pytest.mark.parametrize(
    ("w", "stride"),
    [((16, 32, 1, 1), 1), ((128, 32, 3, 3), 2), ((16, 32, 1, 1), 2)],
    ids=["all pixels", "windows", "few filters"],
)
def test_other_images_are_read_in_place(w: tuple[int, ...], stride: int) -> None:
    func = convolution((1, 32, 14, 14), w, stride, 0)
    assert not copies_pixels(func, AVX2)
    check(func, stride, 0, 1, AVX2)


def test_a_sum_that_reads_nothing() -> None:
    zeros = topi.full((5, 7, 8, 17), "int64", 3)
    func = te.create_prim_func([topi.sum(zeros, axis=1, keepdims=True)])
    mod = dlight.default_schedule(AVX2)(IRModule({"main": func}))
    found = np.zeros((5, 1, 8, 17), "int64")
    driver.compile(mod, AVX2)["main"](found)
    assert (found == 21).all()


def test_images_from_afar_of_which_pixels_are_skipped_are_copied_first() -> None:
    x, w = te.placeholder((1, 256, 56, 56), name="X"), te.placeholder((512, 256, 1, 1), name="W")
    func = te.create_prim_func([x, w, topi.nn.conv2d(x, w, strides=2)]).with_attr(LAYOUT_FREE, [1])
    for l2, copied in ((1 << 21, True), (1 << 24, False)):
        target = Target(f"llvm -mcpu=icelake-server -num-cores=1 -l1=49152 -l2={l2}")
        made = dlight.ApplyDefaultSchedule(*rules(), target=target)(IRModule({"main": func}))
        names = [block.name for block in collect(made["main"].body, Block)]
        assert any("reindex" in name for name in names) == copied, names
