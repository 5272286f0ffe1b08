"""The index beside a database's text files: where each line is, and what ranking needs of it.

Tables of SQLite: most of them in a file that all processes share, what was appended since in this
process's memory. It is a cache and no more. The text files are the truth: a line is read and
checked before it is used, and an index that is missing, damaged, of another format or of other
files is made anew; where none can be written, memory serves.

The file says up to which byte of the two text files it goes, and a checksum of both ends of what it
covers. Text files only grow, so it is brought up to date by reading what is new. Its ``generation``
changes when it is made anew, so that others who use it notice.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import sqlite3
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tilewright.meta_schedule.database import schema
from tilewright.meta_schedule.database._stored import (
    FEW,
    Row,
    content_of,
    fields_of,
    target_id,
)
from tilewright.meta_schedule.database.record import TuningRecord, Workload
from tilewright.meta_schedule.database.schema import LONGEST_LINE, read_target
from tilewright.support.errors import TilewrightError
from tilewright.support.settings import setting
from tilewright.target import Target

FORMAT = f"4, lines of format {schema.FORMAT}"
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")  # SQLite's mark of a journal of several files
_ENDS = 4096  # bytes at each end of what is covered that the checksum reads
_MOST_LINES = 4096  # of workloads in memory
_PATIENCE = 2.0  # seconds to wait for another process that is writing the index

_SCHEMA = (
    "CREATE TABLE state (format, generation, file, workload_bytes, workload_lines, workload_good,"
    " record_bytes, record_lines, record_good, ends)",
    "CREATE TABLE workloads (number INTEGER PRIMARY KEY, same, hash, content, offset, length, crc)",
    "CREATE INDEX by_hash ON workloads (hash)",
    "CREATE TABLE records (workload, line, offset, length, crc, target, verified, seconds, valid,"
    " beat, digest, PRIMARY KEY (workload, line)) WITHOUT ROWID",
    "CREATE INDEX by_time ON records (workload, verified, target, seconds, beat IS NULL, line)"
    " WHERE valid",
    "CREATE INDEX winners ON records (workload) WHERE beat IS NOT NULL",
    "CREATE TABLE targets (id INTEGER PRIMARY KEY, export)",
    "CREATE TABLE keys (equality, number, key, PRIMARY KEY (equality, number)) WITHOUT ROWID",
    "CREATE INDEX by_key ON keys (equality, key)",
)
_TABLES = {"workloads": "number", "records": "line", "targets": None, "keys": "number"}


class Stale(Exception):
    """The index doesn't fit the files; ``reset`` if that is the shared file's fault."""

    def __init__(self, why: str, *, reset: bool) -> None:
        super().__init__(why)
        self.reset = reset


class Read(NamedTuple):
    """How much of a text file was read: bytes, lines, and those of them that are kept."""

    bytes: int = 0
    lines: int = 0
    good: int = 0


class State(NamedTuple):
    """What an index covers."""

    generation: str
    workload: Read
    record: Read


class Line(NamedTuple):
    """Where a line is."""

    number: int
    offset: int
    length: int
    crc: int

    def holds(self, data: bytes) -> bool:
        """Whether the line is still what it was."""
        return len(data) == self.length and zlib.crc32(data) == self.crc


class Index:
    """The index of a file of workloads and one of records.

    ``read`` is what has been read of the files; the owner adds lines and advances it. Methods raise
    ``Stale`` if the tables can't be used any more: the owner then makes another index.
    """

    def __init__(self, workloads: Path, records: Path, avoid: Sequence[Path] = ()) -> None:
        self._files = workloads, records
        name = hashlib.sha256(os.fsencode(os.path.realpath(records))).hexdigest()[:32]
        self._places = [
            place
            for place in (
                records.with_name(f"{records.stem}.index.sqlite"),
                Path(setting("cache_dir")) / "databases" / f"{name}.sqlite",
            )
            if place not in avoid
        ]
        self._process = os.getpid()
        self._targets: dict[int, Target] = {}
        self._numbers: dict[int, int] = {}  # of targets that are in self._targets
        self._lines: dict[int, Line] = {}  # of workloads
        self._new: list[tuple[Any, ...]] = []  # records that aren't in a table yet
        self._tables = sqlite3.connect(
            ":memory:", timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=True
        )
        for statement in _SCHEMA:
            self._tables.execute(statement)
        self.read = State("", Read(), Read())
        self.file: Path | None = None
        self._kept = self.read
        self._define_views()

    def close(self) -> None:
        """Give the tables back; in a process that was forked they belong to another."""
        if self._process == os.getpid():
            self._tables.close()

    def _run(self, statement: str, *values: object) -> sqlite3.Cursor:
        if self._process != os.getpid():
            raise Stale("a forked process must not use its parent's tables", reset=False)
        if self._new:
            self._add_new()
        try:
            return self._tables.execute(statement, values)
        except sqlite3.Error as error:
            raise Stale(f"the index can't be used: {error}", reset=True) from error

    def _all(self, statement: str, *values: object) -> list[Any]:
        try:
            return self._run(statement, *values).fetchall()
        except sqlite3.Error as error:
            raise Stale(f"the index can't be used: {error}", reset=True) from error

    def _define_views(self) -> None:
        """Views of what this process has read: others may have gone on with the file."""
        for table, number in _TABLES.items():
            self._run(f"DROP VIEW IF EXISTS temp.all_{table}")
            # What is sorted by must be a column, and the limit no reason to choose an index by it.
            columns = "*, beat IS NULL AS lost" if table == "records" else "*"
            text = f"SELECT {columns} FROM main.{table}"
            if self.file is not None:
                kept = self._kept.record if table == "records" else self._kept.workload
                limit = "" if number is None else f" WHERE +{number} < {kept.lines}"
                text += f" UNION ALL SELECT {columns} FROM kept.{table}{limit}"
            self._run(f"CREATE TEMP VIEW all_{table} AS {text}")

    @property
    def unsaved(self) -> int:
        """Bytes of text that have been read and aren't in the shared file."""
        return sum(own.bytes - kept.bytes for own, kept in zip(self.read[1:], self._kept[1:]))

    # ---- the shared file --------------------------------------------------------------------
    def check(self) -> None:
        """Raise ``Stale`` if another process made the shared file anew, or this one was forked."""
        if self.file is not None:
            found = self._all("SELECT generation FROM kept.state")
            if found != [(self._kept.generation,)]:
                raise Stale("the index was made anew", reset=False)
        elif self._process != os.getpid():
            raise Stale("a forked process must not use its parent's tables", reset=False)

    def refresh(self) -> None:
        """Take over what other processes have indexed since."""
        if self.file is None:
            self.file = next((place for place in self._places if self._attach(place)), None)
            if self.file is None:
                return
        else:
            self.check()
        self._take_over()

    def _take_over(self) -> None:
        state = self._shared_state()
        if state is None:
            raise Stale("the index is of other files", reset=True)
        if state == self._kept:
            return
        self._kept = state
        own = self.read
        self.read = State(
            state.generation, max(own.workload, state.workload), max(own.record, state.record)
        )
        self._run("DELETE FROM main.workloads WHERE number < ?", state.workload.lines)
        self._run("DELETE FROM main.records WHERE line < ?", state.record.lines)
        self._define_views()

    def _attach(self, place: Path) -> bool:
        """Attach a file if it is an index of ours for these files, whole as far as one can see."""
        if not (is_safe(place) and place.exists()):
            return False
        try:
            self._tables.execute(f"ATTACH 'file:{quote(str(place.absolute()))}?mode=rw' AS kept")
        except sqlite3.Error:
            return False
        with contextlib.suppress(sqlite3.Error, Stale):
            schema = "SELECT type, name, sql FROM {}.sqlite_master ORDER BY name"
            same = self._all(schema.format("main")) == self._all(schema.format("kept"))
            if same and self._shared_state() is not None:
                return True
        self._tables.execute("DETACH kept")
        return False

    def _shared_state(self) -> State | None:
        """Return what the shared file covers; ``None`` if that isn't the beginning of our files."""
        rows = self._all("SELECT * FROM kept.state")
        if len(rows) != 1 or rows[0][0] != FORMAT or rows[0][2] != self._files[0].name:
            return None
        _, generation, _, *numbers, ends = rows[0]
        if type(generation) is not str or not _are_counts(numbers):
            return None
        state = State(generation, Read(*numbers[:3]), Read(*numbers[3:]))
        if state != self._kept and ends != self._ends(state):
            return None
        return state

    def _ends(self, state: State) -> str | None:
        """Return a checksum of both ends of what is covered; ``None`` if files are shorter."""
        digest = hashlib.sha256()
        for path, covered in zip(self._files, (state.workload.bytes, state.record.bytes)):
            if not covered:
                continue
            try:
                with open(path, "rb") as file:
                    if os.fstat(file.fileno()).st_size < covered:
                        return None
                    digest.update(file.read(min(_ENDS, covered)))
                    file.seek(max(0, covered - _ENDS))
                    digest.update(file.read(min(_ENDS, covered)))
            except OSError:
                return None
        return digest.hexdigest()

    def save(self) -> None:
        """Move what this process has read to the shared file, which is made if there is none.

        Nothing happens if it can't be written now.
        """
        if self.file is None:
            self.file = next((place for place in self._places if self._made(place)), None)
            if self.file is None:
                return
            self._take_over()  # another process may have been quicker
        ends = self._ends(self.read)
        if self._new:
            self._add_new()
        try:
            self._tables.execute("BEGIN IMMEDIATE")
            try:
                if self._shared_state() == self._kept and ends is not None:
                    self._move(ends)
                self._tables.execute("COMMIT")
            except BaseException:
                if self._tables.in_transaction:
                    self._tables.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError:
            return  # locked, read-only, full: another time
        except sqlite3.Error as error:
            raise Stale(f"the index can't be used: {error}", reset=True) from error
        self.refresh()

    def _made(self, place: Path) -> bool:
        """Attach a file; make it first, or make it anew if it is of other files."""
        name = self._files[0].name
        return any(
            _create_index(place, name, anew=anew) and self._attach(place) for anew in (False, True)
        )

    def _move(self, ends: str) -> None:
        for table in _TABLES:
            self._tables.execute(f"INSERT OR REPLACE INTO kept.{table} SELECT * FROM main.{table}")
            self._tables.execute(f"DELETE FROM main.{table}")
        self._tables.execute(
            "UPDATE kept.state SET workload_bytes = ?, workload_lines = ?, workload_good = ?,"
            " record_bytes = ?, record_lines = ?, record_good = ?, ends = ?",
            (*self.read.workload, *self.read.record, ends),
        )

    def discard(self) -> Path | None:
        """Empty the shared file; if that can't be done, return where it is."""
        if self.file is None:
            return None
        return None if _create_index(self.file, self._files[0].name, anew=True) else self.file

    # ---- lines ------------------------------------------------------------------------------
    def add_workload(self, line: Line, workload: Workload) -> None:
        """Add a workload; one that is there already counts as the first."""
        content = content_of(workload)
        same = self._all(
            "SELECT same FROM all_workloads WHERE hash = ? AND content = ?", workload.hash, content
        )
        first = min((number for (number,) in same), default=line.number)
        self._run(
            "INSERT INTO main.workloads VALUES (?, ?, ?, ?, ?, ?, ?)",
            line.number, first, workload.hash, content, *line[1:],
        )  # fmt: skip

    def add_record(
        self, line: Line, workload: int, record: TuningRecord, digest: str | None
    ) -> None:
        """Add a record of a workload; its digest, if it won a race."""
        target = self.target_number(record.target)
        kept = None if digest is None else bytes.fromhex(digest)
        self._new.append((workload, *line, *fields_of(record, target), kept))

    def _add_new(self) -> None:
        new, self._new = self._new, []
        statement = "INSERT INTO main.records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        try:
            self._tables.executemany(statement, new)
        except sqlite3.Error as error:
            raise Stale(f"the index can't be used: {error}", reset=True) from error

    def target_number(self, target: Target | None) -> int | None:
        """Return a target's number; a new target is added."""
        if target is None:
            return None
        number = self._numbers.get(id(target))  # comparing targets writes their text
        if number is None:
            number = target_id(target)
            assert number is not None
            self._run(
                "INSERT OR IGNORE INTO main.targets VALUES (?, ?)",
                number, json.dumps(target.export()),
            )  # fmt: skip
            known = self._targets.setdefault(number, target)
            self._numbers[id(known)] = number
        return number

    def target(self, number: int | None) -> Target | None:
        """Return a target by its number."""
        if number is None:
            return None
        if number not in self._targets:
            rows = self._all("SELECT export FROM all_targets WHERE id = ?", number)
            try:
                self._targets[number] = read_target(json.loads(rows[0][0]))
            except (TilewrightError, LookupError, TypeError, ValueError, RecursionError) as error:
                raise Stale(f"a target is no target: {error}", reset=True) from error
        return self._targets[number]

    # ---- questions --------------------------------------------------------------------------
    def workload(self, number: int) -> Line | None:
        """Return the line of a workload, or of the first that is the same."""
        found = self._lines.get(number)
        if found is None:
            rows = self._all(
                "SELECT number, offset, length, crc FROM all_workloads WHERE number ="
                " (SELECT same FROM all_workloads WHERE number = ?)",
                number,
            )
            if not rows:
                return None
            if len(self._lines) >= _MOST_LINES:
                self._lines.clear()
            found = self._lines[number] = _line(rows[0])
        return found

    def workloads(self) -> list[tuple[str, int]]:
        """Return hashes and numbers of all workloads, in order of their hashes."""
        return self._all("SELECT hash, number FROM all_workloads WHERE same = number ORDER BY 1, 2")

    def of_hash(self, digest: str) -> list[int]:
        """Return the workloads with a structural hash, oldest first."""
        statement = "SELECT number FROM all_workloads WHERE hash = ? AND same = number ORDER BY 1"
        return [number for (number,) in self._all(statement, digest)]

    def of_key(self, equality: str, key: str) -> list[int]:
        """Return the workloads with a hash of another equality, oldest first."""
        statement = "SELECT DISTINCT number FROM all_keys WHERE equality = ? AND key = ? ORDER BY 1"
        return [number for (number,) in self._all(statement, equality, key)]

    def without_key(self, equality: str) -> list[int]:
        """Return the workloads whose hash of an equality isn't known."""
        known = {
            n for (n,) in self._all("SELECT number FROM all_keys WHERE equality = ?", equality)
        }
        return [number for _, number in self.workloads() if number not in known]

    def add_key(self, equality: str, number: int, key: str) -> None:
        """Keep the hash that a workload has for an equality."""
        self._run("INSERT OR REPLACE INTO main.keys VALUES (?, ?, ?)", equality, number, key)

    def has_record(self, workload: int, line: int) -> bool:
        """Whether a line holds a record of a workload."""
        statement = "SELECT 1 FROM all_records WHERE workload = ? AND line = ?"
        return bool(self._all(statement, workload, line))

    def count(self, workload: int) -> int:
        """Return how many records a workload has."""
        rows = self._all("SELECT count(*) FROM all_records WHERE workload = ?", workload)
        return int(rows[0][0])

    def statistics(self) -> list[tuple[Target | None, int, int, int, int]]:
        """Return targets, and how many records, valid, checked and raced ones are for each."""
        rows = self._all(
            "SELECT target, count(*), sum(valid), sum(verified), sum(beat IS NOT NULL)"
            " FROM all_records GROUP BY target ORDER BY 2 DESC"
        )
        return [(self.target(row[0]), *map(int, row[1:])) for row in rows]  # type: ignore[misc]

    def valid(self) -> Iterator[tuple[str, Row]]:
        """Yield all valid records with their workloads' hashes, in order of these."""
        for digest, number in self.workloads():
            for row in self._all(_VALID, number):
                yield digest, self._ranked(row)

    def ordered(self, workload: int, target: int | None, *, winners: bool = False) -> Iterator[Row]:
        """Yield a workload's valid records in the order of their times, as in ``best_first``.

        Or only the ``winners`` of races.
        """
        values = (workload,) if target is None else (workload, target)
        if winners:
            own = "" if target is None else " target IS NOT ?,"
            order = f"ORDER BY verified DESC,{own} seconds, lost, line"
            rows = self._all(f"{_RECORDS} AND +valid AND beat IS NOT NULL {order}", *values)
            yield from map(self._ranked, rows)
            return
        # One question after the other, each of which ``by_time`` answers without sorting.
        for verified, own in itertools.product((1, 0), _TARGETS if target is not None else ("",)):
            statement = f"{_VALID} AND verified = {verified}{own} ORDER BY seconds, lost, line"
            for part in (f" LIMIT {FEW}", f" LIMIT -1 OFFSET {FEW}"):  # few are found much faster
                rows = self._all(statement + part, *values)
                yield from map(self._ranked, rows)
                if len(rows) < FEW:
                    break

    def like(self, workload: int, fields: tuple[Any, ...]) -> list[Row]:
        """Return the records of a workload of which the same is kept (``fields_of``)."""
        target, verified, seconds, valid, beat = fields
        statement = (
            f"{_RECORDS} AND {'valid' if valid else 'NOT valid'} AND verified = ? AND target IS ?"
            " AND seconds IS ? AND beat IS ? ORDER BY seconds, lost, line"  # as ``by_time`` is
        )
        rows = self._all(statement, workload, verified, target, seconds, beat)
        return list(map(self._ranked, rows))

    def _ranked(self, row: tuple[Any, ...]) -> Row:
        try:
            workload, fields, digest, place = row[0], row[5:10], row[10], _line(row[1:5])
            target, verified, seconds, _, beat = fields
            beaten = () if beat is None else tuple(map(str, json.loads(beat)))
            return Row(
                place.number, workload, fields, self.target(target), bool(verified),
                float(seconds), beaten, digest.hex() if beaten else "", place,
            )  # fmt: skip
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Stale(f"a row is no record: {error}", reset=True) from error


