"""The tuning of a model that ends early goes on, whatever it was doing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.everyday import few
from tests.relax.helpers import graph_of, random
from tilewright import relax
from tilewright.ir import IRModule
from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.runner import Runner, RunnerInput, RunnerResult
from tilewright.meta_schedule.search_strategy import EvolutionarySearch
from tilewright.relax import op
from tilewright.relax.tuning import models as tuning
from tilewright.relax.tuning.models import tune_relax
from tilewright.runtime import Module
from tilewright.target import Target

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")
TRIALS = 16


class Named(Builder):
    def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [BuilderResult(module=Module.__new__(Module)) for _ in inputs]


class Killed(BaseException):
    pass


class Fake(Runner):
    """Ends the run in a comparison, or after so many trials."""

    def __init__(self, after: int | None = None, races: int | None = None) -> None:
        self.after, self.races, self.done = after, races, 0

    def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        for _ in inputs:
            if self.done == self.after:
                raise Killed
            self.done += 1
            yield RunnerResult((1e-3 * (1 + self.done * 7919 % 101),))

    def race(self, inputs: Sequence[RunnerInput], rounds: int) -> list[RunnerResult]:
        if self.races == 0:
            raise Killed
        self.races = None if self.races is None else self.races - 1
        return [RunnerResult((1e-3,) * rounds) for _ in inputs]


def graph() -> IRModule:
    """Two convolutions, each with four functions to be measured."""

    def body(x: Any) -> Any:
        for filters, seed in ((32, 1), (48, 2)):
            weight = relax.const(random(filters, 32, 1, 1, seed=seed))
            x = op.nn.softmax(op.nn.conv2d(op.nn.softmax(x, 1), weight), 1)
            if filters == 32:
                x = op.nn.relu(x)
        return x

    return graph_of(body, random(1, 32, 10, 9))


def tune(folder: Path, runner: Fake, **options: Any) -> int:
    """Return how many trials of searches were measured."""
    search = EvolutionarySearch(population_size=16, genetic_num_iters=1)
    with suppress(Killed):
        tune_relax(
            graph(), None, TARGET, folder, TRIALS, builder=Named(), runner=runner, strategy=search,
            op_names=["conv2d"], alternatives=0.5, post_optimization=True, num_trials_per_iter=8,
            cost_model="analytic", **options,
        )  # fmt: skip
    return runner.done


def rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    text = (folder / "logs" / "runs.jsonl").read_text()
    return [row for row in map(json.loads, text.splitlines()) if row["kind"] == kind]


@few("how", [{"races": 1}, {"after": 8}], {"after": 8}, ids=str)
def test_a_model_that_ended_early_has_its_trials_left(how: dict[str, int], tmp_path: Path) -> None:
    """Killed while ways of convolutions are compared, and around the best."""
    first = tune(tmp_path, Fake(**how), race=False)
    second = tune(tmp_path, Fake(), race=False)
    spent = sum(row["trials"] for row in rows(tmp_path, "alternatives"))
    assert 0 < spent <= TRIALS // 2 and first + second + spent == TRIALS
    assert [row["finished"] for row in rows(tmp_path, "end")] == [False, True]


@pytest.mark.slow
def test_a_model_that_ended_in_the_last_comparison_is_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(tuning, "_race_graphs", killed)
    assert tune(tmp_path, Fake()) > 0
    monkeypatch.setattr(tuning, "_race_graphs", lambda *_: None)
    assert tune(tmp_path, Fake()) == 0


def test_the_seconds_of_all_parts_are_spent(tmp_path: Path) -> None:
    """Once no time is left, what is known is done again, and nothing more."""
    first = tune(tmp_path, Fake(after=3), race=False)
    log = tmp_path / "logs" / "runs.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[0]["spent"] += 100
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert first == 3 and tune(tmp_path, Fake(), race=False, time_budget=50.0) <= 1
