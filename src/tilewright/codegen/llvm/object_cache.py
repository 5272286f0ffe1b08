"""A cache of compiled objects on disk, by what they are compiled from.

Every build goes through it: a kernel that has been compiled before, by whichever process, costs
a file's reading instead of LLVM's work, and so does the code that every process needs (binder,
pool, workspace).

An entry is a file in ``<cache_dir>/objects`` named by the hash of text, options, LLVM's version and
our way of calling it; it starts with the hash of its name and content, so that a damaged file, or
one in another's place, is noticed and made again. Reading an entry renews its time. When the folder
has grown beyond the setting ``cache_megabytes``, the entries that nobody has used for longest go.
Entries come and go as whole files, so any number of processes may share a cache. One that can't be
written only costs time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import inspect
import os
import threading
import time
from functools import lru_cache
from pathlib import Path

from tilewright.codegen.llvm import jit, shared_llvm
from tilewright.codegen.llvm.jit import compile_ll, llvm_version
from tilewright.support.settings import setting

_HASH_BYTES = 32
# Trimming leaves this share of the bound, and happens once per this share of it written.
_LEFT, _STEP = 0.8, 1 / 32
#: Seconds after which a file that was never finished belongs to nobody.
_ABANDONED = 3600.0


@lru_cache(maxsize=1)
def _callers() -> str:
    """The hash of the code that calls LLVM."""
    source = inspect.getsource(jit) + inspect.getsource(shared_llvm)
    return hashlib.sha256(source.encode()).hexdigest()


def _version() -> tuple[str, str]:
    """What objects depend on besides their text and options: LLVM, and how we call it."""
    return llvm_version(), _callers()


def _folder() -> Path:
    return Path(setting("cache_dir")) / "objects"


def _limit() -> int:
    """Bytes that the entries may have together."""
    return int(setting("cache_megabytes")) << 20


def _entry(text: str, options: tuple[str | None, ...]) -> Path:
    key = hashlib.sha256(repr((_version(), options, text)).encode()).hexdigest()
    return _folder() / f"{key[:40]}.o"


def _checksum(path: Path, code: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + code).digest()


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    code = data[_HASH_BYTES:]
    if _checksum(path, code) != data[:_HASH_BYTES]:
        return None
    with contextlib.suppress(OSError):  # somebody else's cache: its owner decides what is old
        os.utime(path)
    return code


def _write(path: Path, code: bytes, limit: int) -> None:
    own = f"{os.getpid()}.{threading.get_ident()}"
    temporary = path.with_name(f"{path.name}.{own}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(_checksum(path, code) + code)
        temporary.replace(path)
    except OSError:
        # A full disk or a read-only home: the next process compiles again.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        return
    # By chance instead of by counting: processes needn't know of each other's writes.
    if int.from_bytes(os.urandom(4), "little") < len(code) / (limit * _STEP) * 2**32:
        trim_cache(limit)


def trim_cache(limit: int | None = None) -> int:
    """Remove the entries used least recently if all together have more than ``limit`` bytes.

    The setting ``cache_megabytes`` is the limit if none is given. Returns the bytes that are left;
    -1 if another process is at it, or the folder can't be read.
    """
    limit = _limit() if limit is None else limit
    try:
        with (_folder() / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _trim(limit)
    except OSError:
        return -1


def _trim(limit: int) -> int:
    entries = []
    for item in os.scandir(_folder()):
        try:
            info = item.stat()
            if item.name.endswith(".o"):
                entries.append((info.st_mtime_ns, info.st_size, item.path))
            elif item.name.endswith(".tmp") and info.st_mtime < time.time() - _ABANDONED:
                os.unlink(item.path)
        except FileNotFoundError:
            continue
    left = sum(size for _, size, _ in entries)
    if left <= limit:
        return left
    for _, size, path in sorted(entries):
        if left <= limit * _LEFT:
            break
        Path(path).unlink(missing_ok=True)
        left -= size
    return left


def compile_cached(
    text: str, *, triple: str, cpu: str, features: str = "", passes: str = "fast"
) -> bytes:
    """Do what :func:`compile_ll` does, unless the cache has the object already.

    Nothing is left to this machine's defaults, so that entries hold wherever the cache is used.
    """
    limit = _limit()
    if limit <= 0:
        return compile_ll(text, triple=triple, cpu=cpu, features=features, passes=passes)
    path = _entry(text, (triple, cpu, features, passes))
    code = _read(path)
    if code is None:
        code = compile_ll(text, triple=triple, cpu=cpu, features=features, passes=passes)
        _write(path, code, limit)
    return code


def read_entry(key: str) -> bytes | None:
    """Return what :func:`write_entry` kept under a key, for the same LLVM, if it is still there."""
    return _read(_entry(key, ())) if _limit() > 0 else None


def write_entry(key: str, data: bytes) -> None:
    """Keep bytes that depend on nothing but the key and LLVM."""
    limit = _limit()
    if limit > 0:
        _write(_entry(key, ()), data, limit)


@lru_cache(maxsize=128)
def oldest_cpu(triple: str) -> str:
    """Return LLVM's name of the oldest CPU of an architecture."""
    return "x86-64" if triple.startswith("x86_64") else "generic"


def compile_portable(text: str, triple: str, passes: str = "fast") -> bytes:
    """Compile (or find) code for the oldest CPU of the triple's architecture."""
    return compile_cached(text, triple=triple, cpu=oldest_cpu(triple), passes=passes)
