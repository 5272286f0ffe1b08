"""How a farm scales: ``python -m benchmarks.farm``, from ``--times``, recorded by ``--record``.

Simulates tuning on 1 to 64 devices with the scheduling of real farms, and prints trials per second,
what limits them, and how busy each part is. ``--record FILE`` tunes two operators on this machine
and writes down what everything takes; with Ray, also what its messages and workers take.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import pickle
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks import table
from benchmarks.workloads import WORKLOADS
from tilewright.ir import IRModule
from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult, LocalBuilder
from tilewright.meta_schedule.farm import cluster
from tilewright.meta_schedule.farm.dispatcher import Done, Joined
from tilewright.meta_schedule.farm.simulation import (
    FLOWING,
    IN_TURN,
    OVERLAPPED,
    Outcome,
    Recorded,
    Setup,
    simulate,
)
from tilewright.meta_schedule.farm.workers import BuildWorker
from tilewright.meta_schedule.measure_callback import MeasureCallback, default_callbacks
from tilewright.meta_schedule.profiler import Profiler
from tilewright.meta_schedule.runner import LocalRunner, Runner, RunnerInput, RunnerResult
from tilewright.meta_schedule.tune import tune_tasks
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.target import Target

TIMES = Path(__file__).parent / "farm_times.json"
DEVICES = (1, 2, 4, 8, 16, 32, 64)
TASKS = ("gemm 512x512x512", "conv2d 64->64 3x3 @56")


# A part that is busy for so much of the time is what limits a farm.
_BUSY = 0.85


class TimedBuilder(Builder):
    """Builds one candidate at a time, and notes what each takes."""

    def __init__(self) -> None:
        self.local = LocalBuilder(1)
        self.seconds: list[float] = []
        self.sending: list[float] = []

    def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [self.one(item) for item in inputs]

    def one(self, item: BuilderInput) -> BuilderResult:
        start = time.perf_counter()
        (result,) = self.local.build([item])
        self.seconds.append(time.perf_counter() - start)
        bare = result.module and result.module.with_sources({})
        self.sending.append(sending(item, bare))
        return result


class TimedRunner(Runner):
    """Notes what each candidate takes, and what the first of a task takes longer."""

    def __init__(self) -> None:
        self.local = LocalRunner()
        self.seconds: list[float] = []
        self.sending: list[float] = []
        self.firsts: list[float] = []
        self.seen: set[str] = set()

    def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        results = self.local.run(inputs)
        for item in inputs:
            start = time.perf_counter()
            result = next(results)
            took = time.perf_counter() - start
            is_new = item.reference.key not in self.seen
            self.seen.add(item.reference.key)
            (self.firsts if is_new else self.seconds).append(took)
            self.sending.append(sending(item.module.with_sources({}), result))
            yield result

    def race(self, inputs: Sequence[RunnerInput], rounds: int) -> list[RunnerResult]:
        return self.local.race(inputs, rounds)

    def close(self) -> None:
        self.local.close()


class TimedCallbacks(MeasureCallback):
    """What the usual callbacks take for each result: the database, above all."""

    def __init__(self) -> None:
        self.usual = default_callbacks()
        self.seconds: list[float] = []

    def on_result(self, *arguments: Any) -> None:
        start = time.perf_counter()
        for callback in self.usual:
            callback.on_result(*arguments)
        self.seconds.append(time.perf_counter() - start)

    def on_batch(self, *arguments: Any) -> None:
        for callback in self.usual:
            callback.on_batch(*arguments)


def sending(there: object, back: object) -> float:
    """Seconds of this process for one message and its answer, without the network."""
    answer = pickle.dumps(back, protocol=5)
    start = time.perf_counter()
    pickle.dumps(there, protocol=5)
    pickle.loads(answer)
    return time.perf_counter() - start


def record(trials: int) -> Recorded:
    """Tune on this machine, and note what everything takes."""
    target = Target("native")
    modules = [IRModule({"main": WORKLOADS[name].prim_func()}) for name in TASKS]
    tasks = [TuneContext(mod, target=target, task_name=name) for mod, name in zip(modules, TASKS)]
    builder, runner, callbacks, profiler = (
        TimedBuilder(),
        TimedRunner(),
        TimedCallbacks(),
        Profiler(),
    )
    with profiler, tempfile.TemporaryDirectory() as folder:
        tune_tasks(
            tasks,
            work_dir=folder,
            max_trials_global=trials,
            builder=builder,
            runner=runner,
            measure_callbacks=callbacks,
        )
    count = len(callbacks.seconds)
    spent = profiler.get()
    calls, latency, start = ray_times()
    return Recorded(
        build=[round(item, 4) for item in builder.seconds],
        measure=[round(item, 4) for item in runner.seconds],
        latency=[round(item, 5) for item in latency],
        search=spent["searching"] / count,
        send=fmean(builder.sending) + fmean(runner.sending) + 2 * calls,
        record=fmean(callbacks.seconds),
        learn=spent["learning"] / count,
        reference=max(0.0, max(runner.firsts) - median(runner.seconds)),
        start=start,
    )


def ray_times(count: int = 200) -> tuple[float, list[float], float]:
    """Seconds of this process for a call, of round trips, and until a worker has started."""
    if importlib.util.find_spec("ray") is None:
        raise SystemExit("recording needs Ray: pip install 'tilewright[ray]'")
    hands = cluster.RayHands(cluster.connect(), cluster.BUILDER, BuildWorker, (None,), 1)
    begin = time.perf_counter()
    name = wait_for(hands, Joined).worker
    start = time.perf_counter() - begin
    trips = []
    process = time.process_time()
    for _ in range(count):
        begin = time.perf_counter()
        hands.start(name, ((), 1.0))
        wait_for(hands, Done)
        trips.append(time.perf_counter() - begin)
    process = time.process_time() - process
    hands.close()
    return process / count, trips, start


def wait_for(hands: cluster.RayHands, kind: type) -> Any:
    while True:
        for event in hands.wait(1.0):
            if isinstance(event, kind):
                return event


def limit(outcome: Outcome, mode: str) -> str:
    """What keeps a farm from being faster."""
    shares = {
        "the search": outcome.driver,
        "devices": outcome.devices,
        "builders": outcome.builders,
    }
    most = max(shares, key=lambda name: shares[name])
    if shares[most] > _BUSY:
        return most
    return "what follows one another" if mode == IN_TURN else "the ends of batches"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.farm", description=__doc__)
    parser.add_argument("--times", type=Path, default=TIMES, help="the recorded times")
    parser.add_argument("--record", type=Path, metavar="FILE", help="record them on this machine")
    parser.add_argument("--trials", type=int, default=4096, help="candidates of a simulated run")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--slower", type=float, nargs="+", default=[1.0, 10.0, 40.0], metavar="N",
                        help="devices that take so many times as long to measure")  # fmt: skip
    parser.add_argument("--builders", type=float, help="builders per device (default: enough)")
    parser.add_argument("--loss", type=float, default=0.002, help="of jobs, how many end a worker")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.getLogger("tilewright").setLevel(logging.ERROR)
    if options.record is not None:
        made = {"machine": table.machine(), "times": asdict(record(128))}
        options.record.write_text(json.dumps(made) + "\n")
        return
    recorded = Recorded(**json.loads(options.times.read_text())["times"])
    results = []
    for slower, mode in [(slower, mode) for slower in options.slower for mode in MODES]:
        times = replace(recorded, measure=[slower * item for item in recorded.measure])
        ratio = options.builders or 1.5 * fmean(times.build) / fmean(times.measure)
        rows = []
        for devices in DEVICES:
            builders = max(2, round(ratio * devices))
            setup = Setup(devices, builders, options.batch, mode, options.loss)
            outcome = simulate(setup, times, options.trials)
            results.append({"slower": slower, **asdict(setup), **asdict(outcome)})
            one = results[-1 - DEVICES.index(devices)]
            rows.append(
                [
                    str(devices),
                    str(builders),
                    f"{outcome.rate:.1f}",
                    f"{one['seconds'] / outcome.seconds:.1f}",
                    percent(outcome.devices),
                    percent(outcome.builders),
                    percent(outcome.driver),
                    str(outcome.lost),
                    limit(outcome, mode),
                ]
            )
        if not options.json:
            each = f"{1e3 * fmean(times.measure):.0f} ms to measure one"
            table.show(f"{mode}, batches of {options.batch}, {each}", COLUMNS, rows)
    if options.json:
        table.dump(results)


MODES = (IN_TURN, OVERLAPPED, FLOWING)
COLUMNS = (
    "devices", "builders", "trials/s", "times one", "devices busy", "builders busy", "search busy",
    "lost", "limited by",
)  # fmt: skip


if __name__ == "__main__":
    main()
