"""Tuning databases of many records: ``python -m benchmarks.databases --records 1000000``.

Makes a database in text files, opens it without and with its index, asks for the best record of
programs, lists all records, and merges another one of a tenth of the size. The records are those of
small products of matrices with ``--instructions`` instructions in their traces; one of a hundred
won a race. Each step is in a process of its own: processor seconds, and by how much its resident
size grew at most.
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
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.core import Figure
from tilewright import te
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from tilewright.meta_schedule.database.json_file import RECORD_FILE, WORKLOAD_FILE
from tilewright.meta_schedule.database.record import provenance
from tilewright.meta_schedule.database.transfer import merge
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")
_ASKED = 50


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
                ).as_json(0)[1], separators=(",", ":"),
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


def opened(folder: Path) -> int:
    """Open a database and count its records."""
    return len(JSONDatabase(work_dir=folder))


def asked(folder: Path, programs: int) -> dict[str, float]:
    """Ask for the best record of some programs; return seconds of each kind of question."""
    database = JSONDatabase(work_dir=folder)
    rng = random.Random(1)
    numbers = rng.sample(range(programs), min(_ASKED, programs))
    funcs = [product(number) for number in numbers]
    found: dict[str, list[float]] = {"first": [], "again": [], "look-up": []}
    for func in funcs:
        for kind in ("first", "again"):
            start = time.process_time()
            record = database.query_tuning_record(func, TARGET)
            found[kind].append(time.process_time() - start)
            assert record is not None
        start = time.process_time()
        database.get_top_k(record.workload, 1, TARGET)
        found["look-up"].append(time.process_time() - start)
    return {kind: statistics.median(values) for kind, values in found.items()}


def listed(folder: Path) -> int:
    """Read all records, one after the other."""
    return sum(1 for _ in JSONDatabase(work_dir=folder).records())


def best(folder: Path) -> int:
    """Read the best records."""
    return len(JSONDatabase(work_dir=folder).best_records())


def merged(folder: Path, other: Path) -> tuple[int, int]:
    """Merge a database into another one; return how many records are new, and were there."""
    source = JSONDatabase(work_dir=other)
    made = merge(JSONDatabase(work_dir=folder), source.records())
    return made.added, made.known


def measure(folder: Path, records: int, each: int, instructions: int) -> list[Figure]:
    """Make a database and measure it."""
    write(folder, records, each, instructions)
    text = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    rows = []

    def row(name: str, seconds: float, note: str, unit: str = "s") -> None:
        rows.append(Figure(name, seconds * {"s": 1, "ms": 1e3}[unit], unit, None, note))

    found, seconds, memory = apart(opened, folder)
    assert found == records
    row("open without an index: check all lines", seconds, f"{memory:.0f} MiB of memory")
    index = sum(path.stat().st_size for path in folder.glob("*.sqlite")) / 2**20
    found, seconds, memory = apart(opened, folder)
    assert found == records
    row("open with the index", seconds, f"{memory:.1f} MiB of memory, {index:.0f} on disk", "ms")
    times, _, memory = apart(asked, folder, max(1, records // each))
    row("best record of a program, first time", times["first"], f"{memory:.1f} MiB", "ms")
    row("the same again", times["again"], "with the program's hash", "ms")
    row("the same, by its workload", times["look-up"], "", "ms")
    count, seconds, memory = apart(best, folder)
    row(f"all {count:,} best records", seconds, f"{memory:.0f} MiB")
    count, seconds, memory = apart(listed, folder)
    row(f"all {count:,} records, one by one", seconds, f"{memory:.0f} MiB")
    other = folder.with_name(f"{folder.name}_other")
    write(other, max(1, records // 10), each, instructions)
    (added, known), seconds, memory = apart(merged, folder, other)
    assert added + known == max(1, records // 10)
    row(f"merge {added + known:,} records into them", seconds, f"{memory:.0f} MiB")
    print(f"{records:,} records of {max(1, records // each):,} programs, {text:,.0f} MiB of text")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.databases", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--each", type=int, default=200, help="records of a program")
    parser.add_argument("--instructions", type=int, default=12, help="in a record's trace")
    parser.add_argument("--folder", type=Path, help="keep the database there")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "database"
        figures = measure(folder, options.records, options.each, options.instructions)
    if options.json:
        table.dump([figure.__dict__ for figure in figures])
        return
    rows = [figure.row() for figure in figures]
    table.show("databases", ["step", "measured", "target", "note"], rows)


if __name__ == "__main__":
    main()
