"""The base of databases: workloads and records, queries, the current database."""

from __future__ import annotations

import inspect
import logging
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import wraps
from itertools import groupby
from typing import Any, ClassVar, Literal, NamedTuple

from tilewright.ir import IRModule, structural_equal, structural_hash
from tilewright.meta_schedule.database.adapting import adapted_schedule
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.likeness import key_of
from tilewright.meta_schedule.database.ranking import best_first
from tilewright.meta_schedule.database.record import TuningRecord, Workload, equality, normalized
from tilewright.script.notebook import fragment
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.support.html import table, tag
from tilewright.support.registry import Registry
from tilewright.support.text import human_time
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

logger = logging.getLogger("tilewright.meta_schedule.database")

# Parameters of ``get_top_k`` in TVM: itself, the workload, the number.
_WITHOUT_TARGET = 3
# Databases of more records are only counted in notebooks.
_MOST_SHOWN = 2000


class Replayed(NamedTuple):
    """A record and the schedule that it gives a program; ``adapted`` if it is of another one."""

    record: TuningRecord
    schedule: Schedule
    adapted: bool = False


def _told_of_targets(method: Callable[..., list[TuningRecord]]) -> Callable[..., Any]:
    """Make ``get_top_k(workload, top_k)``, as TVM's users write it, take a target as well."""

    @wraps(method)
    def get_top_k(
        self: Database, workload: Workload, top_k: int, target: Target | None = None
    ) -> list[TuningRecord]:
        found = method(self, workload, top_k if target is None else 2**31)
        return [record for record in found if suits(record, target)][:top_k]

    return get_top_k


