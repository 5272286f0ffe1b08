"""Folders for files that a program needs for a while."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path


class TempDirectory:
    """A folder that is removed with this object, or by ``remove``."""

    def __init__(self, custom_path: str | None = None) -> None:
        self.temp_dir = str(custom_path) if custom_path else tempfile.mkdtemp(prefix="tilewright-")
        Path(self.temp_dir).mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.temp_dir, ignore_errors=True)

    __del__ = remove

    @property
    def path(self) -> str:
        """Where the folder is."""
        return self.temp_dir

    def __truediv__(self, other: str) -> Path:
        return Path(self.temp_dir) / other

    def relpath(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return str(self / name)

    def listdir(self) -> list[str]:
        """Return the names of the files in the folder."""
        return [item.name for item in Path(self.temp_dir).iterdir()]


def tempdir(custom_path: str | None = None) -> TempDirectory:
    """Make a folder, which is removed when nobody has it any more."""
    return TempDirectory(custom_path)
