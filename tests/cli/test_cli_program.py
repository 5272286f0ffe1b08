"""The program as a whole: help, exit codes, logs, start-up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli_helpers import Done, Tilewright, environment, outside

from tilewright.cli import COMMANDS, cli


def test_help_lists_every_command_in_full(tilewright: Tilewright) -> None:
    done = tilewright("--help")
    assert done.code == 0
    for name, (_, text) in COMMANDS.items():
        assert f"{name} " in done.out
        assert text in done.out
    assert "..." not in done.out.partition("Commands:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(tilewright: Tilewright, name: str) -> None:
    done = tilewright(name, "--help")
    assert done.code == 0
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, click.Command)
    leaves = command.commands.values() if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        options = {option for param in leaf.params for option in param.opts}
        assert {"--json", "--log-file", "--verbose"} <= options
        described = [p for p in leaf.params if isinstance(p, click.Option)]
        assert all(option.help for option in described)


@pytest.mark.parametrize(
    "args, message",
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["tune"], "Missing argument 'MODEL'"),
        (["tune", "m:f", "--trials", "-1"], "-1 is not in the range"),
        (["demo", "--trials", "0"], "0 is not in the range"),
        (["compile", "m:f"], "Missing option '-o' / '--output'"),
        (["run", "m:f", "--target", "lvm"], "unknown target 'lvm'; did you mean 'llvm'"),
        (["run", "m:f", "--target", "llvm -cpu=x"], "target 'llvm' has no option 'cpu'"),
        (["run", "m:f", "--target", "llvm -mcpu=nosuch"], "CPU 'nosuch'"),
        (["run", "m:f", "--target", "llvm -num-cores=0"], "'num-cores' of target 'llvm' must be"),
        (["tune", "m:f", "--target", "cud"], "unknown target 'cud'; did you mean 'cuda'"),
        (["run", "missing.so"], "there is no file missing.so"),
        (["compile", "m:f", "-o", "x.so", "--work-dir", "missing"], "there is no folder missing"),
        (["doctor", "--log-file", "missing/log"], "missing/log can't be written: No such file"),
    ],
)
def test_wrong_usage_is_code_2(tilewright: Tilewright, args: list[str], message: str) -> None:
    done = tilewright(*args)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Usage: " in done.err


def test_version(tilewright: Tilewright) -> None:
    assert tilewright("--version").out.startswith("tilewright, version ")


def test_help_loads_no_compiler() -> None:
    code = (
        "import sys\n"
        "from tilewright.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = 'torch llvmlite xgboost numpy tvm_ffi tilewright.tir'.split()\n"
        "print(*[name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.stderr.strip() == ""


def test_log_file_keeps_the_reason_of_a_failure(
    tilewright: Tilewright, folder: Path, tmp_path: Path
) -> None:
    log = tmp_path / "details.log"
    done = tilewright("tune", f"{folder / 'tiny.py'}:raises", "--log-file", log)
    assert done.code == 1
    assert "Traceback" not in done.err
    text = log.read_text()
    assert "Traceback" in text
    assert "ValueError: boom" in text


def test_logging_ends_with_the_command(tilewright: Tilewright, tmp_path: Path) -> None:
    import logging

    root = logging.getLogger("tilewright")
    before = (list(root.handlers), root.level)
    tilewright("-v", "--log-file", tmp_path / "log", "db", "list", tmp_path)
    assert (list(root.handlers), root.level) == before


def test_a_reader_that_has_enough_is_no_error(records: Path) -> None:
    command = [sys.executable, "-m", "tilewright", "db", "list", str(records), "--json"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment(), timeout=60
    )
    os.close(write)
    assert done.stderr == ""


# ---- doctor ------------------------------------------------------------------------------------


def test_doctor_tells_what_works(tilewright: Tilewright) -> None:
    done = tilewright("doctor", "--json")
    assert done.code == 0, done.out
    assert done.json["ok"] is True
    assert done.json["cpu"]["cores"] >= 1
    assert set(done.json["checks"].values()) == {None}


def test_doctor_measures_what_things_cost(
    tilewright: Tilewright, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    usual = tilewright("doctor", "--costs", "--json").json["costs"]
    assert {row["source"] for row in usual} >= {"tuned by hand on a Zen 5"}
    done = tilewright("doctor", "--measure")
    assert done.code == 0, done.out
    assert "measured now, and are kept in" in done.out and (tmp_path / "costs.json").exists()
    here = tilewright("doctor", "--costs", "--json").json["costs"]
    assert [row["name"] for row in here] == [row["name"] for row in usual]
    assert next(row for row in here if row["name"] == "clock")["source"] == "measured here"


def test_doctor_without_pytorch_tells_how_to_get_it(
    tilewright: Tilewright, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.cli import doctor

    version_of = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda n: None if n == "torch" else version_of(n))
    done = tilewright("doctor")
    assert done.code == 0  # it is optional
    assert "pip install 'tilewright[torch]'" in done.out


def test_doctor_survives_a_missing_core_package(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['llvmlite'] = sys.modules['tvm_ffi'] = None\n"
    )
    env = {**environment(), "PYTHONPATH": f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"}
    command = [sys.executable, "-m", "tilewright", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 1
    assert "works: NO: ModuleNotFoundError" in done.stdout
    assert "Traceback" not in done.stderr


def test_doctor_survives_an_illegal_instruction(
    tilewright: Tilewright, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.cli import doctor

    def killed(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, -4, "", "")

    monkeypatch.setattr(doctor.subprocess, "run", killed)
    done = tilewright("doctor", "--json")
    assert done.code == 1
    assert done.json["problems"] == ["the self-test died of SIGILL"]


@pytest.mark.slow
def test_demo_tunes_once(tmp_path: Path) -> None:
    first: Done = outside("demo", "--trials", "1", "--work-dir", tmp_path, "--json", timeout=300)
    assert first.code == 0, first.err
    assert all(network["tasks"] for network in first.json["networks"])
    second = outside("demo", "--trials", "1", "--work-dir", tmp_path, "--json", timeout=300)
    assert second.code == 0, second.err
    assert all(network["tasks"] == [] for network in second.json["networks"])
    assert all(network["max_relative_error"] < 1e-5 for network in second.json["networks"])


def test_demo_in_a_folder_that_can_not_be_made(tilewright: Tilewright, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = tilewright("demo", "--work-dir", tmp_path / "file" / "inner")
    assert (done.code, done.out) == (1, "")
    assert "the work directory" in done.err
    assert "choose another with --work-dir" in done.err
