"""What tests of databases share: a program, its schedules, and how records are added."""

from __future__ import annotations

from pathlib import Path

from tilewright import te
from tilewright.ir import IRModule
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.database import (
    Database,
    TuningRecord,
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
