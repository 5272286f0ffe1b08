"""Output of the commands, and its options. Independent of the compiler."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console

from tilewright.support.errors import TuneError

Command = TypeVar("Command", bound=Callable[..., Any])

# Lines that go to a file or another program are not folded.
_UNFOLDED = 1000


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON value, and nothing else."
    )(command)


def given(name: str) -> bool:
    """Whether the user gave this option explicitly."""
    source = click.get_current_context().get_parameter_source(name)
    return source not in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def make_folder(path: str) -> Path:
    """Create a work directory; ``TuneError`` if that fails."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TuneError(
            f"the work directory {path} can't be made: {error.strerror or error}; "
            "choose another with --work-dir"
        ) from error
    return Path(path)


def make_console(*, stderr: bool = False) -> Console:
    """Return a console for people, which wraps lines only on terminals."""
    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = _UNFOLDED
    return console


def print_json(value: object) -> None:
    """Print a JSON value; numbers that JSON doesn't have become ``null``."""
    click.echo(json.dumps(_json_value(value), indent=2, allow_nan=False))


def _json_value(value: object) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
