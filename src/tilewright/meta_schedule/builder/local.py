"""Compiles candidates in forked processes of this machine.

Workers are forked for the candidates that are there, so they inherit them without serialisation,
and nothing is compiled in this process. They read candidate indices from one pipe and answer
through another. A worker that crashes or exceeds the deadline loses only its candidate: a new one
is forked.
"""

from __future__ import annotations

import fcntl
import gc
import math
import os
import pickle
import select
import signal
import struct
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tilewright import driver
from tilewright.codegen.llvm.jit import keep_switches
from tilewright.meta_schedule.builder.base import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.packing import split_packing
from tilewright.runtime import LibraryModule, Module
from tilewright.support.collector import few_collections
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.support.limits import limit_memory, physical_memory
from tilewright.target import Target, host

_NUMBER = struct.Struct("<i")
_HEADER = struct.Struct("<iq")  # candidate, bytes that follow; -1 bytes: work on it has begun
_BEGUN = -1
_MOST_BYTES = 1 << 34  # of an answer

# How many times as long as a batch's faster ones so far a candidate may take, from how many results
# on, and how many seconds it may take in any case: code that is so large isn't fast.
_PATIENCE, _RESULTS, _LEAST_SECONDS = 4.0, 2, 2.0

# Machines with fewer cores build and measure by turns: a build disturbs what is measured there.
_FEWEST_CORES = 4
# While more inputs are made, a process is forked for so many: that takes as long as making one.
_FEWEST_TOGETHER = 4
# Milliseconds to wait for answers at once, and bytes of them that wait for us.
_WAIT, _PIPE_BYTES = 50, 1 << 20

# What a process may take on any machine.
_LEAST_MEMORY = 1 << 30

BuildFunction = Callable[[BuilderInput], Module]


def default_build(candidate: BuilderInput) -> Module:
    """Lower and compile one candidate; the packing of constant operands is compiled separately."""
    with few_collections():
        mod, _ = split_packing(candidate.mod)
        lowered = driver.lower(mod, candidate.target)
        return driver.build(lowered, candidate.target, max_lines=candidate.max_lines)


@dataclass(frozen=True)
class _Text:
    """A text of a module that a worker built: made here on demand, by building it again."""

    build: BuildFunction
    candidate: BuilderInput
    kind: str

    def __call__(self) -> str:
        return self.build(self.candidate).get_source(self.kind)

    def __reduce__(self) -> tuple[object, ...]:
        return str, (self(),)


def with_texts(
    module: Module, kinds: Iterable[str], build: BuildFunction, candidate: BuilderInput
) -> Module:
    """Return a module that came without its texts, of these kinds; they are made on demand."""
    return module.with_sources({kind: _Text(build, candidate, kind) for kind in kinds})


