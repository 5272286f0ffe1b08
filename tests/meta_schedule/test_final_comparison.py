"""The end of a tuning run: the rules' schedule and the best candidates are measured in turn."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console
from tuning_cases import TARGET, FakeRunner, Listed, contexts, tune

from tilewright.meta_schedule.measure_callback import MeasureCallback
from tilewright.meta_schedule.progress import task_table
from tilewright.meta_schedule.task_scheduler import RoundRobin
from tilewright.meta_schedule.task_scheduler.final_ranking import gain
from tilewright.support.errors import TuneError


def test_tuning_starts_from_the_rules_and_never_ends_below_them() -> None:
    (context,) = contexts(Listed(2), rules=True)
    scheduler = RoundRobin()
    seen: list[str] = []

    class Watch(MeasureCallback):
        def on_result(self, scheduler, task, trial) -> None:  # type: ignore[no-untyped-def]
            seen.append(str(trial.candidate.sch.trace))

    tune(scheduler, [context], 10, callbacks=[Watch()])
    assert scheduler.tasks[0].trials == 3
    rule = context.rule_schedule()
    assert rule is not None and seen[0] == str(rule.trace)


def finals(seconds: Sequence[float], again: Sequence[float], **options: Any) -> Any:
    """Tune a task with so many candidates; then what the last comparison measures."""
    rules = options.pop("rules", 0)
    (context,) = contexts(Listed(len(seconds) - rules), rules=bool(rules))
    scheduler = RoundRobin()
    runner = FakeRunner(*seconds, *again)
    database = tune(scheduler, [context], len(seconds), runner=runner, final_rounds=2, **options)
    (task,) = scheduler.tasks
    assert task.trials == len(seconds)
    return context, task, database


def test_the_best_are_compared_in_turn_and_the_winner_is_used() -> None:
    # By order of the first times: 1, 2, 3 ms. Then the second one turns out to be the fastest.
    context, task, database = finals([3e-3, 1e-3, 2e-3], [2e-3, 1e-3, 3e-3, 2e-3, 1.2e-3, 3e-3])
    records = database.get_all_tuning_records()
    assert [record.run_secs for record in records] == [
        *((3e-3,), (1e-3,), (2e-3,)),
        (1e-3, 1.2e-3),
    ]
    best = database.query_tuning_record(context.mod, TARGET)
    assert best is records[-1] and not records[0].beat
    assert set(best.beat) == {records[0].digest, records[1].digest}
    assert best.trace.as_json() == records[2].trace.as_json()
    assert task.best_seconds == 1e-3


def test_a_candidate_must_clearly_beat_the_rules() -> None:
    for times, wins in ((1.01, False), (1.04, True)):
        slow, fast = 1e-3 * times, 1e-3
        # The rule's schedule comes first, in the comparison as well.
        context, _, database = finals([2e-3, 1e-3], [slow, fast, slow, fast], rules=1)
        rule = context.rule_schedule()
        assert rule is not None
        best = database.query_tuning_record(context.mod, TARGET)
        assert len(best.beat) == 1
        assert (best.trace.as_json() != rule.trace.simplified().as_json()) == wins


def test_the_comparison_holds_what_the_rules_make_and_what_was_known() -> None:
    first, _, database = finals([2e-3, 1e-3], [1e-3, 2e-3, 1e-3, 2e-3])
    known = database.query_tuning_record(first.mod, TARGET)
    # Another run measures the rules' schedule and one candidate, not the one that is known.
    (context,) = contexts(Listed(), rules=True)
    runner, scheduler = FakeRunner(3e-3, 3e-3, 2e-3, 2e-3, 1e-3), RoundRobin()
    tune(scheduler, [context], 2, runner=runner, database=database, final_rounds=1)
    assert scheduler.tasks[0].trials == 2 and len(runner.known) == 2 + 3
    best = database.query_tuning_record(first.mod, TARGET)
    last = database.get_all_tuning_records()[-1]
    assert last is not known and last.digest == known.digest == best.digest


def test_nothing_is_decided_if_the_best_do_not_run_again() -> None:
    context, _, database = finals([2e-3, 1e-3], ["crash"])
    best = database.query_tuning_record(context.mod, TARGET)
    assert best.run_secs == (1e-3,) and not best.beat


def of_the_search(
    rule: float,
    found: float,
    *,
    count: int = 8,
    choices: int = 0,
    max_lag: float = math.inf,
    tried: int = 4,
) -> int:
    """How many of some candidates are the search's, if the rules have so many choices."""
    strategy = Listed()
    (context,) = contexts(strategy, rules=True)
    context.max_lag = max_lag
    context.search_strategy._initialize_with_tune_context(context)
    context.search_strategy.pre_tuning(8, 8, [])
    rules = context.rule_choices
    assert rules is not None
    made = rules.candidates(1)
    rules.each_candidate = lambda count: iter(made * min(count, choices))  # type: ignore[method-assign]
    rules.seconds[frozenset()] = rule
    strategy.times = {(0, bytes([number])): found for number in range(tried)}
    context.generate_measure_candidates(count)
    return 100 - strategy.size


