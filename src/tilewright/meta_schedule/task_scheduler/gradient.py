"""Allocates trials where they are expected to save most time.

The rule is that of Ansor (Zheng et al., OSDI 2020, section 6): the gain of one more batch on a task
is its weight times the larger of the recent rate of improvement and an optimistic guess, from the
speed of similar tasks per floating-point operation.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.meta_schedule.task_scheduler.base import (
    TaskRecord,
    TaskScheduler,
)


class GradientBased(TaskScheduler):
    """``alpha`` weighs improvement over the last ``window_size`` batches against the guess.

    First every task gets one batch, in order. ``seed`` determines ties and the small fraction of
    batches (``explore``) for a random task.
    """

    name = "gradient"

    def __init__(
        self,
        *,
        alpha: float = 0.2,
        beta: float = 2.0,
        window_size: int = 3,
        explore: float = 0.05,
        seed: int = 0,
        **options: object,
    ) -> None:
        super().__init__(**options)
        self.alpha, self.beta, self.window_size = alpha, beta, window_size
        self.explore = explore
        self._rng = np.random.default_rng(seed)

    def next_task_id(self) -> int:
        """Return the task with the largest expected gain, -1 if all are finished."""
        alive = [n for n, task in enumerate(self.tasks) if not task.finished]
        if not alive:
            return -1
        for number in alive:
            if not self.tasks[number].best_history:
                return number
        if self._rng.random() < self.explore:
            return int(self._rng.choice(alive))
        return max(alive, key=lambda number: self._gain(self.tasks[number]))

    def _gain(self, task: TaskRecord) -> float:
        history = task.best_history
        best, count = history[-1], len(history)
        if not math.isfinite(best):
            return math.inf if count <= self.window_size else -math.inf
        past = 0.0
        if count > self.window_size and math.isfinite(history[-1 - self.window_size]):
            past = (history[-1 - self.window_size] - best) / self.window_size
        # Further batches can hardly gain more than the time left over their number, nor than
        # reaching a multiple of the best throughput among all tasks.
        rates = [
            other.context.flops / other.best_history[-1]
            for other in self.tasks
            if other.best_history and math.isfinite(other.best_history[-1])
        ]
        guess = best / count
        if task.context.flops and max(rates, default=0.0) > 0.0:
            reachable = task.context.flops / max(rates)
            guess = min(guess, max(0.0, best - reachable / self.beta))
        guess /= max(1.0, task.context.search_lag)  # it has to catch up with the rules first
        return task.weight * (self.alpha * past + (1.0 - self.alpha) * guess)
