"""Files of SQLite that may be a stranger's, or may not be written: how they are opened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def log_of(file: Path) -> Path:
    """Return where SQLite keeps what has been written to a file and isn't in it yet."""
    return file.with_name(f"{file.name}-wal")


def signature(file: Path) -> tuple[object, ...]:
    """Return what changes when somebody writes to a file; it tells who doesn't lock it."""
    log = log_of(file)
    try:
        found = file.stat()
        logged = log.exists() and log.stat().st_size > 0
    except OSError as error:
        return (str(error),)
    return found.st_ino, found.st_size, found.st_mtime_ns, logged


def is_plain(row: Sequence[object]) -> bool:
    """Whether a line of the schema defines a table or an index, ours without expressions.

    The text says so, whatever stands beside it: SQLite goes by the text, too.
    """
    (text,) = row
    if text is None:
        return True  # an index that SQLite has made for a key
    if not isinstance(text, str) or not re.match(r"CREATE (TABLE|(UNIQUE )?INDEX) ", text):
        return False
    if "tilewright_" not in text.lower():
        return True
    lists = re.findall(r"\b(?:(?:TABLE|ON|REFERENCES) \w+|UNIQUE|KEY) ?\(", text)
    return text.count("(") == len(lists) and "--" not in text and "/*" not in text


def set_up_sqlite(connection: Any, _: object) -> None:
    """Make a new connection safe, and let us say where transactions begin."""
    connection.isolation_level = None
    connection.text_factory = _text
    # A file may be a stranger's: nothing in its schema may call functions that do something.
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _text(data: bytes) -> str:
    """Decode text; what is none is refused where it is read, and costs its own line only."""
    return data.decode("utf-8", "surrogateescape")


__all__ = ["is_plain", "log_of", "set_up_sqlite", "signature"]
