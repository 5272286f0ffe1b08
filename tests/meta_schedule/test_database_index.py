"""The index beside a database's files: it changes no answer, and is worth nothing by itself."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from database_cases import (
    PROGRAMS,
    TARGET,
    add,
    check_same,
    lines_of,
    matmul,
    random_record,
    times,
)

from tilewright.meta_schedule.database import (
    JSONDatabase,
    MemoryDatabase,
    TuningRecord,
    json_file,
)
from tilewright.meta_schedule.database.record import Workload
from tilewright.meta_schedule.database.schema import read_line
from tilewright.support.errors import TilewrightError

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
INDEX = "database_tuning_record.index.sqlite"


@pytest.fixture(autouse=True)
def no_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index is saved however small it is."""
    monkeypatch.setattr(json_file, "_SAVED_FROM", 1)


# ---- the same answers ----------------------------------------------------------------------------


def random_files(rng: random.Random, records: int) -> tuple[list[str], list[str]]:
    """Lines of workloads, some of them twice or damaged, and of their records."""
    workloads = [json.dumps(program.as_json()) for program in PROGRAMS]
    workloads += [rng.choice([*workloads, "{torn", ""]) for _ in range(2)]
    rng.shuffle(workloads)
    lines = []
    for _ in range(records):
        good = json.dumps(random_record(rng, rng.randrange(len(workloads) + 1)))
        lines.append(rng.choice(["", good[:-9], "[0]"]) if rng.random() < 0.1 else good)
    return workloads, lines


