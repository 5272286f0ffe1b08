"""The page about a tuning run: what it shows, and that nothing foreign becomes markup."""

from __future__ import annotations

import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from trial_cases import Run

from tilewright.driver.peak import Bandwidth, Peaks
from tilewright.meta_schedule.database import JSONDatabase
from tilewright.meta_schedule.report import data, page, write_report
from tilewright.meta_schedule.report.charts import Axis, Cross, Dot, Line, chart, ticks
from tilewright.meta_schedule.report.page import told
from tilewright.meta_schedule.report.roofline import floor_of, peaks_here
from tilewright.support.errors import TuneError
from tilewright.support.html import markup
from tilewright.target import Target

TARGET = Target("llvm -mcpu=znver4 -num-cores=1")
HOSTILE = "</title></svg><script>alert(1)</script><img src=x onerror=alert(2)>"


def tuned(folder: Path, *times: list[float] | str, name: str = "doubled") -> Run:
    """A run with one batch and a race, in a folder."""
    run = Run(folder, name, database=JSONDatabase(work_dir=folder))
    made = run.batch(*times)
    run.race([made[-1], made[0]], [1e-6, 1e-6, 1e-6], [2e-6, 2e-6, 2e-6])
    run.log.end({"searching": 1.5, "measuring": 2.0, "total": 4.0})
    return run


