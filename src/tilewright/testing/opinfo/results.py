"""What was found, as a section of a page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilewright.testing.workers import FAILED, cell

RIGHT, REFUSED, WRONG = "ok", "refused", "wrong"
SKIPPED, UNEXPORTABLE = "skipped", "unexportable"
#: Not the outcome of a sample: how many an operator has.
LISTED = "listed"
#: Statuses that say nothing about us.
OUTSIDE = (SKIPPED, UNEXPORTABLE)


class Sample(NamedTuple):
    """One of an operator's samples in a dtype."""

    dtype: str
    op: str
    number: int

    @classmethod
    def named(cls, name: str) -> Sample:
        """The sample of a name: ``float32 add 3``."""
        dtype, op, number = name.split()
        return cls(dtype, op, int(number))


Outcome = tuple[str, str]


def page(outcomes: Iterable[tuple[Sample, Outcome]], told: str) -> str:
    """By dtype how many samples are right; by reason which aren't, and which aren't judged."""
    by_dtype: dict[str, Counter[str]] = defaultdict(Counter)
    faults: dict[str, list[tuple[Sample, str]]] = defaultdict(list)
    outside: dict[str, list[tuple[Sample, str]]] = defaultdict(list)
    for sample, (status, reason) in outcomes:
        by_dtype[sample.dtype][status] += 1
        if status in OUTSIDE:
            outside[f"{status}: {reason}"].append((sample, reason))
        elif status == WRONG:
            # Wrong numbers are different in each sample: an operator's first ones stand for all.
            faults[f"{status} {sample.op}"].append((sample, reason))
        elif status != RIGHT:
            faults[f"{status}: {reason}"].append((sample, reason))
    lines = [
        f"{told}.",
        "",
        "| dtype | judged | right | share | refused | wrong | failed | not judged |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(_row(dtype, counts) for dtype, counts in by_dtype.items()),
    ]
    for found, title in ((faults, "what isn't right"), (outside, "why it isn't judged")):
        if found:
            lines += ["", f"| {title} | samples | dtypes | operators |", "|---|---:|---|---|"]
        lines += (_reason(why, group) for why, group in sorted(found.items(), key=_largest_first))
    return "\n".join(lines)


def _largest_first(found: tuple[str, list[tuple[Sample, str]]]) -> tuple[int, str]:
    return -len(found[1]), found[0]


def _reason(why: str, found: Sequence[tuple[Sample, str]]) -> str:
    dtypes = ", ".join(dict.fromkeys(sample.dtype for sample, _ in found))
    ops = ", ".join(f"`{op}`" for op in dict.fromkeys(sample.op for sample, _ in found))
    if why.startswith(f"{WRONG} "):
        why = f"{WRONG}: {found[0][1]}"
    return f"| {cell(why)} | {len(found)} | {dtypes} | {ops} |"


def _row(dtype: str, counts: Counter[str]) -> str:
    outside = sum(counts[status] for status in OUTSIDE)
    judged = sum(counts.values()) - outside
    share = counts[RIGHT] / judged if judged else 1.0
    return (
        f"| {dtype} | {judged:,} | {counts[RIGHT]:,} | {share:.2%} | {counts[REFUSED]} "
        f"| {counts[WRONG]} | {counts[FAILED]} | {outside} |"
    )
