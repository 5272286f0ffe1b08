"""Databases whose files are damaged, or in places that can't be written."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path

import pytest
from database_cases import TARGET, add, lines_of, matmul, schedule, times

from tilewright.ir import IRModule
from tilewright.meta_schedule.database import (
    JSONDatabase,
    TuningRecord,
    schema,
)
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.support.errors import TuneError
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A folder with three workloads and a record of each."""
    database = JSONDatabase(work_dir=tmp_path)
    for seconds, n in ((1e-5, 16), (2e-5, 32), (3e-5, 64)):
        add(database, matmul(n), seconds)
    return tmp_path


# ---- corruption ----------------------------------------------------------------------------------


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
        "[9223372036854775808,[[],null,null,[],{}]]",
        "[1" + "0" * 400 + ",[[],null,null,[],{}]]",
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
        assert times(database) == [1e-5, 2e-5, 3e-5]
    assert len(database) == 3
    assert "database_tuning_record.json.corrupt" in caplog.text
    assert all(len(record.getMessage()) < 1000 for record in caplog.records)
    assert lines_of(three / "database_tuning_record.json.corrupt") == [damage]


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
    raced = f'[0,[[{first},{entry}],[1e-9],null,[],{{"beat":["ab"],"verified":{{"a":1}}}}]]'
    lines = lines_of(path)
    path.write_text("\n".join([lines[0], damage, raced, *lines[1:]]) + "\n")
    # Whether it is found when the best is asked for, or when all are read.
    database = JSONDatabase(work_dir=three)
    best = database.query_tuning_record(matmul(16), TARGET)
    assert best is not None and best.best_seconds == 1e-5
    for opened in (database, JSONDatabase(work_dir=three)):
        assert times(opened) == [1e-5, 2e-5, 3e-5]
        assert (len(opened), len(opened.best_records())) == (3, 3)
    aside = lines_of(three / "database_tuning_record.json.corrupt")
    assert sorted(aside) == sorted([damage, raced])


CHECKED = '{"verified":{"against":"it says"}}'


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
        file.write(f"[0,[[{insts}],[1e-9],{json.dumps(target)},[],{CHECKED}]]\n")
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


# ---- other formats -------------------------------------------------------------------------------


def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version whose records begin with their parts."""
    record = schema.read_measured

    def read(data: object) -> schema.Measured:
        migrated = schema._migrated(data, "record")
        assert isinstance(migrated, list)
        with monkeypatch.context() as as_before:
            as_before.setitem(schema.MIGRATIONS, "record", ())
            return record(migrated[::-1])

    def as_row(record: TuningRecord, number: int, old: object = TuningRecord.as_row) -> object:
        return old(record, number)[::-1]  # type: ignore[operator]

    monkeypatch.setattr(schema, "FORMAT", 2)
    monkeypatch.setitem(schema.MIGRATIONS, "record", (lambda data: data[::-1],))
    monkeypatch.setitem(schema.MIGRATIONS, "workload", (lambda data: data,))
    monkeypatch.setattr(TuningRecord, "as_row", as_row)
    for module in ("schema", "json_file"):
        monkeypatch.setattr(f"tilewright.meta_schedule.database.{module}.read_measured", read)


def test_older_lines_are_migrated_and_later_ones_left_alone(
    three: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        next_version(monkeypatch)
        later = JSONDatabase(work_dir=three)
        assert times(later) == [1e-5, 2e-5, 3e-5]
        add(later, matmul(8), 4e-5)
        add(later, matmul(16), 5e-6)
        assert times(JSONDatabase(work_dir=three)) == [1e-5, 2e-5, 3e-5, 4e-5, 5e-6]
    assert json.loads(lines_of(three / "database_tuning_record.json")[4])["format"] == 2
    with caplog.at_level(logging.WARNING):
        database = JSONDatabase(work_dir=three)
    assert times(database) == [1e-5, 2e-5, 3e-5]
    assert "the record is of format 2; this version reads up to 1" in caplog.text
    assert len(caplog.records) == 2  # one for each file
    assert not list(three.glob("*.corrupt"))
    add(database, matmul(8), 7e-5)  # among lines that it can't read
    with pytest.MonkeyPatch.context() as monkeypatch:
        next_version(monkeypatch)
        later = JSONDatabase(work_dir=three)
        assert times(later) == [1e-5, 2e-5, 3e-5, 4e-5, 5e-6, 7e-5]
        record = later.query_tuning_record(matmul(8), TARGET)
        assert record is not None and record.best_seconds == 4e-5


@pytest.mark.parametrize("number", ["0", "1", "-2", "2.5", "true", "null", '"2"'])
def test_a_format_that_is_no_number_is_set_aside(three: Path, number: str) -> None:
    line = f'{{"format":{number},"data":[]}}'
    with (three / "database_tuning_record.json").open("a") as file:
        file.write(f"{line}\n")
    assert times(JSONDatabase(work_dir=three)) == [1e-5, 2e-5, 3e-5]
    assert lines_of(three / "database_tuning_record.json.corrupt") == [line]


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


def test_a_file_is_no_folder_of_a_database(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(TuneError, match="it isn't a folder"):
        JSONDatabase(work_dir=tmp_path / "file")


def test_many_damaged_lines_are_few_warnings(three: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = three / "database_tuning_record.json"
    good = path.read_text()
    path.write_text("".join(f"[{number}]\n" for number in range(500)) + good)
    with caplog.at_level(logging.WARNING):
        assert len(JSONDatabase(work_dir=three)) == 3
    assert 2 <= len(caplog.records) <= 20
    assert "more lines of" in caplog.text
    assert len(lines_of(three / "database_tuning_record.json.corrupt")) == 500
