"""A database defined by a function that schedules the modules it knows."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import IRModule
from tilewright.meta_schedule.database.memory import MemoryDatabase
from tilewright.meta_schedule.database.record import TuningRecord, Workload
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule


class ScheduleFnDatabase(MemoryDatabase):
    """``schedule_fn(sch) -> bool`` schedules a module in place; returns whether it did."""

    name = "schedule_fn"

    def __init__(
        self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural"
    ) -> None:
        super().__init__(module_equality)
        self.schedule_fn = schedule_fn

    def has_workload(self, mod: IRModule | PrimFunc) -> bool:
        """Return true: the function decides on a query."""
        return True

    def _best(self, mod: IRModule, target: Target | None, name: str | None) -> TuningRecord | None:
        """Run the function; its trace is the record, which has no measured time."""
        sch = Schedule(mod)
        if not self.schedule_fn(sch):
            return None
        return TuningRecord(sch.trace, Workload(mod), None, target)
