"""Views of a database that show some of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.ir import IRModule
from tilewright.meta_schedule.database.base import Database
from tilewright.meta_schedule.database.record import TuningRecord, Workload
from tilewright.target import Target
from tilewright.tir import PrimFunc


class Filtered(Database):
    """The records of a database that are ``shown``; what is added goes to it."""

    def __init__(self, database: Database, shown: Callable[[TuningRecord], bool]) -> None:
        super().__init__(database.module_equality)
        self.database, self.shown = database, shown

    def has_workload(self, mod: IRModule | PrimFunc) -> bool:
        """Whether the module has been committed."""
        return self.database.has_workload(mod)

    def find_workload(self, mod: IRModule | PrimFunc) -> Workload | None:
        """Return the workload of a module, or ``None`` if it has not been committed."""
        return self.database.find_workload(mod)

    def commit_workload(self, mod: IRModule | PrimFunc) -> Workload:
        """Add a module if it is new; return its workload."""
        return self.database.commit_workload(mod)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record."""
        self.database.commit_tuning_record(record)

    def get_top_k(
        self, workload: Workload, top_k: int, target: Target | None = None
    ) -> list[TuningRecord]:
        """Return the best valid records of a workload, by rank, best first."""
        known = self.database.get_top_k(workload, 2**31, target)
        return [record for record in known if self.shown(record)][:top_k]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Return all records, oldest first."""
        return list(self.records())

    def records(self) -> Iterator[TuningRecord]:
        """Yield all records, oldest first."""
        return filter(self.shown, self.database.records())


def measured_alike(database: Database, cold: bool) -> Database:
    """Return a view without records whose times don't compare: of caches that weren't as cold."""
    return Filtered(database, lambda record: record.cold == cold)
