"""Random ONNX models: how they are drawn and judged, and a few of them."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("onnx")

from tilewright.testing import workers
from tilewright.testing.onnx_graphs.__main__ import main, summary
from tilewright.testing.onnx_graphs.check import check, difference
from tilewright.testing.onnx_graphs.draw import draw_case
from tilewright.testing.onnx_graphs.nests import NESTS
from tilewright.testing.onnx_graphs.operators import OPERATORS


@pytest.mark.parametrize("number", range(8))
def test_random_models(number: int) -> None:
    status, reason = check(f"daily-{number}")
    assert status in ("passed", "refused"), reason


def test_the_same_name_draws_the_same_model() -> None:
    first, second = (draw_case("again").model().SerializeToString() for _ in range(2))
    assert first == second
    assert draw_case("another").model().SerializeToString() != first


def test_all_operators_are_drawn() -> None:
    drawn = {node.op_type for n in range(150) for node in draw_case(f"all-{n}").drawing.nodes}
    assert len(drawn & {*OPERATORS}) > 80
    assert len(NESTS) == 4 and {"If", "Loop", "Scan", "f0"} <= drawn


def test_what_counts_as_a_difference() -> None:
    one = np.ones(3, np.float32)
    assert difference(one, one, [one], 1.0) == ""
    assert "instead of 1.0 at (2,)" in difference(one * [1, 1, 1.1], one, [one], 1.0)
    assert "shape" in difference(one[:2], one, [one], 1.0)
    assert "nan" in difference(one, one * [1, np.nan, 1], [one], 1.0)
    assert difference(one * 1e3, one * 1e3 + np.float32(0.01), [one], 8.0) == ""
    assert "3 instead of 2" in difference(np.array([3]), np.array([2]), [one], 1.0)


def test_a_report() -> None:
    text = summary({"0-1": ("passed", ""), "0-2": ("wrong", "Add: 1"), "0-3": ("refused", "x (n)")})
    assert "3 models: 1 passed, 1 wrong, 1 refused" in text and "wrong 0-2: Add: 1" in text


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--case", "daily-0"]) == 0
    assert "opset_import" in capsys.readouterr().out


def test_checks_that_die_or_hang_are_reported() -> None:
    def one(name: str) -> tuple[str, str]:
        if name == "raises":
            raise ValueError("so")
        if name == "hangs":
            time.sleep(30)
        if name == "dies":
            raise SystemExit(3)
        return "passed", ""

    found = workers.check_all(["fine", "raises", "dies", "hangs", "too"], one, 1, 0.5)
    assert found["fine"] == found["too"] == ("passed", "")
    assert found["raises"] == ("failed", "ValueError: so")
    assert found["hangs"] == ("failed", "no result within 0.5 s")
    assert found["dies"] == ("failed", "the process died with exit status 3")
