"""``python -m tilewright.testing.mutants --count 200``: are broken kernels rejected?

Ends with 1 if one was accepted, or a right one wasn't.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tilewright.testing.mutants.campaign import Campaign


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 for a wrong verdict."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.testing.mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--count", type=int, default=200, help="broken kernels to make")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    report = Campaign(args.seed).run(args.count)
    for title, counts in (
        ("verdicts on broken kernels", report.verdicts),
        ("ways to break them", report.mutations),
        ("changes without consequences, not counted", report.harmless),
    ):
        print(f"{title}:")
        for name, count in counts.most_common():
            print(f"  {count:4} {name}")
    for text in report.survivors:
        print(f"accepted though broken: {text}")
    for text in report.refused_unchanged:
        print(f"rejected though right: {text}")
    return 1 if report.survivors or report.refused_unchanged else 0


if __name__ == "__main__":
    raise SystemExit(main())
