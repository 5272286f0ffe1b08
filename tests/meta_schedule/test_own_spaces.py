"""A space of one's own is all that is measured, unless what the rules make is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tuning_cases import FakeBuilder, FakeRunner

from tilewright.ir import IRModule
from tilewright.meta_schedule import TuneContext, tune_tasks, tune_tir
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.measure_callback import MeasureCallback
from tilewright.meta_schedule.passes import MetaScheduleTuneIRMod
from tilewright.meta_schedule.space_generator import (
    PostOrderApply,
    ScheduleFn,
    SpaceGenerator,
    SpaceGeneratorUnion,
)
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.relax.tuning.models import tune_relax
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=1")


@T.prim_func
def doubled(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("B"):
            vi = T.axis.spatial(64, i)
            B[vi] = A[vi] * T.float32(2)


def halves(sch: Schedule) -> None:
    (loop,) = sch.get_loops(sch.get_block("B"))
    sch.split(loop, sch.sample_perfect_tile(loop, 2, 64))


class Halves(SpaceGenerator):
    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        sch = Schedule(mod)
        halves(sch)
        return [sch]


class Same(PostOrderApply):
    """A class of one's own says what is in its space, however it does that."""


class Origins(MeasureCallback):
    """Collects who made what is measured."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_result(self, scheduler: Any, task: Any, trial: Any) -> None:
        self.seen.append(trial.candidate.made_by.split(",")[0])


def options(callback: Origins, **others: Any) -> dict[str, Any]:
    scheduler = TaskScheduler.create("round-robin")
    scheduler.final_rounds = 0
    return {
        "builder": FakeBuilder(),
        "runner": FakeRunner(),
        "cost_model": "random",
        "task_scheduler": scheduler,
        "measure_callbacks": [callback],
        "num_trials_per_iter": 4,
    } | others


def by_function(callback: Origins, space: Any, **others: Any) -> Database:
    return tune_tir(doubled, TARGET, None, 4, space=space, **options(callback, **others))


def by_special_space(callback: Origins, space: Any, **others: Any) -> Database:
    special = {"main": space}
    return tune_tir(doubled, TARGET, None, 4, special_space=special, **options(callback, **others))


def by_task(callback: Origins, space: Any, **others: Any) -> Database:
    context = TuneContext(doubled, target=TARGET, space_generator=space)
    return tune_tasks([context], [1.0], max_trials_global=4, **options(callback, **others))


def by_model(callback: Origins, space: Any, **others: Any) -> Database:
    @I.ir_module
    class Model:
        @T.prim_func
        def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            for i in range(64):
                with T.block("B"):
                    vi = T.axis.spatial(64, i)
                    B[vi] = A[vi] * T.float32(2)

        @R.function
        def forward(x: R.Tensor((64,), "float32")):
            with R.dataflow():
                y = R.call_tir(Model.main, (x,), R.Tensor((64,), "float32"))
                R.output(y)
            return y

    chosen = options(callback, space=space, race=False, **others)
    return tune_relax(Model, None, TARGET, None, 4, **chosen)


Way = Callable[..., Database]
WAYS = [by_function, by_special_space, by_task, by_model]
OWN: dict[str, Callable[[], Any]] = {
    "a function": lambda: halves,
    "ScheduleFn": lambda: ScheduleFn(halves, [], [], {}),
    "a class": Halves,
    "a subclass": Same,
    "rules that are listed": lambda: PostOrderApply(sch_rules=["parallelize-vectorize-unroll"]),
    "a union": lambda: SpaceGeneratorUnion(["post-order-apply", halves]),
}
OURS: dict[str, Callable[[], Any]] = {
    "a name": lambda: "post-order-apply",
    "the class of a name": PostOrderApply,
    "postprocs": lambda: PostOrderApply(sch_rules="llvm", postprocs=[]),
    "a union": lambda: SpaceGeneratorUnion(["post-order-apply", PostOrderApply()]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("space", OWN)
def test_only_a_space_of_ones_own_is_measured(way: Way, space: str) -> None:
    callback = Origins()
    way(callback, OWN[space]())
    assert callback.seen and set(callback.seen) == {"search"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("space", OURS)
def test_of_a_space_by_name_the_rules_come_first(way: Way, space: str) -> None:
    callback = Origins()
    way(callback, OURS[space]())
    assert callback.seen[0] == "rule"


@pytest.mark.parametrize("way", WAYS)
def test_rules_are_asked_for_or_not(way: Way) -> None:
    asked, refused = Origins(), Origins()
    way(asked, halves, start_from_rules=True)
    assert asked.seen[0] == "rule"
    way(refused, "post-order-apply", start_from_rules=False)
    assert refused.seen and set(refused.seen) == {"search"}


def test_a_pass_that_tunes_takes_the_option() -> None:
    callback = Origins()
    chosen = options(callback, start_from_rules=False, database="memory")
    MetaScheduleTuneIRMod({}, None, 4, target=TARGET, **chosen)(IRModule({"main": doubled}))
    assert callback.seen and set(callback.seen) == {"search"}


def test_clones_and_later_runs_keep_what_was_chosen(tmp_path: Path) -> None:
    context = TuneContext(doubled, target=TARGET, space_generator=halves)
    assert not context.start_from_rules and not context.clone().start_from_rules
    context.choose_rules(True)
    assert context.clone().rule_choices is not None
    for rules, first in ((False, "search"), (True, "rule"), (None, "search")):
        callback = Origins()
        tune_tir(
            doubled, TARGET, tmp_path / str(rules), 4, space=halves,
            **options(callback, start_from_rules=rules, post_optimization=True),
        )  # fmt: skip
        assert callback.seen[0] == first


def test_a_space_of_several_sources_says_so_before_and_after_it_is_used() -> None:
    union = SpaceGeneratorUnion(["post-order-apply", "post-order-apply"])
    assert not union.is_users_own
    union.initialize(TARGET)
    assert not union.is_users_own
    mixed = SpaceGeneratorUnion(["post-order-apply", halves])
    assert mixed.is_users_own
    mixed.initialize(TARGET)
    assert mixed.is_users_own
