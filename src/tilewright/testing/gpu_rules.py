"""``python -m tilewright.testing.gpu_rules``: random operators by rule for GPUs, no GPU needed.

Each case is an operator with shapes, dtypes and a target of its own. ``ApplyDefaultSchedule`` may
leave no function unscheduled; what it makes is lowered, within the GPU's limits and compiled by
NVRTC; of some cases the kernels are simulated, races reported, and compared with what the
unscheduled operator computes. Outcomes are kept in a folder case by case, so a campaign of
thousands can be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial

from tilewright.testing.arguments import parser_of
from tilewright.testing.fuzz.driver import Counts
from tilewright.testing.fuzz.ruled_gpu import check_by_default, program_for_gpu_rules
from tilewright.testing.workers import FAILED, Kept, Outcomes, add_options

PASSED = "passed"
SIMULATED, TOO_LONG = "simulated", "too long to simulate"
_SHOWN = 200
"""Characters of a fault's message in the report."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 if there was a fault."""
    args = _arguments().parse_args(argv)
    logging.getLogger("tilewright.scheduling").setLevel(logging.ERROR)
    if args.case:
        status, what = check(args.case, simulated=True)
        print(f"{args.case} {status}: {what}")
        return int(status == FAILED)
    kept = Kept(args.folder)
    if args.again:
        kept.forget(PASSED)
    if not args.report:
        names = [f"{args.seed}-{number}" for number in range(args.first, args.first + args.count)]
        if args.only:
            names = [f"{name}@{args.only}" for name in names]
        kept.run(names, partial(_check_numbered, every=args.simulate_every), args)
        _simulate_more(kept, names, args)
    print(report(kept.outcomes))
    return int(any(status == FAILED for status, _ in kept.outcomes.values()))


def _arguments() -> argparse.ArgumentParser:
    parser = parser_of(
        "gpu_rules", "Random operators by rule for GPUs: scheduled, compiled, simulated."
    )
    add = parser.add_argument
    add("--count", type=int, default=1000, help="cases")
    add("--seed", default="0", help="of the random cases")
    add("--first", type=int, default=0, help="number of the first case")
    add("--simulate-every", type=int, default=10, metavar="N", help="simulate one case of N")
    add(
        "--simulated", type=int, default=0, metavar="N",
        help="simulate further cases until N have been",
    )  # fmt: skip
    add("--only", help="cases of this operator")
    add("--case", help="one case, as a report names it; it is simulated as well")
    add_options(parser, "gpu-rules")
    return parser


def _check_numbered(case: str, every: int) -> tuple[str, str]:
    number = int(case.partition("@")[0].rpartition("-")[2])
    return check(case, simulated=number % every == 0)


def _simulate_more(kept: Kept, names: Sequence[str], args: argparse.Namespace) -> None:
    """Simulate cases that passed without, one after the other, until so many have been."""
    steps = {name: kept.outcomes[name][1].split(" | ") for name in names if name in kept.outcomes}
    waiting = [
        name
        for name, done in steps.items()
        if kept.outcomes[name][0] == PASSED and not {SIMULATED, TOO_LONG} & {*done}
    ]
    while waiting:
        # Those that take too long, or can't be run at all, leave some of the number for others.
        lacking = args.simulated - sum(SIMULATED in what for _, what in kept.outcomes.values())
        if lacking <= 0:
            return
        batch, waiting = waiting[:lacking], waiting[lacking:]
        for name in batch:
            del kept.outcomes[name]
        kept.run(batch, partial(check, simulated=True), args)


def check(case: str, simulated: bool) -> tuple[str, str]:
    """Return how a case ended, and what was done: its operator, target and steps."""
    program = program_for_gpu_rules(case if "@" in case else f"{case}@operators")
    counts = Counts()
    seed = random.Random(f"seed {case}").getrandbits(32)
    target, fault = check_by_default(program, seed, counts, simulated=simulated)
    done = [
        ", ".join(program.forms),
        target.arch,
        "symbolic" if program.symbolic else "static",
        *(["compiled"] if counts.compiled else []),
        *counts.not_compiled,
        *([SIMULATED] if counts.interpreted else []),
        *([TOO_LONG] if counts.too_long else []),
    ]
    if fault is None:
        return PASSED, " | ".join(done)
    return FAILED, " | ".join([*done, f"{fault.kind}: {fault.detail}"])


def report(outcomes: Outcomes) -> str:
    """Say how many cases of what were checked, and the faults with what repeats each."""
    operators: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    faults: list[str] = []
    for case, (status, what) in sorted(outcomes.items()):
        operator, *done = what.split(" | ")
        operators[operator] += 1
        if status == FAILED:
            faults.append(f"{case}: {what[:_SHOWN]}")
        else:
            steps.update(done)
    lines = [f"{len(outcomes)} cases, {len(faults)} faults"]
    lines += [f"{number:7}  {step}" for step, number in steps.most_common()]
    lines += ["by operator:"]
    lines += [f"{number:7}  {operator}" for operator, number in sorted(operators.items())]
    repeat = "python -m tilewright.testing.gpu_rules --case"
    return "\n".join([*lines, *(f"{repeat} {fault}" for fault in faults)])


if __name__ == "__main__":
    sys.exit(main())
