"""Task schedulers: which task gets the next batch of trials."""

from __future__ import annotations

from tilewright.meta_schedule.task_scheduler.base import TaskRecord, TaskScheduler
from tilewright.meta_schedule.task_scheduler.gradient import GradientBased
from tilewright.meta_schedule.task_scheduler.round_robin import RoundRobin

__all__ = ["GradientBased", "RoundRobin", "TaskRecord", "TaskScheduler"]
