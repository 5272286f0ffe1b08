"""What was found: lines in a file, so that a run can be taken up again; tables of them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

#: Statuses that say nothing about us.
OUTSIDE = ("skipped", "unexportable")


class Results:
    """Outcomes by operator, dtype and number of the sample, kept in ``results.jsonl``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "results.jsonl"
        self.outcomes: dict[tuple[str, str, int], tuple[str, str]] = {}
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self.outcomes[row["op"], row["dtype"], row["sample"]] = (
                    row["status"],
                    row["reason"],
                )

    def add(self, op: str, dtype: str, sample: int, status: str, reason: str) -> None:
        """Keep an outcome; it takes the place of an earlier one."""
        self.outcomes[op, dtype, sample] = (status, reason)
        row = {"op": op, "dtype": dtype, "sample": sample, "status": status, "reason": reason}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def forget_failures(self) -> None:
        """Let samples that weren't right be tried again."""
        self.outcomes = {key: found for key, found in self.outcomes.items() if found[0] == "ok"}


def table(outcomes: Iterable[tuple[tuple[str, str, int], tuple[str, str]]]) -> str:
    """By dtype how many samples are right; by operator what isn't, and why."""
    by_dtype: dict[str, Counter[str]] = defaultdict(Counter)
    by_op: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    tried: Counter[str] = Counter()
    for (op, dtype, _), (status, reason) in outcomes:
        by_dtype[dtype][status] += 1
        tried[op] += 1
        if status not in ("ok", "skipped"):
            by_op[op][status, reason] += 1
    lines = [f"{'dtype':10} {'right':>7} {'of':>7} {'share':>8}  others"]
    for dtype, counts in by_dtype.items():
        lines.append(f"{dtype:10} {_shares(counts)}")
    lines.append("")
    wrong = sorted(by_op.items(), key=lambda item: -item[1].total())
    for op, reasons in wrong:
        lines.append(f"{op}: {reasons.total()} of {tried[op]}")
        for (status, reason), count in reasons.most_common(8):
            lines.append(f"  {count:5}  {status}: {reason}")
    return "\n".join(lines)


def _shares(counts: Counter[str]) -> str:
    judged = counts.total() - sum(counts[status] for status in OUTSIDE)
    share = counts["ok"] / judged if judged else 0.0
    others = ", ".join(f"{count} {status}" for status, count in counts.items() if status != "ok")
    return f"{counts['ok']:7} {judged:7} {share:8.2%}  {others}"
