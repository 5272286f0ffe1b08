"""Between databases: merge, prune and compare them, and keep one in a single file.

An exported file has one JSON value per line: ``["tilewright-database", 1]``, then ``["workload",
line]``, ``["record", line]`` and ``["graph", line]`` with what a line of a database's own files
holds; records count the workloads of this file. With a name that ends in ``.gz`` it is compressed.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from tilewright.meta_schedule.database.base import Database
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.record import TuningRecord, Workload
from tilewright.meta_schedule.database.schema import LONGEST_LINE, read_line, to_line
from tilewright.support.errors import TilewrightError, TuneError

logger = logging.getLogger("tilewright.meta_schedule.database")
HEADER = ["tilewright-database", 1]
_BATCH = 500
_LONGEST_REASON = 200

_Best = dict[bool, TuningRecord]  # by whether they were measured with cold caches, best first


@dataclass
class Merged:
    """How many records were added, how many were there already, and why others were left out."""

    added: int = 0
    known: int = 0
    choices: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def merge(
    destination: Database, records: Iterable[TuningRecord], choices: Iterable[GraphChoice] = ()
) -> Merged:
    """Add records that a database doesn't have; choices for graphs, where it has none.

    Records that can't be kept, and those of programs that can't be read, are counted and left out.
    """
    made = Merged()
    batch: dict[str, TuningRecord] = {}  # those that aren't in the database yet, by their text
    workloads: dict[tuple[str, str], Workload | str] = {}
    for record in records:
        name = record.workload.hash, record.workload.text
        if name not in workloads:
            workloads[name] = _taken(destination, record.workload)
        workload = workloads[name]
        if isinstance(workload, str):
            made.refused[workload] += 1
            continue
        record = replace(record, workload=workload)
        try:
            text = json.dumps([workload.hash, record.as_json()], allow_nan=False)
        except (TypeError, ValueError):
            made.refused["its provenance is no JSON"] += 1
            continue
        if text in batch or destination.has_tuning_record(record):
            made.known += 1
            continue
        batch[text] = record
        made.added += 1
        if len(batch) >= _BATCH:
            destination.commit_tuning_records(batch.values())
            batch = {}
    destination.commit_tuning_records(batch.values())
    for choice in choices:
        if destination.graph_choice(choice.graph, choice.target) is None:
            destination.commit_graph_choice(choice)
            made.choices += 1
    return made


def _taken(destination: Database, workload: Workload) -> Workload | str:
    """Return the database's own workload, or why there can be none."""
    try:
        mod = workload.mod
    except (TilewrightError, RecursionError) as error:
        return f"its program can't be read ({type(error).__name__})"
    return destination.commit_workload(mod)


def best_of_each(
    database: Database, keep: int, choices: Iterable[GraphChoice] = ()
) -> Iterator[TuningRecord]:
    """Yield the best valid records of each workload and target: ``Database.best_of_each``.

    Beside these there are those that served a graph best, by the ``choices``.
    """
    named: dict[str, set[str]] = {}
    for choice in choices:
        for workload, digest in choice.records:
            named.setdefault(workload, set()).add(digest)
    yield from database.best_of_each(keep, named)


@dataclass(frozen=True)
class Difference:
    """Records of a workload and a target in two databases, each the best of its kind.

    ``None`` if a database has no record of them.
    """

    first: TuningRecord | None
    second: TuningRecord | None

    @property
    def ratio(self) -> float | None:
        """Seconds of the first by those of the second, if both were measured the same way."""
        if self.first is None or self.second is None or _way(self.first) != _way(self.second):
            return None
        return self.first.counted_seconds / self.second.counted_seconds


def _way(record: TuningRecord) -> tuple[object, ...]:
    """What must be equal if times are to be compared."""
    return record.cold, record.sizes


