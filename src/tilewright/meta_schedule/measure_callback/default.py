"""The callbacks of every tuning run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from tilewright.meta_schedule.database import Database, TuningRecord
from tilewright.meta_schedule.database.record import Workload, provenance
from tilewright.meta_schedule.measure_callback.base import Batch, MeasureCallback, Trial, Tuning
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.task import Task
from tilewright.meta_schedule.task_record import TaskRecord


class AddToDatabase(MeasureCallback):
    """Commits every candidate that was measured: it agreed with the unscheduled program."""

    name = "add-to-database"

    def __init__(self) -> None:
        # To find a task's workload takes as long as to commit a record.
        self._workloads: WeakKeyDictionary[Task, tuple[Database, Workload]] = WeakKeyDictionary()

    def on_result(self, scheduler: Tuning, task: TaskRecord, trial: Trial) -> None:
        """Commit one record at once, so that nothing measured is lost."""
        database = scheduler.database
        if database is None or trial.result.run_secs is None:
            return
        known, workload = self._workloads.get(task.context, (None, None))
        if known is not database:
            workload = database.commit_workload(task.context.mod)
            self._workloads[task.context] = database, workload
        commit_measured(database, task.context, trial.candidate, trial.result, workload=workload)


def commit_measured(
    database: Database,
    task: Task,
    candidate: MeasureCandidate,
    result: RunnerResult,
    *,
    sizes: Sequence[int] = (),
    workload: Workload | None = None,
) -> None:
    """Commit what was measured as a record; ``sizes`` are those that it serves best.

    ``workload`` is the task's in the database, if the caller knows it.
    """
    origin = provenance(
        result.verdict,
        timing=result.timing,
        beat=result.beat,
        equal=result.equal,
        origin=candidate.made_by,
        answers=candidate.sch.choices.answers,
        sizes=sizes,
    )
    database.commit_tuning_record(
        TuningRecord(
            candidate.sch.trace.simplified(),
            workload or database.commit_workload(task.mod),
            result.run_secs,
            task.target,
            candidate.args_info,
            origin,
        )
    )


class UpdateCostModel(MeasureCallback):
    """Trains the cost model on each batch."""

    name = "update-cost-model"

    def on_batch(self, scheduler: Tuning, task: TaskRecord, batch: Batch) -> None:
        """Pass candidates that could be built, with their times, to the model."""
        if scheduler.cost_model is not None:
            scheduler.cost_model.update(task.context, batch.candidates, batch.results)


class RemoveBuildArtifact(MeasureCallback):
    """Removes the file or folder that a builder left for a candidate, once that was measured.

    ``LocalBuilder`` leaves none: its code stays in memory.
    """

    name = "remove-build-artifact"

    def on_result(self, scheduler: Tuning, task: TaskRecord, trial: Trial) -> None:
        """Remove the artifact; one that is gone already is no error."""
        if trial.built.artifact_path is None:
            return
        path = Path(trial.built.artifact_path)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
