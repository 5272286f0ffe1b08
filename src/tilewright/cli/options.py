"""Options about targets and databases."""

from __future__ import annotations

from typing import Any

import click

from tilewright.cli.output import Command
from tilewright.driver import check_target
from tilewright.support.errors import TilewrightError
from tilewright.target import Target


class TargetType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # since click 8.4
    """A target, checked while the command line is parsed."""

    name = "target"

    def convert(self, value: Any, param: Any, ctx: Any) -> Target:
        """Parse a target; an unknown or unsupported one is a usage error."""
        try:
            return check_target(value)
        except TilewrightError as error:
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
