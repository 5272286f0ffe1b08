"""What runs on the machines of a farm: one builder, or one device, in a process of its own.

Plain classes; ``cluster`` makes actors of them. A device measures with a ``LocalRunner``, so what
candidates may do to it, how they are checked and how they race is the same here and there.
"""

from __future__ import annotations

import fcntl
import os
import platform
import signal
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from tilewright.meta_schedule.builder import BuilderInput, BuilderResult, LocalBuilder
from tilewright.meta_schedule.builder.local import BuildFunction
from tilewright.meta_schedule.packing import PackedOperand
from tilewright.meta_schedule.runner import (
    EvaluatorConfig,
    LocalRunner,
    NoReferenceError,
    Reference,
    RunnerInput,
    RunnerResult,
)
from tilewright.runtime import LibraryModule, Module
from tilewright.support.errors import TuneError
from tilewright.support.version import __version__
from tilewright.target import Target
from tilewright.target.host import core_identity

# Processes of a device inherit this, so that those that outlive their owner can be found.
_MARK = "TILEWRIGHT_FARM_DEVICE"


@dataclass(frozen=True)
class About:
    """What a worker says about itself: its machine, version, and (devices) native target."""

    host: str
    version: str
    pid: int
    target: str = ""


@dataclass(frozen=True)
class Built:
    """A candidate that was built elsewhere: without texts, but with the kinds there are."""

    result: BuilderResult
    kinds: tuple[str, ...] = ()


class Bare(NamedTuple):
    """A ``RunnerInput`` without its reference, which the device has already."""

    module: Module | LibraryModule
    best_seconds: float | None
    packed: tuple[PackedOperand, ...]
    varies: bool


@dataclass(frozen=True)
class Measurement:
    """Candidates to measure, one at a time or (``rounds``) against each other.

    ``references`` are those that the device hasn't been sent yet; ``keys`` say which is whose.
    Without candidates the device prepares for them. They are functions of a graph with so many
    ``constant_bytes``, if any.
    """

    inputs: tuple[Bare, ...]
    keys: tuple[str, ...]
    references: tuple[Reference, ...] = ()
    rounds: int = 0
    constant_bytes: int = 0


@dataclass(frozen=True)
class NoReference:
    """The unscheduled program of a task can't be run on this device."""

    message: str


class BuildWorker:
    """Compiles candidates, each in a process of its own."""

    def __init__(self, f_build: BuildFunction | None) -> None:
        options: dict[str, Any] = {} if f_build is None else {"f_build": f_build}
        self._builder = LocalBuilder(1, **options)

    def about(self) -> About:
        """Describe this worker."""
        return About(platform.node(), __version__, os.getpid())

    def work(self, message: tuple[tuple[BuilderInput, ...], float]) -> list[Built]:
        """Compile candidates, within so many seconds for each."""
        inputs, self._builder.timeout_sec = message
        return [_bare(result) for result in self._builder.build(inputs)]


def _bare(result: BuilderResult) -> Built:
    if not isinstance(result.module, Module):
        return Built(result)
    kinds = tuple(result.module.code.sources)
    return Built(replace(result, module=result.module.with_sources({})), kinds)


class DeviceWorker:
    """Measures candidates on one device, which nobody else uses: number N of ``count`` here.

    Several devices of one machine share its cores out.
    """

    def __init__(
        self,
        label: str,
        count: int,
        evaluator_config: EvaluatorConfig | None,
        timeout_sec: float,
        reference_timeout_sec: float,
        num_threads: int | None,
    ) -> None:
        self._slot, self._lock = take_slot(label, count)
        if count > 1:
            os.sched_setaffinity(0, share_of_cores(self._slot, count))
        os.environ[_MARK] = f"{label}-{self._slot}"
        self._alone = self._runner = LocalRunner(
            timeout_sec,
            evaluator_config,
            reference_timeout_sec=reference_timeout_sec,
            num_threads=num_threads,
        )
        self._constant_bytes = 0
        self._references: dict[str, Reference] = {}

    def about(self) -> About:
        """Describe this device."""
        target = str(Target("native"))
        return About(platform.node(), __version__, os.getpid(), target)

    def work(self, message: Measurement) -> list[RunnerResult] | NoReference:
        """Measure candidates."""
        if message.constant_bytes != self._constant_bytes:
            self._runner.close()
            self._constant_bytes = message.constant_bytes
            self._runner = self._alone.in_graph(message.constant_bytes)
        for reference in message.references:
            self._references[reference.key] = reference
            if not message.inputs:
                self._runner.prepare(reference)
        inputs = [
            RunnerInput(reference=self._references[key], **item._asdict())
            for item, key in zip(message.inputs, message.keys)
        ]
        try:
            if message.rounds:
                return self._runner.race(inputs, message.rounds)
            return list(self._runner.run(inputs))
        except NoReferenceError as error:
            return NoReference(error.message)


def share_of_cores(number: int, count: int) -> set[int]:
    """Return the cores of one of ``count`` devices of this machine; siblings stay together.

    Raises ``TuneError`` if there are fewer cores than devices.
    """
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (core_identity(core), core))
    if len(cores) < count:
        raise TuneError(f"{count} devices need {count} cores, but there are {len(cores)}")
    return set(cores[number * len(cores) // count : (number + 1) * len(cores) // count])


def take_slot(label: str, count: int) -> tuple[int, IO[str]]:
    """Take the first free one of a label's ``count`` devices on this machine.

    It is free again when this process ends or the file is closed. What a previous owner has left
    running there is ended first. Raises ``TuneError`` if all are in use.
    """
    folder = Path(tempfile.gettempdir()) / f"tilewright-devices-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(count):
        # Not with `with`: the lock is held as long as the file is open.
        lock = (folder / f"{label}-{number}").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _end_leftovers(f"{label}-{number}")
        return number, lock
    raise TuneError(f"all {count} devices {label!r} of this machine are in use by other processes")


def _end_leftovers(device: str) -> None:
    """End measuring processes whose owner was killed: they would disturb the next measurement."""
    mark = f"{_MARK}={device}".encode()
    for pid in _processes():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is not ours
        if mark in environment and pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    proc = Path("/proc")
    names = os.listdir(proc) if proc.is_dir() else []
    return [int(name) for name in names if name.isdecimal()]
