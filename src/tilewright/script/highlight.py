"""Shows script text in colour on a terminal, without colour elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from tilewright.script.printer import script


def show(node: Any, **options: Any) -> None:
    """Print a module or function; ``options`` are those of ``node.script()``."""
    text = script(node, **options)
    if sys.stdout.isatty():
        print_highlighted(text)
    else:
        print(text, end="")


def print_highlighted(text: str) -> None:
    """Print Python text in colours that suit dark and light terminals."""
    # Loaded here, as rich costs more to import than the rest of the package.
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax(text, "python", theme="ansi_dark", background_color="default"))
