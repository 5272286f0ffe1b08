"""Programs that tune as TVM's users write them: with parts of their own, and TVM's keywords."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tilewright.s_tir.meta_schedule.utils import derived_object

import tilewright as tvm
from tilewright import relax
from tilewright.relax.frontend import nn
from tilewright.s_tir import meta_schedule as ms
from tilewright.script import ir as I
from tilewright.script import tirx as T
from tilewright.support.errors import TuneError
from tilewright.target import Target

TARGET = Target({"kind": "llvm", "num-cores": 1})


@I.ir_module
class Product:
    @T.prim_func
    def main(a: T.handle, b: T.handle, c: T.handle) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        A = T.match_buffer(a, [32, 32])
        B = T.match_buffer(b, [32, 32])
        C = T.match_buffer(c, [32, 32])
        for i, j, k in T.grid(32, 32, 32):
            with T.sblock("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def check(sch: Any) -> None:
    assert sch is not None
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 32, 32), dtype=np.float32)
    c = np.zeros_like(a)
    tvm.compile(sch.mod, target=TARGET)["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)


def tune(folder: Path, trials: int = 4, **options: Any) -> Any:
    """Tune by parts of TVM's kinds, quickly: times are the numbers 1, 2, 3, …"""
    options.setdefault("builder", Library(folder))
    options.setdefault("runner", Count())
    database = ms.tune_tir(
        mod=Product,
        target=TARGET,
        work_dir=str(folder),
        max_trials_global=trials,
        num_trials_per_iter=2,
        seed=0,
        **options,
    )
    check(ms.tir_integration.compile_tir(database, Product, TARGET))
    return database


def tune_space(folder: Path, space: Any, trials: int = 4, **options: Any) -> Any:
    """Tune in a space of one's own alone, without what the rules of this project make."""
    context = ms.TuneContext(
        mod=Product,
        target=TARGET,
        space_generator=space,
        search_strategy="evolutionary",
        task_name="mine",
    )
    database = ms.tune_tasks(
        tasks=[context],
        task_weights=[1.0],
        work_dir=str(folder),
        max_trials_global=trials,
        num_trials_per_iter=2,
        builder=Library(folder),
        runner=Count(),
        **options,
    )
    check(ms.tir_integration.compile_tir(database, Product, TARGET))
    return database


@derived_object
class Library(ms.builder.PyBuilder):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.count = folder, 0

    def build(self, build_inputs: list[ms.builder.BuilderInput]) -> list[ms.builder.BuilderResult]:
        results = []
        for item in build_inputs:
            self.count += 1
            path = self.folder / f"{self.count}.tar"
            tvm.compile(item.mod, target=item.target).export_library(str(path))
            results.append(ms.builder.BuilderResult(str(path), None))
        return results


@derived_object
class Done(ms.runner.PyRunnerFuture):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def done(self) -> bool:
        return True

    def result(self) -> ms.runner.RunnerResult:
        return ms.runner.RunnerResult([self.seconds], None)


@derived_object
class Count(ms.runner.PyRunner):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def run(self, runner_inputs: list[ms.runner.RunnerInput]) -> list[Any]:
        futures = []
        for item in runner_inputs:
            assert item.device_type == "cpu"
            arrays = [np.ones(info.shape, info.dtype) for info in item.args_info]
            tvm.runtime.load_module(item.artifact_path)["main"](*arrays)
            np.testing.assert_allclose(arrays[2], 32)
            self.count += 1
            futures.append(Done(1e-3 * self.count))
        return futures


def test_a_tuned_function_is_in_the_database(tmp_path: Path) -> None:
    tune(tmp_path)
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    times = [min(map(float, rec.run_secs)) for rec in database.get_all_tuning_records()]
    assert len(database) == len(times) == 4
    record = database.query_tuning_record(Product, TARGET, workload_name="main")
    assert record is not None and float(record.run_secs[0]) == min(times)
    check(record.as_measure_candidate().sch)
    check(database.query_schedule(Product, TARGET, workload_name="main"))
    assert isinstance(database.query_ir_module(Product, TARGET, "main"), tvm.IRModule)
    workload = database.commit_workload(Product)
    top = database.get_top_k(workload, 3)
    assert [float(rec.run_secs[0]) for rec in top] == sorted(times)[:3]


