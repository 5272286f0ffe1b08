"""Linking a library by somebody else: a system's compiler, given as TVM's ``fcompile``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tilewright.runtime.executable import FCompile
from tilewright.support.errors import BuildError


class ExternalLink:
    """Links objects by ``fcompile(file_name, object files, **options)``.

    The object files are in ``workspace_dir`` afterwards, if that is given.
    """

    def __init__(
        self,
        fcompile: FCompile,
        workspace_dir: str | os.PathLike[str] | None,
        options: Mapping[str, Any],
    ) -> None:
        self.fcompile = fcompile
        self.workspace_dir = workspace_dir
        self.options = dict(options)

    def __call__(self, objects: Sequence[bytes], exports: Sequence[str]) -> bytes:
        """Return the bytes of the library, which exports what the objects show.

        Raises ``BuildError`` if there is none afterwards.
        """
        given = self.workspace_dir
        place = TemporaryDirectory(prefix="tilewright-") if given is None else nullcontext(given)
        with place as name, TemporaryDirectory(prefix="tilewright-") as made:
            library = Path(made, "library.so")
            files = write_objects(Path(name), objects)
            self.fcompile(str(library), files, **self.options)
            if not library.is_file():
                raise BuildError("fcompile(file_name, files) has not written its library")
            return library.read_bytes()


def write_objects(folder: Path, objects: Sequence[bytes]) -> list[str]:
    """Write object files into a folder, and return their names.

    Raises ``BuildError`` if they can't be written there.
    """
    files = [str(folder / f"lib{number}.o") for number in range(len(objects))]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in zip(files, objects):
            Path(file).write_bytes(data)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        raise BuildError(f"can't write object files into {folder}: {why}") from None
    return files
