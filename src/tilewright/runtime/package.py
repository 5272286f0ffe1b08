"""Exported libraries as one file: ``export_library("model.tar")``.

Such a file is a tar of the library, linked as always, and of what lies beside it:

    library.so        the shared library with its seal
    library.so.json   of graphs: their functions, and what they run

It is never unpacked: readers copy what they want from its place in the file. Only these two names,
of regular files, are taken, so no path, link, device, sparse file or extension of a hostile tar
means anything.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from tilewright.support.errors import BuildError

LIBRARY, BESIDE = "library.so", "library.so.json"
SUFFIX = ".tar"

_BLOCK = 512
_MAGIC = slice(257, 262)


def packed(library: bytes, beside: bytes | None = None) -> bytes:
    """Return the tar of a sealed library and what lies beside it."""
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in ((LIBRARY, library), (BESIDE, beside)):
            if data is not None:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                member.mode = 0o644
                tar.addfile(member, BytesIO(data))
    return made.getvalue()


def is_package(path: Path) -> bool:
    """Whether a file is a tar, whatever its name is."""
    with path.open("rb") as file:
        return _is_package(file)


def _is_package(file: BinaryIO) -> bool:
    file.seek(0)
    return file.read(_BLOCK)[_MAGIC] == b"ustar"


def _members(file: BinaryIO, path: Path) -> dict[str, tuple[int, int]]:
    """Where each member is: its first byte and its length.

    Raises ``BuildError`` unless the file is a tar of nothing but our members, each once.
    """
    found: dict[str, tuple[int, int]] = {}
    end, place = os.fstat(file.fileno()).st_size, 0
    while True:
        file.seek(place)
        header = file.read(_BLOCK)
        if len(header) == _BLOCK and not any(header):
            break
        name, size = _header(header, path)
        if name not in (LIBRARY, BESIDE) or name in found:
            raise BuildError(
                f"{path} can't be loaded: a package holds {LIBRARY} and {BESIDE}, once each, and "
                f"nothing else, this one {name!r}; object files, as in TVM's, are linked by a "
                "compiler: cc -shared -o library.so *.o"
            )
        if size > end - place - _BLOCK:
            raise _damaged(path)
        found[name] = place + _BLOCK, size
        place += _BLOCK + -(-size // _BLOCK) * _BLOCK
    if LIBRARY not in found:
        raise BuildError(f"{path} can't be loaded: it holds no {LIBRARY}")
    return found


def _header(header: bytes, path: Path) -> tuple[str, int]:
    """Return name and size of a member that is a regular file."""
    if len(header) < _BLOCK or header[_MAGIC] != b"ustar":
        raise _damaged(path)
    stated = _octal(header[148:156], path)
    if stated != sum(header) - sum(header[148:156]) + 8 * ord(" "):
        raise _damaged(path)
    # A prefix (of USTAR) would be the first part of the path.
    name = header[:100].rstrip(b"\0").decode("ascii", "replace")
    if header[156:157] not in (b"0", b"\0") or header[345:500].strip(b"\0"):
        raise BuildError(f"{path} can't be loaded: {name!r} is no plain file in it")
    return name, _octal(header[124:136], path)


def _octal(field: bytes, path: Path) -> int:
    digits = field.strip(b" \0")
    if not digits or digits.strip(b"01234567"):
        raise _damaged(path)
    return int(digits, 8)


def _damaged(path: Path) -> BuildError:
    return BuildError(f"{path} can't be loaded: it is damaged; copy or export it again")


@contextmanager
def open_library(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open the library of a file, a package or a library itself, at its first byte; its length.

    Raises ``BuildError`` for a package that is damaged, or holds anything else.
    """
    with path.open("rb") as file:
        if _is_package(file):
            start, size = _members(file, path)[LIBRARY]
        else:
            start, size = 0, os.fstat(file.fileno()).st_size
        file.seek(start)
        yield file, size


def read_member(path: Path, name: str, most: int) -> bytes:
    """Return the content of a package's member.

    Raises ``OSError`` if there is none, ``ValueError`` if it has more than ``most`` bytes, and
    ``BuildError`` as ``open_library`` does.
    """
    with path.open("rb") as file:
        found = _members(file, path).get(name)
        if found is None:
            raise FileNotFoundError(2, f"{path.name} holds no {name}")
        start, size = found
        if size > most:
            raise ValueError(f"it has more than {most} bytes")
        file.seek(start)
        return file.read(size)


def write_file(path: Path, *parts: bytes) -> None:
    """Write a library or a package, given its content one part after another.

    Readers see the old file or the new one. A library that is in use keeps its old file. Threads
    and processes that write the same one each have a file of their own until it is complete.
    """
    temporary: Path | None = None
    try:
        number, name = tempfile.mkstemp(prefix=".tilewright-", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(number, "wb") as file:
            file.writelines(parts)
        temporary.chmod(0o755)
        temporary.replace(path)
    except (OSError, ValueError) as err:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise BuildError(f"can't write {path}: {getattr(err, 'strerror', err)}") from err
