"""Folders for files that a program needs for a while."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class TempDirectory:
    """A new folder that is removed with this object, or by ``remove``.

    Raises ``FileExistsError`` for a ``custom_path`` that is there: what others put into it would
    be removed, too.
    """

    def __init__(self, custom_path: str | None = None) -> None:
        if custom_path:
            Path(custom_path).mkdir(parents=True)
            self.temp_dir = str(custom_path)
        else:
            self.temp_dir = tempfile.mkdtemp(prefix="tilewright-")
        # It knows what to remove: the program may be in another folder by then.
        whole = str(Path(self.temp_dir).absolute())
        self._removal = weakref.finalize(self, shutil.rmtree, whole, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        self._removal()

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
