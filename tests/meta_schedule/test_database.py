"""Databases: records survive round trips, crashes, corruption and several writers."""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
from pathlib import Path

import pytest

from tilewright import te
from tilewright.ir import IRModule, structural_equal
from tilewright.meta_schedule.arg_info import ScalarInfo, TensorInfo, arg_info_from_json, arg_infos
from tilewright.meta_schedule.database import (
    Database,
    JSONDatabase,
    MemoryDatabase,
    OrderedUnionDatabase,
    ScheduleFnDatabase,
    TuningRecord,
    UnionDatabase,
    schema,
)
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.support.errors import ScheduleError, TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")


def matmul(n: int = 16, relu: bool = False) -> PrimFunc:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    if not relu:
        return te.create_prim_func([a, b, c])
    d = te.compute((n, n), lambda i, j: te.exp(c[i, j]), name="D")
    return te.create_prim_func([a, b, d])


def schedule(mod: PrimFunc | IRModule, factor: int = 4) -> Schedule:
    sch = Schedule(mod, seed=1)
    i, _, _ = sch.get_loops(sch.get_block("C"))
    outer, _ = sch.split(i, [None, factor])
    sch.parallel(outer)
    return sch


def add(
    database: Database, func: PrimFunc, seconds: float, factor: int = 4, target: Target = TARGET
) -> TuningRecord:
    workload = database.commit_workload(func)
    record = TuningRecord(
        schedule(workload.mod, factor).trace,
        workload,
        (seconds, seconds * 2, seconds),
        target,
        arg_infos(func),
        {"version": "x", "verified": {"relative_difference": 1e-7}},
    )
    database.commit_tuning_record(record)
    return record


def times(database: Database) -> list[float]:
    return [record.best_seconds for record in database.get_all_tuning_records()]


# ---- round trip ----------------------------------------------------------------------------------


def test_records_survive_a_round_trip(tmp_path: Path) -> None:
    made = add(JSONDatabase(work_dir=tmp_path), matmul(), 1e-5)
    (read,) = JSONDatabase(work_dir=tmp_path).get_all_tuning_records()
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


@pytest.mark.parametrize("kind", ["memory", "json"])
def test_queries_answer_with_the_fastest_suitable_record(kind: str, tmp_path: Path) -> None:
    options = {"work_dir": tmp_path} if kind == "json" else {}
    database = Database.create(kind, **options)
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


@pytest.mark.parametrize("kind", ["memory", "json"])
def test_the_winner_of_the_latest_comparison_is_best(kind: str, tmp_path: Path) -> None:
    database = JSONDatabase(work_dir=tmp_path) if kind == "json" else MemoryDatabase()
    func = matmul()
    for seconds, factor, origin in [
        (1e-6, 2, {}),
        (3e-6, 4, {"decided": True, "time": 2.0}),
        (2e-6, 8, {"decided": True, "time": 1.0}),
        (2e-6, 1, {"decided": True, "time": "today"}),
        (1e-6, 16, {"decided": "yes", "time": 9.0}),
    ]:
        plain = add(MemoryDatabase(), func, seconds, factor)
        workload = database.commit_workload(func)
        made = TuningRecord(plain.trace, workload, plain.run_secs, TARGET, plain.args_info, origin)
        database.commit_tuning_record(made)
    ranked = database.get_top_k(database.commit_workload(func), 5, TARGET)
    assert [r.best_seconds for r in ranked] == [3e-6, 2e-6, 2e-6, 1e-6, 1e-6]
    assert [r.decided for r in ranked] == [True, True, True, False, False]
    pruned = MemoryDatabase()
    database.dump_pruned(pruned)
    best = UnionDatabase(database, pruned).query_tuning_record(func, TARGET)
    assert len(pruned) == 1 and best is not None and best.best_seconds == 3e-6


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


def test_dump_pruned_keeps_the_best_of_each_workload(tmp_path: Path) -> None:
    source, destination = MemoryDatabase(), JSONDatabase(work_dir=tmp_path)
    for seconds in (3e-5, 1e-5, 2e-5):
        add(source, matmul(), seconds)
    add(source, matmul(32), 5e-5)
    source.dump_pruned(destination)
    assert sorted(times(JSONDatabase(work_dir=tmp_path))) == [1e-5, 5e-5]


# ---- which modules are the same ------------------------------------------------------------------


def test_structural_equality_tells_epilogues_apart() -> None:
    database = MemoryDatabase("structural")
    add(database, matmul(), 1e-5)
    assert not database.has_workload(matmul(relu=True))


