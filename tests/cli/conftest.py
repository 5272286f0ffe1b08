from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_helpers import TINY, Done, Tilewright, outside

from tilewright.cli import main


@pytest.fixture
def tilewright(capsys: pytest.CaptureFixture[str]) -> Tilewright:
    """Run a command in this process."""

    def run(*args: str | Path) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Done(int(caught.value.code or 0), out, err)

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``tiny.py`` and the database ``records`` of a short tuning run."""
    made = tmp_path_factory.mktemp("cli")
    (made / "tiny.py").write_text(TINY)
    return made


@pytest.fixture(scope="session")
def tuned(folder: Path) -> Done:
    """The run that made the database ``records``, of two candidates per function."""
    return outside(
        "tune",
        "tiny:make",
        "--trials",
        "12",
        "--work-dir",
        "records",
        "--no-race",
        "--json",
        cwd=folder,
    )


@pytest.fixture
def records(tuned: Done, folder: Path, tmp_path: Path) -> Path:
    """A copy of the database, to be spoilt."""
    assert tuned.code == 0, tuned.err
    return Path(shutil.copytree(folder / "records", tmp_path / "records"))
