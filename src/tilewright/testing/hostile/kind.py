"""What a kind of hostile input is: how a case is made, how it is checked, and under what limits."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any


class Fault(Exception):
    """Something that a hostile case should not have brought about."""


@dataclass(frozen=True)
class Case:
    """One input. ``label`` names how it was made; ``payload`` can be pickled."""

    label: str
    payload: object


@dataclass(frozen=True)
class Limits:
    """What the check of one case may use before that is a fault."""

    seconds: float = 10.0
    """Time of the processor, and (six times over) of the clock."""
    memory: int = 1 << 30
    """Bytes above what the child starts with; 0 for no limit."""
    watch: bool = True
    """Whether :data:`EVENTS` are faults. Kinds that open files by their nature say no."""
    harmless: tuple[str, ...] = ()
    """Beginnings of ``event arguments`` that are no fault all the same."""


PREFIX = "tilewright-hostile-"


@lru_cache(maxsize=1)
def folder() -> Path:
    """Return a folder for cases, made once: children share one that was made before them."""
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def emptied_folder() -> Path:
    """Return the folder, with nothing in it."""
    made = folder()
    shutil.rmtree(made)
    made.mkdir()
    return made


EVENTS = (
    "exec",
    "open",
    "import",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "marshal.",
    "pickle.",
    "shutil.",
    "tempfile.",
    "mmap.",
    "code.__new__",
    "function.__new__",
    "object.__setattr__",
    "object.__delattr__",
    "sys._getframe",
    "sys.addaudithook",
    "sys.setprofile",
    "sys.settrace",
    "builtins.input",
    "builtins.breakpoint",
    "cpython.",
    "gc.",
    "glob.",
    "pty.",
    "signal.",
    "webbrowser.",
)
"""Audit events that reading hostile input never causes: names, or beginnings of names."""


@dataclass(frozen=True)
class Kind:
    """A kind of hostile input; the package's docstring says what the functions do."""

    make: Callable[[Random], Case]
    check: Callable[[Any], str]
    limits: Limits = Limits()
    prepare: Callable[[], None] = lambda: None
    """Runs once before the first child starts: imports what checks need."""


_OWN = str(Path(tempfile.gettempdir(), PREFIX))
OWN_FILES = tuple(
    f"{event} {path}"
    for path in (f"('{_OWN}", f"(PosixPath('{_OWN}")
    for event in ("open", "os.scandir", "os.listdir", "os.remove", "os.mkdir", "glob.glob")
)
"""Events that files in :func:`folder` cause, for ``harmless``."""
