"""Components by their names, and what belongs to a run besides the search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.meta_schedule.conftest import matmul
from tilewright import meta_schedule as ms
from tilewright.ir import IRModule
from tilewright.meta_schedule.cost_model import XGBModel
from tilewright.meta_schedule.extracted_task import extract_tasks
from tilewright.meta_schedule.feature import FEATURE_EXTRACTORS, FEATURE_NAMES
from tilewright.meta_schedule.measure_callback import Trial
from tilewright.meta_schedule.passes import is_meta_schedule_enabled
from tilewright.meta_schedule.tune import builder_and_runner
from tilewright.runtime import Module
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.target.host import core_count, physical_core_count
from tilewright.tir.schedule import BlockRV, Schedule

NATIVE = Target("native").with_options(num_cores=1)


class Instead(ms.PyBuilder):
    """Builds nothing; leaves a file for each candidate, if there is a folder for it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def build(self, inputs: Any) -> list[ms.BuilderResult]:
        made = []
        for number, _ in enumerate(inputs):
            path = None if self.folder is None else self.folder / f"{number}.so"
            if path is not None:
                path.write_text("code")
            left = None if path is None else str(path)
            made.append(ms.BuilderResult(module=Module.__new__(Module), artifact_path=left))
        return made


class Says(ms.PyRunner):
    """Runs nothing, and takes each for faster than the one before."""

    count = 0

    def run(self, inputs: Any) -> Any:
        for _ in inputs:
            self.count += 1
            yield ms.RunnerResult((1e-3 / self.count,), error_ratio=0.0)


def quick(**options: Any) -> dict[str, Any]:
    scheduler = ms.TaskScheduler.create("round-robin")
    scheduler.final_rounds = 0
    return {
        "task_scheduler": scheduler,
        "cost_model": "random",
        "builder": Instead(),
        "runner": Says(),
        "num_trials_per_iter": 4,
    } | options


def test_the_bases_have_their_other_names() -> None:
    bases = [name for name in ms.__all__ if name.startswith("Py")]
    assert len(bases) == 12
    for name in bases:
        assert getattr(ms, name) is getattr(ms, name.removeprefix("Py"))
    for package, name in ((ms.builder, "PyBuilder"), (ms.runner, "PyRunner")):
        assert getattr(package, name) is getattr(ms, name)
    assert ms.schedule_rule.PyScheduleRule is ms.ScheduleRule
    assert ms.database.PyDatabase is ms.Database


def test_builders_and_runners_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(ms.Builder.create(max_workers=1), ms.LocalBuilder)
    runner = ms.Runner.create("local", timeout_sec=3.0)
    assert isinstance(runner, ms.LocalRunner) and runner.timeout_sec == 3.0
    # As a plug-in would register it.
    monkeypatch.setitem(ms.builder.BUILDERS._entries, "instead", Instead)
    monkeypatch.setitem(ms.runner.RUNNERS._entries, "says", Says)
    options = quick(builder="instead", runner="says")
    assert len(ms.tune_tir(matmul(8, 8, 8), NATIVE, None, 2, **options)) == 2


def test_defaults_of_a_kind_are_made_by_create() -> None:
    defaults = ms.defaults.of_kind("llvm")
    rules = ms.ScheduleRule.create("llvm")
    assert tuple(rule.name for rule in rules) == defaults.sch_rules
    assert tuple(item.name for item in ms.Postproc.create("llvm")) == defaults.postprocs
    assert {m.name: w for m, w in ms.Mutator.create("llvm").items()} == defaults.mutator_probs
    assert [type(c).__name__ for c in ms.MeasureCallback.create("default")] == [
        "AddToDatabase",
        "UpdateCostModel",
        "RemoveBuildArtifact",
    ]
    with pytest.raises(TuneError, match="did you mean 'add-to-database'"):
        ms.MeasureCallback.create("add-to-databse")


