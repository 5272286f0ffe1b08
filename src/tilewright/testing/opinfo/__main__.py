"""``python -m tilewright.testing.opinfo``: Core ATen on PyTorch's own samples.

Each sample is exported, compiled by rule, run and compared with PyTorch, in processes with a limit
of time. Outcomes are kept in a folder: what is there isn't tried again. Prints the share of right
samples by dtype, and by operator what isn't right and why. Ends with 1 if anything isn't.

    python -m tilewright.testing.opinfo --ops 'scatter*' --dtypes float32 --samples 10
"""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tilewright.relax.frontend.torch.exported import require_torch
from tilewright.testing.opinfo.cases import entries, spread
from tilewright.testing.opinfo.check import check
from tilewright.testing.opinfo.results import OUTSIDE, Results, table

DTYPES = "float32,int64,bool,bfloat16,float16"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 if a sample wasn't right."""
    args = _arguments().parse_args(argv)
    torch = require_torch()
    torch.set_num_threads(1)
    results = Results(Path(args.folder))
    if args.again:
        results.forget_failures()
    work = [
        _Work(name, dtype, args.samples)
        for dtype in args.dtypes.split(",")
        for name, entry in entries().items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in args.ops.split(","))
        and entry.has_dtype(getattr(torch, dtype))
    ]
    if not args.report:
        _run(work, results, args.jobs, args.limit)
    wanted = {(item.name, item.dtype) for item in work}
    chosen = [item for item in results.outcomes.items() if item[0][:2] in wanted]
    print(table(chosen))
    return int(any(status not in ("ok", *OUTSIDE) for _, (status, _) in chosen))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.testing.opinfo",
        description="Core ATen on the samples of PyTorch's operator database.",
    )
    add = parser.add_argument
    add("--ops", default="*", help="patterns of names, with commas between: 'scatter*,index_put'")
    add("--dtypes", default=DTYPES, help="with commas between")
    add("--samples", type=int, help="at most so many per operator and dtype; all if left out")
    add("--limit", type=float, default=60.0, help="seconds for one sample")
    add("--jobs", type=int, default=2, help="processes")
    add("--folder", default="opinfo-results", help="where outcomes are kept")
    add("--again", action="store_true", help="try again what wasn't right")
    add("--report", action="store_true", help="only print what is in the folder")
    return parser


@dataclass
class _Work:
    """Samples of an operator in a dtype; those in ``done`` are known."""

    name: str
    dtype: str
    limit: int | None
    done: frozenset[int] = frozenset()


def _run(work: Sequence[_Work], results: Results, jobs: int, limit: float) -> None:
    waiting = list(work)[::-1]
    workers: list[_Worker] = []
    start = shown = time.monotonic()
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(_Worker(_what_is_left(waiting.pop(), results), limit))
            wait([worker.connection for worker in workers], timeout=0.5)
            for worker in list(workers):
                for sample, status, reason in worker.heard():
                    results.add(worker.work.name, worker.work.dtype, sample, status, reason)
                if worker.idle and waiting:
                    worker.begin(_what_is_left(waiting.pop(), results))
                elif worker.idle or not worker.alive:
                    worker.stop()
                    workers.remove(worker)
                    if not worker.idle:
                        waiting.append(worker.work)
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"{shown - start:6.0f} s  {len(waiting)} operators are left", flush=True)
    finally:
        for worker in workers:
            worker.stop()


def _what_is_left(work: _Work, results: Results) -> _Work:
    known = (
        sample
        for name, dtype, sample in results.outcomes
        if (name, dtype) == (work.name, work.dtype)
    )
    return _Work(work.name, work.dtype, work.limit, frozenset(known))


class _Worker:
    """A process that checks the samples of one operator after the other."""

    def __init__(self, work: _Work, limit: float) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self._limit = limit
        self._process = multiprocessing.get_context("fork").Process(
            target=_check_all, args=(theirs,), daemon=True
        )
        self._process.start()
        theirs.close()
        self.alive = True
        self.begin(work)

    def begin(self, work: _Work) -> None:
        """Let it check an operator's samples."""
        self.work = work
        self.idle = False
        self._sample = -1
        self._since = time.monotonic()
        self.connection.send(work)

    def heard(self) -> list[tuple[int, str, str]]:
        """Outcomes since the last time; a process that died or takes too long has one as well."""
        found: list[tuple[int, str, str]] = []
        try:
            while not self.idle and self.connection.poll():
                kind, *rest = self.connection.recv()
                self._since = time.monotonic()
                if kind == "begins":
                    self._sample = rest[0]
                elif kind == "ended":
                    found.append((rest[0], rest[1], rest[2]))
                else:
                    self.idle = True
        except (EOFError, ConnectionError):
            self.alive = False
            self._process.join()
            found.append((self._sample, "died", f"exit status {self._process.exitcode}"))
        if self.alive and not self.idle and time.monotonic() - self._since > self._limit:
            self.alive = False
            found.append((self._sample, "late", f"no result within {self._limit:g} s"))
        return found

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _check_all(connection: Connection) -> None:
    torch = require_torch()
    while True:
        try:
            work = connection.recv()
        except EOFError:
            return
        # A fault in listing the samples is that of number -1.
        if -1 not in work.done:
            cases = entries()[work.name].cases(getattr(torch, work.dtype))
            for number in spread(len(cases), work.limit):
                if number not in work.done:
                    connection.send(("begins", number))
                    outcome = check(cases[number])
                    connection.send(("ended", number, outcome.status, outcome.reason))
        connection.send(("done",))


if __name__ == "__main__":
    raise SystemExit(main())
