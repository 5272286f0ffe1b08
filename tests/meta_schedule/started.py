"""Which processes this one has started."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def processes() -> set[str]:
    """Return the processes that this one has started, dead ones that nobody has waited for too.

    A server of other tests may be among them.
    """
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = path.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(path.parent.name)
    return found
