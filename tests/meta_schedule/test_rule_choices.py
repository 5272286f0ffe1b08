"""Searching around what rules make: neighbours first, then those of the fastest."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.dlight import Choices, NotApplicable, ScheduleRule
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.search_strategy import RuleChoices
from tilewright.scheduling import others_after
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=1")
Tile = tuple[int, int]


def program() -> PrimFunc:
    a = te.placeholder((64, 64), name="A")
    return te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="B")])


class Tiles(ScheduleRule):
    """Two choices; 32 x 32 is one that it refuses."""

    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        rows = sch.choices.choose("B.rows", (4, 8, 16, 32))
        columns = sch.choices.choose("B.columns", (16, 32))
        if (rows, columns) == (32, 32):
            return NotApplicable("too large")
        i, j = sch.get_loops("B")
        sch.split(i, [None, rows])
        sch.split(j, [None, columns])
        return sch


class Never(ScheduleRule):
    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        sch.choices.choose("never.asked", (1, 2, 3))
        return NotApplicable("never")


class Plain(ScheduleRule):
    def apply_to(self, sch: Schedule, target: Target) -> Schedule | NotApplicable:
        sch.vectorize(sch.get_loops("B")[1])
        return sch


def search(*rules: ScheduleRule) -> RuleChoices:
    func = program()
    return RuleChoices(func, arg_infos(func), rules, TARGET)


def tile(candidate: MeasureCandidate) -> Tile | None:
    splits = [inst for inst in candidate.sch.trace.insts if inst.name == "split"]
    if not splits:
        return None
    rows, columns = (inst.args[1][1] for inst in splits)
    return rows, columns


def tell(rules: RuleChoices, candidates: list[MeasureCandidate], *seconds: float | None) -> None:
    results = [RunnerResult(None if s is None else (s,)) for s in seconds]
    rules.notify(candidates, results)


def test_choices_are_the_first_option_unless_a_search_wants_another() -> None:
    options = ("a", "b", "c")
    own = Schedule(program()).choices
    assert own.choose("key", options) == "a" and not own.is_search
    assert own.preferring("key", options) == ["a", "b", "c"] and own.counts == {}
    choices = Choices({"key": 2, "far": 9})
    assert choices.is_search and Choices({}).is_search
    assert choices.choose("key", options) == "c" and choices.choose("other", options) == "a"
    assert choices.choose("far", options) == "c"  # the last one that there is
    assert choices.preferring("key", options) == ["c", "a", "b"]
    assert choices.choose("alone", ("x",)) == "x"
    assert choices.counts == {"key": 3, "other": 3, "far": 3}
    assert others_after(2, (4, 2, 1)) == [2, 4, 1]


def test_copies_of_a_schedule_share_its_choices_and_keep_them() -> None:
    sch, other = Schedule(program()), Schedule(program())
    sch.choices = Choices({"key": 1}, function="f")
    assert sch.copy().choices is sch.choices
    sch.become(other)
    assert sch.choices.function == "f" and sch.mod is other.mod


def test_the_rules_own_choice_comes_first_then_its_neighbours() -> None:
    rules = search(Never(), Tiles(), Plain())
    made = rules.candidates(5)
    assert [item.by_rule for item in made] == [True, False, False, False, False]
    assert [tile(item) for item in made] == [(4, 16), (8, 16), (4, 32), None, (16, 16)]


def test_neighbours_of_the_fastest_follow() -> None:
    rules = search(Tiles(), Plain())
    first = rules.candidates(4)
    tell(rules, first, 3e-3, 2e-3, 1e-3, None)
    assert rules.best_seconds == 1e-3
    # Around 4 x 32, which was fastest; 4 x 16 is known, and another rule has no such choices.
    assert [tile(item) for item in rules.candidates(2)] == [(8, 32), (16, 32)]


def test_everything_is_tried_once_and_what_the_rule_refuses_is_counted() -> None:
    rules = search(Tiles(), Plain())
    seen = []
    while made := rules.candidates(3):
        tell(rules, made, *(1e-3 for _ in made))
        seen += [tile(item) for item in made]
    assert len(seen) == len(set(seen)) == 8  # 4 x 2 without one, and the other rule
    assert rules.rejected == {"rule": 1}


def test_a_function_that_no_rule_likes_has_no_candidates() -> None:
    rules = search(Never())
    assert rules.candidates(4) == [] and rules.schedule(frozenset()) is None
    assert rules.best_seconds == math.inf and not rules.rejected
