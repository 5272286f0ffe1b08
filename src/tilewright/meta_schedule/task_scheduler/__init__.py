"""Task schedulers: which task gets the next batch of trials."""

from __future__ import annotations

from tilewright.meta_schedule.task_scheduler.base import (
    TASK_SCHEDULERS,
    PyTaskScheduler,
    TaskRecord,
    TaskScheduler,
)
from tilewright.support.folder import classes_in, register_classes

_FOUND = register_classes(TASK_SCHEDULERS, classes_in(__name__, TaskScheduler))
globals().update(_FOUND)

create = TaskScheduler.create

__all__ = ["create", "TASK_SCHEDULERS", "TaskRecord", "TaskScheduler", "PyTaskScheduler", *_FOUND]
