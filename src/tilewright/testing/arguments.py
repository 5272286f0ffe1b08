"""Arguments of campaigns, each of which is a command: ``python -m tilewright.testing.NAME``."""

from __future__ import annotations

import argparse


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of a campaign's arguments, which has none yet."""
    return argparse.ArgumentParser(
        prog=f"python -m tilewright.testing.{name}", description=description
    )
