"""Transpositions beyond a (small) cache: blocks of tiles, fetched ahead, streamed."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, collect
from tilewright.target import Target
from tilewright.tir import Block, For
from tilewright.tir.attrs import PREFETCH_NEXT, STREAMING_STORES
from tilewright.tir.interpreter import run

SMALL_CACHE = "-l1=4096 -l2=8192 -l3=16384"


def aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Memory that whole vectors can be streamed to."""
    size = np.dtype(dtype).itemsize
    room = np.zeros(int(np.prod(shape)) + 64, dtype)
    start = -(room.ctypes.data // size) % (64 // size)
    return room[start : start + int(np.prod(shape))].reshape(shape)


def scheduled(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, cores: int
) -> tuple[IRModule, Target]:
    target = Target("native")
    target = Target(f"llvm -mcpu={target.mcpu} -num-cores={cores} {SMALL_CACHE}")
    x = te.placeholder(shape, dtype, "x")
    func = te.create_prim_func([x, topi.transpose(x, axes)])
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    return mod, target


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((128, 192), (1, 0)),
        ((100, 208), (1, 0)),
        ((131, 97), (1, 0)),
        ((3, 64, 12, 12), (0, 2, 3, 1)),
        ((3, 12, 12, 64), (0, 3, 1, 2)),
        ((2, 48, 5, 80), (0, 2, 1, 3)),
    ],
)
def test_results(shape: tuple[int, ...], axes: tuple[int, ...], cores: int) -> None:
    mod, target = scheduled(shape, axes, "float32", cores)
    x = aligned(shape, "float32")
    x[...] = np.random.default_rng(0).standard_normal(shape)
    expected = x.transpose(axes)
    out = aligned(expected.shape, "float32")
    driver.compile(mod, target)["main"](x, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8"])
def test_dtypes(dtype: str) -> None:
    mod, target = scheduled((256, 192), (1, 0), dtype, 1)
    x = aligned((256, 192), dtype)
    x[...] = np.random.default_rng(0).integers(-100, 100, x.shape)
    out = aligned((192, 256), dtype)
    driver.compile(mod, target)["main"](x, out)
    np.testing.assert_array_equal(out, x.T)


def test_only_whole_lines_go_past_the_caches() -> None:
    x = te.placeholder((256, 256), "float32", "x")
    func = te.create_prim_func([x, topi.transpose(x, (1, 0))])
    for cpu, past in (("znver4", True), ("x86-64-v3", False)):
        target = Target(f"llvm -mcpu={cpu} -num-cores=1 {SMALL_CACHE}")
        made = dlight.default_schedule(target)(IRModule({"main": func}))
        blocks = collect(made["main"].body, Block)
        assert any(STREAMING_STORES in block.annotations for block in blocks) == past


@pytest.mark.parametrize("cores", [1, 2])
def test_the_next_block_is_fetched(cores: int) -> None:
    for shape, axes in (((256, 256), (1, 0)), ((4, 32, 8, 16), (0, 2, 3, 1))):
        mod, target = scheduled(shape, axes, "float32", cores)
        loops = collect(mod["main"].body, For)
        assert sum(PREFETCH_NEXT in loop.annotations for loop in loops) == 1
        assert (cores == 2) == any(loop.kind == "parallel" for loop in loops)
        assert "prefetch" in driver.compile(mod, target).get_source("asm")


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 1), (2, 2)])
def test_what_is_padded_holds_less_than_a_tile(shape: tuple[int, ...]) -> None:
    rows, columns = shape
    x, scale = te.placeholder(shape, "float32", "x"), te.placeholder((15,), "float32", "scale")
    wide = topi.repeat(topi.nn.pad(x, (0, 4 - columns), (4 - rows, 1)), 3, 1)
    out = topi.multiply(topi.nn.pad(wide, (1, 0), (1, 0)), scale)
    target = Target("llvm -mcpu=sapphirerapids -num-cores=1")
    rules = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)
    mod = rules(IRModule({"main": te.create_prim_func([x, scale, out])}))
    given = np.arange(rows * columns, dtype="float32").reshape(shape) + 1
    factors = np.arange(15, dtype="float32")
    inner = np.pad(given, ((0, 4 - rows), (4 - columns, 1))).repeat(3, 1)
    found = np.ones((6, 15), "float32")
    run(mod["main"], given, factors, found)
    np.testing.assert_array_equal(found, np.pad(inner, ((1, 1), (0, 0))) * factors)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("shape", [(1, 32, 7, 16), (2, 20, 6, 10), (1, 17, 5, 9)])
def test_rows_of_an_image_that_are_joined_are_copied_by_tiles(
    shape: tuple[int, ...], cores: int
) -> None:
    n, c, h, w = shape
    target = Target("native").with_options(num_cores=cores)
    x = te.placeholder(shape, name="x")
    turned = topi.transpose(topi.reshape(x, (n, c, h * w)), (0, 2, 1))
    func = te.create_prim_func([x, topi.nn.relu(turned)])
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    written = [region.buffer for b in collect(mod["main"].body, Block) for region in b.writes]
    assert all(buffer.ndim <= 3 for buffer in written if buffer.scope == "local")
    given = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    out = np.empty((n, h * w, c), np.float32)
    driver.compile(mod, target)["main"](given, out)
    np.testing.assert_array_equal(out, np.maximum(given.reshape(n, c, h * w).swapaxes(1, 2), 0))


