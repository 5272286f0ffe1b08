"""Records that go from one database to another."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from database_cases import (
    PROGRAMS,
    TARGET,
    add,
    as_text,
    lines_of,
    matmul,
    random_record,
    schedule,
    times,
)

from tilewright.meta_schedule.database import Database, JSONDatabase, MemoryDatabase, TuningRecord
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.record import provenance
from tilewright.meta_schedule.database.transfer import (
    Exported,
    best_of_each,
    differences,
    export,
    merge,
)
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

CHOICE = GraphChoice("ab" * 16, TARGET, True, ("cd" * 16,))
OTHER = Target("llvm -mcpu=haswell -num-cores=2")


def some(database: Database) -> Database:
    for n, seconds, target in ((16, 3e-5, TARGET), (16, 1e-5, TARGET), (16, 2e-5, OTHER)):
        add(database, matmul(n), seconds, target=target)
    add(database, matmul(32), 4e-5)
    database.commit_graph_choice(CHOICE)
    return database


def add_one(database: Database) -> list[TuningRecord]:
    add(database, matmul(16), 3e-5)
    return database.get_all_tuning_records()


def test_a_merge_adds_what_is_not_there(saved: Callable[..., Database]) -> None:
    source, destination = some(MemoryDatabase()), saved()
    add(destination, matmul(32), 4e-5)
    made = merge(destination, source.records(), source.graph_choices())
    assert (made.added, made.known, made.choices, sum(made.refused.values())) == (3, 1, 1, 0)
    again = saved()
    assert times(again) == [4e-5, 3e-5, 1e-5, 2e-5]
    assert again.graph_choice(CHOICE.graph, TARGET) == CHOICE
    made = merge(again, source.records(), source.graph_choices())
    assert (made.added, made.known, made.choices) == (0, 4, 0)


@pytest.mark.parametrize("seed", range(3))
def test_merged_records_are_there_once(seed: int, opened: Callable[..., Database]) -> None:
    rng, destination = random.Random(seed), opened()
    every = []
    for program in PROGRAMS:
        for _ in range(15):
            found = TuningRecord.data_from_json(random_record(rng, 0))
            every.append(TuningRecord.from_data(found, program))
    every += rng.sample(every, 10)
    rng.shuffle(every)
    merge(destination, every[:20])
    assert all(map(destination.has_tuning_record, every[:20]))
    made = merge(destination, every)
    texts = as_text(destination.get_all_tuning_records())
    assert texts == list(dict.fromkeys(as_text(every))) and made.added + made.known == len(every)


@pytest.mark.parametrize("seconds", [(), (1,)])
def test_times_in_other_words_are_the_same(
    seconds: tuple[float, ...], saved: Callable[..., Database]
) -> None:
    """No times are stored as none, whole seconds as floating-point numbers."""
    (record,) = add_one(MemoryDatabase())
    record = replace(record, run_secs=seconds)
    assert [merge(saved(), [record]).added for _ in range(2)] == [1, 0]


def test_whether_and_how_often_differ(opened: Callable[..., Database]) -> None:
    (record,) = add_one(MemoryDatabase())
    both = [replace(record, provenance={"flag": flag}) for flag in (True, 1)]
    assert [merge(opened(), [each]).added for each in both] == [1, 1]


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_provenance_that_is_no_json(value: object, saved: Callable[..., Database]) -> None:
    (record,) = add_one(MemoryDatabase())
    with pytest.raises(TuneError, match="can't be kept in a database"):
        saved().commit_tuning_record(replace(record, provenance={"value": value}))


def test_records_of_what_is_no_program_are_left_out(tmp_path: Path) -> None:
    source = JSONDatabase(work_dir=tmp_path)
    some(source)
    path = tmp_path / "database_workload.json"
    path.write_text(path.read_text().replace("T.grid", "T.gird", 1))
    made = merge(MemoryDatabase(), JSONDatabase(work_dir=tmp_path).records())
    assert (made.added, made.refused) == (1, {"its program can't be read (ScriptError)": 3})


def test_records_that_no_file_keeps_are_left_out(opened: Callable[..., Database]) -> None:
    source, destination = MemoryDatabase(), opened()
    record = add(source, matmul(16), 1e-5)
    odd = replace(record, provenance={"version": math.nan})
    made = merge(destination, [odd, record])
    assert (made.added, made.refused) == (1, {"its provenance is no JSON": 1})


@pytest.mark.parametrize("keep, expected", [(1, [1e-5, 2e-5, 4e-5]), (2, [1e-5, 3e-5, 2e-5, 4e-5])])
def test_the_best_of_each_workload_and_target(
    keep: int, expected: list[float], opened: Callable[..., Database]
) -> None:
    found = best_of_each(some(opened()), keep)
    assert [record.best_seconds for record in found] == expected


@pytest.mark.parametrize("keep, expected", [(1, [3e-5, 1e-5]), (2, [3e-5, 4e-5, 1e-5, 2e-5])])
def test_times_with_cold_caches_and_with_warm_ones_do_not_hide_each_other(
    keep: int, expected: list[float], opened: Callable[..., Database]
) -> None:
    database = opened()
    for seconds, caches in ((1e-5, "warm"), (2e-5, "warm"), (3e-5, "cold"), (4e-5, "cold"),
                            (5e-5, "cold"), (6e-5, "warm")):  # fmt: skip
        made = provenance({"against": "it"}, timing={"caches": caches})
        workload = database.commit_workload(matmul(16))
        record = TuningRecord(schedule(matmul(16)).trace, workload, (seconds,), TARGET, None, made)
        database.commit_tuning_record(record)
    assert [record.best_seconds for record in best_of_each(database, keep)] == expected
    pruned = MemoryDatabase()
    database.dump_pruned(pruned)
    assert [x.best_seconds for x in pruned.get_all_tuning_records()] == [3e-5, 1e-5]
    assert [x.best_seconds for x in best_of_each(pruned, keep)] == [3e-5, 1e-5]
    # Who knows where a function finds its constants still gets what was measured so.
    for cold, seconds in ((True, 3e-5), (False, 1e-5)):
        found = pruned.query_replayed(matmul(16), TARGET, cold=cold)
        assert found is not None and found.record.best_seconds == seconds


def test_records_that_serve_graphs_best_are_kept_too(opened: Callable[..., Database]) -> None:
    database, made = opened(), []
    for seconds, factor in ((1e-5, 2), (2e-5, 4), (3e-5, 8)):
        sch = Schedule(matmul(16))
        sch.split(sch.get_loops(sch.get_block("C"))[0], [None, factor])
        workload = database.commit_workload(matmul(16))
        made.append(TuningRecord(sch.trace, workload, (seconds,), TARGET))
        database.commit_tuning_record(made[-1])
    named = (made[0].workload.hash, made[2].digest), ("9" * 32, made[1].digest)
    choice = replace(CHOICE, records=named)
    for keep, expected in ((1, [1e-5, 3e-5]), (2, [1e-5, 2e-5, 3e-5]), (3, [1e-5, 2e-5, 3e-5])):
        found = best_of_each(database, keep, [choice])
        assert [record.best_seconds for record in found] == expected


def test_differences_of_best_records(opened: Callable[..., Database]) -> None:
    first, second = some(opened()), MemoryDatabase()
    add(second, matmul(16), 4e-5)
    add(second, matmul(64), 5e-5)
    found = differences(first, second)
    assert [
        (x.first and x.first.best_seconds, x.second and x.second.best_seconds) for x in found
    ] == [(1e-5, 4e-5), (2e-5, None), (4e-5, None), (None, 5e-5)]
    assert [item.ratio for item in found] == [0.25, None, None, None]


def timed(database: Database, seconds: float, caches: str, sizes: tuple[int, ...] = ()) -> None:
    made = provenance({"against": "it"}, timing={"caches": caches}, sizes=sizes)
    workload = database.commit_workload(matmul(16))
    trace = schedule(matmul(16)).trace
    database.commit_tuning_record(TuningRecord(trace, workload, (seconds,), TARGET, None, made))


@pytest.mark.parametrize("ours, theirs, expected", [
    ("cold warm", "cold warm", [(1e-5, 4e-5, 0.25), (2e-5, 5e-5, 0.4)]),
    ("warm cold", "warm cold", [(2e-5, 5e-5, 0.4), (1e-5, 4e-5, 0.25)]),
    ("cold warm", "warm", [(2e-5, 4e-5, 0.5)]),
    ("cold", "warm", [(1e-5, 4e-5, None)]),
    ("warm", "", [(1e-5, None, None)]),
])  # fmt: skip
def test_times_are_compared_with_their_like(
    ours: str,
    theirs: str,
    expected: list[tuple[float, float | None, float | None]],
    opened: Callable[..., Database],
) -> None:
    first, second = opened(), MemoryDatabase()
    for place, caches in enumerate(ours.split()):
        timed(first, 1e-5 * (place + 1), caches)
        timed(first, 9e-5, caches)
    for place, caches in enumerate(theirs.split()):
        timed(second, 1e-5 * (place + 4), caches)
    found = differences(first, second)
    assert [x.first and x.first.best_seconds for x in found] == [x for x, _, _ in expected]
    assert [x.second and x.second.best_seconds for x in found] == [x for _, x, _ in expected]
    for item, (_, _, ratio) in zip(found, expected):
        assert item.ratio == (None if ratio is None else pytest.approx(ratio))


def test_times_at_several_sizes_are_not_compared_with_those_at_one() -> None:
    first, second = MemoryDatabase(), MemoryDatabase()
    timed(first, 1e-5, "warm", (1, 16))
    timed(second, 2e-5, "warm")
    (found,) = differences(first, second)
    assert found.ratio is None


@pytest.mark.parametrize("name", ["all.jsonl", "all.jsonl.gz"])
def test_one_file_holds_a_database(tmp_path: Path, name: str) -> None:
    source, path, made = some(MemoryDatabase()), tmp_path / name, MemoryDatabase()
    assert export(path, source.records(), source.graph_choices()) == 4
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    file = Exported(path)
    merge(made, file.records(), file.choices)
    assert times(made) == times(source) and made.graph_choices() == [CHOICE]
    assert not merge(source, made.records(), made.graph_choices()).added


@pytest.mark.parametrize(
    "data, match",
    [
        (b"", "is no exported database"),
        (b"{torn\n", "is no exported database"),
        (b"[7]\n", "is no exported database"),
        (b'["tilewright-database",2]\n', r"is of format \[2\]; this version reads 1"),
        (gzip.compress(b"x", mtime=0), "is no exported database"),
    ],
)
def test_a_file_that_holds_no_database(tmp_path: Path, data: bytes, match: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(TuneError, match=match):
        list(Exported(path).records())


def test_damage_costs_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    export(path, some(MemoryDatabase()).records(), [CHOICE])
    lines = lines_of(path)
    assert [json.loads(line)[0] for line in lines[1:4]] == ["workload", "record", "record"]
    lines[2] = lines[2][:-5]
    lines[3:3] = ["[", "[]", '["what"]', '["workload",7]', '["record",[99,[[],null,null,[],{}]]]']
    path.write_text("".join(f"{line}\n" for line in lines))
    file, made = Exported(path), MemoryDatabase()
    merge(made, file.records(), file.choices)
    assert sum(file.refused.values()) == 7  # the record of the second program, too
    assert times(made)[:2] == [1e-5, 2e-5] and made.graph_choices() == [CHOICE]


def test_a_packed_file_that_is_cut_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    export(path, some(MemoryDatabase()).records(), [])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TuneError, match="can't be read"):
        list(Exported(path).records())


def test_a_record_that_is_no_json_is_left_out_of_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record, *_ = some(MemoryDatabase()).get_all_tuning_records()
    odd = replace(record, provenance={"version": math.nan})
    assert export(tmp_path / "file", [odd, record], []) == 1
    assert "its provenance is no JSON" in caplog.text
    assert len(list(Exported(tmp_path / "file").records())) == 1