def test_a_block_is_given_the_rule_that_it_names(same_result: Any) -> None:
    class Halve(ms.PyScheduleRule):
        name = "halve-for-test"

        def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
            sch.split(sch.get_loops(block)[0], [None, 2])
            return [sch]

    registry = ms.schedule_rule.SCHEDULE_RULES
    registry.register(Halve.name, Halve)
    try:
        func = matmul(16, 16, 16)
        sch = Schedule(func)
        sch.annotate(sch.get_block("C"), "schedule_rule", Halve.name)
        space = ms.TuneContext(sch.mod, target=NATIVE).generate_design_space()
        assert [len(s.get_loops(s.get_block("C"))) for s in space] == [4]
        same_result(func, space[0].mod)
        sch.unannotate(sch.get_block("C"), "schedule_rule")
        sch.annotate(sch.get_block("C"), "schedule_rule", "None")
        (left,) = ms.TuneContext(sch.mod, target=NATIVE).generate_design_space()
        assert len(left.get_loops(left.get_block("C"))) == 3
        sch.unannotate(sch.get_block("C"), "schedule_rule")
        sch.annotate(sch.get_block("C"), "schedule_rule", "halve")
        with pytest.raises(TuneError, match="halve-for-test"):
            ms.TuneContext(sch.mod, target=NATIVE).generate_design_space()
    finally:
        del registry._entries[Halve.name]


def test_a_context_lives_without_a_scheduler(target: Target) -> None:
    context = ms.TuneContext(matmul(16, 32, 16), target=target)
    context.pre_tuning(max_trials=16, num_trials_per_iter=8)
    first = context.generate_measure_candidates()
    assert len(first) == 8 and first[0].by_rule
    context.notify_runner_results(first, [ms.RunnerResult((1e-3,))] * 8)
    second = context.generate_measure_candidates(3)
    assert len(second) == 3 and not any(item.by_rule for item in second)
    context.post_tuning()


def test_spaces_for_some_functions(target: Target) -> None:
    def whole(sch: Schedule) -> None:
        sch.parallel(sch.get_loops(sch.get_block("C"))[0])

    mod = IRModule({"first": matmul(8, 8, 8), "second": matmul(16, 8, 8)})
    strategy = ms.SearchStrategy.create("replay-trace")
    database = ms.tune_tir(
        mod, NATIVE, None, 6, **quick(), strategy=strategy, special_space={"second": whole}
    )
    texts = {
        name: [
            str(record.trace)
            for record in database.get_all_tuning_records()
            if database.commit_workload(mod[name]) is record.workload
        ]
        for name in ("first", "second")
    }
    assert texts["first"] and texts["second"]
    with pytest.raises(TuneError, match="special_space: no task 'third'"):
        ms.tune_tir(mod, NATIVE, None, 1, **quick(), special_space={"third": whole})


def test_a_task_knows_whom_its_records_are_for() -> None:
    mod = IRModule(
        {
            "plain": matmul(8, 8, 8),
            "again": matmul(8, 8, 8),
            "relu": matmul(8, 8, 8, epilogue=True),
        }
    )
    plain, relu = extract_tasks(mod, NATIVE)
    assert (plain.weight, len(plain.dispatched), len(relu.dispatched)) == (2, 1, 1)
    (both,) = extract_tasks(mod, NATIVE, module_equality="anchor-block")
    assert both.weight == 3 and len(both.dispatched) == 2 and both.dispatched[0] is both.mod


# ---- a run ---------------------------------------------------------------------------------------


def test_a_profiler_sees_where_the_time_goes(tmp_path: Path) -> None:
    with ms.Profiler() as profiler:
        ms.tune_tir(matmul(8, 8, 8), NATIVE, tmp_path, 2, **quick())
    seconds = profiler.get()
    parts = {"design spaces", "searching", "building", "measuring", "learning"}
    assert parts <= set(seconds)
    assert 0 < sum(seconds[part] for part in parts) <= seconds["total"]
    assert profiler.table().splitlines()[0].startswith("total")
    log = (tmp_path / "tuning.log").read_text()
    assert "candidates in" in log and "where the time went:\ntotal" in log
    assert "searching while building" not in seconds  # too few candidates to begin with
    assert ms.Profiler.current() is None
    with ms.Profiler.timeit("nobody asks"):
        pass
    assert profiler.get() == seconds


def test_what_a_builder_leaves_is_removed(tmp_path: Path) -> None:
    ms.tune_tir(matmul(8, 8, 8), NATIVE, None, 2, **quick(builder=Instead(tmp_path)))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "folder").mkdir()
    left = ms.BuilderResult(str(tmp_path / "folder"))
    for _ in range(2):  # the second time there is nothing
        ms.RemoveBuildArtifact().on_result(None, None, Trial(None, left, None))  # type: ignore[arg-type]
    assert not (tmp_path / "folder").exists()


