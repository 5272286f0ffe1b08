"""A database in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from tilewright.ir import IRModule, structural_hash
from tilewright.meta_schedule.database.base import Database, suits
from tilewright.meta_schedule.database.ranking import best_first
from tilewright.meta_schedule.database.record import TuningRecord, Workload, normalized
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.tir import PrimFunc


class MemoryDatabase(Database):
    """Workloads and records in memory; look-up by hash in constant time."""

    name = "memory"

    def __init__(self, module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self._buckets: dict[str, list[Workload]] = {}
        self._records: list[TuningRecord] = []
        self._workloads_known: set[Workload] = set()
        self._by_workload: dict[Workload, list[TuningRecord]] = {}

    @property
    def workloads(self) -> list[Workload]:
        """All committed modules."""
        return [workload for bucket in self._buckets.values() for workload in bucket]

    def _key(self, workload: Workload) -> str:
        """Return the look-up key of a workload; the structural hash needs no parsing."""
        return workload.hash if self._hash is structural_hash else self._hash(workload.mod)

    def _find(self, mod: IRModule) -> Workload | None:
        for workload in tuple(self._buckets.get(self._hash(mod), ())):
            try:
                known = workload.mod
                same = known is mod or self._equal(known, mod)
            except (TilewrightError, RecursionError) as error:
                self._forget_workload(workload, error)
                continue
            if same:
                return workload
        return None

    def _forget_workload(self, workload: Workload, error: Exception) -> None:
        """Drop a workload whose text is not a program."""
        self._buckets[workload.hash].remove(workload)
        self._workloads_known.discard(workload)
        dropped = self._by_workload.pop(workload, [])
        self._records = [record for record in self._records if record not in dropped]

    def has_workload(self, mod: IRModule | PrimFunc) -> bool:
        """Whether the module has been committed."""
        return self._find(normalized(mod)) is not None

    def commit_workload(self, mod: IRModule | PrimFunc) -> Workload:
        """Add a module if it is new; return its workload."""
        mod = normalized(mod)
        workload = self._find(mod)
        if workload is None:
            workload = Workload(mod)
            self._add_workload(workload, self._key(workload))
        return workload

    def _add_workload(self, workload: Workload, key: str) -> None:
        self._workloads_known.add(workload)
        self._buckets.setdefault(key, []).append(workload)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record; one of a workload object that isn't ours goes to our equal one."""
        if record.workload not in self._workloads_known:
            record = replace(record, workload=self.commit_workload(record.workload.mod))
        self._add_record(record)

    def _add_record(self, record: TuningRecord) -> None:
        self._records.append(record)
        self._by_workload.setdefault(record.workload, []).append(record)

    def has_tuning_record(self, record: TuningRecord) -> bool:
        """Whether there is the same record: program, trace, times, target and provenance."""
        own = record.workload
        if own not in self._workloads_known:
            found = self._find(own.mod)
            if found is None:
                return False
            own = found
        return any(map(record.says_the_same, self._by_workload.get(own, ())))

    def get_top_k(
        self, workload: Workload, top_k: int, target: Target | None = None
    ) -> list[TuningRecord]:
        """Return the best valid records of a workload, best first."""
        found = [r for r in self._by_workload.get(workload, ()) if suits(r, target)]
        return list(islice(best_first(found, target), top_k))

    def get_all_workloads(self) -> Iterator[Workload]:
        """Yield the workloads that have records."""
        yield from tuple(self._by_workload)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Return all records, oldest first."""
        return list(self._records)

    def __len__(self) -> int:
        return len(self._records)
