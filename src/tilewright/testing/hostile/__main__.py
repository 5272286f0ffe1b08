"""``python -m tilewright.testing.hostile KIND``: read hostile input, and see what it does.

Prints how many cases ended how, and the faults with the command that makes each of them again.
Ends with 1 if there was a fault.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tilewright.testing.arguments import parser_of
from tilewright.testing.hostile.driver import Result, leave_no_dumps, make_case, run_cases
from tilewright.testing.hostile.kind import Kind

KINDS = ("scripts", "databases", "libraries", "models", "kills", "runs", "disks", "candidates")
"""Modules of this package that hold a ``KIND``."""

_SHOWN = 20
_REPORT_EVERY = 0.5


def load_kind(name: str) -> Kind:
    """Return the kind of a name; its module is imported now."""
    kind: Kind = importlib.import_module(f"tilewright.testing.hostile.{name}").KIND
    return kind


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 if there was a fault."""
    args = _arguments().parse_args(argv)
    kind = load_kind(args.kind)
    if args.show:
        print(make_case(kind, args.seed, args.only or 0).payload)
        return 0
    leave_no_dumps()
    numbers = range(args.first, args.first + args.count)
    if args.only is not None:
        numbers = range(args.only, args.only + 1)
    report = Report(args.kind, args.seed, args.quiet)
    for result in run_cases(kind, args.seed, numbers):
        report.add(result)
    return report.finish()


def _arguments() -> argparse.ArgumentParser:
    parser = parser_of(
        "hostile", "Read hostile input in child processes under limits; anything odd is a fault."
    )
    add = parser.add_argument
    add("kind", choices=KINDS, help="what is read")
    add("--count", type=int, default=1000, help="cases")
    add("--seed", type=int, default=0, help="of the random cases")
    add("--first", type=int, default=0, help="number of the first case")
    add("--only", type=int, metavar="NUMBER", help="one case, as a report names it")
    add("--show", action="store_true", help="print the case of --only instead of checking it")
    add("--quiet", action="store_true", help="no progress")
    return parser


class Report:
    """Counts how cases ended, and keeps those that are faults."""

    def __init__(self, kind: str, seed: int, quiet: bool) -> None:
        self.command = f"python -m tilewright.testing.hostile {kind} --seed {seed}"
        self.quiet = quiet
        self.outcomes: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()
        self.faults: dict[str, list[Result]] = {}
        self.start = self.shown = time.perf_counter()

    def add(self, result: Result) -> None:
        """Count a result."""
        self.outcomes[result.outcome] += 1
        self.labels[result.case.label] += 1
        if result.fault:
            last = result.fault.strip().splitlines()[-1]
            self.faults.setdefault(f"{result.outcome}: {last[:120]}", []).append(result)
        now = time.perf_counter()
        if not self.quiet and now - self.shown > _REPORT_EVERY:
            self.shown = now
            found = sum(map(len, self.faults.values()))
            print(f"\r{self.outcomes.total()} cases, {found} faults", end="", file=sys.stderr)

    def finish(self) -> int:
        """Print what was found; returns the command's exit status."""
        if not self.quiet:
            print("\r", end="", file=sys.stderr)
        seconds = time.perf_counter() - self.start
        print(f"{self.outcomes.total()} cases in {seconds:.0f} s")
        for title, counts in (("made by", self.labels), ("ended as", self.outcomes)):
            print(f"{title}: " + ", ".join(f"{name} {n}" for name, n in counts.most_common()))
        for results in list(self.faults.values())[:_SHOWN]:
            first = results[0]
            print(f"\nFAULT, {len(results)} times: {self.command} --only {first.number}")
            print(f"made by {first.case.label}, ended as {first.outcome}")
            print(first.fault.rstrip())
        found = sum(map(len, self.faults.values()))
        print(f"\n{found} faults of {len(self.faults)} sorts" if found else "no fault")
        return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
