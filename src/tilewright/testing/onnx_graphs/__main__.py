"""``python -m tilewright.testing.onnx_graphs``: random ONNX models, judged by the reference.

Prints how many were right, how many refused and why, and the models that were not right. Ends with
1 if there was one.

    python -m tilewright.testing.onnx_graphs --count 500 --seed 7
    python -m tilewright.testing.onnx_graphs --case 7-31
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from tilewright.relax.frontend.onnx import require_onnx
from tilewright.testing.arguments import add_draws, parser_of
from tilewright.testing.onnx_graphs.check import PASSED, REFUSED, check
from tilewright.testing.onnx_graphs.draw import draw_case
from tilewright.testing.workers import check_all


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 if a model was not right."""
    args = _arguments().parse_args(argv)
    if args.case:
        require_onnx()
        print(_text(args.case))
        status, reason = check(args.case)
        print(f"{status}: {reason}" if reason else status)
        return int(status not in (PASSED, REFUSED))
    names = [f"{args.seed}-{number}" for number in range(args.first, args.first + args.count)]
    outcomes = check_all(names, check, args.jobs, args.limit, args.seconds)
    print(summary(outcomes))
    return int(any(status not in (PASSED, REFUSED) for status, _ in outcomes.values()))


def _arguments() -> argparse.ArgumentParser:
    parser = parser_of(
        "onnx_graphs", "Random ONNX models, compared with ONNX's reference implementation."
    )
    add_draws(parser, "models")
    add = parser.add_argument
    add("--limit", type=float, default=120.0, help="seconds for one model")
    add("--case", help="one model, as a report names it: prints it, and what is wrong")
    return parser


def _text(name: str) -> str:
    case = draw_case(name)
    text = require_onnx().printer.to_text(case.model())
    return re.sub(r"\{[^{}]{200,}\}", "{…}", text)


def summary(outcomes: Mapping[str, tuple[str, str]]) -> str:
    """Counts by status, reasons of refusals, and what was not right."""
    counts = Counter(status for status, _ in outcomes.values())
    lines = [f"{len(outcomes)} models: {', '.join(f'{n} {k}' for k, n in counts.most_common())}"]
    refused = Counter(
        re.sub(r"\(node [^)]*\)|[\d\[\]]+", "", reason.splitlines()[0])[:90]
        for status, reason in outcomes.values()
        if status == REFUSED
    )
    lines += [f"  {count:5}  refused: {reason}" for reason, count in refused.most_common(15)]
    lines += [
        f"  {status} {name}: {reason}"
        for name, (status, reason) in outcomes.items()
        if status not in (PASSED, REFUSED)
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
