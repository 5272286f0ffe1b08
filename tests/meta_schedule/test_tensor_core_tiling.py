"""Tiling for tensor cores: whole searches, their candidates simulated without races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import maximum
from tilewright.meta_schedule import TuneContext
from tilewright.meta_schedule.schedule_rule import (
    MultiLevelTilingTensorCore,
    NotApplicable,
    ReuseType,
    ScheduleRule,
)
from tilewright.meta_schedule.schedule_rule.multi_level_tiling_tensor_core import wmma_groups
from tilewright.meta_schedule.space_generator import PostOrderApply
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import gpu_pipeline

A100 = Target("nvidia/nvidia-a100")


def product(
    n: int,
    m: int,
    k: int,
    dtype: str = "float16",
    total: str = "float32",
    *,
    turned: bool = False,
    relu: bool = False,
) -> PrimFunc:
    a = te.placeholder((n, k), dtype, name="A")
    b = te.placeholder((m, k) if turned else (k, m), dtype, name="B")
    r = te.reduce_axis((0, k), "k")

    def term(i: Any, j: Any) -> Any:
        return a[i, r].astype(total) * (b[j, r] if turned else b[r, j]).astype(total)

    c = te.compute((n, m), lambda i, j: te.sum(term(i, j), axis=r), name="C")
    if not relu:
        return te.create_prim_func([a, b, c])
    zero = te.const(0, total)
    d = te.compute((n, m), lambda i, j: maximum(c[i, j], zero), name="D")
    return te.create_prim_func([a, b, d])


def candidates(func: PrimFunc, count: int = 1, **options: Any) -> tuple[TuneContext, list[Any]]:
    context = TuneContext(func, target=A100, search_strategy="replay-trace", **options)
    context.pre_tuning(max_trials=8, num_trials_per_iter=count)
    return context, context.generate_measure_candidates(count)


def agrees(func: PrimFunc, sch: Schedule) -> str:
    """Simulate the lowered kernels, compare with the unscheduled program; return their text."""
    rng = np.random.default_rng(0)
    buffers = [func.buffer_map[var] for var in func.params]
    given = []
    for buffer in buffers:
        shape = [int(extent.value) for extent in buffer.shape]
        values = rng.integers(-4, 5, shape) if "int" in buffer.dtype else rng.normal(size=shape)
        given.append(values.astype(buffer.dtype))
    found, expected = [x.copy() for x in given], [x.copy() for x in given]
    run(func, *expected)
    lowered = gpu_pipeline(A100)(sch.mod)
    run(lowered, *found, check_races=True)
    np.testing.assert_allclose(
        found[-1].astype("float32"), expected[-1].astype("float32"), rtol=2e-2, atol=2e-2
    )
    return lowered.script()


@pytest.mark.parametrize(
    ("dtype", "total", "turned", "relu"),
    [
        ("float16", "float32", False, False),
        ("float16", "float16", False, True),
        ("float16", "float32", True, True),
        ("int8", "int32", True, False),
    ],
)
def test_products_run_on_tensor_cores(dtype: str, total: str, turned: bool, relu: bool) -> None:
    func = product(32, 32, 32, dtype, total, turned=turned, relu=relu)
    context, found = candidates(func)
    assert context.search_strategy.fallback_share == 0.0
    text = agrees(func, found[0].sch)
    for operator in ("tvm_fill_fragment", "tvm_load_matrix_sync", "tvm_mma_sync"):
        assert operator in text
    assert "auto_tensorize" not in text


def test_extents_that_tiles_do_not_divide_are_padded() -> None:
    func = product(20, 24, 40)
    _, found = candidates(func)
    assert "tvm_mma_sync" in agrees(func, found[0].sch)


def test_tiles_are_fetched_ahead() -> None:
    func = product(32, 32, 64)
    rule = MultiLevelTilingTensorCore(wmma_groups()[:1], use_software_pipeline=True)
    generator = PostOrderApply(
        sch_rules=[rule], postprocs="cuda-tensorcore", mutator_probs="cuda-tensorcore"
    )
    _, found = candidates(func, space_generator=generator)
    assert "software_pipeline" in str(found[0].sch.trace)
    assert "tvm_mma_sync" in agrees(func, found[0].sch)


def test_warps_count_as_threads_and_fragments_as_registers() -> None:
    func = product(64, 64, 32)
    context, found = candidates(func, 3)
    for candidate in found:
        (bound,) = kernel_bounds(gpu_pipeline(A100)(candidate.sch.mod), A100)
        assert bound.threads % 32 == 0
        assert 0 < bound.registers <= 255
        # Rows are padded: what is left are copies whose threads write parts of several rows.
        assert bound.worst(shared=True) <= 4
        assert bound.flops >= 2 * 64 * 64 * 32
    (variant,) = context.search_strategy.variants
    rows = variant.draw(50, np.random.default_rng(0))
    assert variant.evaluate(rows).valid.mean() > 0.9


def test_other_products_are_left_to_other_rules() -> None:
    func = product(32, 32, 32, "float32")
    made = MultiLevelTilingTensorCore().apply(Schedule(func), Schedule(func).get_block("C"))
    assert isinstance(made, NotApplicable)
    assert "tensor cores" in made.reason
    _, found = candidates(func)
    assert "tvm_mma_sync" not in agrees(func, found[0].sch)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(TuneError, match="store is missing"):
        MultiLevelTilingTensorCore([dict.fromkeys(("init", "load_a", "load_b", "compute"), "x")])
    with pytest.raises(TuneError, match="warps"):
        MultiLevelTilingTensorCore(tile_binds=["blockIdx.x", "threadIdx.x"])
    with pytest.raises(TuneError, match="reuse_read"):
        MultiLevelTilingTensorCore(reuse_read=ReuseType("no"))


def test_defaults_follow_the_architecture() -> None:
    names = [rule.name for rule in ScheduleRule.create("cuda-tensorcore")]
    assert "multi-level-tiling-tensor-core" in names
    for target, expected in ((A100, True), (Target("cuda"), True), (Target("llvm"), False)):
        generator = PostOrderApply()
        generator.initialize(target)
        used = [rule.name for rule in generator.sch_rules]
        assert ("multi-level-tiling-tensor-core" in used) == expected
