"""The base of search strategies, which choose the candidates of a design space to measure next."""

from __future__ import annotations

import copy
import inspect
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from tilewright.ir import structural_hash
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.feature import Evaluation, remember
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.postproc import Postproc, VerifyCodeSize
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.search_strategy.design import Variant, make_variants, open_shape
from tilewright.meta_schedule.task import Task
from tilewright.support.errors import ScheduleError, TilewrightError, TuneError
from tilewright.support.registry import Registry
from tilewright.tir.schedule import Schedule, Trace

_SLACK = 2.0
"""How much more code than allowed a candidate may seem to have before it is known exactly."""

logger = logging.getLogger("tilewright.meta_schedule")

Key = tuple[int, bytes]
"""A candidate: the number of its variant, its row as bytes."""


class SearchStrategy:
    """Base of search strategies; subclasses define ``generate_measure_candidates``.

    ``seed`` (with the task's) seeds the random generator. Candidates that were measured, in this
    run or according to the database, are never measured again. Its ``name`` registers it.
    """

    SearchStrategyType: ClassVar[Any]  # a union, for annotations

    name = ""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed
        self.num_trials_per_iter = 1
        self.trials_left: float = math.inf
        """How many candidates there may be before the search ends."""
        self._context: Task | None = None
        self.variants: list[Variant] = []
        self.cost_model: CostModel | None = None
        self.rng = np.random.default_rng(seed)
        self.times: dict[Key, float] = {}
        """Seconds of measured candidates; infinity for those that failed."""
        self._issued: dict[MeasureCandidate, Key] = {}
        self._programs: set[str] = set()

    @property
    def context(self) -> Task:
        """The task; ``TuneError`` without one."""
        if self._context is None:
            raise TuneError("the search strategy has no task: a TuneContext gives it one")
        return self._context

    @property
    def fallback_share(self) -> float:
        """The share of variants whose features must be computed candidate by candidate."""
        if not self.variants:
            return 0.0
        return sum(v.function is None for v in self.variants) / len(self.variants)

    @property
    def space_size(self) -> int:
        """How many candidates the design space has: all decisions, those counted that fail."""
        return sum(variant.size for variant in self.variants)

    def _initialize_with_tune_context(self, context: Task) -> None:
        """Learn which task is to be tuned, before ``pre_tuning``."""
        self._context = context

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Start a task: its sketches, its records in the database, and a cost model.

        Raises ``TuneError`` for invalid numbers of trials.
        """
        if max_trials < 0 or num_trials_per_iter < 1:
            raise TuneError("max_trials must not be negative, num_trials_per_iter positive")
        context = self.context
        self.num_trials_per_iter, self.trials_left = num_trials_per_iter, max_trials
        self.cost_model = cost_model
        self.rng = np.random.default_rng((self.seed, context.rand_state))
        self.times, self._issued, self._programs = {}, {}, set()
        self.variants = self._variants(design_spaces)
        for postproc in context.space_generator.postprocs:
            if isinstance(postproc, VerifyCodeSize):
                for variant in self.variants:
                    variant.limit_code(_SLACK * postproc.limit)
        logger.info(
            "task %s: %d candidates in %d sketches, %d variants, %.0f%% of them without symbolic "
            "replay",
            context.task_name,
            self.space_size,
            len(design_spaces),
            len(self.variants),
            100 * self.fallback_share,
        )
        if database is not None:
            self._warm_start(database)

    def generate_measure_candidates(
        self, count: int | None = None
    ) -> list[MeasureCandidate] | None:
        """Return up to ``count`` new candidates (default: ``num_trials_per_iter``).

        ``None`` is the end: there were ``max_trials``, or the space is exhausted. A strategy of
        one's own may take no ``count``, and may return an empty list instead.
        """
        raise NotImplementedError(f"{type(self).__name__} must define generate_measure_candidates")

    def each_measure_candidate(self, count: int | None = None) -> Iterator[MeasureCandidate]:
        """Yield what ``generate_measure_candidates`` returns, each as soon as it is made.

        Here that is when all are: a kind of strategy may do better.
        """
        ask: Callable[..., list[MeasureCandidate] | None] = self.generate_measure_candidates
        yield from (ask(count) if inspect.signature(ask).parameters else ask()) or ()

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Record the results of measured candidates, also of others that are in the space."""
        for variant in self.variants:
            variant.forget_replays()
        for candidate, result in zip(measure_candidates, results):
            key = self._issued.pop(candidate, None)
            if key is None and not candidate.sch.choices.answers:  # no rule has made it
                key = self._place(candidate.sch.trace)
            if key is not None:
                self.times[key] = result.seconds

    def post_tuning(self) -> None:
        """Release the task."""
        self._context = None
        self.variants, self.cost_model = [], None
        self.times, self._issued, self._programs = {}, {}, set()

    def clone(self) -> SearchStrategy:
        """Return a strategy with the same options and no task."""
        made = copy.copy(self)
        made.post_tuning()
        made.rng = np.random.default_rng(self.seed)
        return made

    @staticmethod
    def create(
        kind: SearchStrategy | str = "evolutionary", *args: object, **kwargs: object
    ) -> SearchStrategy:
        """Make a strategy by name (``"evolutionary"``, ``"replay-trace"``, ``"exhaustive"`` …).

        Other arguments are those of its class.
        """
        return SEARCH_STRATEGIES.instance(kind, SearchStrategy, *args, **kwargs)

    # ---- for subclasses -----------------------------------------------------------------------
    def _wanted(self, count: int | None) -> int:
        """Return how many candidates are wanted: no more than there are trials left for."""
        wanted = self.num_trials_per_iter if count is None else count
        return int(min(wanted, self.trials_left))

    def _drawn(
        self, count: int | None, most_failures: int, draw: Callable[[int], MeasureCandidate | None]
    ) -> list[MeasureCandidate] | None:
        """Draw as many candidates as are wanted, or until ``most_failures`` in a row gave none.

        ``draw`` is told how many in a row have given none so far.
        """
        made: list[MeasureCandidate] = []
        wanted, failed = self._wanted(count), 0
        while len(made) < wanted and failed < most_failures:
            candidate = draw(failed)
            failed = failed + 1 if candidate is None else 0
            if candidate is not None:
                made.append(candidate)
        return made or None

    def _issue(self, candidate: MeasureCandidate, key: Key) -> None:
        """Note which candidate of the space one is that is to be measured."""
        self._issued[candidate] = key
        self.trials_left -= 1

    def _variants(self, spaces: Sequence[Schedule]) -> list[Variant]:
        """Return the sketches as arrays of candidates."""
        return make_variants(self.context.mod, spaces, self.context.target, self.context.sizes)

    def _warm_start(self, database: Database) -> None:
        """Learn from the records that the database has for the task."""
        context = self.context
        if not database.has_workload(context.mod):
            return
        workload = database.commit_workload(context.mod)
        evaluations: list[Evaluation] = []
        seconds: list[float | None] = []
        for record in database.get_top_k(workload, 2**31, context.target):
            if record.args_info not in (None, context.args_info):
                continue  # measured at other values of a symbolic size
            key = self._place(record.trace)
            if key is None:
                logger.debug("a record of task %s is of another space", context.task_name)
                continue
            number, row = key[0], np.frombuffer(key[1], dtype=np.int64)
            self.times[key] = record.best_seconds
            evaluations.append(self.variants[number].evaluate(row[None, :]))
            seconds.append(record.best_seconds)
        if self.cost_model is not None and evaluations and not self.cost_model.knows(context.hash):
            self.cost_model.learn(context.hash, evaluations, seconds)
        logger.info("task %s: %d records to start from", context.task_name, len(seconds))

    def _place(self, trace: Trace) -> tuple[int, bytes] | None:
        """Return which candidate of the space a schedule is; ``None`` if it isn't one."""
        trace = trace.simplified(remove_postproc=True)
        shape = open_shape(trace)
        for number, variant in enumerate(self.variants):
            if variant.shape == shape:
                row = variant.row_of(trace)
                return None if row is None else (number, row.tobytes())
        return None

    def _finish(self, number: int, row: Any, evaluation: Evaluation) -> MeasureCandidate | None:
        """Replay a candidate and apply postprocs.

        ``None`` if it is refused (which is counted), or its program was already tried.
        """
        context = self.context
        key = (number, row.tobytes())
        self.times[key] = np.inf  # known until the result comes, so not to be issued twice
        try:
            sch = self.variants[number].replay(row)
        except ScheduleError as error:
            self._reject("schedule", error.message)
            return None
        refusing = self._complete(sch)
        if refusing is not None:
            if isinstance(refusing, VerifyCodeSize):
                self.variants[number].learn_too_large(float(evaluation.code[0]))
            return None
        # Different decisions may come to the same program (8 jobs are allowed, there are only 4).
        program = structural_hash(sch.mod)
        if program in self._programs:
            return None
        self._programs.add(program)
        candidate = MeasureCandidate(sch, context.args_info)
        remember(candidate, evaluation)
        self._issue(candidate, key)
        return candidate

    def _complete(self, sch: Schedule) -> Postproc | None:
        """Apply the postprocs; return the one that refuses, which is counted."""
        sch.enter_postproc()
        for postproc in self.context.space_generator.postprocs:
            try:
                refused = postproc.rejection(sch)
            except TilewrightError as error:
                self._reject(postproc.name, error.message)
                return postproc
            if refused is not None:
                self._reject(postproc.name, refused.reason)
                return postproc
        return None

    def _take_back(self, candidate: MeasureCandidate) -> None:
        """Forget that a candidate was made: it may be made again."""
        self.times.pop(self._issued.pop(candidate), None)
        self.trials_left += 1
        self._programs.discard(structural_hash(candidate.sch.mod))

    def _reject(self, reason: str, message: str) -> None:
        self.context.rejected[reason] += 1
        logger.info("task %s: rejected by %s: %s", self.context.task_name, reason, message)


def candidate_of(evaluation: Evaluation, index: int) -> Evaluation:
    """Return one candidate of an evaluated population."""
    at = slice(index, index + 1)
    return Evaluation(
        evaluation.features[at], evaluation.cycles[at], evaluation.valid[at], evaluation.code[at]
    )


SearchStrategy.SearchStrategyType = (
    SearchStrategy | Literal["replay-func", "replay-trace", "evolutionary"]
)

PySearchStrategy = SearchStrategy
"""The name under which TVM's users derive from it."""

SEARCH_STRATEGIES: Registry[Callable[[], SearchStrategy]] = Registry("search strategy", TuneError)
"""Search strategies by name."""
