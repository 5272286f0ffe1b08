"""``python -m tilewright.testing.fuzz``: look for primitives that change what programs mean.

With ``--rules`` it looks for rules that do; with ``--target cuda`` those are the rules for GPUs,
whose kernels are compiled and simulated.

Runs for some seconds or until so many primitives were applied, in several processes. A process that
crashes (compiled code may) is a fault as well; another one takes over behind the case that it ran.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tilewright.testing.arguments import parser_of
from tilewright.testing.fuzz.drawers import EXCLUDED, drawn
from tilewright.testing.fuzz.driver import (
    Counts,
    Finding,
    Options,
    counts_as_application,
    run_cases,
)
from tilewright.testing.fuzz.hard_programs import FAMILIES
from tilewright.testing.fuzz.programs import Program
from tilewright.testing.fuzz.ruled import (
    program_for_rules,
    rule_sets,
    run_rule_cases,
    smaller_program,
)
from tilewright.testing.fuzz.ruled_gpu import (
    gpu_rule_sets,
    program_for_gpu_rules,
    run_gpu_rule_cases,
    smaller_gpu_program,
)
from tilewright.testing.fuzz.session import Fault
from tilewright.testing.fuzz.shrink import shrink, write
from tilewright.testing.fuzz.stages_hard import STAGES, program_of_case
from tilewright.tir.schedule import PRIMITIVES

_REPORT_EVERY = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the fuzzer; returns 1 if it found a fault."""
    args = _arguments().parse_args(argv)
    options = Options(
        seed=args.seed,
        only=tuple(name for text in args.only for name in text.split(",") if name),
        families=tuple(name for text in args.family for name in text.split(",") if name),
        compile_every=args.compile_every,
        compile_each=args.compile_each,
    )
    mode = PRIMITIVES_MODE
    if args.rules:
        mode = GPU_RULES_MODE if args.target == "cuda" else RULES_MODE
        logging.getLogger("tilewright.scheduling").setLevel(logging.ERROR)
    campaign = Campaign(
        options, args.seconds, args.applications, Path(args.folder), args.quiet, mode
    )
    if args.case is not None:
        campaign.run_here([args.case])
    else:
        campaign.run(args.jobs)
    campaign.report()
    return 1 if campaign.faults else 0


def _arguments() -> argparse.ArgumentParser:
    parser = parser_of(
        "fuzz", "Random programs under random schedules; faults are made small and kept."
    )
    add = parser.add_argument
    add("--seconds", type=float, default=None, help="stop after this time (60 if nothing stops it)")
    add("--applications", type=int, default=None,
        help="stop when so many applications of primitives were accepted")  # fmt: skip
    add("--seed", type=int, default=0, help="first of the random programs and sequences")
    add("--jobs", type=int, default=2, help="processes")
    add("--only", action="append", default=[], metavar="PRIMITIVE,..",
        help="try these primitives above all")  # fmt: skip
    add("--family", action="append", default=[], metavar="FAMILY,..",
        help="draw programs of these families: " + ", ".join([STAGES, *FAMILIES]))  # fmt: skip
    add("--rules", action="store_true",
        help="programs through each rule of dlight, instead of random primitives")  # fmt: skip
    add("--target", choices=("llvm", "cuda"), default="llvm", help="of the rules")
    add("--compile-every", type=int, default=4, metavar="N",
        help="compile at the end of every N sequences; 0: never")  # fmt: skip
    add("--compile-each", action="store_true", help="compile after every accepted step")
    add("--case", help="run one case, as a report names it")
    add("--folder", default="fuzz-faults", help="where reproductions are written")
    add("--quiet", action="store_true", help="no progress")
    return parser


@dataclass(frozen=True)
class Mode:
    """What is fuzzed."""

    run_cases: Callable[..., None]
    program: Callable[[str], Program]
    smaller: Callable[[Finding], Finding]
    rules: Callable[[], Iterable[str]] | None = None
    """The names of the rules, if these are what is fuzzed."""


PRIMITIVES_MODE = Mode(run_cases, program_of_case, shrink)
RULES_MODE = Mode(run_rule_cases, program_for_rules, smaller_program, rule_sets)
GPU_RULES_MODE = Mode(run_gpu_rule_cases, program_for_gpu_rules, smaller_gpu_program, gpu_rule_sets)


