"""HTML and SVG as trees of elements, so that no text can become markup.

What is shown may be a stranger's (names of tasks, programs, messages of errors): text and
attributes are escaped when the tree is written, and characters that steer what shows them become
their escapes. There is no way to insert text as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from tilewright.support.text import printable

Child = Element | str | None


def tag(name: str, /, *children: Child | Sequence[Child], **attributes: object) -> Element:
    """Return an element. ``class_`` stands for ``class``; other underscores become hyphens.

    Attributes that are ``None`` are left out, and so are such children.
    """
    made = Element(name)
    for key, value in attributes.items():
        if value is not None:
            made.set(key.rstrip("_").replace("_", "-"), printable(str(value)))
    for child in children:
        if isinstance(child, (list, tuple)):
            for item in child:
                _add(made, item)
        else:
            _add(made, child)  # type: ignore[arg-type]  # a sequence that is no list is a text
    return made


def _add(parent: Element, child: Child) -> None:
    if child is None:
        return
    if isinstance(child, Element):
        parent.append(child)
        return
    text = printable(child)
    if len(parent):
        last = parent[-1]
        last.tail = (last.tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Child]], numeric: Sequence[str] = ()
) -> Element:
    """Return a table; the columns in ``numeric`` are aligned to the right."""
    kinds = ["number" if column in numeric else None for column in columns]
    head = tag("tr", [tag("th", name, class_=kind) for name, kind in zip(columns, kinds)])
    body = [
        tag("tr", [tag("td", cell, class_=kind) for cell, kind in zip(row, kinds)]) for row in rows
    ]
    return tag("table", tag("thead", head), tag("tbody", body))


def markup(*elements: Element) -> str:
    """Return the elements as HTML."""
    return "".join(tostring(item, encoding="unicode", method="html") for item in elements)


def page(title: str, style: str, *body: Element) -> str:
    """Return a document that needs no other file. ``style`` is our own CSS, never foreign text."""
    html = tag("html", lang="en")
    head = SubElement(html, "head")
    head.append(tag("meta", charset="utf-8"))
    head.append(tag("meta", name="viewport", content="width=device-width, initial-scale=1"))
    head.append(tag("title", title))
    head.append(tag("style", style))
    html.append(tag("body", list(body)))
    return "<!DOCTYPE html>\n" + markup(html) + "\n"
