"""Draw the chart of results, and write the table of the same figures into `docs/results.md`.

    python tools/results_chart.py           # write docs/results.svg and the table
    python tools/results_chart.py --check   # exit status 1 if one of them is out of date

The figures are those of `docs/results.json`; whoever measures again edits them there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

DOCS = Path(__file__).parent.parent / "docs"
FIGURES, CHART, PAGE = DOCS / "results.json", DOCS / "results.svg", DOCS / "results.md"
TABLE = re.compile(r"(?<=<!-- families: tools/results_chart\.py -->\n).*?(?=<!-- end -->)", re.S)

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 220, 60, 64, 44
ROW, BAR, GAP = 30, 10, 2
# Colours that differ in lightness too, on white paper and on a dark page.
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; }
  .small { font-size: 11px; fill: #57606a; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  .even { stroke: #57606a; stroke-width: 1.5; }
  .bar0 { fill: #9ecae9; }
  .bar1 { fill: #1f6fb2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9da7b3; }
    .grid { stroke: #30363d; }
    .even { stroke: #9da7b3; }
    .bar0 { fill: #c6dff2; }
    .bar1 { fill: #4a95d6; }
  }
"""


class Figures(NamedTuple):
    """How many times as long as ours the best peer takes, for each family and number of threads.

    With as many digits as were measured.
    """

    machine: str
    peers: str
    threads: list[int]
    families: dict[str, list[str]]
    mean: list[str]


def read() -> Figures:
    """Return the figures of the data file."""
    data = json.loads(FIGURES.read_text())
    return Figures(
        data["machine"], data["peers"], data["threads"], data["families"], data["geometric mean"]
    )


def chart(figures: Figures) -> str:
    """Return the chart as SVG: a group of bars for each family, the largest gain on top."""
    rows = sorted(figures.families.items(), key=lambda item: -max(map(float, item[1])))
    rows.append(("geometric mean of all", figures.mean))
    height = TOP + ROW * len(rows) + BOTTOM
    end = int(max(float(value) for _, values in rows for value in values)) + 1
    per_unit = (WIDTH - LEFT - RIGHT) / end
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(_told(figures))}</title>",
        f"<style>{STYLE}</style>",
        _text(16, 24, "The best peer’s time over Tilewright’s", "title"),
        _text(16, 44, f"{figures.machine}; peers: {figures.peers}; longer is better", "small"),
    ]
    bottom = height - BOTTOM
    for tick in range(end + 1):
        x = LEFT + tick * per_unit
        lines.append(f'<path class="grid" d="M{x:.1f} {TOP - 6}V{bottom}"/>')
        lines.append(_text(x, bottom + 16, f"{tick}×", "small", "middle"))
    for number, (name, values) in enumerate(rows):
        top = TOP + number * ROW
        lines.append(_text(LEFT - 10, top + ROW / 2 + 4, name, "name", "end"))
        for place, value in enumerate(values):
            y, length = top + 3 + place * (BAR + GAP), float(value) * per_unit
            lines.append(
                f'<rect class="bar{place}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}"/>'
            )
            lines.append(_text(LEFT + length + 5, y + BAR - 1, value, "small"))
    lines.append(f'<path class="even" d="M{LEFT + per_unit:.1f} {TOP - 6}V{bottom}"/>')
    for place, threads in enumerate(figures.threads):
        x = LEFT + place * 110
        lines.append(
            f'<rect class="bar{place}" x="{x}" y="{height - 18}" width="{BAR}" height="{BAR}"/>'
        )
        lines.append(_text(x + 16, height - 9, _threads(threads), "small"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def table(figures: Figures) -> str:
    """Return the same figures as a table of a Markdown page."""
    heads = ["operators", *map(_threads, figures.threads)]
    lines = ["", "| " + " | ".join(heads) + " |", "|---|" + "---:|" * len(figures.threads)]
    rows = [*figures.families.items(), ("geometric mean of all", figures.mean)]
    for name, values in rows:
        lines.append("| " + " | ".join([name, *values]) + " |")
    return "\n".join(lines) + "\n\n"


def _told(figures: Figures) -> str:
    means = " and ".join(
        f"{mean} on {_threads(threads)}"
        for threads, mean in zip(figures.threads, figures.mean, strict=True)
    )
    return f"The best peer's time over Tilewright's, by kind of operator; geometric mean {means}"


def _threads(number: int) -> str:
    return {1: "one thread", 2: "two threads"}.get(number, f"{number} threads")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(text)}</text>'


def main() -> int:
    """Write or check the chart and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    check = parser.parse_args().check
    figures = read()
    page = PAGE.read_text()
    if not TABLE.search(page):
        raise SystemExit(f"{PAGE.name} has no place for the table of families")
    stale = []
    for path, text in (
        (CHART, chart(figures)),
        (PAGE, TABLE.sub(lambda _: table(figures), page)),
    ):
        if not path.exists() or path.read_text() != text:
            stale.append(path)
            if not check:
                path.write_text(text)
    for path in stale:
        print(f"docs/{path.name} {'is out of date: run make docs' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
