"""The command line: ``tilewright demo | tune | compile | run | db | doctor``.

Exit codes: 0 done, 1 failed, 2 wrong usage. Commands that report take ``--json``.
"""

from __future__ import annotations

import logging
import sys

import click

import tilewright
from tilewright.cli.compile import compile_command, run_command
from tilewright.cli.db import db_group
from tilewright.cli.demo import demo_command
from tilewright.cli.doctor import doctor_command
from tilewright.cli.tune import tune_command
from tilewright.support.errors import TilewrightError

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tilewright.__version__, prog_name="tilewright")
@click.option("--log-file", type=click.Path(dir_okay=False), help="Keep details in this file.")
@click.option("-v", "--verbose", is_flag=True, help="Show the log on the terminal too.")
def cli(log_file: str | None, verbose: bool) -> None:
    """Make tensor programs fast on the hardware at hand."""
    logger = logging.getLogger("tilewright")
    if log_file:
        handler: logging.Handler = logging.FileHandler(log_file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    console.setLevel(logging.INFO if verbose else logging.WARNING)
    logger.addHandler(console)


for _command in (
    compile_command,
    db_group,
    demo_command,
    doctor_command,
    run_command,
    tune_command,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; errors that we raise on purpose print as one message."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as request:
        sys.exit(request.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        sys.exit(1)
    except TilewrightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
