"""``tilewright db``: inspect a database, check its records, move them between databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from tilewright.cli.logs import log_options
from tilewright.cli.output import json_option, make_console, print_json
from tilewright.meta_schedule.database import JSONDatabase, SQLDatabase, TuningRecord, open_place
from tilewright.meta_schedule.database.transfer import (
    Exported,
    Merged,
    best_of_each,
    differences,
    export,
    merge,
)
from tilewright.meta_schedule.database.tvm_files import TVMFiles
from tilewright.meta_schedule.record_check import REFUSED, VERDICTS, WRONG, RecordChecker
from tilewright.support.errors import TuneError
from tilewright.support.text import human_time, printable
from tilewright.target import Target


def _open(work_dir: str) -> JSONDatabase | SQLDatabase:
    try:
        return open_place(work_dir, allow_missing=False)
    except TuneError as error:
        raise click.UsageError(error.message) from error


def _row(record: TuningRecord) -> dict[str, Any]:
    return {
        "workload": record.workload.hash[:12],
        "function": record.summary,
        "seconds": record.best_seconds if record.is_valid() else None,
        "beat": len(record.beat),
        "target": None if record.target is None else str(record.target),
        "time": record.time,
        "version": record.provenance.get("version"),
    }


@click.group("db")
def db_group() -> None:
    """Inspect databases of tuning records, and move records between them.

    WORK_DIR is the folder of a database, or a URL: sqlite:///records.db,
    postgresql://user@host/name.
    """


@db_group.command("list", short_help="List all records.")
@click.argument("work_dir")
@json_option
@log_options
def list_command(work_dir: str, as_json: bool) -> None:
    """List all records of the database in WORK_DIR, oldest first."""
    _print([_row(record) for record in _open(work_dir).records()], as_json)


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
            row["trace"] = str(record.trace)
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
    records = database.records() if every else database.best_records()
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


@db_group.command("stat", short_help="Count what is in a database.")
@click.argument("work_dir")
@json_option
@log_options
def stat_command(work_dir: str, as_json: bool) -> None:
    """Count workloads and records of WORK_DIR, in all and by target.

    Valid records have times, checked ones say against what, raced ones won a race. Lines that can't
    be read have been set aside.
    """
    found = _open(work_dir).statistics()
    for row in found["targets"]:
        row["target"] = None if row["target"] is None else str(row["target"])
    if as_json:
        print_json(found)
        return
    click.echo(
        f"{found['workloads']} workloads, {found['records']} records, "
        f"{found['choices']} choices for graphs; {found['bytes'] / 2**20:.1f} MiB"
    )
    for row in found["targets"]:
        name = "any target" if row["target"] is None else row["target"]
        counts = ", ".join(f"{row[key]} {key}" for key in ("records", "valid", "checked", "raced"))
        click.echo(printable(f"{name}: {counts}"))
    for name, lines in found["set_aside"].items():
        click.echo(printable(f"{name}: {lines} lines set aside"))
    if "index" in found:
        click.echo(printable(f"index: {found['index'] or 'in memory'}"))


@db_group.command("merge", short_help="Add the records of other databases.")
@click.argument("work_dir")
@click.argument("sources", nargs=-1, required=True)
@json_option
@log_options
def merge_command(work_dir: str, sources: tuple[str, ...], as_json: bool) -> None:
    """Add to WORK_DIR, which may be new, the records of SOURCES that it doesn't have.

    So too choices for graphs, where it has none.
    """
    opened = [_open(source) for source in sources]  # all are there before one is added
    database = open_place(work_dir)
    database.check_writable()
    made = [merge(database, source.records(), source.graph_choices()) for source in opened]
    _print_merged(made, as_json)


def _print_merged(made: list[Merged], as_json: bool, unread: Mapping[str, int] = {}) -> None:
    refused = sum((item.refused for item in made), Counter(unread))
    counts = {
        key: sum(getattr(item, key) for item in made) for key in ("added", "known", "choices")
    }
    if as_json:
        print_json({**counts, "refused": refused})
        return
    click.echo(
        f"{counts['added']} records added, {counts['known']} were there, "
        f"{refused.total()} left out; {counts['choices']} choices for graphs added"
    )
    for reason, number in refused.most_common(_MOST_REASONS):
        click.echo(printable(f"{number} left out: {reason}"))


@db_group.command("prune", short_help="Copy the best records to a new database.")
@click.argument("work_dir")
@click.argument("destination")
@click.option(
    "--keep", type=click.IntRange(min=1), default=1, show_default=True,
    help="Records of each workload and target: of those measured with cold caches, and of others.",
)  # fmt: skip
@json_option
@log_options
def prune_command(work_dir: str, destination: str, keep: int, as_json: bool) -> None:
    """Copy the best records of WORK_DIR to DESTINATION, where no database is yet.

    So too the records that serve a graph best, and what was chosen for graphs.
    WORK_DIR stays as it is: others may be writing to it.
    """
    source, made = _open(work_dir), open_place(destination)
    if len(made) or made.statistics()["workloads"]:
        raise click.UsageError(f"there is a database in {destination} already")
    made.check_writable()
    choices = source.graph_choices()
    _print_merged([merge(made, best_of_each(source, keep, choices), choices)], as_json)


@db_group.command("diff", short_help="Compare the best records of two databases.")
@click.argument("first")
@click.argument("second")
@json_option
@log_options
def diff_command(first: str, second: str, as_json: bool) -> None:
    """Compare the best records of FIRST and SECOND, for each workload and target.

    The ratio is the time of FIRST's by that of SECOND's. Times with cold caches are compared with
    each other, and those with warm ones; times of two machines don't compare.
    """
    rows, places = [], dict[tuple[str, str], str]()
    for item in differences(_open(first), _open(second)):
        record = item.first or item.second
        assert record is not None
        place = "second" if not item.first else "both" if item.second else "first"
        places[record.workload.hash, str(record.target)] = place
        caches = {"cold" if x.cold else "warm" for x in (item.first, item.second) if x}
        rows.append({
            **_row(record), "seconds": item.first and item.first.counted_seconds,
            "other": item.second and item.second.counted_seconds, "ratio": item.ratio,
            "caches": caches.pop() if len(caches) == 1 else None,
        })  # fmt: skip
    count = {"first": 0, "second": 0, "both": 0} | Counter(places.values())
    if as_json:
        print_json({"workloads": rows, **count})
        return
    _table(rows, _COMPARED)
    click.echo(
        f"{count['both']} in both, {count['first']} only in {first}, "
        f"{count['second']} only in {second}"
    )


@db_group.command("export", short_help="Write a database to one file.")
@click.argument("work_dir")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--best",
    is_flag=True,
    help="Only the best records of each workload and target, and those that serve graphs best.",
)
@json_option
@log_options
def export_command(work_dir: str, file: Path, best: bool, as_json: bool) -> None:
    """Write the records of WORK_DIR to FILE; it is compressed if its name ends in .gz."""
    database = _open(work_dir)
    choices = database.graph_choices()
    records = best_of_each(database, 1, choices) if best else database.records()
    count = export(file, records, choices)
    if as_json:
        print_json({"file": str(file), "records": count})
    else:
        click.echo(f"{count} records written")


@db_group.command("import", short_help="Add the records of an exported file, or of TVM.")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.argument("work_dir")
@json_option
@log_options
def import_command(source: Path, work_dir: str, as_json: bool) -> None:
    """Add to WORK_DIR, which may be new, the records of SOURCE that it doesn't have.

    SOURCE is a file that `db export` wrote, or the folder of a database of TVM: its records are
    taken where their primitives are ours and replay, the others are counted.
    """
    found = TVMFiles(source) if source.is_dir() else Exported(source)
    database = open_place(work_dir)
    database.check_writable()
    made = merge(database, found.records(), found.choices)
    _print_merged([made], as_json, found.refused)


_MOST_REASONS = 10
_COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "workload": lambda row: str(row["workload"]),
    "function": lambda row: str(row["function"]),
    "best": lambda row: "not measured" if row["seconds"] is None else human_time(row["seconds"]),
    "cores": lambda row: str(Target(row["target"]).num_cores) if row["target"] else "-",
    "measured": lambda row: (
        f"{datetime.fromtimestamp(row['time']):%Y-%m-%d %H:%M}" if row["time"] else "-"
    ),
}
_COMPARED: dict[str, Callable[[dict[str, Any]], str]] = {
    "workload": _COLUMNS["workload"],
    "function": _COLUMNS["function"],
    "first": lambda row: human_time(row["seconds"]) if row["seconds"] else "-",
    "second": lambda row: human_time(row["other"]) if row["other"] else "-",
    "ratio": lambda row: f"{row['ratio']:.2f}" if row["ratio"] else "-",
    "caches": lambda row: row["caches"] or "-",
    "cores": _COLUMNS["cores"],
}


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("no records")
        return
    _table(rows, _COLUMNS)
    console = make_console()
    for row in rows:
        if "trace" in row:
            text = printable(f"# {row['function']}\n{row['trace']}")
            console.print(text, markup=False, highlight=False)


def _table(rows: list[dict[str, Any]], columns: dict[str, Callable[[dict[str, Any]], str]]) -> None:
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(printable(cell(row))) for cell in columns.values()))
    make_console().print(table)
