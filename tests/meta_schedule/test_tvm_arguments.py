"""Classes of `meta_schedule` take the arguments that TVM's take, at their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright import meta_schedule as ms
from tilewright import s_tir, te
from tilewright.ir import IRModule
from tilewright.meta_schedule import (
    builder,
    cost_model,
    database,
    runner,
    schedule_rule,
    search_strategy,
    space_generator,
    task_scheduler,
)
from tilewright.meta_schedule.relax_integration import extract_tasks
from tilewright.support.errors import TuneError
from tilewright.target import Target


def test_rules_take_tvms_places() -> None:
    must = schedule_rule.ReuseType("must", [3], "shared")
    assert must.as_dict() == {"req": "must", "levels": [3], "scope": "shared"}
    binds = ["blockIdx.x", "vthread.x", "threadIdx.x"]
    tiling = schedule_rule.MultiLevelTiling("SSSRRSRS", binds, 64, [1, 2], None, must, None)
    assert tiling.levels is not None and tiling.levels.reuse_write == must
    assert tiling.tile_binds == tuple(binds)
    wide = schedule_rule.MultiLevelTilingWideVector("SSRSRS", 256, 32, None, None)
    assert (wide.vector_length_in_bits, wide.max_innermost_factor) == (256, 32)
    intrin = schedule_rule.MultiLevelTilingWithIntrin(
        "dot_u8s8s32", "SSRSRS", None, 16, None, None, None
    )
    assert intrin.options["max_innermost_factor"] == 16
    parallel = schedule_rule.ParallelizeVectorizeUnroll([8], 32, [0, 16])
    assert (parallel.max_jobs_per_core, parallel.unroll_max_steps) == ((8,), (0, 16))
    factored = schedule_rule.AddRFactor(16, 64)
    assert (factored.max_jobs_per_core, factored.max_innermost_factor) == (16, 64)
    groups = schedule_rule.MultiLevelTilingTensorCore().intrin_groups
    cores = schedule_rule.MultiLevelTilingTensorCore(
        groups, "SSSRRSRS", ["blockIdx.y", "threadIdx.y"], 4, [1, 8], None, None, True
    )
    assert cores.use_software_pipeline


@pytest.mark.parametrize(("stated", "threads"), [(-1, 1024), (64, 64)])
def test_threads_of_a_block_are_limited_by_argument_or_target(stated: int, threads: int) -> None:
    rule = schedule_rule.AutoBind(256, None, stated)
    rule.initialize(Target("cuda"))
    assert rule.max_threads == threads and rule.thread_extents[0] == 32


def test_parts_are_made_by_kind_with_arguments(tmp_path: Path) -> None:
    assert builder.create("local", max_workers=1).max_workers == 1  # type: ignore[attr-defined]
    assert isinstance(runner.create("local", timeout_sec=3.0), ms.LocalRunner)
    assert isinstance(database.create("memory", "anchor-block"), ms.MemoryDatabase)
    made = database.create("json", work_dir=str(tmp_path))
    assert isinstance(made, ms.JSONDatabase)
    strategy = search_strategy.create("replay-trace", 7)
    assert strategy.max_fail_count == 7  # type: ignore[attr-defined]
    assert search_strategy.create().name == "evolutionary"
    assert task_scheduler.create("round-robin").name == "round-robin"
    assert task_scheduler.create("gradient", alpha=0.5).alpha == 0.5  # type: ignore[attr-defined]
    assert isinstance(cost_model.CostModel.create("random", seed=3), cost_model.RandomModel)
    assert (
        space_generator.create("post-order-apply", target=Target("llvm")).name == "post-order-apply"
    )
    with pytest.raises(TuneError, match="is an instance of SearchStrategy or a name"):
        search_strategy.create(strategy, 7)  # it has its arguments already


def test_rules_mutators_and_postprocs_are_cloned() -> None:
    rule = schedule_rule.AutoBind(12)
    copy = rule.clone()
    assert type(copy) is type(rule) and copy is not rule and copy.max_threadblocks == 12
    rewrite = ms.postproc.RewriteTensorize(True).clone()
    assert rewrite.vectorize_init_loop
    assert isinstance(ms.mutator.MutateUnroll().clone(), ms.mutator.MutateUnroll)


def test_extracted_tasks_have_tvms_fields() -> None:
    x = te.placeholder((4,), name="x")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0, name="y")])
    (task,) = extract_tasks(IRModule({"f": func}), Target("llvm"), None, "structural")
    again = ms.ExtractedTask(task.task_name, task.mod, task.target, task.dispatched, 2)
    assert (again.task_name, again.weight, again.dispatched) == ("f", 2, (task.mod,))


def test_other_names_of_packages() -> None:
    assert s_tir.meta_schedule.feature_extractor.PerStoreFeature is ms.PerStoreFeature
    assert search_strategy.MeasureCandidate is ms.MeasureCandidate
