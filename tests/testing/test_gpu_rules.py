"""The campaign of random operators by rule for GPUs: what it checks, keeps and reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.everyday import few
from tilewright.codegen.cuda import nvrtc
from tilewright.ir import IRModule
from tilewright.support.errors import MissingExtraError
from tilewright.testing import gpu_rules
from tilewright.testing.fuzz import ruled_gpu
from tilewright.testing.fuzz.operators_mixed import MIXED
from tilewright.testing.workers import FAILED, Kept


def compiled() -> str:
    try:
        nvrtc.nvrtc_version()
    except MissingExtraError:
        return ""
    return "compiled"


@few("label", sorted(MIXED), every=4)
def test_operators_are_scheduled_compiled_and_simulated(label: str) -> None:
    status, what = gpu_rules.check(f"suite-1@{label}", simulated=True)
    assert status == gpu_rules.PASSED, what
    operator, _, _, *done = what.split(" | ")
    assert operator == label
    assert compiled() in " ".join(done)
    assert "simulat" in what


def test_outcomes_are_kept_and_not_checked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ["--folder", str(tmp_path), "--jobs", "1", "--only", "moves", "--simulate-every", "2"]
    assert gpu_rules.main([*args, "--count", "2"]) == 0
    assert "2 cases, 0 faults" in capsys.readouterr().out
    kept = Kept(tmp_path).outcomes
    assert ["simulated" in what for _, what in kept.values()] == [True, False]

    assert gpu_rules.main([*args, "--count", "2", "--simulated", "2"]) == 0
    assert all("simulated" in what for _, what in Kept(tmp_path).outcomes.values())

    def fails(case: str, simulated: bool) -> tuple[str, str]:
        return FAILED, f"moves | {simulated} | none is to be checked again"

    monkeypatch.setattr(gpu_rules, "check", fails)
    assert gpu_rules.main([*args, "--count", "2"]) == 0
    assert gpu_rules.main([*args, "--count", "3"]) == 1
    out = capsys.readouterr().out
    assert "gpu_rules --case 0-2@moves: moves | True | none is to be checked again" in out


def test_a_function_without_a_schedule_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Nothing:
        def __init__(self, target: object) -> None:
            pass

        def __call__(self, mod: IRModule) -> IRModule:
            return mod

    monkeypatch.setattr(ruled_gpu, "ApplyDefaultSchedule", Nothing)
    assert gpu_rules.main(["--case", "suite-0@moves"]) == 1
    assert "unscheduled: function 'main'" in capsys.readouterr().out
