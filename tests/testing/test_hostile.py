"""The command that reads hostile input sees what goes wrong, and goes on."""

from __future__ import annotations

import os
import signal

import pytest

from tilewright.testing.hostile.__main__ import KINDS, load_kind, main
from tilewright.testing.hostile.driver import run_cases
from tilewright.testing.hostile.kind import Case, Fault, Kind, Limits


def _raise(error):
    raise error


CHECKS = {
    "program": lambda: "program",
    "raises": lambda: _raise(KeyError("x")),
    "fault": lambda: _raise(Fault("two programs")),
    "runs code": lambda: exec("1") or "program",
    "opens": lambda: open(os.devnull).close() or "program",
    "dies": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "loops": lambda: pow(3, 10**9),
    "grows": lambda: "x" * (1 << 32),
}


def _kind(names, **limits):
    drawn = iter(names)
    return Kind(
        lambda rng: Case("listed", next(drawn)), lambda name: CHECKS[name](), Limits(**limits)
    )


def _run(*names, **limits):
    limits = {"seconds": 0.5, "memory": 1 << 28, **limits}
    return list(run_cases(_kind(names, **limits), 0, range(len(names))))


def test_what_is_a_fault_and_what_is_not():
    results = _run("program", "raises", "fault", "grows", "program")
    assert [item.outcome for item in results] == [
        "program", "KeyError", "fault", "MemoryError", "program",
    ]  # fmt: skip
    assert [bool(item.fault) for item in results] == [False, True, True, True, False]
    assert results[2].fault == "two programs"


def test_events_are_faults_where_they_are_watched():
    runs, opens, plain = _run("runs code", "opens", "program")
    assert "exec (<code object" in runs.fault and "open ('/dev/null'" in opens.fault
    assert plain.fault == ""
    assert _run("opens", watch=False)[0].fault == ""
    assert _run("opens", harmless=("open ('/dev/null'",))[0].fault == ""


def test_a_dead_child_is_a_fault_and_the_next_case_gets_another():
    dead, late, plain = _run("dies", "loops", "program")
    assert (dead.outcome, dead.fault) == ("dead process", "the process ended with SIGKILL")
    assert (late.outcome, late.fault) == ("dead process", "more than 0.5 s of processor time")
    assert (plain.outcome, plain.fault) == ("program", "")


@pytest.mark.parametrize("name", KINDS)
def test_cases_are_made_again_by_number(name, capsys):
    load_kind(name).prepare()
    shown = []
    for _ in range(2):
        assert main([name, "--only", "3", "--show"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


def test_the_command_reports_and_counts(capsys):
    assert main(["scripts", "--count", "5", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "5 cases" in text and "no fault" in text


@pytest.mark.parametrize(
    "name, seed, count",
    [("databases", 7, 15), ("libraries", 7, 60), ("kills", 8, 3), ("disks", 8, 6)],
)
def test_hostile_files_are_read(name, seed, count):
    for result in run_cases(load_kind(name), seed, range(count)):
        assert not result.fault, f"--seed {seed} --only {result.number}: {result.fault}"


@pytest.mark.slow
def test_whole_runs_of_tuning_that_are_killed_go_on():
    for result in run_cases(load_kind("runs"), 8, range(3)):
        assert not result.fault, f"--seed 8 --only {result.number}: {result.fault}"


def test_hostile_models_are_imported_or_refused():
    pytest.importorskip("onnx")
    for result in run_cases(load_kind("models"), 7, range(200)):
        assert not result.fault, f"--seed 7 --only {result.number}: {result.fault}"
