"""Charts as SVG elements: axes with ticks, lines, dots with a text under the pointer.

Few kinds are needed, and each in dozens, so they are drawn here: a page of them stays small, needs
no library, follows the reader's light or dark theme and tells the value of each dot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

from tilewright.support.html import tag

Point = tuple[float, float]

WIDTH, HEIGHT = 520, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 14, 12, 42
_MOST_DOTS = 1500
_BIG = 8
_TICKS = 6
_MOST_DECADES = 300.0

CHART_STYLE = """
.chart { max-width: 640px; width: 100%; height: auto; display: block; }
.chart text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart .frame { stroke: var(--soft); stroke-width: 1; fill: none; }
.chart .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart .dashed { stroke-dasharray: 5 4; stroke-width: 1.5; }
.chart .faint { stroke-dasharray: 1 4; stroke-width: 1.2; }
.chart .first { stroke: var(--first); } .chart circle.first { fill: var(--first); }
.chart .second { stroke: var(--second); } .chart circle.second { fill: var(--second); }
.chart .third { stroke: var(--third); } .chart circle.third { fill: var(--third); }
.chart .bad { stroke: var(--bad); stroke-width: 1.5; }
.chart circle { stroke: none; fill-opacity: .55; }
.chart circle.big { fill-opacity: .9; }
.chart text.mark { fill: #fff; font-size: 10px; font-weight: 600; text-anchor: middle; }
.key { font-size: 12px; color: var(--soft); } .key span { margin-right: 1.2em; }
.key i { display: inline-block; width: 1.4em; height: .55em; margin-right: .4em; }
.key i.first { background: var(--first); } .key i.second { background: var(--second); }
.key i.third { background: var(--third); } .key i.bad { background: var(--bad); }
"""


@dataclass(frozen=True)
class Line:
    """Points joined by lines; ``kind`` is its colour (and ``dashed`` or ``faint``).

    The ``label`` stands at the first point.
    """

    points: Sequence[Point]
    kind: str = "first"
    label: str = ""


@dataclass(frozen=True)
class Dot:
    """A point with the text that is shown under the pointer; ``mark`` is written into it."""

    x: float
    y: float
    text: str = ""
    kind: str = "first"
    mark: str = ""


@dataclass(frozen=True)
class Cross:
    """What has an x and no y: a mark at the bottom."""

    x: float
    text: str = ""


@dataclass(frozen=True)
class Axis:
    """What an axis shows, how numbers are written, and whether it is logarithmic."""

    label: str
    text: Callable[[float], str] = lambda value: f"{value:g}"
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value is, in units of the axis."""
        return math.log10(value) if self.log else value


@dataclass(frozen=True)
class _Scale:
    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (self.axis.place(value) - self.low) / (self.high - self.low)
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 1)


def _scale(axis: Axis, values: Sequence[float], start: float, end: float) -> _Scale:
    places = [axis.place(value) for value in values] or [0.0]
    low, high = min(places), max(places)
    least = 0.05 if axis.log else max(abs(high) * 1e-3, 1e-30)
    margin = max(0.04 * (high - low), least)
    low, high = low - margin, high + margin
    if axis.log:  # a stranger's number may be as large as numbers are
        low, high = max(low, -_MOST_DECADES), min(high, _MOST_DECADES)
    return _Scale(axis, low, high, start, end)


