"""A database in memory."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.meta_schedule.database.base import DATABASE_KINDS, Database, suits
from tilewright.meta_schedule.database.record import TuningRecord, Workload, normalized
from tilewright.target import Target
from tilewright.tir import PrimFunc


class MemoryDatabase(Database):
    """Workloads and records in memory; look-up by hash in constant time."""

    def __init__(self, module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self._buckets: dict[str, list[Workload]] = {}
        self._records: list[TuningRecord] = []
        self._by_workload: dict[Workload, list[TuningRecord]] = {}

    def _find(self, mod: IRModule, hash_: str) -> Workload | None:
        for workload in self._buckets.get(hash_, ()):
            if workload.mod is mod or self._equal(workload.mod, mod):
                return workload
        return None

    def has_workload(self, mod: IRModule | PrimFunc) -> bool:
        """Whether the module has been committed."""
        mod = normalized(mod)
        return self._find(mod, self._hash(mod)) is not None

    def commit_workload(self, mod: IRModule | PrimFunc) -> Workload:
        """Add a module if it is new; return its workload."""
        mod = normalized(mod)
        hash_ = self._hash(mod)
        workload = self._find(mod, hash_)
        if workload is None:
            workload = Workload(mod, hash_)
            self._add_workload(workload)
        return workload

    def _add_workload(self, workload: Workload) -> None:
        self._buckets.setdefault(workload.hash, []).append(workload)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record."""
        self._records.append(record)
        self._by_workload.setdefault(record.workload, []).append(record)

    def get_top_k(
        self, workload: Workload, top_k: int, target: Target | None = None
    ) -> list[TuningRecord]:
        """Return the best valid records of a workload, fastest first."""
        found = [r for r in self._by_workload.get(workload, ()) if suits(r, target)]
        return sorted(found, key=lambda record: record.best_seconds)[:top_k]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Return all records, oldest first."""
        return list(self._records)

    def __len__(self) -> int:
        return len(self._records)


DATABASE_KINDS["memory"] = MemoryDatabase
