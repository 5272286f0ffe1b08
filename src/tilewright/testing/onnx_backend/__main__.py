"""``python -m tilewright.testing.onnx_backend``: ONNX's own backend tests.

Each is imported, compiled by rule, run and compared, in processes with a limit of time. Prints how
many passed, how many of them with inputs fixed at import, and why others didn't. Ends with 1 if a
test failed; what isn't supported is listed, but is no failure.

    python -m tilewright.testing.onnx_backend --kind node,simple --tests '*conv*' --jobs 2
"""

from __future__ import annotations

import argparse
import fnmatch
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
from tilewright.testing.workers import Check, check_all

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase

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
        outcomes = check_all(list(found), _checked(found), args.jobs, args.limit)
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


def _checked(found: Mapping[str, TestCase]) -> Check:
    def by_name(name: str) -> tuple[str, str]:
        try:
            outcome = check(found[name])
        except TilewrightError as error:
            return FAILED, f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return outcome.status, outcome.reason

    return by_name


def _is_default(case: TestCase) -> bool:
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


if __name__ == "__main__":
    raise SystemExit(main())
