"""Several databases as one, for queries only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tilewright.ir import IRModule
from tilewright.meta_schedule.database.base import Database
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.database.ranking import best_first
from tilewright.meta_schedule.database.record import TuningRecord, Workload
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc


class UnionDatabase(Database):
    """Answers with the best record that any of its databases holds."""

    name = "union"

    def __init__(self, *databases: Database) -> None:
        super().__init__()
        self.databases = databases

    def _read_only(self, what: str) -> TuneError:
        return TuneError(
            f"{type(self).__name__} is for queries; {what} in one of its databases instead"
        )

    def has_workload(self, mod: IRModule | PrimFunc) -> bool:
        """Whether any database has the module."""
        return any(database.has_workload(mod) for database in self.databases)

    def commit_workload(self, mod: IRModule | PrimFunc) -> Workload:
        """Refuse: the target database would be ambiguous."""
        raise self._read_only("commit workloads")

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Refuse: the target database would be ambiguous."""
        raise self._read_only("commit records")

    def get_top_k(
        self, workload: Workload, top_k: int, target: Target | None = None
    ) -> list[TuningRecord]:
        """Return the best records of all databases for the workload's module."""
        found: list[TuningRecord] = []
        for database in self.databases:
            if database.has_workload(workload.mod):
                own = database.commit_workload(workload.mod)
                found += database.get_top_k(own, top_k, target)
        return list(islice(best_first(found, target), top_k))

    def find_workload(self, mod: IRModule | PrimFunc) -> Workload | None:
        """Return the workload that the first database has for a module."""
        found = (database.find_workload(mod) for database in self.databases)
        return next((workload for workload in found if workload is not None), None)

    def alike(self, kind: str, key: str) -> list[Workload]:
        """Return the workloads of all databases with this key."""
        return [item for database in self.databases for item in database.alike(kind, key)]

    def commit_graph_choice(self, choice: GraphChoice) -> None:
        """Refuse: the target database would be ambiguous."""
        raise self._read_only("commit choices for graphs")

    def graph_choice(self, graph: str, target: Target) -> GraphChoice | None:
        """Return the choice of the first database that has one."""
        found = (database.graph_choice(graph, target) for database in self.databases)
        return next((choice for choice in found if choice is not None), None)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Return the records of all databases, in their order."""
        return [r for database in self.databases for r in database.get_all_tuning_records()]

    def _best(self, mod: IRModule, target: Target | None, name: str | None) -> TuningRecord | None:
        """Return the best record that any database has."""
        return next(self._best_first(mod, target), None)

    def _best_first(self, mod: IRModule, target: Target | None) -> Iterator[TuningRecord]:
        found = [r for database in self.databases for r in database._best_first(mod, target)]
        return best_first(found, target)


class OrderedUnionDatabase(UnionDatabase):
    """Answers with the record of the first database that has one."""

    name = "ordered_union"

    def get_top_k(
        self, workload: Workload, top_k: int, target: Target | None = None
    ) -> list[TuningRecord]:
        """Return the best records of the first database that has any for the workload's module."""
        for database in self.databases:
            if database.has_workload(workload.mod):
                own = database.commit_workload(workload.mod)
                found = database.get_top_k(own, top_k, target)
                if found:
                    return found
        return []

    def _best(self, mod: IRModule, target: Target | None, name: str | None) -> TuningRecord | None:
        """Return the record of the first database that has one."""
        for database in self.databases:
            record = database.query_tuning_record(mod, target, name)
            if record is not None:
                return record
        return None

    def _best_first(self, mod: IRModule, target: Target | None) -> Iterator[TuningRecord]:
        for database in self.databases:
            yield from database._best_first(mod, target)
