"""Products whose blocks go through tiles in turn, and divide steps: right, and always the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_rules import compiled, kernels

from tests.everyday import few
from tilewright import te, topi
from tilewright.ir import IRModule
from tilewright.runtime.dlpack import numpy_dtype
from tilewright.scheduling import describe
from tilewright.scheduling.gpu import (
    Grid,
    SimtTile,
    Sizes,
    TensorCoreTile,
    WarpgroupTile,
    bring_into_form,
    limits_of,
    matrix_form_of,
    schedule_rest,
    schedule_tensor_core_tiles,
    schedule_tiles,
    schedule_warpgroup_tiles,
    simt_tiles,
    tensor_core_tiles,
    warpgroup_tiles,
)
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.transform import gpu_pipeline, launch_extents

A100, H200 = Target("nvidia/nvidia-a100"), Target("nvidia/nvidia-h200")
TILES: dict[str, tuple[Any, Any, Target]] = {
    "threads": (schedule_tiles, SimtTile(32, 32, 16, 2, 4), A100),
    "warps": (schedule_tensor_core_tiles, TensorCoreTile(16, 32, 32, (1, 2), 2), A100),
    "warpgroups": (schedule_warpgroup_tiles, WarpgroupTile(64, 64, 64, 1, 3), H200),
}


def product(
    m: Any, n: Any, k: Any, dtype: str = "float16", batch: int = 0, relu: bool = False
) -> PrimFunc:
    lead = (batch,) if batch else ()
    a = te.placeholder((*lead, m, k), dtype, "a")
    b = te.placeholder((*lead, n, k), dtype, "b")
    made = topi.matmul(a, b, False, True, "int32" if dtype == "int8" else "float32")
    return te.create_prim_func([a, b, topi.nn.relu(made) if relu else made])


def scheduled(func: PrimFunc, kind: str, grid: Grid) -> Schedule:
    """The product in tiles of a kind, in a grid."""
    schedule, tile, target = TILES[kind]
    sch = Schedule(IRModule({"main": func}))
    found = describe(sch)
    bring_into_form(sch, found.main, matrix_form_of(sch, found))
    schedule(sch, found.main, tile, limits_of(target))
    schedule_rest(sch, target)
    grid.apply(sch, tile)
    verify(sch.mod)
    return sch


def lowered(sch: Schedule, target: Target) -> IRModule:
    with target:
        return gpu_pipeline(target)(sch.mod)


def agrees(mod: IRModule, m: int, n: int, k: int, dtype: str, batch: int, relu: bool) -> None:
    """Simulate on small whole numbers; nothing is left of what was in the result."""
    rng = np.random.default_rng(0)
    lead = (batch,) if batch else ()
    a, b = (rng.integers(-3, 4, (*lead, size, k)).astype(numpy_dtype(dtype)) for size in (m, n))
    found = np.full((*lead, m, n), 7, "int32" if dtype == "int8" else "float32")
    run(mod, a, b, found, check_races=True)
    expected = a.astype("float64") @ np.swapaxes(b.astype("float64"), -1, -2)
    np.testing.assert_array_equal(found, np.maximum(expected, 0) if relu else expected)


CASES: dict[str, tuple[str, tuple[int, int, int], Grid, dict[str, Any]]] = {
    "threads, in turn": ("threads", (40, 40, 20), Grid(3), {"dtype": "float32"}),
    "threads, divided": ("threads", (40, 40, 36), Grid(3, 4), {"dtype": "float32", "relu": True}),
    "warps, in turn": ("warps", (20, 40, 64), Grid(3), {"relu": True}),
    "warps, divided": ("warps", (20, 40, 96), Grid(3, 4), {"relu": True}),
    "warps, the last ones divided": ("warps", (48, 40, 64), Grid(4, 2), {"dtype": "bfloat16"}),
    "bytes, of batches": ("warps", (16, 40, 64), Grid(3, 4), {"dtype": "int8", "batch": 2}),
    "parts of one tile": ("warps", (10, 30, 128), Grid(3, 1), {}),
    "a step for each block": ("warps", (10, 30, 96), Grid(3, 1), {}),
    "warpgroups, in turn": ("warpgroups", (70, 64, 128), Grid(1), {}),
    "warpgroups, divided": ("warpgroups", (70, 64, 192), Grid(3, 2), {"relu": True}),
}


@few("name", CASES, every=3)
def test_blocks_go_through_tiles(name: str) -> None:
    kind, (m, n, k), grid, options = CASES[name]
    target = TILES[kind][2]
    mod = lowered(scheduled(product(m, n, k, **options), kind, grid), target)
    assert len(kernels(mod)) == (2 if grid.streamed else 1)
    assert launch_extents(mod["main_kernel"])["blockIdx.x"].value == grid.blocks
    taken = compiled(mod, target).values()
    assert all(item.spill_bytes == item.stack_bytes == 0 for item in taken)
    full = {"dtype": "float16", "batch": 0, "relu": False, **options}
    agrees(mod, m, n, k, **full)


@pytest.mark.parametrize("kind", TILES)
def test_large_tiles_leave_registers(kind: str) -> None:
    tile = {
        "threads": SimtTile(128, 128, 8, 8, 8),
        "warps": TensorCoreTile(128, 128, 32, (2, 4), 4),
        "warpgroups": WarpgroupTile(128, 256, 64, 2, 4),
    }[kind]
    schedule, _, target = TILES[kind]
    func = product(1500, 1500, 4096, "float32" if kind == "threads" else "float16")
    sch = Schedule(IRModule({"main": func}))
    found = describe(sch)
    bring_into_form(sch, found.main, matrix_form_of(sch, found))
    schedule(sch, found.main, tile, limits_of(target))
    count = Sizes(1500, 1500, 1, 4096).tiles(tile)
    assert count is not None
    Grid(50, count % 50 + 50).apply(sch, tile)
    mod = lowered(sch, target)
    taken = compiled(mod, target).values()
    assert all(item.spill_bytes == item.stack_bytes == 0 for item in taken)
    assert all(bound.limiter for bound in kernel_bounds(mod, target))


def test_sizes_of_the_call_are_gone_through_in_turn() -> None:
    mod = lowered(scheduled(product(te.var("m"), 30, 32), "warps", Grid(2)), A100)
    for rows in (0, 40):
        agrees(mod, rows, 30, 32, "float16", 0, False)


@pytest.mark.parametrize(
    ("grid", "why"),
    [
        (Grid(3, 5), "5 of 4 tiles"),
        (Grid(3, 2), "no whole rounds of 3 blocks"),
        (Grid(9, 4), "more than the steps"),
        (Grid(0), "a number of blocks"),
    ],
)
def test_what_does_not_fit_is_refused(grid: Grid, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        scheduled(product(20, 40, 64), "warps", grid)


def test_steps_of_unknown_number_are_not_divided() -> None:
    with pytest.raises(ScheduleError, match="must be known"):
        scheduled(product(20, 40, te.var("k"), "float32"), "threads", Grid(3, 2))


def test_a_last_round_that_is_nearly_empty_is_divided() -> None:
    """133 to 160 tiles of 132 processors: two rounds, the second of which hardly anyone has."""
    best = warpgroup_tiles(Sizes(1536, 3328, 1, 16384), H200, 2)[0]
    assert best.grids[0].blocks == 132 and best.grids[0].streamed > 0
    best_of_a100 = tensor_core_tiles(Sizes(1280, 1408, 1, 16384), A100, 2)[0]
    assert best_of_a100.grids[0].streamed > 0


@pytest.mark.parametrize("sizes", [(4096, 4096, 1, 4096), (132 * 128, 256, 1, 8192)])
def test_others_are_not(sizes: tuple[int, int, int, int]) -> None:
    """Many rounds, and one that is full."""
    tiles = {
        (*item.tile.thread_shape, item.tile.columns): item
        for item in warpgroup_tiles(Sizes(*sizes), H200, 2)
    }
    assert tiles[2, 128, 256].grids[0] == Grid()


def test_products_of_unknown_sizes_have_a_block_for_each_tile() -> None:
    for rank in (warpgroup_tiles, tensor_core_tiles, simt_tiles):
        first = rank(Sizes(None, 512, 1, 512), H200, 2)[0]
        assert first.grids[0] == Grid() and first.grids[1].streamed == 0
