"""A farm's scheduling, without a cluster: who works on what, and what becomes of the lost."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tests.everyday import few
from tests.relax.helpers import graph, random
from tests.relax.helpers import tensor as sized
from tilewright import relax
from tilewright.meta_schedule import farm
from tilewright.meta_schedule.database import MemoryDatabase
from tilewright.meta_schedule.farm import DeviceRunner, cluster, workers
from tilewright.meta_schedule.farm.builder import in_shares
from tilewright.meta_schedule.farm.dispatcher import Crew, Done, Event, GivenUp, Joined, Lost
from tilewright.meta_schedule.farm.workers import (
    About,
    DeviceWorker,
    Measurement,
    NoReference,
    share_of_cores,
    take_slot,
)
from tilewright.meta_schedule.runner import (
    TUNING,
    EvaluatorConfig,
    LocalRunner,
    NoReferenceError,
    Reference,
    RunnerInput,
    RunnerResult,
)
from tilewright.relax import op
from tilewright.relax.tuning.models import tune_relax
from tilewright.runtime import Module
from tilewright.runtime.module import ModuleCode
from tilewright.support.errors import MissingExtraError, TuneError
from tilewright.target import Target


@dataclass
class FakeHands:
    """Workers of a list of events to come: answers take a second, unless a worker is doomed.

    ``doomed`` are how many jobs a worker does before it is lost with the next one, ``hanging``
    never answer, and ``spare`` workers come in place of lost ones. A ``deadly`` message ends
    whoever gets it.
    """

    places: dict[str, str]
    doomed: dict[str, int] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    spare: list[tuple[str, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    about: Any = None
    work: Any = None
    deadly: Any = None
    time: float = 0.0
    busy: dict[str, tuple[float, object]] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    sent: list[tuple[str, object]] = field(default_factory=list)
    discarded: list[tuple[str, bool]] = field(default_factory=list)
    joining: list[Event] = field(default_factory=list)
    closed: int = 0

    def __post_init__(self) -> None:
        for worker, place in self.places.items():
            self.joining.append(Joined(worker, place, self.description(worker)))

    def description(self, worker: str) -> object:
        return self.about(worker) if self.about else None

    def now(self) -> float:
        return self.time

    def start(self, worker: str, message: object) -> None:
        assert worker not in self.busy, "two jobs at a time"
        self.sent.append((worker, message))
        took = math.inf if worker in self.hanging else self.seconds.get(worker, 1.0)
        self.busy[worker] = self.time + took, message

    def wait(self, seconds: float) -> list[Event]:
        if self.joining:
            events, self.joining = self.joining, []
            return events
        first = min(self.busy, key=lambda name: self.busy[name][0], default=None)
        if first is None or self.busy[first][0] > self.time + seconds:
            self.time += seconds
            return []
        self.time, message = self.busy.pop(first)
        if self.done[first] == self.doomed.get(first) or (self.deadly and self.deadly(message)):
            self.replace()
            return [Lost(first, f"{first} died")]
        self.done[first] += 1
        return [Done(first, self.work(first, message) if self.work else message)]

    def discard(self, worker: str, *, replace: bool) -> None:
        self.discarded.append((worker, replace))
        self.busy.pop(worker, None)
        if replace:
            self.replace()

    def replace(self) -> None:
        if self.spare:
            worker, place = self.spare.pop(0)
            self.joining.append(Joined(worker, place, self.description(worker)))

    def close(self) -> None:
        self.closed += 1


def run(hands: FakeHands, count: int, limit: float = 100.0, **options: Any) -> list[object]:
    crew: Crew[Any] = Crew(hands, "worker", patience=5.0, **options)
    messages = [lambda worker, number=n: number for n in range(count)]
    return list(crew.run(messages, lambda number: limit))


def test_results_come_in_order_from_workers_of_different_speed() -> None:
    hands = FakeHands({"a": "", "b": "", "c": ""}, seconds={"a": 7.0, "b": 1.0, "c": 2.5})
    assert run(hands, 12) == list(range(12))
    assert hands.done["b"] > hands.done["c"] > hands.done["a"]


def test_more_workers_take_less_time() -> None:
    times = []
    for count in (1, 2, 4):
        hands = FakeHands({str(n): "" for n in range(count)})
        run(hands, 16)
        times.append(hands.time)
    assert times == [16.0, 8.0, 4.0]


def test_a_job_whose_worker_is_lost_is_done_elsewhere() -> None:
    hands = FakeHands({"a": "x", "b": "y"}, doomed={"a": 2})
    assert run(hands, 8) == list(range(8))
    (lost,) = [message for worker, message in hands.sent if worker == "a"][2:]
    assert [worker for worker, message in hands.sent if message == lost] == ["a", "b"]


def test_the_machine_that_lost_a_job_is_the_last_to_get_it_again() -> None:
    hands = FakeHands({"a": "x", "b": "y"}, doomed={"a": 0}, spare=[("a2", "x")])
    hands.seconds["b"] = 9.0  # busy when a2 comes
    assert run(hands, 4) == list(range(4))
    assert ("b", 0) in hands.sent and ("a2", 0) not in hands.sent


def test_with_one_machine_a_job_gets_its_second_chance_there() -> None:
    hands = FakeHands({"a": "x"}, doomed={"a": 0}, spare=[("a2", "x")])
    assert run(hands, 3) == list(range(3))


def test_what_two_workers_are_lost_with_is_given_up() -> None:
    spare = [("c", "x"), ("d", "y")]
    hands = FakeHands({"a": "x", "b": "y"}, spare=spare, deadly=lambda message: message == 2)
    found = run(hands, 5)
    assert found[:2] == [0, 1] and found[3:] == [3, 4]
    assert isinstance(found[2], GivenUp)
    assert str(found[2]) == "2 workers were lost with it: a died; b died"


def test_a_worker_that_does_not_answer_is_ended() -> None:
    hands = FakeHands({"a": "x", "b": "y"}, hanging={"a"})
    assert run(hands, 4, limit=10.0) == list(range(4))
    assert hands.discarded == [("a", True)]


def test_workers_that_join_later_are_used() -> None:
    hands = FakeHands({"a": "x"}, doomed={"a": 1}, spare=[("b", "y")])
    assert run(hands, 4) == list(range(4))
    assert hands.done["b"] == 3


def test_without_workers_it_ends_with_the_reason() -> None:
    with pytest.raises(TuneError, match=r"no worker, and none came within 5 s$"):
        run(FakeHands({}), 1)
    with pytest.raises(TuneError, match="within 5 s; the last was lost: a died"):
        run(FakeHands({"a": ""}, doomed={"a": 1}), 4)


def test_workers_that_are_lost_whatever_they_do_end_it() -> None:
    spare = [(f"s{n}", "") for n in range(40)]
    hands = FakeHands({"a": ""}, doomed=dict.fromkeys(["a", *dict(spare)], 0), spare=spare)
    with pytest.raises(TuneError, match="each worker is lost again and again"):
        run(hands, 20)


def test_a_run_that_is_abandoned_leaves_no_stale_answers() -> None:
    hands = FakeHands({"a": "", "b": ""})
    crew: Crew[Any] = Crew(hands, "worker")
    first = crew.run([lambda worker, n=n: n for n in range(6)], lambda n: 100.0)
    assert next(first) == 0
    first.close()
    second = [lambda worker, n=n: 10 + n for n in range(4)]
    assert list(crew.run(second, lambda n: 100.0)) == [10, 11, 12, 13]


def test_a_worker_that_does_not_fit_is_not_used() -> None:
    hands = FakeHands({"a": "", "b": ""}, about=str)
    fits = lambda about: "wrong version" if about == "a" else None
    assert run(hands, 3, fits=fits) == [0, 1, 2]
    assert hands.done["a"] == 0 and hands.discarded == [("a", False)]


# Devices.

TEXT = "llvm -mcpu=znver4 -num-cores=2"
# Recorded seconds of candidates, whatever measures them.
SECONDS = [5.0, 3.0, 4.0, 1.5, 6.0, 1.0, 2.0, 7.0]


def module(name: str, text: str = TEXT) -> Module:
    """A module that is only sent around."""
    return Module(ModuleCode((), (), text, {"ll": "text"}, entry_name=name))


REFERENCE = Reference("task", module("main"), (), traits={})  # type: ignore[arg-type]  # unused
INPUTS = [RunnerInput(module=module(str(n)), reference=REFERENCE) for n in range(len(SECONDS))]


def device(worker: str) -> About:
    return About(worker, tilewright.__version__, 1, TEXT)


def measure(worker: str, message: Measurement) -> list[RunnerResult]:
    return [
        RunnerResult((SECONDS[int(item.module.entry_name)],) * max(1, message.rounds))
        for item in message.inputs
    ]


def devices(count: int, **options: Any) -> FakeHands:
    names = [f"d{n}" for n in range(count)]
    return FakeHands(dict(zip(names, names)), **{"about": device, "work": measure, **options})


def runner(hands: FakeHands) -> DeviceRunner:
    return DeviceRunner(hands, "device", timeout_sec=10.0, patience=5.0)


def test_several_devices_give_the_results_of_one() -> None:
    for count in (1, 2, 5):
        hands = devices(count)
        found = list(runner(hands).run(INPUTS))
        assert [item.seconds for item in found] == SECONDS
        assert hands.time == math.ceil(len(SECONDS) / count)


def test_functions_of_a_graph_are_measured_as_it_finds_its_constants() -> None:
    hands = devices(2)
    alone = runner(hands)
    far = Target(TEXT).l2_bytes
    made = alone.in_graph(far)
    assert not alone.cold and made.cold and not alone.in_graph(far // 2).cold
    assert [item.seconds for item in made.run(INPUTS)] == SECONDS
    assert {message.constant_bytes for _, message in hands.sent} == {far}
    list(alone.run(INPUTS[:1]))
    assert hands.sent[-1][1].constant_bytes == 0
    assert made.target() == alone.target() == Target(TEXT)
    said = DeviceRunner(hands, "device", evaluator_config=EvaluatorConfig(repeat=2))
    assert said.in_graph(far) is said
    flushed = DeviceRunner(hands, "device", evaluator_config=EvaluatorConfig(flush_cache_bytes=1))
    assert flushed.cold


def test_a_device_flushes_its_own_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[tuple[str, EvaluatorConfig]]()

    def noted(self: LocalRunner, inputs: Any, rounds: int = 0) -> list[RunnerResult]:
        given.append(("race" if rounds else "run", self.evaluator_config))
        return []

    monkeypatch.setattr(LocalRunner, "run", noted)
    monkeypatch.setattr(LocalRunner, "race", noted)
    monkeypatch.setattr(workers, "take_slot", lambda label, count: (0, None))
    monkeypatch.setenv("TILEWRIGHT_FARM_DEVICE", "")
    worker = DeviceWorker("label", 1, None, 10.0, 10.0, None)
    far = Target("native").l2_bytes
    for count, rounds in ((0, 0), (far, 0), (far, 3), (0, 0)):
        worker.work(Measurement((), (), (), rounds, count))
    cold = TUNING.in_graph(far)
    assert cold.cold_constants
    assert given == [("run", TUNING), ("run", cold), ("race", cold), ("run", TUNING)]


@few("constant", [True, False], True, ids=lambda x: "constant" if x else "argument")
def test_a_model_is_measured_on_two_devices_as_on_this_machine(
    constant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices within this process, which measure with what they are sent."""
    monkeypatch.setattr(workers, "take_slot", lambda label, count: (0, None))
    monkeypatch.setenv("TILEWRIGHT_FARM_DEVICE", "")
    target = Target("native").with_options(num_cores=1)
    depth = target.l2_bytes // 32
    w = random(depth, 8, seed=1)
    if constant:
        mod = graph(lambda x: op.matmul(x, relax.const(w)), sized((4, depth)))
    else:
        mod = graph(lambda x, y: op.matmul(x, y), sized((4, depth)), sized((depth, 8)))
    made = {name: DeviceWorker("label", 1, None, 60.0, 60.0, 1) for name in ("a", "b")}
    hands = FakeHands(
        dict(zip(made, made)),
        about=lambda name: made[name].about(),
        work=lambda name, message: made[name].work(message),
    )
    runner = DeviceRunner(hands, "device", patience=60.0)
    used: dict[str, bool] = {}
    for where, how in (("farm", runner), ("here", LocalRunner(num_threads=1))):
        database = tune_relax(
            mod, None, target, None, 6, runner=how, database=MemoryDatabase(), race=False,
            num_trials_per_iter=6,
        )  # fmt: skip
        records = database.get_all_tuning_records()
        assert records and all(record.verified for record in records)
        (used[where],) = {record.cold for record in records}
    assert used == {"farm": constant, "here": constant}
    measured = {name for name, message in hands.sent if message.inputs}  # type: ignore[attr-defined]
    assert measured == {"a", "b"}
    for worker in made.values():
        worker._runner.close()


