"""Arguments of campaigns, each of which is a command: ``python -m tilewright.testing.NAME``."""

from __future__ import annotations

import argparse


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of a campaign's arguments, which has none yet."""
    return argparse.ArgumentParser(
        prog=f"python -m tilewright.testing.{name}", description=description
    )


def add_draws(parser: argparse.ArgumentParser, what: str) -> None:
    """Add what says which random cases are drawn, for how long, and by how many processes."""
    add = parser.add_argument
    add("--count", type=int, default=1000, help=what)
    add("--seconds", type=float, default=float("inf"), help="begin no other after this time")
    add("--seed", default="0", help=f"of the random {what}")
    add("--first", type=int, default=0, help=f"number of the first of the {what}")
    add("--jobs", type=int, default=2, help="processes")