class Database:
    """Base of all databases.

    ``module_equality`` says which modules count as equal: ``"structural"`` (constants by content),
    ``"ignore-ndarray"`` (constants by shape and dtype) or ``"anchor-block"`` (only the reduction
    blocks matter, so an operator finds records of the same one with another epilogue).

    ``with database:`` makes it the current one, which passes use when no other is named. A kind's
    ``name`` registers it.
    """

    DatabaseType: ClassVar[Any]  # a union, for annotations

    name = ""

    _local: ClassVar[threading.local] = threading.local()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("get_top_k")
        if own is not None and len(inspect.signature(own).parameters) == _WITHOUT_TARGET:
            cls.get_top_k = _told_of_targets(own)  # type: ignore[method-assign]

    def __init__(self, module_equality: str = "structural") -> None:
        self.module_equality = module_equality
        self._hash, self._equal = equality(module_equality)
        self._choices: dict[tuple[str, str], GraphChoice] = {}

    # ---- what a database defines ------------------------------------------------------------
    def has_workload(self, mod: IRModule | PrimFunc) -> bool:
        """Whether the module has been committed."""
        raise NotImplementedError(f"{type(self).__name__} must define has_workload")

    def commit_workload(self, mod: IRModule | PrimFunc) -> Workload:
        """Add a module if it is new; return its workload."""
        raise NotImplementedError(f"{type(self).__name__} must define commit_workload")

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record."""
        raise NotImplementedError(f"{type(self).__name__} must define commit_tuning_record")

    def get_top_k(
        self, workload: Workload, top_k: int, target: Target | None = None
    ) -> list[TuningRecord]:
        """Return the best valid records of a workload, by rank, best first."""
        raise NotImplementedError(f"{type(self).__name__} must define get_top_k")

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Return all records, oldest first."""
        raise NotImplementedError(f"{type(self).__name__} must define get_all_tuning_records")

    def commit_tuning_records(self, records: Iterable[TuningRecord]) -> None:
        """Add several records, which may be much faster than one after the other."""
        for record in records:
            self.commit_tuning_record(record)

    def records(self) -> Iterator[TuningRecord]:
        """Yield all records, oldest first; large databases don't hold them all at once."""
        yield from self.get_all_tuning_records()

    def has_tuning_record(self, record: TuningRecord) -> bool:
        """Whether there is the same record: program, trace, times, target and provenance."""
        others = (other for other in self.records() if other.workload.hash == record.workload.hash)
        return any(map(record.says_the_same, others))

    def check_writable(self) -> None:
        """Raise ``TuneError`` now if records could not be saved later."""

    def get_all_workloads(self) -> Iterator[Workload]:
        """Yield the workloads that have records, oldest first."""
        yield from dict.fromkeys(record.workload for record in self.records())

    def alike(self, kind: str, key: str) -> list[Workload]:
        """Return the workloads with this key of a kind of ``likeness.KINDS``."""
        return [item for item in self.get_all_workloads() if key_of(kind, item.text) == key]

    def find_workload(self, mod: IRModule | PrimFunc) -> Workload | None:
        """Return the workload of a module, or ``None`` if it has not been committed."""
        mod = normalized(mod)
        return self.commit_workload(mod) if self.has_workload(mod) else None

    def commit_graph_choice(self, choice: GraphChoice) -> None:
        """Keep what serves a graph best; it replaces an earlier choice for graph and target."""
        self._choices[choice.graph, str(choice.target)] = choice

    def graph_choices(self) -> list[GraphChoice]:
        """Return all choices for graphs."""
        return list(self._choices.values())

    def graph_choice(self, graph: str, target: Target) -> GraphChoice | None:
        """Return what serves a graph best, if that was measured."""
        return self._choices.get((graph, str(target)))

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())

    # ---- queries ----------------------------------------------------------------------------
    def query_tuning_record(
        self,
        mod: IRModule | PrimFunc,
        target: Target | None = None,
        workload_name: str | None = None,
    ) -> TuningRecord | None:
        """Return the best record for a module and target kind, or ``None``.

        ``workload_name`` is for databases of one's own that answer by it, here and below.
        """
        return self._best(normalized(mod), target, workload_name)

    def _best(self, mod: IRModule, target: Target | None, name: str | None) -> TuningRecord | None:
        """What ``query_tuning_record`` returns for a normalized module."""
        workload = self.find_workload(mod)
        best = [] if workload is None else self.get_top_k(workload, 1, target)
        return best[0] if best else None

    def query_schedule(
        self,
        mod: IRModule | PrimFunc,
        target: Target | None = None,
        workload_name: str | None = None,
    ) -> Schedule | None:
        """Return the best schedule that replays on a module, or ``None``.

        Records that don't replay are skipped with a warning.
        """
        found = self.query_replayed(mod, target)
        return None if found is None else found.schedule

    def query_replayed(
        self,
        mod: IRModule | PrimFunc,
        target: Target | None = None,
        digest: str | None = None,
        *,
        cold: bool | None = None,
    ) -> Replayed | None:
        """Return the best record that replays on a module, and its schedule, or ``None``.

        A record of a module that counts as equal but is another program (``"anchor-block"``) is
        adapted to this one. With a ``digest``, the record that has it comes first; if it is gone, a
        warning says so. If it is known whether the module will find ``cold`` caches, records that
        were measured so come before others.
        """
        return next(self.each_replayed(mod, target, digest, cold=cold), None)

    def each_replayed(
        self,
        mod: IRModule | PrimFunc,
        target: Target | None = None,
        digest: str | None = None,
        *,
        cold: bool | None = None,
    ) -> Iterator[Replayed]:
        """Yield what ``query_replayed`` returns the first of, best first."""
        mod = normalized(mod)
        for record in self._digest_first(mod, target, digest, cold):
            try:
                own = record.workload.mod
                if own is mod or structural_equal(own, mod, ignore_ndarray=True):
                    yield Replayed(record, record.schedule(mod))
                    continue
                adapted = adapted_schedule(record.trace, own, mod, target, record.target)
                yield Replayed(record, adapted, adapted=True)
            except TilewrightError as error:
                logger.warning(
                    "a record of workload %s does not replay, it is not used: %s",
                    record.workload.hash[:12],
                    error,
                )

    def _digest_first(
        self, mod: IRModule, target: Target | None, digest: str | None, cold: bool | None
    ) -> Iterator[TuningRecord]:
        """The records of a module: the one with the digest, then the others, best first."""
        if digest is None:
            yield from _measured_so_first(self._best_first(mod, target), target, cold)
            return
        found = next((x for x in self._best_first(mod, target) if x.digest == digest), None)
        if found is None:
            logger.warning(
                "the record %s of workload %s, which served a graph best, is gone: the best of the "
                "others is used",
                digest[:12],
                structural_hash(mod)[:12],
            )
        else:
            yield found
        others = (x for x in self._best_first(mod, target) if x is not found)
        yield from _measured_so_first(others, target, cold)

    def _best_first(self, mod: IRModule, target: Target | None) -> Iterator[TuningRecord]:
        """The records of a module, best first."""
        best = self.query_tuning_record(mod, target)
        if best is None:
            return
        yield best
        workload = self.find_workload(mod)
        if workload is not None:
            known = self.get_top_k(workload, 2**31, target)
            yield from (record for record in known if record is not best)

    def query_ir_module(
        self,
        mod: IRModule | PrimFunc,
        target: Target | None = None,
        workload_name: str | None = None,
    ) -> IRModule | None:
        """Return the module with the best schedule applied, or ``None``."""
        sch = self.query_schedule(mod, target)
        return None if sch is None else sch.mod

    def query(
        self,
        mod: IRModule | PrimFunc,
        target: Target | None = None,
        *,
        workload_name: str = "main",
        kind: str = "schedule",
    ) -> Any:
        """Query by ``kind``: ``"schedule"``, ``"record"`` or ``"ir_module"``.

        Raises ``TuneError`` for an unknown kind.
        """
        kinds: Mapping[str, Callable[..., Any]] = {
            "schedule": self.query_schedule,
            "record": self.query_tuning_record,
            "ir_module": self.query_ir_module,
        }
        if kind not in kinds:
            raise TuneError(f"unknown kind {kind!r}; known: {', '.join(kinds)}")
        return kinds[kind](mod, target, workload_name)

    def dump_pruned(self, destination: Database) -> None:
        """Copy the best records of each workload and target (``best_of_each``) into another."""
        for record in self.best_of_each():
            workload = destination.commit_workload(record.workload.mod)
            destination.commit_tuning_record(
                TuningRecord(
                    record.trace,
                    workload,
                    record.run_secs,
                    record.target,
                    record.args_info,
                    record.provenance,
                )
            )

    def best_of_each(
        self, keep: int = 1, named: Mapping[str, Container[str]] | None = None
    ) -> Iterator[TuningRecord]:
        """Yield the best valid records of each workload and target: at most ``keep`` of each.

        So many of those that were measured with cold caches, and of those with warm ones, since
        their times don't compare. Beside these there are those that are ``named``, by their digests
        for the hash of a workload.
        """
        for best in self.best_records():
            wanted = (named or {}).get(best.workload.hash, ())
            every = self.get_top_k(best.workload, 2**31)
            given = Counter[bool]()
            digests = set[str]()
            for record in best_first(x for x in every if x.target == best.target):
                if given[record.cold] < keep or (
                    record.digest in wanted and record.digest not in digests
                ):
                    yield record
                given[record.cold] += 1
                digests.add(record.digest)

    def best_records(self) -> list[TuningRecord]:
        """Return the best record of each workload and target that has a valid one."""
        groups: dict[tuple[str, str], list[TuningRecord]] = {}
        for record in self.records():
            if record.is_valid():
                key = (record.workload.hash, str(record.target))
                groups.setdefault(key, []).append(record)
        return [next(best_first(group)) for group in groups.values()]

    def _repr_html_(self) -> str:
        count = len(self)
        title = tag("p", f"{type(self).__name__}: {count} records")
        if count > _MOST_SHOWN:
            return fragment(title)
        rows = [
            (best.workload.hash[:12], best.summary, human_time(best.best_seconds), str(best.target))
            for best in self.best_records()
        ]
        columns = ("workload", "function", "best", "target")
        return fragment(title, table(columns, rows, numeric=("best",)))

    # ---- the current database ---------------------------------------------------------------
    def __enter__(self) -> Database:
        if not hasattr(Database._local, "stack"):
            Database._local.stack = []
        Database._local.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Database._local.stack.pop()

    @staticmethod
    def current() -> Database | None:
        """Return the innermost active database, or ``None``."""
        stack = getattr(Database._local, "stack", None)
        return stack[-1] if stack else None

    @staticmethod
    def create(kind: str = "json", *args: object, **kwargs: object) -> Database:
        """Make a database by its ``name``, or by a URL such as ``sqlite:///records.db``."""
        if is_url(kind):
            return DATABASES.get("sql")(kind, *args, **kwargs)
        return DATABASES.get(kind)(*args, **kwargs)