def test_a_device_gets_a_reference_once_and_no_texts() -> None:
    hands = devices(2)
    made = runner(hands)
    list(made.run(INPUTS))
    list(made.run(INPUTS))
    sent = [(worker, message) for worker, message in hands.sent if message.references]
    assert sorted(worker for worker, _ in sent) == ["d0", "d1"]
    for _, message in hands.sent:
        assert message.keys == ("task",)
        assert all(not hasattr(item, "reference") for item in message.inputs)
        assert all(not item.module.code.sources for item in message.inputs)
        assert all(not item.module.code.sources for item in message.references)


def test_idle_devices_prepare_for_a_task() -> None:
    hands = devices(2)
    made = runner(hands)
    made.prepare(REFERENCE)
    assert [(worker, len(message.references)) for worker, message in hands.sent] == [
        ("d0", 1),
        ("d1", 1),
    ]
    made.prepare(REFERENCE)  # they are busy
    assert len(hands.sent) == 2
    assert [item.seconds for item in made.run(INPUTS)] == SECONDS
    assert not any(message.references for _, message in hands.sent[2:])


def test_the_best_time_of_all_devices_ends_slow_candidates() -> None:
    hands = devices(2)
    list(runner(hands).run([item.replaced(best_seconds=4.5) for item in INPUTS]))
    told = [message.inputs[0].best_seconds for _, message in hands.sent]
    assert told[:2] == [4.5, 4.5] and told[-1] == 1.0
    assert told == sorted(told, reverse=True)


