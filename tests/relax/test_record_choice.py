"""Which of the best records of each function serves a graph: a fake clock decides here."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.relax.helpers import graph, random, tensor
from tilewright import relax
from tilewright.ir import IRModule, structural_equal
from tilewright.meta_schedule.database import (
    Database,
    JSONDatabase,
    MemoryDatabase,
    TuningRecord,
)
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.record import provenance
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.relax import op
from tilewright.relax.execution.executable import Executable
from tilewright.relax.tuning import graph_race, record_choice
from tilewright.relax.tuning.graph_race import graph_hash
from tilewright.relax.tuning.models import (
    apply_database,
    compile_relax,
    extract_tasks,
    race_graph,
    to_tensor_functions,
)
from tilewright.relax.tuning.record_choice import nominees, served_best, turns
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.support.errors import BuildError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=1)
CHECKED = provenance({"against": "unscheduled program", "trusted_timing": True})


def network() -> IRModule:
    """Two functions: a softmax and a sum."""
    return graph(lambda x: op.sum(op.nn.softmax(x), axis=0), tensor((6, 40)))


def split(factor: int) -> Callable[[Schedule], None]:
    def schedule(sch: Schedule) -> None:
        for block in sch.get_child_blocks(sch.get_block("root")):
            sch.split(sch.get_loops(block)[0], [None, factor])

    return schedule


def commit(
    database: Database,
    mod: IRModule,
    seconds: float,
    schedule: Callable[[Schedule], None],
    said: Mapping[str, object] = CHECKED,
) -> dict[str, str]:
    """A record of each task; returns their digests by workload."""
    made = {}
    for task in extract_tasks(mod, TARGET):
        workload = database.commit_workload(task.mod)
        sch = Schedule(task.mod)
        schedule(sch)
        record = TuningRecord(sch.trace, workload, (seconds,), TARGET, provenance=said)
        database.commit_tuning_record(record)
        made[workload.hash] = record.digest
    return made


def named(database: Database, most: int = 4) -> dict[str, list[str]]:
    functions = to_tensor_functions(network(), TARGET)
    return {
        name: [item.digest for item in some]
        for name, some in nominees(functions, database, TARGET, most).items()
    }


def named_functions(mod: IRModule) -> list[str]:
    functions = to_tensor_functions(mod, TARGET).functions
    return [name for name, function in functions.items() if isinstance(function, PrimFunc)]


# ---- who is measured -----------------------------------------------------------------------------


def test_the_best_records_are_nominated_best_first_without_doubles() -> None:
    database = MemoryDatabase()
    by_factor = {n: commit(database, network(), n * 1e-3, split(n)) for n in (3, 2, 5)}
    commit(database, network(), 9e-3, split(2))  # again, and slower
    for name, digests in named(database).items():
        workload = next(key for key, digest in by_factor[2].items() if digest == digests[0])
        assert digests == [by_factor[n][workload] for n in (2, 3, 5)], name
    assert all(len(digests) == 2 for digests in named(database, 2).values())


def test_records_that_nobody_checked_are_nominated_only_where_there_are_no_others() -> None:
    database = MemoryDatabase()
    for factor in (2, 3):
        commit(database, network(), factor * 1e-3, split(factor), said={})
    assert all(len(digests) == 1 for digests in named(database).values())
    checked = commit(database, network(), 9e-3, split(5))
    assert sorted(x for digests in named(database).values() for x in digests) == sorted(
        checked.values()
    )


def test_what_the_rules_make_is_no_nominee() -> None:
    mod, database = network(), MemoryDatabase()
    functions = to_tensor_functions(mod, TARGET)
    for task in extract_tasks(mod, TARGET):
        sch = TuneContext(mod=task.mod, target=TARGET).rule_schedule()
        assert sch is not None
        database.commit_tuning_record(
            TuningRecord(
                sch.trace, database.commit_workload(task.mod), (1e-3,), TARGET, provenance=CHECKED
            )
        )
    assert nominees(functions, database, TARGET, 4) == {}


def test_scheduled_functions_have_no_nominees() -> None:
    database = MemoryDatabase()
    commit(database, network(), 1e-3, split(2))
    functions = to_tensor_functions(network(), TARGET)
    applied = MetaScheduleApplyDatabase(database=database, target=TARGET)(functions)
    assert nominees(applied, database, TARGET, 4) == {}


# ---- who wins ------------------------------------------------------------------------------------


def test_each_function_gets_what_is_fastest_in_its_place() -> None:
    database = MemoryDatabase()
    for factor in (2, 3):
        commit(database, network(), factor * 1e-3, split(factor))
    some = nominees(to_tensor_functions(network(), TARGET), database, TARGET, 2)
    first, second = some
    ways = [{first: 1.2, second: 1.3}, {first: 1.4, second: 1.1}]
    assert served_best(some, ways) == {first: some[first][1], second: some[second][0]}
    # Not what is as fast as by rule, nor what was not seen to run.
    assert served_best(some, [{first: 1.005}, {first: 0.7}]) == {}


def test_turns_end_when_time_is_over_but_some_are_taken() -> None:
    assert list(turns(8, 5, float("inf"))) == list(range(8))
    assert list(turns(8, 5, 0.0)) == list(range(5))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Settles the graph; ``speeds`` has those of the kernels of each graph that is compared."""

    def settle(database: Database, speeds: list[dict[str, float]]) -> None:
        given, seen = itertools.chain(speeds, itertools.repeat({})), list[Executable]()

        def gains(by_rule: Executable, *_: object) -> dict[str, float]:
            seen.append(by_rule)
            return next(given)

        def turn(executable: Executable, inputs: object) -> float:
            return 1.0 if executable is seen[0] else 0.5

        monkeypatch.setattr(graph_race, "gains", gains)
        monkeypatch.setattr(graph_race, "_turn", turn)
        race_graph(network(), TARGET, database)

    return settle


