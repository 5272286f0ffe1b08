"""The rule for Winograd convolutions: what it makes is right, fused and blocked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import driver, te, topi
from tilewright.dlight.cpu import Winograd
from tilewright.ir import IRModule, collect
from tilewright.scheduling import NotApplicable
from tilewright.target import Target
from tilewright.tir import PARALLEL, Block, For, PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED, LAYOUT_FREE, PREFETCH_NEXT
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule
from tilewright.topi.layout import layout_of

ONE = Target("native").with_options(num_cores=1)
TWO = Target("native").with_options(num_cores=2)


def conv(
    shape: tuple[int, ...], filters: int, tile: int, *, epilogue: bool = False, pad: Any = 1
) -> PrimFunc:
    size = tile + 2
    x = te.placeholder(shape, name="x")
    w = te.placeholder((size, size, shape[1], filters), name="w")
    out = topi.nn.conv2d_winograd_without_weight_transform(x, w, pad, tile)
    inputs = [x, w]
    if epilogue:
        bias, rest = (
            te.placeholder((1, filters, 1, 1), name="b"),
            te.placeholder(out.shape, name="r"),
        )
        out = topi.nn.relu(topi.add(topi.add(out, bias), rest))
        inputs += [bias, rest]
    return te.create_prim_func([*inputs, out]).with_attr(LAYOUT_FREE, [1])


def scheduled(func: PrimFunc, target: Target) -> PrimFunc:
    made = Winograd().apply_to(Schedule(IRModule({"main": func})), target)
    assert isinstance(made, Schedule), made
    return made.mod["main"].with_attr(IS_SCHEDULED, 1)


def reference(x: Any, w: Any) -> Any:
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64), optimize=True)


@pytest.mark.parametrize("target", [ONE, TWO], ids=["one", "two"])
@few(
    "shape, filters, tile",
    [
        ((1, 32, 8, 8), 32, 4),
        ((1, 16, 7, 7), 32, 2),
        ((2, 16, 13, 10), 48, 4),
        ((1, 16, 3, 90), 16, 4),
        ((1, 16, 1, 1), 16, 2),
    ],
    every=2,
)
def test_results(shape: tuple[int, ...], filters: int, tile: int, target: Target) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, dtype=np.float32)
    w = rng.standard_normal((filters, shape[1], 3, 3), dtype=np.float32)
    b = rng.standard_normal((1, filters, 1, 1), dtype=np.float32)
    r = rng.standard_normal((shape[0], filters, *shape[2:]), dtype=np.float32)
    func = scheduled(conv(shape, filters, tile, epilogue=True), target)
    found = np.empty_like(r)
    module = driver.compile(IRModule({"main": func}), target)
    module(x, topi.nn.winograd_weight(w, tile), b, r, found)
    sums = reference(x, w)
    expected = np.maximum(sums + b + r, 0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(sums).max())


@pytest.mark.parametrize("shape", [(1, 1, 32, 7, 7), (1, 32, 49), (7, 7, 32)])
def test_what_moves_the_result_to_another_shape_is_left_apart(shape: tuple[int, ...]) -> None:
    x = te.placeholder((1, 16, 7, 7), name="x")
    kernel = te.placeholder((6, 6, 16, 32), name="w")
    out = topi.nn.relu(topi.nn.conv2d_winograd_without_weight_transform(x, kernel, 1, 4))
    if shape[-1] == 32:
        out = topi.transpose(topi.reshape(out, (32, 7, 7)), (1, 2, 0))
    else:
        out = topi.reshape(out, shape)
    func = te.create_prim_func([x, kernel, out]).with_attr(LAYOUT_FREE, [1])
    rng = np.random.default_rng(0)
    given = rng.standard_normal((1, 16, 7, 7), dtype=np.float32)
    w = rng.standard_normal((32, 16, 3, 3), dtype=np.float32)
    found = np.empty(shape, np.float32)
    module = driver.compile(IRModule({"main": scheduled(func, ONE)}), ONE)
    module(given, topi.nn.winograd_weight(w, 4), found)
    sums = np.maximum(reference(given, w), 0)
    expected = sums[0].transpose(1, 2, 0) if shape[-1] == 32 else sums.reshape(shape)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * sums.max())


def test_filters_are_packed_apart() -> None:
    func = scheduled(conv((1, 32, 8, 8), 64, 4), ONE)
    main, packers = split_layout_rewrite(func)
    assert set(packers) == {1}
    assert main.buffers[1].ndim == 5


def test_stages_share_the_loops() -> None:
    func = scheduled(conv((1, 16, 28, 28), 32, 2, epilogue=True), TWO)
    parallel = [item for item in collect(func.body, For) if item.kind == PARALLEL]
    assert len(parallel) == 4  # zeros, channels last, filters, all the rest
    below = {block.name for block in collect(parallel[-1].body, Block)}
    assert {"input_transform", "products_update", "result_transform"} <= below


@pytest.mark.parametrize(("channels", "fetches"), [(16, False), (256, True)])
def test_filters_from_far_caches_are_fetched_ahead(channels: int, fetches: bool) -> None:
    target = Target("llvm -mcpu=znver4 -num-cores=1")
    func = scheduled(conv((1, channels, 14, 14), channels, 4), target)
    annotated = [item for item in collect(func.body, For) if PREFETCH_NEXT in item.annotations]
    assert len(annotated) == fetches


@pytest.mark.parametrize("channels, filters", [(10, 16), (16, 24)])
def test_channels_must_fill_vectors(channels: int, filters: int) -> None:
    target = Target("llvm -mcpu=znver4 -num-cores=1")
    sch = Schedule(IRModule({"main": conv((1, channels, 8, 8), filters, 2)}))
    made = Winograd().apply_to(sch, target)
    assert isinstance(made, NotApplicable) and "multiples of 16" in made.reason


def test_other_functions_are_left_alone() -> None:
    x, w = te.placeholder((1, 16, 8, 8), name="x"), te.placeholder((16, 16, 3, 3), name="w")
    func = te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, 1)])
    made = Winograd().apply_to(Schedule(IRModule({"main": func})), ONE)
    assert isinstance(made, NotApplicable)


def test_an_epilogue_of_another_layout_is_left_to_others() -> None:
    x, w = te.placeholder((1, 16, 8, 8), name="x"), te.placeholder((4, 4, 16, 16), name="w")
    made = topi.nn.conv2d_winograd_without_weight_transform(x, w, 1, 2)
    out = te.compute(made.shape, lambda n, f, h, w: made[n, f, h, 7 - w] * 2)
    done = Winograd().apply_to(Schedule(IRModule({"main": te.create_prim_func([x, w, out])})), ONE)
    assert isinstance(done, NotApplicable) and "layout" in done.reason


@pytest.mark.parametrize("cores", [1, 2])
@few("parts", [(1, 1), (2, 1), (0, 2), (1, 0)], every=2)
def test_channels_in_blocks(parts: tuple[int, int], cores: int) -> None:
    target = Target("native").with_options(num_cores=cores)
    # Blocks are vectors, or parts of vectors; without any, channels are plain.
    blocks = [target.vector_lanes() // part if part else 1 for part in parts]
    layouts = ["NCHW" if size == 1 else f"NCHW{size}c" for size in blocks]
    image, result = map(layout_of, layouts)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 32, 7, 10), dtype=np.float32)
    w = rng.standard_normal((64, 32, 3, 3), dtype=np.float32)
    data = layout_of("NCHW").transform(x, image)
    filters = topi.nn.winograd_weight(w, 4)
    operands = [te.placeholder(item.shape, name=n) for item, n in ((data, "x"), (filters, "w"))]
    out = topi.nn.conv2d_winograd_without_weight_transform(*operands, 1, 4, *layouts)
    func = scheduled(te.create_prim_func([*operands, topi.nn.relu(out)]), target)
    expected = layout_of("NCHW").transform(np.maximum(reference(x, w), 0), result)
    found = np.empty(expected.shape, np.float32)
    driver.compile(IRModule({"main": func}), target)(data, filters, found)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_values_of_the_epilogue_may_be_used_twice() -> None:
    x, w = te.placeholder((1, 32, 8, 8), name="x"), te.placeholder((6, 6, 32, 32), name="w")
    made = topi.nn.conv2d_winograd_without_weight_transform(x, w, 1, 4)
    made = topi.add(made, topi.multiply(made, topi.sigmoid(made)))
    func = te.create_prim_func([x, w, made])
    done = scheduled(func, ONE)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, dtype=np.float32) for s in ((1, 32, 8, 8), (6, 6, 32, 32))]
    expected, found = np.empty((2, 1, 32, 8, 8), np.float32)
    driver.compile(func.with_attr(IS_SCHEDULED, 1), ONE, name="f")["f"](*arrays, expected)
    driver.compile(IRModule({"main": done}), ONE)(*arrays, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "haswell", "znver4"])
@few("level_2", [256, 512, 1024, 2048], every=2)
def test_applies_whatever_the_cache_holds(cpu: str, level_2: int) -> None:
    # How many rows of tiles make a group depends on the cache, and what cuts them on the vectors.
    for shape, filters, tile in (((1, 64, 56, 56), 64, 4), ((1, 32, 28, 28), 32, 2)):
        for cores in (1, 4):
            target = Target(f"llvm -mcpu={cpu} -l2={level_2 << 10} -num-cores={cores}")
            scheduled(conv(shape, filters, tile), target)


NARROW = Target("llvm -mcpu=x86-64-v3 -num-cores=1")


@few(
    ("target", "channels", "tile", "blocked"),
    [(ONE, 32, 4, True), (TWO, 16, 2, True), (TWO, 160, 4, False), (NARROW, 16, 4, False)],
    every=2,
    ids=["one", "two", "filters in parallel", "narrow"],
)
def test_images_of_any_size(target: Target, channels: int, tile: int, blocked: bool) -> None:
    lanes, filters = target.vector_lanes(32), 2 * target.vector_lanes(32)
    layout = layout_of(f"NCHW{lanes}c" if blocked else "NCHW")
    extents = {"N": te.var("n"), "C": channels, "H": te.var("h"), "W": te.var("w")}
    x = te.placeholder(layout.shape(extents), name="x")
    w = te.placeholder((tile + 2, tile + 2, channels, filters), name="w")
    name = layout.name
    made = topi.nn.conv2d_winograd_without_weight_transform(x, w, 1, tile, name, name)
    rest = te.placeholder(made.shape, name="r")
    out = topi.nn.relu(topi.add(made, rest))
    func = scheduled(te.create_prim_func([x, w, rest, out]), target)
    module = driver.compile(IRModule({"main": func}), target)
    rng, plain = np.random.default_rng(0), layout_of("NCHW")
    weights = rng.standard_normal((filters, channels, 3, 3), dtype=np.float32)
    transformed = topi.nn.winograd_weight(weights, tile)
    # Less than a tile, a few, whole ones, more than a group of them; none.
    for batch, rows, columns in [
        (1, 1, 1),
        (2, 7, 5),
        (1, 8, 12),
        (3, 29, 30),
        (1, 0, 4),
        (1, 4, 0),
    ]:
        data = rng.standard_normal((batch, channels, rows, columns), dtype=np.float32)
        added = rng.standard_normal((batch, filters, rows, columns), dtype=np.float32)
        operands = [plain.transform(item, layout) for item in (data, added)]
        found = np.full_like(operands[1], np.nan)
        module(operands[0], transformed, operands[1], found)
        if not data.size:
            continue
        expected = np.maximum(reference(data, weights) + added, 0)
        found = layout.transform(found, plain)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * expected.max())


def test_a_single_image_of_any_size() -> None:
    func = conv((1, 32, te.var("h"), te.var("w")), 32, 4)
    assert IS_SCHEDULED in scheduled(func, ONE).attrs
