"""``--log-file`` and ``--verbose``, options of the program and each of its commands."""

from __future__ import annotations

import logging
import sys

import click

from tilewright.cli.output import Command
from tilewright.support.text import printable


class StderrHandler(logging.Handler):
    """Writes to the current ``sys.stderr``, which a live display replaces temporarily."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        print(printable(self.format(record)), file=sys.stderr)


def _start(ctx: click.Context, handler: logging.Handler, form: str, level: int) -> None:
    """Send the log to a handler until the command ends."""
    root = logging.getLogger("tilewright")
    handler.setFormatter(logging.Formatter(form))
    handler.setLevel(level)
    before = root.level
    root.addHandler(handler)
    if root.getEffectiveLevel() > level:
        root.setLevel(level)

    def stop() -> None:
        root.removeHandler(handler)
        root.setLevel(before)
        handler.close()

    # The outermost context, where failures are logged.
    ctx.find_root().call_on_close(stop)


def _to_file(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    try:
        handler = logging.FileHandler(path)
    except OSError as error:
        raise click.BadParameter(f"{path} can't be written: {error.strerror}") from None
    _start(ctx, handler, "%(asctime)s %(levelname)s %(name)s: %(message)s", logging.DEBUG)


def _to_terminal(ctx: click.Context, param: click.Parameter, verbose: bool) -> None:
    root = logging.getLogger("tilewright")
    shown = [handler for handler in root.handlers if isinstance(handler, StderrHandler)]
    if shown and verbose:
        shown[0].setLevel(logging.INFO)
        root.setLevel(min(root.getEffectiveLevel(), logging.INFO))
    elif not shown:
        level = logging.INFO if verbose else logging.WARNING
        _start(ctx, StderrHandler(), "%(levelname)s: %(message)s", level)


def log_options(command: Command) -> Command:
    """Add ``--log-file`` and ``--verbose``; warnings always go to standard error."""
    command = click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, is_eager=True, callback=_to_terminal,
        help="Show the log on the terminal too.",
    )(command)  # fmt: skip
    return click.option(
        "--log-file", type=click.Path(dir_okay=False), expose_value=False, is_eager=True,
        callback=_to_file, help="Keep the details in this file.",
    )(command)  # fmt: skip