def ticks(axis: Axis, low: float, high: float) -> list[float]:
    """Return round values between two places of an axis."""
    if not axis.log:
        step = _round_step((high - low) / _TICKS)
        first = math.ceil(low / step)
        return [n * step for n in range(first, math.floor(high / step) + 1)]
    decades = range(math.floor(low), math.ceil(high) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        found = [
            step * 10.0**decade
            for decade in decades
            for step in steps
            if low <= math.log10(step * 10.0**decade) <= high
        ]
        if len(found) >= 3:
            return found[:: -(-len(found) // (2 * _TICKS))]
    step = _round_step((10**high - 10**low) / _TICKS)
    return [n * step for n in range(math.ceil(10**low / step), math.floor(10**high / step) + 1)]


def _round_step(least: float) -> float:
    """The next of 1, 2, 5, 10 … that isn't less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)


def chart(
    x: Axis,
    y: Axis,
    lines: Sequence[Line] = (),
    dots: Sequence[Dot] = (),
    crosses: Sequence[Cross] = (),
) -> Element:
    """Return a chart. Values that aren't finite (or not positive on logarithmic axes) are left out.

    Of very many dots some are shown, evenly.
    """
    lines = [replace(line, points=[p for p in line.points if _fits(x, y, *p)]) for line in lines]
    dots = [dot for dot in dots if _fits(x, y, dot.x, dot.y)]
    dots = list(dots[:: -(-len(dots) // _MOST_DOTS) or 1])
    crosses = crosses[:: -(-len(crosses) // _MOST_DOTS) or 1]
    points = [p for line in lines for p in line.points] + [(dot.x, dot.y) for dot in dots]
    across = _scale(x, [p[0] for p in points] + [c.x for c in crosses], _LEFT, WIDTH - _RIGHT)
    up = _scale(y, [p[1] for p in points], HEIGHT - _BOTTOM, _TOP)
    return tag(
        "svg",
        _axes(across, up),
        [part for line in lines if line.points for part in _path(line, across, up)],
        [_cross(item, across) for item in crosses],
        _dots(dots, across, up),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{y.label} by {x.label}",
    )


def _fits(x: Axis, y: Axis, a: float, b: float) -> bool:
    finite = math.isfinite(a) and math.isfinite(b)
    return finite and (a > 0 or not x.log) and (b > 0 or not y.log)


def _axes(across: _Scale, up: _Scale) -> list[Element]:
    bottom, left = HEIGHT - _BOTTOM, _LEFT
    made = []
    for value in ticks(across.axis, across.low, across.high):
        at = across(value)
        made += [
            tag("line", x1=at, x2=at, y1=_TOP, y2=bottom, class_="grid"),
            tag("text", across.axis.text(value), x=at, y=bottom + 15, text_anchor="middle"),
        ]
    for value in ticks(up.axis, up.low, up.high):
        at = up(value)
        made += [
            tag("line", x1=left, x2=WIDTH - _RIGHT, y1=at, y2=at, class_="grid"),
            tag("text", up.axis.text(value), x=left - 6, y=at + 4, text_anchor="end"),
        ]
    middle = (bottom + _TOP) / 2
    return [
        *made,
        tag("path", d=f"M{left} {_TOP}V{bottom}H{WIDTH - _RIGHT}", class_="frame", fill="none"),
        tag(
            "text", across.axis.label, x=(left + WIDTH - _RIGHT) / 2, y=HEIGHT - 8,
            text_anchor="middle",
        ),
        tag(
            "text", up.axis.label, x=14, y=middle, text_anchor="middle",
            transform=f"rotate(-90 14 {middle})",
        ),
    ]  # fmt: skip


def _path(line: Line, across: _Scale, up: _Scale) -> list[Element]:
    places = [(across(a), up(b)) for a, b in line.points]
    steps = "L".join(f"{a} {b}" for a, b in places)
    made = [tag("path", d="M" + steps, class_=f"line {line.kind}", fill="none")]
    if line.label:
        (at, height), right = places[0], places[0][0] > WIDTH / 2
        # Above at the right end, else below: lines rise, and a label is not to be crossed.
        anchor, shift, below = ("end", -4, -5) if right else ("start", 4, 13)
        place = {"x": round(at + shift, 1), "y": round(height + below, 1)}
        made.append(tag("text", line.label, **place, text_anchor=anchor))
    return made


def _cross(item: Cross, across: _Scale) -> Element:
    at, bottom = across(item.x), HEIGHT - _BOTTOM
    made = tag("path", d=f"M{at - 3} {bottom - 7}l6 6m0 -6l-6 6", class_="bad")
    if item.text:
        made.append(tag("title", item.text))
    return made


def _dots(dots: Sequence[Dot], across: _Scale, up: _Scale) -> list[Element]:
    """Draw dots; those with a mark are moved to the right until each can be read."""
    made: list[Element] = []
    taken: list[Point] = []
    for dot in dots:
        at, height = across(dot.x), up(dot.y)
        if dot.mark:
            while any(math.dist((at, height), other) < 2 * _BIG for other in taken):
                at = round(at + _BIG / 2, 1)
            taken.append((at, height))
        made += _dot(dot, at, height)
    return made


def _dot(dot: Dot, at: float, height: float) -> list[Element]:
    size = f"{dot.kind} big" if dot.mark else dot.kind
    made = tag("circle", cx=at, cy=height, r=_BIG if dot.mark else 3, class_=size)
    if dot.text:
        made.append(tag("title", dot.text))
    if not dot.mark:
        return [made]
    label = tag("text", dot.mark, x=at, y=round(height + 3.5, 1), class_="mark")
    if dot.text:
        label.append(tag("title", dot.text))
    return [made, label]


def key(*entries: tuple[str, str]) -> Element:
    """Return the key of a chart: pairs of a colour and what has it."""
    return tag(
        "p", [tag("span", tag("i", class_=kind), text) for kind, text in entries], class_="key"
    )
