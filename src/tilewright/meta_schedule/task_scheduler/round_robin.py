"""Gives every task a batch in turn."""

from __future__ import annotations

from tilewright.meta_schedule.task_scheduler.base import TaskScheduler


class RoundRobin(TaskScheduler):
    """Gives each task a batch in turn."""

    name = "round-robin"

    _last = -1

    def next_task_id(self) -> int:
        """Return the next task that is not finished, -1 if there is none."""
        for step in range(1, len(self.tasks) + 1):
            number = (self._last + step) % len(self.tasks)
            if not self.tasks[number].finished:
                self._last = number
                return number
        return -1
