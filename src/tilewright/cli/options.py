"""Options about targets and databases."""

from __future__ import annotations

import functools
import re
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


#: Sizes have at most so many digits: longer ones are none of an array's.
_MOST_DIGITS = 18


def _is_size(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


class ShapeType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # since click 8.4
    """The shape of an input: ``name=1x3x224x224``."""

    name = "name=shape"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, list[int]]:
        """Parse a shape; what is none is a usage error."""
        name, found, text = str(value).rpartition("=")
        extents = text.split("x") if text else []
        if not found or not name or not all(map(_is_size, extents)):
            self.fail(f"{value!r} is no shape such as image=1x3x224x224", param, ctx)
        return name, [int(extent) for extent in extents]


class Dynamic(NamedTuple):
    """An axis of an input whose size is known when the model is called."""

    input: str
    axis: int
    size: str
    """Name of the size."""
    bounds: tuple[int, int] | None


_DYNAMIC = re.compile(
    rf"(?P<input>[^=]+):(?P<axis>\d{{1,{_MOST_DIGITS}}})(=((?P<size>[A-Za-z_]\w*)(:|$))?"
    rf"((?P<least>\d{{1,{_MOST_DIGITS}}})\.\.(?P<most>\d{{1,{_MOST_DIGITS}}}))?)?"
)


class DynamicType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # since click 8.4
    """An axis of any size: ``x:0``, ``x:0=1..64``, ``x:0=batch`` or ``x:0=batch:1..64``."""

    name = "name:axis"

    def convert(self, value: Any, param: Any, ctx: Any) -> Dynamic:
        """Parse an axis; what is none is a usage error."""
        found = _DYNAMIC.fullmatch(str(value))
        if found is None or str(value).endswith(("=", ":")):
            self.fail(
                f"{value!r} is no axis of an input such as x:0, x:0=1..64 or x:0=batch:1..64",
                param,
                ctx,
            )
        bounds = None
        if found["least"] is not None:
            bounds = int(found["least"]), int(found["most"])
            if bounds[0] > bounds[1]:
                self.fail(f"{value!r}: {bounds[0]} is more than {bounds[1]}", param, ctx)
            if bounds[0] == bounds[1]:
                why = f"{value!r} leaves one size: give the example that size, without --dynamic"
                self.fail(why, param, ctx)
        name, axis = found["input"], int(found["axis"])
        size = found["size"] or re.sub(r"\W", "_", f"{name}_{axis}")
        return Dynamic(name, axis, size, bounds)


class SizesType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # since click 8.4
    """Values of a symbolic size: ``n=16`` or ``n=1,16,128``."""

    name = "name=sizes"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, list[int]]:
        """Parse values; what is none is a usage error."""
        name, _, text = str(value).partition("=")
        values = text.split(",")
        if not name or not all(_is_size(item) and int(item) > 0 for item in values):
            self.fail(f"{value!r} is no list of sizes such as n=1,16,128", param, ctx)
        return name, [int(item) for item in values]


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
        "several. Sizes that the model leaves open are symbolic otherwise; `run` takes them by "
        "name as well, such as n=32, those of libraries too.",
    )(command)  # fmt: skip


def dynamic_option(command: Command) -> Command:
    """Add ``--dynamic``."""
    return click.option(
        "--dynamic", type=DynamicType(), multiple=True, metavar="NAME:AXIS[=SIZE:MIN..MAX]",
        help="Let an axis of an input have any size, such as x:0, or one between bounds, such as "
        "x:0=1..64, which it is tuned at several of. x:0=n calls the size n; axes with one name "
        "are equally long. Repeat it for several.",
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
