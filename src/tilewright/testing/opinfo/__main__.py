"""``python -m tilewright.testing.opinfo``: Core ATen on PyTorch's own samples.

Each sample is exported, compiled by rule, run and compared with PyTorch, in processes with limits
of time and memory. Outcomes are kept in a folder: what is there isn't tried again. Prints the share
of right samples by dtype, and by operator what isn't right and why. Ends with 1 if anything isn't.

    python -m tilewright.testing.opinfo --ops 'scatter*' --dtypes float32 --samples 10
    python -m tilewright.testing.opinfo --samples 8 --page figures.md
"""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Iterator, Sequence

from tilewright.relax.frontend.torch.exported import require_torch
from tilewright.testing.arguments import parser_of
from tilewright.testing.opinfo.cases import core_operators, entries, spread
from tilewright.testing.opinfo.check import check_sample, list_samples
from tilewright.testing.opinfo.results import LISTED, OUTSIDE, RIGHT, Sample, page
from tilewright.testing.workers import Kept, add_options, write_section

DTYPES = "float32,int64,bool,bfloat16,float16"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 if a sample wasn't right."""
    args = _arguments().parse_args(argv)
    torch = require_torch()
    torch.set_num_threads(1)
    kept = Kept(args.folder)
    if args.again:
        kept.forget(LISTED, RIGHT)
    lists = [
        f"{dtype} {name}"
        for dtype in args.dtypes.split(",")
        for name, entry in entries().items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in args.ops.split(","))
        and entry.has_dtype(getattr(torch, dtype))
    ]
    if not args.report:
        kept.run(lists, list_samples, args)
        kept.run(_samples(lists, kept, args.samples), check_sample, args)
    chosen = [
        (sample, found) for name in lists for sample, found in _outcomes(name, kept, args.samples)
    ]
    text = page(chosen, _told(args, [name.split()[1] for name in lists]))
    print(text)
    if args.page:
        write_section(args.page, "opinfo", text)
    return int(any(status not in (RIGHT, *OUTSIDE) for _, (status, _) in chosen))


def _arguments() -> argparse.ArgumentParser:
    parser = parser_of("opinfo", "Core ATen on the samples of PyTorch's operator database.")
    add = parser.add_argument
    add("--ops", default="*", help="patterns of names, with commas between: 'scatter*,index_put'")
    add("--dtypes", default=DTYPES, help="with commas between")
    add("--samples", type=int, help="at most so many per operator and dtype; all if left out")
    add_options(parser, "opinfo-results")
    return parser


def _samples(lists: Sequence[str], kept: Kept, limit: int | None) -> Iterator[str]:
    """Names of the samples to check: a list's name and a number."""
    for name in lists:
        status, count = kept.outcomes[name]
        if status == LISTED:
            yield from (f"{name} {number}" for number in spread(int(count), limit))


def _outcomes(name: str, kept: Kept, limit: int | None) -> Iterator[tuple[Sample, tuple[str, str]]]:
    """Outcomes of a list's samples; of the list itself, where it couldn't be made."""
    status, reason = kept.outcomes.get(name, (LISTED, "0"))
    if status != LISTED:
        yield Sample.named(f"{name} 0"), (status, f"its samples can't be listed: {reason}")
        return
    for number in spread(int(reason), limit):
        full = f"{name} {number}"
        if full in kept.outcomes:
            yield Sample.named(full), kept.outcomes[full]


def _told(args: argparse.Namespace, names: Sequence[str]) -> str:
    torch, known = require_torch(), entries()
    reached = {known[name].core for name in names}
    # Sizes are no operators: they are evaluated when a model is imported.
    all_core = {name for name in core_operators() if not name.startswith("sym_")}
    some = "all samples" if args.samples is None else f"up to {args.samples} samples"
    return (
        f"PyTorch {torch.__version__}: {some} per dtype of {len(set(names))} entries in its "
        f"database, which call {len(reached & all_core)} of the {len(all_core)} operators that it "
        "tags `core`"
    )


if __name__ == "__main__":
    raise SystemExit(main())
