"""What tests of databases share: a program, its schedules, and how records are added."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tilewright import te
from tilewright.ir import IRModule
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.database import (
    Database,
    MemoryDatabase,
    TuningRecord,
    Workload,
)
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")


def matmul(n: int = 16, relu: bool = False) -> PrimFunc:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    if not relu:
        return te.create_prim_func([a, b, c])
    d = te.compute((n, n), lambda i, j: te.exp(c[i, j]), name="D")
    return te.create_prim_func([a, b, d])


def schedule(mod: PrimFunc | IRModule, factor: int = 4) -> Schedule:
    sch = Schedule(mod, seed=1)
    i, _, _ = sch.get_loops(sch.get_block("C"))
    outer, _ = sch.split(i, [None, factor])
    sch.parallel(outer)
    return sch


def add(
    database: Database, func: PrimFunc, seconds: float, factor: int = 4, target: Target = TARGET
) -> TuningRecord:
    workload = database.commit_workload(func)
    record = TuningRecord(
        schedule(workload.mod, factor).trace,
        workload,
        (seconds, seconds * 2, seconds),
        target,
        arg_infos(func),
        {"version": "x", "verified": {"relative_difference": 1e-7}},
    )
    database.commit_tuning_record(record)
    return record


def times(database: Database) -> list[float]:
    return [record.best_seconds for record in database.get_all_tuning_records()]


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


# ---- random records ------------------------------------------------------------------------------

PROGRAMS = [Workload(MemoryDatabase().commit_workload(matmul(n)).mod) for n in (4, 8, 16)]
TRACES = [schedule(matmul(), factor).trace for factor in (1, 2, 4, 8)]
DIGESTS = [TuningRecord(trace, PROGRAMS[0]).digest for trace in TRACES]
TARGETS = [
    None,
    TARGET,
    Target("llvm -mcpu=znver5 -num-cores=2"),
    Target("llvm -mcpu=haswell -num-cores=2"),
]


def random_record(rng: random.Random, workload: int) -> list[object]:
    """What a record's line holds: often without a time, of other targets, or with a race won."""
    secs = rng.choice([None, [1e-5], [2e-5, 1e-5], [0.0], [rng.choice([1, 2, 3]) * 1e-5] * 3])
    origin: dict[str, object] = {"version": "x"}
    if rng.random() < 0.7:
        origin["verified"] = {"trusted_timing": rng.random() < 0.8}
    if rng.random() < 0.3:
        origin["beat"] = rng.sample(DIGESTS, rng.randint(1, 2))
    record = TuningRecord(rng.choice(TRACES), PROGRAMS[0], None, rng.choice(TARGETS), (), origin)
    line = record.as_row(workload)
    line[1][1] = secs  # type: ignore[index]  # it is a list of lists
    return line


def as_text(records: list[TuningRecord]) -> list[str]:
    return [json.dumps(record.as_json()) + record.workload.hash for record in records]


def check_same(database: Database, expected: Database) -> None:
    """Both give the same records in the same order, whatever they are asked."""
    assert len(database) == len(expected)
    every = expected.get_all_tuning_records()
    assert as_text(database.get_all_tuning_records()) == as_text(every)
    assert as_text(database.best_records()) == as_text(expected.best_records())
    for program in PROGRAMS:
        own, other = (x.commit_workload(program.mod) for x in (database, expected))
        for target in TARGETS:
            for top_k in (0, 1, 3, 2**31):
                found = database.get_top_k(own, top_k, target)
                assert as_text(found) == as_text(expected.get_top_k(other, top_k, target))
                assert all(record.workload is own for record in found)