@derived_object
class SplitRows(ms.schedule_rule.PyScheduleRule):
    seen: ClassVar[list[str]] = []

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        self.seen.append(context.task_name)

    def apply(self, sch: Any, block: Any) -> list[Any]:
        if sch.get(block).name_hint != "product":
            return [sch]
        i, j, k = sch.get_loops(block)
        outer, inner = sch.split(i, factors=sch.sample_perfect_tile(i, n=2))
        sch.reorder(outer, j, k, inner)
        return [sch]

    def clone(self) -> SplitRows:
        return SplitRows()


@derived_object
class Few(ms.postproc.PyPostproc):
    """Accepts what has few rows in its tile, as TVM's postprocs do: by a bool."""

    seen: ClassVar[list[int]] = []
    told: ClassVar[list[str]] = []

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        self.told.append(context.task_name)

    def apply(self, sch: Any) -> bool:
        inner = sch.get(sch.get_loops(sch.get_sblock("product"))[-1])
        self.seen.append(int(inner.extent))
        return int(inner.extent) <= 4

    def clone(self) -> Few:
        return Few()


def tiles(database: Any) -> set[int]:
    """The extents of the innermost loops of what was measured."""
    found = set()
    for record in database.get_all_tuning_records():
        sch = record.as_measure_candidate().sch
        found.add(int(sch.get(sch.get_loops(sch.get_sblock("product"))[-1]).extent))
    return found


def test_rules_and_postprocs_of_ones_own(tmp_path: Path) -> None:
    SplitRows.seen.clear(), Few.seen.clear(), Few.told.clear()
    space = ms.space_generator.PostOrderApply(
        sch_rules=[SplitRows()],
        postprocs=[Few()],
        mutator_probs={ms.mutator.MutateTileSize(): 1.0},
    )
    database = tune_space(tmp_path, space)
    assert "mine" in SplitRows.seen and "mine" in Few.told
    assert max(Few.seen) > 4, "none was drawn that it rejects"
    extents = tiles(database)
    assert extents and max(extents) <= 4


def test_postprocs_that_answer_something_else() -> None:
    class Odd(ms.postproc.PyPostproc):
        def apply(self, sch: Any) -> Any:
            return 1

    with pytest.raises(TuneError, match=r"Odd\.apply returns True, False, None or Rejected, got 1"):
        Odd().rejection(tvm.s_tir.Schedule(Product))


@derived_object
class Largest(ms.cost_model.PyCostModel):
    """Rates schedules by the extent of a loop: a model that a search must follow."""

    def __init__(self, sign: int) -> None:
        super().__init__()
        self.sign = sign
        self.rated: list[int] = []
        self.learned: list[tuple[int, int]] = []

    def load(self, path: str) -> None: ...

    def save(self, path: str) -> None: ...

    def update(self, context: Any, candidates: list[Any], results: list[Any]) -> None:
        assert context.task_name
        self.learned.append((len(candidates), len(results)))

    def predict(self, context: Any, candidates: list[Any]) -> np.ndarray:
        found = []
        for candidate in candidates:
            sch = candidate.sch
            found.append(int(sch.get(sch.get_loops(sch.get_sblock("product"))[-1]).extent))
        self.rated += found
        return self.sign * np.array(found, dtype="float64")


def rows(sch: Any) -> None:
    i, j, k = sch.get_loops(sch.get_sblock("product"))
    outer, inner = sch.split(i, factors=sch.sample_perfect_tile(i, n=2, max_innermost_factor=32))
    sch.reorder(outer, j, k, inner)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_search_follows_a_cost_model_of_ones_own(tmp_path: Path, sign: int) -> None:
    model = Largest(sign)
    space = ms.space_generator.ScheduleFn(rows, sch_rules=[], postprocs=[], mutator_probs={})
    database = tune_space(tmp_path, space, trials=2, cost_model=model)
    assert model.learned == [(2, 2)]
    assert len(set(model.rated)) > 2, "it rated only what is measured"
    best = sorted(set(model.rated), key=lambda extent: -sign * extent)
    assert tiles(database) == set(best[:2])