@pytest.mark.parametrize("cpu", ["znver4", "haswell", "nehalem"])
@pytest.mark.parametrize("cores", [1, 2])
def test_rows_of_an_image_of_any_size_are_joined(cpu: str, cores: int) -> None:
    target = Target(f"llvm -mcpu={cpu} -num-cores={cores}")
    h, w = te.var("h"), te.var("w")
    x = te.placeholder((2, 32, h, w), name="x")
    turned = topi.transpose(topi.reshape(x, (2, 32, h * w)), (0, 2, 1))
    func = te.create_prim_func([x, topi.nn.relu(turned)])
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    loops = collect(mod["main"].body, For)
    assert sum(loop.kind == "vectorized" for loop in loops) == 2
    lanes = f"<{target.vector_lanes(32)} x float>"
    assert lanes in driver.compile(mod, target).get_source()


def test_rows_of_an_image_of_any_size_end_where_the_image_does() -> None:
    target = Target("native").with_options(num_cores=1)
    h, w = te.var("h"), te.var("w")
    x = te.placeholder((2, 32, h, w), name="x")
    turned = topi.transpose(topi.reshape(x, (2, 32, h * w)), (0, 2, 1))
    func = te.create_prim_func([x, topi.nn.relu(turned)])
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    module = driver.compile(mod, target)
    for size in ((7, 9), (1, 1), (16, 20), (0, 4), (4, 0)):
        given = np.random.default_rng(0).standard_normal((2, 32, *size), dtype=np.float32)
        out = np.empty((2, size[0] * size[1], 32), np.float32)
        module["main"](given, out)
        turned = given.reshape(2, 32, size[0] * size[1]).swapaxes(1, 2)
        np.testing.assert_array_equal(out, np.maximum(turned, 0))


def test_what_is_transposed_may_be_used_twice() -> None:
    x = te.placeholder((24, 32), name="x")
    turned = topi.transpose(x)
    func = te.create_prim_func([x, topi.multiply(turned, topi.sigmoid(turned))])
    target = Target("llvm -mcpu=znver4 -num-cores=1")
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    written = [region.buffer for b in collect(mod["main"].body, Block) for region in b.writes]
    assert sum(buffer.scope == "local" for buffer in written) == 1
    given = np.random.default_rng(0).standard_normal((24, 32), dtype=np.float32)
    out = np.empty((32, 24), np.float32)
    run(mod["main"], given, out)
    np.testing.assert_allclose(out, given.T / (1 + np.exp(-given.T)), rtol=1e-5)


@pytest.mark.parametrize("mcpu", ["znver4", "haswell"])
def test_a_transposed_part_of_joined_rows_is_a_block_of_its_own(
    mcpu: str, caplog: pytest.LogCaptureFixture
) -> None:
    shapes = {"x": (1, 16, 8, 8), "y": (1, 8, 8, 24), "z": (1, 8, 8, 40)}
    x, y, z = (te.placeholder(shape, name=name) for name, shape in shapes.items())
    rows = topi.concatenate([y, topi.transpose(x, (0, 2, 3, 1))], 3)
    func = te.create_prim_func([x, y, z, topi.reshape(topi.multiply(rows, z), (64, 40))])
    target = Target(f"llvm -mcpu={mcpu} -num-cores=1")
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    assert not caplog.records  # no warning of a block that stays unscheduled
    assert {"transpose", "x_local"} <= {block.name for block in collect(mod["main"].body, Block)}
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes.values()]
    out = np.empty((64, 40), np.float32)
    run(mod["main"], *given, out)
    expected = np.concatenate([given[1], given[0].transpose(0, 2, 3, 1)], 3) * given[2]
    np.testing.assert_array_equal(out, expected.reshape(64, 40))


@pytest.mark.parametrize("shape", [(50, 152), (50, 150), (50, 31)])
def test_what_is_transposed_may_have_other_readers(
    shape: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Their elements aren't in the tile that is copied: they read the operand itself."""
    a = te.placeholder(shape, "float32", "A")
    images = te.compute((shape[1], 7, 7), lambda c, h, w: a[h * 7 + w + 1, c], name="images")
    others = te.compute(shape, lambda i, c: a[i, c] + 1.0, name="others")
    target = Target("native").with_options(num_cores=2)
    func = te.create_prim_func([a, images, others])
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    assert "no rule schedules" not in caplog.text
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    made = [np.zeros((shape[1], 7, 7), "float32"), np.zeros(shape, "float32")]
    driver.compile(mod, target)["main"](x, *made)
    np.testing.assert_array_equal(made[0], x[1:].T.reshape(shape[1], 7, 7))
    np.testing.assert_array_equal(made[1], x + np.float32(1))