def _are_counts(values: Sequence[int]) -> bool:
    return {*map(type, values)} == {int} and min(values) >= 0


def _line(row: Sequence[int]) -> Line:
    line = Line(*row)
    if not _are_counts(row) or line.length > LONGEST_LINE:
        raise Stale("a line is nowhere", reset=True)
    return line


_TARGETS = " AND target IS ?", " AND target IS NOT ?"
_RECORDS = (
    "SELECT workload, line, offset, length, crc, target, verified, seconds, valid, beat, digest,"
    " lost FROM all_records WHERE workload = ?"
)
_VALID = f"{_RECORDS} AND valid"


def _journal(place: Path) -> Path:
    return place.with_name(f"{place.name}-journal")


def is_safe(place: Path) -> bool:
    """Whether SQLite may open a file, as it is beside text files that may be a stranger's.

    Not a link. And a journal that names another one, which ours never do, would delete that file.
    """
    journal = _journal(place)
    try:
        if place.is_symlink() or (place.exists() and not place.is_file()):
            return False
        return not (journal.exists() and journal.read_bytes().endswith(_NAMES_ANOTHER))
    except FileNotFoundError:
        return True  # whoever was writing is done
    except OSError:
        return False


def _create_index(place: Path, name: str, *, anew: bool) -> bool:
    """Make an empty index for a file; keep one that is there if it looks right, unless ``anew``."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    for _ in range(2 if is_safe(place) else 0):
        try:
            with contextlib.closing(
                sqlite3.connect(place, timeout=_PATIENCE, isolation_level=None)
            ) as made:
                made.execute("BEGIN EXCLUSIVE")
                schema = [sql for (sql,) in made.execute("SELECT sql FROM sqlite_master")]
                if schema and set(schema) != set(_SCHEMA):
                    raise sqlite3.DatabaseError("of another format")
                for statement in () if schema else _SCHEMA:
                    made.execute(statement)
                if anew or not made.execute("SELECT 1 FROM state").fetchall():
                    for table in ("state", *_TABLES):
                        made.execute(f"DELETE FROM {table}")
                    values = [FORMAT, uuid.uuid4().hex, name, 0, 0, 0, 0, 0, 0]
                    made.execute(
                        "INSERT INTO state VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (*values, hashlib.sha256().hexdigest()),
                    )
                made.execute("COMMIT")
            return True
        except sqlite3.OperationalError:
            return False  # it can't be written
        except sqlite3.DatabaseError:
            for path in (place, _journal(place)):
                with contextlib.suppress(OSError):
                    path.unlink()
    return False


__all__ = ["Index", "Line", "Stale", "State", "is_safe"]