Database.DatabaseType = Database | Literal["json", "memory"]

PyDatabase = Database
"""The name under which TVM's users derive from it."""

DATABASES: Registry[Callable[..., Database]] = Registry("database", TuneError)
"""Databases by name."""


def _measured_so_first(
    records: Iterator[TuningRecord], target: Target | None, cold: bool | None
) -> Iterator[TuningRecord]:
    """Yield those measured with cold caches, or with warm ones, before others of their kind.

    Whether they were checked, and for this target, counts more.
    """
    if cold is None:
        yield from records
        return
    for _, same in groupby(records, key=lambda item: (item.verified, item.target == target)):
        others = []
        for record in same:
            if record.cold == cold:
                yield record
            else:
                others.append(record)
        yield from others


def is_url(place: object) -> bool:
    """Whether a place is the URL of a database, and no folder."""
    return isinstance(place, str) and "://" in place


def suits(record: TuningRecord, target: Target | None) -> bool:
    """Whether a record may be used for a target: valid; same kind, vector width, number of cores.

    Times from another machine still rank schedules, so the CPU's name may differ; schedules for
    other vector registers or another number of threads are not used.
    """
    return record.is_valid() and serves(record.target, target)


def serves(own: Target | None, target: Target | None) -> bool:
    """Whether a schedule for one target may be used for another; ``None`` is any."""
    if target is None or own is None:
        return True
    return (
        own.kind == target.kind
        and own.vector_bits == target.vector_bits
        and own.num_cores == target.num_cores
    )
