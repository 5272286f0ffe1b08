"""Options about targets and databases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from tilewright.cli.output import Command, given
from tilewright.driver import check_target
from tilewright.support.errors import TilewrightError
from tilewright.support.text import seconds_in
from tilewright.target import Target

Shapes = Sequence[tuple[str, list[int]]]


class TargetType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # since click 8.4
    """A target, checked while the command line is parsed."""

    name = "target"

    def convert(self, value: Any, param: Any, ctx: Any) -> Target:
        """Parse a target; an unknown or unsupported one is a usage error."""
        try:
            return check_target(value)
        except TilewrightError as error:
            self.fail(str(error), param, ctx)


class ShapeType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # since click 8.4
    """The shape of an input: ``name=1x3x224x224``."""

    name = "name=shape"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, list[int]]:
        """Parse a shape; what is none is a usage error."""
        name, found, text = str(value).rpartition("=")
        extents = text.split("x") if text else []
        if not found or not name or not all(extent.isdecimal() for extent in extents):
            self.fail(f"{value!r} is no shape such as image=1x3x224x224", param, ctx)
        return name, [int(extent) for extent in extents]


class TimeType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # since click 8.4
    """A time such as ``90s``, ``10min`` or ``1h``, in seconds."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Parse a time; what is none is a usage error."""
        seconds = value if isinstance(value, float) else seconds_in(str(value))
        if seconds is None:
            self.fail(f"{value!r} is no time such as 90s, 10min or 1h", param, ctx)
        return seconds


def shape_option(command: Command) -> Command:
    """Add ``--shape``."""
    return click.option(
        "--shape", "shapes", type=ShapeType(), multiple=True,
        help="The shape of an ONNX model's input, such as image=1x3x224x224; repeat it for "
        "several. Sizes that the model leaves open are symbolic otherwise.",
    )(command)  # fmt: skip


def target_option(command: Command) -> Command:
    """Add ``--target``."""
    return click.option(
        "--target", type=TargetType(), default="native", show_default=True,
        help="What to compile for, such as 'llvm -mcpu=znver4 -num-cores=2'.",
    )(command)  # fmt: skip


class Place(NamedTuple):
    """Where the database of a command is: at a URL, or else in a folder."""

    work_dir: str
    database: str | None

    def existing(self) -> str | None:
        """Return the URL or the folder; ``None`` if that is the default one and isn't there."""
        if self.database:
            return self.database
        if Path(self.work_dir).is_dir():
            return self.work_dir
        if given("work_dir"):
            raise click.UsageError(f"there is no folder {self.work_dir}")
        return None


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--work-dir`` and ``--database``, which the command takes together as ``place``."""

    @functools.wraps(command)
    def taking_both(*, work_dir: str, database: str | None, **options: object) -> None:
        command(place=Place(work_dir, database), **options)

    return work_dir_option(database_option(taking_both))


def database_option(command: Command) -> Command:
    """Add ``--database``."""
    return click.option(
        "--database", metavar="URL",
        help="Where records are, if not in the folder: sqlite:///records.db, "
        "postgresql://user@host/name.",
    )(command)  # fmt: skip


def work_dir_option(command: Command) -> Command:
    """Add ``--work-dir``."""
    return click.option(
        "--work-dir", type=click.Path(file_okay=False), default="tune_logs", show_default=True,
        help="Folder of the database.",
    )(command)  # fmt: skip
