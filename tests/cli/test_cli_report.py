"""Reports and explanations from the command line."""

from __future__ import annotations

from pathlib import Path

from cli_helpers import Tilewright

from tests.meta_schedule.conftest import matmul
from tilewright.meta_schedule.database import JSONDatabase

NAME = "fused_matmul_add_relu"


def test_a_report_of_a_run(tilewright: Tilewright, records: Path, tmp_path: Path) -> None:
    done = tilewright("report", records, "--no-measure")
    assert (done.code, done.out) == (0, f"wrote {records / 'report.html'}\n")
    text = (records / "report.html").read_text()
    assert NAME in text and "<svg" in text and "Where the time went" in text
    other = tmp_path / "other.html"
    done = tilewright("report", records, "--compare", records, "-o", other, "--no-measure")
    assert done.code == 0 and "Geometric mean of the ratios: 1.00×" in other.read_text()


def test_a_report_needs_a_folder(tilewright: Tilewright, tmp_path: Path) -> None:
    done = tilewright("report", tmp_path / "none")
    assert done.code == 2 and "there is no folder" in done.err
    done = tilewright("report", tmp_path)
    assert done.code == 1 and "has no logs and no database" in done.err


def test_a_record_is_explained(tilewright: Tilewright, records: Path) -> None:
    listed = tilewright("explain", records, "--json").json
    (workload,) = (item["name"] for item in listed if item["what"] == NAME)
    for name in (workload[:8], NAME):
        done = tilewright("explain", records, name, "--no-measure")
        assert done.code == 0, done.err
        for title in ("schedule  ", "time  ", "checked  ", "by rule  ", "loops:", "trace:"):
            assert f"\n{title}" in done.out, title
    second = tilewright("explain", records, f"{NAME}/2", "--no-measure", "--json").json
    first = tilewright("explain", records, NAME, "--no-measure", "--json").json
    assert first["facts"]["time"] != second["facts"]["time"] and "def main" in second["script"]


def test_a_record_that_is_not_there(tilewright: Tilewright, records: Path, tmp_path: Path) -> None:
    done = tilewright("explain", records, "zz")
    assert done.code == 2 and "no workload with a record has a hash" in done.err
    done = tilewright("explain", records, f"{NAME}/900")
    assert done.code == 2 and "has records 1 to" in done.err
    done = tilewright("explain", tmp_path / "records" / "logs")
    assert done.code == 2 and "there is no database in" in done.err


def test_a_function_of_a_model_is_explained(
    tilewright: Tilewright, folder: Path, records: Path, tmp_path: Path
) -> None:
    model = f"{folder / 'tiny.py'}:make"
    done = tilewright("explain", model, "--work-dir", records)
    assert done.code == 0 and f"{NAME}  record: " in done.out
    done = tilewright("explain", model, NAME, "--work-dir", records, "--no-measure")
    assert done.code == 0 and "\nchecked  " in done.out
    (tmp_path / "empty").mkdir()
    empty = tmp_path / "empty"
    done = tilewright("explain", model, NAME, "--work-dir", empty, "--no-measure", "--script")
    assert "by rule: the database has no record" in done.out and "script:" in done.out
    done = tilewright("explain", model, "fused_matmul_add_rel", "--work-dir", empty)
    assert done.code == 2 and NAME in done.err


def test_what_can_not_be_explained(tilewright: Tilewright, folder: Path) -> None:
    done = tilewright("explain", "model.so", "main")
    assert done.code == 2 and "doesn't keep its schedules" in done.err
    done = tilewright("explain", f"{folder / 'tiny.py'}:make", "--work-dir", folder / "none")
    assert done.code == 2 and "there is no folder" in done.err


def test_a_database_without_records_is_said_to_have_none(
    tilewright: Tilewright, tmp_path: Path
) -> None:
    JSONDatabase(work_dir=tmp_path).commit_workload(matmul(8, 8, 8))
    done = tilewright("explain", tmp_path)
    assert (done.code, done.out) == (0, f"{tmp_path} has no records, or no functions\n")
    assert tilewright("explain", tmp_path, "--json").json == []
