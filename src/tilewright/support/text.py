"""Text for people: excerpts with a caret under the culprit, tables, numbers with units."""

from __future__ import annotations

import re


def caret_excerpt(
    source: str, line: int, column: int, end_column: int | None = None, *, name: str = "<script>"
) -> str:
    """Render one source line with carets below ``column`` .. ``end_column``.

    ``line`` counts from 1, columns from 0, as Python's ``ast`` does.
    """
    lines = source.splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    width = max(1, (end_column if end_column is not None else column + 1) - column)
    width = min(width, max(1, len(text) - column))
    number = str(line)
    return (
        f"  --> {name}:{line}:{column + 1}\n"
        f"{' ' * len(number)} |\n"
        f"{number} | {text}\n"
        f"{' ' * len(number)} | {' ' * column}{'^' * width}"
    )


def indent(text: str, by: int = 4) -> str:
    """Indent every non-empty line."""
    pad = " " * by
    return "\n".join(pad + line if line else line for line in text.split("\n"))


def human_time(seconds: float) -> str:
    """Render a duration with three significant digits: ``1.23 ms``."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1.0:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def seconds_in(text: str) -> float | None:
    """Return the seconds of a time such as ``90s``, ``10min`` or ``1.5h``; ``None`` if it is none.

    It is more than zero.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(s|min|h)", text)
    return (float(found[1]) * _UNITS[found[2]] or None) if found else None


def printable(text: str) -> str:
    """Return a stranger's text so that a terminal shows it and does nothing else.

    Characters that steer a terminal, or turn the order of what is shown, become their escapes.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def printf_form(message: str) -> str:
    """Return C's format for a message whose ``{}`` stand for integers of 64 bits."""
    return message.replace("%", "%%").replace("{}", "%lld")
