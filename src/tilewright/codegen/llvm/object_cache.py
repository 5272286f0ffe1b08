"""A cache of compiled objects on disk, by what they are compiled from.

Code that every process needs (binder, pool, workspace) would cost each of them some 50 ms of LLVM.
An entry is a file in ``<cache_dir>/objects`` named by the hash of text, options and LLVM version;
it starts with the hash of its content, so that a damaged file is noticed and made again. A cache
that can't be written only costs time.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tilewright.codegen.llvm.jit import compile_ll, llvm_version
from tilewright.support.settings import setting

_HASH_BYTES = 32


def _entry(text: str, options: tuple[str | None, ...]) -> Path:
    key = hashlib.sha256(repr((llvm_version(), options, text)).encode()).hexdigest()
    return Path(setting("cache_dir")) / "objects" / f"{key[:40]}.o"


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    code = data[_HASH_BYTES:]
    return code if hashlib.sha256(code).digest() == data[:_HASH_BYTES] else None


def _write(path: Path, code: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(hashlib.sha256(code).digest() + code)
        temporary.replace(path)
    except OSError:
        # A full disk or a read-only home: the next process compiles again.
        return


def compile_cached(
    text: str, *, triple: str, cpu: str, features: str = "", passes: str = "fast"
) -> bytes:
    """Do what :func:`compile_ll` does, unless the cache has the object already.

    Nothing is left to this machine's defaults, so that entries hold wherever the cache is used.
    """
    path = _entry(text, (triple, cpu, features, passes))
    code = _read(path)
    if code is None:
        code = compile_ll(text, triple=triple, cpu=cpu, features=features, passes=passes)
        _write(path, code)
    return code


def compile_portable(text: str, triple: str) -> bytes:
    """Compile (or find) code for the oldest CPU of the triple's architecture."""
    oldest = "x86-64" if triple.startswith("x86_64") else "generic"
    return compile_cached(text, triple=triple, cpu=oldest)
