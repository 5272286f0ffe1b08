"""The tuning loop: pick a task, get candidates, build, run, record, learn."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, islice
from typing import Any, ClassVar, Literal

from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database, measured_alike
from tilewright.meta_schedule.measure_callback import Batch, MeasureCallback, Trial
from tilewright.meta_schedule.measure_callback.base import defines_apply
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.profiler import Profiler
from tilewright.meta_schedule.runner import (
    NoReferenceError,
    Reference,
    Runner,
    RunnerInput,
    RunnerResult,
)
from tilewright.meta_schedule.runner.on_device import reference_target
from tilewright.meta_schedule.runner.traits import traits_of
from tilewright.meta_schedule.task_record import TaskRecord, TopCandidate, statistics
from tilewright.meta_schedule.task_scheduler.final_ranking import (
    elsewhere,
    entrants,
    runner_input,
    winner,
)
from tilewright.meta_schedule.task_scheduler.shares import Shares
from tilewright.meta_schedule.time_limit import OutOfTimeError, ending
from tilewright.meta_schedule.times import robust_seconds
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.meta_schedule.tuning_session import TuningSession
from tilewright.support.collector import few_collections
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.support.registry import Registry
from tilewright.tir.attrs import LAYOUT_FREE

logger = logging.getLogger("tilewright.meta_schedule")

# Lines of LLVM IR that a candidate may become: those that are fast have a few thousand at most.
_MOST_LINES = 1 << 14
# When a task ends, so many of its best candidates (and the rule-based one) are compared.
_TOP = 6


def _timed(candidates: Iterator[MeasureCandidate], builder: Builder) -> Iterator[MeasureCandidate]:
    """Yield candidates; note how long they take to make, and whether others are built meanwhile."""
    while True:
        with Profiler.timeit("searching while building" if builder.is_building else "searching"):
            candidate = next(candidates, None)
        if candidate is None:
            return
        yield candidate


class TaskScheduler:
    """Base of task schedulers: subclasses choose the next task.

    When the trials are spent, the best candidates of each task and the rules' schedule are measured
    in turn, ``final_rounds`` times (0: not at all); see ``final_ranking``. Its ``name`` registers
    it.
    """

    TaskSchedulerType: ClassVar[Any]  # a union, for annotations

    name = ""
    final_rounds = 12

    def __init__(self) -> None:
        self.tasks: list[TaskRecord] = []
        self.database: Database | None = None
        self._start_from: Database | None = None  # what a search may know when it begins
        self.cost_model: CostModel | None = None
        self.interrupted = False
        self._trials_per_task: int | None = None

    @property
    def tasks_(self) -> list[TaskRecord]:
        """The tasks, as callbacks of TVM call them; so are the next two."""
        return self.tasks

    @property
    def database_(self) -> Database | None:
        """The database of the run."""
        return self.database

    @property
    def cost_model_(self) -> CostModel | None:
        """The cost model of the run."""
        return self.cost_model

    def next_task_id(self) -> int:
        """Return the number of the task that gets the next batch, -1 if all are finished."""
        raise NotImplementedError(f"{type(self).__name__} must define next_task_id")

    def terminate_task(self, task_id: int) -> None:
        """End a task: it gets no more batches."""
        self._finish(self.tasks[task_id], "terminated")

    @staticmethod
    def create(
        kind: str | TaskScheduler = "gradient", *args: object, **kwargs: object
    ) -> TaskScheduler:
        """Make a scheduler by name (``"gradient"``, ``"round-robin"``), with options of its own."""
        return TASK_SCHEDULERS.instance(kind, TaskScheduler, *args, **kwargs)

    def tune(
        self,
        tasks: Sequence[TuneContext],
        task_weights: Sequence[float],
        max_trials_global: int,
        max_trials_per_task: int,
        num_trials_per_iter: int,
        builder: Builder,
        runner: Runner,
        measure_callbacks: Sequence[MeasureCallback],
        database: Database | None,
        cost_model: CostModel | None,
    ) -> None:
        """Spend up to ``max_trials_global`` measurements on tasks; see :meth:`spend`."""
        session = TuningSession(
            builder,
            runner,
            database,
            cost_model,
            max_trials_global,
            max_trials_per_task,
            num_trials_per_iter,
            measure_callbacks,
        )
        self.spend(tasks, task_weights, session)

    def touch_task(self, task_id: int) -> None:
        """End a task that has had all its trials; others are as their last batch left them."""
        task = self.tasks[task_id]
        if self._trials_per_task is not None and task.trials >= self._trials_per_task:
            self._finish(task)

    def join_running_task(self, task_id: int) -> list[RunnerResult]:
        """Return the results of a task's last batch: a batch is complete before the next begins."""
        return list(self.tasks[task_id].last_results)

    def print_tuning_statistics(self) -> None:
        """Print a table of the tasks: trials, failures, the best time and its weight."""
        print(statistics(self.tasks))

    def spend(
        self,
        tasks: Sequence[TuneContext],
        task_weights: Sequence[float],
        session: TuningSession,
    ) -> None:
        """Spend up to the session's ``max_trials_global`` measurements on the tasks.

        Existing records of the database are the starting point and don't count as trials. Ctrl-C
        ends the loop cleanly (and sets ``interrupted``); everything measured has been committed. A
        task that can't be tuned (no design space, or an unscheduled program that can't be built or
        run) is given up and reported; ``TuneError`` if no task can be tuned.
        """
        if len(tasks) != len(task_weights):
            raise TuneError(f"{len(tasks)} tasks but {len(task_weights)} weights")
        self.interrupted = False
        self.database, self.cost_model = session.database, session.cost_model
        self._start_from = session.database
        self._trials_per_task = session.max_trials_per_task
        if session.database is not None and session.remembered is not None:
            self._start_from = session.remembered.without_own(session.database, tasks)
        self.tasks = [TaskRecord(task, weight) for task, weight in zip(tasks, task_weights)]
        if self._start_from is not None:
            for context in tasks:
                context.find_similar(self._start_from)
            self._start_from = measured_alike(self._start_from, session.runner.cold)
        left = session.max_trials_global
        shares = Shares(self.tasks, session, self.final_rounds)
        session.progress.until = session.until
        limit = ending(session.until, session.builder, session.runner)
        with session.progress.running(self.tasks, left), few_collections(), limit:
            try:
                for task in self.tasks:
                    self._start_from_records(task)
                session.runner.start()
                with suppress(OutOfTimeError):
                    self._spend_trials(left, session, shares)
                with Profiler.timeit("comparing the best"), suppress(OutOfTimeError):
                    for position, task in enumerate(self.tasks):
                        self._rank_top(task, session, shares, self.tasks[position:])
            except KeyboardInterrupt:
                self.interrupted = True
                session.progress.message("interrupted; everything measured so far is kept")
            finally:
                for task in self.tasks:
                    self._finish(task)
                session.runner.close()
                session.builder.close()
        if self.tasks and all(task.error is not None for task in self.tasks):
            raise TuneError(
                "no task could be tuned: "
                + "; ".join(f"{task.name}: {task.error}" for task in self.tasks)
            )

    def _spend_trials(self, left: int, session: TuningSession, shares: Shares) -> None:
        """Give tasks batches until trials or time are spent. May raise ``OutOfTimeError``."""
        while left > 0 and shares.may_go_on():
            number = self.next_task_id()
            if number < 0:
                return
            task = shares.cheap_first(self.tasks[number])
            number = self.tasks.index(task)
            if shares.is_too_late(task):
                self._finish(task, "there was no time left for it")
                continue
            start = time.monotonic()
            if not (self._prepare(task, session) and self._set_reference(task, session)):
                continue
            prepared = time.monotonic() - start
            task.spent_seconds += prepared
            count = shares.batch_size(task, left)
            if count < 1:
                return
            left -= self._batch(task, count, session, shares)
            if not task.first_seconds and task.trials:
                task.first_seconds = prepared + (task.spent_seconds - prepared) / task.trials
            self.touch_task(number)
            if not task.finished and task.expected_gain(count) < session.min_improvement:
                why = f"{count} more trials are expected to gain {task.expected_gain(count):.2%}"
                session.progress.message(f"task {task.name} ends: {why}")
                self._finish(task, why)

    def _start_from_records(self, task: TaskRecord) -> None:
        """Take the best time from the database."""
        if self.database is not None:
            # Committed now: what can't be kept should be known before anything is measured.
            self.database.commit_workload(task.context.mod)
            assert self._start_from is not None
            known = self._start_from.query_tuning_record(task.context.mod, task.context.target)
            if known is not None and known.args_info in (None, task.context.args_info):
                task.best_seconds = known.best_seconds

    def _prepare(self, task: TaskRecord, session: TuningSession) -> bool:
        """Generate the design space, once; false if that fails and the task is given up."""
        if task.prepared:
            return True
        context = task.context
        context.max_lag = session.max_lag
        try:
            with Profiler.timeit("design spaces"):
                context.pre_tuning(
                    session.max_trials_per_task,
                    session.num_trials_per_iter,
                    database=self._start_from,
                    cost_model=self.cost_model,
                )
        except TilewrightError as error:
            self._give_up(task, f"its design space can't be generated: {error}", session)
            return False
        task.prepared = True
        size = context.search_strategy.space_size
        if size:
            session.progress.message(f"task {task.name}: {size} candidates in its design space")
        return True

    def _set_reference(self, task: TaskRecord, session: TuningSession) -> bool:
        """Compile the unscheduled program, once; false if that fails and the task is given up."""
        if task.reference is None:
            try:
                task.reference = make_reference(task.context, session.builder)
            except OutOfTimeError:
                raise
            except TuneError as error:
                self._give_up(task, str(error), session)
                return False
        session.runner.prepare(task.reference)
        return True

    def _give_up(self, task: TaskRecord, why: str, session: TuningSession) -> None:
        task.error = why
        self._finish(task)
        logger.error("task %s is given up: %s", task.name, why)
        session.progress.message(f"task {task.name} is given up: {why}")

    def _finish(self, task: TaskRecord, why: str = "") -> None:
        """End a task; ``why`` is for those that end before their trials are spent."""
        if not task.finished:
            task.finished, task.ended = True, why
            if task.prepared:
                task.context.post_tuning()

    def _batch(self, task: TaskRecord, count: int, session: TuningSession, shares: Shares) -> int:
        """Measure one batch of a task; returns the number of trials spent.

        Raises ``OutOfTimeError`` after having kept what was measured until then.
        """
        start = time.monotonic()
        context = task.context
        task.asked = count
        candidates: list[MeasureCandidate] = []
        past: list[RunnerResult | None] = []
        new: list[MeasureCandidate] = []
        rest = ExitStack()  # what the builder still takes when all candidates are there

        def inputs() -> Iterator[BuilderInput]:
            session.progress.working(task, "searching")
            for candidate in _timed(context.each_measure_candidate(count), session.builder):
                candidates.append(candidate)
                past.append(self._remembered(task, candidate, session))
                if past[-1] is None:
                    new.append(candidate)
                    yield BuilderInput(candidate.sch.mod, context.target, max_lines=_MOST_LINES)
            session.progress.working(task, "building")
            rest.enter_context(Profiler.timeit("building"))  # all, or what can't go on meanwhile

        builds = session.builder.build_each(inputs())
        results: list[RunnerResult] = []
        measured_now: list[Trial] = []
        failed: str | None = None
        late: OutOfTimeError | None = None
        try:
            with rest:
                built = chain(list(islice(builds, 1)), builds)
            if not candidates:
                why = "all candidates are tried"
                if context.search_is_given_up:
                    why = f"the search is {context.search_lag:.2g} times as slow as the rules"
                session.progress.message(f"task {task.name} ends: {why}")
                self._finish(task, why)
                return 0
            session.progress.working(task, "measuring")
            with Profiler.timeit("measuring"):
                best = task.best_seconds if math.isfinite(task.best_seconds) else None
                measured = self._measured(task, new, built, session.runner, best)
                for candidate, known in zip(candidates, past):
                    build, result = (None, known) if known is not None else next(measured)
                    results.append(result)
                    self._count(task, candidate, result)
                    self._remember(task, candidate, build, result)
                    if build is not None:
                        measured_now.append(Trial(candidate, build, result))
                        for callback in session.callbacks:
                            callback.on_result(self, task, measured_now[-1])
                    session.progress.measured(task)
                    if build is not None and shares.before_ranking() < 0.0:
                        break
                else:
                    if measured_now:
                        next(measured, None)  # says so if there are more results than inputs
        except NoReferenceError as error:
            failed = str(error)
        except OutOfTimeError as error:
            late = error
        finally:
            builds.close()
        candidates = candidates[: len(results)]
        task.last_results = results
        with Profiler.timeit("learning"):
            context.notify_runner_results(candidates, results)
            for callback in session.callbacks:
                callback.on_batch(self, task, Batch(candidates, results))
                if measured_now and defines_apply(callback):
                    columns = map(list, zip(*measured_now))
                    callback.apply(self, self.tasks.index(task), *columns)
        task.best_history.append(task.best_seconds)
        task.spent_seconds += time.monotonic() - start
        if failed is not None:
            self._give_up(task, failed, session)
        if late is not None:
            raise late
        return len(candidates)

    @staticmethod
    def _remembered(
        task: TaskRecord, candidate: MeasureCandidate, session: TuningSession
    ) -> RunnerResult | None:
        past = session.remembered
        return None if past is None else past.result(task.context, candidate)

    def _count(self, task: TaskRecord, candidate: MeasureCandidate, result: RunnerResult) -> None:
        task.trials += 1
        if result.run_secs is not None:
            task.took(robust_seconds(result.run_secs))
            return
        task.failures[result.reason or "run"] += 1
        logger.info("task %s: %s: %s", task.name, result.reason, result.error)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("its trace:\n%s", candidate.sch.trace)

    def _remember(
        self,
        task: TaskRecord,
        candidate: MeasureCandidate,
        build: BuilderResult | None,
        result: RunnerResult,
    ) -> None:
        """Keep the best candidates, and the one by rule."""
        if result.run_secs is None:
            return
        made = TopCandidate(robust_seconds(result.run_secs), candidate, build)
        if candidate.by_rule:
            task.rule = made
        task.top_candidates = sorted([*task.top_candidates, made], key=lambda item: item.seconds)
        del task.top_candidates[_TOP:]

    def _rank_top(
        self,
        task: TaskRecord,
        session: TuningSession,
        shares: Shares,
        waiting: Sequence[TaskRecord],
    ) -> None:
        """Compare the best candidates of a task with the rules' schedule; record the winner.

        These measurements don't count as trials. The time that is left is for all tasks that are
        ``waiting`` for this.
        """
        if self.final_rounds < 1 or not task.top_candidates or task.error is not None:
            return
        session.progress.working(task, "comparing the best")
        entries = entrants(
            task.context, task.top_candidates, task.rule, self.database, session.builder
        )
        if len(entries) < 2:
            return  # nobody to compare it with, and it is recorded already
        assert task.reference is not None
        inputs = [runner_input(x.candidate, x.build, task.reference) for x in entries]
        rounds = shares.rounds(waiting)
        try:
            results = session.runner.race(inputs, rounds)
            results = elsewhere(
                task.context, task.reference, entries, results, session.runner, rounds
            )
        except NoReferenceError as error:
            logger.warning("task %s: the best can't be compared: %s", task.name, error)
            return
        won = winner(entries, results)
        raced = [entry.candidate for entry in entries]
        first = None if won is None else entries.index(won[0])
        for callback in session.callbacks:
            callback.on_race(self, task, Batch(raced, results, first))
        if won is None:
            logger.warning("task %s: none of the best could be measured again", task.name)
            return
        entry, result = won
        assert result.run_secs is not None
        task.best_seconds = robust_seconds(result.run_secs)
        logger.info(
            "task %s: of %d, %s is best%s",
            task.name,
            len(entries),
            "what the rules make" if entry.by_rule else "a candidate",
            f"; {len(result.equal)} of the others are equal within noise" if result.equal else "",
        )
        for callback in session.callbacks:
            callback.on_result(self, task, Trial(entry.candidate, entry.build, result))

    def _measured(
        self,
        task: TaskRecord,
        candidates: Sequence[MeasureCandidate],
        built: Iterable[BuilderResult],
        runner: Runner,
        best: float | None,
    ) -> Iterator[tuple[BuilderResult, RunnerResult]]:
        """Run the candidates that were built; pair every build with its result, in order.

        ``best`` is the time above which the runner may stop early, ``None`` if it must not.
        """
        assert task.reference is not None
        reference = task.reference
        waiting: deque[BuilderResult] = deque()

        def able() -> Iterator[RunnerInput]:
            for candidate, build in zip(candidates, built):
                waiting.append(build)
                if build.module is not None:
                    yield runner_input(candidate, build, reference, best)

        def unable() -> Iterator[tuple[BuilderResult, RunnerResult]]:
            while waiting and waiting[0].module is None:
                build = waiting.popleft()
                yield build, RunnerResult(None, build.error, build.reason)

        for result in runner.run_each(able()):
            yield from unable()
            if not waiting:
                raise TuneError(f"{type(runner).__name__} gave more results than inputs")
            yield waiting.popleft(), result
        yield from unable()
        if waiting:
            raise TuneError(f"{type(runner).__name__} gave fewer results than inputs")


def make_reference(context: TuneContext, builder: Builder) -> Reference:
    """Compile a task's unscheduled program.

    Raises ``TuneError`` if it doesn't compile.
    """
    target = reference_target(context.target)
    (built,) = builder.build_each([BuilderInput(context.mod, target)])
    if built.module is None:
        raise TuneError(
            "the unscheduled program can't be compiled, so no candidate could be checked: "
            f"{built.error}"
        )
    traits = traits_of(context.mod["main"], context.args_info)
    constants = frozenset(context.mod["main"].attrs.get(LAYOUT_FREE, ()))
    return Reference(
        context.hash, built.module, context.args_info, traits=traits, constants=constants
    )


TaskScheduler.TaskSchedulerType = TaskScheduler | Literal["gradient", "round-robin"]

PyTaskScheduler = TaskScheduler
"""The name under which TVM's users derive from it."""

TASK_SCHEDULERS: Registry[Callable[[], TaskScheduler]] = Registry("task scheduler", TuneError)
