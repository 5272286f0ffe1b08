"""Gives every task a batch in turn."""

from __future__ import annotations

from tilewright.meta_schedule.task_scheduler.base import TaskScheduler


class RoundRobin(TaskScheduler):
    """Gives each task a batch in turn."""

    name = "round-robin"

    task_id = -1
    """The task that got the last batch."""

    def next_task_id(self) -> int:
        """Return the next task that is not finished, -1 if there is none."""
        for step in range(1, len(self.tasks) + 1):
            number = (self.task_id + step) % len(self.tasks)
            if not self.tasks[number].finished:
                self.task_id = number
                return number
        return -1