def test_a_lost_device_costs_no_result() -> None:
    hands = devices(3, doomed={"d1": 1})
    assert [item.seconds for item in runner(hands).run(INPUTS)] == SECONDS


def test_a_candidate_that_ends_devices_crashes() -> None:
    def deadly(message: Measurement) -> bool:
        return message.inputs[0].module.entry_name == "0"

    hands = devices(2, spare=[("e0", "e0"), ("e1", "e1")], deadly=deadly)
    found = list(runner(hands).run(INPUTS))
    assert found[0].reason == "crash" and "2 workers were lost with it" in str(found[0].error)
    assert [item.seconds for item in found[1:]] == SECONDS[1:]


def test_a_race_happens_on_one_device() -> None:
    hands = devices(3)
    made = runner(hands)
    found = made.race(INPUTS, 5)
    assert [item.run_secs for item in found] == [(time,) * 5 for time in SECONDS]
    ((_, message),) = hands.sent
    assert message.rounds == 5 and len(message.inputs) == len(INPUTS)
    assert made.race([], 5) == []


def test_a_race_whose_device_is_lost_begins_anew_on_another() -> None:
    hands = devices(2, doomed={"d0": 0})
    assert [item.seconds for item in runner(hands).race(INPUTS, 3)] == SECONDS
    assert [worker for worker, _ in hands.sent] == ["d0", "d1"]
    assert all(message.references for _, message in hands.sent)


