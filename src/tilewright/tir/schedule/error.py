"""Error messages of refused primitives.

The message names the primitive and the rule that was broken, says what to do instead, and shows the
program around the culprit with the culprit marked. Nothing is rendered until the message is read: a
search meets thousands of refusals and reads none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import Node
from tilewright.script import to_text
from tilewright.support.errors import ScheduleError
from tilewright.support.text import indent
from tilewright.tir.function import PrimFunc

Text = str | Callable[[], str]
_EXCERPT_LINES = 40


def excerpt(func: PrimFunc, culprits: tuple[Node, ...]) -> str:
    """Print a function with ``culprits`` marked, cut to the lines around the marks."""
    lines = to_text(func, underline=list(culprits)).rstrip().split("\n")
    if len(lines) <= _EXCERPT_LINES:
        return "\n".join(lines)
    marked = [number for number, line in enumerate(lines) if set(line.strip()) == {"^"}]
    first = max(0, (marked[0] if marked else 0) - _EXCERPT_LINES // 2)
    last = min(len(lines), first + _EXCERPT_LINES)
    shown = lines[first:last]
    if first:
        shown.insert(0, "...")
    if last < len(lines):
        shown.append("...")
    return "\n".join(shown)


def schedule_error(
    primitive: str | None,
    rule: Text,
    *,
    remedy: Text = "",
    func: Any = None,
    culprits: tuple[Node, ...] = (),
) -> ScheduleError:
    """Make a lazily rendered error; its summary never renders the program."""

    def broken() -> str:
        where = f"{primitive}: " if primitive else ""
        return where + (rule if isinstance(rule, str) else rule())

    def render() -> str:
        text = broken()
        advice = remedy if isinstance(remedy, str) else remedy()
        if advice:
            text += f"\n  what to do: {advice}"
        if func is not None:
            text += "\n  in the program:\n" + indent(excerpt(func, culprits))
        return text

    return ScheduleError(render, broken)
