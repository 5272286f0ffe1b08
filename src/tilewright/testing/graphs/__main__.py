"""``python -m tilewright.testing.graphs``: random graphs by rule, compared with NumPy.

Each graph is built by rule, and run on one thread and on two. Prints how many of which operators
were right, and the faults with the command that makes each of them again. Ends with 1 if there
was a fault.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tilewright.testing.arguments import add_draws, parser_of
from tilewright.testing.graphs.check import Problem, check, target_of, whole_case
from tilewright.testing.graphs.draw import draw_case
from tilewright.testing.graphs.shrink import report
from tilewright.testing.graphs.stacks import Stacks

_SECONDS = 120.0
"""A graph that takes longer than this is a fault."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 if there was a fault."""
    args = _arguments().parse_args(argv)
    names = [args.case] if args.case else [
        f"{args.seed}-{number}" for number in range(args.first, args.first + args.count)
    ]  # fmt: skip
    campaign = Campaign(Path(args.folder), args.target, args.quiet)
    campaign.run(names, args.jobs, args.seconds)
    return campaign.finish()


def _arguments() -> argparse.ArgumentParser:
    parser = parser_of(
        "graphs", "Random graphs of operators, built by rule and compared with NumPy."
    )
    add_draws(parser, "graphs")
    add = parser.add_argument
    add(
        "--target",
        help="what to build for, such as 'llvm -mcpu=haswell'; if left out this machine, at times "
        "with fewer instructions",
    )
    add("--case", help="one graph, as a report names it")
    add("--folder", default="graph-faults", help="where reproductions are written")
    add("--quiet", action="store_true", help="no progress")
    return parser


class Campaign:
    """A run: its processes, and what they report."""

    def __init__(self, folder: Path, target: str | None, quiet: bool) -> None:
        self.folder = folder
        self.target = target
        self.quiet = quiet
        self.done = 0
        self.symbolic = 0
        self.steps: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.faults: dict[tuple[str, str], list[str]] = {}
        self.start = self.shown = time.perf_counter()

    def run(self, names: Sequence[str], jobs: int, seconds: float) -> None:
        """Check graphs in some processes; one that dies is a fault of its graph."""
        waiting = list(names)[::-1]
        workers: list[_Worker] = []
        try:
            while True:
                over = time.perf_counter() - self.start > seconds
                while waiting and not over and len(workers) < jobs:
                    workers.append(_Worker(waiting.pop(), self.target))
                if not workers:
                    return
                wait([worker.connection for worker in workers], timeout=1.0)
                for worker in list(workers):
                    ended = worker.poll()
                    if ended is None:
                        continue
                    self.heard(worker.name, ended)
                    if worker.alive and waiting and not over:
                        worker.begin(waiting.pop())
                    else:
                        worker.stop()
                        workers.remove(worker)
                self.progress()
        finally:
            for worker in workers:
                worker.stop()

    def heard(self, name: str, ended: Any) -> None:
        """Count a graph."""
        problem, steps, symbolic, refused = ended
        self.done += 1
        self.steps.update(steps)
        self.symbolic += symbolic
        self.refused.update(refused)
        if problem is None:
            return
        known = self.faults.get(problem.key)
        if known is not None and len(known) > 2:
            known.append(name)
            return
        small, path = report(name, self.folder, target_of(name, self.target), problem)
        self.faults.setdefault(problem.key, []).append(name)
        print(f"\nFAULT {small.kind}: {small.text}\n  case {name}: {path}", flush=True)

    def progress(self) -> None:
        """Print a line now and then."""
        now = time.perf_counter()
        if self.quiet or now - self.shown < 15:
            return
        self.shown = now
        found = sum(map(len, self.faults.values()))
        print(f"{now - self.start:6.0f} s  {self.done} graphs, {found} faults", flush=True)

    def finish(self) -> int:
        """Print what was found; returns the command's exit status."""
        seconds = time.perf_counter() - self.start
        print(f"\n{self.done} graphs ({self.symbolic} with a symbolic extent) of "
              f"{self.steps.total()} operators in {seconds:.0f} s")  # fmt: skip
        print(", ".join(f"{name} {count}" for name, count in self.steps.most_common()))
        print(f"calls refused when drawn: {self.refused.total()}")
        for text, count in self.refused.most_common(12):
            print(f"  {count:6}  {text}")
        found = sum(map(len, self.faults.values()))
        print(f"faults {found}")
        for (kind, text), names in self.faults.items():
            print(f"  {len(names):6}  {kind}: {text}: {', '.join(names[:4])}")
        return 1 if found else 0


class _Worker:
    """A process that checks one graph after the other."""

    def __init__(self, name: str, target: str | None) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.stacks = Stacks()
        self.process = multiprocessing.get_context("fork").Process(
            target=_work, args=(theirs, self.stacks, target), daemon=True
        )
        self.process.start()
        theirs.close()
        self.alive = True
        self.begin(name)

    def begin(self, name: str) -> None:
        """Let it check a graph."""
        self.name = name
        self.since = time.perf_counter()
        self.connection.send(name)

    def poll(self) -> Any:
        """How the graph ended, or ``None`` if it hasn't yet."""
        try:
            if self.connection.poll():
                return self.connection.recv()
        except (EOFError, ConnectionError):
            self.alive = False
            self.process.join()
            code = self.process.exitcode
            return Problem("died", f"exit status {code}"), {}, 0, {}
        if time.perf_counter() - self.since > _SECONDS:
            self.alive = False
            where = self.stacks.ask(self.process.pid or 0)
            return Problem("died", f"no result within {_SECONDS:g} s\n{where}"), {}, 0, {}
        return None

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.stacks.close()


def _work(connection: Connection, stacks: Stacks, target: str | None) -> None:
    stacks.answer()
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        case = draw_case(name)
        problem = check(whole_case(case), target_of(name, target))
        steps = Counter(step.name for step in case.steps)
        connection.send((problem, steps, int(case.extent is not None), case.refused))


if __name__ == "__main__":
    raise SystemExit(main())
