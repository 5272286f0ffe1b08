"""A database behind a URL: SQLite in one file, PostgreSQL for many writers on many machines.

Needs the extra ``tilewright[sql]``. Lines are those of the JSON files (``schema.py``) and are
checked in the same way whenever they are read, for others may write to the same tables. A write is
one transaction, and is kept when the call returns, whatever becomes of the process; a power cut may
cost SQLite the last ones. Its file must be on a disk of the machine: over a network its locks can't
be trusted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tilewright.ir import IRModule
from tilewright.meta_schedule.database._sql_tables import Tables, as_line
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
from tilewright.meta_schedule.database.record import TuningRecord, Workload, normalized
from tilewright.meta_schedule.database.schema import read_line, to_line
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc

logger = logging.getLogger("tilewright.meta_schedule.database")
_PAGE = 256  # records in memory while all are gone through
_LONGEST_REASON = 500


class SQLDatabase(StoredDatabase):
    """Workloads and records in the tables behind a URL.

    ``sqlite:///records.db`` or ``postgresql://user@host/name``; tables are made if there are none,
    unless ``allow_missing=False``. Others may write at the same time; what they have written is
    seen at once. Raises ``TuneError`` if the database can't be used, and ``MissingExtraError``
    without SQLAlchemy or the driver.
    """

    name = "sql"
    _index: Tables

    def __init__(
        self, url: str, *, allow_missing: bool = True, module_equality: str = "structural"
    ) -> None:
        super().__init__(module_equality)
        self._lock = threading.RLock()
        self._forget()
        self._index = Tables(url, allow_missing=allow_missing)

    @property
    def url(self) -> str:
        """The URL, without a password."""
        return self._index.name

    def close(self) -> None:
        """Close the connections; the next question opens them again."""
        self._index.close()

    def check_writable(self) -> None:
        """Raise ``TuneError`` now if records could not be saved later."""
        self._guard(self._index.check_writable)

    def _guard(self, question: Callable[[], Any]) -> Any:
        with self._lock:
            try:
                return question()
            except self._index.sql.exc.SQLAlchemyError as error:
                self._index.refuse(error)

    # ---- reading ------------------------------------------------------------------------------
    def _leave_out(self, kind: str, number: int, error: object) -> None:
        reason = str(error)[:_LONGEST_REASON]
        logger.warning("%s %d of %s is not used: %s", kind, number, self.url, reason)

    def _read_workload(self, number: int) -> Workload | None:
        found = self._index.workload(number)
        if found is None:
            return None
        try:
            workload = Workload.from_json(_value(found[1]))
            if workload.hash != found[0]:
                raise TuneError("it has another hash")
        except TilewrightError as error:
            self._leave_out("workload", number, error)
            self._dropped.add(number)
            return None
        return workload

    def _set_workload_aside(self, number: int, error: Exception) -> None:
        self._leave_out("workload", number, error)

    def _record(self, number: int, owner: int, line: object) -> TuningRecord | None:
        """Return a record from memory, or from its line."""
        record = self._records.get(number)
        if record is None and number not in self._unreadable:
            try:
                found = TuningRecord.data_from_json(_value(line))
                record = TuningRecord.from_data(found, self._workload(owner))
            except TilewrightError as error:
                self._unreadable[number] = owner
                self._leave_out("record", number, error)
                return None
            self._records.add(number, record)
        return record

    def _read_records(self, rows: Sequence[Row]) -> Iterator[TuningRecord]:
        known = {row.number: self._records.get(row.number) for row in rows}
        new = [number for number, record in known.items() if record is None]
        lines = self._index.records(new) if new else {}
        for row in rows:
            record = known[row.number]
            if record is None:
                record = self._record(row.number, row.workload, lines.get(row.number))
            if record is None:
                continue
            if fields_of(record, target_id(record.target)) == row.fields:
                yield record
            elif row.number not in self._unreadable:
                self._unreadable[row.number] = row.workload
                self._leave_out("record", row.number, "it is ranked by what it isn't")

    def records(self) -> Iterator[TuningRecord]:
        """Yield all records, oldest first, without holding them all at once."""
        number, last = 0, self._guard(self._index.last_record)
        while number < last:
            some, number = self._some_records(number, last)
            yield from some

    @guarded
    def _some_records(self, number: int, last: int) -> tuple[list[TuningRecord], int]:
        rows = self._index.records_after(number, last, _PAGE)
        some = [self._record(*row) for row in rows if row[1] not in self._dropped]
        return [item for item in some if item is not None], rows[-1][0] if rows else last

    @guarded
    def __len__(self) -> int:
        dropped = self._index.count_of(list(self._dropped)) if self._dropped else 0
        return self._index.count("records") - dropped - self._count_unreadable()

    @guarded
    def statistics(self) -> dict[str, Any]:
        """Return numbers of what there is."""
        columns = ("target", "records", "valid", "checked", "raced")
        return {
            "workloads": self._index.count("workloads") - len(self._dropped),
            "records": len(self),
            "targets": [dict(zip(columns, row)) for row in self._index.statistics()],
            "choices": self._index.count("graphs"),
            "bytes": self._index.size(),
            "set_aside": {},
        }

    # ---- writing ------------------------------------------------------------------------------
    @guarded
    def commit_workload(self, mod: IRModule | PrimFunc) -> Workload:
        """Add a module if it is new; return its workload.

        Raises ``TuneError`` if the module can't be read back unchanged.
        """
        mod = normalized(mod)
        workload = self._find(mod)
        if workload is not None:
            return workload
        made = workload_of(mod)
        with self._index.writing(self._hash(mod)):
            if self._find(mod) is None:  # another process may have added it
                self._index.add_workload(made, as_line(to_line(made.as_json())))
        workload = self._find(mod)
        if workload is None:
            raise TuneError(f"the workload written to {self.url} can't be read back")
        return workload

    @guarded
    def commit_tuning_records(self, records: Iterable[TuningRecord]) -> None:
        """Add several records in one transaction.

        Raises ``TuneError`` if one of them can't be written as JSON; none is added then.
        """
        rows = [
            (self._number_for(record), record, as_line(checked_line(record, 0)))
            for record in records
        ]
        if rows:
            self._index.add_records(rows)

    # ---- choices for graphs -------------------------------------------------------------------
    def commit_graph_choice(self, choice: GraphChoice) -> None:
        """Keep what serves a graph best; the last choice counts."""
        self._guard(lambda: self._index.put_choice(choice))

    @guarded
    def graph_choices(self) -> list[GraphChoice]:
        """Return all choices for graphs."""
        return list(self._choices_in(self._index.choices()))

    @guarded
    def graph_choice(self, graph: str, target: Target) -> GraphChoice | None:
        """Return what serves a graph best, if that was measured."""
        found = self._choices_in(self._index.choices(graph, str(target)))
        return next((x for x in found if (x.graph, str(x.target)) == (graph, str(target))), None)

    def _choices_in(self, lines: Iterable[object]) -> Iterator[GraphChoice]:
        for line in lines:
            try:
                yield GraphChoice.from_json(_value(line))
            except TilewrightError as error:
                logger.warning("a choice for a graph in %s is not used: %s", self.url, error)


def _value(line: object) -> Any:
    """Return the JSON value of a line, which may hold anything."""
    if not isinstance(line, str):
        raise TuneError("the line is no text, too long, or gone")
    return read_line(line.encode("utf-8", "surrogatepass"))
