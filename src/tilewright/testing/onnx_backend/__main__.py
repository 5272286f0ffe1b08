"""``python -m tilewright.testing.onnx_backend``: ONNX's own backend tests.

Each is imported, compiled by rule, run and compared, in processes with limits of time and memory.
Outcomes are kept in a folder: what is there isn't tried again. Prints how many passed, how many of
them with inputs fixed at import, and why others didn't. Ends with 1 if a test failed; what isn't
supported is listed, but is no failure.

    python -m tilewright.testing.onnx_backend --kind node,simple --tests '*conv*' --jobs 2
    python -m tilewright.testing.onnx_backend --page figures.md
"""

from __future__ import annotations

import argparse
import fnmatch
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.relax.frontend.onnx import require_onnx
from tilewright.support.errors import TilewrightError
from tilewright.testing.arguments import parser_of
from tilewright.testing.onnx_backend.check import (
    FAILED,
    FIXED,
    OUTSIDE,
    PASSED,
    UNSUPPORTED,
    cases,
    check,
)
from tilewright.testing.workers import Check, Kept, Outcomes, add_options, cell, write_section

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase

KINDS = "node,simple,pytorch-converted,pytorch-operator"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 if a test failed."""
    args = _arguments().parse_args(argv)
    kept = Kept(args.folder)
    if args.again:
        kept.forget(PASSED, FIXED)
    kinds = args.kind.split(",")
    if not args.report:
        for kind in kinds:
            found = {
                f"{kind} {name}": case
                for name, case in cases(kind).items()
                if _is_chosen(name, args) and (args.all_domains or _is_default(case))
            }
            kept.run(list(found), _checked(found), args)
    chosen: dict[str, Outcomes] = {kind: {} for kind in kinds}
    for full, outcome in kept.outcomes.items():
        kind, name = full.split()
        if kind in chosen and _is_chosen(name, args):
            chosen[kind][name] = outcome
    text = page(chosen, f"ONNX {require_onnx().__version__}, tests that need no download")
    print(text)
    if args.page:
        write_section(args.page, "onnx_backend", text)
    return int(any(o[0] == FAILED for outcomes in chosen.values() for o in outcomes.values()))


def _arguments() -> argparse.ArgumentParser:
    parser = parser_of("onnx_backend", "ONNX's backend tests, by the importer and the compiler.")
    add = parser.add_argument
    add("--kind", default=KINDS, help="with commas between")
    add("--tests", default="*", help="patterns of names, with commas between: '*conv*,test_add'")
    add("--all-domains", action="store_true", help="also tests of ai.onnx.ml and others")
    add_options(parser, "onnx-results")
    return parser


def _is_chosen(name: str, args: argparse.Namespace) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in args.tests.split(","))


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


def page(outcomes: Mapping[str, Outcomes], told: str) -> str:
    """By kind how many tests passed; the reasons for those that didn't, and their names."""
    lines = [
        f"{told}:",
        "",
        "| kind | judged | passed | share | inputs fixed | unsupported | failed | not judged "
        "| share of all |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    by_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, found in outcomes.items():
        counts = Counter(status for status, _ in found.values())
        passed, judged = counts[PASSED] + counts[FIXED], len(found) - counts[OUTSIDE]
        lines.append(
            f"| {kind} | {judged:,} | {passed:,} | {passed / judged if judged else 1.0:.2%} "
            f"| {counts[FIXED]} | {counts[UNSUPPORTED]} | {counts[FAILED]} | {counts[OUTSIDE]} "
            f"| {passed / len(found) if found else 1.0:.2%} |"
        )
        for name, (status, reason) in found.items():
            if status not in (PASSED, FIXED):
                by_reason[_TOLD.get(status, status), _in_short(reason)].append(name)
    if by_reason:
        lines += ["", "| outcome | why | number | tests |", "|---|---|---:|---|"]
    for (status, reason), names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        tests = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {status} | {cell(reason)} | {len(names)} | {tests} |")
    return "\n".join(lines)


_TOLD = {OUTSIDE: "not judged"}


def _in_short(reason: str) -> str:
    """A reason that is the same for all nodes of an operator, without what is supported instead."""
    before, found, after = reason.partition(" (node ")
    same = f"{before}{after[after.find(')') + 1 :]}" if found else reason
    return re.split("; (?:known|supported): ", same)[0]


if __name__ == "__main__":
    raise SystemExit(main())