def test_scores_are_as_many_as_candidates(tmp_path: Path) -> None:
    class Wrong(ms.cost_model.PyCostModel):
        def predict(self, context: Any, candidates: list[Any]) -> np.ndarray:
            return np.zeros((len(candidates), 2))

    with pytest.raises(TuneError, match=r"Wrong\.predict returns a score for each candidate"):
        tune_space(tmp_path, rows, cost_model=Wrong())


@derived_object
class Listed(ms.database.PyDatabase):
    def __init__(self) -> None:
        super().__init__()
        self.workloads: list[Any] = []
        self.records_: list[Any] = []

    def has_workload(self, mod: Any) -> bool:
        return any(tvm.ir.structural_equal(mod, item.mod) for item in self.workloads)

    def commit_workload(self, mod: Any) -> Any:
        for item in self.workloads:
            if tvm.ir.structural_equal(item.mod, mod):
                return item
        self.workloads.append(ms.database.Workload(mod))
        return self.workloads[-1]

    def commit_tuning_record(self, record: Any) -> None:
        self.records_.append(record)

    def get_top_k(self, workload: Any, top_k: int) -> list[Any]:  # type: ignore[override]
        own = [rec for rec in self.records_ if rec.workload.hash == workload.hash]
        return sorted(own, key=lambda rec: float(np.mean(rec.run_secs)))[:top_k]

    def get_all_tuning_records(self) -> list[Any]:
        return self.records_

    def __len__(self) -> int:
        return len(self.records_)


def test_a_database_of_ones_own(tmp_path: Path) -> None:
    database = Listed()
    tune(tmp_path, database=database)
    assert len(database) == 4
    workload = database.find_workload(Product)  # without its symbol, as tuning commits it
    assert workload is not None
    assert len(database.get_top_k(workload, 2)) == 2
    assert not database.get_top_k(workload, 2, Target("cuda -arch=sm_90"))
    assert database.query_tuning_record(Product, Target("cuda -arch=sm_90")) is None
    with database:
        assert ms.Database.current() is database


@pytest.mark.parametrize("model", ["xgb", "mlp", "random"])
def test_parts_by_name(tmp_path: Path, model: str) -> None:
    tune(
        tmp_path,
        trials=2,
        builder="local",
        runner="local",
        cost_model=model,
        strategy="replay-trace" if model == "random" else "evolutionary",
        task_scheduler="round-robin",
        measure_callbacks="default",
        database="json",
        num_tuning_cores=1,
        module_equality="structural",
        space=rows,
    )


@pytest.mark.parametrize("rules", [True, False])
@pytest.mark.parametrize(
    "strategy", ["evolutionary", "replay-trace", "replay-func", "exhaustive", "coordinate-descent"]
)
@pytest.mark.parametrize(("max_trials", "found"), [(0, 0), (1, 1), (5, 5), (1000, 6)])
def test_a_context_is_driven_by_hand(
    strategy: str, rules: bool, max_trials: int, found: int
) -> None:
    """Until there are as many candidates as were asked for, or, of 6 tiles, no more."""
    context = ms.TuneContext(
        mod=Product,
        target=TARGET,
        space_generator=ms.space_generator.ScheduleFn(rows, [], [], {}),
        search_strategy=strategy,
        task_name="product",
        num_threads=1,
        start_from_rules=rules,
    )
    context.pre_tuning(
        max_trials=max_trials,
        num_trials_per_iter=2,
        design_spaces=context.generate_design_space(),
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(),
    )
    count = of_rules = 0
    while (candidates := context.generate_measure_candidates()) is not None:
        assert 0 < len(candidates) <= 2
        count += len(candidates)
        of_rules += sum(item.origin.startswith("rule") for item in candidates)
        results = [ms.runner.RunnerResult([0.1], None) for _ in candidates]
        context.notify_runner_results(candidates, results)
    assert context.generate_measure_candidates() is None
    context.post_tuning()
    assert context.generate_measure_candidates() is None
    assert count <= max_trials
    assert count - of_rules == found if not rules or max_trials == 1000 else count == found


