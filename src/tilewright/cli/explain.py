"""``tilewright explain SOURCE NAME``: why a function has its schedule."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.logs import log_options
from tilewright.cli.model import MODEL_HELP, load_model
from tilewright.cli.options import (
    Dynamic,
    Place,
    Shapes,
    dynamic_option,
    place_options,
    shape_option,
    target_option,
)
from tilewright.cli.output import json_option, print_json
from tilewright.ir import IRModule
from tilewright.meta_schedule.database import (
    Database,
    MemoryDatabase,
    TuningRecord,
    is_url,
    open_place,
)
from tilewright.meta_schedule.report import Explanation, explain_record, explain_rule, peaks_here
from tilewright.meta_schedule.trial_log import TaskLog, read_logs
from tilewright.relax.tuning.models import explained_functions
from tilewright.support.errors import TuneError
from tilewright.support.registry import near_matches
from tilewright.support.text import printable
from tilewright.target import Target


@click.command("explain", epilog=MODEL_HELP)
@click.argument("source")
@click.argument("name", required=False)
@click.option("--script", is_flag=True, help="Print the scheduled program too.")
@click.option("--measure/--no-measure", default=True, show_default=True,
              help="Measure the limits of this machine, if it is the target.")  # fmt: skip
@shape_option
@dynamic_option
@target_option
@place_options
@json_option
@log_options
def explain_command(
    source: str,
    name: str | None,
    script: bool,
    measure: bool,
    shapes: Shapes,
    dynamic: tuple[Dynamic, ...],
    target: Target,
    place: Place,
    as_json: bool,
) -> None:
    """Say why a function has its schedule: what made it, whom it beat, how it was checked.

    SOURCE is the folder or URL of a database, and NAME a task or the beginning of a workload's
    hash, with `/2` for its second best record; or SOURCE is a MODEL, and NAME one of its functions,
    which get their schedules from the database of --work-dir, or by rule. Without NAME, say which
    names there are.
    """
    if Path(source).is_dir() or is_url(source):
        made = _of_record(source, name, place.work_dir, measure)
    else:
        found = place.existing()
        opened = MemoryDatabase() if found is None else _open(found, allow_missing=True)
        mod = _module(source, shapes, dynamic)
        made = _of_function(mod, name, target, opened, place.work_dir, measure)
    if isinstance(made, Explanation):
        if as_json:
            print_json(made.as_json())
        else:
            click.echo(printable(made.text(script=script)))
        return
    if as_json:
        print_json([{"name": key, "what": what} for key, what in made.items()])
        return
    if not made:
        click.echo(f"{source} has no records, or no functions")
    width = max(map(len, made), default=0)
    for key, what in made.items():
        click.echo(printable(f"{key:{width}}  {what}"))


def _open(place: str, *, allow_missing: bool = False) -> Database:
    try:
        return open_place(place, allow_missing=allow_missing and not is_url(place))
    except TuneError as error:
        raise click.UsageError(error.message) from error


def _of_record(
    place: str, name: str | None, work_dir: str, measure: bool
) -> Explanation | dict[str, str]:
    folder = work_dir if is_url(place) else place  # where logs are
    database = _open(place)
    best = database.best_records()
    tasks = {log.workload: log.task for log in read_logs(folder)}
    if name is None:
        return {
            record.workload.hash[:12]: tasks.get(record.workload.hash, record.summary)
            for record in best
        }
    prefix, _, number = name.partition("/")
    found = [
        record
        for record in best
        if prefix == tasks.get(record.workload.hash)
        or (prefix and record.workload.hash.startswith(prefix))
    ]
    hashes = {record.workload.hash for record in found}
    if len(hashes) != 1:
        known = [record.workload.hash[:12] for record in best]
        many = f"{len(hashes)} workloads have" if hashes else "no workload with a record has"
        raise click.UsageError(
            f"{many} a hash that begins with {prefix!r}; {near_matches(prefix, known)}"
        )
    record = found[0]
    if number:
        ranked = database.get_top_k(record.workload, 2**31)
        if not number.isdecimal() or not 0 < int(number) <= len(ranked):
            raise click.UsageError(f"{prefix} has records 1 to {len(ranked)}, not {number}")
        record = ranked[int(number) - 1]
    return _explained(record, database, folder, measure)


def _module(source: str, shapes: Shapes, dynamic: tuple[Dynamic, ...]) -> IRModule:
    if source.endswith(".so"):
        raise click.UsageError(
            f"{source} is a library, which doesn't keep its schedules: name the model it was made "
            "from"
        )
    return load_model(source, shapes, dynamic).mod


def _of_function(
    mod: IRModule,
    name: str | None,
    target: Target,
    database: Database,
    folder: str,
    measure: bool,
) -> Explanation | dict[str, str]:
    functions = explained_functions(database, mod, target)
    if name is None:
        return {key: f"{item.outcome}: {item.why}" for key, (_, item) in functions.items()}
    if name not in functions:
        raise click.UsageError(f"no function {name!r}; {near_matches(name, list(functions))}")
    func, applied = functions[name]
    found = None
    if applied.outcome != "rule":
        found = database.query_replayed(func, target, applied.digest, cold=applied.cold)
    if found is not None:
        made = _explained(found.record, database, folder, measure)
        if found.adapted:
            made.add("adapted", applied.why)
            made.show(found.schedule)
        return made
    peaks = peaks_here(target) if measure else None
    return explain_rule(func, target, name, why=applied.why, peaks=peaks)


def _explained(record: TuningRecord, database: Database, folder: str, measure: bool) -> Explanation:
    logs = (log for log in read_logs(folder) if log.workload == record.workload.hash)
    peaks = peaks_here(record.target) if measure and record.target is not None else None
    log: TaskLog | None = next(logs, None)
    return explain_record(record, database=database, log=log, peaks=peaks)
