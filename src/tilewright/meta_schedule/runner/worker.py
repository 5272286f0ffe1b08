"""The process in which candidates run: checks them against the reference, then times them.

Started by ``LocalRunner``; communicates through standard input and output in length-prefixed
pickles. It compiles nothing; a crash loses only the candidate.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import Any, BinaryIO

import numpy as np

from tilewright.ir import dtypes
from tilewright.meta_schedule.arg_info import TensorInfo, random_arguments
from tilewright.meta_schedule.packing import PackedOperand
from tilewright.meta_schedule.runner.base import EvaluatorConfig, Reference, RunnerResult
from tilewright.meta_schedule.times import is_steady
from tilewright.runtime import Module, Tensor, empty, measure, set_num_threads, tensor
from tilewright.runtime.module import CompiledFunction
from tilewright.support.interference import Watch

LENGTH = struct.Struct("<q")

# Largest difference allowed, relative to the largest expected magnitude: room for another order of
# summation over some thousand terms, far below what a wrong index gives.
_TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 6e-2}

# So many elements are compared at once: they stay in the caches.
_CHUNK = 1 << 16

# A candidate that is to be given up as slow gets so many calls or so much time before.
_RACE_CALLS, _RACE_SECONDS = 20, 2e-3
# One whose first call, with cold caches, takes so many times the best known time and at least so
# many seconds isn't called again.
_HOPELESS, _HOPELESS_SECONDS = 5.0, 5e-3

# Whether what was just measured may count.
_WATCH = Watch()

# In a race: how much of a measurement's time a turn takes, how many rounds use the same memory, and
# how many times the best one's time is too much.
_BURST_SHARE, _SITTING, _FAR_BEHIND = 0.5, 4, 1.1


def read_message(stream: BinaryIO) -> Any:
    """Read one message; ``None`` at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return pickle.loads(stream.read(LENGTH.unpack(head)[0]))


def write_message(stream: BinaryIO, value: object) -> None:
    """Write one message."""
    data = pickle.dumps(value)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


class _Task:
    """Arguments of a task and the unscheduled program's results."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.arguments = random_arguments(reference.args_info, reference.seed)
        written = reference.module.code.functions[0].written
        self.written = [
            index
            for index, info in enumerate(reference.args_info)
            if isinstance(info, TensorInfo) and (index >= len(written) or written[index])
        ]
        expected = self.fresh_arguments()
        _entry(reference.module)(*expected)
        self.expected = {index: np.array(expected[index]) for index in self.written}
        self.scratch = {index: np.empty_like(expected[index]) for index in self.written}
        # Candidates are timed on memory that they may overwrite, aligned as it is in graphs. That
        # of NumPy's arrays is not: vectors cross the lines of caches there, and no store streams.
        self.timing = [
            tensor(arg) if isinstance(arg, np.ndarray) else arg for arg in self.arguments
        ]

    def fresh_arguments(self) -> list[Any]:
        return [
            arg.copy() if index in self.written else arg for index, arg in enumerate(self.arguments)
        ]

    def pack(self, module: Module, packed: Sequence[PackedOperand]) -> dict[int, Any]:
        """Pack operands into a candidate's layout; padding is zero."""
        made = {}
        for operand in packed:
            result = empty(operand.info.shape, operand.info.dtype)
            result.numpy()[...] = 0
            module[operand.packer](self.arguments[operand.position], result)
            made[operand.position] = result
        return made

    def disagreement(
        self, module: Module, packed: dict[int, Any]
    ) -> tuple[float, str | None, float]:
        """Run a candidate once; return the relative difference, any error, and its seconds."""
        actual = list(self.arguments)
        for index, memory in self.scratch.items():
            np.copyto(memory, self.arguments[index])
            actual[index] = memory
        start = time.perf_counter()
        _entry(module)(*_with(actual, packed))
        seconds = time.perf_counter() - start
        worst = 0.0
        for index in self.written:
            info = self.reference.args_info[index]
            assert isinstance(info, TensorInfo)
            ratio, where = _difference(actual[index], self.expected[index], info.dtype)
            worst = max(worst, ratio)
            allowed = self.reference.tolerance
            if allowed is None:
                allowed = _TOLERANCE.get(info.dtype, 0.0)
            if not ratio <= allowed:
                wrong = (
                    f"argument #{index} differs from the unscheduled program at {where}: relative "
                    f"difference {ratio:.3g}, allowed {allowed:.3g}"
                )
                return worst, wrong, seconds
        return worst, None, seconds