def test_a_strategy_of_ones_own_is_driven_by_hand() -> None:
    @derived_object
    class Twice(ms.search_strategy.PySearchStrategy):
        """A strategy as TVM's users write one: it says by ``None`` that it has ended."""

        def __init__(self) -> None:
            super().__init__()
            self.batches = 0

        def _initialize_with_tune_context(self, context: Any) -> None:
            self.context_ = context

        def pre_tuning(self, max_trials: int, *others: Any) -> None:
            self.spaces = others[1]

        def post_tuning(self) -> None: ...

        def generate_measure_candidates(self) -> list[Any] | None:
            self.batches += 1
            if self.batches > 2:
                return None
            args = ms.arg_info.ArgInfo.from_entry_func(self.context_.mod)
            return [ms.MeasureCandidate(sch, args) for sch in self.spaces]

        def notify_runner_results(self, candidates: Any, results: Any) -> None: ...

    context = ms.TuneContext(
        mod=Product,
        target=TARGET,
        space_generator=rows,
        search_strategy=Twice(),
    )
    context.pre_tuning(100, 1)
    batches = list(iter(context.generate_measure_candidates, None))
    assert [len(batch) for batch in batches] == [1, 1]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 16)
        self.last = nn.Linear(16, 8, bias=False)

    def forward(self, x: Any) -> Any:
        return self.last(nn.op.relu(self.first(x)))


def test_a_model_is_tuned_in_part(tmp_path: Path) -> None:
    spec = {"forward": {"x": nn.spec.Tensor((1, 32), "float32")}}
    mod, params = Layers().export_tvm(spec)
    with TARGET:
        mod = relax.get_pipeline("zero")(mod)
    tasks = ms.relax_integration.extract_tasks(mod, TARGET, params=None)
    assert {task.weight for task in tasks} == {1}
    options: dict[str, Any] = {"target": TARGET, "work_dir": str(tmp_path)}
    database = ms.relax_integration.tune_relax(
        mod=mod,
        params={},
        max_trials_global=4,
        max_trials_per_task=2,
        num_trials_per_iter=2,
        op_names=["matmul"],
        cost_model="random",
        runner="local",
        module_equality="structural",
        **options,
    )
    assert len(database.get_all_tuning_records()) > 0
    shared = ms.database.MemoryDatabase()
    with TARGET, ms.database.OrderedUnionDatabase(shared, database):
        tuned = relax.transform.MetaScheduleApplyDatabase()(mod)
    marked = [f for f in tuned.functions.values() if f.attrs.get("tirx.is_scheduled")]
    assert marked
    rng = np.random.default_rng(0)
    x, *arrays = [rng.random(shape, dtype=np.float32) for shape in ((1, 32), *shapes(params))]
    expected = np.maximum(x @ arrays[0].T + arrays[1], 0) @ arrays[2].T
    ways: list[Callable[[], Any]] = [
        lambda: ms.relax_integration.compile_relax(database, mod, TARGET, params=None),
        lambda: tvm.compile(tuned, TARGET),
    ]
    for way in ways:
        machine = relax.VirtualMachine(way(), tvm.cpu())
        got = machine["forward"](*map(tvm.runtime.tensor, (x, *arrays))).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-4)


def shapes(params: Any) -> list[tuple[int, ...]]:
    return [tuple(map(int, param.shape)) for _, param in params]


def test_only_classes_are_marked() -> None:
    assert ms.derived_object is derived_object
    with pytest.raises(TypeError, match="decorates a class"):
        derived_object(Largest(1))  # type: ignore[type-var]
