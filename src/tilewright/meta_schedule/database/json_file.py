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
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright import script
from tilewright.ir import IRModule, structural_equal
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.memory import MemoryDatabase
from tilewright.meta_schedule.database.record import TuningRecord, Workload, normalized
from tilewright.meta_schedule.database.schema import read_line, read_record
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.tir import PrimFunc

logger = logging.getLogger("tilewright.meta_schedule.database")
_LONGEST_REASON = 500  # characters in a warning

WORKLOAD_FILE = "database_workload.json"
RECORD_FILE = "database_tuning_record.json"
GRAPH_FILE = "database_graph.json"


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line).digest()


class JSONDatabase(MemoryDatabase):
    """Workloads and records in the files of ``work_dir``, which is created if needed.

    ``JSONDatabase(path_workload, path_tuning_record)`` names the files instead. With
    ``allow_missing=False`` files that don't exist are an error. Raises ``TuneError`` if the folder
    can't be read, or on a commit if it can't be written.
    """

    name = "json"

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
        self._workloads: list[Workload | None] = []
        self._index: dict[Workload, int] = {}
        self._offsets = {self.path_workload: 0, self.path_tuning_record: 0, self.path_graph: 0}
        self._torn: set[Path] = set()
        self._aside: dict[Path, set[bytes]] = {}  # what was set aside before, by its hash
        for path in self._offsets:
            if not (allow_missing or path.exists() or path == self.path_graph):
                raise TuneError(f"there is no database file {path}")
            if path.exists():
                with self._open(path, "rb"):
                    pass  # unreadable files are an error now, not at the first query
        self.reload()

    # ---- reading ------------------------------------------------------------------------------
    def reload(self) -> None:
        """Read what other processes have appended since."""
        for line in self._new_lines(self.path_workload):
            self._load_workload(line)
        for line in self._new_lines(self.path_tuning_record):
            self._load_record(line)
        for line in self._new_lines(self.path_graph):
            self._load_choice(line)

    def _new_lines(self, path: Path) -> list[bytes]:
        """Return the lines after the last one read.

        Appends are single writes under the lock that we share here, so a last line without a
        newline was truncated by a crash and will never be completed. The next append starts with
        the missing newline.
        """
        if not path.exists():
            return []
        with self._open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            file.seek(self._offsets[path])
            data: bytes = file.read()
        if not data:
            return []
        self._offsets[path] += len(data)
        if path in self._torn:
            data = data.removeprefix(b"\n")
            self._torn.discard(path)
        lines = data.split(b"\n")
        if lines[-1]:
            self._torn.add(path)
        else:
            lines.pop()
        return lines

    def _load_workload(self, line: bytes) -> None:
        try:
            workload = Workload.from_json(read_line(line))
            key = self._key(workload)
        except TilewrightError as error:
            self._set_aside(self.path_workload, line, error)
            self._workloads.append(None)  # the index counts lines, readable or not
            return
        same = next((w for w in self._buckets.get(key, ()) if w.text == workload.text), None)
        if same is not None:  # files that were joined: its records are those of the first
            self._workloads.append(same)
            return
        self._index[workload] = len(self._workloads)
        self._workloads.append(workload)
        self._add_workload(workload, key)

    def _forget_workload(self, workload: Workload, error: Exception) -> None:
        """Set aside a workload whose text turns out, when it is parsed, not to be a program."""
        line = json.dumps(workload.as_json(), separators=(",", ":")).encode()
        self._set_aside(self.path_workload, line, error)
        del self._index[workload]
        self._workloads = [None if known is workload else known for known in self._workloads]
        super()._forget_workload(workload, error)

    def _load_record(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            record = TuningRecord.from_json(read_line(line), self._workloads)
        except TilewrightError as error:
            self._set_aside(self.path_tuning_record, line, error)
            return
        self._add_record(record)

    def _load_choice(self, line: bytes) -> None:
        try:
            super().commit_graph_choice(GraphChoice.from_json(read_line(line)))
        except TilewrightError as error:
            self._set_aside(self.path_graph, line, error)

    def _set_aside(self, path: Path, line: bytes, error: Exception) -> None:
        if not line.strip():
            return
        corrupt = path.with_name(path.name + ".corrupt")
        reason = str(error)  # it may quote what stands in the line, however long that is
        logger.warning(
            "a line of %s can't be read (%s); it is set aside in %s, the rest is used",
            path,
            reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]} …",
            corrupt.name,
        )
        try:
            known = self._aside.get(path)
            if known is None:
                lines = corrupt.read_bytes().split(b"\n") if corrupt.exists() else []
                known = self._aside[path] = {_digest(item) for item in lines}
            if _digest(line) not in known:
                with corrupt.open("ab") as file:
                    file.write(line + b"\n")
                known.add(_digest(line))
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
        for path in (*self._offsets, self._lock_path()):
            with self._open(path, "ab"):
                pass

    def _append(self, path: Path, value: object) -> None:
        """Write one line under the lock; a truncated line before it is ended first."""
        line = json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"
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
        workload = self._find(mod)
        if workload is not None:
            return workload
        made = Workload(mod)
        if not structural_equal(script.parse(made.text), mod):
            raise TuneError(
                "the module can't be kept in a database: its script does not parse to itself"
            )
        with self._locked():
            self.reload()  # another process may have added it
            workload = self._find(mod)
            if workload is None:
                self._append(self.path_workload, made.as_json())
                self.reload()
                workload = self._find(mod)
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

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record, also to the file.

        Raises ``TuneError`` if the record can't be written as JSON.
        """
        workload = record.workload
        if workload not in self._index:
            workload = self.commit_workload(workload.mod)
        data = record.as_json(self._index[workload])
        try:
            read_record(json.loads(json.dumps(data)))
        except TilewrightError as error:
            raise TuneError(f"the record can't be kept in a database: {error}") from error
        self._append(self.path_tuning_record, data)
        self.reload()

    def commit_graph_choice(self, choice: GraphChoice) -> None:
        """Keep what serves a graph best, also in the file; the last choice counts."""
        self._append(self.path_graph, choice.as_json())
        self.reload()
