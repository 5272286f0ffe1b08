"""Databases: workloads and the tuning records measured for them."""

from __future__ import annotations

from tilewright.meta_schedule.database.base import DATABASES, Database, PyDatabase, is_url
from tilewright.meta_schedule.database.filtered import Filtered, measured_alike
from tilewright.meta_schedule.database.opening import open_place
from tilewright.meta_schedule.database.record import MODULE_EQUALITIES, TuningRecord, Workload
from tilewright.support.folder import classes_in, register_classes

_FOUND = register_classes(DATABASES, classes_in(__name__, Database))
globals().update(_FOUND)

create = Database.create

__all__ = [
    "create",
    "DATABASES", "Database", "MODULE_EQUALITIES", "PyDatabase", "TuningRecord", "Workload",
    "Filtered", "is_url", "measured_alike", "open_place", *_FOUND,
]  # fmt: skip
