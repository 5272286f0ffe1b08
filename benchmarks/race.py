"""Subjects take turns: each in a process made for the race, with its threads pinned.

A turn begins when the threads of all other subjects sleep: many libraries let theirs spin for up
to a tenth of a second after a call (OpenMP, OpenBLAS, onnxruntime), which takes a core from
whoever comes next. It begins with calls that aren't timed, since the subject's own caches are cold
and its threads asleep by then. That holds for all subjects alike, ours included. Only calls on
undisturbed cores count (``support.interference``), as far as patience allows; what had to be
measured on disturbed ones is marked.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.support.interference import is_undisturbed, tick

ROOT = Path(__file__).parents[1]

#: Longest wait for the other subjects' threads to sleep, seconds; they are looked at so often, and
#: must be found asleep so many times in a row.
_LONGEST_WAIT, _LOOK, _LOOKS = 1.0, 0.001, 3

#: So many ticks before a race give a first idea of the fastest.
_TICKS = 50

#: Subjects that take longer than so many seconds a call run in one round only.
_ONCE = 1.0


class Subject:
    """A process that measures one thing at a time when asked."""

    def __init__(self, threads: int, environment: Mapping[str, str]) -> None:
        cores = sorted(os.sched_getaffinity(0))[:threads]
        limits = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
            str(threads),
        )
        path = os.pathsep.join(
            item for item in (str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH")) if item
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, **limits, "PYTHONPATH": path},
        )
        os.sched_setaffinity(self.process.pid, cores)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, return the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"error": f"the process ended (code {self.process.wait()})"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def busy(self) -> bool:
        """Whether a thread of the process runs, or would if it had a core."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        for task in tasks.iterdir() if tasks.exists() else ():
            with contextlib.suppress(OSError):  # the thread has ended
                if (task / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                    return True
        return False

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


@dataclass
class Measured:
    """What a subject did in a race: seconds per call and tick (of a ``Watch``) by round."""

    info: dict[str, Any]
    rounds: list[float] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    fastest_tick: float = float("inf")
    error: str | None = None
    unavailable: str | None = None

    @property
    def runs(self) -> bool:
        """Whether the subject takes part."""
        return self.error is None and self.unavailable is None

    @property
    def is_wrong(self) -> bool:
        """Whether what the subject computes isn't what the others compute."""
        difference = self.info.get("difference", 0.0)
        return self.runs and not difference <= self.info.get("limit", 1e-4)

    @property
    def seconds(self) -> float | None:
        """Median over the undisturbed rounds, or over all if there are none."""
        if not (self.rounds and self.runs):
            return None
        return statistics.median(self._quiet_rounds or self.rounds)

    @property
    def disturbed(self) -> bool:
        """Whether no round ran on undisturbed cores."""
        return bool(self.rounds) and not self._quiet_rounds

    @property
    def _quiet_rounds(self) -> list[float]:
        ticked = zip(self.rounds, self.ticks)
        return [seconds for seconds, tick in ticked if is_undisturbed(tick, self.fastest_tick)]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "seconds": self.seconds,
            "rounds": self.rounds,
            "disturbed": self.disturbed,
            "error": self.error,
            "unavailable": self.unavailable,
            **self.info,
        }


def race(
    subjects: Mapping[str, Mapping[str, Any]],
    threads: int,
    rounds: int = 7,
    burst: float = 0.05,
    patience: float = 1.0,
    environment: Mapping[str, str] | None = None,
    clock: str = "wall",
) -> dict[str, Measured]:
    """Make each subject ready in a fresh process, then let them run in turn.

    A turn takes about ``burst`` seconds, and up to ``patience`` seconds more while the cores are
    disturbed; each subject has one every round. ``environment`` is what processes are told besides.
    With the ``clock`` "processor", its seconds count, on cores that others use too.
    """
    with contextlib.ExitStack() as stack:
        running: dict[str, Subject] = {}
        for name in subjects:
            running[name] = Subject(threads, environment or {})
            stack.callback(running[name].close)
        results = {}
        fastest_tick = min(tick(threads) for _ in range(_TICKS))
        for name, wanted in subjects.items():
            _wait_until_idle(running.values())
            info = running[name].ask({"prepare": dict(wanted)})
            error, unavailable = info.pop("error", None), info.pop("unavailable", None)
            results[name] = Measured(info, error=error, unavailable=unavailable)
        for _ in range(rounds):
            for name, result in results.items():
                if not result.runs or (result.rounds and result.rounds[-1] > _ONCE):
                    continue
                _wait_until_idle(running.values())
                wanted = {"run": burst, "patience": patience, "fastest_tick": fastest_tick}
                answer = running[name].ask({**wanted, "clock": clock})
                result.error = answer.get("error")
                if result.error is None:
                    result.rounds.append(answer["seconds"])
                    result.ticks.append(answer["tick"])
                    fastest_tick = min(fastest_tick, answer["fastest_tick"])
    for result in results.values():
        result.fastest_tick = fastest_tick
    return results


def _wait_until_idle(subjects: Collection[Subject]) -> None:
    """Wait until no thread of any subject runs, for a second at most."""
    deadline = time.perf_counter() + _LONGEST_WAIT
    quiet = 0
    while quiet < _LOOKS and time.perf_counter() < deadline:
        quiet = 0 if any(subject.busy for subject in subjects) else quiet + 1
        time.sleep(_LOOK)


def ratio(ours: Measured, peer: Measured) -> float | None:
    """Return the peer's time over ours; none if a result is wrong, which may be no work at all."""
    if ours.seconds is None or peer.seconds is None or ours.is_wrong or peer.is_wrong:
        return None
    return peer.seconds / ours.seconds


def complaints(results: Mapping[str, Measured]) -> Sequence[str]:
    """Return what went wrong, one line each."""
    found = [f"{name}: {item.error}" for name, item in results.items() if item.error]
    found += [
        f"{name}: wrong, relative difference {item.info['difference']:.1e}"
        for name, item in results.items()
        if item.is_wrong
    ]
    late = [name for name, item in results.items() if item.disturbed]
    found += [f"measured on disturbed cores: {', '.join(late)}"] if late else []
    return found