@pytest.mark.parametrize("kind", ["memory", "json"])
def test_anchor_block_equality_sees_reductions_only(kind: str, tmp_path: Path) -> None:
    options = {"work_dir": tmp_path} if kind == "json" else {}
    database = Database.create(kind, module_equality="anchor-block", **options)
    add(database, matmul(), 1e-5)
    assert database.has_workload(matmul(relu=True))
    assert not database.has_workload(matmul(32, relu=True))
    replayed = database.query_schedule(matmul(relu=True), TARGET)
    assert replayed is not None and "D" in replayed.mod.script()


def test_ignore_ndarray_equality_agrees_on_modules_without_constants() -> None:
    database = MemoryDatabase("ignore-ndarray")
    add(database, matmul(), 1e-5)
    assert database.has_workload(matmul()) and not database.has_workload(matmul(32))


def test_files_can_be_read_under_another_equality(tmp_path: Path) -> None:
    add(JSONDatabase(work_dir=tmp_path), matmul(), 1e-5)
    anchor = JSONDatabase(work_dir=tmp_path, module_equality="anchor-block")
    assert anchor.query_tuning_record(matmul(relu=True), TARGET) is not None
    add(anchor, matmul(64), 2e-5)
    assert JSONDatabase(work_dir=tmp_path).has_workload(matmul(64))


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
    with pytest.raises(TuneError, match=r"unknown database 'sql3'; known: .*json"):
        Database.create("sql3")


