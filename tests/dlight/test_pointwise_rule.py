"""The rule for pointwise convolutions: full vectors across rows of the image, fused epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import driver, te, topi
from tilewright.dlight.cpu import PointwiseConvolution
from tilewright.ir import IRModule, collect
from tilewright.scheduling import NotApplicable
from tilewright.target import Target
from tilewright.tir import VECTORIZED, Block, For, PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED, LAYOUT_FREE, PREFETCH_NEXT
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule

WIDE = Target("llvm -mcpu=znver4 -num-cores=1")


def conv(
    shape: tuple[int, ...], filters: int, *, epilogue: bool = True, **options: Any
) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    size = options.pop("size", 1)
    w = te.placeholder((filters, shape[1] // options.get("groups", 1), size, size), name="w")
    out, inputs = topi.nn.conv2d(x, w, **options), [x, w]
    if epilogue:
        bias, rest = te.placeholder((filters, 1, 1), name="b"), te.placeholder(out.shape, name="r")
        out, inputs = topi.nn.relu(topi.add(topi.add(out, bias), rest)), [x, w, bias, rest]
    return te.create_prim_func([*inputs, out]).with_attr(LAYOUT_FREE, [1])


def apply(func: PrimFunc, target: Target) -> PrimFunc | str:
    made = PointwiseConvolution().apply_to(Schedule(IRModule({"main": func})), target)
    if isinstance(made, NotApplicable):
        return made.reason
    return made.mod["main"].with_attr(IS_SCHEDULED, 1)


def agree(func: PrimFunc, shape: tuple[int, ...], filters: int, target: Target) -> None:
    """Run a scheduled convolution, with its epilogue if it has one, next to NumPy in float64."""
    epilogue = len(func.params) == 5
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, dtype=np.float32)
    w = rng.standard_normal((filters, shape[1], 1, 1), dtype=np.float32)
    b = rng.standard_normal((filters, 1, 1), dtype=np.float32)
    r = rng.standard_normal((shape[0], filters, *shape[2:]), dtype=np.float32)
    found = np.empty_like(r)
    inputs = (x, w, b, r) if epilogue else (x, w)
    driver.compile(IRModule({"main": func}), target)(*inputs, found)
    expected = np.einsum("nchw,fc->nfhw", x.astype("float64"), w[:, :, 0, 0].astype("float64"))
    if epilogue:
        expected = np.maximum(expected + b + r, 0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * shape[1] + 1e-5)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("epilogue", [True, False])
@pytest.mark.parametrize(
    "shape, filters", [((1, 5, 28, 28), 16), ((2, 3, 23, 25), 12), ((3, 2, 1, 600), 8)]
)
def test_results(shape: tuple[int, ...], filters: int, epilogue: bool, cores: int) -> None:
    target = Target("native").with_options(num_cores=cores)
    func = apply(conv(shape, filters, epilogue=epilogue), target)
    assert isinstance(func, PrimFunc), func
    agree(func, shape, filters, target)


NARROW = Target("llvm -mcpu=x86-64-v3 -num-cores=1")


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("epilogue", [True, False])
@pytest.mark.parametrize("shape, filters", [((1, 96, 56, 56), 8), ((2, 70, 53, 55), 6)])
def test_tiles_of_images_from_afar_are_copied_where_they_are_one_line(
    shape: tuple[int, ...], filters: int, epilogue: bool, cores: int
) -> None:
    target = NARROW.with_options(num_cores=cores)
    func = apply(conv(shape, filters, epilogue=epilogue), target)
    assert isinstance(func, PrimFunc), func
    copies = [b for b in collect(func.body, Block) if b.name == "x_global"]
    assert [b.writes[0].buffer.shape[1].value for b in copies] == [shape[1]]
    agree(func, shape, filters, target)


def test_images_that_stay_in_the_cache_are_read_as_they_lie() -> None:
    for target, shape in ((NARROW, (1, 16, 56, 56)), (WIDE, (1, 96, 56, 56))):
        func = apply(conv(shape, 8, epilogue=False), target)
        assert isinstance(func, PrimFunc), func
        assert not [b for b in collect(func.body, Block) if b.name == "x_global"]


def test_pixels_from_afar_are_fetched_ahead_and_used_for_more_filters_at_a_time() -> None:
    target = Target("llvm -mcpu=icelake-server -num-cores=1 -l1=49152 -l2=2097152")
    for channels, fetched in ((256, True), (96, False)):
        func = apply(conv((1, channels, 56 if fetched else 28, 56), 64, epilogue=False), target)
        assert isinstance(func, PrimFunc), func
        main, _ = split_layout_rewrite(func)
        assert (main.buffers[1].shape[-1].value > 8) == fetched
        loops = [loop for loop in collect(main.body, For) if PREFETCH_NEXT in loop.annotations]
        assert bool(loops) == fetched


def test_pixels_of_many_channels_a_power_of_two_apart_are_copied() -> None:
    """Lines of a page's distance share a set of the cache: others take their places."""
    for shape, copied in (((1, 32, 32, 32), True), ((1, 32, 31, 33), False)):
        func = apply(conv(shape, 64, epilogue=False), WIDE)
        assert isinstance(func, PrimFunc), func
        assert any(b.name == "x_global" for b in collect(func.body, Block)) == copied
    func = apply(conv((1, 33, 16, 32), 13), Target("native"))
    assert isinstance(func, PrimFunc), func
    agree(func, (1, 33, 16, 32), 13, Target("native"))