def choice_of(database: Database) -> GraphChoice:
    found = database.graph_choice(graph_hash(network()), TARGET)
    assert found is not None
    return found


def test_the_choice_names_records_and_builds_use_them(
    settled: Callable[..., None], tmp_path: Path
) -> None:
    database = JSONDatabase(work_dir=tmp_path)
    best = commit(database, network(), 1e-3, split(2))
    other = commit(database, network(), 2e-3, split(3))
    first, second = list(named(database))
    settled(
        database,
        [{first: 1.1, second: 0.9}, {first: 1.3, second: 0.8}, {first: 1.2, second: 1.0}],
    )
    choice = choice_of(JSONDatabase(work_dir=tmp_path))
    (left,), ((workload, digest),) = choice.by_rule, choice.records
    assert {left, workload} == set(best) and digest == other[workload]

    opened = JSONDatabase(work_dir=tmp_path)
    mod, report = apply_database(opened, network(), TARGET)
    outcomes = {item.name: item.outcome for item in report}
    assert outcomes == {first: "record", second: "rule"}
    wanted = Schedule(next(t.mod for t in extract_tasks(network(), TARGET)
                           if opened.commit_workload(t.mod).hash == workload))  # fmt: skip
    split(3)(wanted)
    made = mod[first]
    assert isinstance(made, PrimFunc)
    assert structural_equal(made.body, wanted.mod["main"].body, map_free_vars=True)
    x = random(6, 40, seed=3)
    np.testing.assert_allclose(
        np.asarray(compile_relax(opened, network(), TARGET)(x)),
        np.asarray(relax.build(network(), TARGET)(x)),
        rtol=1e-5,
    )


def test_what_was_only_lucky_is_put_back(settled: Callable[..., None]) -> None:
    database = MemoryDatabase()
    commit(database, network(), 1e-3, split(2))
    first, second = list(named(database))
    settled(database, [{first: 1.1, second: 1.1}, {first: 0.99, second: 1.05}])
    choice = choice_of(database)
    assert len(choice.by_rule) == len(choice.records) == 1


def test_where_nothing_is_faster_all_is_left_to_the_rules(
    settled: Callable[..., None],
) -> None:
    database = MemoryDatabase()
    recorded = commit(database, network(), 1e-3, split(2))
    settled(database, [{}])
    assert choice_of(database).records == ()
    assert set(choice_of(database).by_rule) == set(recorded)


def test_a_record_that_is_gone_is_missed(caplog: pytest.LogCaptureFixture) -> None:
    database = MemoryDatabase()
    recorded = commit(database, network(), 1e-3, split(2))
    gone = tuple((workload, "0" * 32) for workload in recorded)
    database.commit_graph_choice(GraphChoice(graph_hash(network()), TARGET, False, (), gone))
    with caplog.at_level(logging.WARNING):
        _, report = apply_database(database, network(), TARGET)
    assert {item.outcome for item in report} == {"record"}
    assert "which served a graph best, is gone" in caplog.text


