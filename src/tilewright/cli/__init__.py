"""The command line: ``tilewright demo | tune | report | explain | compile | run | db | farm …``.

Exit codes: 0 done, 1 failed, 2 wrong usage. Commands that report take ``--json``: then standard
output is one JSON value and everything else goes to standard error. A command's code is loaded when
the command runs, so that help is fast.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import tilewright
from tilewright.cli.logs import log_options
from tilewright.support.errors import TilewrightError

__all__ = ["COMMANDS", "cli", "main"]

logger = logging.getLogger("tilewright.cli")

# Each command: where it is, and a line of help.
COMMANDS = {
    "compile": ("tilewright.cli.compile:compile_command", "Compile a model into a library."),
    "db": ("tilewright.cli.db:db_group", "Look into a database of tuning records."),
    "demo": ("tilewright.cli.demo:demo_command", "See it all at work on two small networks."),
    "doctor": ("tilewright.cli.doctor:doctor_command", "Tell what works here and what is missing."),
    "explain": (
        "tilewright.cli.explain:explain_command", "Say why a function has its schedule.",
    ),
    "farm": ("tilewright.cli.farm:farm_group", "Build and measure on several machines."),
    "report": ("tilewright.cli.report:report_command", "Write a page about a tuning run."),
    "run": ("tilewright.cli.compile:run_command", "Run a model or a library, and measure it."),
    "tune": ("tilewright.cli.tune:tune_command", "Search fast schedules for a model."),
}  # fmt: skip


class LazyGroup(click.Group):
    """A group that imports its commands when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; ``None`` if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; the log has where it failed."""
        try:
            return super().invoke(ctx)
        except (TilewrightError, OSError):
            logger.debug("the command failed", exc_info=True)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tilewright.__version__, prog_name="tilewright")
@log_options
def cli() -> None:
    """Make tensor programs fast on the hardware at hand."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit; Tilewright's own errors print as one message."""
    try:
        code = cli.main(args, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as request:
        sys.exit(request.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # Whoever read our output has enough (`tilewright db list | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (TilewrightError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except MemoryError as error:
        print(f"error: out of memory: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
