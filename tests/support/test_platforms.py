"""Where the package runs, and what it says elsewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = """
import sys
sys.platform = {platform!r}
for name in ("fcntl", "resource", "mmap"):
    sys.modules[name] = None
import tilewright
"""


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_import_elsewhere_says_what_is_supported(platform: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", ELSEWHERE.format(platform=platform)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: Tilewright runs on Linux")
    assert repr(platform) in last and "WSL 2" in last


def minor_versions() -> list[int]:
    """Versions of Python 3 that the metadata names."""
    text = (ROOT / "pyproject.toml").read_text()
    named = [int(item) for item in re.findall(r"Python :: 3\.(\d+)", text)]
    least, below = re.findall(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', text)[0]
    assert named == list(range(int(least), int(below)))
    return named


def test_the_source_is_of_the_oldest_python_that_the_metadata_names() -> None:
    least = min(minor_versions())
    assert sys.version_info[1] in minor_versions()
    for path in (ROOT / "src").rglob("*.py"):
        ast.parse(path.read_text(), str(path), feature_version=(3, least))