class LocalBuilder(Builder):
    """``max_workers`` processes (default: the machine's cores), ``timeout_sec`` per candidate.

    A process may take ``memory_bytes`` (default: its share of half of the machine's). A candidate
    that takes far longer than the previous ones of its batch is abandoned earlier. ``f_build``
    compiles one candidate; its exception becomes the candidate's error. Workers send only code: a
    module's texts are made on demand.

    With ``overlap`` later candidates of a batch are built while earlier ones are measured, on the
    cores that neither the candidates nor the tuner use; by default on machines of at least 4 cores,
    if there are such cores. It changes neither results nor their order.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: BuildFunction = default_build,
        memory_bytes: int | None = None,
        overlap: bool | None = None,
    ) -> None:
        self.overlap = overlap
        self.max_workers = max_workers or host.core_count()
        self.timeout_sec = timeout_sec
        self.f_build = f_build
        total = physical_memory()
        share = None if total is None else max(_LEAST_MEMORY, total // 2 // self.max_workers)
        self.memory_bytes = memory_bytes or share
        self._builds: _Builds | None = None
        if self.max_workers < 1 or timeout_sec <= 0:
            raise TuneError("LocalBuilder needs at least one worker and a positive timeout")

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Compile all inputs; one result each, in order.

        Raises ``TuneError`` for ``params``: programs have their constants as arguments.
        """
        return list(self._each(build_inputs, 0))

    def build_each(self, inputs: Iterable[BuilderInput]) -> Generator[BuilderResult, None, None]:
        """Compile all inputs; yield one result each, in order; see ``overlap``.

        While inputs are still being made, those that are there are compiled on the other cores.
        """
        if type(self).build is LocalBuilder.build:
            yield from self._each(inputs, None)
        else:
            yield from self.build(list(inputs))  # a subclass says how it is done

    @property
    def is_building(self) -> bool:
        """Whether processes compile inputs now."""
        return self._builds is not None and bool(self._builds.workers)

    def _each(
        self, inputs: Iterable[BuilderInput], beside: int | None
    ) -> Generator[BuilderResult, None, None]:
        """Compile inputs, in ``beside`` processes while results are used (``None``: see there)."""
        builds = self._builds = _Builds(self)
        come_slowly = not isinstance(inputs, Sequence)
        try:
            for candidate in inputs:
                if candidate.params:
                    raise TuneError("LocalBuilder binds no params: give a builder of your own")
                builds.add(candidate)
                if come_slowly:
                    most = self._beside([candidate]) or min(self.max_workers, _other_cores())
                    builds.advance(most, _FEWEST_TOGETHER)
            beside = self._beside(builds.inputs) if beside is None else beside
            yield from builds.each(beside or self.max_workers, all_first=not beside)
        finally:
            builds.close()
            if self._builds is builds:
                self._builds = None

    def _beside(self, inputs: Sequence[BuilderInput]) -> int:
        """Return how many processes may build while candidates are measured; 0 if none."""
        if self.overlap is False or not inputs:
            return 0
        spare = _other_cores() - max(candidate.target.num_cores for candidate in inputs)
        if self.overlap is None and (host.core_count() < _FEWEST_CORES or spare < 1):
            return 0
        return max(1, min(self.max_workers, spare))


def _other_cores() -> int:
    """Return the number of cores that this process doesn't need itself."""
    return host.core_count() - 1


def _warm_up(target: Target) -> None:
    """Import what every worker needs before forking, so that it is imported once."""
    if target.kind == "llvm":
        import llvmlite.binding  # noqa: F401  (optional at import time, needed by all workers)


@dataclass
class _Share:
    """Inputs that processes were forked for: these read their numbers from a pipe."""

    numbers: range
    jobs_read: int
    jobs_write: int
    queued: int = 0


@dataclass
class _Worker:
    pid: int
    pipe: int
    share: _Share
    data: bytearray = field(default_factory=bytearray)
    busy_with: int | None = None
    since: float = 0.0


