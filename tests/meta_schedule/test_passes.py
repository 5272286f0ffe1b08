"""Tuning and applying as passes; tasks of whole models."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import relax, te
from tilewright.ir import IRModule, Sequential, structural_equal
from tilewright.meta_schedule import relax_integration
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import (
    Database,
    JSONDatabase,
    MemoryDatabase,
    OrderedUnionDatabase,
    ScheduleFnDatabase,
    TuningRecord,
)
from tilewright.meta_schedule.extracted_task import extract_tasks
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.passes import (
    MetaScheduleApplyDatabase,
    MetaScheduleTuneIRMod,
    MetaScheduleTuneTIR,
)
from tilewright.meta_schedule.runner import EvaluatorConfig, LocalRunner
from tilewright.meta_schedule.search_strategy import ReplayTrace
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.relax.frontend import nn
from tilewright.relax.tuning.models import compile_relax, tune_relax
from tilewright.relax.tuning.models import extract_tasks as extract_relax_tasks
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule, Trace

TARGET = Target("native").with_options(num_cores=1)


class MLP(nn.Module):
    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16, bias=False) for _ in range(layers)])
        self.head = nn.Linear(16, 8, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        for layer in self.layers:
            x = self.relu(layer(x))
        result: nn.Tensor = self.head(x)
        return result


def exported(layers: int = 1) -> IRModule:
    mod, _ = MLP(layers).export({"forward": {"x": nn.spec.Tensor((2, 16), "float32")}})
    return mod


def tensor_functions(layers: int = 1) -> IRModule:
    return relax.get_pipeline("zero")(exported(layers))


def quick() -> dict[str, Any]:
    scheduler = TaskScheduler.create("gradient")
    scheduler.final_rounds = 0  # the best are not measured again: records are counted
    return {
        "task_scheduler": scheduler,
        "target": TARGET,
        "cost_model": CostModel.create("random"),
        "runner": LocalRunner(
            evaluator_config=EvaluatorConfig(repeat=1, min_repeat_ms=0.2), num_threads=1
        ),
        "num_trials_per_iter": 2,
    }


def scheduled(mod: IRModule) -> list[str]:
    return sorted(
        name
        for name, func in mod.functions.items()
        if isinstance(func, PrimFunc) and func.attrs.get(IS_SCHEDULED)
    )


def parallel_rows(database: Database, func: PrimFunc, seconds: float) -> None:
    """Add a record by hand: rows of every block in parallel."""
    workload = database.commit_workload(func)
    sch = Schedule(workload.mod)
    for block in sch.get_child_blocks(sch.get_block("root")):
        sch.parallel(sch.get_loops(block)[0])
    database.commit_tuning_record(TuningRecord(sch.trace, workload, (seconds,), TARGET))


# ---- tasks ---------------------------------------------------------------------------------------


def test_tasks_are_the_different_functions_weighted_by_their_calls() -> None:
    tasks = extract_relax_tasks(exported(layers=3), TARGET)
    assert sorted(task.weight for task in tasks) == [1, 3]
    assert {task.flops for task in tasks} >= {2.0 * 2 * 16 * 8}
    assert all(list(task.mod.functions) == ["main"] for task in tasks)


def test_op_names_choose_and_scheduled_functions_are_left_out() -> None:
    mod = tensor_functions()
    assert len(extract_tasks(mod, TARGET)) == 2
    assert len(extract_tasks(mod, TARGET, op_names=["relu"])) == 1
    assert extract_tasks(mod, TARGET, op_names=["conv2d"]) == []
    database = MemoryDatabase()
    (task,) = extract_tasks(mod, TARGET, op_names=["relu"])
    parallel_rows(database, task.mod["main"], 1e-5)
    applied = MetaScheduleApplyDatabase(database=database, target=TARGET)(mod)
    assert [task.flops for task in extract_tasks(applied, TARGET)] == [2.0 * 2 * 16 * 8]


def test_functions_equal_under_the_equality_are_one_task() -> None:
    mod = tensor_functions(layers=2)
    funcs = {f"{name}_{n}": f for n in range(2) for name, f in mod.functions.items()}
    doubled = IRModule({n: f for n, f in funcs.items() if isinstance(f, PrimFunc)})
    assert sorted(task.weight for task in extract_tasks(doubled, TARGET)) == [2, 2]


def test_parameters_are_bound_by_name() -> None:
    weight = np.zeros((8, 16), "float32")
    tasks = extract_relax_tasks(exported(), TARGET, {"head.weight": weight})
    assert len(tasks) == 2
    with pytest.raises(TuneError, match=r"no graph has a parameter 'tail.weight'.*head.weight"):
        extract_relax_tasks(exported(), TARGET, {"tail.weight": weight})


# ---- applying ------------------------------------------------------------------------------------


def test_apply_rewrites_what_has_records_and_leaves_the_rest() -> None:
    mod, database = tensor_functions(), MemoryDatabase()
    (task,) = (t for t in extract_tasks(mod, TARGET) if "relu" not in t.task_name)
    parallel_rows(database, task.mod["main"], 1e-5)
    applied = MetaScheduleApplyDatabase(database=database, target=TARGET)(mod)
    assert scheduled(applied) == [task.task_name]
    for name, func in mod.functions.items():
        if name != task.task_name:
            assert applied[name] is func
    made = applied[task.task_name]
    assert "T.parallel" in made.script() and made.attrs["op_pattern"] == 4
    assert scheduled(mod) == []
    # What is scheduled already is not scheduled again.
    assert structural_equal(
        MetaScheduleApplyDatabase(database=database, target=TARGET)(applied), applied
    )


def test_apply_uses_the_current_database_and_target() -> None:
    mod, local, shared = tensor_functions(), MemoryDatabase(), MemoryDatabase()
    first, second = extract_tasks(mod, TARGET)
    parallel_rows(local, first.mod["main"], 1e-5)
    parallel_rows(shared, second.mod["main"], 1e-5)
    with TARGET, OrderedUnionDatabase(local, shared):
        assert len(scheduled(MetaScheduleApplyDatabase()(mod))) == 2
    with TARGET, local:
        assert scheduled(MetaScheduleApplyDatabase()(mod)) == [first.task_name]
    with pytest.raises(TuneError, match="needs work_dir=, database=, or `with database:`"):
        MetaScheduleApplyDatabase()(mod)


def test_schedules_by_hand_are_applied_too() -> None:
    def rows(sch: Schedule) -> bool:
        blocks = sch.get_child_blocks(sch.get_block("root"))
        if len(blocks) != 1:
            return False
        sch.parallel(sch.get_loops(blocks[0])[0])
        return True

    applied = MetaScheduleApplyDatabase(database=ScheduleFnDatabase(rows))(tensor_functions())
    assert len(scheduled(applied)) == 1


def anchored(n: int = 8, *, epilogue: bool = False) -> PrimFunc:
    a, b = te.placeholder((n, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((n, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, 8), lambda i, j: c[i, j] + 1.0, name="D")
    return te.create_prim_func([a, b, d if epilogue else c])


def test_a_record_that_does_not_replay_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    database = MemoryDatabase()
    workload = database.commit_workload(anchored())
    trace = Trace.from_json([["get_block", ["nowhere"], ["b0"]]])
    database.commit_tuning_record(TuningRecord(trace, workload, (1e-6,), TARGET))
    parallel_rows(database, anchored(), 1e-5)  # the next one is used
    plain = IRModule({"main": anchored()})
    with caplog.at_level(logging.WARNING):
        applied = MetaScheduleApplyDatabase(database=database, target=TARGET)(plain)
    assert scheduled(applied) == ["main"]
    assert "does not replay, it is not used" in caplog.text


def test_a_record_of_another_fusion_is_adapted_if_anchors_count_as_equal() -> None:
    database = MemoryDatabase("anchor-block")
    parallel_rows(database, anchored(epilogue=True), 1e-5)
    applying = MetaScheduleApplyDatabase(database=database, target=TARGET)
    assert scheduled(applying(IRModule({"f": anchored()}))) == ["f"]
    (made,) = applying.report
    assert (made.outcome, made.why) == ("adapted", "from another fusion (10 us, never checked)")


@pytest.mark.parametrize("kind", ["memory", "json"])
def test_records_of_other_shapes_are_adapted_if_asked_for(kind: str, tmp_path: Path) -> None:
    options = {"work_dir": tmp_path} if kind == "json" else {}
    database = Database.create(kind, **options)
    parallel_rows(database, anchored(16), 1e-5)
    mod = IRModule({"f": anchored(epilogue=True), "g": anchored(16)})
    never = MetaScheduleApplyDatabase(database=database, target=TARGET)
    assert scheduled(never(mod)) == ["g"]
    always = MetaScheduleApplyDatabase(database=database, target=TARGET, adapt="always")
    applied = always(mod)
    assert scheduled(applied) == ["f", "g"] and "T.parallel(8)" in applied["f"].script()
    (first, second) = always.report
    assert (first.outcome, second.outcome) == ("adapted", "record")
    assert first.why == ("from another fusion, shapes 16x8 8x8 16x8 (10 us there), not measured")
    with pytest.raises(TuneError, match="adapt is one of never, measure, always, got 'yes'"):
        MetaScheduleApplyDatabase(adapt="yes")


def test_adapted_schedules_are_measured_against_the_rules_and_the_winner_is_kept() -> None:
    database, target = MemoryDatabase(), Target("native -num-cores=1")
    workload = database.commit_workload(anchored(16))
    sch = Schedule(workload.mod)
    sch.parallel(sch.get_loops("C")[0])
    database.commit_tuning_record(TuningRecord(sch.trace, workload, (1e-5,), target))
    mod = IRModule({"f": anchored(64)})
    measure = MetaScheduleApplyDatabase(database=database, target=target, adapt="measure")
    measure(mod)
    (first,) = measure.report
    assert first.outcome in ("rule", "adapted") and len(database) == 2
    measure(mod)
    assert [item.outcome for item in measure.report] == ["record"] and len(database) == 2


def test_warnings_about_missing_records_and_databases(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mod = tensor_functions()
    with caplog.at_level(logging.WARNING):
        MetaScheduleApplyDatabase(database=MemoryDatabase())(mod)
        assert not caplog.records
        MetaScheduleApplyDatabase(enable_warning=True, database=MemoryDatabase())(mod)
        assert len(caplog.records) == 2 and "the database has no record" in caplog.text
        MetaScheduleApplyDatabase(tmp_path / "typo")(mod)
        assert f"there is no database in {tmp_path / 'typo'}" in caplog.text


# ---- tuning --------------------------------------------------------------------------------------


def test_tune_and_apply_in_a_sequence(tmp_path: Path) -> None:
    mod = exported()
    with TARGET:
        tuned = Sequential(
            [
                relax.get_pipeline("zero"),
                MetaScheduleTuneTIR(tmp_path, 4, **quick()),
                MetaScheduleApplyDatabase(tmp_path),
            ]
        )(mod)
    assert len(scheduled(tuned)) == 2
    assert len(JSONDatabase(work_dir=tmp_path)) == 4
    assert (tmp_path / "tuning.log").stat().st_size > 0
    rng = np.random.default_rng(0)
    x, w, head = (rng.random(s, dtype="float32") for s in ((2, 16), (16, 16), (8, 16)))
    expected = np.maximum(x @ w.T, 0) @ head.T
    found = relax.build(tuned, TARGET)["forward"](x, w, head)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4)
    # Records are found for another module that shares an operator.
    assert (
        len(scheduled(MetaScheduleApplyDatabase(tmp_path, target=TARGET)(tensor_functions(3)))) == 2
    )


def test_tune_ir_mod_tunes_the_named_operators_only() -> None:
    mod, database = tensor_functions(), MemoryDatabase()
    with database:
        same = MetaScheduleTuneIRMod(None, None, 2, op_names=["relu"], **quick())(mod)
    assert same is mod
    assert len(database) == 2
    applied = MetaScheduleApplyDatabase(database=database, target=TARGET)(mod)
    (name,) = scheduled(applied)
    assert "relu" in name


def test_nothing_to_tune_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mod = tensor_functions()
    with caplog.at_level(logging.WARNING):
        assert MetaScheduleTuneIRMod(None, tmp_path, op_names=["conv2d"])(mod) is mod
    assert "no TensorIR function matching ['conv2d'] to tune" in caplog.text


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="tuning needs work_dir=, database=, or `with database:`"):
        MetaScheduleTuneTIR()
    with pytest.raises(TuneError, match="bind parameters before tuning"):
        MetaScheduleTuneIRMod({"w": 1}, tmp_path)
    union = OrderedUnionDatabase(MemoryDatabase())
    with pytest.raises(TuneError, match="is for queries"):
        MetaScheduleTuneTIR(database=union, max_trials_global=2, **quick())(tensor_functions())


def test_tune_and_compile_a_model(tmp_path: Path) -> None:
    options = quick()
    target = options.pop("target")
    rng = np.random.default_rng(0)
    x, w, head = (rng.random(s, dtype="float32") for s in ((2, 16), (16, 16), (8, 16)))
    params = {"layers.0.weight": w, "head.weight": head}
    database = tune_relax(exported(), params, target, tmp_path, 4, **options)
    assert len(database) == 4
    built = compile_relax(database, exported(), TARGET, params)
    expected = np.maximum(x @ w.T, 0) @ head.T
    np.testing.assert_allclose(np.asarray(built["forward"](x)), expected, rtol=1e-4)


def test_models_are_tuned_by_their_own_spaces_and_strategies(tmp_path: Path) -> None:
    """By the name that TVM's users import, too; the last quarter goes around the best."""
    options = quick()
    target, asked = options.pop("target"), list[str]()
    options["num_trials_per_iter"] = 5  # fewer would all be the rules' choices

    class Asked(ReplayTrace):
        def generate_measure_candidates(self, count: int | None = None) -> list[MeasureCandidate]:
            asked.append(self.context.task_name)
            return super().generate_measure_candidates(count)

    names = [task.task_name for task in relax_integration.extract_tasks(exported(), target)]
    with pytest.raises(TuneError, match="special_space: no task 'other'"):
        relax_integration.tune_relax(
            exported(), {}, target, tmp_path, 4, special_space={"other": "post-order-apply"}
        )
    database = relax_integration.tune_relax(
        exported(),
        None,
        target,
        tmp_path,
        8,
        None,
        [names[0]],
        space=lambda sch: None,
        strategy=Asked(),
        special_space={names[0]: "post-order-apply"},
        post_optimization=True,
        race=False,
        **options,
    )
    assert asked and set(asked) == {names[0]}
    assert len(database) == 8


def test_compiling_says_which_functions_have_no_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        compile_relax(MemoryDatabase(), exported(), TARGET)
        assert "no record" not in caplog.text
        compile_relax(MemoryDatabase(), exported(), TARGET, enable_warning=True)
    assert caplog.text.count("no record") == 2
