"""Seals: the end of an exported library, which tells whether it is intact.

The system's loader trusts what it maps: a truncated library crashes the process, and one with a
flipped bit computes something else. So exported libraries end in a *seal*, after everything that
loaders read: a magic number, the length and the SHA-256 of the content before it.
:func:`checked_copy` checks it before any of the code is mapped, on a copy in memory that can no
longer be changed, and that copy is loaded.

A seal is not a signature: it detects damage, not malice.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.runtime.package import SUFFIX, open_library
from tilewright.support.errors import BuildError

_MAGIC = b"\x89TWSEAL1"
_SEAL = struct.Struct("<8sQ32s")
_CHUNK = 1 << 20
_UNCHANGEABLE = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def seal(data: bytes) -> bytes:
    """Return the seal to append to ``data``."""
    return _SEAL.pack(_MAGIC, len(data), hashlib.sha256(data).digest())


def stored_checksum(path: Path) -> bytes:
    """Return the checksum at the end of a library, without reading the rest."""
    with open_library(path) as (file, size):
        file.seek(size - _SEAL.size, os.SEEK_CUR)
        return bytes(_SEAL.unpack(file.read(_SEAL.size))[2])


def _check(file: int, path: Path) -> bytes:
    """Return the checksum of a sealed file; raise if its content doesn't match."""
    size = os.fstat(file).st_size
    if size < _SEAL.size:
        raise _unsealed(path)
    with mmap.mmap(file, size, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
        end = size - _SEAL.size
        magic, length, checksum = _SEAL.unpack(view[end:])
        if magic != _MAGIC:
            raise _unsealed(path)
        with view[:end] as body:
            found = hashlib.sha256(body).digest()
    if length != end or found != checksum:
        raise BuildError(
            f"{path} can't be loaded: it is damaged, its content does not have the length and "
            "checksum that it ends in; copy or export it again"
        )
    return bytes(checksum)


def _unsealed(path: Path) -> BuildError:
    return BuildError(
        f"{path} can't be loaded: it does not end in the checksum of an exported library; if it "
        "was exported by Tilewright it is cut off or was changed (by strip, say): copy or export "
        "it again; if another compiler made it: load_module(path, checked=False)"
    )


@contextmanager
def checked_copy(path: Path) -> Iterator[tuple[bytes, Path]]:
    """Copy a sealed file and check the copy; yield its checksum and a path to load it from.

    Raises ``BuildError`` if the file is damaged or has no seal. The path's name is the file's own,
    in a folder that was never used before: the system's loader takes libraries with equal paths to
    be the same.
    """
    with TemporaryDirectory(prefix="tilewright-") as folder:
        # What loads it goes by the suffix.
        place = Path(folder, path.name if path.suffix != SUFFIX else f"{path.stem}.so")
        with open_library(path) as (source, left), open(_memory(place), "w+b") as copy:
            while chunk := source.read(min(left, _CHUNK)):
                copy.write(chunk)
                left -= len(chunk)
            copy.flush()
            if place.is_symlink():
                fcntl.fcntl(copy, fcntl.F_ADD_SEALS, _UNCHANGEABLE)
            yield _check(copy.fileno(), path), place


def _memory(place: Path) -> int:
    """Open a new file in memory under the path ``place``; on disk if that is not supported."""
    try:
        file = os.memfd_create(place.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:  # forbidden in some sandboxes
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o700)
    place.symlink_to(f"/proc/self/fd/{file}")
    return file
