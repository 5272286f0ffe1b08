"""The process in which candidates run: checks them against the reference, then times them.

Started by ``LocalRunner``, which sends pickles to its standard input, after their lengths; its
answers are ``answers``. It compiles nothing; a crash loses only the candidate.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from statistics import median_high
from typing import Any, BinaryIO

from tilewright.meta_schedule.packing import PackedOperand
from tilewright.meta_schedule.runner.answers import LENGTH, Answer, encoded
from tilewright.meta_schedule.runner.base import EvaluatorConfig, RunnerResult
from tilewright.meta_schedule.runner.measuring import Stopwatch, cool
from tilewright.meta_schedule.runner.on_device import burst, is_for_gpu, placed, time_on_device
from tilewright.meta_schedule.runner.verification import Checked, Task, entry, replaced
from tilewright.meta_schedule.times import is_steady
from tilewright.runtime import Module, Tensor, set_num_threads, tensor
from tilewright.support.limits import limit_memory

# One whose first call takes so many times the best known time is checked with the first kind of
# inputs only, unless it turns out to be the fastest.
_SLOW = 2.0
# One whose first call, with cold caches, takes so many times the best known time and at least so
# many seconds isn't called again.
_HOPELESS, _HOPELESS_SECONDS = 5.0, 5e-3

_STOPWATCH = Stopwatch()

# In a race: how much of a measurement's time a turn takes, how many rounds use the same memory, and
# how many times the best one's time is too much.
_BURST_SHARE, _SITTING, _FAR_BEHIND = 0.5, 4, 1.1


def read_message(stream: BinaryIO) -> Any:
    """Read one message; ``None`` at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return pickle.loads(stream.read(LENGTH.unpack(head)[0]))


def evaluate(
    module: Module,
    task: Task,
    best: float | None,
    config: EvaluatorConfig,
    packed: Sequence[PackedOperand] = (),
    varies: bool = False,
) -> RunnerResult:
    """Check one candidate, then time it."""
    slow = math.inf if best is None else _SLOW * best
    hopeless = math.inf if best is None else max(_HOPELESS * best, _HOPELESS_SECONDS)
    checked, result = _checked(module, task, packed, varies, hopeless=slow, thorough=False)
    if result.reason is not None:
        return result
    if checked.seconds > hopeless:
        return replace(result, run_secs=(checked.seconds,))
    try:
        arguments, function = replaced(task.timing, checked.made), entry(module).ffi
        if is_for_gpu(module):
            timing = time_on_device(function, placed(arguments), best, config)
        else:
            timing = _STOPWATCH.time(function, arguments, best, config, task.reference.constants)
    except Exception as error:  # as above
        return RunnerResult(None, f"{type(error).__name__}: {error}", "run")
    if best is not None and checked.seconds > slow and min(timing.seconds) <= best:
        _, result = _checked(module, task, packed, varies, thorough=False)
        if result.reason is not None:
            return result
    return replace(
        result,
        run_secs=timing.seconds,
        trusted=timing.trusted,
        slowdown=timing.slowdown,
        cold=config.flush_cache_bytes > 0,
    )


def race(
    entries: Sequence[tuple[Module, Task, Sequence[PackedOperand], bool]],
    rounds: int,
    config: EvaluatorConfig,
    limit: float = math.inf,
) -> list[RunnerResult]:
    """Check candidates, then time them in turn, so that a disturbance affects all of them.

    After ``limit`` seconds no further round begins, if there was one.

    A turn on disturbed cores is repeated, within the patience for all turns together. Every few
    rounds the arguments move to other memory, since some programs depend more than others on the
    pages they get. Candidates far slower than another of their task are no longer timed.
    """
    end = time.perf_counter() + limit
    tasks = [task for _, task, _, _ in entries]
    checked = [_checked(*item) for item in entries]
    functions = [entry(module).ffi for module, *_ in entries]
    on_gpu = any(is_for_gpu(module) for module, *_ in entries)
    seconds: list[list[float]] = [[] for _ in entries]
    watch, patience = _STOPWATCH.watch, _STOPWATCH.patience
    allowed = left = 1e-3 * config.patience_ms * len(entries) * patience.share
    alive = [number for number, (_, result) in enumerate(checked) if result.reason is None]
    sittings: list[list[list[Any]]] = []  # kept, so that each has memory of its own
    for turn in range(rounds):
        if turn and time.perf_counter() > end:
            break
        if turn % _SITTING == 0:
            made = [item.made for item, _ in checked]
            sittings.append(_sitting(tasks, made, placed if on_gpu else _fresh))
        for number in alive if turn % 2 == 0 else reversed(alive):
            lasting = config.min_repeat_ms * _BURST_SHARE
            while True:
                start = time.perf_counter()
                watch.begin()
                arguments = sittings[-1][number]
                if on_gpu:
                    found = burst(functions[number], arguments, lasting, config)
                else:
                    constants = tasks[number].reference.constants
                    found = _burst(functions[number], arguments, lasting, config, constants)
                # Whoever disturbs the cores of the CPU doesn't disturb the device.
                if on_gpu or watch.undisturbed() or left <= 0.0:
                    break
                left -= time.perf_counter() - start
            seconds[number].append(found)
        if turn + 1 >= 2 * _SITTING:
            alive = _close_to_best(alive, tasks, seconds)
    if left < allowed:
        patience.learn(left > 0.0)
    return [
        result
        if result.reason is not None
        else replace(
            result,
            run_secs=tuple(times),
            trusted=is_steady(times, config.max_spread),
            cold=config.flush_cache_bytes > 0,
        )
        for times, (_, result) in zip(seconds, checked)
    ]


