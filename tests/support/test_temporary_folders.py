"""Folders that go with the object that has made them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.support.utils import tempdir


def test_a_folder_of_somebody_else_is_neither_taken_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(FileExistsError):
        tempdir(str(tmp_path))
    assert (tmp_path / "precious").read_text() == "x"


def test_a_new_folder_goes_with_its_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = tempdir("a/b")
    assert (made / "c").parent.is_dir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    del made
    assert not (tmp_path / "a/b").exists()


def test_a_folder_goes_at_the_end_of_the_program(tmp_path: Path) -> None:
    code = "import sys\nfrom tilewright.support.utils import tempdir\nkept = tempdir(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "own")], check=True)
    assert list(tmp_path.iterdir()) == []