def _difference(
    actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], dtype: str
) -> tuple[float, str]:
    """Largest difference relative to the largest expected magnitude, and where it is."""
    if not dtypes.is_float(dtype):
        wrong = actual != expected
        if not wrong.any():
            return 0.0, ""
        return math.inf, str(tuple(map(int, np.argwhere(wrong)[0])))
    if dtype in ("float32", "float64"):
        # Mostly all numbers are finite, and then their type is wide enough for the question.
        largest, furthest, place = _largest_and_furthest(actual.reshape(-1), expected.reshape(-1))
        if math.isfinite(largest) and math.isfinite(furthest):
            where = np.unravel_index(place, actual.shape) if actual.size else ()
            return furthest / max(largest, 1e-30), str(tuple(map(int, where)))
    return _strange_difference(actual, expected)


def _largest_and_furthest(
    actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]
) -> tuple[float, float, int]:
    """The largest expected magnitude; the largest difference and its index; NaN if any is NaN."""
    largest, furthest, place = 0.0, 0.0, 0
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(expected), _CHUNK):
            part = expected[start : start + _CHUNK]
            delta = np.abs(actual[start : start + _CHUNK] - part)
            worst = float(delta.max())
            largest = max(abs(float(part.min())), abs(float(part.max())), largest)
            if not worst <= furthest:
                furthest, place = worst, start + int(np.argmax(delta))
            if not math.isfinite(furthest):
                break
    return largest, furthest, place


def _strange_difference(
    actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]
) -> tuple[float, str]:
    """Like ``_difference`` for values with NaNs and infinities, which must agree."""
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(e)
    strange = (np.isnan(a) != np.isnan(e)) | (~finite & ~np.isnan(e) & (a != e))
    if strange.any():
        return math.inf, str(tuple(map(int, np.argwhere(strange)[0])))
    if not finite.any():
        return 0.0, ""
    with np.errstate(invalid="ignore"):  # inf - inf, where both are inf
        delta = np.where(finite, np.abs(a - e), 0.0)
    if not np.isfinite(delta).all():
        return math.inf, str(tuple(map(int, np.argwhere(~np.isfinite(delta))[0])))
    scale = max(float(np.abs(e[finite]).max()), 1e-30)
    worst = np.unravel_index(int(np.argmax(delta)), delta.shape)
    return float(delta.max()) / scale, str(tuple(map(int, worst)))


def _entry(module: Module) -> CompiledFunction:
    return module["main" if module.implements_function("main") else module.entry_name]


def _with(arguments: list[object], packed: dict[int, Any]) -> list[Any]:
    """Return arguments with some of them replaced."""
    return [packed.get(index, argument) for index, argument in enumerate(arguments)]


def _fastest_call(function: Callable[[], object], args: list[object], limit: float) -> float:
    """Return the shortest of enough calls to tell whether it is below ``limit``.

    One call of a short function is unreliable: it may have to wake a pool thread.
    """
    fastest = math.inf
    end = time.perf_counter() + _RACE_SECONDS
    for _ in range(_RACE_CALLS):
        start = time.perf_counter()
        function(*args)
        stop = time.perf_counter()
        fastest = min(fastest, stop - start)
        if fastest <= limit or stop > end:
            break
    return fastest


def _time(
    module: Module, arguments: list[object], best: float | None, config: EvaluatorConfig
) -> tuple[tuple[float, ...], bool]:
    """Return seconds per repeat, and whether cores were undisturbed and the spread small."""
    function = _entry(module).ffi
    function(*arguments)
    end = time.perf_counter() + 1e-3 * config.patience_ms
    if best is not None:
        limit = config.race_factor * best
        _WATCH.begin()
        fastest = _fastest_call(function, arguments, limit)
        while fastest > limit and not _WATCH.undisturbed() and time.perf_counter() < end:
            fastest = min(fastest, _fastest_call(function, arguments, limit))
        if fastest > limit:
            return (fastest,), True
    found: tuple[float, ...] = ()
    attempts = 1 + config.retries
    while attempts:
        _WATCH.begin()
        result = measure(
            function,
            arguments,
            number=1,
            repeat=config.repeat,
            min_repeat_ms=config.min_repeat_ms,
            flush_cache_bytes=config.flush_cache_bytes,
            warmup=0,
        )
        if not found or result.min < min(found):
            found = result.results
        undisturbed = _WATCH.undisturbed()
        if undisturbed and result.max <= (1.0 + config.max_spread) * result.min:
            return result.results, True
        if undisturbed or time.perf_counter() >= end:
            attempts -= 1
    return found, False


def evaluate(
    module: Module,
    task: _Task,
    best: float | None,
    config: EvaluatorConfig,
    packed: Sequence[PackedOperand] = (),
) -> RunnerResult:
    """Check one candidate, then time it."""
    checked = _checked(module, task, packed)
    if checked.failure is not None:
        return checked.failure
    assert checked.made is not None
    if best is not None and checked.seconds > max(_HOPELESS * best, _HOPELESS_SECONDS):
        return RunnerResult((checked.seconds,), None, None, checked.ratio)
    try:
        seconds, trusted = _time(module, _with(task.timing, checked.made), best, config)
    except Exception as error:  # as above
        return RunnerResult(None, f"{type(error).__name__}: {error}", "run")
    return RunnerResult(seconds, None, None, checked.ratio, trusted)