def _sitting(
    tasks: Sequence[Task],
    made: Sequence[Mapping[int, Any]],
    copied: Callable[[Sequence[Any]], list[Any]],
) -> list[list[Any]]:
    """Arguments of each candidate in new memory, those of a task shared by its candidates."""
    shared = {task: copied(task.timing) for task in dict.fromkeys(tasks)}
    return [
        replaced(shared[task], dict(zip(own, copied(list(own.values())))))
        for task, own in zip(tasks, made)
    ]


def _close_to_best(
    alive: Sequence[int], tasks: Sequence[Task], seconds: Sequence[Sequence[float]]
) -> list[int]:
    """The candidates that aren't far slower than another of their task."""
    best: dict[Task, float] = {}
    for n in alive:
        best[tasks[n]] = min(median_high(seconds[n]), best.get(tasks[n], math.inf))
    return [n for n in alive if min(seconds[n]) <= _FAR_BEHIND * best[tasks[n]]]


def _fresh(arguments: Sequence[object]) -> list[Any]:
    """Copy tensors to other memory."""
    return [tensor(x) if isinstance(x, Tensor) else x for x in arguments]


def _checked(
    module: Module,
    task: Task,
    packed: Sequence[PackedOperand],
    varies: bool,
    *,
    hopeless: float = math.inf,
    thorough: bool = True,
) -> tuple[Checked, RunnerResult]:
    """Check a candidate; the result says why it can't be timed, if so, and how it was checked."""
    try:
        found = task.check(module, packed, hopeless=hopeless, thorough=thorough, varies=varies)
    except Exception as error:  # whatever a candidate raises is its result
        text = f"{type(error).__name__}: {error}"
        return Checked({}), RunnerResult(None, text, "run")
    verified = bool(task.cases)
    seed = task.reference.seed if verified else None
    result = RunnerResult(
        None,
        found.error,
        "wrong" if found.error is not None else None,
        found.ratio,
        verified=verified,
        inputs=found.kinds,
        seed=seed,
    )
    return found, result


def _burst(
    function: Any,
    arguments: list[Any],
    milliseconds: float,
    config: EvaluatorConfig,
    constants: Collection[int],
) -> float:
    """Return the mean seconds of calls for about ``milliseconds``, after some warm-up calls.

    With flushed caches those of one call, after another one: looking for disturbances has moved the
    thread to other cores, so that code would come from far caches, too.
    """
    if config.flush_cache_bytes:
        function(*arguments)
        cool(arguments, constants, config)
        start = time.perf_counter()
        function(*arguments)
        return time.perf_counter() - start
    end = time.perf_counter() + 0.25e-3 * milliseconds
    while True:
        start = time.perf_counter()
        function(*arguments)
        stop = time.perf_counter()
        if stop >= end:
            break
    count = max(1, int(1e-3 * milliseconds / max(stop - start, 1e-7)))
    start = time.perf_counter()
    for _ in range(count):
        function(*arguments)
    return (time.perf_counter() - start) / count


def main(memory: int | None = None) -> None:
    """Serve requests until the parent closes the pipe, with so many bytes of memory at most."""
    limit_memory(memory)
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What a candidate prints must not disturb the protocol.
    os.dup2(2, 1)
    tasks: dict[str, Task] = {}
    num_threads = 0
    # If the parent is gone, nobody else ends a candidate that hangs: the alarm kills this process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # What ends a whole job ends the parent, and so this process; no candidate is to blame.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while (message := read_message(stdin)) is not None:
        token, kind, deadline, threads, *rest = message
        signal.setitimer(signal.ITIMER_REAL, 2 * deadline + 5)
        if threads != num_threads:
            set_num_threads(threads)
            _STOPWATCH.watch.threads = num_threads = threads
        stdout.write(encoded(_answer(kind, rest, tasks), token))
        stdout.flush()
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _answer(kind: str, rest: Sequence[Any], tasks: dict[str, Task]) -> Answer:
    """Do what a request asks for."""
    if kind == "task":
        reference, verify = rest
        try:
            tasks[reference.key] = Task(reference, verify)
        except Exception as error:  # reported to the parent, which refuses the task
            return Answer(problem=f"{type(error).__name__}: {error}")
        return Answer()
    if kind == "race":
        entries, *limits = rest
        found = [(module, tasks[key], *others) for module, key, *others in entries]
        return Answer(tuple(race(found, *limits)))
    module, key, *options = rest
    return Answer((evaluate(module, tasks[key], *options),))
