"""Runs cases in child processes under limits, and says of each how it ended.

A child checks one case after the other until one of them kills it; the next case then gets a new
child. Children are forked, so they start with everything imported. The limit of the processor's
time is set anew for each case, as a signal that ends the process: code in C can't hold it up.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random

from tilewright.support.limits import limit_memory
from tilewright.testing.hostile.kind import EVENTS, Case, Fault, Kind, Limits

# Seconds of the clock, before a child counts as hanging: for one of the processor, and at least
# (a busy machine keeps a child waiting).
_CLOCK, _LEAST_CLOCK = 6.0, 30.0


@dataclass(frozen=True)
class Result:
    """How a case ended. ``fault`` says what is wrong, if anything."""

    number: int
    case: Case
    outcome: str
    fault: str = ""


def make_case(kind: Kind, seed: int, number: int) -> Case:
    """Make the case of a number."""
    return kind.make(Random(f"{seed}:{number}"))


def run_cases(kind: Kind, seed: int, numbers: Iterator[int] | range) -> Iterator[Result]:
    """Check cases in order; yields how each ended."""
    kind.prepare()
    child: _Child | None = None
    try:
        for number in numbers:
            case = make_case(kind, seed, number)
            if child is None:
                child = _Child(kind)
            result = child.run(number, case)
            if result is None:
                result = Result(number, case, "dead process", child.end())
                child = None
            yield result
    finally:
        if child is not None:
            child.end()


class _Child:
    """A process that checks cases."""

    def __init__(self, kind: Kind) -> None:
        self.limits = kind.limits
        self.patience = max(_CLOCK * kind.limits.seconds, _LEAST_CLOCK)
        self.connection, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(theirs, self.connection, kind)
        )
        sys.stdout.flush()
        self.process.start()
        theirs.close()
        self.late = False

    def run(self, number: int, case: Case) -> Result | None:
        """Let the child check a case; ``None`` if that ended the child, or didn't end."""
        try:
            self.connection.send(case.payload)
            if not self.connection.poll(self.patience):
                self.late = True
                return None
            outcome, fault = self.connection.recv()
        except (EOFError, ConnectionError):
            return None
        return Result(number, case, outcome, fault)

    def end(self) -> str:
        """Stop the process; says how it ended if it did so by itself."""
        if not self.late:
            self.connection.close()
            self.process.join(timeout=_CLOCK)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        if self.late:
            return f"no answer within {self.patience:g} s"
        if code == -signal.SIGXCPU:
            return f"more than {self.limits.seconds:g} s of processor time"
        return f"the process ended with {signal.Signals(-code).name if code < 0 else code}"


def _serve(connection: Connection, parents: Connection, kind: Kind) -> None:
    """Check what comes through the connection, in the child."""
    parents.close()  # so that the end of the parent's is the end of the connection
    warnings.simplefilter("ignore")
    watch = _Watch(kind.limits.harmless) if kind.limits.watch else None
    limit_memory(kind.limits.memory or None)
    while True:
        try:
            payload = connection.recv()
        except EOFError:
            return
        _limit_time(kind.limits)
        connection.send(_checked(kind, payload, watch))


def _checked(kind: Kind, payload: object, watch: _Watch | None) -> tuple[str, str]:
    try:
        with watch or contextlib.nullcontext():
            outcome = kind.check(payload)
        events = watch.seen if watch is not None else []
        return (outcome, f"caused {'; '.join(events[:5])}" if events else "")
    except Fault as fault:
        return "fault", str(fault)
    except BaseException as error:  # whatever it is, it is what this looks for
        lines = traceback.format_exception(error, limit=-6)
        return type(error).__name__, "".join(lines)[-4000:]


class _Watch:
    """An audit hook that notes forbidden events while it is entered."""

    def __init__(self, harmless: tuple[str, ...]) -> None:
        self.harmless = harmless
        self.active = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def __enter__(self) -> None:
        self.seen = []
        self.active = True

    def __exit__(self, *_: object) -> None:
        self.active = False

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.active or not event.startswith(EVENTS):
            return
        self.active = False  # looking at the arguments must not be noted itself
        text = f"{event} {str(arguments)[:200]}"
        if not self.harmless or not text.startswith(self.harmless):
            self.seen.append(text)
        self.active = True


def _limit_time(limits: Limits) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    until = int(usage.ru_utime + usage.ru_stime + limits.seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard))


def leave_no_dumps() -> None:
    """Keep processes that die from writing their memory to disk."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