def race(
    entries: Sequence[tuple[Module, Sequence[PackedOperand], _Task]],
    rounds: int,
    config: EvaluatorConfig,
) -> list[RunnerResult]:
    """Check candidates, then time them in turn, so that a disturbance affects all of them.

    A turn on disturbed cores is repeated, within the patience for all turns together. Every few
    rounds the arguments move to other memory, since some programs depend more than others on the
    pages they get. Candidates far slower than another of their task are no longer timed.
    """
    tasks = [task for _, _, task in entries]
    checked = [_checked(module, task, packed) for module, packed, task in entries]
    functions = [_entry(module).ffi for module, _, _ in entries]
    seconds: list[list[float]] = [[] for _ in entries]
    patience = 1e-3 * config.patience_ms * len(entries)
    alive = [number for number, item in enumerate(checked) if item.made is not None]
    sittings: list[list[list[Any]]] = []  # kept, so that each has memory of its own
    for turn in range(rounds):
        if turn % _SITTING == 0:
            shared = {task: _fresh(task.timing) for task in dict.fromkeys(tasks)}
            sittings.append(
                [
                    _with(shared[task], _fresh_packed(item.made))
                    for task, item in zip(tasks, checked)
                ]
            )
        for number in alive if turn % 2 == 0 else reversed(alive):
            burst = config.min_repeat_ms * _BURST_SHARE
            while True:
                _WATCH.begin()
                found = _burst(functions[number], sittings[-1][number], burst)
                if _WATCH.undisturbed() or patience <= 0.0:
                    break
                patience -= 1e-3 * burst
            seconds[number].append(found)
        if turn + 1 >= 2 * _SITTING:
            best: dict[_Task, float] = {}
            for n in alive:
                best[tasks[n]] = min(median_high(seconds[n]), best.get(tasks[n], math.inf))
            alive = [n for n in alive if min(seconds[n]) <= _FAR_BEHIND * best[tasks[n]]]
    return [
        item.failure
        or RunnerResult(
            tuple(times), None, None, item.ratio, trusted=is_steady(times, config.max_spread)
        )
        for times, item in zip(seconds, checked)
    ]


def _fresh(arguments: Sequence[object]) -> list[Any]:
    """Copy tensors to other memory."""
    return [tensor(x) if isinstance(x, Tensor) else x for x in arguments]


def _fresh_packed(packed: dict[int, Any] | None) -> dict[int, Any]:
    positions = packed or {}
    return dict(zip(positions, _fresh(list(positions.values()))))


@dataclass(frozen=True)
class _Checked:
    """A candidate's packed operands if it agrees with the reference; else the error.

    ``seconds`` is the time of its first call.
    """

    made: dict[int, Any] | None = None
    ratio: float | None = None
    seconds: float = 0.0
    failure: RunnerResult | None = None


def _checked(module: Module, task: _Task, packed: Sequence[PackedOperand]) -> _Checked:
    try:
        made = task.pack(module, packed)
        ratio, wrong, seconds = task.disagreement(module, made)
    except Exception as error:  # whatever a candidate raises is its result
        return _Checked(failure=RunnerResult(None, f"{type(error).__name__}: {error}", "run"))
    if wrong is not None:
        return _Checked(failure=RunnerResult(None, wrong, "wrong", ratio))
    return _Checked(made, ratio, seconds)


def _burst(function: Any, arguments: list[Any], milliseconds: float) -> float:
    """Return the mean seconds of calls for about ``milliseconds``, after some warm-up calls."""
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


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What a candidate prints must not disturb the protocol.
    os.dup2(2, 1)
    tasks: dict[str, _Task] = {}
    num_threads = 0
    # If the parent is gone, nobody else ends a candidate that hangs: the alarm kills this process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while (message := read_message(stdin)) is not None:
        kind, deadline, threads, *rest = message
        signal.setitimer(signal.ITIMER_REAL, 2 * deadline + 5)
        if threads != num_threads:
            set_num_threads(threads)
            _WATCH.threads = num_threads = threads
        if kind == "task":
            (reference,) = rest
            try:
                tasks[reference.key] = _Task(reference)
                write_message(stdout, None)
            except Exception as error:  # reported to the parent, which refuses the task
                write_message(stdout, f"{type(error).__name__}: {error}")
        elif kind == "race":
            entries, *limits = rest
            found = [(module, packed, tasks[key]) for module, packed, key in entries]
            write_message(stdout, race(found, *limits))
        else:
            module, key, *options = rest
            write_message(stdout, evaluate(module, tasks[key], *options))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
