"""How a session's trials and seconds are divided among its tasks.

Each task begins with a small batch, which finds out where trials pay off; what the comparison of
the best will take is set aside. Tasks whose beginning is dear come last, and not at all if there is
no time for them. A run that goes on asks for batches of the sizes that they had, whatever the clock
says.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from statistics import median_low

from tilewright.meta_schedule.task_record import TaskRecord
from tilewright.meta_schedule.task_scheduler.final_ranking import entrant_seconds, ranking_seconds
from tilewright.meta_schedule.tune_context import FIRST_BATCH
from tilewright.meta_schedule.tuning_session import TuningSession

# The best candidates are compared in so few rounds at least, however little time is left.
_FEW_ROUNDS = 4
# What a trial takes, in seconds, before that is known.
_TRIAL_SECONDS = 0.2
# What the beginning of a task takes: its design space, and its unscheduled program, in
# floating-point operations per second, for a few kinds of inputs.
_BEGIN_SECONDS, _UNSCHEDULED_RATE = 0.3, 5e8
# Of a small budget each task could get so many batches more, of so many trials at least.
_MORE_BATCHES, _SMALL_BATCH = 2, 2 * FIRST_BATCH


class Shares:
    """The shares of tasks in the trials and seconds of a session."""

    def __init__(
        self, tasks: Sequence[TaskRecord], session: TuningSession, final_rounds: int
    ) -> None:
        self.tasks, self.session, self.final_rounds = tasks, session, final_rounds

    def may_go_on(self) -> bool:
        """Whether there is time for a batch; one that is remembered takes hardly any."""
        return time.monotonic() < self.session.until or self._is_remembered()

    def cheap_first(self, task: TaskRecord) -> TaskRecord:
        """Return the task that begins in place of a new one: dear ones come last.

        That is those whose beginning takes more than their share of the time. It doesn't depend on
        the clock: a run that goes on does the same.
        """
        if task.best_history or math.isinf(self.session.seconds):
            return task
        share = self.session.seconds / len(self.tasks)
        new = [item for item in self.tasks if not (item.best_history or item.finished)]
        # Of equals the first one: their order is that of the tasks.
        return min(new, key=lambda item: max(share, _beginning(item)))

    def is_too_late(self, task: TaskRecord) -> bool:
        """Whether there is no time for a new task, by what the beginning of others took."""
        if task.best_history or math.isinf(self.session.until):
            return False
        if self._is_remembered():
            assert self.session.remembered is not None
            return not self.session.remembered.knows(task.context)
        ratios = [x.first_seconds / _beginning(x) for x in self.tasks if x.first_seconds]
        # The lower of two: the first task also started the processes.
        seconds = median_low(ratios) * _beginning(task) if len(ratios) > 1 else 0.0
        return self.before_ranking() < seconds

    def batch_size(self, task: TaskRecord, left: int) -> int:
        """Return how many trials a task's next batch has: as many as before if it is remembered."""
        past = self.session.remembered
        before = None if past is None else past.batch(task.context)
        most = min(left, self.session.num_trials_per_iter)
        if before:
            return min(before, most)  # the log may be a stranger's
        in_time = math.isfinite(self.session.until)
        time_for = self._in_time(task) if in_time else left
        return min(
            most,
            self._fair_share(task, min(left, time_for), in_time),
            self.session.max_trials_per_task - task.trials,
            time_for,
        )

    def _fair_share(self, task: TaskRecord, left: int, in_time: bool) -> int:
        """Return how many trials a task may take of those that are left.

        First batches find out where trials pay off; together they get half of the budget, or enough
        for ``FIRST_BATCH`` trials each. Of a budget of time that is what they get, or equal shares
        of less. Later ones are small if otherwise few tasks could have another one.
        """
        if len(self.tasks) == 1:
            return left
        waiting = sum(not (item.best_history or item.finished) for item in self.tasks)
        if task.best_history:
            # Small batches find out for more tasks whether there is something to gain.
            alive = sum(not item.finished for item in self.tasks)
            some = max(_SMALL_BATCH, left // (_MORE_BATCHES * alive))
            return max(1, min(left - waiting, some))
        if in_time:
            return max(1, min(FIRST_BATCH, left // waiting))
        return max(1, left // (2 * waiting), min(FIRST_BATCH, left // waiting))

    def _is_remembered(self) -> bool:
        past = self.session.remembered
        return past is not None and past.goes_on

    def _in_time(self, task: TaskRecord) -> int:
        """Return for how many trials of a task there is time before the best are compared."""
        if task.trials:
            rate = task.spent_seconds / task.trials
        else:
            known = [item.spent_seconds / item.trials for item in self.tasks if item.trials]
            # The lower of two: the first task also started the processes.
            rate = median_low(known) if known else _TRIAL_SECONDS
            rate += entrant_seconds(0.0, self.final_rounds)  # which each of the first trials is
        seconds = self.before_ranking()
        if not task.trials and seconds > 0.0:
            seconds = max(seconds, rate)  # what starting the processes took says little
        return int(min(seconds / rate, self.session.max_trials_global))

    def before_ranking(self) -> float:
        """Seconds that are left until the best of each task have to be compared."""
        ranking = sum(ranking_seconds(task, self.final_rounds) for task in self.tasks)
        return self.session.until - time.monotonic() - ranking

    def rounds(self, waiting: Sequence[TaskRecord]) -> int:
        """Return how many rounds there is time for, at least a few."""
        if math.isinf(self.session.until):
            return self.final_rounds
        left = self.session.until - time.monotonic()
        wanted = sum(ranking_seconds(item, self.final_rounds) for item in waiting)
        few = min(_FEW_ROUNDS, self.final_rounds)
        share = min(1.0, left / max(wanted, 1e-3))
        return max(few, int(self.final_rounds * share))


def _beginning(task: TaskRecord) -> float:
    """Estimate the seconds until a task's first candidate is measured."""
    return _BEGIN_SECONDS + task.context.flops / _UNSCHEDULED_RATE


__all__ = ["Shares"]
