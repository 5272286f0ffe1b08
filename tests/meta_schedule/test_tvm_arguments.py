"""Classes of `meta_schedule` take the arguments that TVM's take, at their places."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import meta_schedule as ms
from tilewright import s_tir, te
from tilewright.ir import IRModule
from tilewright.meta_schedule import (
    arg_info,
    builder,
    cost_model,
    database,
    feature_extractor,
    runner,
    schedule_rule,
    search_strategy,
    space_generator,
    task_scheduler,
)
from tilewright.meta_schedule.column import Column
from tilewright.meta_schedule.relax_integration import (
    extract_tasks,
    extracted_tasks_to_tune_contexts,
)
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc


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


def doubled(shape: tuple[int, ...] = (4, 6), dtype: str = "float32") -> PrimFunc:
    x = te.placeholder(shape, dtype, name="x")
    return te.create_prim_func([x, te.compute(shape, lambda *i: x[i] * 2, name="y")])


def test_arguments_are_described_as_in_tvm() -> None:
    info = arg_info.TensorInfo("float32", (2, 3))
    assert isinstance(info, arg_info.ArgInfo)
    assert info.as_json() == ["TENSOR", "float32", [2, 3]]
    assert arg_info.ArgInfo.from_json(info.as_json()) == info
    wanted = [arg_info.TensorInfo("float32", (4, 6))] * 2
    assert arg_info.ArgInfo.from_prim_func(doubled()) == wanted
    two = IRModule({"f": doubled((1,)), "main": doubled()})
    assert arg_info.ArgInfo.from_entry_func(two, remove_preproc=True) == wanted
    assert arg_info.ArgInfo.from_entry_func(IRModule({"f": doubled()}), False) == wanted
    with pytest.raises(TuneError, match="neither one function nor a `main`"):
        arg_info.ArgInfo.from_entry_func(IRModule({"f": doubled(), "g": doubled((1,))}))


def test_records_are_json_without_their_workload() -> None:
    workload = database.Workload(IRModule({"main": doubled()}))
    sch = s_tir.Schedule(doubled())
    sch.parallel(sch.get_loops("y")[0])
    record = ms.TuningRecord(sch.trace, workload, (1.0, 2.0), Target("llvm"))
    again = ms.TuningRecord.from_json(record.as_json(), workload)
    assert again.workload is workload and again.run_secs == (1.0, 2.0)
    assert again.as_json()[:4] == record.as_json()[:4] and again.args_info is not None
    with pytest.raises(TuneError, match="not a tuning record"):
        ms.TuningRecord.from_json(["x"], workload)


ANNOTATIONS = {
    ms.Builder: "BuilderType",
    ms.CostModel: "CostModelType",
    ms.Database: "DatabaseType",
    ms.FeatureExtractor: "FeatureExtractorType",
    ms.MeasureCallback: "CallbackListType",
    ms.Runner: "RunnerType",
    ms.SearchStrategy: "SearchStrategyType",
    ms.SpaceGenerator: "SpaceGeneratorType",
    ms.TaskScheduler: "TaskSchedulerType",
}


@pytest.mark.parametrize("cls", ANNOTATIONS)
def test_classes_have_unions_for_annotations(cls: type) -> None:
    parts = typing.get_args(getattr(cls, ANNOTATIONS[cls]))
    assert cls in parts and any(typing.get_origin(part) is typing.Literal for part in parts)
    assert ms.SpaceGenerator.ScheduleFnType is space_generator.ScheduleFnType


def test_a_context_has_defaults_and_tvms_fields() -> None:
    with Target("llvm"):
        context = ms.TuneContext(doubled(), rand_state=5, num_threads=3, start_from_rules=False)
    assert (context.rand_state, context.num_threads, context.task_name) == (5, 3, "main")
    assert context.space_generator.name == "post-order-apply"
    assert context.search_strategy.name == "evolutionary"
    assert context.clone().rand_state == 5 and context.clone().num_threads == 3
    for options in ({}, {"mod": doubled()}, {"target": "llvm"}):
        with pytest.raises(TuneError, match="needs a module and a target"):
            ms.TuneContext(**options)  # type: ignore[arg-type]
    with pytest.raises(TuneError, match="a number of cores is positive"):
        ms.TuneContext(doubled(), target="llvm", num_threads=0)


def test_extracted_tasks_become_contexts(tmp_path: Path) -> None:
    tasks = extract_tasks(IRModule({"f": doubled(), "g": doubled((3,))}), Target("llvm"))
    contexts, weights = extracted_tasks_to_tune_contexts(tasks, tmp_path, seed=4, num_threads=2)
    assert [context.rand_state for context in contexts] == [4, 5] and weights == [1.0, 1.0]
    assert all(context.num_threads == 2 for context in contexts)
    contexts[1].logger.info("a word")
    assert (tmp_path / "logs" / "task_01_g.log").read_text() == "a word\n"


def test_features_and_models_for_comparison(tmp_path: Path) -> None:
    extractor = feature_extractor.RandomFeatureExtractor(feature_size=7, max_block_num=2, seed=1)
    context = ms.TuneContext(doubled(), target="llvm", start_from_rules=False)
    candidate = ms.MeasureCandidate(s_tir.Schedule(doubled()), context.args_info)
    arrays = extractor.extract_from(context, [candidate] * 20)
    assert {array.shape for array in arrays} == {(1, 7), (2, 7)}
    assert all(array.dtype == "float32" for array in arrays)
    stores = feature_extractor.PerStoreFeature(5, 10, 64, True)
    assert (stores.buffers_per_store, stores.cache_line_bytes) == (5, 64)
    assert stores.arith_intensity_curve_num_samples == 10
    with pytest.raises(TuneError, match="not of \\(4, 10, 64\\)"):
        feature_extractor.PerStoreFeature(buffers_per_store=4)
    model = cost_model.RandomModel(seed=3, max_range=10)
    model.save(tmp_path / "state")
    scores = model.predict(context, [candidate] * 3)
    assert (scores >= 0).all() and (scores < 10).all() and scores.max() > 1
    again = cost_model.RandomModel(path=tmp_path / "state", max_range=10)
    assert (again.predict(context, [candidate] * 3) == scores).all()


def test_a_measurement_has_tvms_defaults_and_tuning_its_own() -> None:
    config = runner.EvaluatorConfig()
    assert (config.number, config.repeat, config.min_repeat_ms) == (3, 1, 100)
    assert ms.LocalRunner().evaluator_config is runner.TUNING
    assert runner.EvaluatorConfig(1, 3, 5.0) == runner.TUNING


def chain(form: str) -> s_tir.Schedule:
    x = te.placeholder((4, 4), name="x")
    formulas = {
        "transposed": lambda i, j: x[j, i],
        "diagonal": lambda i, j: x[i, i] + 0.0 * j,
        "constant": lambda i, j: te.const(3.0, "float32"),
        "padded": lambda i, j: te.if_then_else(i < 2, x[i, j], 0.0),
        "root": lambda i, j: te.sqrt(x[i, j]),
    }
    y = te.compute((4, 4), formulas[form], name="y")
    z = te.compute((4, 4), lambda i, j: y[i, j] + x[i, j], name="z")
    return s_tir.Schedule(te.create_prim_func([x, z]))


@pytest.mark.parametrize(
    ("form", "option"),
    [
        ("transposed", {"require_ordered": True}),
        ("diagonal", {"require_injective": True}),
        ("constant", {"inline_const_tensor": False}),
        ("padded", {"disallow_if_then_else": True}),
        ("root", {"disallow_op": ["tirx.sqrt"]}),
    ],
)
def test_inlining_is_limited_by_options(form: str, option: dict[str, Any]) -> None:
    for options in ({}, option):
        sch = chain(form)
        rule = schedule_rule.AutoInline(True, True, **options)
        answer = rule.apply(sch, sch.get_block("y"))
        assert isinstance(answer, list) == (options == {})
        assert all(getattr(rule, name) for name in options) or option[next(iter(option))] is False
    allowed = schedule_rule.AutoInline(True, True, True, False, True, True, ["tirx.exp"])
    sch = chain("root")
    assert isinstance(allowed.apply(sch, sch.get_block("y")), list)


def test_limits_of_threads_are_fields() -> None:
    rule = schedule_rule.CrossThreadReduction([4, 8])
    rule.initialize(Target("nvidia/nvidia-h100"))
    assert (rule.max_threads_per_block, rule.warp_size) == (1024, 32)


def test_parallel_jobs_are_limited_by_argument() -> None:
    column = Column(0, "parallel", np.array([[4], [8], [16], [64]]))
    chosen = np.arange(400) % 4
    rng = np.random.default_rng(0)
    limited = ms.mutator.MutateParallel(4)
    limited.initialize(Target("llvm -num-cores=4"))
    made = limited.mutate(column, chosen, rng)
    assert set(made) == {0, 1, 2} and (made != chosen).all()
    assert set(ms.mutator.MutateParallel().mutate(column, chosen, rng)) == {0, 1, 2, 3}
    alone = ms.mutator.MutateParallel(max_jobs_per_core=1)
    alone.initialize(Target("llvm -num-cores=4"))
    assert set(alone.mutate(column, chosen, rng)) == {0}
    alone.initialize(Target("llvm -num-cores=1"))
    assert (alone.mutate(column, chosen, rng) == chosen).all()
    with pytest.raises(TuneError, match="is positive"):
        ms.mutator.MutateParallel(0)


def test_a_database_in_memory_has_its_workloads() -> None:
    made = ms.MemoryDatabase()
    assert made.workloads == []
    workload = made.commit_workload(doubled())
    assert made.commit_workload(doubled()) is workload and made.workloads == [workload]
