"""Subjects take turns: each in a fresh process, with its threads pinned."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

#: Seconds between turns with several threads: those of the last subject may spin for a while yet.
_PAUSE = 0.005

#: Subjects that take longer than so many seconds a call run in one round only.
_ONCE = 1.0


class Subject:
    """A process that measures one thing at a time when asked."""

    def __init__(self, threads: int) -> None:
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
            env={**os.environ, **limits, "PYTHONPATH": path},
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
    def ended(self) -> bool:
        """Whether the process is no more."""
        return self.process.poll() is not None

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


@dataclass
class Measured:
    """What a subject did in a race: seconds per call, one value per round."""

    info: dict[str, Any]
    rounds: list[float] = field(default_factory=list)
    error: str | None = None
    unavailable: str | None = None

    @property
    def runs(self) -> bool:
        """Whether the subject takes part."""
        return self.error is None and self.unavailable is None

    @property
    def seconds(self) -> float | None:
        """Median over the rounds."""
        return statistics.median(self.rounds) if self.rounds and self.runs else None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "seconds": self.seconds,
            "rounds": self.rounds,
            "error": self.error,
            "unavailable": self.unavailable,
            **self.info,
        }


class Race:
    """Holds a process per subject for several races; use it in a ``with`` statement."""

    def __init__(self, threads: int, rounds: int = 7, burst: float = 0.05) -> None:
        self.threads, self.rounds, self.burst = threads, rounds, burst
        self._running: dict[str, Subject] = {}

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *_: object) -> None:
        for subject in self._running.values():
            subject.close()
        self._running.clear()

    def run(self, subjects: Mapping[str, Mapping[str, Any]]) -> dict[str, Measured]:
        """Prepare each subject, then let them run in turn for ``burst`` seconds, every round."""
        results: dict[str, Measured] = {}
        for name, wanted in subjects.items():
            info = self._process(name).ask({"prepare": dict(wanted)})
            error, unavailable = info.pop("error", None), info.pop("unavailable", None)
            results[name] = Measured(info, error=error, unavailable=unavailable)
        for _ in range(self.rounds):
            for name, result in results.items():
                if not result.runs or (result.rounds and result.rounds[-1] > _ONCE):
                    continue
                if self.threads > 1:
                    time.sleep(_PAUSE)
                answer = self._process(name).ask({"run": self.burst})
                result.error = answer.get("error")
                if result.error is None:
                    result.rounds.append(answer["seconds"])
        return results

    def _process(self, name: str) -> Subject:
        found = self._running.get(name)
        if found is not None and found.ended:
            found.close()
            found = None
        if found is None:
            found = self._running[name] = Subject(self.threads)
        return found


def race(
    subjects: Mapping[str, Mapping[str, Any]], threads: int, rounds: int = 7, burst: float = 0.05
) -> dict[str, Measured]:
    """Run one race in processes that end with it."""
    with Race(threads, rounds, burst) as once:
        return once.run(subjects)


def ratio(ours: Measured, peer: Measured) -> float | None:
    """Return the peer's time over ours: the median over rounds, so that drift cancels."""
    if ours.seconds is None or peer.seconds is None:
        return None
    return statistics.median(b / a for a, b in zip(ours.rounds, peer.rounds))


def complaints(results: Mapping[str, Measured]) -> Sequence[str]:
    """Return what went wrong, one line each."""
    found = [f"{name}: {item.error}" for name, item in results.items() if item.error]
    found += [
        f"{name}: wrong, relative difference {item.info['difference']:.1e}"
        for name, item in results.items()
        if item.runs and item.info.get("difference", 0.0) > item.info.get("limit", 1e-4)
    ]
    return found
