"""Named checks in processes of their own: one that dies or takes too long fails, others go on."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait

Check = Callable[[str], tuple[str, str]]
"""Takes a check's name, returns how it ended and why."""

FAILED = "failed"


def check_all(
    names: Sequence[str], check: Check, jobs: int, limit: float, seconds: float = float("inf")
) -> dict[str, tuple[str, str]]:
    """How checks ended, by name, in some processes; one lasts up to ``limit`` seconds.

    After ``seconds`` no other is begun. Prints now and then how many are left.
    """
    waiting = list(names)[::-1]
    workers: list[_Worker] = []
    outcomes: dict[str, tuple[str, str]] = {}
    start = shown = time.monotonic()
    try:
        while waiting or workers:
            if time.monotonic() - start > seconds:
                waiting.clear()
            while waiting and len(workers) < jobs:
                workers.append(_Worker(check, limit))
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
                print(f"{shown - start:6.0f} s  {len(waiting)} are left", flush=True)
    finally:
        for worker in workers:
            worker.stop()
    return outcomes


class _Worker:
    """A process that runs one check after the other."""

    def __init__(self, check: Check, limit: float) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self._limit = limit
        self._process = multiprocessing.get_context("fork").Process(
            target=_work, args=(theirs, check), daemon=True
        )
        self._process.start()
        theirs.close()
        self.alive = True

    def begin(self, name: str) -> None:
        """Let it run a check."""
        self.name = name
        self._since = time.monotonic()
        self.connection.send(name)

    def heard(self) -> tuple[str, str] | None:
        """The outcome of its check, if it has ended, died or takes too long."""
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


def _work(connection: Connection, check: Check) -> None:
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
            connection.send(check(name))
        except Exception as error:  # a fault of ours, to be reported like the others
            connection.send((FAILED, f"{type(error).__name__}: {error}"))