def test_an_unscheduled_program_that_can_not_run_is_an_error_in_its_turn() -> None:
    def work(worker: str, message: Measurement) -> object:
        if message.inputs[0].module.entry_name == "2":
            return NoReference("it can't be run")
        return measure(worker, message)

    results = runner(devices(2, work=work)).run(INPUTS)
    assert [next(results).seconds, next(results).seconds] == SECONDS[:2]
    with pytest.raises(NoReferenceError, match="it can't be run"):
        next(results)


def test_what_a_device_raises_is_an_error() -> None:
    hands = devices(1, work=lambda worker, message: TuneError("a race of too many"))
    with pytest.raises(TuneError, match="a device failed: a race of too many"):
        runner(hands).race(INPUTS, 2)


def test_devices_whose_times_can_not_be_compared_are_not_used() -> None:
    def about(worker: str) -> About:
        if worker == "d1":
            return replace(device(worker), target="llvm -mcpu=haswell -num-cores=2")
        if worker == "d2":
            return replace(device(worker), version="0.0.1")
        return device(worker)

    hands = devices(4, about=about)
    assert [item.seconds for item in runner(hands).run(INPUTS)] == SECONDS
    assert {worker for worker, _ in hands.sent} == {"d0", "d3"}
    assert hands.discarded == [("d1", False), ("d2", False)]


