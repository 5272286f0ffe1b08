"""What databases share that keep records as lines elsewhere, and what they rank them by beside.

Such a database holds in memory only what is in use. It asks an index, which knows workloads by
hash and the order of their records, and reads lines when they are asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import groupby, islice
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from tilewright import script
from tilewright.ir import IRModule, structural_equal, structural_hash
from tilewright.meta_schedule.database.base import Database, serves
from tilewright.meta_schedule.database.likeness import key_of
from tilewright.meta_schedule.database.ranking import by_time, races_first
from tilewright.meta_schedule.database.recent import Recent
from tilewright.meta_schedule.database.record import TuningRecord, Workload, normalized
from tilewright.meta_schedule.database.schema import read_record, to_line
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc

_READ_AT_ONCE = 64  # records of an answer: what comes first is there before the rest is read
FEW = 16
"""Records that an index looks for first: they are found much faster than all."""


class Row(NamedTuple):
    """A record's number and workload, what is kept of it beside its line, what it is ranked by.

    Only winners of races need have their ``digest``: that of others is found when it is needed.
    """

    number: int
    workload: int
    fields: tuple[Any, ...]
    target: Target | None
    verified: bool
    rank: float
    beat: tuple[str, ...]
    digest: str
    place: tuple[int, ...] = ()


class Rows(Protocol):
    """What such a database asks its index. Numbers of workloads are those of the first equals."""

    def of_hash(self, digest: str) -> list[int]:
        """Return the workloads with a structural hash, oldest first."""

    def of_key(self, equality: str, key: str) -> list[int]:
        """Return the workloads with a hash of another equality, oldest first."""

    def without_key(self, equality: str) -> list[int]:
        """Return the workloads whose hash of an equality isn't known."""

    def add_key(self, equality: str, number: int, key: str) -> None:
        """Keep the hash that a workload has for an equality."""

    def ordered(self, workload: int, target: int | None, *, winners: bool = False) -> Iterator[Row]:
        """Yield a workload's valid records by time, as ``best_first``; or ``winners`` of races."""

    def like(self, workload: int, fields: tuple[Any, ...]) -> list[Row]:
        """Return the records of a workload of which the same is kept (``fields_of``)."""

    def valid(self) -> Iterator[tuple[str, Row]]:
        """Yield all valid records with their workloads' hashes, in order of these."""


