"""``tilewright report WORK_DIR``."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.logs import log_options
from tilewright.cli.options import database_option
from tilewright.cli.output import json_option, print_json
from tilewright.meta_schedule.database import open_place
from tilewright.meta_schedule.report import write_report


def _known(work_dir: str) -> str:
    if not Path(work_dir).is_dir():
        raise click.UsageError(f"there is no folder {work_dir}")
    return work_dir


@click.command("report")
@click.argument("work_dir")
@click.option("--compare", metavar="OTHER_DIR", help="Compare with the run in another folder.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE",
              help="The file to write; by default report.html in WORK_DIR.")  # fmt: skip
@database_option
@click.option("--measure/--no-measure", default=True, show_default=True,
              help="Measure the limits of this machine for the roofline, if it is the one that was "
                   "tuned for.")  # fmt: skip
@json_option
@log_options
def report_command(
    work_dir: str,
    compare: str | None,
    output: str | None,
    database: str | None,
    measure: bool,
    as_json: bool,
) -> None:
    """Write a page about the tuning runs in WORK_DIR: one HTML file that needs no other.

    How the best times fell, what the cost model predicted, what was rejected and why, where the
    time went, how near the results are to the limits of the machine, and each best schedule.
    """
    path = Path(_known(work_dir)) / "report.html" if output is None else Path(output)
    other = None if compare is None else _known(compare)
    opened = None if database is None else open_place(database, allow_missing=False)
    made = write_report(work_dir, path, compare=other, database=opened, measure=measure)
    if as_json:
        print_json({"report": str(made), "bytes": made.stat().st_size})
    else:
        click.echo(f"wrote {made}")
