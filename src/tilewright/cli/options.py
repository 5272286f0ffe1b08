"""Options that several commands share, and their output."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from tilewright.support.errors import TargetError
from tilewright.target import Target

Command = Callable[..., Any]


class TargetType(click.ParamType):
    """A target, checked while the command line is read."""

    name = "target"

    def convert(self, value: Any, param: Any, ctx: Any) -> Target:
        """Parse a target; an unknown one is a usage error."""
        try:
            return value if isinstance(value, Target) else Target(value)
        except TargetError as error:
            self.fail(str(error), param, ctx)


def target_option(command: Command) -> Command:
    """Add ``--target``."""
    return click.option(
        "--target", type=TargetType(), default="native", show_default=True,
        help="What to compile for, such as 'llvm -mcpu=znver4 -num-cores=2'.",
    )(command)  # fmt: skip


def work_dir_option(command: Command) -> Command:
    """Add ``--work-dir``."""
    return click.option(
        "--work-dir", type=click.Path(file_okay=False), default="tune_logs", show_default=True,
        help="Folder of the database.",
    )(command)  # fmt: skip


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")(command)


def print_json(value: Any) -> None:
    """Print a JSON value."""
    click.echo(json.dumps(value, indent=2, default=str))