class Campaign:
    """A run of the fuzzer: its processes, and what they report."""

    def __init__(
        self,
        options: Options,
        seconds: float | None,
        applications: int | None,
        folder: Path,
        quiet: bool = False,
        mode: Mode = PRIMITIVES_MODE,
    ) -> None:
        self.mode = mode
        if seconds is None and applications is None:
            seconds = 60.0
        self.options = options
        self.seconds = seconds
        self.applications = applications
        self.folder = folder
        self.quiet = quiet
        self.counts = Counts()
        self.faults: dict[tuple[str, str], list[Path]] = {}
        self.found = 0
        self.workers: dict[int, _Worker] = {}
        self.start = time.perf_counter()
        self.shown = 0.0

    # ---- processes ------------------------------------------------------------------------------

    def run(self, jobs: int) -> None:
        """Run worker processes until it is enough."""
        self.workers = {job: self._start(job, jobs) for job in range(jobs)}
        try:
            while self.workers:
                self._listen()
        finally:
            for worker in self.workers.values():
                worker.process.kill()

    def _start(self, first: int, stride: int) -> _Worker:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(
            target=_work,
            args=(theirs, self.mode, self.options, first, stride, self.folder),
            daemon=True,
        )
        process.start()
        theirs.close()
        return _Worker(process, ours, first, stride)

    def _listen(self) -> None:
        enough = self.is_enough()
        for worker in self.workers.values():
            if enough and not worker.stopping:
                worker.stopping = True
                worker.connection.send("stop")
        ready = wait([worker.connection for worker in self.workers.values()], timeout=1.0)
        for job, worker in list(self.workers.items()):
            if worker.connection not in ready:
                continue
            try:
                kind, *rest = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                worker.process.join()
                del self.workers[job]
                if not worker.finished:
                    self._crashed(worker)
                    if not worker.stopping:
                        self.workers[job] = self._start(worker.case + worker.stride, worker.stride)
                continue
            self._heard(worker, kind, rest)
        self.progress()

    def _heard(self, worker: _Worker, kind: str, rest: list[Any]) -> None:
        if kind == "case":
            worker.case = rest[0]
        elif kind == "counts":
            self.counts.add(rest[0])
        elif kind == "fault":
            self.note(*rest)
        elif kind == "end":
            worker.finished = True

    def _crashed(self, worker: _Worker) -> None:
        code = worker.process.exitcode
        case = self.options.case(worker.case)
        fault = Fault("process died", "", f"exit code {code} in case {case!r}")
        finding = Finding(fault, self.mode.program(case), [], case)
        self.note(finding, write(finding, self.folder))

    # ---- here -----------------------------------------------------------------------------------

    def run_here(self, cases: Sequence[str]) -> None:
        """Run cases in this process."""

        def found(finding: Finding) -> None:
            small = self.mode.smaller(finding)
            self.note(small, write(small, self.folder))

        self.mode.run_cases(
            cases, self.options, counts=self.counts, enough=lambda: False, found=found
        )

    def is_enough(self) -> bool:
        """Whether the time is over or the applications are reached."""
        if self.seconds is not None and time.perf_counter() - self.start > self.seconds:
            return True
        return self.applications is not None and self.applied >= self.applications

    @property
    def applied(self) -> int:
        """How many primitives or rules were accepted."""
        if self.mode.rules is not None:
            return sum(self.counts.accepted.values())
        return self.counts.applications

    # ---- output ---------------------------------------------------------------------------------

    def note(self, finding: Finding, path: Path) -> None:
        """Remember a fault, and show the first of its kind."""
        self.found += 1
        known = self.faults.setdefault(finding.key, [])
        known.append(path)
        if len(known) == 1:
            print(f"\nFAULT {finding.fault}\n  case {finding.case}: {path}", flush=True)

    def progress(self) -> None:
        """Print a line now and then."""
        now = time.perf_counter()
        if self.quiet or now - self.shown < 10:
            return
        self.shown = now
        print(
            f"{now - self.start:6.0f} s  {self.applied} applied, "
            f"{sum(self.counts.refused.values())} refused, {self.counts.programs} programs, "
            f"{self.found} faults",
            flush=True,
        )

    def report(self) -> None:
        """Print the table at the end."""
        if self.mode.rules is not None:
            self.report_rules(self.mode.rules())
        else:
            self.report_primitives()
        counts = self.counts
        forms = ", ".join(f"{name} {n}" for name, n in counts.forms.most_common())
        print(f"stages: {forms}")
        print(f"compiled {counts.compiled}, not compiled {sum(counts.not_compiled.values())}")
        for reason, number in counts.not_compiled.most_common(8):
            print(f"  {number:6}  {reason}")
        alone = sum(counts.not_covered.values())
        print(f"without a second oracle {alone}: {dict(counts.not_covered.most_common(4))}")
        print(f"faults {self.found}")
        for (kind, primitive), paths in self.faults.items():
            print(f"  {len(paths):6}  {kind} ({primitive}): {paths[0]}")

    def report_rules(self, names: Iterable[str]) -> None:
        """Print how often rules applied, and why they didn't."""
        counts, seconds = self.counts, time.perf_counter() - self.start
        print(f"\n{'rule':28}{'applied':>10}{'refused':>10}")
        for name in names:
            print(f"{name:28}{counts.accepted[name]:10}{counts.refused[name]:10}")
        print("\nrefused by reason:")
        for reason, number in counts.reasons.most_common(40):
            print(f"  {number:6}  {reason}")
        applied = sum(counts.accepted.values())
        print(
            f"\napplied {applied}, refused {sum(counts.refused.values())}, in {seconds:.0f} s "
            f"({applied / max(seconds, 1e-9):.1f} applied per second); programs "
            f"{counts.programs} ({counts.symbolic} with symbolic shapes); simulated "
            f"{counts.interpreted}, given up since they ran too long {counts.too_long}"
        )

    def report_primitives(self) -> None:
        """Print how often primitives were accepted."""
        counts, seconds = self.counts, time.perf_counter() - self.start
        print(f"\n{'primitive':28}{'accepted':>10}{'refused':>10}")
        for name in sorted({*counts.accepted, *counts.refused, *drawn()}):
            if name in PRIMITIVES:
                mark = "" if counts_as_application(name) else "  (question or choice: not counted)"
                print(f"{name:28}{counts.accepted[name]:10}{counts.refused[name]:10}{mark}")
        for name, reason in EXCLUDED.items():
            print(f"{name:28}  not fuzzed: {reason}")
        print(
            f"\napplied {counts.applications}, refused {counts.refusals}, in {seconds:.0f} s "
            f"({counts.applications / max(seconds, 1e-9):.0f} applied per second)"
        )
        print(
            f"programs {counts.programs} ({counts.symbolic} with symbolic shapes), interpreted "
            f"{counts.interpreted} times, replayed {counts.replays}, "
            f"with symbolic tiles {counts.symbolic_tiles}, undone {counts.undone}, "
            f"given up since they ran too long {counts.too_long}"
        )


class _Worker:
    def __init__(self, process: Any, connection: Any, case: int, stride: int) -> None:
        self.process = process
        self.connection = connection
        self.case = case
        self.stride = stride
        self.stopping = False
        self.finished = False


def _work(
    connection: Any, mode: Mode, options: Options, first: int, stride: int, folder: Path
) -> None:
    """Run cases in a process of its own, telling which one before it starts."""
    counts = Counts()
    last = time.perf_counter()

    def flush() -> None:
        nonlocal last
        connection.send(("counts", counts))
        counts.clear()
        last = time.perf_counter()

    def cases() -> Iterator[str]:
        for number in itertools.count(first, stride):
            connection.send(("case", number))
            if time.perf_counter() - last > _REPORT_EVERY:
                flush()
            yield options.case(number)

    seen: dict[tuple[str, str], int] = {}

    def found(finding: Finding) -> None:
        times = seen[finding.key] = seen.get(finding.key, 0) + 1
        small = mode.smaller(finding) if times <= 3 else finding
        connection.send(("fault", small, write(small, folder)))

    try:
        mode.run_cases(cases(), options, counts=counts, enough=connection.poll, found=found)
        flush()
        connection.send(("end",))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
