"""Databases and components of the search, called with TVM's arguments by their names."""

from __future__ import annotations

from pathlib import Path

from tilewright import s_tir, te
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.meta_schedule import (
    MeasureCandidate,
    TuneContext,
    cost_model,
    postproc,
    runner,
    schedule_rule,
    search_strategy,
    space_generator,
)
from tilewright.meta_schedule.arg_info import ArgInfo
from tilewright.meta_schedule.database import MemoryDatabase, TuningRecord
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.target import Target

TARGET = Target("llvm -num-cores=1")


def doubled(size: int) -> IRModule:
    x = te.placeholder((size,), "float32", "x")
    made = te.create_prim_func([x, te.compute((size,), lambda i: x[i] * 2.0, name="doubled")])
    return IRModule({"main": made})


def test_questions_to_a_database() -> None:
    database, mod = MemoryDatabase(), doubled(8)
    workload = database.commit_workload(mod)
    schedule = s_tir.Schedule(mod)
    schedule.split(schedule.get_loops(schedule.get_sblock("doubled"))[0], [2, 4])
    args = ArgInfo.from_prim_func(mod["main"])
    record = TuningRecord(schedule.trace, workload, [0.5], TARGET, args)
    database.commit_tuning_record(record)
    found = database.query_tuning_record(mod=mod, target=TARGET, workload_name="main")
    assert found is not None and found.run_secs == [0.5]
    again = database.query_schedule(mod=mod, target=TARGET, workload_name="main")
    assert again is not None
    assert_structural_equal(again.mod, schedule.mod)
    assert_structural_equal(
        database.query_ir_module(mod=mod, target=TARGET, workload_name="main"), schedule.mod
    )
    other = doubled(9)
    assert database.query_tuning_record(mod=other, target=TARGET, workload_name="main") is None
    assert database.query_schedule(mod=other, target=TARGET, workload_name="main") is None
    assert database.query_ir_module(mod=other, target=TARGET, workload_name="main") is None


def test_components_are_made_and_copied() -> None:
    for made in (
        postproc.DisallowDynamicLoop(),
        postproc.RewriteParallelVectorizeUnroll(),
        postproc.RewriteReductionBlock(),
        schedule_rule.InlineConstantScalars(),
        schedule_rule.RandomComputeLocation(),
    ):
        assert type(made.clone()) is type(made)
    strategy = search_strategy.ReplayTrace(max_fail_count=7)
    assert strategy.clone().max_fail_count == 7 and strategy.clone() is not strategy
    assert isinstance(search_strategy.ReplayFunc(), search_strategy.SearchStrategy)
    seen = []
    space = space_generator.ScheduleFn(
        sch_fn=seen.append, sch_rules=[], postprocs=[], mutator_probs={}
    )
    assert type(space.clone()) is space_generator.ScheduleFn


def test_futures_give_their_result() -> None:
    there = runner.RunnerFuture(lambda: True, lambda: RunnerResult((0.5,), None))
    assert there.done() and there.result().run_secs == (0.5,)
    assert not runner.RunnerFuture(f_done=lambda: False).done()


def test_models_go_on_from_a_file(tmp_path: Path) -> None:
    first, second = (cost_model.CostModel.create("random", seed=seed) for seed in (1, 2))
    first.save(str(tmp_path / "state"))
    second.load(str(tmp_path / "state"))
    context = TuneContext(doubled(8), target=TARGET)
    candidates = [MeasureCandidate(s_tir.Schedule(doubled(8)), [])] * 4
    drawn = [list(model.predict(context, candidates)) for model in (first, second)]
    assert drawn[0] == drawn[1]
