"""Subjects take turns: each in a fresh process, with its threads pinned."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


class Subject:
    """A process that measures one thing when asked."""

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

    @property
    def seconds(self) -> float | None:
        """Median over the rounds."""
        return statistics.median(self.rounds) if self.rounds and self.error is None else None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"seconds": self.seconds, "rounds": self.rounds, "error": self.error, **self.info}


def race(
    subjects: Mapping[str, Mapping[str, Any]], threads: int, rounds: int = 7, burst: float = 0.05
) -> dict[str, Measured]:
    """Prepare each subject, then let them run in turn for ``burst`` seconds, ``rounds`` times."""
    running = {name: Subject(threads) for name in subjects}
    try:
        results: dict[str, Measured] = {}
        for name, wanted in subjects.items():
            info = running[name].ask({"prepare": dict(wanted)})
            results[name] = Measured(info, error=info.pop("error", None))
        for _ in range(rounds):
            for name, result in results.items():
                if result.error is None:
                    answer = running[name].ask({"run": burst})
                    result.error = answer.get("error")
                    if result.error is None:
                        result.rounds.append(answer["seconds"])
        return results
    finally:
        for subject in running.values():
            subject.close()


def ratio(ours: Measured, peer: Measured) -> float | None:
    """Return the peer's time over ours: the median over rounds, so that drift cancels."""
    if ours.seconds is None or peer.seconds is None:
        return None
    return statistics.median(b / a for a, b in zip(ours.rounds, peer.rounds))


def complaints(results: Mapping[str, Measured]) -> Sequence[str]:
    """Return what went wrong, one line each."""
    found = [f"{name}: {item.error}" for name, item in results.items() if item.error]
    found += [
        f"{name}: relative difference {item.info['difference']:.1e}"
        for name, item in results.items()
        if not item.error and item.info.get("difference", 0.0) > 1e-4
    ]
    return found
