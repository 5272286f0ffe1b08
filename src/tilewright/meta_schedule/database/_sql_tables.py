"""The tables of a SQL database: short transactions, and what ranking asks of them.

The same statements serve SQLite and PostgreSQL, a few words apart. A line holds what a line of the
JSON files holds, so it is checked, and migrated, like one from there; columns beside it say what
ranking needs. Which tables there are is in ``_sql_schema``; those of an older database are migrated
when it is opened.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from tilewright.meta_schedule.database import _sql_schema
from tilewright.meta_schedule.database._sqlite import (
    is_plain,
    log_of,
    set_up_sqlite,
    signature,
)
from tilewright.meta_schedule.database._stored import (
    FEW,
    Row,
    content_of,
    fields_of,
    target_id,
)
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.json_index import is_safe
from tilewright.meta_schedule.database.record import TuningRecord, Workload
from tilewright.meta_schedule.database.schema import LONGEST_LINE, read_target
from tilewright.support.errors import MissingExtraError, TilewrightError, TuneError
from tilewright.target import Target

logger = logging.getLogger("tilewright.meta_schedule.database")
_PATIENCE = 60.0  # seconds to wait for other writers
_LOCK = 0x7111_E3A1  # PostgreSQL's locks are numbers: this one is for making and migrating tables
_PAGE = 16  # programs whose rows are in memory at once

_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
_RANKED = "SELECT number, workload, target, verified, seconds, valid, beat, digest"
_LINE = f"CASE WHEN length(line) <= {LONGEST_LINE} THEN line END"


_NO_ROW = TilewrightError, TypeError, ValueError, AttributeError, RecursionError


def _sqlalchemy() -> Any:
    try:
        import sqlalchemy
    except ModuleNotFoundError:
        raise MissingExtraError("sqlalchemy", "sql", "databases with a URL") from None
    return sqlalchemy


def as_line(value: object) -> str:
    """Return JSON text without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