# ---- corruption ----------------------------------------------------------------------------------


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A folder with three workloads and a record of each."""
    database = JSONDatabase(work_dir=tmp_path)
    for seconds, n in ((1e-5, 16), (2e-5, 32), (3e-5, 64)):
        add(database, matmul(n), seconds)
    return tmp_path


@pytest.mark.parametrize("damage", ["{torn", '["only a hash"]', "\x00\x00\x00", "[" * 100_000])
def test_a_corrupt_workload_line_is_set_aside(
    three: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = three / "database_workload.json"
    lines = lines_of(path)
    path.write_text("\n".join([lines[0], damage, lines[2]]) + "\n")
    with caplog.at_level(logging.WARNING):
        database = JSONDatabase(work_dir=three)
    assert (
        "a line of" in caplog.text and "set aside in database_workload.json.corrupt" in caplog.text
    )
    assert lines_of(three / "database_workload.json.corrupt") == [damage]
    # The record of the lost workload has nothing to belong to; the others keep theirs.
    assert times(database) == [1e-5, 3e-5]
    assert len(lines_of(three / "database_tuning_record.json.corrupt")) == 1
    for n, expected in ((16, 1e-5), (64, 3e-5)):
        record = database.query_tuning_record(matmul(n), TARGET)
        assert record is not None and record.best_seconds == expected
    # New ones get the right index.
    add(database, matmul(8), 4e-5)
    again = JSONDatabase(work_dir=three)
    record = again.query_tuning_record(matmul(8), TARGET)
    assert record is not None and record.best_seconds == 4e-5
    # Set aside once, not at each opening.
    assert lines_of(three / "database_workload.json.corrupt") == [damage]


@pytest.mark.parametrize(
    "right, wrong", [("T.grid", "T.gird"), ("C[v_i, v_j])", "C[v_i, j])"), ('"SSR"', '"SS"')]
)
def test_a_workload_whose_text_is_no_program_is_set_aside_when_it_is_needed(
    three: Path, caplog: pytest.LogCaptureFixture, right: str, wrong: str
) -> None:
    path = three / "database_workload.json"
    lines = lines_of(path)
    assert right in json.loads(lines[1])[1]
    digest, text = json.loads(lines[1])
    lines[1] = json.dumps([digest, text.replace(right, wrong)], separators=(",", ":"))
    path.write_text("\n".join(lines) + "\n")
    database = JSONDatabase(work_dir=three)
    with caplog.at_level(logging.WARNING):
        assert database.query_tuning_record(matmul(32), TARGET) is None
    assert lines_of(three / "database_workload.json.corrupt") == [lines[1]]
    assert times(database) == [1e-5, 3e-5]
    add(database, matmul(32), 7e-5)
    record = JSONDatabase(work_dir=three).query_tuning_record(matmul(32), TARGET)
    assert record is not None and record.best_seconds == 7e-5


@pytest.mark.parametrize(
    "damage",
    [
        "{torn",
        "[]",
        "[0,[]]",
        '["0",[[],null,null,[],{}]]',
        "[17,[[],null,null,[],{}]]",
        '[0,[[["no_such_primitive",[],[]]],null,null,[],{}]]',
        "[0,[5,null,null,[],{}]]",
        '[0,[[],"fast",null,[],{}]]',
        '[0,[[],null,"no such target",[],{}]]',
        '[0,[[],null,null,[["TENSOR","float99",[1]]],{}]]',
        '[0,[[],null,null,[["VECTOR"]],{}]]',
        "\x00\x00",
        "[" * 100_000,
        "[" * 900 + "]" * 900,
        "[true,[[],null,null,[],{}]]",
        "[0.0,[[],null,null,[],{}]]",
        "[0,[[],[NaN],null,[],{}]]",
        "[0,[[],[1e400],null,[],{}]]",
        "[0,[[],[true],null,[],{}]]",
        "[0,[[],[1" + "0" * 400 + "],null,[],{}]]",
        '[0,[[],{"1":2},null,[],{}]]',
        "[0,[[],null,{},[],{}]]",
        '[0,[[],null,{"kind":["llvm"]},[],{}]]',
        '[0,[[],null,{"kind":7},[],{}]]',
        '[0,[[],null,{"kind":"llvm","num-cores":1e400},[],{}]]',
        '[0,[[],null,{"kind":"llvm","mcpu":{}},[],{}]]',
        '[0,[[],null,null,[["TENSOR","float32x\u00b2",[1]]],{}]]',
        '[0,[[],null,null,[["TENSOR",[],[1]]],{}]]',
        '[0,[[],null,null,[["TENSOR","' + "x" * 5000 + '",[1]]],{}]]',
        '[0,[[],null,null,[["TENSOR","float32",[-1]]],{}]]',
        '[0,[[],null,null,[["TENSOR","float32",[1.5]]],{}]]',
        '[0,[[],null,null,[["SCALAR","float32","1"]],{}]]',
        "[0,[[],null,null,[],[]]]",
        '[0,[[],null,null,[],{"time":1e300}]]',
        '[0,[[],null,null,[],{"time":NaN}]]',
        '[0,[[],null,null,[],{"version":"\\ud800"}]]',
        '[0,[[],null,null,[],{"version":' + "[" * 100 + "]" * 100 + "}]]",
    ],
)
def test_a_corrupt_record_line_is_set_aside(
    three: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = three / "database_tuning_record.json"
    lines = lines_of(path)
    path.write_text("\n".join([lines[0], damage, *lines[1:]]) + "\n")
    with caplog.at_level(logging.WARNING):
        database = JSONDatabase(work_dir=three)
    assert "database_tuning_record.json.corrupt" in caplog.text
    assert all(len(record.getMessage()) < 1000 for record in caplog.records)
    assert lines_of(three / "database_tuning_record.json.corrupt") == [damage]
    assert times(database) == [1e-5, 2e-5, 3e-5]


@pytest.mark.parametrize(
    "entry",
    [
        '["get_block",["C"],["b0"],0]',
        '["get_block",["C"],"b0"]',
        '["get_block",["C"],[["b0"]]]',
        '["get_block",["C"],["b0","b0"]]',
        '["get_block",["C"],["x0"]]',
        '["get_block",["C"],[""]]',
        '["get_block",[7],["b0"]]',
        '["get_block",[["C"]],["b0"]]',
        '["get_loops",["$b7"],["l1"]]',
        '["get_loops",["C"],["l1"]]',
        '["get_loops",[[[]]],["l1"]]',
        '["get_loops",[{"$dict":5}],["l1"]]',
        '["get_loops",[{"$none":5}],["l1"]]',
        '["get_loops",[{}],["l1"]]',
        '["cache_read",["$b",0,null],["b1"]]',
        '["cache_read",["$b",null,"local"],["b1"]]',
        '["cache_read",["$b",0,"local",7],["b1"]]',
        '["fuse",[7],["l1"]]',
        '["fuse",[["$b"]],["l1"]]',
        '["sample_categorical",[[1,2],[0.5,"0.5"]],["v1"],0]',
        '["sample_categorical",[[1,2],[0.5,NaN]],["v1"],0]',
        '["sample_categorical",[[1,2],[0.5,0.5]],["v1"],0.5]',
        '["sample_categorical",[[1,2],[0.5,0.5]],["v1"],true]',
        '["sample_categorical",["12",[0.5,0.5]],["v1"],0]',
        '["annotate",["$b","key",' + "[" * 200 + "]" * 200 + "],[]]",
        '["annotate",["$b","key",1e400],[]]',
        '["unsafe_set_dtype",["$b",0,"float16"],[]]',
        '["transform_layout",["$b",["write",0],"lambda i, j: (i, j)",null,true],[]]',
        '["get_block",["C"],["b0"]],7',
        '["get_block",["C"],["b0"]],[]',
        '{"get_block":["C"]}',
    ],
)
def test_an_instruction_of_wrong_types_is_set_aside(three: Path, entry: str) -> None:
    path = three / "database_tuning_record.json"
    first = '["get_block",["C"],["b"]]'
    damage = f"[0,[[{first},{entry}],[1e-9],null,[],{{}}]]"
    lines = lines_of(path)
    path.write_text("\n".join([lines[0], damage, *lines[1:]]) + "\n")
    database = JSONDatabase(work_dir=three)
    assert lines_of(three / "database_tuning_record.json.corrupt") == [damage]
    assert times(database) == [1e-5, 2e-5, 3e-5]


@pytest.mark.parametrize(
    "insts",
    [
        '["get_block",["D"],["b0"]]',
        '["get_block",["C"],["b0","b1"]]',
        '["get_block",["C"],["l0"]],["split",["$l0",[2,8]],["l1","l2"]]',
        '["get_block",["C"],["b0"]],["cache_read",["$b0",7,"local"],["b1"]]',
        '["get_block",["C"],["b0"]],["reindex",["$b0",["read",null]],["b1"]]',
        '["get_block",["C"],["b0"]],["reindex",["$b0",[[],1]],["b1"]]',
        '["get_block",["C"],["b0"]],["transform_block_layout",["$b0",7],[]]',
        '["get_block",["C"],["b0"]],["transform_block_layout",["$b0",'
        '{"$dict":[["map",1],["inverse",2]]}],[]]',
        '["get_block",["C"],["b0"]],["transform_block_layout",["$b0","lambda i, j, k: (i // 0, j,'
        'k)"],[]]',
        '["get_block",["C"],["b0"]],["transform_block_layout",["$b0","lambda i, j, k: ('
        + "-" * 3000
        + 'i, j, k)"],[]]',
        '["get_block",["C"],["b0"]],["get_loops",["$b0"],["l1","l2","l3"]],'
        '["sample_perfect_tile",["$l1",1000000000000],["v1"]]',
    ],
)
def test_a_record_that_does_not_replay_gives_way_to_the_next(
    three: Path, insts: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = three / "database_tuning_record.json"
    target = json.loads(lines_of(path)[0])[1][2]
    with path.open("a") as file:
        file.write(f"[0,[[{insts}],[1e-9],{json.dumps(target)},[],{{}}]]\n")
    database = JSONDatabase(work_dir=three)
    assert not (three / "database_tuning_record.json.corrupt").exists()
    with caplog.at_level(logging.WARNING):
        mod = MetaScheduleApplyDatabase(database=database, target=TARGET)(
            IRModule({"f": matmul(16)})
        )
    assert "does not replay, it is not used" in caplog.text
    assert mod["f"].attrs[IS_SCHEDULED]


def test_a_record_that_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    database = JSONDatabase(work_dir=tmp_path)
    workload = database.commit_workload(matmul(16))
    record = TuningRecord(Schedule(workload.mod).trace, workload, (float("inf"),), TARGET)
    with pytest.raises(TuneError, match=r"can't be kept in a database: .*a time is inf"):
        database.commit_tuning_record(record)
    assert len(JSONDatabase(work_dir=tmp_path)) == 0


def test_databases_that_were_joined_keep_their_records(tmp_path: Path) -> None:
    parts = []
    for number, seconds in enumerate((2e-5, 1e-5)):
        add(JSONDatabase(work_dir=tmp_path / str(number)), matmul(16), seconds)
        parts.append(tmp_path / str(number))
    both = tmp_path / "both"
    both.mkdir()
    for name in ("database_workload.json", "database_tuning_record.json"):
        (both / name).write_text("".join((part / name).read_text() for part in parts))
    path = both / "database_tuning_record.json"
    first, second = lines_of(path)
    path.write_text(f"{first}\n[1{second[2:]}\n")
    record = JSONDatabase(work_dir=both).query_tuning_record(matmul(16), TARGET)
    assert record is not None and record.best_seconds == 1e-5


def test_a_line_that_is_too_long_is_set_aside(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = three / "database_workload.json"
    monkeypatch.setattr(schema, "LONGEST_LINE", 100_000)
    with path.open("a") as file:
        file.write(f'["{"0" * 200_000}","text"]\n')
    assert times(JSONDatabase(work_dir=three)) == [1e-5, 2e-5, 3e-5]
    assert len(lines_of(three / "database_workload.json.corrupt")) == 1


def test_any_damage_costs_the_damaged_line_only(three: Path) -> None:
    rng = random.Random(0)
    path = three / "database_tuning_record.json"
    good = lines_of(path)
    for _ in range(60):
        text = list(good[1])
        for _ in range(rng.randint(1, 4)):
            text[rng.randrange(len(text))] = rng.choice('[]{},:"$0x\\ -')
        path.write_text("\n".join([good[0], "".join(text), good[2]]) + "\n")
        found = times(JSONDatabase(work_dir=three))
        assert found[0] == 1e-5 and found[-1] == 3e-5


@pytest.mark.parametrize("name", ["database_workload.json", "database_tuning_record.json"])
def test_a_torn_last_line_is_ended_before_the_next_append(three: Path, name: str) -> None:
    path = three / name
    torn = lines_of(path)[2][:40]
    path.write_text("\n".join([*lines_of(path)[:2], torn]))
    database = JSONDatabase(work_dir=three)  # sees the torn line
    add(database, matmul(64), 5e-5)
    add(database, matmul(128), 6e-5)
    for opened in (database, JSONDatabase(work_dir=three)):
        assert times(opened) == [1e-5, 2e-5, 5e-5, 6e-5]
        for n, expected in ((16, 1e-5), (32, 2e-5), (64, 5e-5), (128, 6e-5)):
            record = opened.query_tuning_record(matmul(n), TARGET)
            assert record is not None and record.best_seconds == expected
    assert torn in lines_of(three / f"{name}.corrupt")


def test_a_complete_last_line_without_its_end_is_kept(three: Path) -> None:
    path = three / "database_tuning_record.json"
    path.write_text(path.read_text().rstrip("\n"))
    database = JSONDatabase(work_dir=three)
    assert times(database) == [1e-5, 2e-5, 3e-5]
    add(database, matmul(), 4e-5)
    assert times(JSONDatabase(work_dir=three)) == [1e-5, 2e-5, 3e-5, 4e-5]


def test_empty_lines_are_nothing(three: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (three / "database_tuning_record.json").open("a") as file:
        file.write("\n\n")
    with caplog.at_level(logging.WARNING):
        assert len(JSONDatabase(work_dir=three)) == 3
    assert not caplog.records


# ---- several writers -----------------------------------------------------------------------------


def append_many(work_dir: str, number: int) -> None:
    database = JSONDatabase(work_dir=work_dir)
    for step in range(5):
        add(database, matmul((16, 32)[(step + number) % 2]), (100 * number + step + 1) * 1e-6)


def test_two_processes_append_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=append_many, args=(str(tmp_path), n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    database = JSONDatabase(work_dir=tmp_path)
    assert len(lines_of(tmp_path / "database_workload.json")) == 2
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


# ---- places that can't be written ----------------------------------------------------------------


def test_a_folder_that_can_not_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    database = JSONDatabase(work_dir=tmp_path / "file" / "records")
    with pytest.raises(TuneError, match=r"can't be written: .*; choose another work_dir or change"):
        database.check_writable()
    with pytest.raises(TuneError, match="can't be written"):
        add(database, matmul(), 1e-5)


def test_a_read_only_folder_is_a_clear_error(tmp_path: Path) -> None:
    # Root may write anywhere but where there is no file system to write to.
    for folder in (Path("/proc/records"), Path("/sys/records")):
        if folder.parent.is_dir():
            with pytest.raises(TuneError, match=f"{folder}.* can't be written"):
                JSONDatabase(work_dir=folder).check_writable()


def test_a_read_only_database_can_be_asked(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def refuse(path: Path, mode: str = "r", *args: object, **kwargs: object) -> object:
        if set(mode) & set("wa+"):
            raise PermissionError(13, "Permission denied")
        return real(path, mode, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    database = JSONDatabase(work_dir=three)
    assert database.query_ir_module(matmul(), TARGET) is not None
    with pytest.raises(TuneError, match="can't be written: Permission denied"):
        add(database, matmul(), 1e-5)


def test_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    database = JSONDatabase(work_dir=tmp_path)
    workload = database.commit_workload(matmul())
    database.path_tuning_record.symlink_to("/dev/full")
    with pytest.raises(TuneError, match="can't be written: No space left on device"):
        database.commit_tuning_record(TuningRecord(schedule(matmul()).trace, workload, (1e-5,)))


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
