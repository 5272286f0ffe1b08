"""Shows script text in colour on a terminal, without colour elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from tilewright.script.printer import script


def show(node: Any, **options: Any) -> None:
    """Print a module or function; ``options`` are those of ``node.script()``."""
    show_text(script(node, **options))


def show_text(text: str, style: str | None = None) -> None:
    """Print Python text, highlighted if that goes to a terminal."""
    if sys.stdout.isatty():
        print_highlighted(text, style)
    else:
        print(text, end="")


_THEMES = {None: "ansi_dark", "dark": "ansi_dark", "light": "ansi_light"}


def print_highlighted(text: str, style: str | None = None) -> None:
    """Print Python text in colours: of a theme of ``rich``, or those that suit most terminals."""
    # Loaded here, as rich costs more to import than the rest of the package.
    from rich.console import Console
    from rich.syntax import Syntax

    theme = _THEMES.get(style) or style or ""
    Console().print(Syntax(text, "python", theme=theme, background_color="default"))