class Tables:
    """The tables behind a URL, which are made or migrated if need be.

    Every method is a transaction of its own, except inside ``writing``, which they become part of.
    Raises SQLAlchemy's errors; ``refuse`` makes a ``TuneError`` of one.
    """

    def __init__(self, url: str, *, allow_missing: bool) -> None:
        self.sql = _sqlalchemy()
        try:
            self._url = self.sql.make_url(url)
        except self.sql.exc.ArgumentError as error:
            raise TuneError(f"{url!r} is no URL of a database: {error}") from error
        self.name: str = self._url.render_as_string(hide_password=True)
        self.dialect = self._url.get_backend_name()
        if self.dialect not in _DRIVERS:
            raise TuneError(
                f"there is no support for databases of {self.dialect} ({self.name}); known: "
                "sqlite:///FILE, postgresql://USER@HOST/NAME"
            )
        if self._url.drivername == self.dialect:
            self._url = self._url.set(drivername=_DRIVERS[self.dialect])
        self._frozen = False  # a file that is read as it is, since it can't be written
        self._migrates = False  # that file is of an older format: it is migrated in memory
        self._opened_as: tuple[object, ...] = ()  # the signature that it had
        self._current: Any = None  # the connection of the transaction that is open
        self._inherited: list[Any] = []
        self._targets: dict[int, Target] = {}
        self._prepare(allow_missing)

    def refuse(self, error: Exception, about: str = "") -> NoReturn:
        """Raise what a user can read: neither statements nor passwords."""
        said = " ".join(str(getattr(error, "orig", None) or error).split())
        raise TuneError(f"the database {self.name}{about} can't be used: {said[:500]}") from error

    # ---- connections ------------------------------------------------------------------------
    def _connect(self) -> None:
        local: dict[str, Any] = {"connect_args": {"timeout": _PATIENCE}}
        if self.dialect != "sqlite":
            local = {"pool_pre_ping": True}
        elif self._frozen:
            local = {"creator": self._opened_frozen}
        try:
            self._engine = self.sql.create_engine(self._url, **local)
        except ModuleNotFoundError as error:
            raise MissingExtraError(str(error.name), "sql", f"the database {self.name}") from None
        self._process = os.getpid()
        if self.dialect == "sqlite":
            self.sql.event.listen(self._engine, "connect", set_up_sqlite)
            self._to_read = self._engine
        else:
            self._to_read = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    def _opened_frozen(self) -> sqlite3.Connection:
        """Open a file that nobody may write; an older one in memory, to be migrated there."""
        name = Path(self._url.database).absolute().as_uri()
        made = sqlite3.connect(f"{name}?immutable=1", uri=True, check_same_thread=False)
        if self._migrates:
            file, made = made, sqlite3.connect(":memory:", check_same_thread=False)
            with closing(file):
                file.backup(made)
            (found,) = made.execute("SELECT format FROM tilewright_format").fetchone()
            for statement in _sql_schema.migration(found, "sqlite"):
                made.execute(statement)
            made.commit()
        made.execute("PRAGMA query_only = ON")
        return made

    def _freeze(self, error: Exception) -> None:
        """Read a file of SQLite as it is, if the error says that it can't be written.

        Beside a file that others may write, SQLite has two more, even to read it.
        """
        file, said = self._file(), str(getattr(error, "orig", ""))
        cannot_write = any(text in said for text in ("readonly", "unable to open"))
        if file is None or self._frozen or not cannot_write or not file.exists():
            raise error
        log = log_of(file)
        if log.exists() and log.stat().st_size:
            raise TuneError(
                f"the database {self.name} can't be used: its last records are in {log}, from "
                "where only who may write can take them; copy both to a folder of your own"
            ) from error
        self._engine.dispose()
        self._frozen = True
        self._opened_as = signature(Path(self._url.database))
        self._connect()

    def _reopen(self) -> None:
        """Open a file anew that was read as it is, after somebody has written to it."""
        self._engine.dispose()
        self._frozen = self._migrates = False
        self._prepare(allow_missing=False)

    def _mine(self) -> None:
        """Connect anew in a forked process: it must not even close what its parent has opened."""
        if self._process != os.getpid():
            self._inherited.append(self._engine)
            self._current = None
            self._connect()

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        self._mine()
        if self._current is not None:
            yield self._current
            return
        with self._to_read.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, lock: str | None = None) -> Iterator[Any]:
        """A transaction that writes; those with the same ``lock`` come one after the other."""
        self._mine()
        if self._current is not None:
            yield self._current
            return
        with self._engine.begin() as connection:
            if self.dialect == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif lock is not None:
                digest = hashlib.sha256(lock.encode()).digest()
                self._lock(connection, int.from_bytes(digest[:8], "big", signed=True))
            self._current = connection
            try:
                yield connection
            finally:
                self._current = None

    def _lock(self, connection: Any, number: int) -> None:
        connection.execute(self.sql.text("SELECT pg_advisory_xact_lock(:n)"), {"n": number})

    def _all(self, statement: str, **values: object) -> Sequence[Any]:
        lists = [name for name, value in values.items() if isinstance(value, list)]
        text = self.sql.text(statement).bindparams(
            *(self.sql.bindparam(name, expanding=True) for name in lists)
        )
        while True:
            try:
                with self._reading() as connection:
                    rows: Sequence[Any] = connection.execute(text, values).fetchall()
            except self.sql.exc.DatabaseError:  # what was being written may look damaged
                if not self._has_changed():
                    raise
            else:
                if not self._has_changed():
                    return rows
            self._reopen()

    def _has_changed(self) -> bool:
        """Whether somebody has written to a file that is read as it is, where SQLite can't tell."""
        return self._frozen and self._opened_as != signature(Path(self._url.database))

    def close(self) -> None:
        """Give the connections back."""
        if self._process == os.getpid():
            self._engine.dispose()

    # ---- the tables -------------------------------------------------------------------------
    def _prepare(self, allow_missing: bool) -> None:
        file = self._file()
        if file is not None:
            if not (allow_missing or file.exists()):
                raise TuneError(f"there is no database file {file}")
            if file.is_symlink():
                raise TuneError(f"{file} is a link: only the file that it leads to may be opened")
            if not is_safe(file):
                raise TuneError(f"{file} is no file of a database that may be opened")
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise TuneError(f"the folder {file.parent} can't be made: {error}") from error
        self._connect()
        found = None
        as_old = ""
        try:
            try:
                found = self._format()
            except self.sql.exc.OperationalError as error:
                self._freeze(error)
                found = self._format()
            if found is None and not allow_missing:
                raise TuneError(f"there is no database of tuning records at {self.name}")
            if found == _sql_schema.FORMAT:
                return
            if found is not None:
                as_old = (
                    f", which is of format {found} and has to be migrated to {_sql_schema.FORMAT} "
                    "(once, by opening it as somebody who may write),"
                )
            try:
                self._create_or_migrate()
            except self.sql.exc.OperationalError as error:
                if found is None:
                    raise
                if not self._frozen:
                    self._freeze(error)
                self._migrates = True
                self._engine.dispose()
                self._connect()
                self._format()
        except self.sql.exc.SQLAlchemyError as error:
            self.refuse(error, as_old)

    def _file(self) -> Path | None:
        if self.dialect != "sqlite":
            return None
        name = self._url.database or ""
        if name in ("", ":memory:") or name.startswith("file:"):
            raise TuneError(f"{self.name} names no file; use sqlite:///FILE, or the kind 'memory'")
        return Path(name)

    def _format(self) -> int | None:
        """Return of which format the tables are, if there are any.

        Raises ``TuneError`` for tables that this version doesn't know.
        """
        # A file may be a stranger's: these would run with what is asked.
        schema = self._all("SELECT sql FROM sqlite_master") if self.dialect == "sqlite" else ()
        if not all(map(is_plain, schema)):
            raise TuneError(
                f"{self.name} has triggers or views, or computes columns or keys: it is no "
                "database of ours"
            )
        with self._reading() as connection:
            if not self.sql.inspect(connection).has_table("tilewright_format"):
                return None
        rows = self._all("SELECT format FROM tilewright_format")
        found = rows[0][0] if len(rows) == 1 else None
        if type(found) is not int or found < 1:
            raise TuneError(f"{self.name} doesn't say of which format it is")
        if found > _sql_schema.FORMAT:
            raise TuneError(
                f"{self.name} is of format {found}; this version reads up to {_sql_schema.FORMAT}"
            )
        return found

    def _create_or_migrate(self) -> None:
        """Make the tables, or migrate older ones, if no other process was quicker."""
        if self.dialect == "sqlite":
            self._log_ahead()
        with self.writing() as connection:
            if self.dialect != "sqlite":
                self._lock(connection, _LOCK)
            found = self._format()
            if found is None:
                statements = _sql_schema.new_tables(self.dialect)
            else:
                logger.info("%s: from format %d to %d", self.name, found, _sql_schema.FORMAT)
                statements = _sql_schema.migration(found, self.dialect)
            for statement in statements:
                connection.exec_driver_sql(statement)

    def _log_ahead(self) -> None:
        """Let those who read not wait for those who write; SQLite keeps that in the file."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                return
            except self.sql.exc.OperationalError:  # others do the same; SQLite doesn't wait here
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def check_writable(self) -> None:
        """Raise if records could not be saved later."""
        with self.writing() as connection:
            connection.exec_driver_sql("UPDATE tilewright_format SET format = format")

    # ---- writing ----------------------------------------------------------------------------
    def add_workload(self, workload: Workload, line: str) -> None:
        """Add a workload, if no other process has added the same text."""
        self._write(
            "INSERT INTO tilewright_workloads (hash, content, line)"
            " VALUES (:hash, :content, :line) ON CONFLICT DO NOTHING",
            [{"hash": workload.hash, "content": content_of(workload), "line": line}],
        )

    def add_records(self, records: Sequence[tuple[int, TuningRecord, str]]) -> None:
        """Add records with the numbers of their workloads and their lines, all or none."""
        rows = []
        for number, record, line in records:
            target, verified, seconds, valid, beat = fields_of(record, target_id(record.target))
            rows.append({
                "workload": number, "target": target, "verified": verified, "seconds": seconds,
                "valid": valid, "beat": beat, "digest": bytes.fromhex(record.digest), "line": line,
            })  # fmt: skip
        # In an order that is the same for all, so that no two writers wait for each other.
        targets = {str(r.target): r.target for _, r, _ in records if r.target is not None}
        with self.writing():
            new = [
                {"number": target_id(target), "export": as_line(target.export())}
                for _, target in sorted(targets.items())
                if target_id(target) not in self._targets
            ]
            self._write(
                "INSERT INTO tilewright_targets VALUES (:number, :export) ON CONFLICT DO NOTHING",
                new,
            )
            self._write(
                "INSERT INTO tilewright_records (workload, target, verified, seconds, valid, beat,"
                " digest, line) VALUES (:workload, :target, :verified, :seconds, :valid, :beat,"
                " :digest, :line)",
                rows,
            )
        for target in targets.values():
            if (known := target_id(target)) is not None:
                self._targets[known] = target

    def add_key(self, equality: str, number: int, key: str) -> None:
        """Keep the hash that a workload has for an equality."""
        self._write(
            "INSERT INTO tilewright_keys VALUES (:equality, :number, :key) ON CONFLICT DO NOTHING",
            [{"equality": equality, "number": number, "key": key}],
        )

    def put_choice(self, choice: GraphChoice) -> None:
        """Keep a choice for a graph; the last one counts."""
        line = as_line(choice.as_json())
        self._write(
            "INSERT INTO tilewright_graphs VALUES (:graph, :target, :line)"
            " ON CONFLICT (graph, target) DO UPDATE SET line = excluded.line",
            [{"graph": choice.graph, "target": str(choice.target), "line": line}],
        )

    def _write(self, statement: str, rows: Sequence[Mapping[str, object]]) -> None:
        if rows:
            with self.writing() as connection:
                connection.execute(self.sql.text(statement), rows)

    # ---- lines ------------------------------------------------------------------------------
    def workload(self, number: int) -> tuple[Any, Any] | None:
        """Return hash and line of a workload."""
        rows = self._all(
            f"SELECT hash, {_LINE} FROM tilewright_workloads WHERE number = :n", n=number
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def records(self, numbers: list[int]) -> dict[int, Any]:
        """Return the lines of records."""
        return dict(
            map(
                tuple,
                self._all(
                    f"SELECT number, {_LINE} FROM tilewright_records WHERE number IN :numbers",
                    numbers=numbers,
                ),
            )
        )

    def records_after(self, number: int, last: int, count: int) -> Sequence[Any]:
        """Return numbers, workloads and lines of the next records, up to the ``last``."""
        return self._all(
            f"SELECT number, workload, {_LINE} FROM tilewright_records"
            " WHERE number > :number AND number <= :last ORDER BY number LIMIT :count",
            number=number, last=last, count=count,
        )  # fmt: skip

    def last_record(self) -> int:
        """Return the number of the last record."""
        return self._all("SELECT max(number) FROM tilewright_records")[0][0] or 0

    def choices(self, graph: str | None = None, target: str | None = None) -> list[Any]:
        """Return the lines of choices for graphs: all, or of one graph and target."""
        where = "" if graph is None else " WHERE graph = :graph AND target = :target"
        values = {} if graph is None else {"graph": graph, "target": target}
        rows = self._all(
            f"SELECT {_LINE} FROM tilewright_graphs{where} ORDER BY graph, target", **values
        )
        return [line for (line,) in rows]

    # ---- questions --------------------------------------------------------------------------
    def of_hash(self, digest: str) -> list[int]:
        """Return the workloads with a structural hash, oldest first."""
        return self._numbers("tilewright_workloads WHERE hash = :hash ORDER BY 1", hash=digest)

    def of_key(self, equality: str, key: str) -> list[int]:
        """Return the workloads with a hash of another equality, oldest first."""
        return self._numbers(
            "(SELECT workload AS number FROM tilewright_keys WHERE equality = :equality"
            " AND key = :key) AS known ORDER BY 1",
            equality=equality, key=key,
        )  # fmt: skip

    def without_key(self, equality: str) -> list[int]:
        """Return the workloads whose hash of an equality isn't known."""
        return self._numbers(
            "tilewright_workloads WHERE number NOT IN"
            " (SELECT workload FROM tilewright_keys WHERE equality = :equality) ORDER BY 1",
            equality=equality,
        )

    def _numbers(self, what: str, **values: object) -> list[int]:
        return [number for (number,) in self._all(f"SELECT number FROM {what}", **values)]

    def ordered(self, workload: int, target: int | None, *, winners: bool = False) -> Iterator[Row]:
        """Yield a workload's valid records by time, as ``best_first``; or ``winners`` of races."""
        where = " AND beat IS NOT NULL" if winners else ""
        matches = "" if target is None else " (target = :target) IS NOT TRUE,"
        values = {"workload": workload} | ({} if target is None else {"target": target})
        statement = (
            f"{_RANKED} FROM tilewright_records WHERE workload = :workload AND valid = 1{where}"
            f" ORDER BY verified DESC,{matches} seconds, beat IS NULL, number"
        )
        rows = self._all(f"{statement} LIMIT {FEW}", **values)
        yield from self._rows(rows)
        if len(rows) == FEW:
            yield from self._rows(self._all(statement, **values)[FEW:])

    def like(self, workload: int, fields: tuple[Any, ...]) -> list[Row]:
        """Return the records of a workload of which the same is kept (``fields_of``)."""
        kept = dict(zip(("target", "verified", "seconds", "valid", "beat"), fields))
        same = (f"{k} IS NULL" if value is None else f"{k} = :{k}" for k, value in kept.items())
        values = {k: value for k, value in kept.items() if value is not None}
        statement = f"{_RANKED} FROM tilewright_records WHERE workload = :workload AND "
        return list(
            self._rows(self._all(statement + " AND ".join(same), workload=workload, **values))
        )

    def valid(self) -> Iterator[tuple[str, Row]]:
        """Yield all valid records with their workloads' hashes, in order of these."""
        every = self._all("SELECT number, hash FROM tilewright_workloads ORDER BY hash, number")
        for start in range(0, len(every), _PAGE):
            names = dict(map(tuple, every[start : start + _PAGE]))
            found: dict[int, list[Any]] = {number: [] for number in names}
            for row in self._all(
                f"{_RANKED} FROM tilewright_records WHERE valid = 1 AND workload IN :workloads",
                workloads=list(names),
            ):
                found[row[1]].append(row)
            for number, rows in found.items():
                for row in self._rows(rows):
                    yield names[number], row

    def _rows(self, rows: Sequence[Any]) -> Iterator[Row]:
        for number, workload, *fields, digest in rows:
            try:
                target, verified, seconds, _, beat = fields
                beaten = () if beat is None else tuple(map(str, json.loads(beat)))
                yield Row(
                    number, workload, tuple(fields), self.target(target), bool(verified),
                    float(seconds), beaten, digest.hex(),
                )  # fmt: skip
            except _NO_ROW as error:
                logger.warning("record %s of %s is not used: %s", number, self.name, error)

    def target(self, number: int | None) -> Target | None:
        """Return a target by its number; ``TuneError`` if it is no target."""
        if number is None:
            return None
        if number not in self._targets:
            rows = self._all("SELECT export FROM tilewright_targets WHERE number = :n", n=number)
            try:
                found = read_target(json.loads(rows[0][0]))
            except (LookupError, TypeError, ValueError, RecursionError) as error:
                raise TuneError(f"target {number} is no target: {error}") from error
            if target_id(found) != number:
                raise TuneError(f"target {number} is another one")
            self._targets[number] = found
        return self._targets[number]

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        assert table in _sql_schema.TABLES
        return int(self._all(f"SELECT count(*) FROM tilewright_{table}")[0][0])

    def count_of(self, workloads: Sequence[int]) -> int:
        """Return how many records workloads have."""
        statement = "SELECT count(*) FROM tilewright_records WHERE workload IN :workloads"
        return int(self._all(statement, workloads=list(workloads))[0][0])

    def statistics(self) -> list[tuple[Target | None, int, int, int, int]]:
        """Return targets, and how many records, valid, checked and raced ones are for each."""
        rows = self._all(
            "SELECT target, count(*), sum(valid), sum(verified), count(beat)"
            " FROM tilewright_records GROUP BY target ORDER BY 2 DESC"
        )
        made: list[tuple[Target | None, int, int, int, int]] = []
        for number, *counts in rows:
            try:
                every, valid, verified, raced = map(int, counts)
                made.append((self.target(number), every, valid, verified, raced))
            except _NO_ROW as error:
                logger.warning("target %s of %s is not counted: %s", number, self.name, error)
        return made

    def size(self) -> int:
        """Return the bytes that the tables take."""
        if self.dialect == "sqlite":
            (pages,), (each,) = self._all("PRAGMA page_count")[0], self._all("PRAGMA page_size")[0]
            return int(pages) * int(each)
        sizes = " + ".join(
            f"pg_total_relation_size('tilewright_{name}')" for name in _sql_schema.TABLES
        )
        return int(self._all(f"SELECT {sizes}")[0][0])


__all__ = ["Tables", "as_line"]
