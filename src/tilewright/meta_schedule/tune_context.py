"""``TuneContext``: one task being tuned, with its search components."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from tilewright import dlight
from tilewright.ir import IRModule
from tilewright.meta_schedule.adapted import Near, adapted_from, nearest_records
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.search_strategy import RuleChoices, SearchStrategy
from tilewright.meta_schedule.space_generator import SpaceGenerator
from tilewright.meta_schedule.task import Task
from tilewright.support.errors import TuneError
from tilewright.support.registry import near_matches
from tilewright.target import Target
from tilewright.target.host import core_count, physical_core_count
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import CONSTANT_BYTES, LAYOUT_FREE
from tilewright.tir.schedule import Schedule

_logger = logging.getLogger("tilewright.meta_schedule")

Space = SpaceGenerator | str | Callable[[Schedule], object]

FIRST_BATCH = 4
"""Fewer trials than this tell little about a task."""
# How much of its first batch a task spends on what rules could make; and by how many times the best
# of these may be faster than what the search has found before these come first.
_FIRST_SHARE, _FAR_BEHIND = 0.85, 2.0
# Schedules from records of similar programs that a task starts from.
_SEEDS = 3

CORES: dict[object, Callable[[], int]] = {"physical": physical_core_count, "logical": core_count}
"""How many cores of this machine a word means."""


def number_of_cores(said: int | str) -> int:
    """Return a number of threads or processes; ``TuneError`` if it is neither one nor a word."""
    cores = CORES[said]() if said in CORES else said
    if not isinstance(cores, int) or cores < 1:
        raise TuneError(f"a number of cores is positive, 'physical' or 'logical', not {said!r}")
    return cores


def drawn_seed(seed: int | None) -> int:
    """Return a seed; ``None`` and -1, as in TVM, draw one. ``TuneError`` for what is none."""
    if seed is None or (seed == -1 and type(seed) is int):
        return secrets.randbits(31)
    if type(seed) is not int or seed < 0:
        raise TuneError(f"a seed is a whole number, not negative, or None, got {seed!r}")
    return seed


class TuneContext(Task):
    """A task: a module of one function, a target, a design space and a way to search it.

    ``space_generator`` and ``search_strategy`` are instances or names, by default
    ``"post-order-apply"`` and ``"evolutionary"``. The same ``rand_state`` gives the same
    candidates, as long as measured times rank them alike; ``None`` or -1 draws one. A search may
    use ``num_threads`` (``"physical"`` and ``"logical"`` are the machine's cores); those here take
    one, for arrays.
    ``logger`` gets what the context has to say. ``start_from_rules`` measures the rule-based
    schedule first, and its neighbours; by default (``None``) it doesn't if the space is of one's
    own: a function, a generator of a class of one's own, or of rules that one lists.
    ``constant_bytes`` are those of the graph that calls the function, if it reads any of them:
    rules schedule it as they would there.

    To tune without a task scheduler: ``pre_tuning``; by turns ``generate_measure_candidates``,
    until that is ``None``, and ``notify_runner_results``; at last ``post_tuning``.
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc | None = None,
        *,
        target: Target | str | None = None,
        space_generator: Space | None = None,
        search_strategy: SearchStrategy | str | None = None,
        task_name: str = "main",
        rand_state: int | None = 0,
        num_threads: int | str = "physical",
        logger: logging.Logger | None = None,
        start_from_rules: bool | None = None,
        symbols: Mapping[str, int] | None = None,
        constant_bytes: int = 0,
    ) -> None:
        target = target or Target.current()
        if mod is None or target is None:
            raise TuneError("TuneContext needs a module and a target (or a current one)")
        super().__init__(
            mod,
            target=target,
            space_generator="post-order-apply" if space_generator is None else space_generator,
            task_name=task_name,
            rand_state=drawn_seed(rand_state),
            symbols=symbols,
        )
        self.num_threads = number_of_cores(num_threads)
        self.logger = logger or _logger
        self.search_strategy = SearchStrategy.create(search_strategy or "evolutionary")
        self.space_generator._initialize_with_tune_context(self)
        self.symbols = symbols
        self.constant_bytes = constant_bytes
        self.num_trials_per_iter = 0
        self.trials_left: float = math.inf
        """How many candidates ``generate_measure_candidates`` may still return."""
        self.max_lag = math.inf
        """How many times as slow as what the rules make a search's best may be for it to go on."""
        self._similar: list[Near] | None = None
        if start_from_rules is None:
            own = space_generator is not None and not isinstance(space_generator, str)
            start_from_rules = not (own and self.space_generator.is_users_own)
        self.choose_rules(start_from_rules)

    def choose_rules(self, start_from_rules: bool) -> None:
        """Decide, before tuning, whether what the rules could make is measured, too."""
        self.start_from_rules = start_from_rules
        self.rule_choices: RuleChoices | None = None
        """What the rules could make of the task; ``None`` without ``start_from_rules``."""
        if start_from_rules and self.target.kind == "llvm":
            func: PrimFunc = self.mod["main"]
            if self.constant_bytes and func.attrs.get(LAYOUT_FREE):
                func = func.with_attr(CONSTANT_BYTES, self.constant_bytes)
            self.rule_choices = RuleChoices(
                func,
                self.args_info,
                dlight.kernels_and_rules(self.target),
                self.target,
                self.task_name,
            )
            self.rule_choices.rejected = self.rejected

    def generate_design_space(self) -> list[Schedule]:
        """Return the sketches: schedules whose sampling decisions are open."""
        by_rule = self.rule_schedule()
        if by_rule is not None:
            for postproc in self.space_generator.postprocs:
                postproc.learn_reference(by_rule.mod)
        return self.space_generator.generate_design_space(self.mod)

    def rule_schedule(self) -> Schedule | None:
        """Return the rules' schedule of the task, if a rule applies."""
        return None if self.rule_choices is None else self.rule_choices.schedule(frozenset())

    # ---- the life of a task ------------------------------------------------------------------

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int = 64,
        design_spaces: Sequence[Schedule] | None = None,
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Start: make the design space (unless it is given), and learn the database's records.

        Raises ``TuneError`` if there is no design space, or the numbers of trials make no sense.
        """
        spaces = self.generate_design_space() if design_spaces is None else design_spaces
        if not spaces:
            raise TuneError("the space generator gave no design space")
        self.num_trials_per_iter, self.trials_left = num_trials_per_iter, max_trials
        self.search_strategy._initialize_with_tune_context(self)
        self.search_strategy.pre_tuning(
            max_trials, num_trials_per_iter, spaces, database, cost_model
        )
        if self.rule_choices is not None and database is not None:
            self.rule_choices.warm_start(database, self.mod)
            self.find_similar(database)

    def generate_measure_candidates(
        self, count: int | None = None
    ) -> list[MeasureCandidate] | None:
        """Return up to ``count`` candidates (default: ``num_trials_per_iter``).

        ``None`` is the end: there were ``max_trials``, or nothing is left to be tried.

        The very first candidate of a task is the rules' schedule, so tuning starts from untuned
        code; schedules of similar programs follow. A batch is divided between the rules' other
        choices and the search: whichever has the faster candidate so far gets more, and a search
        that is far behind gets what the rules have no choices for; beyond ``max_lag`` nothing.
        """
        count = self.num_trials_per_iter if count is None else count
        count = int(min(count, self.trials_left))
        made = list(self.each_measure_candidate(count)) if count > 0 else []
        self.trials_left -= len(made)
        return made or None

    def each_measure_candidate(self, count: int | None = None) -> Iterator[MeasureCandidate]:
        """Yield the same, each as soon as it is made."""
        count = self.num_trials_per_iter if count is None else count
        rules, search = self.rule_choices, self.search_strategy
        if rules is None:
            yield from search.each_measure_candidate(count)
            return
        made = 0

        def counted(found: Iterable[MeasureCandidate]) -> Iterator[MeasureCandidate]:
            nonlocal made
            for candidate in found:
                made += 1
                yield candidate

        if not rules.seconds:
            yield from counted(rules.each_candidate(1))
            yield from counted(self._from_others((count - made) // 2))
            if count <= FIRST_BATCH:
                yield from counted(rules.each_candidate(count - made))
                if made:
                    return  # a search is worth its time for more of them
            yield from counted(rules.each_candidate(max(1, round(_FIRST_SHARE * count)) - made))
            rest = count - made
            rest = min(rest, max(1, round((1 - _FIRST_SHARE) * count))) if made else rest
            if rest:
                yield from search.each_measure_candidate(rest)
            return
        lag = self.search_lag
        if self.search_is_given_up or lag > _FAR_BEHIND:
            yield from counted(rules.each_candidate(count))
            if made < count and not self.search_is_given_up:
                yield from search.each_measure_candidate(count - made)
            return
        ahead = lag >= 1.0
        share = max(1, round(count * (0.75 if ahead else 0.25)))
        yield from counted(rules.each_candidate(share))
        by_rule = made
        if made < count:
            yield from counted(search.each_measure_candidate(count - made))
        if by_rule:
            yield from rules.each_candidate(count - made)

    @property
    def search_lag(self) -> float:
        """How many times as slow as what the rules make the search's best is.

        That is 1.0 while too little is known of either; it takes one to be faster, and several to
        be slower.
        """
        if self.rule_choices is None:
            return 1.0
        tried, by_rule = self.search_strategy.times.values(), self.rule_choices.best_seconds
        if not tried or not math.isfinite(by_rule):
            return 1.0
        lag = min(tried) / by_rule  # those that failed have infinity
        return lag if len(tried) >= FIRST_BATCH else min(1.0, lag)

    @property
    def search_is_given_up(self) -> bool:
        """Whether the search is too far behind what the rules make to go on."""
        return self.search_lag > self.max_lag

    def find_similar(self, database: Database) -> None:
        """Look for records of similar programs, once.

        A task scheduler does that for all tasks at first: what a run adds to the database must not
        change what it does.
        """
        if self._similar is None and self.rule_choices is not None:
            self._similar = nearest_records(database, self.mod, self.target)

    def _from_others(self, count: int) -> list[MeasureCandidate]:
        """Return schedules from records of similar programs."""
        found = adapted_from(self._similar or (), self.mod, self.target, min(count, _SEEDS))
        return [
            MeasureCandidate(item.schedule, self.args_info, origin=f"adapted {item.why}")
            for item in found
            if self.rule_choices is None or self.rule_choices.claim(item.schedule)
        ]

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Learn the results of measured candidates."""
        self.search_strategy.notify_runner_results(measure_candidates, results)
        if self.rule_choices is not None:
            self.rule_choices.notify(measure_candidates, results)

    def post_tuning(self) -> None:
        """End: release what only the search needs."""
        self.trials_left = 0
        self.search_strategy.post_tuning()

    def clone(self) -> TuneContext:
        """Return a context of the same task that shares no state of the search with this one."""
        return TuneContext(
            self.mod,
            target=self.target,
            space_generator=self.space_generator.clone(),
            search_strategy=self.search_strategy.clone(),
            task_name=self.task_name,
            rand_state=self.rand_state,
            num_threads=self.num_threads,
            logger=self.logger,
            start_from_rules=self.start_from_rules,
            symbols=self.symbols,
            constant_bytes=self.constant_bytes,
        )

    def __repr__(self) -> str:
        return f"TuneContext({self.task_name}, {self.target.kind})"


def own_space(
    name: str, space: Space, special: Mapping[str, Space] | None, names: Collection[str]
) -> Space:
    """Return the space of one of several tasks: its ``special`` one, or a copy of the common one.

    Raises ``TuneError`` if a special space is for none of the tasks' ``names``.
    """
    if special is not None and not isinstance(special, Mapping):
        raise TuneError(
            f"special_space is a dict of spaces by the names of tasks, got {type(special).__name__}"
        )
    for key in special or ():
        if key not in names:
            raise TuneError(f"special_space: no task {key!r}; {near_matches(key, list(names))}")
    chosen = (special or {}).get(name, space)
    return chosen.clone() if isinstance(chosen, SpaceGenerator) else chosen


def own_strategy(strategy: SearchStrategy | str) -> SearchStrategy | str:
    """Return the strategy of one of several tasks: a copy of an instance."""
    return strategy.clone() if isinstance(strategy, SearchStrategy) else strategy
