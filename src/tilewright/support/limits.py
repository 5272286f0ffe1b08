"""Limits of memory for a process that runs or compiles what nobody has tried before."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/statm")
# The field with the pages of data and stack: private memory that can be written.
_DATA_FIELD = 5


def physical_memory() -> int | None:
    """Return the machine's bytes of memory, ``None`` where the system doesn't tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def limit_memory(more: int | None) -> None:
    """Let this process take up to ``more`` bytes in addition to what it has; ``None``: no limit.

    Allocations beyond that fail: ``MemoryError`` in Python, the end of the process in LLVM. Memory
    that is only reserved doesn't count. Systems without ``/proc`` have no limit.
    """
    if more is None:
        return
    import resource  # not there on Windows

    with suppress(OSError):
        used = int(_STATUS.read_text().split()[_DATA_FIELD]) * resource.getpagesize()
        limits = resource.getrlimit(resource.RLIMIT_DATA)
        finite = [x for x in (*limits, used + more) if x != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(finite), limits[1]))
