"""The callback that keeps a log of each task, for reports."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.meta_schedule.arg_info import argument_bytes
from tilewright.meta_schedule.database.record import trace_digest
from tilewright.meta_schedule.feature import candidate_evaluation
from tilewright.meta_schedule.measure_callback.base import Batch, MeasureCallback, Trial, Tuning
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.task_record import TaskRecord
from tilewright.meta_schedule.trial_log import (
    FOLDER,
    RUNS,
    RunClock,
    append,
    file_name,
    new_run,
)
from tilewright.support.errors import TilewrightError

logger = logging.getLogger("tilewright.meta_schedule")

_LONGEST_ERROR = 200


class KeepTrialLog(MeasureCallback):
    """Appends what happens to the logs in ``work_dir`` (see ``trial_log``).

    ``run`` goes on, which has logged ``batches`` of each log before: these come again. The
    ``clock`` is that of the run.

    A log that can't be written is given up with a warning: tuning goes on. It comes before the
    callback that trains the cost model, so that predictions are those before the measurement.
    """

    def __init__(
        self,
        work_dir: str | os.PathLike[str],
        run: str | None = None,
        batches: Mapping[str, Sequence[int]] | None = None,
        clock: RunClock | None = None,
    ) -> None:
        self.folder = Path(work_dir) / FOLDER
        self.run = run or new_run()
        self._clock = clock or RunClock()
        self._logged = Counter({name: len(sizes) for name, sizes in (batches or {}).items()})
        self.trials = 0
        self._tasks: set[str] = set()
        self._raced: MeasureCandidate | None = None
        self._broken = False

    def _append(self, name: str, kind: str, **values: object) -> None:
        if self._broken:
            return
        try:
            append(self.folder / name, kind, run=self.run, **self._clock.stamp(), **values)
        except OSError as error:
            self._broken = True
            logger.warning(
                "the log of trials can't be written, reports won't show this run: %s: %s",
                self.folder, error.strerror or error,
            )  # fmt: skip

    def _of_task(self, scheduler: Tuning, task: TaskRecord) -> str:
        """Return the name of a task's log; at first say what the task is."""
        context = task.context
        name = file_name(context)
        if name not in self._tasks:
            self._tasks.add(name)
            known = None
            if scheduler.database is not None:
                record = scheduler.database.query_tuning_record(context.mod, context.target)
                known = None if record is None else record.best_seconds
            model = scheduler.cost_model
            self._append(
                name, "start", task=task.name, workload=context.hash, target=str(context.target),
                flops=context.flops, bytes=argument_bytes(context.args_info), weight=task.weight,
                known=known, model=None if model is None else type(model).__name__,
            )  # fmt: skip
        return name

    def on_result(self, scheduler: Tuning, task: TaskRecord, trial: Trial) -> None:
        """Log one trial; the result of the last race is logged as a race."""
        candidate = trial.candidate
        if candidate is self._raced:
            return
        self.trials += 1
        self._append(
            self._of_task(scheduler, task), "trial", **_outcome(candidate, trial.result),
            predicted=_predicted(scheduler, task, candidate),
        )  # fmt: skip

    def on_batch(self, scheduler: Tuning, task: TaskRecord, batch: Batch) -> None:
        """Log what has been rejected so far, which includes what never came to a trial."""
        name = self._of_task(scheduler, task)
        if self._logged[name] > 0:
            self._logged[name] -= 1
            return
        self._append(
            name, "batch", rejected=dict(task.rejected), best=task.best_seconds, size=task.asked
        )

    def on_race(self, scheduler: Tuning, task: TaskRecord, race: Batch) -> None:
        """Log the times of all that took part."""
        entries = [
            {key: value for key, value in _outcome(candidate, result).items() if value is not None}
            for candidate, result in zip(race.candidates, race.results)
        ]
        if race.won is not None:
            entries[race.won]["won"] = True
            self._raced = race.candidates[race.won]
        self._append(self._of_task(scheduler, task), "race", entries=entries)

    def begin(self, digest: str) -> None:
        """Log that the run begins, or goes on."""
        self._append(RUNS, "begin", digest=digest)

    def end(self, phases: dict[str, float], *, finished: bool = True) -> None:
        """Log how long the phases of the run took, and whether it has come to its end."""
        self._append(
            RUNS, "run", phases=phases, trials=self.trials, tasks=len(self._tasks),
            finished=finished,
        )  # fmt: skip


def _outcome(candidate: MeasureCandidate, result: RunnerResult) -> dict[str, object]:
    return {
        "trace": trace_digest(candidate.sch.trace),
        "origin": candidate.made_by,
        "seconds": list(result.run_secs) if result.run_secs else None,
        "reason": None if result.run_secs else result.reason or "run",
        "error": None if result.error is None else result.error[:_LONGEST_ERROR],
    }


def _predicted(scheduler: Tuning, task: TaskRecord, candidate: MeasureCandidate) -> float | None:
    """Return the cost model's score; ``None`` without a model or features."""
    if scheduler.cost_model is None:
        return None
    if scheduler.cost_model.rates_schedules:
        if candidate.by_rule or candidate.sch.choices.answers:
            return None  # a rule has made it: it is of no space that the model knows
        return float(scheduler.cost_model.predict(task.context, [candidate])[0])
    try:
        evaluation = candidate_evaluation(task.context, candidate)
    except TilewrightError:
        return None  # its loops depend on data: the model can't know it, as training says
    return float(scheduler.cost_model.score(task.context.hash, evaluation)[0])
