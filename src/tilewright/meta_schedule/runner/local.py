"""Measures candidates in a process of their own, with a deadline."""

from __future__ import annotations

import os
import pickle
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from tilewright.meta_schedule.runner import worker
from tilewright.meta_schedule.runner.answers import (
    LENGTH,
    Answer,
    InvalidAnswerError,
    decoded,
    length_of,
)
from tilewright.meta_schedule.runner.base import (
    TUNING,
    EvaluatorConfig,
    NoReferenceError,
    Reference,
    Runner,
    RunnerInput,
    RunnerResult,
    is_usual,
)
from tilewright.support.errors import TuneError
from tilewright.support.limits import physical_memory
from tilewright.target import Target, host

# The worker keeps the arguments and results of so many tasks, so that a scheduler may go from task
# to task without running their unscheduled programs again.
_TASKS_KEPT = 24
# Seconds that sending the results of a race takes at most.
_ANSWERING = 0.01


Request = tuple[float, tuple[object, ...]]
"""How many seconds an answer may take, and what is asked."""


class _Ended(Exception):
    """The worker process died or exceeded its deadline."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class LocalRunner(Runner):
    """One worker process, one candidate at a time.

    ``timeout_sec`` limits one candidate (check and measurement), after which ``cooldown_sec`` pass
    before the next one, ``reference_timeout_sec`` the
    single run of the unscheduled program, ``memory_bytes`` what the worker may take (default: three
    quarters of the machine's memory). A crash or a hang loses only the candidate; the worker is
    restarted, as it is after ``candidates_per_worker``.
    """

    def __init__(
        self,
        timeout_sec: float = 30.0,
        evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0,
        *,
        reference_timeout_sec: float = 300.0,
        num_threads: int | None = None,
        memory_bytes: int | None = None,
        candidates_per_worker: int = 2000,
    ) -> None:
        self.evaluator_config = evaluator_config or TUNING
        self.timeout_sec = timeout_sec
        self.cooldown_sec = cooldown_sec
        self.reference_timeout_sec = reference_timeout_sec
        self.num_threads = num_threads
        total = physical_memory()
        self.memory_bytes = memory_bytes or (None if total is None else total * 3 // 4)
        self.candidates_per_worker = candidates_per_worker
        self._run = 0  # candidates of the worker
        self._token = ""  # of the request that is answered next
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._tasks: set[str] = set()
        self._preparing: str | None = None  # the task whose answer hasn't been read yet
        self._unprepared: dict[str, str] = {}  # what went wrong with tasks that were prepared
        if not (timeout_sec > 0 and reference_timeout_sec > 0 and cooldown_sec >= 0):
            raise TuneError("LocalRunner needs positive timeouts, and cooldown_sec from 0 on")
        if candidates_per_worker < 1 or (memory_bytes is not None and memory_bytes < 1):
            raise TuneError("LocalRunner needs positive memory_bytes and candidates_per_worker")

    def in_graph(self, constant_bytes: int) -> LocalRunner:
        """Return a runner for functions of a graph with so many bytes of constants.

        It is this one if somebody said how candidates are timed, or a class of one's own.
        """
        config = self.evaluator_config
        if type(self) is not LocalRunner or not is_usual(config):
            return self
        return LocalRunner(
            self.timeout_sec,
            config.in_graph(constant_bytes),
            self.cooldown_sec,
            reference_timeout_sec=self.reference_timeout_sec,
            num_threads=self.num_threads,
            memory_bytes=self.memory_bytes,
            candidates_per_worker=self.candidates_per_worker,
        )

    @property
    def cold(self) -> bool:
        """Whether candidates find cold caches."""
        return self.evaluator_config.flush_cache_bytes > 0

    def settings(self) -> str:
        """Return how it checks and measures."""
        how = (self.evaluator_config, self.timeout_sec, self.num_threads)
        return f"{type(self).__name__}{how}"

    def run(self, runner_inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        """Check and measure the inputs one at a time; yield each result once it is available."""
        return self._run_each(runner_inputs)

    def run_each(self, inputs: Iterable[RunnerInput]) -> Iterator[RunnerResult]:
        """Do as ``run`` does; ask for the next input when the one before is measured."""
        if type(self).run is LocalRunner.run:
            return self._run_each(inputs)
        return super().run_each(inputs)  # a subclass says how inputs are run

    def _run_each(self, inputs: Iterable[RunnerInput]) -> Iterator[RunnerResult]:
        best: dict[str, float] = {}
        for candidate in inputs:
            key = candidate.reference.key
            known = best.get(key, candidate.best_seconds)
            threads = self._threads(candidate.reference)
            what = (candidate.module.with_sources({}), key, known, self.evaluator_config)
            request = ("measure", *what, candidate.packed, candidate.varies)
            if self._run >= self.candidates_per_worker:
                self.close()  # what it may have leaked, and fragments of its memory
            self._run += 1
            self._set_task(candidate.reference, threads)
            try:
                (result,) = self._ask((self.timeout_sec, request), threads).results
            except _Ended as ended:
                result = RunnerResult(None, str(ended), ended.reason)
            if result.run_secs:
                best[key] = min(known or result.run_secs[0], *result.run_secs)
            yield result
            time.sleep(self.cooldown_sec)

    def race(self, inputs: Sequence[RunnerInput], rounds: int) -> list[RunnerResult]:
        """Check and measure inputs in turn, all within the worker.

        If that ends, each is run on its own, and the others race without those that end it again.

        Raises ``TuneError`` for candidates of too many tasks.
        """
        if not inputs:
            return []
        references = {item.reference.key: item.reference for item in inputs}
        if len(references) > _TASKS_KEPT:
            raise TuneError(
                f"a race compares candidates of up to {_TASKS_KEPT} tasks, got {len(references)}"
            )
        threads = max(map(self._threads, references.values()))
        self._finish_preparing()
        if len(self._tasks | references.keys()) > _TASKS_KEPT:
            self.close()
        for reference in references.values():
            self._set_task(reference, threads)
        entries = [
            (item.module.with_sources({}), item.reference.key, item.packed, item.varies)
            for item in inputs
        ]
        request = (
            self.timeout_sec * len(inputs),
            ("race", entries, rounds, self.evaluator_config, self.seconds_left - _ANSWERING),
        )
        try:
            made = list(self._ask(request, threads, len(entries)).results)
        except _Ended as ended:
            made = self._without_culprits(inputs, rounds, ended)
        return made

    def _without_culprits(
        self, inputs: Sequence[RunnerInput], rounds: int, ended: _Ended
    ) -> list[RunnerResult]:
        """Race again without those that end the process on their own."""
        failure = RunnerResult(None, str(ended), ended.reason)
        if len(inputs) == 1:
            return [failure]
        alone = [self.race([item], 1)[0] for item in inputs]
        right = [item for item, result in zip(inputs, alone) if result.run_secs]
        if len(right) == len(inputs):  # nobody did it again
            return [failure] * len(inputs)
        raced = iter(self.race(right, rounds))
        return [next(raced) if result.run_secs else result for result in alone]

    def _threads(self, reference: Reference) -> int:
        if self.num_threads is not None:
            return self.num_threads
        target = reference.module.target
        return Target(target).num_cores if target else host.core_count()

    def start(self) -> None:
        """Start the worker process, which takes the time of some design spaces."""
        if self._process is None:
            self._start()

    def prepare(self, reference: Reference) -> None:
        """Make the worker run the unscheduled program; its answer is read when it is needed.

        Meanwhile candidates can be generated and built.
        """
        if reference.key in self._tasks or self._preparing or len(self._tasks) >= _TASKS_KEPT:
            return
        with suppress(_Ended):  # then it is asked again, and the error is raised
            self._send(self._task_request(reference), self._threads(reference))
            self._preparing = reference.key

    def _task_request(self, reference: Reference) -> Request:
        bare = replace(reference, module=reference.module.with_sources({}))
        return self.reference_timeout_sec, ("task", bare, self.evaluator_config.verify)

    def _finish_preparing(self) -> None:
        """Read the answer to what is being prepared."""
        key, self._preparing = self._preparing, None
        if key is None:
            return
        try:
            problem = self._receive(self.reference_timeout_sec, 0).problem
        except _Ended as ended:
            problem = str(ended)
        if problem is None:
            self._tasks.add(key)
        else:
            self._unprepared[key] = problem

    def _set_task(self, reference: Reference, threads: int) -> None:
        """Make the worker run the unscheduled program, once per task and process."""
        self._finish_preparing()
        key = reference.key
        problem = self._unprepared.pop(key, None)
        if key in self._tasks:
            return
        if problem is None:
            if len(self._tasks) >= _TASKS_KEPT:
                self.close()
            try:
                problem = self._ask(self._task_request(reference), threads, 0).problem
            except _Ended as ended:
                raise _no_reference(str(ended)) from ended
        if problem is not None:
            raise _no_reference(problem)
        self._tasks.add(key)

    def _start(self) -> subprocess.Popen[bytes]:
        source = str(Path(worker.__file__).parents[3])
        path = os.pathsep.join(item for item in (source, os.environ.get("PYTHONPATH", "")) if item)
        self._tasks.clear()
        self._run = 0
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        memory = self.memory_bytes
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {worker.__name__} import main; main({memory})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the parent to handle
        )
        return self._process

    def _ask(self, request: Request, threads: int, count: int = 1) -> Answer:
        self._finish_preparing()
        self._send(request, threads)
        return self._receive(request[0], count)

    def _send(self, request: Request, threads: int) -> None:
        deadline, (kind, *rest) = request
        process = self._process or self._start()
        assert process.stdin is not None
        self._token = secrets.token_hex(16)
        data = pickle.dumps((self._token, kind, deadline, threads, *rest))
        with self._talking(process, deadline):
            process.stdin.write(LENGTH.pack(len(data)) + data)
            process.stdin.flush()

    def _receive(self, deadline: float, count: int) -> Answer:
        process = self._process
        assert process is not None
        with self._talking(process, deadline):
            length = length_of(self._read(LENGTH.size, deadline))
            return decoded(self._read(length, deadline), self._token, count)

    @contextmanager
    def _talking(self, process: subprocess.Popen[bytes], deadline: float) -> Iterator[None]:
        """Raise ``_Ended`` if the worker dies, takes longer, or answers something else.

        There is none afterwards.
        """
        try:
            yield
        except (BrokenPipeError, EOFError):
            code = process.wait()
            death = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            text = f"the process that ran it died ({death}){self._last_words()}"
            self.close()
            raise _Ended("crash", text) from None
        except InvalidAnswerError as error:
            self.close()
            text = f"it wrote into the pipe of the process that ran it: {error}"
            raise _Ended("crash", text) from None
        except TimeoutError:
            self.close()
            self.check_time()
            raise _Ended("timeout", f"it ran longer than {deadline:g} s") from None
        except BaseException:  # an interrupt: the answer would be taken for that of another request
            self.close()
            raise

    def _last_words(self) -> str:
        """Return the last line that the dead process wrote to its standard error."""
        assert self._stderr is not None
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - 400))
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout.fileno()
        end = min(time.monotonic() + deadline, self.until)
        poller = select.poll()
        poller.register(stream, select.POLLIN)
        parts = bytearray()
        while len(parts) < size:
            if not poller.poll(max(0.0, end - time.monotonic()) * 1e3):
                raise TimeoutError
            chunk = os.read(stream, size - len(parts))
            if not chunk:
                raise EOFError
            parts += chunk
        return bytes(parts)

    def close(self) -> None:
        """End the worker process."""
        process, self._process = self._process, None
        stderr, self._stderr = self._stderr, None
        self._tasks.clear()
        self._preparing = None
        self._unprepared.clear()
        if stderr is not None:
            stderr.close()
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        continue  # the unsent rest of a message to a dead process

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()


def _no_reference(why: str) -> NoReferenceError:
    return NoReferenceError(f"the unscheduled program could not be run as the reference: {why}")
