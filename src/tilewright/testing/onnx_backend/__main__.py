"""``python -m tilewright.testing.onnx_backend``: ONNX's own backend tests.

Each is imported, compiled by rule, run and compared, in processes with a limit of time. Prints how
many passed, how many of them with inputs fixed at import, and why others didn't. Ends with 1 if a
test failed; what isn't supported is listed, but is no failure.

    python -m tilewright.testing.onnx_backend --kind node,simple --tests '*conv*' --jobs 2
"""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from tilewright.support.errors import TilewrightError
from tilewright.testing.onnx_backend.check import (
    FAILED,
    FIXED,
    OUTSIDE,
    PASSED,
    UNSUPPORTED,
    cases,
    check,
)

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 if a test failed."""
    args = _arguments().parse_args(argv)
    failed = False
    for kind in args.kind.split(","):
        found = {
            name: case
            for name, case in cases(kind).items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in args.tests.split(","))
            and (args.all_domains or _is_default(case))
        }
        outcomes = _run(found, args.jobs, args.limit)
        print(f"{kind}: {summary(outcomes, args.names)}", flush=True)
        failed |= any(status == FAILED for status, _ in outcomes.values())
    return int(failed)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.testing.onnx_backend",
        description="ONNX's backend tests, by the importer and the compiler.",
    )
    add = parser.add_argument
    add("--kind", default="node", help=f"with commas between: {', '.join(KINDS)}")
    add("--tests", default="*", help="patterns of names, with commas between: '*conv*,test_add'")
    add("--all-domains", action="store_true", help="also tests of ai.onnx.ml and others")
    add("--limit", type=float, default=120.0, help="seconds for one test")
    add("--jobs", type=int, default=2, help="processes")
    add("--names", action="store_true", help="print the names of tests that didn't pass")
    return parser


def _is_default(case: Any) -> bool:
    if case.model is None:
        return True
    return all(node.domain in ("", "ai.onnx") for node in case.model.graph.node)


def summary(outcomes: Mapping[str, tuple[str, str]], names: bool = False) -> str:
    """Counts by status, then the reasons for what didn't pass."""
    counts = Counter(status for status, _ in outcomes.values())
    good = counts[PASSED] + counts[FIXED]
    judged = len(outcomes) - counts[OUTSIDE]
    share = good / judged if judged else 1.0
    lines = [
        f"{good} of {judged} passed ({share:.1%}), {counts[FIXED]} of them with inputs fixed; "
        f"{counts[FAILED]} failed, {counts[UNSUPPORTED]} unsupported; {counts[OUTSIDE]} more are "
        "about texts, pictures or random numbers"
    ]
    by_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (status, reason) in outcomes.items():
        if status not in (PASSED, FIXED):
            by_reason[status, reason if names else _without_node(reason)].append(name)
    for (status, reason), tests in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {len(tests):4}  {status}: {reason}  [{tests[0]}]")
        if names:
            lines.extend(f"          {name}" for name in tests[1:])
    return "\n".join(lines)


def _without_node(reason: str) -> str:
    """A reason that is the same for all nodes of an operator."""
    before, found, after = reason.partition(" (node ")
    return f"{before}{after[after.find(')') + 1 :]}" if found else reason


def _run(found: Mapping[str, object], jobs: int, limit: float) -> dict[str, tuple[str, str]]:
    waiting = list(found)[::-1]
    workers: list[_Worker] = []
    outcomes: dict[str, tuple[str, str]] = {}
    start = shown = time.monotonic()
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(_Worker(found, limit))
                workers[-1].begin(waiting.pop())
            wait([worker.connection for worker in workers], timeout=0.5)
            for worker in list(workers):
                outcome = worker.heard()
                if outcome is None:
                    continue
                outcomes[worker.name] = outcome
                if worker.alive and waiting:
                    worker.begin(waiting.pop())
                else:
                    worker.stop()
                    workers.remove(worker)
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"{shown - start:6.0f} s  {len(waiting)} tests are left", flush=True)
    finally:
        for worker in workers:
            worker.stop()
    return outcomes


class _Worker:
    """A process that runs one test after the other."""

    def __init__(self, found: Mapping[str, object], limit: float) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self._limit = limit
        self._process = multiprocessing.get_context("fork").Process(
            target=_check_all, args=(theirs, found), daemon=True
        )
        self._process.start()
        theirs.close()
        self.alive = True

    def begin(self, name: str) -> None:
        """Let it run a test."""
        self.name = name
        self._since = time.monotonic()
        self.connection.send(name)

    def heard(self) -> tuple[str, str] | None:
        """The outcome of its test, if it has ended, died or takes too long."""
        try:
            if self.connection.poll():
                status, reason = self.connection.recv()
                return status, reason
        except (EOFError, ConnectionError):
            self.alive = False
            self._process.join()
            return FAILED, f"the process died with exit status {self._process.exitcode}"
        if time.monotonic() - self._since > self._limit:
            self.alive = False
            return FAILED, f"no result within {self._limit:g} s"
        return None

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _check_all(connection: Connection, found: Mapping[str, object]) -> None:
    parent = os.getppid()
    while True:
        while not connection.poll(1.0):
            if os.getppid() != parent:
                return
        try:
            name = connection.recv()
        except EOFError:
            return
        try:
            outcome = check(found[name])
            connection.send((outcome.status, outcome.reason))
        except TilewrightError as error:
            connection.send((FAILED, f"{type(error).__name__}: {str(error).splitlines()[0]}"))
        except Exception as error:  # a fault of ours, to be reported like the others
            connection.send((FAILED, f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    raise SystemExit(main())
