"""Tiling around tensor intrinsics, limits of memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.meta_schedule.conftest import matmul
from tilewright import te
from tilewright.ir import as_int, maximum
from tilewright.meta_schedule import (
    EvaluatorConfig,
    LocalBuilder,
    LocalRunner,
    ReuseType,
    TaskScheduler,
    TuneContext,
    tune_tir,
)
from tilewright.meta_schedule.postproc import RewriteTensorize, VerifyMemoryLimits
from tilewright.meta_schedule.schedule_rule import (
    MultiLevelTilingWideVector,
    MultiLevelTilingWithIntrin,
    NotApplicable,
)
from tilewright.meta_schedule.space_generator import PostOrderApply
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule
from tilewright.tir.tensor_intrin import TensorIntrin


def dense(n: int, m: int, k: int, *, relu: bool = False) -> PrimFunc:
    a = te.placeholder((n, k), "uint8", name="A")
    b = te.placeholder((m, k), "int8", name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(a[i, r].astype("int32") * b[j, r].astype("int32"), axis=r),
        name="C",
    )
    if not relu:
        return te.create_prim_func([a, b, c])
    d = te.compute((n, m), lambda i, j: maximum(c[i, j], te.const(0, "int32")), name="D")
    return te.create_prim_func([a, b, d])


def context_of(func: PrimFunc, target: Target, *rules: Any, **options: Any) -> TuneContext:
    made = TuneContext(
        func,
        target=target,
        space_generator=PostOrderApply(sch_rules=rules, **options),
        search_strategy="replay-trace",
        start_from_rules=False,
    )
    made.pre_tuning(max_trials=8, num_trials_per_iter=2)
    return made


@pytest.mark.parametrize(
    ("sizes", "relu", "intrin"),
    [
        ((8, 16, 16), False, "dot_u8s8s32"),
        ((4, 16, 18), False, "dot_u8s8s32"),
        ((4, 16, 8), True, "dot_u8s8s32"),
        ((8, 16, 16), False, "dot_u8s8s32_global"),
        ((8, 16, 8), False, None),
    ],
)
def test_intrinsics_are_put_into_tiles(
    sizes: tuple[int, int, int], relu: bool, intrin: str | None, target: Target, same_result: Any
) -> None:
    func = dense(*sizes, relu=relu)
    rule = MultiLevelTilingWithIntrin(intrin)
    context = context_of(func, target, rule, "parallelize-vectorize-unroll")
    assert context.search_strategy.fallback_share == 0.0
    for candidate in context.generate_measure_candidates():
        text = candidate.sch.mod["main"].script()
        assert "T.dot_accumulate" in text and "auto_tensorize" not in text
        same_result(func, candidate.sch.mod)


def test_what_is_tensorized_is_compiled_and_checked() -> None:
    native = Target("native").with_options(num_cores=1)
    func = dense(8, 16, 16)
    scheduler = TaskScheduler.create("round-robin")
    scheduler.final_rounds = 0
    database = tune_tir(
        func,
        native,
        None,
        2,
        space=PostOrderApply(sch_rules=["multi-level-tiling-with-intrin"]),
        strategy="replay-trace",
        cost_model="random",
        runner=LocalRunner(
            evaluator_config=EvaluatorConfig(repeat=1, min_repeat_ms=0.2), num_threads=1
        ),
        builder=LocalBuilder(1),
        task_scheduler=scheduler,
    )
    texts = [str(record.trace) for record in database.get_all_tuning_records()]
    assert any("tensorize" in text for text in texts)


def test_blocks_that_compute_something_else_are_left(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests register intrinsics that fit.
    ours = [name for name in TensorIntrin.names() if name.startswith("dot_")]
    monkeypatch.setattr(TensorIntrin, "names", lambda: ours)
    sch = Schedule(matmul(8, 16, 16))
    for rule in (MultiLevelTilingWithIntrin("dot_u8s8s32"), MultiLevelTilingWithIntrin()):
        found = rule.apply(sch, sch.get_block("C"))
        assert isinstance(found, NotApplicable) and len(sch.get_loops(sch.get_block("C"))) == 3
    left = MultiLevelTilingWithIntrin("dot_u8s8s32", filter_fn=lambda block: False)
    sch = Schedule(dense(8, 16, 16))
    found = left.apply(sch, sch.get_block("C"))
    assert isinstance(found, NotApplicable) and "filter" in found.reason


def test_results_stay_where_the_intrinsic_updates_them() -> None:
    with pytest.raises(TuneError, match="updates memory of scope 'local'"):
        MultiLevelTilingWithIntrin("dot_u8s8s32", reuse_write=ReuseType("must", (2,), "shared"))


def test_inits_may_be_vectorised(target: Target, same_result: Any) -> None:
    func = dense(4, 16, 8)
    sch = Schedule(func)
    (tiled,) = MultiLevelTilingWithIntrin("dot_u8s8s32_global").apply(sch, sch.get_block("C"))
    assert RewriteTensorize(vectorize_init_loop=True).apply(tiled) is None
    outer = tiled.get_loops(tiled.get_block("C_o_init"))
    assert tiled.get(outer[-1]).kind == "vectorized"
    same_result(func, tiled.mod)


@pytest.mark.parametrize(("m", "innermost"), [(32, {16}), (24, {1, 2, 3, 4, 6, 8, 12, 24})])
def test_innermost_loops_are_wide_vectors(
    m: int, innermost: set[int], target: Target, same_result: Any
) -> None:
    func = matmul(4, m, 4)
    context = context_of(func, target, MultiLevelTilingWideVector("SSRS", 512))
    for candidate in context.generate_measure_candidates(3):
        name = "C" if candidate.sch.has_block("C") else "C_update"
        loops = candidate.sch.get_loops(candidate.sch.get_block(name))
        assert as_int(candidate.sch.get(loops[-1]).extent) in innermost
        same_result(func, candidate.sch.mod)
    with pytest.raises(TuneError, match="at least 8 bits"):
        MultiLevelTilingWideVector("SSRS", 4)


# ---- limits of memory ----------------------------------------------------------------------------


def test_memory_is_limited_by_scope(target: Target) -> None:
    rule = MultiLevelTilingWithIntrin("dot_u8s8s32")
    limit = VerifyMemoryLimits({"local": 64})
    context = context_of(
        dense(8, 16, 16), target, rule, postprocs=["rewrite-tensorize", limit], mutator_probs={}
    )
    for candidate in context.generate_measure_candidates(4):
        assert limit.apply(candidate.sch) is None
    assert context.rejected["verify-memory-limits"] > 0


def test_limits_come_from_the_target_or_the_user(target: Target) -> None:
    postproc = VerifyMemoryLimits()
    with pytest.raises(TuneError, match="states no limits of memory"):
        postproc.initialize(target)
    postproc.initialize(Target("cuda -max-shared-memory=128"))
    assert postproc.limits == {"shared": 128}
    with pytest.raises(TuneError, match="'local' is negative"):
        VerifyMemoryLimits({"local": -1})
    sch = Schedule(matmul(8, 8, 8))
    block = sch.get_block("C")
    copy = sch.cache_read(block, 0, "shared")
    i, j, _ = sch.get_loops(block)
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    sch.compute_at(copy, i)
    assert postproc.apply(sch) is None  # a row of 8 numbers
    postproc.initialize(Target("cuda -max-shared-memory=16"))
    refused = postproc.apply(sch)
    assert refused is not None and "32 bytes of scope 'shared', more than 16" in refused.reason
