"""The resources of one tuning run: builder, runner, database, budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.meta_schedule.builder import Builder
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.measure_callback import MeasureCallback, default_callbacks
from tilewright.meta_schedule.progress import Progress
from tilewright.meta_schedule.resume import Remembered
from tilewright.meta_schedule.runner import Runner
from tilewright.support.errors import TuneError


@dataclass(frozen=True)
class TuningSession:
    """The resources with which a task scheduler spends ``max_trials_global`` measurements.

    Without a ``database`` nothing is kept, without a ``cost_model`` nothing is learned. Everything
    ends at about the time ``until``, by ``time.monotonic``, the comparison of the best included;
    ``seconds`` are those that the run was given when it began first. A
    task ends when its next batch is expected to gain less than ``min_improvement`` (relative). A
    search goes on only while its best is at most ``max_lag`` times as slow as what the rules make.
    What is ``remembered`` of a run that ended early isn't measured again, nor passed to
    ``on_result`` of the callbacks.
    """

    builder: Builder
    runner: Runner
    database: Database | None
    cost_model: CostModel | None
    max_trials_global: int
    max_trials_per_task: int
    num_trials_per_iter: int = 32
    callbacks: Sequence[MeasureCallback] = field(default_factory=default_callbacks)
    progress: Progress = field(default_factory=Progress)
    until: float = math.inf
    min_improvement: float = 0.0
    max_lag: float = math.inf
    remembered: Remembered | None = None
    seconds: float = math.inf

    def __post_init__(self) -> None:
        negative = self.max_trials_global < 0 or self.max_trials_per_task < 0
        if negative or self.num_trials_per_iter < 1:
            raise TuneError("numbers of trials must not be negative, num_trials_per_iter positive")
        if not 0.0 <= self.min_improvement < 1.0:
            raise TuneError(f"min_improvement is from 0 to 1, got {self.min_improvement}")
        if not isinstance(self.progress, Progress):
            kind = type(self.progress).__name__
            raise TuneError(f"progress is an instance of Progress, not a {kind}")
        if not self.max_lag >= 1.0:
            raise TuneError(f"max_lag is at least 1, got {self.max_lag}")
