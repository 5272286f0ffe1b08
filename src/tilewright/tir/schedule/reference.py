"""The docstrings of primitives as data: the source of the reference page and of tests.

A docstring has a first sentence, more text, and these sections, unindented::

    Preconditions:
        - the loop is serial and carries no annotations
        - the factors cover the extent
    Before:
        <statements of the dialect T>
    After ``split(i, [None, 16])``:
        <the same program afterwards>

Each precondition is a sentence; violating it raises ``ScheduleError``. A primitive that can be
called on anything says ``Preconditions: none``.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from dataclasses import dataclass

from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule.instruction import Primitive

COMMON_PRECONDITIONS = (
    "handles refer to blocks and loops that are still in the program",
    "memory that these blocks change goes by one name: no other buffer is declared or matched "
    "over it",
    "to move computation, only loops and branches around blocks may enclose it: no let, while or "
    "allocation",
)
"""Preconditions of every primitive, or of every one of a kind; docstrings don't repeat them."""

_HEADING = re.compile(r"^(?:(Preconditions):(.*)|(Before|After)\b(.*):)$")


@dataclass(frozen=True)
class Reference:
    """One primitive's section of the page: see the module's docstring.

    ``action`` is the call of the ``After`` heading, if it has one. ``preconditions`` is ``None``
    where the docstring has no such section.
    """

    name: str
    signature: str
    summary: str
    text: str
    preconditions: tuple[str, ...] | None
    before: str
    action: str
    after: str


def reference(primitive: Primitive) -> Reference:
    """Read a primitive's docstring.

    Raises ``ScheduleError`` if it has none.
    """
    doc = inspect.cleandoc(primitive.function.__doc__ or "")
    if not doc:
        raise ScheduleError(f"primitive {primitive.name!r} has no docstring")
    text: list[str] = []
    sections: dict[str, list[str]] = {}
    action = ""
    current = text
    for line in doc.split("\n"):
        heading = _HEADING.match(line)
        if heading:
            current = sections.setdefault(heading[1] or heading[3], [])
            current.append(heading[2] or "")
            if heading[3] == "After":
                action = heading[4].strip()
                if action.startswith("("):
                    action = action[1:-1]
                action = action.strip("`")
        elif current is not text and line and not line.startswith(" "):
            # A section ends where text at the margin begins.
            current = text
            text.extend(["", line])
        else:
            current.append(line)
    summary, _, rest = "\n".join(text).strip().partition("\n\n")
    return Reference(
        primitive.name,
        f"{primitive.name}{_signature_text(primitive)}",
        " ".join(summary.split()),
        re.sub(r"\n{3,}", "\n\n", rest).strip(),
        _bullets(sections["Preconditions"]) if "Preconditions" in sections else None,
        _code(sections.get("Before", [])),
        action,
        _code(sections.get("After", [])),
    )


def _signature_text(primitive: Primitive) -> str:
    """The signature as it is written, without the schedule."""
    signature = inspect.signature(primitive.function)
    parts = []
    starred = False
    for item in list(signature.parameters.values())[1:]:
        text = f"{item.name}: {item.annotation}"
        if item.kind is inspect.Parameter.VAR_POSITIONAL:
            text, starred = "*" + text, True
        elif item.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        if item.default is not inspect.Parameter.empty:
            text += f" = {json.dumps(item.default) if type(item.default) is str else item.default}"
        parts.append(text)
    return f"({', '.join(parts)}) -> {signature.return_annotation}"


def _bullets(lines: list[str]) -> tuple[str, ...]:
    joined = " ".join(line.strip() for line in lines if line.strip())
    if joined.lower().rstrip(".") == "none":
        return ()
    return tuple(item.strip().rstrip(".") for item in re.split(r"(?:^|\s)- ", joined) if item)


def _code(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n")