def test_the_batch_goes_to_whoever_is_ahead() -> None:
    assert of_the_search(5e-3, 1e-3, choices=99) == 6
    assert of_the_search(1e-3, 1.5e-3, count=16, choices=99) == 4
    assert of_the_search(1e-3, 5e-3, count=16, choices=99) == 0  # far behind
    assert of_the_search(1e-3, 5e-3, count=16, choices=3) == 13  # what is left is for the search


@pytest.mark.parametrize("tried", [1, 2, 3])
def test_few_trials_tell_that_a_search_is_ahead_but_not_that_it_is_behind(tried: int) -> None:
    assert of_the_search(5e-3, 1e-3, choices=99, tried=tried) == 6
    assert of_the_search(1e-3, 9e-3, choices=99, tried=tried, max_lag=4.0) == 2
    assert of_the_search(5e-3, math.inf, choices=99, tried=tried, max_lag=4.0) == 2


def test_a_single_candidate_is_compared_with_nothing() -> None:
    _, task, database = finals([2e-3], [])
    assert [record.run_secs for record in database.get_all_tuning_records()] == [(2e-3,)]
    assert task.best_seconds == 2e-3


def test_a_search_goes_on_however_far_behind_unless_it_is_limited() -> None:
    assert of_the_search(1e-3, 9e-3) == 8
    assert of_the_search(1e-3, 9e-3, max_lag=4.0) == 0
    assert of_the_search(1e-3, 3e-3, max_lag=4.0) == 8
    assert of_the_search(math.inf, 9e-3, max_lag=4.0) > 0  # nobody is ahead of it
    with pytest.raises(TuneError, match="max_lag is at least 1, got"):
        tune(RoundRobin(), contexts(Listed()), 4, max_lag=0.5)


@pytest.mark.parametrize(
    ("max_lag", "trials", "why"),
    [(math.inf, 12, ""), (2.0, 2, "the search is 5 times as slow as the rules")],
)
def test_a_task_says_why_it_has_ended(max_lag: float, trials: int, why: str) -> None:
    class Behind(Listed):
        def notify_runner_results(self, candidates: Any, results: Any) -> None:
            super().notify_runner_results(candidates, results)
            self.times = {(0, bytes([number])): 5e-3 for number in range(4)}

    scheduler, runner = RoundRobin(), FakeRunner(1e-3, *[5e-3] * 20)
    tune(
        scheduler, contexts(Behind(), rules=True), 12,
        runner=runner, max_lag=max_lag, num_trials_per_iter=8,
    )  # fmt: skip
    (task,) = scheduler.tasks
    assert task.trials == trials and task.ended == why
    shown = io.StringIO()
    Console(width=300, file=shown).print(task_table(scheduler.tasks))
    assert (f"ended: {why}" in shown.getvalue()) == bool(why)
    assert task.finished and task.state == (f"ended: {why}" if why else "ended")


def test_a_gain_shows_in_most_rounds_and_in_the_shortest() -> None:
    assert gain([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]) == 2.0
    # Disturbed in two of three rounds; once it took as long as the other.
    assert gain([4.0, 1.0, 4.0], [1.0, 1.0, 1.0]) == 1.0
    # One lucky round.
    assert gain([1.0, 1.0, 1.0], [1.0, 1.0, 0.5]) == 1.0
