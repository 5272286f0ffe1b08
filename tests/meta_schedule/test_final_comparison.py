"""The end of a tuning run: the rules' schedule and the best candidates are measured in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuning_cases import TARGET, FakeRunner, Listed, contexts, tune

from tilewright.meta_schedule.measure_callback import MeasureCallback
from tilewright.meta_schedule.task_scheduler import RoundRobin
from tilewright.meta_schedule.task_scheduler.final_ranking import gain


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


def test_the_batch_goes_to_whoever_is_ahead() -> None:
    def batch(rule: float, found: float) -> int:
        """How many of eight candidates are the search's."""
        strategy = Listed()
        (context,) = contexts(strategy, rules=True)
        context.search_strategy._initialize_with_tune_context(context)
        context.search_strategy.pre_tuning(8, 8, [])
        assert context.rule_choices is not None
        context.rule_choices.candidates(1)
        context.rule_choices.seconds[frozenset()] = rule
        strategy.times = {(0, bytes([number])): found for number in range(4)}
        context.generate_measure_candidates(8)
        return 100 - strategy.size

    assert batch(1e-3, 5e-3) == 0  # far behind
    assert batch(5e-3, 1e-3) >= 6
    assert batch(1e-3, 1.5e-3) >= 2


def test_a_gain_shows_in_most_rounds_and_in_the_shortest() -> None:
    assert gain([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]) == 2.0
    # Disturbed in two of three rounds; once it took as long as the other.
    assert gain([4.0, 1.0, 4.0], [1.0, 1.0, 1.0]) == 1.0
    # One lucky round.
    assert gain([1.0, 1.0, 1.0], [1.0, 1.0, 0.5]) == 1.0
