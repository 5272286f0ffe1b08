"""Made by `tools/package_stubs.py`."""

create = TaskScheduler.create
from tilewright.meta_schedule.task_record import TaskRecord as TaskRecord
from tilewright.meta_schedule.task_scheduler.base import PyTaskScheduler as PyTaskScheduler
from tilewright.meta_schedule.task_scheduler.base import TASK_SCHEDULERS as TASK_SCHEDULERS
from tilewright.meta_schedule.task_scheduler.base import TaskScheduler as TaskScheduler
from tilewright.meta_schedule.task_scheduler.gradient import GradientBased as GradientBased
from tilewright.meta_schedule.task_scheduler.round_robin import RoundRobin as RoundRobin