def differences(first: Database, second: Database) -> list[Difference]:
    """Compare the best records of two databases, for each workload and target.

    Those with cold caches are compared with each other, and those with warm ones. Only where there
    is no such pair are the best of all named side by side.
    """
    found: dict[tuple[str, str], tuple[_Best, _Best]] = {}
    for position, database in enumerate((first, second)):
        for record in database.best_of_each():
            pair = found.setdefault((record.workload.hash, str(record.target)), ({}, {}))
            pair[position].setdefault(record.cold, record)
    made = []
    for ours, theirs in found.values():
        alike = [kind for kind in ours if kind in theirs]
        made += [Difference(ours[kind], theirs[kind]) for kind in alike]
        if not alike:
            made.append(Difference(*(next(iter(best.values()), None) for best in (ours, theirs))))
    return made


# ---- one file ------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[IO[bytes]]:
    """Open a file; one that is written replaces an old one when it is whole."""
    packed = path.suffix == ".gz"
    written = path.with_name(f"{path.name}.{os.getpid()}.part") if mode == "wb" else path
    try:
        with open(written, mode) as raw:
            if not packed:
                yield raw
            else:
                with gzip.GzipFile("", mode, 6, raw, mtime=0) as file:
                    yield file  # type: ignore[misc]  # it reads and writes bytes
        if written != path:
            os.replace(written, path)
    except (OSError, EOFError) as error:
        verb = "written" if mode == "wb" else "read"
        raise TuneError(f"the file {path} can't be {verb}: {error}") from error
    finally:
        if written != path:
            written.unlink(missing_ok=True)


def export(path: Path, records: Iterable[TuningRecord], choices: Iterable[GraphChoice]) -> int:
    """Write records, their workloads and choices for graphs to a file; return how many records.

    Records that can't be written are left out, with a warning.
    """
    numbers: dict[tuple[str, str], int] = {}
    count = 0

    def write(file: IO[bytes], *value: object) -> None:
        file.write(json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n")

    with _opened(path, "wb") as file:
        write(file, *HEADER)
        for record in records:
            name = record.workload.hash, record.workload.text
            if name not in numbers:
                numbers[name] = len(numbers)
                write(file, "workload", to_line(record.workload.as_json()))
            try:
                write(file, "record", to_line(record.as_row(numbers[name])))
            except (TypeError, ValueError) as error:
                logger.warning("a record is left out, its provenance is no JSON: %s", error)
            else:
                count += 1
        for choice in choices:
            write(file, "graph", choice.as_json())
    return count


@dataclass
class Exported:
    """An exported file; ``choices`` and ``refused`` are complete when ``records`` are read."""

    path: Path

    def __post_init__(self) -> None:
        self.choices: list[GraphChoice] = []
        self.refused: Counter[str] = Counter()

    def records(self) -> Iterator[TuningRecord]:
        """Yield the records of the file.

        Lines that can't be read are counted. Raises ``TuneError`` if it is no exported file.
        """
        workloads: list[Workload | None] = []
        with _opened(self.path, "rb") as file:
            header = file.readline(LONGEST_LINE + 1)
            self._check(header)
            while line := file.readline(LONGEST_LINE + 1):
                try:
                    record = self._read(line, workloads)
                except TilewrightError as error:
                    if line.startswith(b'["workload"'):
                        workloads.append(None)
                    self.refused[str(error)[:_LONGEST_REASON]] += 1
                    continue
                if record is not None:
                    yield record

    def _check(self, header: bytes) -> None:
        try:
            found = read_line(header)
        except TilewrightError:
            found = None
        if not isinstance(found, list) or found[:1] != HEADER[:1]:
            raise TuneError(f"{self.path} is no exported database")
        if found != HEADER:
            raise TuneError(
                f"{self.path} is of format {str(found[1:])[:80]}; this version reads {HEADER[1]}"
            )

    def _read(self, line: bytes, workloads: list[Workload | None]) -> TuningRecord | None:
        value = read_line(line)
        kind, data = value if isinstance(value, list) and len(value) == 2 else (None, None)
        if kind == "workload":
            workloads.append(Workload.from_json(data))
        elif kind == "graph":
            self.choices.append(GraphChoice.from_json(data))
        elif kind == "record":
            return TuningRecord.from_row(data, workloads)
        else:
            raise TuneError("the line holds neither a workload nor a record nor a choice")
        return None


__all__ = [
    "Difference", "Exported", "Merged", "best_of_each", "differences", "export", "merge",
]  # fmt: skip
