"""``tilewright db``: inspect a database and check its records."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from tilewright.cli.logs import log_options
from tilewright.cli.output import json_option, make_console, print_json
from tilewright.meta_schedule.database import JSONDatabase, TuningRecord
from tilewright.meta_schedule.record_check import REFUSED, VERDICTS, WRONG, RecordChecker
from tilewright.support.text import human_time, printable
from tilewright.target import Target

_BLOCK = re.compile(r'T\.block\("([^"]+)"')


def _open(work_dir: str) -> JSONDatabase:
    if not Path(work_dir).is_dir():
        raise click.UsageError(f"there is no folder {work_dir}")
    database = JSONDatabase(work_dir=work_dir)
    if not database.path_workload.exists():
        raise click.UsageError(
            f"there is no database in {work_dir}: no file {database.path_workload.name}"
        )
    return database


def _row(record: TuningRecord) -> dict[str, Any]:
    return {
        "workload": record.workload.hash[:12],
        "function": _summary(record),
        "seconds": record.best_seconds if record.is_valid() else None,
        "beat": len(record.beat),
        "target": None if record.target is None else str(record.target),
        "time": record.time,
        "version": record.provenance.get("version"),
    }


def _summary(record: TuningRecord) -> str:
    infos = record.args_info or ()
    shapes = ["x".join(map(str, getattr(info, "shape", ()))) or "scalar" for info in infos]
    # From the text, for parsing hundreds of programs takes seconds.
    names = dict.fromkeys(name for name in _BLOCK.findall(record.workload.text) if name != "root")
    return f"{'+'.join(names) or 'function'} ({', '.join(shapes)})"


@click.group("db")
def db_group() -> None:
    """Inspect a database of tuning records."""


@db_group.command("list", short_help="List all records.")
@click.argument("work_dir")
@json_option
@log_options
def list_command(work_dir: str, as_json: bool) -> None:
    """List all records of the database in WORK_DIR, oldest first."""
    _print([_row(record) for record in _open(work_dir).get_all_tuning_records()], as_json)


@db_group.command("best", short_help="Show the fastest record of each workload.")
@click.argument("work_dir")
@click.option("--trace", is_flag=True, help="Print the schedules as Python.")
@json_option
@log_options
def best_command(work_dir: str, trace: bool, as_json: bool) -> None:
    """Show the fastest record of each workload and target in WORK_DIR."""
    best = _open(work_dir).best_records()
    rows = [_row(record) for record in best]
    if trace:
        for row, record in zip(rows, best):
            row["trace"] = record.trace.as_python()
    _print(rows, as_json)


@db_group.command("verify", short_help="Check records against the unscheduled programs.")
@click.argument("work_dir")
@click.option("--all", "every", is_flag=True, help="Every record, not only the best ones.")
@click.option(
    "--allow-extern", "allowed", multiple=True, metavar="NAME",
    help="A function outside that programs may call. May be given several times.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True,
    help="Seconds that a record may take.",
)  # fmt: skip
@click.option(
    "--memory", type=click.FloatRange(min=0, min_open=True), default=16.0, show_default=True,
    help="GiB of memory that the checking process may use.",
)  # fmt: skip
@json_option
@log_options
def verify_command(
    work_dir: str,
    every: bool,
    allowed: tuple[str, ...],
    timeout: float,
    memory: float,
    as_json: bool,
) -> None:
    """Replay the records in WORK_DIR, run them and compare with the unscheduled programs.

    The best record of each workload, or all. Records for CPU features that this machine doesn't
    have are skipped. Programs are run in a separate process, and refused if they may do more than
    compute on their arrays: call functions that aren't allowed by name, make pointers, or write out
    of bounds. The exit code is 1 if a record is wrong or refused.
    """
    database = _open(work_dir)
    records = database.get_all_tuning_records() if every else database.best_records()
    rows = []
    with RecordChecker(
        allow_extern=allowed, timeout_sec=timeout, memory_bytes=int(memory * 2**30)
    ) as checker:
        for record in records:
            found = checker.check(record)
            rows.append({**_row(record), "verdict": found.verdict, "problem": found.problem})
    count = {key: sum(row["verdict"] == key for row in rows) for key in VERDICTS}
    if as_json:
        print_json({"records": rows, **count})
    else:
        for row in rows:
            if row["problem"] is not None:
                line = f"{row['verdict']}: {row['workload']} {row['function']}: {row['problem']}"
                click.echo(printable(line))
        click.echo(", ".join(f"{number} {key}" for key, number in count.items()))
    if count[WRONG] or count[REFUSED]:
        raise click.exceptions.Exit(1)


_COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "workload": lambda row: str(row["workload"]),
    "function": lambda row: str(row["function"]),
    "best": lambda row: "not measured" if row["seconds"] is None else human_time(row["seconds"]),
    "cores": lambda row: str(Target(row["target"]).num_cores) if row["target"] else "-",
    "measured": lambda row: (
        f"{datetime.fromtimestamp(row['time']):%Y-%m-%d %H:%M}" if row["time"] else "-"
    ),
}


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("no records")
        return
    console = make_console()
    table = Table()
    for column in _COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(printable(cell(row))) for cell in _COLUMNS.values()))
    console.print(table)
    for row in rows:
        if "trace" in row:
            text = printable(f"# {row['function']}\n{row['trace']}")
            console.print(text, markup=False, highlight=False)
