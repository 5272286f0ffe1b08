"""``tilewright db``: look into a database and check its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tilewright import driver
from tilewright.cli.options import json_option, print_json
from tilewright.meta_schedule.database import JSONDatabase, TuningRecord
from tilewright.meta_schedule.runner import LocalRunner, Reference, RunnerInput
from tilewright.support.errors import TilewrightError
from tilewright.support.text import human_time
from tilewright.target import Target


def _open(work_dir: str) -> JSONDatabase:
    if not Path(work_dir).is_dir():
        raise click.UsageError(f"there is no folder {work_dir}")
    return JSONDatabase(work_dir=work_dir, allow_missing=False)


def _row(record: TuningRecord) -> dict[str, Any]:
    return {
        "workload": record.workload.hash[:12],
        "function": _summary(record),
        "seconds": record.best_seconds if record.is_valid() else None,
        "target": str(record.target),
        "time": record.provenance.get("time"),
        "version": record.provenance.get("version"),
    }


def _summary(record: TuningRecord) -> str:
    infos = record.args_info or ()
    shapes = ["x".join(map(str, getattr(info, "shape", ()))) or "scalar" for info in infos]
    blocks = [inst.args[0] for inst in record.trace.insts if inst.name == "get_block"]
    names = dict.fromkeys(name for name in blocks if name != "root")
    return f"{'+'.join(names) or 'function'} ({', '.join(shapes)})"


@click.group("db")
def db_group() -> None:
    """Look into a database of tuning records."""


@db_group.command("list")
@click.argument("work_dir")
@json_option
def list_command(work_dir: str, as_json: bool) -> None:
    """List all records, oldest first."""
    _print([_row(record) for record in _open(work_dir).get_all_tuning_records()], as_json)


@db_group.command("best")
@click.argument("work_dir")
@click.option("--trace", is_flag=True, help="Print the schedules as Python.")
@json_option
def best_command(work_dir: str, trace: bool, as_json: bool) -> None:
    """Show the fastest record of each workload."""
    best = _best(_open(work_dir))
    rows = [_row(record) for record in best]
    if trace:
        for row, record in zip(rows, best):
            row["trace"] = record.trace.as_python()
    _print(rows, as_json)


def _best(database: JSONDatabase) -> list[TuningRecord]:
    found: dict[tuple[str, str], TuningRecord] = {}
    for record in database.get_all_tuning_records():
        key = (record.workload.hash, str(record.target))
        if record.is_valid() and (
            key not in found or record.best_seconds < found[key].best_seconds
        ):
            found[key] = record
    return list(found.values())


@db_group.command("verify")
@click.argument("work_dir")
@click.option("--all", "every", is_flag=True, help="Every record, not only the best ones.")
@json_option
def verify_command(work_dir: str, every: bool, as_json: bool) -> None:
    """Replay records, run them and compare with the unscheduled programs."""
    database = _open(work_dir)
    records = database.get_all_tuning_records() if every else _best(database)
    runner = LocalRunner()
    rows = []
    for record in records:
        row = _row(record)
        row["problem"] = _problem(record, runner)
        rows.append(row)
    runner.close()
    bad = [row for row in rows if row["problem"]]
    if as_json:
        print_json({"records": rows, "wrong": len(bad)})
    else:
        for row in bad:
            click.echo(f"{row['workload']} {row['function']}: {row['problem']}")
        click.echo(f"{len(rows) - len(bad)} records are right, {len(bad)} are not")
    if bad:
        raise click.exceptions.Exit(1)


def _problem(record: TuningRecord, runner: LocalRunner) -> str | None:
    target = record.target or Target("native")
    infos = record.args_info or ()
    try:
        reference = Reference(
            record.workload.hash, driver.compile(record.workload.mod, target), tuple(infos)
        )
        candidate = driver.compile(record.schedule().mod, target)
    except TilewrightError as error:
        return str(error)
    (result,) = runner.run([RunnerInput(candidate, reference)])
    return result.error


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    table = Table()
    for column in ("workload", "function", "best", "cores"):
        table.add_column(column)
    for row in rows:
        seconds = row["seconds"]
        cores = str(Target(row["target"]).num_cores) if row["target"] != "None" else "-"
        table.add_row(
            row["workload"],
            row["function"],
            human_time(seconds) if seconds is not None else "not measured",
            cores,
        )
    console = Console()
    console.print(table)
    for row in rows:
        if "trace" in row:
            console.print(f"# {row['function']}\n{row['trace']}", markup=False)
