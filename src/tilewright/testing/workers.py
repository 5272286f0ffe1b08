"""Named checks in processes of their own: one that dies or takes too much fails, others go on.

What a campaign of such checks has in common is here as well: its options, the file that keeps
outcomes so that a run can be taken up again, and its section of a page.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tilewright.support.errors import TilewrightError

Check = Callable[[str], tuple[str, str]]
"""Takes a check's name, returns how it ended and why."""
Outcomes = dict[str, tuple[str, str]]

FAILED = "failed"


def check_all(
    names: Iterable[str],
    check: Check,
    jobs: int,
    limit: float,
    seconds: float = float("inf"),
    *,
    memory: float = float("inf"),
    keep: Callable[[str, str, str], None] = lambda name, status, reason: None,
) -> Outcomes:
    """How checks ended, by name, in some processes.

    A check lasts up to ``limit`` seconds, and its process takes up to ``memory`` GiB; after
    ``seconds`` no other is begun. ``keep`` is told of each outcome. Prints now and then how many
    are done.
    """
    waiting: Iterator[str] = iter(names)
    workers: list[_Worker] = []
    outcomes: Outcomes = {}
    start = shown = time.monotonic()

    def following() -> str | None:
        return None if time.monotonic() - start > seconds else next(waiting, None)

    try:
        for _ in range(jobs):
            name = following()
            if name is not None:
                workers.append(_Worker(check, limit, memory, name))
        while workers:
            wait([worker.connection for worker in workers], timeout=0.5)
            for worker in list(workers):
                outcome = worker.heard()
                if outcome is None:
                    continue
                outcomes[worker.name] = outcome
                keep(worker.name, *outcome)
                name = following()
                if name is not None and worker.alive and worker.held() < memory / 2:
                    worker.begin(name)
                    continue
                worker.stop()
                workers.remove(worker)
                if name is not None:
                    workers.append(_Worker(check, limit, memory, name))
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"{shown - start:6.0f} s  {len(outcomes)} are done", flush=True)
    finally:
        for worker in workers:
            worker.stop()
    return outcomes


class _Worker:
    """A process that runs one check after the other."""

    def __init__(self, check: Check, limit: float, memory: float, name: str) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self._limit, self._memory = limit, memory
        self._process = multiprocessing.get_context("fork").Process(
            target=_work, args=(theirs, check), daemon=True
        )
        self._process.start()
        theirs.close()
        # Its own, not its parent's: a fork has only what it has touched of files in memory.
        self._shared = _resident(self._process.pid or 0)
        self.alive = True
        self.begin(name)

    def begin(self, name: str) -> None:
        """Let it run a check."""
        self.name = name
        self._since = time.monotonic()
        self.connection.send(name)

    def heard(self) -> tuple[str, str] | None:
        """The outcome of its check, if it has ended, died or takes too much."""
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
        if self.held() > self._memory:
            self.alive = False
            return FAILED, f"it takes more than {self._memory:g} GiB of memory"
        return None

    def held(self) -> float:
        """GiB of memory that it holds besides what it was begun with."""
        return _resident(self._process.pid or 0) - self._shared

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _resident(process: int) -> float:
    """GiB of memory that a process holds; 0 where the system doesn't say."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except FileNotFoundError:
        return 0.0
    return int(pages) * resource.getpagesize() / 2**30


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


# ---- campaigns that can be taken up again -------------------------------------------------------


def add_options(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add the options of a campaign whose outcomes are kept in a folder."""
    add = parser.add_argument
    add("--limit", type=float, default=120.0, help="seconds for one check")
    add("--memory", type=float, default=6.0, help="GiB that one process may take")
    add("--jobs", type=int, default=2, help="processes")
    add("--folder", type=Path, default=Path(folder), help="where outcomes are kept")
    add("--again", action="store_true", help="try again what didn't pass")
    add("--report", action="store_true", help="only print what is in the folder")
    add("--page", type=Path, help="also write the result into its section of this page")


class Kept:
    """Outcomes by name, kept as lines of ``outcomes.jsonl`` in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "outcomes.jsonl"
        self.outcomes: Outcomes = {}
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        whole, _, cut = text.rpartition("\n")
        if cut:  # by the end of a process that wrote it
            self._path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
        for line in whole.splitlines():
            name, status, reason = json.loads(line)
            self.outcomes[name] = (status, reason)

    def add(self, name: str, status: str, reason: str) -> None:
        """Keep an outcome; it takes the place of an earlier one."""
        self.outcomes[name] = (status, reason)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, status, reason]) + "\n")

    def forget(self, *statuses: str) -> None:
        """Let checks with other statuses than these be run again."""
        self.outcomes = {k: found for k, found in self.outcomes.items() if found[0] in statuses}

    def run(self, names: Iterable[str], check: Check, options: argparse.Namespace) -> None:
        """Run those of the checks whose outcome isn't known, within the options' limits."""
        left = (name for name in names if name not in self.outcomes)
        check_all(left, check, options.jobs, options.limit, memory=options.memory, keep=self.add)


def write_section(page: Path, name: str, text: str) -> None:
    """Put a text between ``<!-- name -->`` and ``<!-- end -->`` on a page.

    Raises ``TilewrightError`` if the page has no such section.
    """
    before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not end:
        raise TilewrightError(f"{page} has no lines <!-- {name} --> and <!-- end -->")
    page.write_text(f"{before}{start}\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def cell(text: str) -> str:
    """A text as a cell of a table on a page: in one line, and nothing in it is markup."""
    return re.sub(r"([|\\<>*_\[\]`])", r"\\\1", " ".join(text.split()))
