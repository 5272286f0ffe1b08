"""The page of results: ``docs/models.md``."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.zoo.families import ENTRIES, Entry
from benchmarks.zoo.judge import LIMIT, SYMBOLIC

Results = Mapping[str, Mapping[str, Mapping[str, Any]]]


def key(entry: Entry) -> str:
    """Name an entry among all."""
    return f"{entry.library}:{entry.name}"


def right(answer: Mapping[str, Any]) -> bool:
    """Whether a way came through with the right results."""
    return "error" not in answer and answer["difference"] <= LIMIT


def render(results: Results, machine: str, command: str) -> str:
    """Render the page."""
    shown = [entry for entry in ENTRIES if key(entry) in results]
    lines = [
        "# Models",
        "",
        f"{len(shown)} architectures with random weights, batch 1, float32, without a trial of"
        " tuning, made by",
        "",
        f"    {command}",
        "",
        f"on {machine}. Results count as right within {LIMIT:g} of PyTorch's (largest difference"
        " over largest value), or of what it computes in float64. `export` is"
        " `tilewright.compile(model, example_inputs=…)`,"
        ' `compile` is `torch.compile(model, backend="tilewright")`; times are milliseconds a'
        " call, build times (export / compile / inductor, the first call included) seconds. The"
        " figures are of several runs: of what a change concerned, only that was measured again.",
        "",
        *_summary(shown, results),
        "",
    ]
    for family in dict.fromkeys(entry.family for entry in shown):
        lines += [f"## {family.capitalize()}", "", *_TABLE]
        lines += [_row(entry, results[key(entry)]) for entry in shown if entry.family == family]
        lines.append("")
    lines += [*_frozen(shown, results), *_symbolic(shown, results)]
    faults = [
        f"- `{key(entry)}`, {way}: {_first_line(answer)}"
        for entry in shown
        for way, answer in results[key(entry)].items()
        if not right(answer)
    ]
    if faults:
        lines += ["## What fails", "", *faults, ""]
    return "\n".join(lines)


_TABLE = (
    "| architecture | eager | inductor | export | compile | eager / export | inductor / export"
    " | difference | build |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)


def _frozen(shown: list[Entry], results: Results) -> list[str]:
    """Our backend with parameters as constants next to inductor, which has them so, too."""
    rows = []
    for entry in shown:
        ways = results[key(entry)]
        if "frozen" in ways:
            pair = [ways.get("inductor"), ways["frozen"]]
            cells = [f"`{entry.name}` ({entry.library})", *map(_ms, pair), _ratio(*pair)]
            cells.append(" / ".join(map(_build, reversed(pair))))
            rows.append(f"| {' | '.join(cells)} |")
    if not rows:
        return []
    return [
        "## Frozen",
        "",
        '`torch.compile(model, backend="tilewright", options={"freezing": True})`: parameters are'
        " constants, as they are for inductor.",
        "",
        "| architecture | inductor | frozen | inductor / frozen | build (frozen / inductor) |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
    ]


def _symbolic(shown: list[Entry], results: Results) -> list[str]:
    """Sizes that come with the call next to known ones."""
    rows = []
    for entry in shown:
        answer = results[key(entry)].get(SYMBOLIC)
        if answer is not None:
            quotient = "-"
            if "static_seconds" in answer:
                quotient = f"{answer['seconds'] / answer['static_seconds']:.2f}"
            known = {**answer, "seconds": answer.get("static_seconds", 0)}
            cells = (f"`{entry.name}` ({entry.library})", _ms(known), _ms(answer), quotient)
            rows.append(f"| {' | '.join(cells)} |")
    if not rows:
        return []
    return [
        "## Symbolic sizes",
        "",
        "Batch and length, or batch, height and width, come with the call; a batch of two. Export"
        " fixes a size that the model itself fixes.",
        "",
        _symbolic_summary([results[key(entry)].get(SYMBOLIC) for entry in shown]),
        "",
        "| architecture | known sizes | symbolic | symbolic / known |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
    ]


def _symbolic_summary(answers: Sequence[Mapping[str, Any] | None]) -> str:
    """Say how many are right, and what symbolic sizes cost."""
    known = [answer for answer in answers if answer is not None]
    text = f"{sum(map(right, known))} of {len(known)} right"
    ratios = [
        answer["seconds"] / answer["static_seconds"]
        for answer in known
        if right(answer) and "static_seconds" in answer
    ]
    if ratios:
        within = sum(ratio <= 1.25 for ratio in ratios)
        mean = statistics.geometric_mean(ratios)
        text += (
            f", {mean:.2f} times as long as with known sizes (geometric mean of {len(ratios)}),"
            f" at most 1.25 times for {within}"
        )
    return f"{text}."


def _row(entry: Entry, ways: Mapping[str, Mapping[str, Any]]) -> str:
    export = ways.get("export", {})
    cells = [
        f"`{entry.name}` ({entry.library})",
        *(_ms(ways.get(way)) for way in ("eager", "inductor", "export", "compile")),
        *(_ratio(ways.get(way), export) for way in ("eager", "inductor")),
        f"{export['difference']:.0e}" if "difference" in export else "-",
        " / ".join(_build(ways.get(way)) for way in ("export", "compile", "inductor")),
    ]
    return f"| {' | '.join(cells)} |"


def _ms(answer: Mapping[str, Any] | None) -> str:
    if answer is None or not right(answer):
        return "-" if answer is None else "fails"
    return f"{answer['seconds'] * 1e3:.3g}" if "seconds" in answer else "right"


def _build(answer: Mapping[str, Any] | None) -> str:
    if answer is None or "build_seconds" not in answer:
        return "-"
    return f"{answer['build_seconds']:.1f}"


def _quotient(peer: Mapping[str, Any] | None, ours: Mapping[str, Any] | None) -> float | None:
    if peer is None or ours is None or not ("seconds" in peer and "seconds" in ours):
        return None
    return float(peer["seconds"] / ours["seconds"])


def _ratio(peer: Mapping[str, Any] | None, ours: Mapping[str, Any] | None) -> str:
    quotient = _quotient(peer, ours)
    return "-" if quotient is None else f"{quotient:.2f}"


def _summary(shown: list[Entry], results: Results) -> list[str]:
    lines = []
    for way in ("export", "compile", "frozen", "inductor"):
        answers = [results[key(entry)][way] for entry in shown if way in results[key(entry)]]
        if not answers:
            continue
        text = f"- {way}: {sum(map(right, answers))} of {len(answers)} right"
        for peer in ("eager", "inductor"):
            quotients = [
                quotient
                for entry in shown
                if way != peer
                and (
                    quotient := _quotient(
                        results[key(entry)].get(peer), results[key(entry)].get(way)
                    )
                )
            ]
            if quotients:
                mean = statistics.geometric_mean(quotients)
                text += f", {mean:.2f} times as fast as {peer} (geometric mean of {len(quotients)})"
        lines.append(text)
    return lines


def _first_line(answer: Mapping[str, Any]) -> str:
    if "error" in answer:
        line = re.sub(r"[^\s(]*/(?=\w+\.py)", "", str(answer["error"]).splitlines()[0])  # folders
        return line[:200].replace("|", "\\|")
    return f"differs by {answer['difference']:.1e}"
