"""Results as a table for people or JSON for programs."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

import tilewright
from tilewright.target import Target


def machine() -> dict[str, Any]:
    """Return what figures depend on."""
    target = Target("native")
    return {
        "tilewright": tilewright.__version__,
        "python": platform.python_version(),
        "cpu": target.mcpu,
        "cores": target.num_cores,
        "vector_bits": target.vector_bits,
    }


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others are figures."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # As wide as it needs to be, whatever the terminal is: a cut figure is no figure.
    cells = [max(map(len, column)) for column in zip(columns, *rows)]
    Console(width=sum(cells) + 3 * len(cells) + 1).print(table)


def dump(results: Any) -> None:
    """Print results as JSON, with the machine they are from."""
    print(json.dumps({"machine": machine(), "results": results}, indent=1))


def us(seconds: float | None) -> str:
    """Render seconds as microseconds."""
    return "-" if seconds is None else f"{seconds * 1e6:,.1f}"


def ms(seconds: float | None) -> str:
    """Render seconds as milliseconds."""
    return "-" if seconds is None else f"{seconds * 1e3:,.2f}"
