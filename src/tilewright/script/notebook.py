"""Script and schedules in notebooks and reports: highlighted HTML.

``_repr_html_`` of functions, modules, traces, schedules and databases comes from here.
"""

from __future__ import annotations

from itertools import groupby
from xml.etree.ElementTree import Element

from tilewright.script.printer import script
from tilewright.support.html import markup, tag

# More is not coloured, and not shown in notebooks.
_MOST_COLOURED, _MOST_LINES = 400_000, 1000

# The kinds of words that are told apart, by the first that has the word's kind in Pygments.
_KINDS = {
    "Comment": "c", "Keyword": "k", "Literal.String": "s", "Literal.Number": "m",
    "Name.Decorator": "d", "Name.Function": "f", "Name.Class": "f",
}  # fmt: skip

CODE_STYLE = """
.tw-code { font: 12px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  white-space: pre; overflow: auto; max-height: 60em; margin: .5em 0; tab-size: 4; }
.tw-code .k { color: #a23bb5; } .tw-code .s { color: #2e8540; } .tw-code .m { color: #b35c00; }
.tw-code .c { color: #7a828c; } .tw-code .d { color: #8a6d00; } .tw-code .f { color: #2563c9; }
"""
"""Colours that can be read on a light and on a dark ground."""


def code(text: str) -> Element:
    """Return Python text as an element, highlighted."""
    if len(text) > _MOST_COLOURED:
        return tag("pre", text, class_="tw-code")
    # Loaded here, as it costs more to import than what it is needed for is used.
    from pygments.lexers.python import PythonLexer

    tokens = PythonLexer(stripnl=False, ensurenl=False).get_tokens(text)
    parts: list[Element | str] = []
    for kind, group in groupby(tokens, key=lambda token: _kind(str(token[0]))):
        piece = "".join(text for _, text in group)
        parts.append(tag("span", piece, class_=kind) if kind else piece)
    return tag("pre", parts, class_="tw-code")


def _kind(token: str) -> str | None:
    name = token.removeprefix("Token.")
    return next((short for known, short in _KINDS.items() if name.startswith(known)), None)


def fragment(*elements: Element) -> str:
    """Return elements as HTML for a notebook, with the style of code."""
    return markup(tag("style", CODE_STYLE), *elements)


def folded(title: str, *inside: Element) -> Element:
    """Return elements that are shown after a click on their title."""
    return tag("details", tag("summary", title), list(inside))


def shortened(text: str) -> str:
    """Return the first lines of a long text, and how many there are."""
    lines = text.splitlines()
    if len(lines) <= _MOST_LINES:
        return text
    return "\n".join([*lines[:_MOST_LINES], f"# ... {len(lines) - _MOST_LINES} more lines"])


def script_html(node: object) -> str:
    """Return a function or module for a notebook."""
    return fragment(code(shortened(script(node))))
