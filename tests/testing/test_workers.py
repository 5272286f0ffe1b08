"""Campaigns of checks: limits of processes, outcomes that are kept, sections of pages."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tilewright.support.errors import TilewrightError
from tilewright.testing.workers import Kept, cell, check_all, write_section


def _check(name: str) -> tuple[str, str]:
    if name == "dies":
        os._exit(3)
    if name == "late":
        time.sleep(60)
    if name == "large":
        held = b"x" * 2**28
        time.sleep(60)
        return "ok", str(len(held))
    if name == "raises":
        raise ValueError("no")
    return "ok", name


def test_a_fault_is_that_of_one_check() -> None:
    found = check_all(["dies", "raises", "fine"], _check, 2, 60.0)
    assert found == {
        "dies": ("failed", "the process died with exit status 3"),
        "raises": ("failed", "ValueError: no"),
        "fine": ("ok", "fine"),
    }


def test_limits_of_processes() -> None:
    late = check_all(["late"], _check, 1, 0.2)
    assert late == {"late": ("failed", "no result within 0.2 s")}
    large = check_all(["large"], _check, 1, 60.0, memory=0.2)
    assert large == {"large": ("failed", "it takes more than 0.2 GiB of memory")}


def test_a_line_that_was_cut_off_is_forgotten(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add("a", "ok", "")
    kept.add("b", "wrong", "1 instead of 2")
    with (tmp_path / "outcomes.jsonl").open("a") as file:
        file.write('["c", "o')
    again = Kept(tmp_path)
    assert again.outcomes == kept.outcomes
    again.forget("ok")
    assert list(again.outcomes) == ["a"]
    again.add("c", "ok", "")
    assert Kept(tmp_path).outcomes["c"] == ("ok", "")


def test_a_section_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- end -->\nafter\n")
    write_section(page, "a", "new\n")
    assert page.read_text() == "before\n<!-- a -->\n\nnew\n\n<!-- end -->\nafter\n"
    with pytest.raises(TilewrightError, match="no lines <!-- b -->"):
        write_section(page, "b", "new")
    assert cell("a |\n <b>") == r"a \| \<b\>"
