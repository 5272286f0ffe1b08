"""Databases: round trips, which programs are the same, several databases and several writers."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
from database_cases import TARGET, add, lines_of, matmul, schedule, times

from tilewright import te
from tilewright.ir import IRModule, structural_equal
from tilewright.meta_schedule.arg_info import ScalarInfo, TensorInfo, arg_info_from_json
from tilewright.meta_schedule.database import (
    Database,
    JSONDatabase,
    MemoryDatabase,
    OrderedUnionDatabase,
    ScheduleFnDatabase,
    TuningRecord,
    UnionDatabase,
)
from tilewright.support.errors import ScheduleError, TuneError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

# ---- round trip ----------------------------------------------------------------------------------


def test_records_survive_a_round_trip(saved: Callable[..., Database]) -> None:
    made = add(saved(), matmul(), 1e-5)
    (read,) = saved().get_all_tuning_records()
    assert read.trace.as_json() == made.trace.as_json()
    assert read.run_secs == made.run_secs
    assert str(read.target) == str(made.target)
    assert read.args_info == made.args_info
    assert read.provenance == made.provenance
    assert read.workload.hash == made.workload.hash
    assert structural_equal(read.workload.mod, made.workload.mod)
    assert structural_equal(read.schedule().mod, made.schedule().mod)


def test_the_folder_may_be_given_as_the_first_argument_or_by_two_files(tmp_path: Path) -> None:
    add(JSONDatabase(tmp_path), matmul(), 1e-5)
    files = sorted(path for path in tmp_path.iterdir() if path.suffix == ".json")
    assert [path.name for path in files] == [
        "database_tuning_record.json",
        "database_workload.json",
    ]
    assert len(JSONDatabase(files[1], files[0])) == 1


def test_missing_files_are_an_error_if_asked_for(tmp_path: Path) -> None:
    assert len(JSONDatabase(work_dir=tmp_path / "new")) == 0
    with pytest.raises(TuneError, match=r"there is no database file .*database_workload\.json"):
        JSONDatabase(work_dir=tmp_path / "new", allow_missing=False)


def test_queries_answer_with_the_fastest_suitable_record(opened: Callable[..., Database]) -> None:
    database = opened()
    add(database, matmul(), 3e-5, factor=2)
    add(database, matmul(), 1e-5, factor=8)
    add(database, matmul(), 2e-5, factor=4)
    add(database, matmul(32), 1e-9)
    workload = database.commit_workload(matmul())
    assert [r.best_seconds for r in database.get_top_k(workload, 2)] == [1e-5, 2e-5]
    best = database.query_tuning_record(matmul(), TARGET)
    assert best is not None and best.best_seconds == 1e-5
    made = database.query_ir_module(matmul(), TARGET)
    assert made is not None and structural_equal(made, schedule(matmul(), 8).mod)
    assert database.query(matmul(), kind="record") is best
    assert database.query_tuning_record(matmul(64)) is None
    with pytest.raises(TuneError, match="unknown kind 'speed'; known: schedule, record, ir_module"):
        database.query(matmul(), kind="speed")


def test_a_global_name_does_not_matter() -> None:
    database = MemoryDatabase()
    add(database, matmul(), 1e-5)
    func = matmul()
    named = func.replace(attrs={**func.attrs, "global_symbol": "other", "op_pattern": 4})
    assert database.has_workload(IRModule({"fused_matmul": named}))


def test_records_of_other_vector_widths_or_cores_are_not_used() -> None:
    database = MemoryDatabase()
    add(database, matmul(), 1e-5)
    assert database.query_tuning_record(matmul(), TARGET) is not None
    for other in ("llvm -mcpu=haswell -num-cores=2", "llvm -mcpu=znver4 -num-cores=64"):
        assert database.query_tuning_record(matmul(), Target(other)) is None


def test_a_record_without_a_time_is_never_best() -> None:
    database = MemoryDatabase()
    workload = database.commit_workload(matmul())
    trace = schedule(matmul()).trace
    for seconds in (None, (), (float("nan"),), (-1.0,), (1e10,)):
        database.commit_tuning_record(TuningRecord(trace, workload, seconds, TARGET))
    assert len(database) == 5
    assert database.query_tuning_record(matmul()) is None


def test_dump_pruned_keeps_the_best_of_each_workload(saved: Callable[..., Database]) -> None:
    source, destination = MemoryDatabase(), saved()
    for seconds in (3e-5, 1e-5, 2e-5):
        add(source, matmul(), seconds)
    add(source, matmul(32), 5e-5)
    source.dump_pruned(destination)
    assert sorted(times(saved())) == [1e-5, 5e-5]


# ---- which modules are the same ------------------------------------------------------------------


def test_structural_equality_tells_epilogues_apart() -> None:
    database = MemoryDatabase("structural")
    add(database, matmul(), 1e-5)
    assert not database.has_workload(matmul(relu=True))


def test_anchor_block_equality_sees_reductions_only(opened: Callable[..., Database]) -> None:
    database = opened(module_equality="anchor-block")
    add(database, matmul(), 1e-5)
    assert database.has_workload(matmul(relu=True))
    assert not database.has_workload(matmul(32, relu=True))
    replayed = database.query_schedule(matmul(relu=True), TARGET)
    assert replayed is not None and "D" in replayed.mod.script()


def test_ignore_ndarray_equality_agrees_on_modules_without_constants() -> None:
    database = MemoryDatabase("ignore-ndarray")
    add(database, matmul(), 1e-5)
    assert database.has_workload(matmul()) and not database.has_workload(matmul(32))


def test_a_database_can_be_read_under_another_equality(saved: Callable[..., Database]) -> None:
    add(saved(), matmul(), 1e-5)
    anchor = saved(module_equality="anchor-block")
    assert anchor.query_tuning_record(matmul(relu=True), TARGET) is not None
    add(anchor, matmul(64), 2e-5)
    assert saved().has_workload(matmul(64))


def test_unknown_equality_is_an_error() -> None:
    with pytest.raises(TuneError, match=r"unknown module_equality 'structual'.*structural"):
        MemoryDatabase("structual")


# ---- several databases, the current one ----------------------------------------------------------


def test_union_takes_the_fastest_ordered_union_the_first() -> None:
    local, shared = MemoryDatabase(), MemoryDatabase()
    add(local, matmul(), 2e-5, factor=2)
    add(shared, matmul(), 1e-5, factor=8)
    add(shared, matmul(32), 3e-5)
    union, ordered = UnionDatabase(local, shared), OrderedUnionDatabase(local, shared)
    for database, expected in ((union, [1e-5, 2e-5]), (ordered, [2e-5])):
        record = database.query_tuning_record(matmul(), TARGET)
        assert record is not None and record.best_seconds == expected[0]
        top = database.get_top_k(local.commit_workload(matmul()), 5)
        assert [r.best_seconds for r in top] == expected
        assert database.query_ir_module(matmul(32), TARGET) is not None
        assert database.query_ir_module(matmul(64), TARGET) is None
        assert len(database) == 3
        with pytest.raises(TuneError, match="is for queries; commit workloads in one of its"):
            database.commit_workload(matmul(64))
        with pytest.raises(TuneError, match="is for queries; commit records in one of its"):
            database.commit_tuning_record(top[0])


def test_schedule_fn_decides_by_itself() -> None:
    def by_hand(sch: Schedule) -> bool:
        loops = sch.get_loops(sch.get_block("C"))
        if sch.get(loops[0]).extent.value != 16:
            return False
        sch.parallel(loops[0])
        return True

    database = ScheduleFnDatabase(by_hand)
    made = database.query_ir_module(matmul())
    assert made is not None and "T.parallel(16)" in made.script()
    assert database.query_ir_module(matmul(32)) is None
    measured = MemoryDatabase()
    add(measured, matmul(), 1e-5)
    record = UnionDatabase(database, measured).query_tuning_record(matmul())
    assert record is not None and record.best_seconds == 1e-5  # a measured time beats none


def test_with_makes_a_database_the_current_one() -> None:
    assert Database.current() is None
    outer, inner = MemoryDatabase(), MemoryDatabase()
    with outer:
        with inner:
            assert Database.current() is inner
        with pytest.raises(ValueError, match="left"), inner:
            raise ValueError("left")
        assert Database.current() is outer
    assert Database.current() is None


def test_unknown_kind_is_an_error() -> None:
    with pytest.raises(TuneError, match=r"unknown database 'text'; known: .*json"):
        Database.create("text")


# ---- several writers -----------------------------------------------------------------------------


def append_many(opened: Callable[..., Database], number: int) -> None:
    database = opened()
    for step in range(5):
        add(database, matmul((16, 32)[(step + number) % 2]), (100 * number + step + 1) * 1e-6)


def test_three_processes_write_at_once(saved: Callable[..., Database], tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=append_many, args=(saved, n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    database = saved()
    assert len({record.workload for record in database.records()}) == 2
    assert sorted(round(t * 1e6) for t in times(database)) == sorted(
        100 * number + step + 1 for number in range(3) for step in range(5)
    )
    assert not list(tmp_path.glob("*.corrupt"))


def test_reload_sees_what_others_wrote(tmp_path: Path) -> None:
    ours, theirs = JSONDatabase(work_dir=tmp_path), JSONDatabase(work_dir=tmp_path)
    add(theirs, matmul(), 1e-5)
    assert len(ours) == 0
    ours.reload()
    assert times(ours) == [1e-5]
    add(ours, matmul(), 2e-5)
    add(theirs, matmul(), 3e-5)
    assert len(lines_of(tmp_path / "database_workload.json")) == 1
    assert times(theirs) == [1e-5, 2e-5, 3e-5]


# ---- records -------------------------------------------------------------------------------------


def test_a_record_refuses_another_program() -> None:
    a = te.placeholder((16,), name="A")
    other = te.create_prim_func([a, te.compute((16,), lambda i: a[i] + 1.0, name="B")])
    record = add(MemoryDatabase(), matmul(), 1e-5)
    with pytest.raises(ScheduleError, match="replay failed at instruction 0 \\(get_block\\)"):
        record.schedule(IRModule({"main": other}))


def test_argument_descriptions_round_trip() -> None:
    for info in (TensorInfo("float32", (3, 4)), TensorInfo("int8", ()), ScalarInfo("int64", 7)):
        assert arg_info_from_json(json.loads(json.dumps(info.as_json()))) == info
    with pytest.raises(TuneError, match="not an argument description"):
        arg_info_from_json(["TENSOR", "float32"])
