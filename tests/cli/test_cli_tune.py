"""Tuning, compiling and running from the command line."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import Done, Tilewright, environment

from tilewright.cli.compile import relative_error
from tilewright.meta_schedule.database import JSONDatabase
from tilewright.support.errors import RunError


def test_json_is_all_that_goes_to_standard_output(tuned: Done) -> None:
    assert tuned.code == 0, tuned.err
    assert sum(task["trials"] for task in tuned.json["tasks"]) == 12
    assert tuned.json["interrupted"] is False
    # Progress, and what the model's own code prints, are on the other channel.
    assert "[12/12] " in tuned.err
    assert "noise of the model" in tuned.err


def test_progress_elsewhere_than_on_a_terminal_is_plain_lines(
    tilewright: Tilewright, folder: Path, tmp_path: Path
) -> None:
    done = tilewright(
        "tune", f"{folder / 'tiny.py'}:make", "--trials", "1", "--op", "relu",
        "--work-dir", tmp_path, "--no-verify",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "[1/1] fused_matmul_add_relu: best " in done.out
    assert "\x1b" not in done.out
    # What leaving the check out gives up is said, and the record isn't a verified one.
    assert "without verification: what candidates compute isn't compared" in done.out
    records = JSONDatabase(work_dir=tmp_path).get_all_tuning_records()
    assert records and not any(record.verified for record in records)


def test_a_second_run_starts_from_the_records(
    tilewright: Tilewright, folder: Path, records: Path, tuned: Done
) -> None:
    model = f"{folder / 'tiny.py'}:make"
    done = tilewright("tune", model, "--trials", "0", "--work-dir", records, "--json")
    assert done.code == 0, done.err
    before = {task["task"]: task["best_seconds"] for task in tuned.json["tasks"]}
    assert {task["task"]: task["best_seconds"] for task in done.json["tasks"]} == before


def test_a_word_that_no_function_has(tilewright: Tilewright, folder: Path) -> None:
    done = tilewright("tune", f"{folder / 'tiny.py'}:make", "--op", "conv")
    assert done.code == 2
    assert "no function has conv in its name; there are fused_matmul_add_relu" in done.err


def test_a_folder_that_can_not_be_written(
    tilewright: Tilewright, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    inner = tmp_path / "file" / "inner"
    done = tilewright("tune", f"{folder / 'tiny.py'}:make", "--work-dir", inner)
    assert (done.code, done.out) == (1, "")
    assert "can't be written: Not a directory" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_folder(tilewright: Tilewright, folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        done = tilewright("tune", f"{folder / 'tiny.py'}:make", "--work-dir", tmp_path)
    finally:
        tmp_path.chmod(0o700)
    assert (done.code, done.out) == (1, "")
    assert "can't be written: Permission denied" in done.err


def tune_command(folder: Path, work_dir: Path) -> list[str]:
    model = f"{folder / 'tiny.py'}:make"
    command = [sys.executable, "-m", "tilewright", "tune", model, "--trials", "100000"]
    return [*command, "--work-dir", str(work_dir)]


def children(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return [x for child in found for x in (child, *children(child))]


def wait_for_records(work_dir: Path, count: int = 1) -> None:
    path = work_dir / "database_tuning_record.json"
    end = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < end, "nothing was measured"
        time.sleep(0.02)


def stored(work_dir: Path) -> int:
    lines = (work_dir / "database_tuning_record.json").read_text().splitlines()
    return len([json.loads(line) for line in lines])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda x: x.name)
def test_an_interrupt_keeps_what_was_measured(
    number: signal.Signals, folder: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*tune_command(folder, tmp_path), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    wait_for_records(tmp_path)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: every process of the group
    else:
        for pid in [*children(process.pid), process.pid]:  # as the end of a job or container
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "interrupted; everything measured so far is kept" in err
    assert "Traceback" not in err
    report = json.loads(out)
    assert report["interrupted"] is True
    assert not any("crash" in task["rejected"] for task in report["tasks"])
    rejected = sum(sum(task["rejected"].values()) for task in report["tasks"])
    assert sum(task["trials"] for task in report["tasks"]) - rejected == stored(tmp_path) > 0


def test_a_terminal_shows_a_live_table_and_ctrl_c_stops_it(folder: Path, tmp_path: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        command = tune_command(folder, tmp_path)
        os.execve(command[0], command, {**environment(), "TERM": "xterm", "COLUMNS": "120"})
    shown, pressed, end = b"", False, time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
        if not pressed and (tmp_path / "database_tuning_record.json").exists():
            pressed = stored(tmp_path) > 0
            if pressed:
                os.write(terminal, b"\x03")
    else:
        os.kill(child, signal.SIGKILL)  # nobody reads what it shows any more
    _, status = os.waitpid(child, 0)
    text = shown.decode()
    assert os.waitstatus_to_exitcode(status) == 0, text
    assert "/100000 trials" in text  # the live table's title
    assert "interrupted; everything measured so far is kept" in text
    assert "tuned into" in text
    assert "stopped early; run the same command again to go on" in text


def test_what_became_of_each_function(
    tilewright: Tilewright, folder: Path, records: Path, tuned: Done, tmp_path: Path
) -> None:
    model, library = f"{folder / 'tiny.py'}:make", tmp_path / "tiny.so"
    options = ("-o", library, "--work-dir", records, "--explain")
    done = tilewright("compile", model, *options, "--json")
    assert done.code == 0, done.err
    rows = done.json["explained"]
    assert {row["name"] for row in rows} == {task["task"] for task in tuned.json["tasks"]}
    for row in rows:  # by rule only if the race of whole graphs said so
        why = {"record": r"\d.* [nuµm]?s", "rule": "the graph is not clearly faster"}
        assert re.match(why[row["outcome"]], row["why"])
    assert done.json["tuned"] == sum(row["outcome"] == "record" for row in rows)
    text = tilewright("compile", model, *options).out
    assert all(row["name"] in text and row["why"] in text for row in rows)
    empty = tilewright("compile", model, "-o", library, "--work-dir", tmp_path, "--explain").out
    assert len(re.findall(r"rule +the database has no record", empty)) == len(rows)


def test_compile_and_run_a_library(
    tilewright: Tilewright, folder: Path, records: Path, tmp_path: Path
) -> None:
    model, library = f"{folder / 'tiny.py'}:make", tmp_path / "tiny.so"
    done = tilewright("compile", model, "-o", library, "--work-dir", records, "--json")
    assert done.code == 0, done.err
    assert (done.json["functions"], done.json["tuned"]) == (2, 2)
    done = tilewright("run", library, "--repeat", "1", "--json")
    assert done.code == 0, done.err
    assert done.json["outputs"] == [{"shape": [2, 4], "dtype": "float32"}]
    assert done.json["median_seconds"] > 0
    done = tilewright("run", library, "--repeat", "1")
    assert "output 0: float32[2, 4]" in done.out
    for option, value in (("--target", "native"), ("--work-dir", str(records))):
        done = tilewright("run", library, option, value)
        assert done.code == 2
        assert f"{option} says how a model is compiled" in done.err


def test_a_library_can_not_be_written(tilewright: Tilewright, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "tiny.so"
    done = tilewright("compile", f"{folder / 'tiny.py'}:make", "-o", path)
    assert (done.code, done.out) == (1, "")
    assert f"can't write {path}: No such file or directory" in done.err


@pytest.mark.parametrize(
    "signatures, message",
    [
        (None, "no signatures beside"),
        ("{", "is damaged"),
        ("[" * 100000, "is damaged"),
        ("[]", "is not of format tilewright-executable-2"),
        ('{"format": "tilewright-executable-2", "functions": [{}]}', "is damaged"),
    ],
)
def test_a_broken_library(
    tilewright: Tilewright, tmp_path: Path, signatures: str | None, message: str
) -> None:
    (tmp_path / "net.so").write_text("this is no library")
    if signatures is not None:
        (tmp_path / "net.so.json").write_text(signatures)
    done = tilewright("run", tmp_path / "net.so")
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_relative_error() -> None:
    one = [np.array([1.0, 2.0])]
    assert relative_error(one, one) == 0
    assert relative_error([np.array([1.0, 2.5])], one) == 0.25
    assert relative_error([np.array([1.0, np.nan])], one) == np.inf
    assert relative_error([np.array([1.0, np.inf])], [np.array([1.0, np.inf])]) == 0
    with pytest.raises(RunError, match=r"output 0 has shape \(2,\), \(2, 2\) was expected"):
        relative_error(one, [np.ones((2, 2))])
    with pytest.raises(RunError, match="1 outputs, 0 were expected"):
        relative_error(one, [])


def test_tensor_functions_are_tuned_but_make_no_library(
    tilewright: Tilewright, folder: Path, tmp_path: Path
) -> None:
    model = f"{folder / 'tiny.py'}:tensor_functions"
    done = tilewright("tune", model, "--trials", "1", "--work-dir", tmp_path, "--json")
    assert done.code == 0, done.err
    assert [task["task"] for task in done.json["tasks"]] == ["plus"]
    done = tilewright("compile", model, "-o", tmp_path / "plus.so")
    assert done.code == 1
    assert "tensor_functions gives tensor functions and no graph" in done.err


def test_an_interrupted_demo_is_not_done(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", "demo", "--trials", "1000", "--json",
         "--work-dir", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        start_new_session=True,
    )  # fmt: skip
    wait_for_records(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.endswith("interrupted\n")
    assert "Traceback" not in err
    assert stored(tmp_path) > 0