@pytest.mark.parametrize("shape, filters", [((1, 20, 14, 14), 64), ((2, 9, 7, 7), 46)])
def test_the_last_filters_and_pixels_are_cut_off(shape: tuple[int, ...], filters: int) -> None:
    func = apply(conv(shape, filters), NARROW)
    assert isinstance(func, PrimFunc), func
    main, _ = split_layout_rewrite(func)
    packed = [extent.value for extent in main.buffers[1].shape]
    assert packed == [-(-filters // 6), shape[1], 1, 1, 6]
    assert [b for b in collect(func.body, Block) if b.name == "x_global"]
    agree(func, shape, filters, NARROW)


def test_tiles_are_wider_where_fewer_filters_are_left_over() -> None:
    widths = {}
    for filters in (24, 32):
        func = apply(conv((1, 20, 28, 28), filters), NARROW)
        assert isinstance(func, PrimFunc), func
        loops = [loop for loop in collect(func.body, For) if loop.kind == VECTORIZED]
        widths[filters] = max(loop.extent.value for loop in loops[-2:])
        agree(func, (1, 20, 28, 28), filters, NARROW)
    assert widths == {24: 16, 32: 24}


def test_small_images_with_a_nearly_empty_tile_are_left_to_filters_as_lanes() -> None:
    made = apply(conv((1, 20, 7, 7), 64), NARROW)
    assert isinstance(made, str) and "last pixels" in made
    assert isinstance(apply(conv((1, 20, 8, 8), 64), NARROW), PrimFunc)


def test_pixels_are_fetched_before_they_are_copied_if_the_cache_holds_them_too() -> None:
    for channels, fetched in ((64, True), (512, False)):
        func = apply(conv((1, channels, 28, 28), 48), NARROW)
        assert isinstance(func, PrimFunc), func
        assert any(PREFETCH_NEXT in loop.annotations for loop in collect(func.body, For)) == fetched


def test_few_pixels_are_left_to_rules_that_share_filters_among_threads() -> None:
    assert (
        apply(conv((1, 20, 14, 14), 64), NARROW.with_options(num_cores=2))
        == "too few filters or pixels"
    )


def test_lanes_go_across_rows_and_filters_are_packed() -> None:
    func = apply(conv((1, 64, 28, 28), 64), WIDE)
    assert isinstance(func, PrimFunc)
    main, packers = split_layout_rewrite(func)
    assert set(packers) == {1} and main.buffers[1].shape[-1].value == 8
    loops = [loop for loop in collect(main.body, For) if loop.kind == VECTORIZED]
    assert {loop.extent.value for loop in loops} == {32}
    assert any(block.name == "relu" for block in collect(main.body, Block))


@pytest.mark.parametrize(
    "func, reason",
    [
        (conv((1, 8, 32, 32), 16, strides=2), "no 1 x 1"),
        (conv((1, 8, 32, 32), 16, size=3, padding=1), "no 1 x 1"),
        (conv((1, 8, 32, 32), 16, groups=2), "no 1 x 1"),
        (conv((1, 8, 32, 32), 3), "too few"),
        (conv((1, 8, 14, 14), 16), "too few"),
        (conv((1, 512, 56, 56), 16), "too large"),
    ],
)
def test_others_are_left_alone(func: PrimFunc, reason: str) -> None:
    found = apply(func, WIDE)
    assert isinstance(found, str) and reason in found
