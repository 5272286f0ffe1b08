"""Tuning databases of many records: ``python -m benchmarks.databases --records 1000000``.

Makes a database in text files, opens it without and with its index, asks for the best record of
programs, lists all records, and merges another one of a tenth of the size. The records are those of
small products of matrices with ``--instructions`` instructions in their traces; one of a hundred
won a race. Each step is in a process of its own: processor seconds, and by how much its resident
size grew at most. With ``--kind sqlite`` or ``postgresql``, which starts a server of its own, the
records are merged into such a database, which is asked the same.

``--writers 4`` has that many processes write that many records in all into one database of the
kind, ``--batch`` with each commit, and then looks whether all that was acknowledged is there, once.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.core import Figure
from tilewright import te
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.database import (
    Database,
    MemoryDatabase,
    SQLDatabase,
    TuningRecord,
    open_place,
)
from tilewright.meta_schedule.database.json_file import RECORD_FILE, WORKLOAD_FILE
from tilewright.meta_schedule.database.record import provenance
from tilewright.meta_schedule.database.transfer import merge
from tilewright.target import Target
from tilewright.testing import postgresql
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")
_ASKED, _PROGRAMS = 50, 64
Place = Path | str


def product(number: int) -> PrimFunc:
    """A product of matrices, another one for each number."""
    n, m = 16 + number % 512, 16 + number // 512
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m, n), name="B")
    k = te.reduce_axis((0, m), "k")
    return te.create_prim_func(
        [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]
    )


def schedule_of(func: PrimFunc, instructions: int, factor: int) -> Schedule:
    """A schedule with about so many instructions."""
    sch = Schedule(func)
    outer, _, _ = sch.get_loops(sch.get_block("C"))
    while len(sch.trace) < instructions:
        outer, _ = sch.split(outer, [None, factor])
    sch.parallel(outer)
    return sch


def write(folder: Path, records: int, each: int, instructions: int) -> None:
    """Write a database; its lines are those that commits would have written."""
    rng = random.Random(records)
    folder.mkdir(parents=True)
    memory, programs = MemoryDatabase(), max(1, records // each)
    lines: list[list[str]] = []
    with (folder / WORKLOAD_FILE).open("w") as file:
        for number in range(programs):
            workload = memory.commit_workload(product(number))
            file.write(json.dumps(workload.as_json(), separators=(",", ":")) + "\n")
    func = product(0)
    workload = memory.commit_workload(func)
    for factor in (1, 2, 4, 8):
        trace = schedule_of(func, instructions, factor).trace
        beaten = TuningRecord(schedule_of(func, instructions, 16).trace, workload).digest
        infos, checked = tuple(arg_infos(func)), {"against": "unscheduled program"}
        lines.append([
            json.dumps(
                TuningRecord(
                    trace, workload, (0.25, 0.25, 0.25), TARGET, infos,
                    provenance(checked, beat=beat),
                ).as_json(), separators=(",", ":"),
            )
            for beat in ([], [beaten])
        ])  # fmt: skip
    with (folder / RECORD_FILE).open("w") as file:
        for _ in range(records):
            line = rng.choice(lines)[rng.random() < 0.01]
            seconds = f"{rng.uniform(1e-5, 1e-3):.6g}"
            line = line.replace("0.25,0.25,0.25", f"{seconds},{seconds},{seconds}")
            file.write(f"[{rng.randrange(programs)},{line}]\n")


def apart(step: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """Run a step in a process of its own; return what it gives, its seconds and its memory."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_run, args=(theirs, step, arguments)
    )
    process.start()
    result: tuple[Any, float, float] = ours.recv()
    process.join()
    return result


