"""The examples run, with a small budget."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "TILEWRIGHT_FREEZE_NODES": "0"},
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def test_hand_scheduled_gemm() -> None:
    text = run("hand_scheduled_gemm.py")
    assert "def apply_trace(sch):" in text
    assert "gives the same program" in text
    # How fast it is depends on what else the machine does; that it is fast, not.
    assert float(text.rsplit(":", 1)[1]) > 0.5


@pytest.mark.slow
def test_tutorial_tuning(tmp_path: Path) -> None:
    text = run("tutorial_tuning.py", "8", str(tmp_path))
    assert "the other model: ['fused_matmul_relu'] found in" in text
    assert "records: " in text