def test_kernels_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = network()
    graphs = [relax.build(mod, TARGET), relax.build(mod, TARGET)]
    order = []
    real = record_choice.profile

    def profile(executable: Executable, *rest: object, **options: object) -> object:
        order.append(graphs.index(executable))
        return real(executable, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(record_choice, "profile", profile)
    names = {name: name for name in named_functions(mod)}
    found = record_choice.gains(*graphs, {"main": [random(6, 40)]}, range(4), names)
    assert order == [0, 1, 1, 0, 0, 1, 1, 0]
    assert len(found) == 2 and all(value > 0.0 for value in found.values())


@I.ir_module
class Twins:
    @T.prim_func(private=True)
    def first(A: T.Buffer((48, 40), "float32"), B: T.Buffer((48, 40), "float32")):
        for i, j in T.grid(48, 40):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1.0)

    @T.prim_func(private=True)
    def second(A: T.Buffer((48, 40), "float32"), B: T.Buffer((48, 40), "float32")):
        for i, j in T.grid(48, 40):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1.0)

    @R.function
    def main(x: R.Tensor((48, 40), "float32")) -> R.Tensor((48, 40), "float32"):
        cls = Twins
        with R.dataflow():
            a = R.call_tir(cls.first, (x,), out_sinfo=R.Tensor((48, 40), "float32"))
            b = R.call_tir(cls.second, (a,), out_sinfo=R.Tensor((48, 40), "float32"))
            R.output(b)
        return b


class FakeProfile:
    """A profile of kernels that took so long."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.rows = [SimpleNamespace(name=name, seconds=x) for name, x in seconds.items()]

    def kernels(self) -> list[SimpleNamespace]:
        return self.rows


def test_functions_of_one_workload_get_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    database = MemoryDatabase()
    (best,) = commit(database, Twins, 1e-3, split(2)).values()
    (other,) = commit(database, Twins, 2e-3, split(3)).values()
    # The best one is good for the second function and bad for the first, the other is better
    # for both together.
    built = list[Executable]()
    seconds = [
        {"first": 1.0, "second": 1.0},
        {"first": 1.6, "second": 0.5},
        {"first": 0.8, "second": 0.9},
        {"first": 0.8, "second": 0.9},
    ]

    def profile(executable: Executable, *_: object, **__: object) -> FakeProfile:
        if executable not in built:
            built.append(executable)
        return FakeProfile(seconds[built.index(executable)])

    monkeypatch.setattr(record_choice, "profile", profile)
    monkeypatch.setattr(graph_race, "_turn", lambda way, _: 1.0 if way is built[0] else 0.5)
    race_graph(Twins, TARGET, database)
    (choice,) = database.graph_choices()
    assert [digest for _, digest in choice.records] == [other] != [best]
    assert choice.by_rule == ()


def test_kernels_that_take_no_time_or_are_not_called_have_no_speedup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphs = [relax.build(network(), TARGET), relax.build(network(), TARGET)]
    times = {graphs[0]: {"a": 2.0, "b": 0.0, "c": 1.0}, graphs[1]: {"a": 1.0, "b": 0.0}}
    monkeypatch.setattr(record_choice, "profile", lambda way, *_, **__: FakeProfile(times[way]))
    names = {name: name for name in ("a", "b", "c", "d")}
    assert record_choice.gains(*graphs, {"main": []}, range(5), names) == {"a": 2.0}


def test_records_that_cannot_be_built_in_the_graph_do_not_spoil_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database = MemoryDatabase()
    best = commit(database, network(), 1e-3, split(2))
    other = commit(database, network(), 2e-3, split(3))
    real, count = graph_race._built, itertools.count()

    def built(choice: GraphChoice, functions: IRModule) -> object:
        if next(count) == 1:  # by rule, with the best records, with the next ones
            raise BuildError("not this one")
        return real(choice, functions)

    monkeypatch.setattr(graph_race, "_built", built)
    monkeypatch.setattr(graph_race, "gains", lambda *_: dict.fromkeys(named(database), 2.0))
    clock = iter([1.0, 0.5, 0.5, 1.0] * graph_race._ROUNDS)
    monkeypatch.setattr(graph_race, "_turn", lambda *_: next(clock))
    race_graph(network(), TARGET, database)
    assert dict(choice_of(database).records) == other != best
    assert "not this one" in caplog.text


# ---- on disk -------------------------------------------------------------------------------------


def test_choices_with_and_without_records_are_read() -> None:
    for records in ((), (("a" * 32, "b" * 32), ("c" * 64, "d" * 32))):
        choice = GraphChoice("e" * 32, TARGET, True, ("f" * 32,), records)
        assert GraphChoice.from_json(choice.as_json()) == choice
    assert len(GraphChoice("e" * 32, TARGET, True, ()).as_json()) == 4  # as it was always written


@pytest.mark.parametrize("records", [[], None, {"x": "b" * 32}, {"a" * 32: 1}, {"a" * 32: "../b"}])
def test_choices_with_other_data_are_refused(records: object) -> None:
    data = [*GraphChoice("e" * 32, TARGET, True, ()).as_json(), records]
    with pytest.raises(Exception, match="not a choice for a graph"):
        GraphChoice.from_json(data)
