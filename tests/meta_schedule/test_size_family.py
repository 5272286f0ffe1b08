"""Schedules for ranges of a symbolic size: which are chosen, and what is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import Var
from tilewright.meta_schedule import TuneContext
from tilewright.meta_schedule.arg_info import arg_infos, random_arguments
from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.database import MemoryDatabase, TuningRecord
from tilewright.meta_schedule.runner import Runner, RunnerInput, RunnerResult
from tilewright.meta_schedule.size_family import compare_sizes
from tilewright.meta_schedule.sizes import sizes_of, spread
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE, LAYOUT_REWRITE
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=skylake-avx512 -num-cores=2")
SIZES = [{"n": 1}, {"n": 16}, {"n": 128}]


def rows() -> PrimFunc:
    n = Var("n")
    a = te.placeholder((n, 4), name="A")
    return te.create_prim_func([a, te.compute((n, 4), lambda i, j: a[i, j] * 2.0, name="B")])


class Modules(Builder):
    """Keeps the program in place of machine code."""

    def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [BuilderResult(module=item.mod) for item in inputs]  # type: ignore[arg-type]


class Clock(Runner):
    """Gives times by the text of the program and the size."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.sizes: list[int] = []

    def run(self, inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        for item in inputs:
            size = item.reference.args_info[0].shape[0]
            self.sizes.append(size)
            text = item.module["main"].script()
            is_vector = "T.vectorized" in text
            if is_vector and size == self.fails_at:
                yield RunnerResult(None, "it is wrong", "wrong")
                continue
            # Threads cost 30, and pay off from n = 31 on.
            seconds = 30.0 + size if "T.parallel" in text else 2.0 * size
            yield RunnerResult((1e-6 * seconds * (0.5 if is_vector else 1.0),) * 3)


def tuned(database: MemoryDatabase, *, vectors: bool = False) -> TuneContext:
    context = TuneContext(rows(), target=TARGET, symbols=SIZES[-1], start_from_rules=False)
    for sizes in SIZES:
        for parallel in (False, True):
            sch = Schedule(context.mod)
            i, j = sch.get_loops("B")
            if parallel:
                sch.parallel(i)
            if vectors:
                sch.vectorize(j)
            seconds = 1e-6 * (sizes["n"] if not parallel else 30 + sizes["n"] / 2)
            infos = arg_infos(rows(), sizes)
            workload = database.commit_workload(context.mod)
            database.commit_tuning_record(
                TuningRecord(sch.trace, workload, (seconds,), TARGET, infos)
            )
    return context


def test_one_size_may_have_several_values() -> None:
    assert spread({"n": 8}) == (None, [{"n": 8}])
    assert spread({"n": [16, 1, 16], "m": 3}) == ("n", [{"n": 1, "m": 3}, {"n": 16, "m": 3}])
    with pytest.raises(TuneError, match="one size may have several values, not n, m"):
        spread({"n": [1], "m": [2]})
    with pytest.raises(TuneError, match="positive numbers"):
        spread({"n": [0, 2]})
    context = TuneContext(rows(), target=TARGET)
    assert [name for name, _ in sizes_of(context.mod, {"n": [1, 16]})] == ["@n=1", "@n=16"]
    assert sizes_of(context.mod, {"m": [1, 16]}) == [("", {"m": 16})]


def test_the_limit_lies_where_the_winner_changes() -> None:
    database, runner = MemoryDatabase(), Clock()
    context = tuned(database)
    compare_sizes([context], "n", SIZES, database, Modules(), runner)
    assert len(set(runner.sizes)) > 3  # sizes between were measured
    best = database.query_tuning_record(context.mod, TARGET)
    assert best is not None and best.trace.insts[-1].name == "size_variants"
    (limit,) = best.trace.insts[-1].args[2]
    assert 24 <= limit <= 40
    sch = database.query_schedule(context.mod, TARGET)
    assert sch is not None and f"if n <= {limit}:" in sch.mod.script()
    for n in (0, 1, limit, limit + 1):
        expected, found = (random_arguments(arg_infos(rows(), {"n": n})) for _ in range(2))
        run(rows(), *expected)
        run(sch.mod["main"], *found)
        np.testing.assert_array_equal(found[-1], expected[-1])


def test_a_later_record_of_one_size_does_not_take_the_place_of_a_family() -> None:
    """Its time, at a small size, is shorter than that of the family at the largest one."""
    database = MemoryDatabase()
    context = tuned(database)
    compare_sizes([context], "n", SIZES, database, Modules(), Clock())
    family = database.query_tuning_record(context.mod, TARGET)
    assert family is not None and family.sizes[0] == 1 and family.sizes[-1] == 128
    sch = Schedule(context.mod)
    sch.vectorize(sch.get_loops("B")[1])
    checked = {"verified": family.provenance["verified"]}
    infos = arg_infos(rows(), SIZES[0])
    later = replace(family, trace=sch.trace, run_secs=(1e-9,), provenance=checked, args_info=infos)
    database.commit_tuning_record(later)
    assert database.query_tuning_record(context.mod, TARGET) is family
    # Unless the two have met, and it was faster.
    database.commit_tuning_record(
        replace(later, provenance={**later.provenance, "beat": [family.digest]})
    )
    best = database.query_tuning_record(context.mod, TARGET)
    assert best is not None and best.beat == (family.digest,)


def test_one_schedule_for_all_sizes_is_a_family_too() -> None:
    database = MemoryDatabase()
    context = tuned(database)
    compare_sizes([context], "n", SIZES[:2], database, Modules(), Clock())
    best = database.query_tuning_record(context.mod, TARGET)
    assert best is not None and best.sizes == (1, 16)
    assert all(inst.name != "size_variants" for inst in best.trace.insts)


def test_what_fails_at_a_size_serves_none() -> None:
    database = MemoryDatabase()
    context = tuned(database)
    tuned(database, vectors=True)
    compare_sizes([context], "n", SIZES, database, Modules(), Clock(fails_at=16))
    best = database.query_schedule(context.mod, TARGET)
    assert best is not None and "T.vectorized" not in best.mod.script()


def test_what_has_no_records_is_left_alone() -> None:
    database = MemoryDatabase()
    context = TuneContext(rows(), target=TARGET, symbols=SIZES[-1])
    compare_sizes([context], "n", SIZES, database, Modules(), Clock())
    assert len(database) == 0


def test_only_constants_are_packed_ahead_whatever_is_marked() -> None:
    n = Var("n", "int64")
    a, w = te.placeholder((n, 4), name="A"), te.placeholder((4, 4), name="W")
    k = te.reduce_axis((0, 4), "k")
    b = te.compute((n, 4), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, 4), lambda i, j: b[i, j] + 1.0, name="C")
    d = te.compute((n, 4), lambda i, j: te.sum(c[i, k] * w[k, j], axis=k), name="D")
    func = te.create_prim_func([a, w, d])
    func = func.replace(attrs={**func.attrs, LAYOUT_FREE: [1]})
    marked = Schedule(func)
    marked.annotate(marked.get_block("C"), LAYOUT_REWRITE, True)
    sch = Schedule(func)
    sch.size_variants("root", "n", [2], [json.dumps(marked.trace.as_json())] * 2)
    for size in (0, 2, 3):
        expected, found = (random_arguments(arg_infos(func, {"n": size})) for _ in range(2))
        run(func, *expected)
        run(sch.mod["main"], *found)
        np.testing.assert_array_equal(found[-1], expected[-1])