def test_a_runner_finds_what_a_builder_left(tmp_path: Path) -> None:
    found: list[str] = []

    class Reads(Says):
        def run(self, inputs: Any) -> Any:
            inputs = list(inputs)
            found.extend(Path(item.artifact_path).read_text() for item in inputs)
            return super().run(inputs)

    ms.tune_tir(
        matmul(8, 8, 8), NATIVE, None, 2, **quick(builder=Instead(tmp_path), runner=Reads())
    )
    assert found == ["code", "code"]


def test_processes_of_the_builder_are_chosen() -> None:
    builder, _ = builder_and_runner("local", "local", 1)
    assert isinstance(builder, ms.LocalBuilder) and builder.max_workers == 1
    made: list[int] = []

    class Noting(ms.MeasureCallback):
        def on_result(self, *args: Any) -> None:
            made.append(1)

    options = quick(measure_callbacks=[Noting(), "add-to-database"])
    database = ms.tune_tir(matmul(8, 8, 8), NATIVE, None, 2, **options)
    assert len(made) == len(database) == 2
    with pytest.raises(TuneError, match=r"LocalBuilder\(max_workers"):
        ms.tune_tir(matmul(8, 8, 8), NATIVE, None, 1, **quick(), num_tuning_cores=2)
    for wrong in ("all", 0, 1.5):
        with pytest.raises(TuneError, match="num_tuning_cores is a positive number"):
            builder_and_runner("local", "local", wrong)  # type: ignore[arg-type]
    for name, cores in (("physical", physical_core_count()), ("logical", core_count())):
        builder, _ = builder_and_runner("local", "local", name)
        assert isinstance(builder, ms.LocalBuilder) and builder.max_workers == cores


def tiled(sch: Schedule) -> None:
    for loop in sch.get_loops(sch.get_block("C")):
        sch.split(loop, sch.sample_perfect_tile(loop, 2, 8))


def test_a_model_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[tuple[int, bool]] = []

    class Small(XGBModel):
        def __init__(self) -> None:
            super().__init__(min_data=4, rounds=2, members=1)

        def learn(self, task: str, evaluations: Any, seconds: Any) -> None:
            learned.append((len(evaluations), self.knows(task)))
            super().learn(task, evaluations, seconds)

    registry = ms.cost_model.COST_MODELS
    monkeypatch.setitem(registry._entries, "small-for-test", Small)

    def tune(trials: int) -> None:
        options = quick(cost_model="small-for-test", space=tiled, strategy="replay-trace")
        ms.tune_tir(matmul(16, 16, 16), NATIVE, tmp_path, trials, **options)

    tune(8)
    (path,) = tmp_path.glob("cost_model_*.npz")
    assert not learned[0][1]
    learned.clear()
    tune(4)
    assert learned == [(4, True)]  # the records were not learned a second time
    path.write_bytes(b"no such thing")
    learned.clear()
    tune(4)
    assert not learned[0][1]
    damaged = dict(np.load(path, allow_pickle=False))
    damaged["sizes"] = damaged["sizes"] + 1
    np.savez(path, **damaged)
    with pytest.raises(TuneError, match="is damaged: its measurements"):
        XGBModel().load(path)


# ---- features ------------------------------------------------------------------------------------


def test_features_are_extracted_by_an_object(target: Target) -> None:
    context = ms.TuneContext(matmul(16, 32, 16), target=target, start_from_rules=False)
    context.pre_tuning(max_trials=4, num_trials_per_iter=4)
    candidates = context.generate_measure_candidates(2)
    plain = ms.FeatureExtractor.create("per-store-feature").extract_from(context, candidates)
    extractor = ms.PerStoreFeature(extract_workload=True)
    more = extractor.extract_from(context, candidates)
    for a, b in zip(plain, more):
        assert a.dtype == b.dtype == np.float32
        assert a.shape[1] == len(FEATURE_NAMES) and b.shape[1] == extractor.feature_vector_length
        np.testing.assert_array_equal(a, b[:, :-1])
        np.testing.assert_allclose(b[:, -1], np.log2(1 + context.flops))
    assert list(FEATURE_EXTRACTORS) == ["random-feature", "per-store-feature"]


def test_a_current_database_enables(tmp_path: Path) -> None:
    assert not is_meta_schedule_enabled() and not ms.is_meta_schedule_enabled()
    with ms.MemoryDatabase():
        assert ms.is_meta_schedule_enabled()
