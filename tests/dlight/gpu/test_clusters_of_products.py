"""Products whose blocks form clusters: right, without races, and broken ones reported."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_rules import compiled, function, tensor
from test_tensor_map_products import _lines_joined, epilogue
from test_warpgroups import HOPPER, agrees, product

from tests.everyday import few
from tilewright import te, topi
from tilewright.dlight import Choices, first_schedule, gpu
from tilewright.ir import IRModule, PassContext
from tilewright.scheduling.gpu import ALONE, CLUSTERS, Grid, WarpgroupTile, rank_clusters
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.script import parse
from tilewright.support.errors import RunError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.transform import gpu_pipeline


def in_clusters(func: PrimFunc, cluster: tuple[int, int]) -> IRModule:
    """Lower a product by rule, in clusters that a search asks for, with a block for each tile."""
    with PassContext(config={"dlight.tensor_maps": True}), HOPPER:
        first = Choices({})
        assert first_schedule(func, (gpu.Matmul(),), HOPPER, choices=first) is not None
        ((key, options),) = [item for item in first.offered.items() if ".cluster" in item[0]]
        turns = {
            key: grids.index(Grid()) for key, grids in first.offered.items() if ".turns" in key
        }
        choices = Choices({key: options.index(cluster), **turns})
        made = first_schedule(func, (gpu.Matmul(),), HOPPER, choices=choices)
        assert made is not None
        module: IRModule = gpu_pipeline(HOPPER)(made.mod)
    assert ("clusterCtaIdx" in module.script()) == (cluster != ALONE)
    return module


CASES: dict[str, tuple[tuple[int, int], int, int, int, tuple[bool, bool], str]] = {
    "rows": ((2, 1), 128, 64, 128, (False, True), "float16"),
    "columns": ((1, 2), 64, 128, 128, (False, True), "bfloat16"),
    "both": ((2, 2), 128, 128, 128, (False, True), "float16"),
    "turned": ((2, 1), 128, 64, 128, (True, False), "float16"),
    "turned, columns": ((1, 2), 64, 128, 128, (True, False), "float16"),
    "bytes": ((2, 1), 128, 64, 256, (False, True), "int8"),
    "stages in turn": ((2, 1), 128, 64, 448, (False, True), "float16"),
    "odd": ((2, 1), 72, 40, 136, (False, True), "float16"),
    "a block has nothing to do": ((2, 1), 40, 72, 136, (False, True), "float16"),
    "three tiles": ((1, 2), 64, 136, 128, (False, True), "float16"),
}


@few("name", CASES, "turned")
def test_products(name: str) -> None:
    cluster, m, n, k, turned, dtype = CASES[name]
    total = "int32" if dtype == "int8" else "float32"
    module = in_clusters(product(m, n, k, dtype, total, turned), cluster)
    assert agrees(module, m, n, k, turned, dtype).bank_conflicts == 0
    assert all(item.spill_bytes == 0 for item in compiled(module, HOPPER).values())


@pytest.mark.slow
def test_batches_with_an_epilogue() -> None:
    shapes = (2, 128, 128), (2, 64, 128), (64,), (2, 128, 64)
    kinds = "float16", "float16", "float32", "float32"
    tensors = [tensor(*shape, dtype=kind, name=x) for shape, kind, x in zip(shapes, kinds, "abcd")]
    module = in_clusters(function(epilogue, *tensors), (2, 1))
    rng = np.random.default_rng(0)
    a, b, bias, residual = (
        rng.integers(-4, 5, shape).astype(kind) for shape, kind in zip(shapes, kinds)
    )
    found = np.zeros((2, 128, 64), "float32")
    run(module, a, b, bias, residual, found, check_races=True)
    product = a.astype("float32") @ b.astype("float32").transpose(0, 2, 1)
    np.testing.assert_array_equal(found, np.maximum(product + bias, 0) + residual)


def test_rows_may_come_with_the_call() -> None:
    n = te.var("n")
    func = function(
        lambda a, b: topi.nn.relu(topi.nn.dense(a, b)),
        tensor(n, 128, dtype="float16", name="a"),
        tensor(64, 128, dtype="float16", name="b"),
    )
    module = in_clusters(func, (2, 1))
    compiled(module, HOPPER)
    rng = np.random.default_rng(0)
    for rows in (0, 1, 65):
        a, b = (rng.integers(-4, 5, (size, 128)).astype("float16") for size in (rows, 64))
        found = np.zeros((rows, 64), "float16")
        run(module, a, b, found, check_races=True)
        np.testing.assert_array_equal(found, np.maximum(a @ b.T, 0))


def test_text_and_bounds() -> None:
    """What is in common is fetched once; large tiles spill nothing."""
    func = product(4096, 4096, 4096)
    traffic = {}
    for cluster in ((1, 1), (2, 1), (2, 2)):
        module = in_clusters(func, cluster)
        (bound,) = kernel_bounds(module, HOPPER)
        traffic[cluster] = bound.l2
        assert bound.blocks == 512
        (resources,) = compiled(module, HOPPER).values()
        assert resources.spill_bytes == 0 and resources.registers == 168
    # Of a tile of 128 x 256 each block fetches its rows and half of the columns' operand; results
    # are written as before.
    assert traffic[2, 1] / traffic[1, 1] == pytest.approx(2 / 3, rel=0.03)
    assert traffic[2, 2] / traffic[1, 1] == pytest.approx(1 / 2, rel=0.05)


def test_the_fastest_cluster_is_first_that_has_work_for_all() -> None:
    tile = WarpgroupTile(128, 256, 64, 2, 4)
    # The operand of the columns is the larger one, which blocks along rows share.
    assert rank_clusters(tile, (4096, 4096, 1), HOPPER, 2)[0] == (2, 1)
    # One row of tiles: only columns are neighbours.
    assert rank_clusters(tile, (128, 4096, 1), HOPPER, 2)[0] == (1, 2)
    assert rank_clusters(tile, (128, 256, 1), HOPPER, 2)[0] == ALONE
    # A third row of tiles would have a block for company that has nothing to do.
    assert rank_clusters(tile, (3 * 128, 256, 1), HOPPER, 2)[0] == ALONE
    assert set(rank_clusters(tile, (None, 256, 1), HOPPER, 2)) == set(CLUSTERS)
    older = Target("nvidia/nvidia-a100")
    assert rank_clusters(tile, (4096, 4096, 1), older, 2) == [ALONE]


WAIT, BOTH = "T.evaluate(T.ptx_barrier_cluster_wait())", "T.evaluate(T.ptx_barrier_cluster_"
BROKEN = {
    "no barrier of the cluster at the end": (
        BOTH, (2, 3), "pass  # ", "may have ended by then|is no barrier",
    ),
    "no barrier of the cluster at the beginning": (
        BOTH, (0, 1), "pass  # ", "no barrier of the cluster between|is no barrier",
    ),
    "nobody waits at the beginning": (
        BOTH, (1,), "pass  # ", "race on element 8200 .* no barrier of the cluster between",
    ),
    "a mask without the other block": (
        ", 128, 3, ", (0,), ", 128, 1, ", "lacks 0 of 1 arrivals and 8192 bytes",
    ),
    "a mask with a block that isn't there": (
        ", 128, 3, ", (0,), ", 128, 7, ", "the cluster has 2 blocks, none has number 2",
    ),
    "the wrong block": (", 128, 3, ", (0,), ", 128, 2, ", "lacks|race"),
    "nobody tells the other block that a stage is empty": (
        "T.evaluate(T.ptx_arrive_barrier(", (1,), "pass  # ", "lacks 4 of 8 arrivals",
    ),
    "arrivals of the own block alone are waited for": (
        "]), 8))", (0,), "]), 4))", "arrivals of the phase are there already|race",
    ),
    "both send the same half": (
        "ax1_0_1 * 2048", (0, 1), "0", "race|nothing has written",
    ),
}  # fmt: skip


@few("name", BROKEN, "a mask without the other block")
def test_broken_pipelines_are_reported(name: str) -> None:
    m, n, k, turned, dtype = 128, 64, 512, (False, True), "float16"
    text = _lines_joined(in_clusters(product(m, n, k), (2, 1)).script())
    old, numbers, new, message = BROKEN[name]
    parts = text.split(old)
    assert len(parts) > max(numbers) + 1
    broken = parts[0]
    for number, part in enumerate(parts[1:]):
        broken += (new if number in numbers else old) + part
    with pytest.raises(RunError, match=message):
        agrees(parse(broken), m, n, k, turned, dtype)
