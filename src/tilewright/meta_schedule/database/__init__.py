"""Databases: workloads and the tuning records measured for them."""

from __future__ import annotations

from tilewright.meta_schedule.database.base import Database
from tilewright.meta_schedule.database.json_file import JSONDatabase
from tilewright.meta_schedule.database.memory import MemoryDatabase
from tilewright.meta_schedule.database.record import MODULE_EQUALITIES, TuningRecord, Workload
from tilewright.meta_schedule.database.schedule_fn import ScheduleFnDatabase
from tilewright.meta_schedule.database.union import OrderedUnionDatabase, UnionDatabase

__all__ = [
    "MODULE_EQUALITIES",
    "Database",
    "JSONDatabase",
    "MemoryDatabase",
    "OrderedUnionDatabase",
    "ScheduleFnDatabase",
    "TuningRecord",
    "UnionDatabase",
    "Workload",
]