class _Builds:
    """Inputs that come one by one, and the processes that compile them.

    A process knows the inputs that were there when it was forked. So those that have come since the
    last time are a share of their own, which one or several processes are forked for.
    """

    def __init__(self, builder: LocalBuilder) -> None:
        self.builder = builder
        self.inputs: list[BuilderInput] = []
        self.results: list[BuilderResult | None] = []
        self.workers: dict[int, _Worker] = {}
        self.shares: list[_Share] = []
        self.begun = 0  # inputs that are in a share
        self.begun_again: set[int] = set()
        # Processes that may end without a candidate to blame before we give up on new ones.
        self.spare = builder.max_workers

    def add(self, candidate: BuilderInput) -> None:
        """Take an input."""
        self.inputs.append(candidate)
        self.results.append(None)

    def each(self, count: int, *, all_first: bool) -> Generator[BuilderResult, None, None]:
        """Build what is left in ``count`` processes; yield results in order."""
        missing = BuilderResult(None, "the build process ended without an answer", "build-crash")
        if all_first:
            for number in range(len(self.inputs)):
                self.wait(number, count)
        for number in range(len(self.inputs)):
            yield self.wait(number, count) or missing

    def wait(self, number: int, count: int) -> BuilderResult | None:
        """Return a result when it is there; ``None`` if nobody is left who could give it."""
        self.advance(count, 1)  # whoever has waited for room in a pipe goes on
        while self.results[number] is None and (self._may_come(number) or self._again(number)):
            self.builder.check_time()
            self.poll(math.ceil(min(_WAIT, 1e3 * self.builder.seconds_left)))
            self.advance(count, 1)
        return self.results[number]

    def _may_come(self, number: int) -> bool:
        if number >= self.begun:
            return True
        return any(number in worker.share.numbers for worker in self.workers.values())

    def _again(self, number: int) -> bool:
        """Fork for an input, once, that a process had taken when it was ended for another one."""
        if number in self.begun_again:
            return False
        self.begun_again.add(number)
        self.fork(self._share(range(number, number + 1)))
        return True

    def _share(self, numbers: range) -> _Share:
        share = _Share(numbers, *os.pipe())
        os.set_blocking(share.jobs_write, False)
        self.shares.append(share)
        self.feed(share)
        return share

    def advance(self, most: int, fewest: int) -> None:
        """Read answers; fork for ``fewest`` new inputs, up to ``most`` processes in all."""
        for share in self.shares:
            self.feed(share)
        self.poll(0)
        new = len(self.inputs) - self.begun
        if new >= fewest and len(self.workers) < most:
            for target in {candidate.target for candidate in self.inputs[self.begun :]}:
                _warm_up(target)
            share = self._share(range(self.begun, len(self.inputs)))
            self.begun = len(self.inputs)
            for _ in range(min(most - len(self.workers), -(-new // fewest))):
                self.fork(share)
        for share in self.shares if fewest == 1 else ():
            own = sum(worker.share is share for worker in self.workers.values())
            left = sum(self.results[number] is None for number in share.numbers) if own else 0
            for _ in range(min(left - own, most - len(self.workers))):
                self.fork(share)

    def feed(self, share: _Share) -> None:
        """Write numbers to a share's pipe while it accepts them; close it after the last."""
        while share.jobs_write >= 0:
            if share.queued == len(share.numbers):
                os.close(share.jobs_write)
                share.jobs_write = -1
                break
            try:
                os.write(share.jobs_write, _NUMBER.pack(share.numbers[share.queued]))
            except BlockingIOError:
                break
            share.queued += 1

    def fork(self, share: _Share) -> None:
        """Start a worker."""
        read_end, write_end = os.pipe()
        with suppress(OSError, AttributeError):  # else it has to wait for us more often
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        # An interrupt between the fork and the child's own handling would run our caller's code in
        # the child.
        allowed = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            pid = os.fork()
            if pid == 0:
                self.child(share, read_end, write_end, allowed)
            os.close(write_end)
            self.workers[read_end] = _Worker(pid, read_end, share)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, allowed)

    def child(self, share: _Share, read_end: int, pipe: int, allowed: Iterable[int]) -> None:
        """Work until no candidate is left; never returns."""
        status = 1
        try:
            for ignored in (signal.SIGINT, signal.SIGTERM):  # they are the parent's business
                signal.signal(ignored, signal.SIG_IGN)
            # If the parent is gone, nobody else ends a compilation that hangs.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, allowed)
            os.close(read_end)
            for other in self.shares:
                if other.jobs_write >= 0:
                    os.close(other.jobs_write)
            limit_memory(self.builder.memory_bytes)
            gc.freeze()  # what the parent has made: collections here needn't look at it
            keep_switches()
            while len(number := os.read(share.jobs_read, _NUMBER.size)) == _NUMBER.size:
                (index,) = _NUMBER.unpack(number)
                os.write(pipe, _HEADER.pack(index, _BEGUN))
                signal.setitimer(signal.ITIMER_REAL, 2 * self.builder.timeout_sec + 5)
                payload = self.compile(self.inputs[index])
                _write_all(pipe, _HEADER.pack(index, len(payload)) + payload)
            status = 0
        finally:
            os._exit(status)

    def compile(self, candidate: BuilderInput) -> bytes:
        """Compile one candidate; returns the pickled result."""
        start = time.perf_counter()
        try:
            module = self.builder.f_build(candidate)
            if not isinstance(module, Module | LibraryModule):
                raise TuneError(f"f_build must return a module, got {type(module).__name__}")
            kinds: tuple[str, ...] = ()
            if isinstance(module, Module):
                kinds, module = tuple(module.code.sources), module.with_sources({})
            seconds = time.perf_counter() - start
            return pickle.dumps((BuilderResult(seconds=seconds, module=module), kinds))
        except TilewrightError as error:
            text = str(error)
        except MemoryError:
            text = f"compiling took more than {self.builder.memory_bytes} bytes of memory"
        except Exception as error:  # a bug: it costs this candidate, and is reported as such
            text = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - start
        return pickle.dumps((BuilderResult(None, text, "build", seconds), ()))

    def received(self, index: int, payload: bytes) -> BuilderResult:
        """Read a result, and say where the module's texts come from."""
        # Sent by our own child, not by a stranger.
        result: BuilderResult
        result, kinds = pickle.loads(payload)
        if not (isinstance(result.module, Module) and kinds):
            return result
        module = with_texts(result.module, kinds, self.builder.f_build, self.inputs[index])
        return replace(result, module=module)

    def limit(self) -> float:
        """Seconds that a candidate may take now."""
        known = sorted(item.seconds for item in self.results if item is not None)
        if len(known) < _RESULTS:
            return self.builder.timeout_sec
        usual = known[len(known) // 4]  # half of them may be too large
        return min(self.builder.timeout_sec, max(_LEAST_SECONDS, _PATIENCE * usual))

    def poll(self, milliseconds: int) -> None:
        """Wait for messages from the workers; end those that exceed the deadline."""
        poller = select.poll()
        for pipe in self.workers:
            poller.register(pipe, select.POLLIN)
        for pipe, _ in poller.poll(milliseconds):
            self.receive(self.workers[pipe])
        now, limit = time.monotonic(), self.limit()
        for worker in list(self.workers.values()):
            index = worker.busy_with
            if index is not None and now - worker.since > limit:
                text = f"compiling took longer than {limit:.3g} s"
                self.results[index] = BuilderResult(None, text, "build-timeout", now - worker.since)
                self.bury(worker, kill=True)
                self.fork(worker.share)

    def receive(self, worker: _Worker) -> None:
        """Receive a worker's message, or notice its end."""
        data = os.read(worker.pipe, 1 << 20)
        if not data:
            index = worker.busy_with
            status = self.bury(worker)
            if index is not None and self.results[index] is None:
                text = f"the build process died ({_death(status)})"
                self.results[index] = BuilderResult(None, text, "build-crash")
                self.fork(worker.share)
            elif status != 0 and self.spare > 0:
                self.spare -= 1
                self.fork(worker.share)
            return
        worker.data += data
        while len(worker.data) >= _HEADER.size:
            index, length = _HEADER.unpack_from(worker.data)
            if not (0 <= index < len(self.results) and _BEGUN <= length <= _MOST_BYTES):
                self.give_up(worker)
                return
            if length == _BEGUN:
                worker.busy_with, worker.since = index, time.monotonic()
                del worker.data[: _HEADER.size]
                continue
            if len(worker.data) < _HEADER.size + length:
                break
            payload = bytes(worker.data[_HEADER.size : _HEADER.size + length])
            del worker.data[: _HEADER.size + length]
            try:
                self.results[index] = self.received(index, payload)
            except Exception:  # of whatever kind: it isn't what ``compile`` has sent
                self.give_up(worker)
                return
            worker.busy_with = None
        if worker.data:  # it is compiled, and its answer is on the way
            worker.since = time.monotonic()

    def give_up(self, worker: _Worker) -> None:
        """End a worker into whose pipe the candidate that it compiles has written."""
        index = worker.busy_with
        self.bury(worker, kill=True)
        if index is not None:
            text = "compiling it wrote into the pipe of the build process"
            self.results[index] = BuilderResult(None, text, "build-crash")
        elif self.spare > 0:
            self.spare -= 1
        else:
            return
        self.fork(worker.share)

    def bury(self, worker: _Worker, kill: bool = False) -> int:
        """Forget a worker; returns its exit status."""
        if kill:
            os.kill(worker.pid, signal.SIGKILL)
        _, status = os.waitpid(worker.pid, 0)
        os.close(worker.pipe)
        del self.workers[worker.pipe]
        return status

    def close(self) -> None:
        """End the processes."""
        for worker in list(self.workers.values()):
            self.bury(worker, kill=True)
        for share in self.shares:
            for pipe in (share.jobs_read, share.jobs_write):
                if pipe >= 0:
                    os.close(pipe)


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.WEXITSTATUS(status)}"


def _write_all(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]
