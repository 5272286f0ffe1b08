"""A database in two text files, one JSON value per line.

``database_workload.json`` holds ``[hash, script]`` per workload, ``database_tuning_record.json``
``[workload index, [trace, seconds, target, arguments, provenance]]`` per record, where the index
counts lines of the first file. ``database_graph.json`` beside them holds ``[graph hash, target,
measured ways, workloads by rule]`` for graphs that were measured as a whole; the last line for a
graph and a target counts. Each append is a single write under a file lock, so several processes may
tune into one database and a killed one loses at most the line it was writing.

A line that can't be read is copied to ``<file>.corrupt``, reported in a warning and skipped; the
files themselves are never rewritten. The hash in a file is always the structural one, so databases
of any ``module_equality`` can read it.

A line that is new is checked for what it is ranked by, and its place is kept in an index
(``json_index.py``). It is read as a whole, and checked, when it is asked for, and stays in memory
only while it is in use.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.ir import IRModule
from tilewright.meta_schedule.database._stored import (
    Row,
    StoredDatabase,
    checked_line,
    fields_of,
    guarded,
    target_id,
    workload_of,
)
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.json_index import (
    Index,
    Line,
    Read,
    Stale,
)
from tilewright.meta_schedule.database.record import (
    TuningRecord,
    Workload,
    normalized,
    trace_digest,
)
from tilewright.meta_schedule.database.schema import (
    LaterFormat,
    Measured,
    read_line,
    read_measured,
    to_line,
)
from tilewright.support.collector import few_collections
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Trace

logger = logging.getLogger("tilewright.meta_schedule.database")
_LONGEST_REASON = 500  # characters in a warning
_MOST_WARNINGS = 10  # of lines of a file: where one is wrong, a million may be
_CHUNK = 16 << 20  # bytes of text that are read before the index is saved
_SOME = 1 << 18  # bytes of text whose records are in memory while all are gone through
_SAVED_FROM = 1 << 18  # bytes of text that are worth a file: smaller ones are read at once
_ATTEMPTS = 3
_UNKNOWN, _NO_TRACE = Workload(None, "", ""), Trace()

WORKLOAD_FILE = "database_workload.json"
RECORD_FILE = "database_tuning_record.json"
GRAPH_FILE = "database_graph.json"


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line).digest()


def _corrupt(path: Path) -> Path:
    return path.with_name(path.name + ".corrupt")


def _ranked(found: Measured) -> TuningRecord:
    """Return a record as far as it is ranked."""
    return TuningRecord(_NO_TRACE, _UNKNOWN, found.run_secs, found.target, (), found.provenance)


class JSONDatabase(StoredDatabase):
    """Workloads and records in the files of ``work_dir``, which is created if needed.

    ``JSONDatabase(path_workload, path_tuning_record)`` names the files instead. With
    ``allow_missing=False`` files that don't exist are an error. Raises ``TuneError`` if the folder
    can't be read, or on a commit if it can't be written.
    """

    name = "json"
    _index: Index

    def __init__(
        self,
        path_workload: str | os.PathLike[str] | None = None,
        path_tuning_record: str | os.PathLike[str] | None = None,
        *,
        work_dir: str | os.PathLike[str] | None = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None:
        super().__init__(module_equality)
        if work_dir is None and path_workload is not None and path_tuning_record is None:
            work_dir, path_workload = path_workload, None  # JSONDatabase("folder")
        if work_dir is not None:
            self.path_workload = Path(work_dir) / WORKLOAD_FILE
            self.path_tuning_record = Path(work_dir) / RECORD_FILE
        elif path_workload is not None and path_tuning_record is not None:
            self.path_workload = Path(path_workload)
            self.path_tuning_record = Path(path_tuning_record)
        else:
            raise TuneError("JSONDatabase needs work_dir=, or both path_workload and path_record")
        self.path_graph = self.path_tuning_record.with_name(GRAPH_FILE)
        self._files = (self.path_workload, self.path_tuning_record, self.path_graph)
        self._lock = threading.RLock()
        self._graph = Read()
        # What was set aside before, by its hash, when the file for that was so long.
        self._aside: dict[Path, tuple[int, set[bytes]]] = {}
        self._warned = Counter[Path]()
        self._later: set[Path] = set()  # files with lines of later versions
        self._useless: list[Path] = []  # indices that can be neither used nor mended
        for folder in {path.parent for path in self._files}:
            if folder.exists() and not folder.is_dir():
                raise TuneError(f"there is no database in {folder}: it isn't a folder")
        for path in self._files:
            if not (allow_missing or path.exists() or path == self.path_graph):
                raise TuneError(f"there is no database file {path}")
            if path.exists():
                with self._open(path, "rb"):
                    pass  # unreadable files are an error now, not at the first query
        self._begin()
        self.reload()

    def _begin(self) -> None:
        self._index = Index(self.path_workload, self.path_tuning_record, self._useless)
        self._behind = True
        self._torn: dict[Path, int] = {}  # files whose last line has no end, and where that is
        self._forget()

    def _abandon_index(self, stale: Stale) -> None:
        if stale.reset and (useless := self._index.discard()) is not None:
            self._useless.append(useless)
        self._index.close()
        self._begin()

    def _guard(self, question: Callable[[], Any]) -> Any:
        """Begin again with a new index where a question finds that the one it has is stale."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                try:
                    if self._behind:
                        self._catch_up()
                    self._index.check()
                    return question()
                except Stale as stale:
                    logger.info("%s: %s", self.path_tuning_record, stale)
                    self._abandon_index(stale)
        raise TuneError(f"{self.path_tuning_record} is being changed while it is read")

    # ---- reading ------------------------------------------------------------------------------
    @guarded
    def reload(self) -> None:
        """Read what other processes have appended since."""
        self._catch_up()

    def _catch_up(self) -> None:
        self._index.refresh()
        # A record's workload is written first: it is there when the record is.
        ends = {path: self._size(path) for path in reversed(self._files)}
        index = self._index
        if (
            index.read.workload.bytes > ends[self.path_workload]
            or index.read.record.bytes > ends[self.path_tuning_record]
        ):
            raise Stale("the files have become shorter", reset=True)
        with few_collections():
            while index.read.workload.bytes < ends[self.path_workload]:
                index.read = index.read._replace(
                    workload=self._read_on(
                        self.path_workload, index.read.workload, ends, self._load_workload
                    )
                )
                self._save_index()
            while index.read.record.bytes < ends[self.path_tuning_record]:
                index.read = index.read._replace(
                    record=self._read_on(
                        self.path_tuning_record, index.read.record, ends, self._load_record
                    )
                )
                self._save_index()
            while self._graph.bytes < ends[self.path_graph]:
                self._graph = self._read_on(self.path_graph, self._graph, ends, self._load_choice)
        self._behind = False

    def _save_index(self) -> None:
        """Save the index if that is worth while; it can't begin in the middle of a line."""
        read = self._index.read
        if (
            self._index.unsaved >= _SAVED_FROM
            and self._torn.get(self.path_workload) != read.workload.bytes
            and self._torn.get(self.path_tuning_record) != read.record.bytes
        ):
            self._index.save()

    def _size(self, path: Path) -> int:
        """Return how long a file is at a moment when no line is being written."""
        if not path.exists():
            return 0
        with self._open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return os.fstat(file.fileno()).st_size

    def _read_on(
        self, path: Path, read: Read, ends: Mapping[Path, int], load: Callable[[Line, bytes], bool]
    ) -> Read:
        """Read lines from where ``read`` ends, up to a chunk; return how far that is.

        Appends are single writes under a lock, and what is read was there when nobody had it. So a
        last line without a newline was truncated by a crash and will never be completed; the next
        append starts with the missing newline.
        """
        offset, number, good = read
        data = b"\n"
        with self._open(path, "rb") as file:
            file.seek(offset)
            if self._torn.get(path) == offset:
                del self._torn[path]
                if file.peek(1)[:1] == b"\n":
                    offset += len(file.read(1))
            while offset < min(ends[path], read.bytes + _CHUNK):
                data = file.readline()
                if not data:
                    raise Stale(f"{path} has become shorter", reset=True)
                line = data.removesuffix(b"\n")
                good += load(Line(number, offset, len(line), zlib.crc32(line)), line)
                offset, number = offset + len(data), number + 1
        if not data.endswith(b"\n"):
            self._torn[path] = offset
        return Read(offset, number, good)

    def _load_workload(self, place: Line, line: bytes) -> bool:
        try:
            workload = Workload.from_json(read_line(line))
        except TilewrightError as error:
            self._set_aside(self.path_workload, line, error)
            return False
        self._index.add_workload(place, workload)
        return True

    def _load_record(self, place: Line, line: bytes) -> bool:
        if not line.strip():
            return False
        try:
            owner, measured = self._measured(line)
            record = _ranked(measured)
            digest = trace_digest(measured.whole().trace) if record.beat else None
        except TilewrightError as error:
            self._set_aside(self.path_tuning_record, line, error)
            return False
        self._index.add_record(place, owner, record, digest)
        return True

    def _measured(self, line: bytes) -> tuple[int, Measured]:
        """Read what a record is ranked by; return its workload's number, too."""
        found = read_measured(read_line(line))
        owner = self._index.workload(found.workload)
        if owner is None:
            raise TuneError(f"the record belongs to workload {found.workload}, which is missing")
        return owner.number, found

    def _load_choice(self, _: Line, line: bytes) -> bool:
        try:
            super().commit_graph_choice(GraphChoice.from_json(read_line(line)))
        except TilewrightError as error:
            self._set_aside(self.path_graph, line, error)
            return False
        return True

    # ---- lines that are asked for -------------------------------------------------------------
    def _line(self, path: Path, place: Line) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(place.offset)
                line = file.read(place.length)
        except FileNotFoundError:
            line = b""
        if not place.holds(line):
            raise Stale(f"line {place.number} of {path} isn't what it was", reset=True)
        return line

    def _read_workload(self, number: int) -> Workload | None:
        place = self._index.workload(number)
        if place is None or place.number in self._dropped:
            return None
        try:
            return Workload.from_json(read_line(self._line(self.path_workload, place)))
        except TilewrightError as error:
            raise Stale(f"line {number} is no workload: {error}", reset=True) from error

    def _read_records(self, rows: Sequence[Row]) -> Iterator[TuningRecord]:
        for row in rows:
            record = self._records.get(row.number)
            if record is None and row.number not in self._unreadable:
                line = self._line(self.path_tuning_record, Line(*row.place))
                try:
                    owner, found = self._measured(line)
                except TilewrightError as error:
                    raise Stale(f"line {row.number} is no record: {error}", reset=True) from error
                if (owner, fields_of(_ranked(found), target_id(found.target))) != row[1:3]:
                    raise Stale(f"{row} is ranked by what it isn't", reset=True)
                record = self._whole(row.number, owner, found, line)
            if record is not None:
                yield record

    def _whole(self, number: int, owner: int, found: Measured, line: bytes) -> TuningRecord | None:
        """Return a record; its line is set aside if its schedule can't be read."""
        try:
            record = TuningRecord.from_data(found.whole(), self._workload(owner))
        except TilewrightError as error:
            self._unreadable[number] = owner
            self._set_aside(self.path_tuning_record, line, error)
            return None
        self._records.add(number, record)
        return record

    def _set_workload_aside(self, number: int, error: Exception) -> None:
        place = self._index.workload(number)
        if place is not None:
            self._set_aside(self.path_workload, self._line(self.path_workload, place), error)

    # ---- questions ----------------------------------------------------------------------------
    @guarded
    def statistics(self) -> dict[str, Any]:
        """Return numbers of what there is, from the index."""
        columns = ("target", "records", "valid", "checked", "raced")
        return {
            "workloads": len(self._index.workloads()) - len(self._dropped),
            "records": len(self),
            "targets": [dict(zip(columns, row)) for row in self._index.statistics()],
            "choices": len(self.graph_choices()),
            "bytes": sum(self._size(path) for path in self._files),
            "set_aside": {
                path.name: path.read_bytes().count(b"\n")
                for path in map(_corrupt, self._files)
                if path.exists()
            },
            "index": None if self._index.file is None else str(self._index.file),
        }

    def records(self) -> Iterator[TuningRecord]:
        """Yield all records, oldest first, without holding them all at once."""
        read, end = Read(), self._index.read.record.bytes
        while read.bytes < end:
            some, read = self._some_records(read, end)
            yield from some

    @guarded
    def _some_records(self, read: Read, end: int) -> tuple[list[TuningRecord], Read]:
        some: list[TuningRecord] = []

        def load(place: Line, line: bytes) -> bool:
            record = self._records.get(place.number)
            if record is None and place.number not in self._unreadable:
                try:
                    owner, found = self._measured(line)
                except TilewrightError:
                    return False  # it has been set aside
                if owner not in self._dropped and self._index.has_record(owner, place.number):
                    record = self._whole(place.number, owner, found, line)
            if record is not None:
                some.append(record)
            return record is not None

        path = self.path_tuning_record
        return some, self._read_on(path, read, {path: min(end, read.bytes + _SOME)}, load)

    @guarded
    def __len__(self) -> int:
        dropped = sum(map(self._index.count, self._dropped))
        return self._index.read.record.good - dropped - self._count_unreadable()

    def _set_aside(self, path: Path, line: bytes, error: Exception) -> None:
        if not line.strip():
            return
        if isinstance(error, LaterFormat):
            if path not in self._later:
                logger.warning("lines of %s are not used: %s", path, error)
            self._later.add(path)
            return
        corrupt = _corrupt(path)
        reason = str(error)  # it may quote what stands in the line, however long that is
        self._warned[path] += 1
        if self._warned[path] <= _MOST_WARNINGS:
            logger.warning(
                "a line of %s can't be read (%s); it is set aside in %s, the rest is used",
                path,
                reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]} …",
                corrupt.name,
            )
        elif self._warned[path] == _MOST_WARNINGS + 1:
            logger.warning("more lines of %s can't be read: see %s", path, corrupt.name)
        try:
            size, known = self._aside.get(path, (0, set()))
            if not corrupt.exists():
                known = set()
            elif corrupt.stat().st_size != size:  # others may have seen it, too
                known = set(map(_digest, corrupt.read_bytes().split(b"\n")))
            if _digest(line) not in known:
                with corrupt.open("ab") as file:
                    file.write(line + b"\n")
                known.add(_digest(line))
            self._aside[path] = corrupt.stat().st_size, known
        except OSError as problem:
            logger.warning("%s can't be written: %s", corrupt, problem)

    # ---- writing ------------------------------------------------------------------------------
    @contextmanager
    def _open(self, path: Path, mode: str) -> Iterator[Any]:
        try:
            if "a" in mode:
                path.parent.mkdir(parents=True, exist_ok=True)
            with path.open(mode) as file:
                yield file
        except OSError as error:
            verb = "written" if "a" in mode else "read"
            raise TuneError(
                f"the database file {path} can't be {verb}: {error.strerror or error}; "
                "choose another work_dir or change its permissions"
            ) from error

    def check_writable(self) -> None:
        """Raise ``TuneError`` now if records could not be saved later."""
        for path in (*self._files, self._lock_path()):
            with self._open(path, "ab"):
                pass

    def _append(self, path: Path, *values: object) -> None:
        """Write lines under the lock; a truncated line before them is ended first."""
        line = b"".join(
            json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"
            for value in values
        )
        with self._open(path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    line = b"\n" + line
            file.write(line)
            file.flush()

    def commit_workload(self, mod: IRModule | PrimFunc) -> Workload:
        """Add a module if it is new, also to the file; return its workload.

        Raises ``TuneError`` if the module can't be read back unchanged.
        """
        mod = normalized(mod)
        workload = self.find_workload(mod)
        if workload is not None:
            return workload
        made = workload_of(mod)
        with self._locked():
            self.reload()  # another process may have added it
            workload = self.find_workload(mod)
            if workload is None:
                self._append(self.path_workload, to_line(made.as_json()))
                self.reload()
                workload = self.find_workload(mod)
        if workload is None:
            raise TuneError(
                f"the workload written to {self.path_workload} can't be read back; "
                "was the file changed by something else?"
            )
        return workload

    def _lock_path(self) -> Path:
        return self.path_workload.with_name(self.path_workload.name + ".lock")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from adding workloads between our reading and writing."""
        with self._open(self._lock_path(), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def commit_tuning_records(self, records: Iterable[TuningRecord]) -> None:
        """Add several records with one write to the file.

        Raises ``TuneError`` if one of them can't be written as JSON; none is added then.
        """
        lines = [checked_line(record, self._number_for(record)) for record in records]
        if lines:
            self._append(self.path_tuning_record, *lines)
            self.reload()

    def commit_graph_choice(self, choice: GraphChoice) -> None:
        """Keep what serves a graph best, also in the file; the last choice counts."""
        self._append(self.path_graph, choice.as_json())
        self.reload()