class Tags(HTMLParser):
    """The elements of a page, and whether all that was opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_all_sections(tmp_path: Path) -> None:
    tuned(tmp_path, [2e-6], [1.5e-6], "wrong", "wrong", [1e-6])
    path = write_report(tmp_path, tmp_path / "r.html", measure=False)
    text = path.read_text()
    tags = Tags(text)
    assert not tags.open and tags.found.count("svg") == 3  # progress, predictions, roofline
    for words in (
        "Where the time went", "2.0 s, 50%", "all else", "Candidates rejected, by reason",
        "Roofline", "Predicted before measuring against measured: 3 candidates",
        "found by the search", "what the rules make: 2.00 times as long", "vectorized",
        " applies",
    ):  # fmt: skip
        assert words in text, words
    assert ">2.00×<" in text  # over the rules
    assert ">wrong 2<" in text


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    tuned(tmp_path, [2e-6], [1e-6])
    text = write_report(tmp_path, tmp_path / "r.html", measure=False).read_text()
    tags = Tags(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(tags.found)
    assert not {"src", "href", "onload"} & tags.attributes
    assert not re.search(r"https?://|url\(|@import", text)


def test_hostile_names_and_lines_stay_text(tmp_path: Path) -> None:
    run = tuned(tmp_path, [2e-6], "wrong", [1e-6], name=HOSTILE)
    (log,) = (path for path in (tmp_path / "logs").iterdir() if path.name != "runs.jsonl")
    event = {
        "kind": "trial",
        "run": HOSTILE,
        "origin": HOSTILE,
        "reason": HOSTILE,
        "error": HOSTILE,
    }
    batch = {"kind": "batch", "run": HOSTILE, "rejected": {HOSTILE: 3}}
    late = {"kind": "trial", "seconds": [1e-6], "origin": HOSTILE, "predicted": 1.0}
    race = {"kind": "race", "entries": [{"won": True, "trace": "x"}, {"origin": HOSTILE}, 3]}
    with log.open("a") as file:
        for line in (event, batch, late, race):
            file.write(json.dumps(line) + "\n")
    with (tmp_path / "logs" / "runs.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "run", "phases": {HOSTILE: 9.0}}) + "\n")
    text = write_report(tmp_path, tmp_path / "r.html", compare=tmp_path, measure=False).read_text()
    tags = Tags(text)
    assert not tags.open and not {"script", "img"} & set(tags.found)
    assert "<script" not in text and "&lt;script&gt;" in text
    assert run.task.name == HOSTILE


def test_two_runs_are_compared(tmp_path: Path) -> None:
    tuned(tmp_path / "a", [2e-6], [1e-6])
    run = Run(tmp_path / "b", database=JSONDatabase(work_dir=tmp_path / "b"))
    run.batch([4e-6, 4e-6], [3e-6, 3e-6])
    path = write_report(tmp_path / "a", tmp_path / "r.html", compare=tmp_path / "b", measure=False)
    text = path.read_text()
    assert ">3.00×<" in text and "too few values to tell" in text and "second run" in text
    assert "Geometric mean of the ratios: 3.00×" in text


@pytest.mark.parametrize(
    ("mine", "other", "alike", "said"),
    [
        ([1.0] * 12, [2.0] * 12, True, "first is faster"),
        ([2.0] * 12, [1.0] * 12, True, "second is faster"),
        ([1.0] * 12, [2.0], True, "too few values to tell"),
        ([1.0] * 3, [2.0] * 12, True, "too few values to tell"),
        ([1.0, 3.0] * 6, [2.0] * 12, True, "equal within noise"),
        ([1.0], [1.0], True, "equal within noise"),
        ([1.0] * 12, [2.0] * 12, False, "they don't compare"),
    ],
)
def test_faster_is_said_where_intervals_lie_apart(
    mine: list[float], other: list[float], alike: bool, said: str
) -> None:
    assert said in told(mine, other, alike=alike)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="no logs and no database"):
        write_report(tmp_path, tmp_path / "r.html")


def test_logs_without_a_database_will_do(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.batch([2e-6], [1e-6])
    text = write_report(tmp_path, tmp_path / "r.html", measure=False).read_text()
    assert "1 us" in text and "Why this schedule" not in text


def test_a_database_without_logs_will_do(tmp_path: Path) -> None:
    tuned(tmp_path, [2e-6], [1e-6])
    for path in (tmp_path / "logs").iterdir():
        path.unlink()
    text = write_report(tmp_path, tmp_path / "r.html", measure=False).read_text()
    assert "Why this schedule" in text and "Where the time went" not in text
    assert "1 others in a race; how far isn't known" in text


# ---- charts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-5.0, 3.0), (1e-9, 2e-9), (-300.0, 300.0), (17.0, 17.2)]
)
@pytest.mark.parametrize("log", [False, True])
def test_axes_have_some_ticks(low: float, high: float, log: bool) -> None:
    axis = Axis("x", log=log)
    found = ticks(axis, low, high)
    places = [axis.place(value) for value in found]
    assert 2 <= len(found) <= 12 or (log and high - low < 1e-3)
    assert all(low - 1e-9 <= place <= high + 1e-9 for place in places)


def test_charts_leave_out_what_has_no_place() -> None:
    axis = Axis("y", log=True)
    made = chart(
        Axis("x"), axis,
        [Line([(1, 0.0), (2, math.inf), (3, 1.0)])],
        [Dot(1, -1.0), Dot(math.nan, 1.0), Dot(2, 2.0, "told")],
        [Cross(2, "why")],
    )  # fmt: skip
    text = markup(made)
    assert text.count("<circle") == 1 and "<title>told</title>" in text and "why" in text
    assert "nan" not in text and "inf" not in text
    assert "<svg" in markup(chart(Axis("x"), axis))


def test_numbers_may_be_as_large_as_they_are() -> None:
    dots = [Dot(1e300, 1e-300), Dot(-1e300, 1e300), Dot(1e-300, 1.0)]
    for log in (False, True):
        text = markup(chart(Axis("x", log=log), Axis("y", log=log), [], dots))
        assert "<circle" in text and "nan" not in text


def test_marked_dots_do_not_hide_each_other() -> None:
    text = markup(chart(Axis("x"), Axis("y"), [], [Dot(1, 1, mark=str(n)) for n in range(5)]))
    places = [float(x) for x in re.findall(r'cx="([\d.]+)"', text)]
    assert min(b - a for a, b in itertools.pairwise(places)) >= 16


def test_very_many_dots_are_thinned() -> None:
    text = markup(chart(Axis("x"), Axis("y"), [], [Dot(n, n) for n in range(6_000)]))
    assert 1000 < text.count("<circle") <= 1500


# ---- limits --------------------------------------------------------------------------------------

RATES = (1e12, 1e11, 1e10, 1e9)
PEAKS = Peaks(
    {"float32": 1e11, "int8": 4e11},
    {name: Bandwidth(rate, rate) for name, rate in zip(("L1", "L2", "L3", "DRAM"), RATES)},
)  # fmt: skip


def test_the_limit_is_the_longer_of_both_times() -> None:
    assert floor_of(PEAKS, TARGET, 1e9, 100).bound == "float32 arithmetic"
    moving = floor_of(PEAKS, TARGET, 10, 1e9)
    assert (moving.bound, moving.seconds) == ("DRAM bandwidth", 1.0)


def test_limits_of_another_machine_are_not_measured() -> None:
    assert peaks_here(Target("cuda")) is None
    assert peaks_here(Target("native").with_options(num_cores=4096)) is None


def test_a_roofline_has_labels(tmp_path: Path) -> None:
    tuned(tmp_path, [2e-6], [1e-6])
    tasks = data.read(tmp_path).tasks
    text = markup(*page._roofline(tasks, TARGET, PEAKS))
    assert ">float32<" in text and ">L3<" in text and ">1<" in text


def test_rank_correlation() -> None:
    assert data.rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert data.rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert data.rank_correlation([1, 1, 2, 3], [1, 1, 5, 9]) == pytest.approx(1.0)
    assert data.rank_correlation([1, 1, 1], [1, 2, 3]) is None
    assert data.rank_correlation([1, 2], [1, 2]) is None