def target_id(target: Target | None) -> int | None:
    """Return the number that a target has in every index."""
    if target is None:
        return None
    digest = hashlib.sha256(str(target).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def fields_of(record: TuningRecord, target: int | None) -> tuple[Any, ...]:
    """Return what an index keeps of a record, but for its place and its digest."""
    beat = json.dumps(record.beat) if record.beat else None
    valid = record.is_valid()
    return target, int(record.verified), record.rank, int(valid), beat


def content_of(workload: Workload) -> bytes:
    """Return what tells texts of programs apart."""
    return hashlib.sha256(workload.text.encode()).digest()[:16]


F = TypeVar("F", bound=Callable[..., Any])


def guarded(method: F) -> F:
    """Run a method by way of its database's ``_guard``."""

    @wraps(method)
    def call(self: StoredDatabase, *args: object, **kwargs: object) -> Any:
        return self._guard(lambda: method(self, *args, **kwargs))

    return call  # type: ignore[return-value]  # same signature


class StoredDatabase(Database):
    """Base of databases that ask an index and read lines when they are asked for."""

    _index: Rows

    def _forget(self) -> None:
        """Begin with nothing in memory."""
        self._workloads: Recent[Workload] = Recent()
        self._records: Recent[TuningRecord] = Recent()
        self._numbers: WeakKeyDictionary[Workload, int] = WeakKeyDictionary()
        self._dropped: set[int] = set()  # workloads whose text turned out not to be a program
        self._unreadable: dict[int, int] = {}  # records that turned out to be none: of workloads

    # ---- what a kind defines ------------------------------------------------------------------
    def _guard(self, question: Callable[[], Any]) -> Any:
        """Answer a question; locks and repeats where that is needed."""
        raise NotImplementedError(f"{type(self).__name__} must define _guard")

    def _read_workload(self, number: int) -> Workload | None:
        """Read the workload of a number, which was not in memory; ``None`` if there is none."""
        raise NotImplementedError(f"{type(self).__name__} must define _read_workload")

    def _read_records(self, rows: Sequence[Row]) -> Iterable[TuningRecord]:
        """Return the records of rows; what can't be read is left out."""
        raise NotImplementedError(f"{type(self).__name__} must define _read_records")

    def _set_workload_aside(self, number: int, error: Exception) -> None:
        """Say that the text of a workload is no program."""
        raise NotImplementedError(f"{type(self).__name__} must define _set_workload_aside")

    # ---- workloads ----------------------------------------------------------------------------
    def _workload(self, number: int) -> Workload | None:
        if number in self._dropped:
            return None
        workload = self._workloads.get(number)
        if workload is None:
            workload = self._read_workload(number)
            if workload is not None:
                self._workloads.add(number, workload)
                self._numbers[workload] = number
        return workload

    def _find(self, mod: IRModule) -> Workload | None:
        for number in self._candidates(mod):
            workload = self._workload(number)
            if workload is None:
                continue
            try:
                same = workload.is_written_as(mod) or self._equal(workload.mod, mod)
            except (TilewrightError, RecursionError) as error:
                self._drop(workload, error)
                continue
            if same:
                return workload
        return None

    def _candidates(self, mod: IRModule) -> list[int]:
        key = self._hash(mod)
        if self._hash is structural_hash:
            return self._index.of_hash(key)
        return self._with_key(self.module_equality, key, lambda item: self._hash(item.mod))

    def _with_key(self, kind: str, key: str, of: Callable[[Workload], str]) -> list[int]:
        """Return the workloads that have a key of a kind; the index keeps the keys."""
        for number in self._index.without_key(kind):
            workload = self._workload(number)
            if workload is None:
                continue
            try:
                self._index.add_key(kind, number, of(workload))
            except (TilewrightError, RecursionError) as error:
                self._drop(workload, error)
        return self._index.of_key(kind, key)

    def _drop(self, workload: Workload, error: Exception) -> None:
        """Use a workload no more: its text turns out, when it is parsed, not to be a program."""
        number = self._numbers.pop(workload)
        self._set_workload_aside(number, error)
        self._dropped.add(number)
        self._records = Recent()

    def _number(self, workload: Workload) -> int | None:
        """Return the number of a workload, or of our own one that is equal."""
        number = self._numbers.get(workload)
        if number is not None:
            return number
        try:
            own = self._find(workload.mod)
        except TilewrightError:
            return None  # it is no program
        return None if own is None else self._numbers[own]

    @guarded
    def find_workload(self, mod: IRModule | PrimFunc) -> Workload | None:
        """Return the workload of a module, or ``None`` if it has not been committed."""
        return self._find(normalized(mod))

    @guarded
    def alike(self, kind: str, key: str) -> list[Workload]:
        """Return the workloads with this key of a kind of ``likeness.KINDS``."""
        numbers = self._with_key(kind, key, lambda item: key_of(kind, item.text))
        found = (self._workload(number) for number in numbers)
        return [workload for workload in found if workload is not None]

    def has_workload(self, mod: IRModule | PrimFunc) -> bool:
        """Whether the module has been committed."""
        return self.find_workload(mod) is not None

    # ---- questions ----------------------------------------------------------------------------
    def _answer(self, ranked: Iterator[Row], count: int) -> list[TuningRecord]:
        found: list[TuningRecord] = []
        while len(found) < count:
            some = list(islice(ranked, min(_READ_AT_ONCE, count - len(found))))
            if not some:
                break
            found += self._read_records(some)
        return found

    @guarded
    def get_top_k(
        self, workload: Workload, top_k: int, target: Target | None = None
    ) -> list[TuningRecord]:
        """Return the best valid records of a workload, best first."""
        number = self._number(workload)
        if number is None:
            return []
        index, wanted = self._index, target_id(target)

        def suitable(*, winners: bool = False) -> Iterator[Row]:
            for item in index.ordered(number, wanted, winners=winners):
                if item.fields[0] not in serve:
                    serve[item.fields[0]] = serves(item.target, target)
                if serve[item.fields[0]]:
                    yield item

        serve: dict[int | None, bool] = {}
        winners = {item.number: item for item in suitable(winners=True)}
        ordered = (winners.get(item.number, item) for item in suitable())
        return self._answer(self._races_first(ordered, list(winners.values())), top_k)

    @guarded
    def has_tuning_record(self, record: TuningRecord) -> bool:
        """Whether there is the same record: program, trace, times, target and provenance."""
        number = self._number(record.workload)
        if number is None:
            return False
        rows = self._index.like(number, fields_of(record, target_id(record.target)))
        return any(map(record.says_the_same, self._read_records(rows)))

    def _races_first(self, ordered: Iterable[Row], winners: list[Row]) -> Iterator[Row]:
        return races_first(map(self._with_digest, ordered) if winners else ordered, winners)

    def _with_digest(self, row: Row) -> Row:
        if row.digest:
            return row
        record = next(iter(self._read_records([row])), None)
        return row if record is None else row._replace(digest=record.digest)

    @guarded
    def best_records(self) -> list[TuningRecord]:
        """Return the best record of each workload and target that has a valid one."""
        while True:
            unreadable = len(self._unreadable)
            rows = self._best_rows()
            found = self._answer(iter(rows), len(rows))
            if len(self._unreadable) == unreadable:  # else others may be the best
                return found

    def _best_rows(self) -> list[Row]:
        found: list[tuple[int, Row]] = []
        for _, same in groupby(self._index.valid(), key=lambda item: item[0]):
            groups: dict[int | None, list[Row]] = {}
            for row in sorted((row for _, row in same), key=lambda row: row.number):
                if row.workload not in self._dropped and row.number not in self._unreadable:
                    groups.setdefault(row.fields[0], []).append(row)
            for group in groups.values():
                ordered = by_time(group)
                best = self._races_first(ordered, [row for row in ordered if row.beat])
                found.append((group[0].number, next(best)))
        found.sort(key=lambda item: item[0])
        return [row for _, row in found]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Return all records, oldest first."""
        return list(self.records())

    # ---- writing ------------------------------------------------------------------------------
    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record, and save it.

        Raises ``TuneError`` if the record can't be written as JSON.
        """
        self.commit_tuning_records([record])

    def _count_unreadable(self) -> int:
        return sum(owner not in self._dropped for owner in self._unreadable.values())

    def _number_for(self, record: TuningRecord) -> int:
        """Return the number of a record's workload, which is added if it is new."""
        number = self._numbers.get(record.workload)
        if number is None:
            number = self._numbers[self.commit_workload(record.workload.mod)]
        return number


def checked_line(record: TuningRecord, number: int) -> object:
    """Return what a record's line holds.

    Raises ``TuneError`` if it could not be read again.
    """
    line = to_line(record.as_row(number))
    try:
        read_record(json.loads(json.dumps(line)))  # says more clearly what a number is
        json.dumps(line, allow_nan=False)
    except (TilewrightError, ValueError, TypeError) as error:
        raise TuneError(f"the record can't be kept in a database: {error}") from error
    return line


def workload_of(mod: IRModule) -> Workload:
    """Return a workload for a module.

    Raises ``TuneError`` if the module can't be read back unchanged.
    """
    made = Workload(mod)
    if not structural_equal(script.parse(made.text), mod):
        raise TuneError(
            "the module can't be kept in a database: its script does not parse to itself"
        )
    return made


__all__ = [
    "FEW", "Row", "Rows", "StoredDatabase", "checked_line", "content_of", "fields_of", "guarded",
    "target_id", "workload_of",
]  # fmt: skip