def _run(answer: Connection, step: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    found = step(*arguments)
    seconds = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer.send((found, seconds, (after - before) / 1024))


def opened(place: Place) -> int:
    """Open a database and count its records."""
    return len(open_place(place))


def asked(place: Place, programs: int) -> dict[str, float]:
    """Ask for the best record of some programs; return seconds of each kind of question."""
    database = open_place(place)
    rng = random.Random(1)
    numbers = rng.sample(range(programs), min(_ASKED, programs))
    funcs = [product(number) for number in numbers]
    found: dict[str, list[float]] = {"first": [], "again": [], "look-up": []}
    for func in funcs:
        record = None
        for kind in ("first", "again"):
            start = time.process_time()
            record = database.query_tuning_record(func, TARGET)
            found[kind].append(time.process_time() - start)
        assert record is not None
        start = time.process_time()
        database.get_top_k(record.workload, 1, TARGET)
        found["look-up"].append(time.process_time() - start)
    return {kind: statistics.median(values) for kind, values in found.items()}


def listed(place: Place) -> int:
    """Read all records, one after the other."""
    return sum(1 for _ in open_place(place).records())


def best(place: Place) -> int:
    """Read the best records."""
    return len(open_place(place).best_records())


def merged(place: Place, other: Path) -> tuple[int, int]:
    """Merge a database into another one; return how many records are new, and were there."""
    source = open_place(other)
    made = merge(open_place(place), source.records())
    return made.added, made.known


def measure(folder: Path, url: str | None, options: argparse.Namespace) -> list[Figure]:
    """Make a database and measure it."""
    records, each, instructions = options.records, options.each, options.instructions
    write(folder, records, each, instructions)
    text = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    rows = []

    def row(name: str, seconds: float, note: str, unit: str = "s") -> None:
        rows.append(Figure(name, seconds * {"s": 1, "ms": 1e3}[unit], unit, None, note))

    place: Place = folder if url is None else url
    if url is None:
        found, seconds, memory = apart(opened, folder)
        assert found == records
        row("open without an index: check all lines", seconds, f"{memory:.0f} MiB of memory")
        index = sum(path.stat().st_size for path in folder.glob("*.sqlite")) / 2**20
        disk = f"{index:.0f} on disk"
    else:
        (added, _), seconds, memory = apart(merged, url, folder)
        assert added == records
        row(f"merge {records:,} records into none", seconds, f"{memory:.0f} MiB of memory")
        disk = f"{SQLDatabase(url).statistics()['bytes'] / 2**20:.0f} on disk in all"
    found, seconds, memory = apart(opened, place)
    assert found == records
    row("open and count", seconds, f"{memory:.1f} MiB of memory, {disk}", "ms")
    times, _, memory = apart(asked, place, max(1, records // each))
    row("best record of a program, first time", times["first"], f"{memory:.1f} MiB", "ms")
    row("the same again", times["again"], "with the program's hash", "ms")
    row("the same, by its workload", times["look-up"], "", "ms")
    count, seconds, memory = apart(best, place)
    row(f"all {count:,} best records", seconds, f"{memory:.0f} MiB")
    count, seconds, memory = apart(listed, place)
    row(f"all {count:,} records, one by one", seconds, f"{memory:.0f} MiB")
    other = folder.with_name(f"{folder.name}_other")
    write(other, max(1, records // 10), each, instructions)
    (added, known), seconds, memory = apart(merged, place, other)
    assert added + known == max(1, records // 10)
    row(f"merge {added + known:,} records into them", seconds, f"{memory:.0f} MiB")
    print(f"{records:,} records of {max(1, records // each):,} programs, {text:,.0f} MiB of text")
    return rows


# ---- many writers --------------------------------------------------------------------------------


def commit_records(place: Place, writer: int, count: int, batch: int) -> list[float]:
    """Commit records, each with a time of its own; return the times of what was acknowledged."""
    database = open_place(place)
    programs = [product(number) for number in range(_PROGRAMS)]
    rng, kept = random.Random(writer), []
    workloads = [database.commit_workload(func) for func in programs]  # all add the same at once
    traces = [schedule_of(programs[0], 6, factor).trace for factor in (1, 2, 4, 8)]
    infos = tuple(arg_infos(programs[0]))
    for start in range(0, count, batch):
        seconds = [1 + writer + n * 1e-7 for n in range(start, min(start + batch, count))]
        database.commit_tuning_records(
            TuningRecord(rng.choice(traces), rng.choice(workloads), (each,), TARGET, infos)
            for each in seconds
        )
        kept += seconds
    return kept


def written_at_once(place: Place, options: argparse.Namespace) -> list[Figure]:
    """Let several processes write at once, and look for what is lost or there twice."""
    context, count = multiprocessing.get_context("fork"), options.records // options.writers
    start = time.perf_counter()
    with context.Pool(options.writers) as pool:
        kept = pool.starmap(
            commit_records, [(place, n, count, options.batch) for n in range(options.writers)]
        )
    seconds = time.perf_counter() - start
    database: Database = open_place(place)
    found = sorted(record.run_secs[0] for record in database.records() if record.run_secs)
    acknowledged = sorted(each for some in kept for each in some)
    workloads = {record.workload.hash for record in database.records()}
    lost = len(set(acknowledged) - set(found))
    twice = len(found) - len(set(found))
    if found != acknowledged or len(workloads) != _PROGRAMS:
        raise AssertionError(f"{lost} lost, {twice} twice, {len(workloads)} programs")
    note = f"{lost} lost, {twice} twice; {seconds:.1f} s, {options.batch} records a commit"
    name = f"{options.writers} writers, {len(found):,} records of {_PROGRAMS} programs"
    return [Figure(name, len(found) / seconds, "records/s", None, note)]


@contextmanager
def url_of(kind: str, folder: Path) -> Iterator[str | None]:
    """The URL of an empty database of a kind; none for text files."""
    if kind == "json":
        yield None
    elif kind == "sqlite":
        yield f"sqlite:///{folder}.db"
    else:
        with postgresql.server(careful=True) as url:
            yield url


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.databases", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--each", type=int, default=200, help="records of a program")
    parser.add_argument("--instructions", type=int, default=12, help="in a record's trace")
    parser.add_argument("--folder", type=Path, help="keep the database there")
    parser.add_argument("--kind", choices=("json", "sqlite", "postgresql"), default="json")
    parser.add_argument("--writers", type=int, help="processes that write at once")
    parser.add_argument("--batch", type=int, default=16, help="records that are written at once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "database"
        with url_of(options.kind, folder) as url:
            if options.writers:
                figures = written_at_once(folder if url is None else url, options)
            else:
                figures = measure(folder, url, options)
    if options.json:
        table.dump([figure.__dict__ for figure in figures])
        return
    rows = [figure.row() for figure in figures]
    table.show("databases", ["step", "measured", "target", "note"], rows)


if __name__ == "__main__":
    main()
