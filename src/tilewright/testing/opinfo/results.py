"""What was found, as a section of a page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
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
    """By dtype how many samples are right; by operator what isn't, and why."""
    by_dtype: dict[str, Counter[str]] = defaultdict(Counter)
    faults: dict[tuple[str, str], list[tuple[Sample, str]]] = defaultdict(list)
    outside: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    tried: Counter[str] = Counter()
    for sample, (status, reason) in outcomes:
        by_dtype[sample.dtype][status] += 1
        tried[sample.op] += 1
        if status in OUTSIDE:
            outside[status, reason].append(sample)
        elif status != RIGHT:
            # Wrong numbers are different in each sample: the first one stands for all.
            kind = status if status == WRONG else f"{status}: {reason}"
            faults[sample.op, kind].append((sample, reason))
    lines = [
        f"{told}.",
        "",
        "| dtype | judged | right | share | refused | wrong | failed | not judged |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(_row(dtype, counts) for dtype, counts in by_dtype.items()),
    ]
    if faults:
        lines += ["", "| operator | dtypes | samples | what isn't right |", "|---|---|---:|---|"]
    for (op, kind), found in sorted(faults.items(), key=lambda item: (-len(item[1]), item[0])):
        dtypes = ", ".join(dict.fromkeys(sample.dtype for sample, _ in found))
        why = f"wrong: {found[0][1]}" if kind == WRONG else kind
        lines.append(f"| `{op}` | {dtypes} | {len(found)} of {tried[op]} | {cell(why)} |")
    if outside:
        lines += ["", "| operator | samples | why it isn't judged |", "|---|---:|---|"]
    for (status, reason), samples in sorted(outside.items(), key=lambda item: -len(item[1])):
        ops = ", ".join(f"`{op}`" for op in dict.fromkeys(sample.op for sample in samples))
        lines.append(f"| {ops} | {len(samples)} | {cell(f'{status}: {reason}')} |")
    return "\n".join(lines)


def _row(dtype: str, counts: Counter[str]) -> str:
    outside = sum(counts[status] for status in OUTSIDE)
    judged = sum(counts.values()) - outside
    share = counts[RIGHT] / judged if judged else 1.0
    return (
        f"| {dtype} | {judged:,} | {counts[RIGHT]:,} | {share:.2%} | {counts[REFUSED]} "
        f"| {counts[WRONG]} | {counts[FAILED]} | {outside} |"
    )
