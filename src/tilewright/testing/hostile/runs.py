"""Whole runs of ``tune_relax`` that are killed: what their database was told is kept, and is right.

A case tunes a small model: ways of its convolution, the searches, records in their places in the
graph, the last race of graphs. One process does so, or two in one folder: the same run twice, or
two runs of other seeds. After a random part of the time that a run takes, one is killed; the other
goes on to its end. Then all runs are asked for again. Every record and every choice for the graph
that a process was told is kept must be there after the kill and in the end, the choice must name
records that are there, and the model, built with them, must compute what it did.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random

import numpy as np

from tilewright import relax
from tilewright.ir import IRModule
from tilewright.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from tilewright.meta_schedule.database.graph_choice import GraphChoice
from tilewright.meta_schedule.search_strategy import EvolutionarySearch
from tilewright.relax import op
from tilewright.relax.tuning.models import compile_relax, tune_relax
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.testing.hostile.kind import Case, Fault, Kind, Limits, emptied_folder

_TRIALS = 12
_TOLERANCE = 1e-3
_LATEST = 1.1  # of the time that a run takes

Messages = list[tuple[str, str]]
"""What a process has acknowledged: kinds and texts."""


@dataclass(frozen=True)
class Plan:
    """Which seeds are tuned with at the same time, and after which part of a run one is killed."""

    seeds: tuple[int, ...]
    moment: float


def make(rng: Random) -> Case:
    """Draw how many runs there are, and when the kill comes."""
    label, seeds = rng.choice(
        [("one run", (0,)), ("the same run twice", (0, 0)), ("two runs", (0, 1))]
    )
    return Case(label, Plan(seeds, rng.uniform(0.0, _LATEST)))


def _graph() -> IRModule:
    """A convolution, and a product whose weight is larger than a core's own caches."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> relax.Constant:
        return relax.const((rng.standard_normal(shape) / np.sqrt(shape[-1])).astype("float32"))

    x = relax.Var("x", relax.TensorStructInfo((1, 8, 12, 12), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = op.nn.relu(op.nn.conv2d(x, random(16, 8, 3, 3), padding=(1, 1)))
            y = op.matmul(op.reshape(y, (4, 576)), random(576, 1024))
            out = builder.emit_output(op.nn.softmax(y, -1))
        builder.emit_func_output(out)
    return builder.get()


class _Telling(JSONDatabase):
    """Tells what it has kept."""

    told: Connection | None = None

    def commit_tuning_records(self, records: Iterable[TuningRecord]) -> None:
        """Add records, and say so."""
        some = list(records)
        super().commit_tuning_records(some)
        self._tell(*(("record", _key(record)) for record in some))

    def commit_graph_choice(self, choice: GraphChoice) -> None:
        """Keep a choice for the graph, and say so."""
        super().commit_graph_choice(choice)
        self._tell(("choice", json.dumps(choice.as_json())))

    def _tell(self, *messages: tuple[str, str]) -> None:
        for message in messages:
            if self.told is not None:
                self.told.send(message)


def _key(record: TuningRecord) -> str:
    return json.dumps([record.workload.hash, record.digest, record.run_secs])


def _tune(folder: Path, seed: int, told: Connection | None = None) -> None:
    database = _Telling(work_dir=folder)
    database.told = told
    tune_relax(
        _graph(), None, Target("native"), folder, _TRIALS, seed=seed, database=database,
        strategy=EvolutionarySearch(population_size=32, genetic_num_iters=1),
        num_trials_per_iter=4, alternatives=0.5,
    )  # fmt: skip


@lru_cache(maxsize=1)
def _seconds() -> float:
    """How long a run takes."""
    start = time.monotonic()
    _tune(emptied_folder(), 0)
    return time.monotonic() - start


def check(plan: Plan) -> str:
    """Tune, kill, go on, and look at what is left."""
    seconds, folder = plan.moment * _seconds(), emptied_folder()
    context = multiprocessing.get_context("fork")
    running, ends = [], list[Connection]()
    for seed in plan.seeds:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        running.append(context.Process(target=_tune, args=(folder, seed, theirs)))
        running[-1].start()
        theirs.close()
        ends.append(ours)
    messages: list[Messages] = [[] for _ in running]
    _listen(ends, messages, time.monotonic() + seconds)
    running[0].kill()
    _listen(ends, messages)
    for process in running:
        process.join()
    if any(process.exitcode for process in running[1:]):
        raise Fault("the run beside the one that was killed ended early")
    was = _last_kind(folder)
    _check_records(folder, messages)
    for seed in dict.fromkeys(plan.seeds):
        _tune(folder, seed)
    _check_records(folder, messages, whole=True)
    return f"killed after {was}"


def _listen(ends: list[Connection], messages: list[Messages], until: float = math.inf) -> None:
    """Take what processes say until a time, or all of it."""
    open_ends = {id(end): place for place, end in enumerate(ends) if not end.closed}
    while open_ends and time.monotonic() < until:
        left = None if until == math.inf else max(0.0, until - time.monotonic())
        for end in wait([ends[place] for place in open_ends.values()], timeout=left):
            assert isinstance(end, Connection)
            try:
                messages[open_ends[id(end)]].append(end.recv())
            except (EOFError, OSError):  # the last message may be cut off
                del open_ends[id(end)]
                end.close()
    if until != math.inf:
        time.sleep(max(0.0, until - time.monotonic()))


def _last_kind(folder: Path) -> str:
    """What the log of runs says last."""
    try:
        lines = (folder / "logs" / "runs.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return "nothing"
    return str(json.loads(lines[-1])["kind"]) if lines else "nothing"


def _check_records(folder: Path, messages: list[Messages], *, whole: bool = False) -> None:
    """Compare what there is with what was acknowledged; at the end of all runs, ``whole``."""
    database = JSONDatabase(work_dir=folder)
    found = {_key(record) for record in database.records()}
    told = {text for some in messages for kind, text in some if kind == "record"}
    if not told <= found:
        raise Fault(f"{len(told - found)} of {len(told)} records are lost")
    choices = [[text for kind, text in some if kind == "choice"] for some in messages]
    made = [json.dumps(choice.as_json()) for choice in database.graph_choices()]
    if any(choices) and not made:
        raise Fault("the choice for the graph is lost")
    if len(choices) == 1 and not whole and choices[0]:
        *older, last = choices[0]
        if made[-1] != last and made[-1] in older:
            raise Fault("an older choice for the graph has come back")
    digests = {(record.workload.hash, record.digest) for record in database.records()}
    for choice in database.graph_choices():
        if not set(choice.records) <= digests:
            raise Fault("a choice for the graph names records that aren't there")
    if whole and not made:
        raise Fault("the runs came to their ends without a choice for the graph")
    _compare(database)


def _compare(database: JSONDatabase) -> None:
    """The model with these records computes what it does without."""
    mod, target = _graph(), Target("native")
    x = np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype("float32")
    try:
        expected, result = (
            np.asarray(compile_relax(known, mod, target)["main"](x))
            for known in (MemoryDatabase(), database)
        )
    except TilewrightError as error:
        raise Fault(f"the model can't be built or run with the records: {error}") from error
    if not np.allclose(expected, result, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise Fault("the model computes something else with the records")


# Killed processes are what this is about: none of that is a fault.
KIND = Kind(make, check, Limits(seconds=600.0, memory=0, watch=False))
