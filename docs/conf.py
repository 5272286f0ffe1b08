"""How Sphinx builds the site: ``make docs``. The pages are those that one reads on GitHub as well.

Docstrings are text as it stands in the code: names between double (or single) back-quotes, lists
with dashes, indented examples after a colon. What Sphinx wants otherwise is done here.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import tilewright

project = "Tilewright"
copyright = "the Tilewright maintainers"
version = release = tilewright.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
# The source folder is the root of the project, so that links between pages are what they are there.
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [".*", "build", "src", "tests"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = "Tilewright"
html_extra_path = ["site"]
html_show_sourcelink = False
html_copy_source = False

myst_heading_anchors = 3
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
suppress_warnings = ["ref.python"]  # a name that stands in two packages is the same thing
# What docstrings refer to must be there; types in signatures may be those of other packages.
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*")]

# What docstrings are made of: roles, literals, items of lists.
ROLE = r":\w+:`[^`\n]+`"
LITERAL = r"``[^`]+``|`[^`]+`"
ITEM = re.compile(r"\s*(?:-|\d+\.) ")


def plain(text: str) -> str:
    """Return prose with what reStructuredText would take for markup as it stands."""
    pieces = re.split(f"({ROLE}|{LITERAL})", text)
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            pieces[number] = re.sub(r"([*|\\`]|_(?!\w))", r"\\\1", piece)
            continue
        if not piece.startswith((":", "``")):
            piece = f"`{piece}`"
        # A literal must be followed by a space or a mark.
        joined = re.match(r"[\w\[(]", pieces[number + 1]) is not None
        pieces[number] = piece + "\\ " * joined
    return "".join(pieces)


def indent_of(line: str) -> int:
    """Return how far a line is indented."""
    return len(line) - len(line.lstrip())


def restructured(lines: list[str]) -> list[str]:
    """Return a docstring as reStructuredText: examples are literal, lists stand by themselves."""
    made: list[str] = []
    prose: list[str] = []
    example_of: int | None = None  # what is indented further than this is an example

    def end_prose() -> None:
        made.extend(plain("\n".join(prose)).split("\n") if prose else [])
        prose.clear()

    before = ""  # the last line that is not blank
    for line in lines:
        blank, indent = not line.strip(), indent_of(line)
        if example_of is not None and (blank or indent > example_of):
            made.append(line)
            continue
        if example_of is not None and made[-1].strip():
            made.append("")
        example_of = None
        is_item, was_item = ITEM.match(line) is not None, ITEM.match(before) is not None
        if not blank and indent > indent_of(before) and not is_item and not was_item:
            # Indented text is an example, after a colon or not.
            end_prose()
            marked = before.endswith("::")
            made += ["", *([] if marked else [" " * indent_of(before) + "::", ""]), line]
            example_of = indent_of(before)
        elif blank or line.lstrip().startswith(">>>"):
            end_prose()
            made.append(line)
        else:
            begins = is_item and not was_item and indent >= indent_of(before)
            ends = not is_item and indent < indent_of(before)
            if prose and (begins or ends):
                prose.append("")  # around a list
            prose.append(line)
        before = before if blank else line
    end_prose()
    return made


def process_docstring(
    app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]
) -> None:
    """Rewrite the docstrings of our own things."""
    lines[:] = restructured(lines)


def load(app: Any) -> None:
    """Import what packages import when it is first used, so that it is found there."""
    for page in Path(__file__).parent.glob("api/*.md"):
        for name in re.findall(r"^\.\. automodule:: (\S+)$", page.read_text(), re.M):
            module = described[name] = importlib.import_module(name)
            for public in getattr(module, "__all__", ()):
                setattr(module, public, getattr(module, public))


described: dict[str, Any] = {}
"""The modules that pages describe, by name."""


def skip_member(app: Any, what: str, name: str, item: Any, skip: bool, options: Any) -> bool | None:
    """Describe a class where it is at home: packages export classes of others as well."""
    if what != "module" or not inspect.isclass(item):
        return None
    if not item.__module__.startswith("tilewright"):
        return True
    homes = [
        module
        for module, found in described.items()
        if f"{item.__module__}.".startswith(f"{module}.") and getattr(found, name, None) is item
    ]
    here = app.env.temp_data.get("autodoc:module")
    return True if homes and max(homes, key=len) != here else None


def setup(app: Any) -> None:
    """Connect the above."""
    app.connect("builder-inited", load)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-skip-member", skip_member)