def in_memory(workloads: list[str], records: list[str]) -> tuple[MemoryDatabase, list[int]]:
    """A database of all lines, by parsing them; and which records it took."""
    database, taken = MemoryDatabase(), []
    known: list[Workload | None] = []
    for line in workloads:
        try:
            known.append(database.commit_workload(Workload.from_json(read_line(line.encode())).mod))
        except TilewrightError:
            known.append(None)
    for number, line in enumerate(records):
        try:
            record = TuningRecord.from_row(read_line(line.encode()), known)
        except TilewrightError:
            continue
        database.commit_tuning_record(record)
        taken.append(number)
    return database, taken


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_a_database_in_memory(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    workloads, records = random_files(rng, rng.randint(0, 30))
    expected, _ = in_memory(workloads, records)
    (tmp_path / WORKLOADS).write_text("".join(f"{line}\n" for line in workloads))
    # Without an index; with one that is made in steps; with one that is there; with half of one.
    (tmp_path / RECORDS).write_text("".join(f"{line}\n" for line in records))
    check_same(JSONDatabase(work_dir=tmp_path), expected)
    assert not (tmp_path / INDEX).exists()
    monkeypatch.setattr(json_file, "_SAVED_FROM", 1)
    monkeypatch.setattr(json_file, "_CHUNK", 2000)
    check_same(JSONDatabase(work_dir=tmp_path), expected)
    assert (tmp_path / INDEX).exists()
    check_same(JSONDatabase(work_dir=tmp_path), expected)
    half = len(records) // 2
    (tmp_path / RECORDS).write_text("".join(f"{line}\n" for line in records[:half]))
    JSONDatabase(work_dir=tmp_path)
    monkeypatch.setattr(json_file, "_SAVED_FROM", 1 << 30)
    with (tmp_path / RECORDS).open("a") as file:
        file.write("".join(f"{line}\n" for line in records[half:]))
    check_same(JSONDatabase(work_dir=tmp_path), expected)


# ---- what the index saves ------------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path: Path, eager: None) -> Path:
    """A folder with three workloads, a record of each, and an index."""
    database = JSONDatabase(work_dir=tmp_path)
    for seconds, n in ((1e-5, 16), (2e-5, 32), (3e-5, 64)):
        add(database, matmul(n), seconds)
    assert (tmp_path / INDEX).is_file()
    return tmp_path


def best(database: JSONDatabase, n: int) -> float | None:
    record = database.query_tuning_record(matmul(n), TARGET)
    return None if record is None else record.best_seconds


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that were checked when a database was opened."""
    seen: list[bytes] = []
    for name in ("_load_workload", "_load_record"):
        real = getattr(JSONDatabase, name)

        def load(self: object, place: object, line: bytes, real: object = real) -> bool:
            seen.append(line)
            return real(self, place, line)  # type: ignore[operator, no-any-return]

        monkeypatch.setattr(JSONDatabase, name, load)
    return seen


def test_only_new_lines_are_checked_when_it_is_opened(indexed: Path, unread: list[bytes]) -> None:
    database = JSONDatabase(work_dir=indexed)
    assert (len(database), best(database, 32), unread) == (3, 2e-5, [])
    line = lines_of(indexed / RECORDS)[1]
    with (indexed / RECORDS).open("a") as file:
        file.write(f"{line}\n")
    assert (len(JSONDatabase(work_dir=indexed)), len(unread)) == (4, 1)
    assert (len(JSONDatabase(work_dir=indexed)), len(unread)) == (4, 1)


def test_small_databases_have_none(tmp_path: Path) -> None:
    add(JSONDatabase(work_dir=tmp_path), matmul(), 1e-5)
    assert not list(tmp_path.glob("*.sqlite"))


def test_records_that_nobody_uses_are_not_kept(
    indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.meta_schedule.database.recent.LAST", 1)
    database = JSONDatabase(work_dir=indexed)
    first = database.get_all_tuning_records()[0]
    assert len(list(database.records())) == 3
    assert len(database._records._alive) == 2  # the one that we hold, and the last
    assert next(database.records()) is first


def test_hashes_of_another_equality_are_kept(indexed: Path) -> None:
    for _ in range(2):
        anchor = JSONDatabase(work_dir=indexed, module_equality="anchor-block")
        assert anchor.query_tuning_record(matmul(32, relu=True), TARGET) is not None
        assert not anchor.has_workload(matmul(128, relu=True))
        add(anchor, matmul(64), 1e-6)  # saves the index
    assert anchor._index.without_key("anchor-block") == []


# ---- an index that doesn't fit -------------------------------------------------------------------


def rewrite(path: Path, number: int, old: str, new: str) -> None:
    lines = lines_of(path)
    assert old in lines[number]
    lines[number] = lines[number].replace(old, new)
    path.write_text("".join(f"{line}\n" for line in lines))


def write_row(statement: str) -> object:
    def damage(folder: Path) -> None:
        with sqlite3.connect(folder / INDEX) as tables:
            tables.execute(statement)
        tables.close()

    return damage


def cut(folder: Path) -> None:
    data = (folder / INDEX).read_bytes()
    (folder / INDEX).write_bytes(data[: len(data) // 2])


def folder_instead(folder: Path) -> None:
    (folder / INDEX).unlink()
    (folder / INDEX).mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / INDEX).unlink(),
        lambda folder: (folder / INDEX).write_bytes(b""),
        lambda folder: (folder / INDEX).write_bytes(b"no tables at all" * 1000),
        cut,
        folder_instead,
        write_row("DROP TABLE targets"),
        write_row("DROP INDEX by_hash"),
        write_row("CREATE TABLE more (x)"),
        write_row("CREATE TRIGGER t AFTER DELETE ON records BEGIN SELECT 1; END"),
        write_row("DELETE FROM state"),
        write_row("DELETE FROM targets"),
        write_row("UPDATE state SET format = 'another'"),
        write_row("UPDATE state SET record_bytes = record_bytes - 1"),
        write_row("UPDATE state SET record_bytes = 1 << 60"),
        write_row("UPDATE state SET record_bytes = -1"),
        write_row("UPDATE state SET record_lines = 'many'"),
        write_row("UPDATE state SET file = 'another'"),
        write_row("UPDATE state SET generation = 7"),
        write_row("UPDATE records SET offset = offset + 1"),
        write_row("UPDATE records SET offset = 'here'"),
        write_row("UPDATE records SET offset = -5"),
        write_row("UPDATE records SET length = 1 << 60"),
        write_row("UPDATE records SET seconds = 1e-9"),
        write_row("UPDATE records SET seconds = NULL"),
        write_row("UPDATE records SET beat = '{'"),
        write_row("UPDATE records SET beat = '[\"0\"]'"),
        write_row("UPDATE records SET target = 5"),
        write_row("UPDATE records SET workload = 2 - workload"),
        write_row("UPDATE records SET digest = NULL"),
        write_row("UPDATE targets SET export = '[]'"),
        write_row("UPDATE workloads SET crc = 0"),
        write_row("UPDATE workloads SET offset = NULL"),
        write_row("UPDATE workloads SET length = 'long'"),
    ],
)
def test_a_damaged_index_is_made_anew(indexed: Path, damage: object) -> None:
    damage(indexed)  # type: ignore[operator]
    for _ in range(2):
        database = JSONDatabase(work_dir=indexed)
        assert [best(database, n) for n in (16, 32, 64, 128)] == [1e-5, 2e-5, 3e-5, None]
        assert times(database) == [1e-5, 2e-5, 3e-5]
        assert [record.best_seconds for record in database.best_records()] == [1e-5, 2e-5, 3e-5]
    assert not list(indexed.glob("*.corrupt"))
    add(database, matmul(16), 9e-6)
    assert best(JSONDatabase(work_dir=indexed), 16) == 9e-6


def test_files_that_were_rewritten_are_indexed_anew(indexed: Path) -> None:
    opened = JSONDatabase(work_dir=indexed)
    rewrite(indexed / RECORDS, 2, "[3e-05,6e-05,3e-05]", "[0.004,0.004,0.004]")  # as long as before
    for database in (opened, JSONDatabase(work_dir=indexed)):
        assert best(database, 64) == 0.004
    rewrite(indexed / RECORDS, 1, "[2e-05,4e-05,2e-05]", "[0.0000005]")
    opened.reload()
    for database in (opened, JSONDatabase(work_dir=indexed)):
        assert [best(database, n) for n in (16, 32, 64)] == [1e-5, 5e-7, 0.004]
    (indexed / RECORDS).write_text("")
    opened.reload()
    for database in (opened, JSONDatabase(work_dir=indexed)):
        assert (len(database), best(database, 16)) == (0, None)
    for name in (WORKLOADS, RECORDS):
        (indexed / name).unlink()
    opened.reload()
    add(opened, matmul(16), 5e-6)
    assert times(JSONDatabase(work_dir=indexed)) == [5e-6]


def test_an_index_of_other_files_is_not_believed(indexed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    add(JSONDatabase(work_dir=other), matmul(32), 7e-5)
    shutil.copy(indexed / INDEX, other / INDEX)
    database = JSONDatabase(work_dir=other)
    assert (times(database), best(database, 32), best(database, 16)) == ([7e-5], 7e-5, None)


def test_a_changed_workload_is_noticed(indexed: Path) -> None:
    database = JSONDatabase(work_dir=indexed)
    rewrite(indexed / WORKLOADS, 1, "T.grid", "T.gird")  # as long as before
    assert best(database, 32) is None
    assert times(database) == [1e-5, 3e-5] and len(database) == 2
    assert [record.best_seconds for record in database.best_records()] == [1e-5, 3e-5]
    add(database, matmul(32), 7e-5)
    again = JSONDatabase(work_dir=indexed)
    assert (best(again, 32), times(again)) == (7e-5, [1e-5, 3e-5, 7e-5])


def test_an_index_beside_strange_files_reaches_no_others(indexed: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    # A link; and a journal that says it is one of several, which SQLite deletes when they are done.
    (indexed / INDEX).rename(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    (indexed / INDEX).symlink_to(tmp_path / "elsewhere")
    add(JSONDatabase(work_dir=indexed), matmul(32), 1e-6)
    assert (tmp_path / "elsewhere").read_bytes() == before
    (indexed / INDEX).unlink()
    (tmp_path / "elsewhere").rename(indexed / INDEX)
    name = str(victim).encode()
    (indexed / f"{INDEX}-journal").write_bytes(
        bytes.fromhex("d9d505f920a163d7") + bytes(504) + bytes(4) + name
        + len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big")
        + bytes.fromhex("d9d505f920a163d7")
    )  # fmt: skip
    database = JSONDatabase(work_dir=indexed)
    assert best(database, 32) == 1e-6
    assert victim.read_text() == "mine"


# ---- several users -------------------------------------------------------------------------------


def test_an_index_that_another_process_makes_anew(indexed: Path) -> None:
    ours, theirs = JSONDatabase(work_dir=indexed), JSONDatabase(work_dir=indexed)
    workload = ours.commit_workload(matmul(16))
    theirs._index.discard()
    assert [record.best_seconds for record in ours.get_top_k(workload, 2)] == [1e-5]
    assert times(theirs) == times(ours) == [1e-5, 2e-5, 3e-5]
    (indexed / INDEX).unlink()
    add(ours, matmul(16), 4e-5)
    theirs.reload()
    for database in (ours, theirs, JSONDatabase(work_dir=indexed)):
        assert times(database) == [1e-5, 2e-5, 3e-5, 4e-5]


def test_what_others_indexed_is_seen_from_the_next_reload(indexed: Path) -> None:
    ours, theirs = JSONDatabase(work_dir=indexed), JSONDatabase(work_dir=indexed)
    add(theirs, matmul(16), 5e-6)
    add(theirs, matmul(128), 4e-5)
    assert (best(ours, 16), best(ours, 128), len(ours)) == (1e-5, None, 3)
    ours.reload()
    assert (best(ours, 16), best(ours, 128), len(ours)) == (5e-6, 4e-5, 5)


def test_a_forked_process_has_tables_of_its_own(
    indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = JSONDatabase(work_dir=indexed)
    own = database._index
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert best(database, 32) == 2e-5
    assert database._index is not own


# ---- places that can't be written ----------------------------------------------------------------


@pytest.fixture
def unwritable(indexed: Path) -> Iterator[Path]:
    """The folder again, where a file that isn't there can't be made."""
    folder_instead(indexed)
    yield indexed


def test_the_cache_folder_is_the_next_place(
    unwritable: Path, no_cache: Path, unread: list[bytes]
) -> None:
    for expected in (6, 6):
        database = JSONDatabase(work_dir=unwritable)
        assert (best(database, 32), len(unread)) == (2e-5, expected)
    assert len(list(no_cache.glob("databases/*.sqlite"))) == 1
    add(database, matmul(32), 1e-6)
    assert best(JSONDatabase(work_dir=unwritable), 32) == 1e-6


def test_memory_is_the_last_place(unwritable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(unwritable / RECORDS))
    database = JSONDatabase(work_dir=unwritable)
    add(database, matmul(32), 1e-6)
    assert database._index.file is None
    assert (best(database, 32), times(database)) == (1e-6, [1e-5, 2e-5, 3e-5, 1e-6])


def test_an_index_that_is_locked_is_saved_another_time(
    indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.meta_schedule.database.json_index._PATIENCE", 0.01)
    database = JSONDatabase(work_dir=indexed)
    other = sqlite3.connect(indexed / INDEX, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    add(database, matmul(32), 1e-6)
    assert database._index.unsaved and best(database, 32) == 1e-6
    other.execute("ROLLBACK")
    other.close()
    database.reload()
    add(database, matmul(32), 2e-6)
    assert not database._index.unsaved and len(JSONDatabase(work_dir=indexed)) == 5


def test_a_folder_for_caches_that_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it can be a user's whom others became; here its name is too long for any file system."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / ("x" * 300)))
    add(JSONDatabase(work_dir=tmp_path), matmul(), 1e-5)
    assert len(JSONDatabase(work_dir=tmp_path)) == 1