def test_candidates_for_more_cores_than_devices_have_are_refused() -> None:
    reference = replace(REFERENCE, module=module("main", "llvm -mcpu=znver4 -num-cores=8"))
    made = runner(devices(1))
    with pytest.raises(TuneError, match="for 8 cores can't be measured on devices of 2"):
        list(made.run([RunnerInput(module=module("0"), reference=reference)]))
    assert made.target() == Target(TEXT)


def test_a_closed_runner_can_be_used_again() -> None:
    hands = devices(1)
    made = runner(hands)
    list(made.run(INPUTS[:1]))
    made.close()
    assert hands.closed == 1
    hands.joining.append(Joined("d9", "d9", device("d9")))
    assert [item.seconds for item in made.run(INPUTS[:2])] == SECONDS[:2]
    assert hands.sent[-1][0] == "d9" and hands.sent[-2][1].references


# What runs on the machines.


def test_a_slot_is_for_one_at_a_time_and_left_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={**os.environ, "TILEWRIGHT_FARM_DEVICE": "lab-1"},
    )
    first, lock = take_slot("lab", 2)
    assert first == 0 and left.poll() is None
    second, other = take_slot("lab", 2)
    assert second == 1 and left.wait(20) < 0
    with pytest.raises(TuneError, match="all 2 devices 'lab' of this machine are in use"):
        take_slot("lab", 2)
    lock.close()
    again, lock = take_slot("lab", 2)
    assert again == 0
    lock.close()
    other.close()


def test_devices_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    monkeypatch.setattr(workers, "core_identity", lambda core: (0, core % 3))
    assert [share_of_cores(n, 3) for n in range(3)] == [{0, 3}, {1, 4}, {2, 5}]
    assert share_of_cores(0, 1) == set(range(6))
    with pytest.raises(TuneError, match="7 devices need 7 cores"):
        share_of_cores(0, 7)


def test_shares_of_inputs() -> None:
    numbers = list(range(32))
    for count, sizes in ((1, {4}), (2, {4}), (4, {2}), (64, {1})):
        shares = in_shares(numbers, count, 4)  # type: ignore[arg-type]  # of anything
        assert {len(share) for share in shares} == sizes
        assert [item for share in shares for item in share] == numbers


def test_labels_and_resources() -> None:
    assert cluster.resources(2, 1, "lab-1") == {
        "tilewright-builder": 2.0,
        "tilewright-device:lab-1": 1.0,
    }
    assert cluster.resources(0, 1, "x") == {"tilewright-device:x": 1.0}
    with pytest.raises(TuneError, match=r"a label consists of letters.*'a b'"):
        cluster.resources(1, 1, "a b")
    cluster.check_label(cluster.default_label())


@pytest.mark.parametrize(
    ("address", "alone"),
    [("local", True), ("127.0.0.1:6379", True), ("localhost:1", True), ("10.0.0.2:6379", False)],
)
def test_addresses_of_this_machine_only(address: str, alone: bool) -> None:
    assert cluster.is_alone(address) == alone


def test_the_label_is_needed_where_there_are_several() -> None:
    one = cluster.Farm((), devices={"a": 1})
    two = cluster.Farm((), devices={"a": 1, "b": 2})
    assert cluster.choose_label(one, None) == "a" and cluster.choose_label(two, "b") == "b"
    with pytest.raises(TuneError, match="by their label; there are: a, b"):
        cluster.choose_label(two, None)
    with pytest.raises(TuneError, match="no devices 'c'; there are: a, b"):
        cluster.choose_label(two, "c")


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"tilewright\[ray\]"):
        farm.RayRunner()
    with pytest.raises(MissingExtraError, match=r"tilewright\[ray\]"):
        farm.RayBuilder()
