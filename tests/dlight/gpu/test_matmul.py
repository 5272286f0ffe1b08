"""Products and convolutions: tiles in shared memory and registers, simulated and compiled."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_rules import CUDA, agree, compiled, function, kernels, lowered, scheduled, tensor, widest

from tests.everyday import few
from tilewright import te, topi
from tilewright.dlight.gpu import Convolution, Matmul
from tilewright.scheduling import Choices, NotApplicable, first_schedule, start_schedule
from tilewright.scheduling.gpu import SimtTile, limits_of, rank_tiles, simt_tile
from tilewright.scheduling.gpu.simt_tile import TILES
from tilewright.target import Target
from tilewright.tir import PrimFunc

n, m, k = te.var("n"), te.var("m"), te.var("k")


def dense(rows: Any, columns: Any, depth: Any, dtype: str = "float32") -> PrimFunc:
    return function(
        lambda a, b: topi.nn.relu(topi.matmul(a, b)),
        tensor(rows, depth, dtype=dtype, name="A"),
        tensor(depth, columns, dtype=dtype, name="B"),
    )


def transposed(rows: Any, columns: Any, depth: Any) -> PrimFunc:
    a, b = tensor(rows, depth, name="A"), tensor(columns, depth, name="B")
    return function(topi.nn.dense, a, b)


def batched(batch: Any, rows: Any, columns: Any, depth: Any) -> PrimFunc:
    a, b = tensor(batch, rows, depth, name="A"), tensor(batch, columns, depth, name="B")
    return function(topi.nn.batch_matmul, a, b)


def conv(images: Any, c: int, f: int, size: int, stride: int = 1, pad: int = 1) -> PrimFunc:
    return function(
        lambda x, w: topi.nn.relu(topi.nn.conv2d(x, w, stride, pad)),
        tensor(images, c, size, size, name="X"),
        tensor(f, c, 3, 3, name="W"),
    )


def scaled_weights(rows: int, columns: int, depth: int) -> PrimFunc:
    """Weights of 8 bits with a scale for each column."""
    return function(
        lambda a, w, s: topi.matmul(a, topi.multiply(topi.cast(w, "float32"), s)),
        tensor(rows, depth, name="A"),
        tensor(depth, columns, dtype="int8", name="W"),
        tensor(columns, name="S"),
    )


PRODUCTS: dict[str, tuple[PrimFunc, dict[str, int]]] = {
    "whole tiles": (dense(32, 32, 32), {}),
    "odd": (dense(37, 35, 19), {}),
    "transposed": (transposed(20, 12, 24), {}),
    "batches": (batched(2, 9, 7, 20), {}),
    "symbolic rows": (dense(n, 36, 24), {"n": 9}),
    "all symbolic": (dense(n, m, k), {"n": 5, "m": 6, "k": 7}),
    "no rows": (dense(n, m, k), {"n": 0, "m": 6, "k": 7}),
    "nothing to sum": (dense(n, m, k), {"n": 5, "m": 6, "k": 0}),
    "symbolic batches": (batched(n, m, k, 8), {"n": 2, "m": 3, "k": 4}),
    "float16": (dense(16, 32, 16, "float16"), {}),
    "int8": (dense(16, 32, 16, "int32"), {}),
    "decoded weights": (scaled_weights(8, 32, 16), {}),
}


@few("name", PRODUCTS, "odd", "all symbolic", "nothing to sum", "float16", "decoded weights")
def test_products(name: str) -> None:
    func, sizes = PRODUCTS[name]
    mod = agree(func, Matmul(), **sizes)
    (text,) = kernels(mod).values()
    assert 'scope="shared"' in text


CONVOLUTIONS: dict[str, tuple[PrimFunc, dict[str, int]]] = {
    "padded": (conv(1, 3, 4, 6), {}),
    "stride 2": (conv(2, 3, 5, 7, 2, 0), {}),
    "symbolic images": (conv(n, 2, 3, 5), {"n": 2}),
}


@few("name", CONVOLUTIONS, "stride 2")
def test_convolutions_build_no_matrix(name: str) -> None:
    func, sizes = CONVOLUTIONS[name]
    mod = agree(func, Convolution(), **sizes)
    assert len(kernels(mod)) == 1
    assert "T.allocate" not in mod["main"].script()


def test_a_large_tile_is_all_in_registers() -> None:
    mod = lowered(scheduled(dense(4096, 4096, 4096), Matmul()))
    (resources,) = compiled(mod).values()
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert widest(mod) == 4
    (text,) = kernels(mod).values()
    # In each step: the other stage is read no more, and this one has come; once for the last one.
    assert text.count("storage_sync") == 2
    steps = text[text.index("for ") :]
    assert steps.count("shared_float32[") >= 4


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_other_architectures(arch: str) -> None:
    target = Target(f"cuda -arch={arch}")
    mod = lowered(scheduled(dense(n, 1024, 1024), Matmul(), target=target), target)
    (resources,) = compiled(mod, target).values()
    assert resources.spill_bytes == 0


def test_a_search_may_choose_another_tile() -> None:
    func, texts = dense(256, 256, 64), set()
    for wanted in (0, 3):
        made = first_schedule(func, (Matmul(),), CUDA, choices=Choices({"matmul.tile": wanted}))
        assert made is not None and made.choices.counts["matmul.tile"] > 3
        texts.add(made.mod.script())
    assert len(texts) == 2


@few("tile", TILES, *(tile for tile in TILES if tile.rows * tile.columns <= 1024), ids=str)
def test_every_tile_applies(tile: SimtTile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simt_tile, "TILES", (tile,))
    mod = agree(dense(17, 33, 21), Matmul())
    assert all(item.spill_bytes == 0 for item in compiled(mod).values())


def test_fewer_blocks_than_processors_take_smaller_tiles() -> None:
    limits = limits_of(CUDA)
    large, small = (rank_tiles(size, size, 1, limits, 4)[0] for size in (8192, 256))
    assert large == SimtTile(128, 128, 8, 8, 8)
    assert small.multiply_adds < large.multiply_adds
    assert large.loads_per_multiply_add() == 0.25 and large.flops_per_byte() == 32.0


def test_each_rule_refuses_what_is_the_others() -> None:
    for rule, func, reason in (
        (Matmul(), conv(1, 3, 4, 6), "convolution"),
        (Convolution(), dense(8, 8, 8), "windows"),
        (Matmul(), function(topi.sum, tensor(4, 5)), "two operands"),
        (Matmul(), function(topi.nn.relu, tensor(4, 5)), "0 reductions"),
    ):
        sch = start_schedule(func)
        assert sch is not None
        refused = rule.apply_to(sch, CUDA)
        assert isinstance(refused, NotApplicable) and reason in refused.reason
