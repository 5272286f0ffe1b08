"""Databases behind a URL: the same answers, many writers, and lines and files that others made."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from database_cases import (
    PROGRAMS,
    TARGET,
    add,
    check_same,
    matmul,
    random_record,
    schedule,
    times,
)

from tilewright.meta_schedule.database import (
    Database,
    JSONDatabase,
    MemoryDatabase,
    SQLDatabase,
    TuningRecord,
    _sql_schema,
    _sql_tables,
    open_place,
)
from tilewright.meta_schedule.database.record import provenance
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.meta_schedule.tune import open_database
from tilewright.support.errors import MissingExtraError, TuneError

sqlalchemy = pytest.importorskip("sqlalchemy")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database in a file: three workloads and a record of each."""
    database = SQLDatabase(f"sqlite:///{tmp_path / 'records.db'}")
    for seconds, n in ((1e-5, 16), (2e-5, 32), (3e-5, 64)):
        add(database, matmul(n), seconds)
    database.close()
    return tmp_path / "records.db"


def at(file: Path) -> str:
    return f"sqlite:///{file}"


def change(file: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(statement, values)
    connection.close()


# ---- the same answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_those_of_a_database_in_memory(seed: int, url: str) -> None:
    rng = random.Random(seed)
    database, expected = SQLDatabase(url), MemoryDatabase()
    workloads = [[x.commit_workload(p.mod) for p in PROGRAMS] for x in (database, expected)]
    for _ in range(rng.randint(20, 60)):
        number = rng.randrange(len(PROGRAMS))
        found = TuningRecord.data_from_json(random_record(rng, number))
        for target, own in zip((database, expected), workloads):
            target.commit_tuning_record(TuningRecord.from_data(found, own[number]))
    check_same(database, expected)
    check_same(SQLDatabase(url), expected)


def test_databases_are_named_by_their_urls(url: str) -> None:
    for made in (Database.create(url), open_database(url), open_place(url)):
        assert isinstance(made, SQLDatabase)
    add(made, matmul(), 1e-5)
    applied = MetaScheduleApplyDatabase(url, target=TARGET)
    applied(next(made.records()).workload.mod)
    assert [item.outcome for item in applied.report] == ["record"]


def test_a_folder_is_a_place_too(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="there is no folder"):
        open_place(tmp_path / "new", allow_missing=False)
    with pytest.raises(TuneError, match=r"no database in .*: no file database_workload\.json"):
        open_place(tmp_path, allow_missing=False)
    assert isinstance(open_place(tmp_path), JSONDatabase)


def test_what_others_write_is_seen_at_once(url: str) -> None:
    ours, theirs = SQLDatabase(url), SQLDatabase(url)
    add(theirs, matmul(), 1e-5)
    assert times(ours) == [1e-5] and len(ours) == 1
    add(ours, matmul(), 2e-5)
    assert times(theirs) == [1e-5, 2e-5]
    assert theirs.statistics()["workloads"] == 1


def test_records_are_kept_all_or_none(url: str) -> None:
    database = SQLDatabase(url)
    good = add(database, matmul(), 1e-5)
    bad = TuningRecord(good.trace, good.workload, (float("nan"),), TARGET)
    with pytest.raises(TuneError, match="the record can't be kept in a database"):
        database.commit_tuning_records([good, bad])
    assert len(database) == 1


# ---- many writers --------------------------------------------------------------------------------


def commit_programs(url: str, start: int) -> None:
    database = SQLDatabase(url)
    for n in range(6):
        add(database, matmul(4 + (n + start) % 6), 1e-6 * (start * 100 + n + 1))


def test_programs_that_several_add_at_once_are_added_once(url: str) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=commit_programs, args=(url, n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    found = SQLDatabase(url).statistics()
    assert (found["workloads"], found["records"]) == (6, 24)


def test_a_forked_process_has_connections_of_its_own(url: str) -> None:
    database = SQLDatabase(url)
    add(database, matmul(), 1e-5)
    child = os.fork()
    if child == 0:
        try:
            add(database, matmul(32), 2e-5)
            os._exit(0 if times(database) == [1e-5, 2e-5] else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    add(database, matmul(), 3e-5)
    assert times(database) == [1e-5, 2e-5, 3e-5]


# ---- what others may have written ----------------------------------------------------------------


@pytest.mark.parametrize("line", ["{torn", "[0]", b"\xff", 7, "[" * 100_000, '"\\ud800"'])
def test_a_line_that_is_no_record_is_left_out(
    file: Path, line: object, caplog: pytest.LogCaptureFixture
) -> None:
    change(file, "UPDATE tilewright_records SET line = ? WHERE number = 2", line)
    database = SQLDatabase(at(file))
    assert times(database) == [1e-5, 3e-5]
    assert database.query_tuning_record(matmul(32), TARGET) is None
    assert [r.best_seconds for r in database.best_records()] == [1e-5, 3e-5]
    assert caplog.text.count("record 2 of") == 1 and "is not used" in caplog.text
    add(database, matmul(32), 4e-5)
    best = database.query_tuning_record(matmul(32), TARGET)
    assert best is not None and best.best_seconds == 4e-5


@pytest.mark.parametrize("column, value", [
    ("seconds", 1e-9), ("seconds", "fast"), ("verified", 7), ("beat", "["), ("digest", 5),
    ("target", 77), ("target", "x"), ("beat", '["ab"]'),
])  # fmt: skip
def test_a_record_is_not_ranked_by_what_it_is_not(
    file: Path, column: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    add(SQLDatabase(at(file)), matmul(32), 4e-5)
    change(file, f"UPDATE tilewright_records SET {column} = ? WHERE number = 2", value)
    database = SQLDatabase(at(file))
    found = database.get_top_k(database.commit_workload(matmul(32)), 9, TARGET)
    assert [record.best_seconds for record in found] == [4e-5]
    assert "record 2 of" in caplog.text


@pytest.mark.parametrize("line", ["{torn", '["ab", "import os"]', b"\xff", None])
def test_a_workload_that_is_no_program_is_left_out(file: Path, line: object) -> None:
    if line is not None:
        change(file, "UPDATE tilewright_workloads SET line = ? WHERE number = 2", line)
    else:  # it has the right hash, but its text is no program
        digest = SQLDatabase(at(file)).commit_workload(matmul(32)).hash
        text = json.dumps([digest, "import os"])
        change(file, "UPDATE tilewright_workloads SET line = ? WHERE number = 2", text)
    database = SQLDatabase(at(file))
    assert not database.has_workload(matmul(32))
    assert times(database) == [1e-5, 3e-5]


@pytest.mark.parametrize("statement", [
    "CREATE TRIGGER t AFTER INSERT ON tilewright_records BEGIN DELETE FROM tilewright_records; END",
    "CREATE VIEW v AS SELECT 1",
    "ALTER TABLE tilewright_records ADD COLUMN x AS (printf('%.*c', 900000000, 'x'))",
    "ALTER TABLE tilewright_records ADD COLUMN x AS -- KEY\n (length(line))",
    "ALTER TABLE tilewright_records ADD COLUMN x AS /* KEY */ (length(line))",
    "ALTER TABLE tilewright_records ADD COLUMN x TEXT CHECK (length(x) < 9)",
    "CREATE INDEX i ON tilewright_records (hex(zeroblob(100000000)))",
    "CREATE INDEX i ON tilewright_records (target) WHERE length(line) < 9",
])  # fmt: skip
def test_a_file_that_does_more_than_hold_records_is_refused(file: Path, statement: str) -> None:
    change(file, statement)
    with pytest.raises(TuneError, match="has triggers or views, or computes columns or keys"):
        SQLDatabase(at(file))


def test_triggers_under_another_name_are_refused(file: Path) -> None:
    """SQLite goes by what the text of a definition says."""
    change(file, "CREATE TRIGGER t BEFORE UPDATE ON tilewright_format BEGIN SELECT 1; END")
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET type = 'TRIGGER' WHERE type = 'trigger'")
    with pytest.raises(TuneError, match="has triggers or views"):
        SQLDatabase(at(file))


@pytest.mark.parametrize("statement", [
    "CREATE TABLE notes (text VARCHAR(20) CHECK (length(text) < 9))",
    "CREATE INDEX mine ON tilewright_records (target, seconds)",
    "ANALYZE",
])  # fmt: skip
def test_tables_of_others_and_plain_indices_do_no_harm(file: Path, statement: str) -> None:
    change(file, statement)
    assert times(SQLDatabase(at(file))) == [1e-5, 2e-5, 3e-5]


@pytest.mark.parametrize("column, value", [
    ("line", "CAST(X'ff' AS TEXT)"), ("line", "X'ff'"), ("line", "9e999"), ("line", "1"),
    ("line", "'[' || hex(zeroblob(100000))"), ("beat", "CAST(X'ff' AS TEXT)"), ("beat", "7"),
    ("beat", "'[1'"), ("digest", "'text'"), ("seconds", "'soon'"), ("seconds", "X'00'"),
    ("target", "4"), ("target", "'x'"), ("verified", "'x'"),
])  # fmt: skip
def test_values_that_are_none_cost_their_own_record(file: Path, column: str, value: str) -> None:
    change(file, f"UPDATE tilewright_records SET {column} = {value} WHERE number = 2")
    database = SQLDatabase(at(file))
    found = [database.get_top_k(database.commit_workload(matmul(n)), 9) for n in (16, 32, 64)]
    assert [len(x) for x in found] in ([1, 0, 1], [1, 1, 1])
    assert [x.best_seconds for some in found for x in some if x.best_seconds != 2e-5] == [
        1e-5,
        3e-5,
    ]
    assert {1e-5, 3e-5} <= {record.best_seconds for record in database.best_records()}
    assert {1e-5, 3e-5} <= set(times(database))
    assert database.statistics()["records"] in (2, 3)


def test_choices_for_graphs_that_are_none_are_left_out(file: Path) -> None:
    change(file, "INSERT INTO tilewright_graphs VALUES ('ab', 'cd', '[]')")
    assert SQLDatabase(at(file)).graph_choices() == []
    assert SQLDatabase(at(file)).graph_choice("ab", TARGET) is None


# ---- formats -------------------------------------------------------------------------------------


def test_older_tables_are_migrated_and_later_ones_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(SQLDatabase(url), matmul(), 1e-5)
    now = _sql_schema.FORMAT
    with monkeypatch.context() as later:
        later.setattr(_sql_schema, "FORMAT", now + 2)
        later.setattr(_sql_schema, "MIGRATIONS", (
            *_sql_schema.MIGRATIONS,
            ("ALTER TABLE tilewright_records ADD COLUMN note TEXT",),
            ("UPDATE tilewright_records SET note = 'old'",),
        ))  # fmt: skip
        for _ in range(2):
            assert times(SQLDatabase(url)) == [1e-5]
    with sqlalchemy.create_engine(url.replace("ql://", "ql+psycopg://")).connect() as connection:
        rows = connection.exec_driver_sql("SELECT note FROM tilewright_records").fetchall()
    assert rows == [("old",)]
    with pytest.raises(TuneError, match=f"of format {now + 2}; this version reads up to {now}"):
        SQLDatabase(url)


def test_in_tables_of_the_first_format_cold_times_were_among_warm_ones(url: str) -> None:
    database = SQLDatabase(url)
    workload = database.commit_workload(matmul())
    seconds = random.Random(3).sample([n * 1.1e-7 for n in range(1, 400)], 40)
    made = [
        TuningRecord(
            schedule(matmul(), 2 ** (n % 3)).trace, workload, (value,), TARGET, None,
            provenance(
                {"against": "it"},
                timing={"caches": "cold"} if n % 2 else None,
                sizes=(1, 4) if n % 5 == 0 else (),
            ),
        )
        for n, value in enumerate(seconds)
    ]  # fmt: skip
    database.commit_tuning_records(made)
    ranked = [record.run_secs for record in database.get_top_k(workload, 99, TARGET)]
    with sqlalchemy.create_engine(url.replace("ql://", "ql+psycopg://")).begin() as connection:
        rows = connection.exec_driver_sql("SELECT number, line FROM tilewright_records").fetchall()
        for number, line in rows:
            _, (_, (value,), _, _, origin) = json.loads(line)
            old = -1.0 / value if origin.get("sizes") else value
            change = f"UPDATE tilewright_records SET seconds = {old!r} WHERE number = {number}"
            connection.exec_driver_sql(change)
        connection.exec_driver_sql("UPDATE tilewright_format SET format = 1")
    migrated = SQLDatabase(url)
    found = migrated.get_top_k(migrated.commit_workload(matmul()), 99, TARGET)
    assert [record.run_secs for record in found] == ranked and len(found) == 40
    kinds = [(bool(record.sizes), record.cold) for record in found]
    assert kinds == sorted(kinds, reverse=True)


def test_older_tables_that_cannot_be_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(file, "UPDATE tilewright_format SET format = 1")
    monkeypatch.setattr(_sql_tables, "_PATIENCE", 0.1)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        wanted = rf"is of format 1 and has to be migrated to {_sql_schema.FORMAT} \(once, by .*"
        with pytest.raises(TuneError, match=wanted + "locked"):
            SQLDatabase(at(file))
    assert len(SQLDatabase(at(file))) == 3


@pytest.mark.parametrize("statement", [
    "DELETE FROM tilewright_format", "UPDATE tilewright_format SET format = 'x'",
    "INSERT INTO tilewright_format VALUES (1)",
])  # fmt: skip
def test_tables_without_a_format_are_refused(file: Path, statement: str) -> None:
    change(file, statement)
    with pytest.raises(TuneError, match="doesn't say of which format it is"):
        SQLDatabase(at(file))


# ---- places that can't be used -------------------------------------------------------------------


@pytest.mark.parametrize("url, match", [
    ("sqlite://", "names no file"),
    ("sqlite:///:memory:", "names no file"),
    ("mysql://host/x", "no support for databases of mysql .*known: sqlite:///FILE, postgresql://"),
    ("://", "is no URL of a database"),
    ("postgresql://user:secret@/x?host=/nowhere", r"postgresql.*user:\*\*\*@.* can't be used"),
])  # fmt: skip
def test_a_url_that_names_no_database(url: str, match: str) -> None:
    with pytest.raises(TuneError, match=match) as caught:
        SQLDatabase(url)
    assert "secret" not in str(caught.value)


def test_a_database_that_is_missing_is_an_error_if_asked_for(url: str, tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="there is no database"):
        SQLDatabase(url, allow_missing=False)
    assert not list(tmp_path.iterdir())
    SQLDatabase(url)
    assert len(SQLDatabase(url, allow_missing=False)) == 0


def test_a_file_that_is_no_database_or_a_link_is_refused(tmp_path: Path, file: Path) -> None:
    (tmp_path / "text").write_text("words " * 1000)
    with pytest.raises(TuneError, match=r"can't be used: file is not a database"):
        SQLDatabase(at(tmp_path / "text"))
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(TuneError, match="may be opened"):
        SQLDatabase(at(tmp_path / "link"))


def test_a_file_that_can_not_be_written_can_be_asked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = SQLDatabase(at(file))
    set_up = _sql_tables.set_up_sqlite

    def read_only(connection: sqlite3.Connection, record: object) -> None:
        set_up(connection, record)
        connection.execute("PRAGMA query_only = ON")

    monkeypatch.setattr(_sql_tables, "set_up_sqlite", read_only)
    database = SQLDatabase(at(file))
    assert times(database) == [1e-5, 2e-5, 3e-5]
    with pytest.raises(TuneError, match="attempt to write a readonly database"):
        database.check_writable()


@pytest.mark.parametrize("number", [1, _sql_schema.FORMAT])
@pytest.mark.parametrize("logged", [False, True])
def test_files_in_a_folder_that_can_not_be_written(number: int, logged: bool) -> None:
    """SQLite wants to make files beside one that it reads; older tables are migrated in memory."""
    with tempfile.TemporaryDirectory() as name:
        folder, file = Path(name), Path(name, "records.db")
        database = SQLDatabase(at(file))
        workload = database.commit_workload(matmul())
        for place, caches in enumerate(("warm", "cold", "warm")):
            made = provenance(timing={"caches": caches})
            trace = schedule(matmul(), 2**place).trace
            record = TuningRecord(trace, workload, (1e-5 * (place + 1),), TARGET, None, made)
            database.commit_tuning_record(record)
        ranked = ranking(database)
        assert ranked == pytest.approx([2e-5, 1e-5, 3e-5])
        database.close()
        if number == 1:
            scale = "* 1073741824.0" * 3
            cold = f"UPDATE tilewright_records SET seconds = seconds {scale} WHERE seconds < 1e-20"
            change(file, cold)
            change(file, "UPDATE tilewright_format SET format = 1")
        open_now = sqlite3.connect(file) if logged else None
        if open_now is not None:  # a write of which the log has not been taken in
            open_now.execute("UPDATE tilewright_workloads SET number = number")
            open_now.commit()
            shutil.copytree(folder, folder / "copy")
            open_now.close()
            (folder / "copy" / "records.db-shm").unlink()
            folder, file = folder / "copy", folder / "copy" / "records.db"
        for path in (file, folder, Path(name)):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = sorted(os.listdir(folder))
        found = in_child(lambda: ranking(SQLDatabase(at(file))))
        if logged:
            assert "its last records are in" in found and "copy both to a folder" in found
        else:
            assert found == str(ranked)
            refused = in_child(lambda: SQLDatabase(at(file)).check_writable())
            assert "attempt to write a readonly database" in refused
            assert in_child(lambda: in_child(lambda: ranking(SQLDatabase(at(file))))) == str(ranked)
        assert sorted(os.listdir(folder)) == before
        for path in (Path(name), folder):
            path.chmod(0o755)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user, who may not write")
@pytest.mark.parametrize(
    "number, stays", [(1, False), (_sql_schema.FORMAT, False), (_sql_schema.FORMAT, True)]
)
def test_what_others_write_to_a_file_that_is_read_as_it_is(number: int, stays: bool) -> None:
    """SQLite is told that such a file doesn't change, so it wouldn't look."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "records.db")
        database = SQLDatabase(at(file))
        add(database, matmul(), 3e-5)
        database.close()
        if number == 1:
            change(file, "UPDATE tilewright_format SET format = 1")
        Path(name).chmod(0o755)
        (go, say_go), (done, say_done), (end, say_end) = (os.pipe() for _ in range(3))
        if (writer := os.fork()) == 0:
            os.close(say_go)
            os.close(say_end)
            os.read(go, 1)
            add(database, matmul(), 1e-5)
            if not stays:
                database.close()
            os.write(say_done, b"x")
            os.read(end, 1)
            os._exit(0)

        def asked() -> tuple[list[float], list[float]]:
            database = SQLDatabase(at(file))
            before = ranking(database)
            os.write(say_go, b"x")
            os.read(done, 1)
            return before, ranking(database)

        assert in_child(asked) == str(([3e-5], [1e-5, 3e-5]))
        for pipe in (go, say_go, done, say_done, end, say_end):
            os.close(pipe)
        os.waitpid(writer, 0)


def test_an_empty_log_beside_a_file_that_can_not_be_written(file: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = Path(shutil.copy(file, name))
        made.with_name("records.db-wal").touch()
        for path in (*Path(name).iterdir(), Path(name)):
            path.chmod(0o555 if path.is_dir() else 0o444)
        assert in_child(lambda: times(SQLDatabase(at(made)))) == str([1e-5, 2e-5, 3e-5])
        Path(name).chmod(0o755)


def ranking(database: Database) -> list[float]:
    workload = database.commit_workload(matmul())
    return [record.best_seconds for record in database.get_top_k(workload, 9, TARGET)]


def in_child(question: Callable[[], object]) -> str:
    """Return the answer, or the error, of a process that may not write everywhere."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            answer = str(question())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


def test_a_full_disk_is_a_clear_error_and_loses_nothing(file: Path) -> None:
    database = SQLDatabase(at(file))

    def limit(pages: int) -> Callable[[sqlite3.Connection, object], None]:
        return lambda connection, _: connection.execute(f"PRAGMA max_page_count = {pages}") and None

    sqlalchemy.event.listen(database._index._engine, "checkout", lambda c, r, p: limit(16)(c, r))
    with pytest.raises(TuneError, match="database or disk is full"):
        for _ in range(200):
            add(database, matmul(16), 4e-5)
    again = SQLDatabase(at(file))
    kept = len(again)
    assert times(again)[:3] == [1e-5, 2e-5, 3e-5] and kept > 3
    add(again, matmul(16), 5e-5)
    assert len(again) == kept + 1


@pytest.mark.parametrize("package, url", [
    ("sqlalchemy", "sqlite:///x"), ("psycopg", "postgresql://host/x"),
])  # fmt: skip
def test_what_is_not_installed_is_named(
    package: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} is needed .*tilewright\[sql\]"):
        SQLDatabase(url)
