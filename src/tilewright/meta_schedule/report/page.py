"""The report of a tuning run: one HTML file that needs no other.

Everything in it that comes from logs and databases is text of elements (``support.html``), so none
of it can become markup.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from xml.etree.ElementTree import Element

from tilewright.driver.peak import Peaks
from tilewright.meta_schedule.database import Database
from tilewright.meta_schedule.report.charts import (
    CHART_STYLE,
    Axis,
    Cross,
    Dot,
    Line,
    chart,
    key,
)
from tilewright.meta_schedule.report.data import ReportData, TaskData, rank_correlation, read
from tilewright.meta_schedule.report.explain import Explanation, explain_record, interval
from tilewright.meta_schedule.report.roofline import floor_of, peaks_here
from tilewright.meta_schedule.runner.base import CONFIDENCE
from tilewright.meta_schedule.times import confidence, robust_seconds
from tilewright.script.notebook import CODE_STYLE, code, folded, shortened
from tilewright.support.html import Child, page, table, tag
from tilewright.support.text import human_time
from tilewright.support.version import __version__
from tilewright.target import Target

_STYLE = """
:root { --ground: #fff; --text: #1f2328; --soft: #59636e; --line: #dfe3e8; --first: #1f6fb2;
  --second: #d9730d; --third: #2e8540; --bad: #c0392b; }
@media (prefers-color-scheme: dark) { :root { --ground: #15181c; --text: #e6edf3; --soft: #9da7b3;
  --line: #30363d; --first: #58a6e0; --second: #f0a050; --third: #5fb573; --bad: #ee7b6c; } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--text); background: var(--ground);
  max-width: 1180px; margin: 2em auto; padding: 0 1.5em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; }
h3 { font-size: 1.05em; margin: .4em 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: .7em 0; font-size: 13px; }
th, td { text-align: left; padding: .25em .9em .25em 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; } .number { text-align: right; white-space: nowrap; }
.pair { display: flex; flex-wrap: wrap; gap: 1.5em; } .pair > div { flex: 1 1 420px; min-width: 0; }
.facts td:first-child { white-space: nowrap; color: var(--soft); }
.facts div { white-space: pre-wrap; }
.bar { display: inline-block; height: .8em; background: var(--first); border-radius: 2px;
  vertical-align: middle; margin-right: .6em; min-width: 1px; }
section { border-top: 1px solid var(--line); padding-top: .8em; margin-top: 1.4em; }
summary { cursor: pointer; color: var(--first); } .note { color: var(--soft); }
"""

_BAR = 260


def write_report(
    work_dir: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    compare: str | os.PathLike[str] | None = None,
    database: Database | None = None,
    measure: bool = True,
) -> Path:
    """Write the report of a work directory into one HTML file, and return its path.

    ``compare`` is a second work directory. Records are those of ``database``, by default those in
    the directory. With ``measure`` the limits of this machine are
    measured, if it is the one that was tuned for.

    Raises ``TuneError`` if a directory has neither logs nor a database.
    """
    data = read(work_dir, database)
    other = None if compare is None else read(compare)
    path = Path(output)
    path.write_text(report(data, other, measure=measure), encoding="utf-8")
    return path


def report(data: ReportData, other: ReportData | None = None, *, measure: bool = True) -> str:
    """Return the report as HTML."""
    targets = Counter(task.target for task in data.tasks if task.target is not None)
    peaks = {target: peaks_here(target) if measure else None for target in targets}
    title = f"Tuning report: {data.name}"
    rivals = {} if other is None else {task.workload: task for task in other.tasks}
    body = [
        tag("h1", title),
        _heading(data, targets),
        tag("h2", "Tasks"),
        _overview(data.tasks, peaks),
        *([] if other is None else _comparison(data, other)),
        *_times(data),
        *_rejections(data.tasks),
        *[part for target in targets for part in _roofline(data.tasks, target, peaks[target])],
        tag("h2", "Task by task"),
        *[
            _details(number, task, data, rivals.get(task.workload), peaks)
            for number, task in enumerate(data.tasks, 1)
        ],
    ]
    return page(title, _STYLE + CHART_STYLE + CODE_STYLE, *body)


def _heading(data: ReportData, targets: Iterable[Target]) -> Element:
    runs = {trial["run"] for task in data.tasks for trial in task.trials}
    trials = sum(len(task.trials) for task in data.tasks)
    notes = [
        f"Tasks: {len(data.tasks) + data.more}; trials: {trials}; runs: {len(runs)}. "
        f"Made {datetime.now():%Y-%m-%d %H:%M} by Tilewright {__version__}.",
        f"{data.left_out} lines of logs could not be read." if data.left_out else "",
        f"{data.more} tasks with fewer trials are left out." if data.more else "",
    ]
    return tag(
        "div",
        [tag("p", note, class_="note") for note in notes if note],
        [tag("p", f"Target: {target}", class_="note") for target in targets],
    )


# ---- sections about all tasks --------------------------------------------------------------------


def _overview(tasks: Sequence[TaskData], peaks: dict[Target, Peaks | None]) -> Element:
    rows: list[list[Child]] = []
    for number, task in enumerate(tasks, 1):
        best = task.best_seconds
        rate = task.flops / best / 1e9 if 0 < best < math.inf else 0.0
        rows.append([
            str(number), task.name, str(len(task.trials)), _time(best), _ratio(task.gain),
            f"{rate:.4g}" if rate else "–", _share(task, peaks),
            ", ".join(f"{reason} {count}" for reason, count in task.rejected.most_common()) or "–",
        ])  # fmt: skip
    columns = ("#", "task", "trials", "best", "over the rules", "GFLOP/s", "of limit", "rejected")
    return table(columns, rows, numeric=("#", *columns[2:7]))


def _time(seconds: float) -> str:
    return human_time(seconds) if 0 < seconds < math.inf else "–"


def _ratio(value: float | None) -> str:
    return f"{value:.2f}×" if value else "–"


def _share(task: TaskData, peaks: dict[Target, Peaks | None]) -> str:
    known = None if task.target is None else peaks.get(task.target)
    if known is None or task.target is None or not 0 < task.best_seconds < math.inf:
        return "–"
    infos = task.record.args_info or () if task.record is not None else ()
    floor = floor_of(known, task.target, task.flops, task.nbytes, infos)
    return f"{floor.seconds / task.best_seconds:.0%}"


def _bars(rows: Sequence[tuple[str, float, str]], columns: Sequence[str]) -> Element:
    """Return a table with a bar for each value: name, value, text."""
    most = max((value for _, value, _ in rows), default=0.0) or 1.0
    made: list[list[Child]] = [
        [name, text, tag("span", class_="bar", style=f"width:{_BAR * value / most:.0f}px")]
        for name, value, text in rows
    ]
    return table((*columns, ""), made, numeric=columns[1:])


def _times(data: ReportData) -> list[Element]:
    phases: dict[str, float] = {}
    for run in data.runs:
        for name, seconds in (run["phases"] or {}).items():
            phases[name] = phases.get(name, 0.0) + seconds
    total = phases.pop("total", 0.0)
    if not phases:
        return []
    whole = max(total, 1e-9)
    rest = total - sum(phases.values())
    longest = sorted(phases.items(), key=lambda item: -item[1])
    if rest > 0.005 * whole:
        longest.append(("all else", rest))
    rows = [(name, spent, f"{spent:.1f} s, {spent / whole:.0%}") for name, spent in longest]
    note = f"{total:.1f} s; runs that ended: {len(data.runs)}. Phases may overlap."
    return [
        tag("h2", "Where the time went"),
        tag("p", note, class_="note"),
        _bars(rows, ("phase", "seconds")),
    ]


def _rejections(tasks: Sequence[TaskData]) -> list[Element]:
    found: Counter[str] = sum((task.rejected for task in tasks), Counter())
    if not found:
        return []
    rows = [(reason, float(count), str(count)) for reason, count in found.most_common()]
    return [
        tag("h2", "Candidates rejected, by reason"),
        tag(
            "p", "wrong, crash, timeout, run: when they were run; build…: by the compiler; others: "
            "by checks of the schedule, before a trial was spent.", class_="note",
        ),
        _bars(rows, ("reason", "candidates")),
    ]  # fmt: skip


def _roofline(tasks: Sequence[TaskData], target: Target, peaks: Peaks | None) -> list[Element]:
    """Return the chart of one target: rates by operations per byte, under what is possible."""
    dots = []
    for number, task in enumerate(tasks, 1):
        best = task.best_seconds
        if task.target == target and task.flops and task.nbytes and 0 < best < math.inf:
            rate, intensity = task.flops / best, task.flops / task.nbytes
            text = f"{task.name}: {rate / 1e9:.4g} GFLOP/s, {intensity:.3g} operations per byte"
            dots.append(Dot(intensity, rate, text, mark=str(number)))
    if not dots:
        return []
    lines: list[Line] = []
    note = "No limits are drawn: they are measured on the machine that was tuned for"
    if peaks is not None:
        lines = _roofs(peaks, min(dot.x for dot in dots) / 3, max(dot.x for dot in dots) * 3)
        note = "Limits, measured just now (other programs lower them): float32 arithmetic "
        note += f"at {peaks.flops['float32'] / 1e9:.4g} GFLOP/s, reading from " + ", ".join(
            f"{level} at {item.read / 1e9:.3g} GB/s" for level, item in peaks.bandwidth.items()
        )
    x = Axis("operations per byte of the arguments", log=True)
    y = Axis("operations per second", _rate, log=True)
    return [
        tag("h2", "Roofline"),
        tag(
            "p",
            f"{target}. {note}. Numbers are those of the tasks; dots that would hide each other "
            "are moved apart.",
            class_="note",
        ),
        chart(x, y, lines, dots),
    ]


def _rate(value: float) -> str:
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:g} {unit}"
    return f"{value:g}"


def _roofs(peaks: Peaks, low: float, high: float) -> list[Line]:
    top = peaks.flops["float32"]
    made = [Line([(high, top), (low, top)], "second dashed", "float32")]
    for level, item in peaks.bandwidth.items():
        end = min(high, top / item.read)
        if low < end:
            ends = [(low, low * item.read), (end, end * item.read)]
            made.append(Line(ends, "second dashed", level))
    return made


def _comparison(data: ReportData, other: ReportData) -> list[Element]:
    theirs = {task.workload: task for task in other.tasks}
    rows: list[list[Child]] = []
    ratios = []
    for number, task in enumerate(data.tasks, 1):
        rival = theirs.get(task.workload)
        if rival is None:
            continue
        both = math.isfinite(task.best_seconds) and math.isfinite(rival.best_seconds)
        ratio = rival.best_seconds / task.best_seconds if both and task.best_seconds else None
        if ratio:
            ratios.append(ratio)
        rows.append([
            str(number), task.name, f"{len(task.trials)} / {len(rival.trials)}",
            _time(task.best_seconds), _time(rival.best_seconds), _ratio(ratio),
            _told(task, rival),
        ])  # fmt: skip
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    only = len(data.tasks) - len(rows), len(other.tasks) - len(rows)
    columns = ("#", "task", "trials", "first", "second", "second / first", "")
    return [
        tag("h2", "Comparison"),
        tag(
            "p", f"First: {data.name}. Second: {other.name}. {len(rows)} tasks are in both, "
            f"{only[0]} only in the first, {only[1]} only in the second. Geometric mean of the "
            f"ratios: {_ratio(mean)}. Times of two machines, or of a quiet and a busy one, don't "
            "compare.", class_="note",
        ),
        table(columns, rows, numeric=("#", *columns[2:6])),
    ]  # fmt: skip


def _told(task: TaskData, rival: TaskData) -> str:
    """Whether two results differ by more than their measurements do."""
    if task.record is None or rival.record is None:
        return ""
    mine, other = task.record.run_secs, rival.record.run_secs
    return told(mine, other, alike=task.record.cold == rival.record.cold) if mine and other else ""


def told(mine: Sequence[float], other: Sequence[float], *, alike: bool = True) -> str:
    """Whether two lists of times differ by more than noise; ``alike`` if the caches were.

    told([1.0] * 12, [2.0] * 12) == "first is faster"
    """
    if not alike:
        return "one with cold caches, one with warm: they don't compare"
    (low, high), (their_low, their_high) = interval(mine), interval(other)
    if high >= their_low and their_high >= low:
        return "equal within noise"
    if min(confidence(mine), confidence(other)) < CONFIDENCE:
        return "too few values to tell"
    return "first is faster" if high < their_low else "second is faster"


# ---- one task ------------------------------------------------------------------------------------


def _details(
    number: int,
    task: TaskData,
    data: ReportData,
    rival: TaskData | None,
    peaks: dict[Target, Peaks | None],
) -> Element:
    explained = Explanation()
    if task.record is not None:
        known = None if task.target is None else peaks.get(task.target)
        explained = explain_record(task.record, database=data.database, log=task.log, peaks=known)
    facts: list[list[Child]] = [
        [title, tag("div", [tag("div", line) for line in lines])]
        for title, lines in explained.facts.items()
    ]
    pictures = [x for x in (_progress(task, rival), _predicted(task)) if x is not None]
    parts = [
        folded(title, code(shortened(text)))
        for title, text in (
            ("Loops of the best", explained.tree),
            ("Its trace", explained.trace),
            ("Its program", explained.script),
        )
        if text
    ]
    return tag(
        "section",
        tag("h3", f"{number}. {task.name}"),
        tag("div", [tag("div", picture) for picture in pictures], class_="pair"),
        folded("Why this schedule", _plain_table(facts)) if facts else None,
        parts,
    )


def _plain_table(rows: Sequence[Sequence[Child]]) -> Element:
    made = [tag("tr", [tag("td", cell) for cell in row]) for row in rows]
    return tag("table", made, class_="facts")


def _progress(task: TaskData, rival: TaskData | None) -> Element | None:
    """Return the chart of the best time after each trial."""
    trials = task.trials
    if not task.curve():
        return None
    dots, crosses, starts, last = [], [], [], None
    for number, trial in enumerate(trials, 1):
        if trial["run"] != last and last is not None:
            starts.append(number - 0.5)
        last = trial["run"]
        origin = trial["origin"] or "a candidate"
        if trial["seconds"]:
            seconds = robust_seconds(trial["seconds"])
            kind = "third" if origin.startswith("rule") else "first"
            dots.append(Dot(number, seconds, f"{number}: {human_time(seconds)}, {origin}", kind))
        else:
            why = trial["error"] or trial["reason"] or "failed"
            crosses.append(Cross(number, f"{number}: {trial['reason']}: {why} ({origin})"))
    lines = [Line(task.curve(), "first")]
    times = [dot.y for dot in dots]
    lines += [Line([(at, min(times)), (at, max(times))], "first faint") for at in starts]
    keys = [("first", "best so far, and the search's trials"), ("third", "trials by rule")]
    if crosses:
        keys.append(("bad", "rejected"))
    if rival is not None and rival.curve():
        lines.append(Line(rival.curve(), "second"))
        keys.append(("second", "second run"))
    drawn = chart(Axis("trial"), Axis("time", human_time, log=True), lines, dots, crosses)
    return tag("div", drawn, key(*keys))


def _predicted(task: TaskData) -> Element | None:
    """Return the chart of measured times by the cost model's scores."""
    found = task.predictions()
    if len(found) < 3:
        return None
    dots = [
        Dot(
            score, seconds, f"score {score:.2f}: {human_time(seconds)}, {trial['origin']}",
            "third" if str(trial["origin"]).startswith("rule") else "first",
        )
        for score, seconds, trial in found
    ]  # fmt: skip
    rank = rank_correlation([x[0] for x in found], [-x[1] for x in found])
    told = "" if rank is None else f"; rank correlation {rank:.2f}"
    x = Axis("score by the cost model (higher: faster)")
    return tag(
        "div",
        chart(x, Axis("measured time", human_time, log=True), [], dots),
        tag(
            "p",
            f"Predicted before measuring against measured: {len(found)} candidates{told}",
            class_="key",
        ),
    )
