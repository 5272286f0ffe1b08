"""Recorded schedules on other programs: other extents, another fusion, other cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import te, topi
from tilewright.ir import Var, structural_equal
from tilewright.meta_schedule import PostOrderApply, TuneContext
from tilewright.meta_schedule.adapted import Near, adapted_from, adapted_schedules
from tilewright.meta_schedule.arg_info import arg_infos, random_arguments
from tilewright.meta_schedule.database import MemoryDatabase, TuningRecord
from tilewright.meta_schedule.database.adapting import adapted_schedule
from tilewright.meta_schedule.database.extents import nearest_cover, nearest_factors, nearest_tile
from tilewright.meta_schedule.database.likeness import key_of
from tilewright.meta_schedule.database.record import Workload, normalized, provenance
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.te import Tensor
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Choices, Schedule, Trace
from tilewright.tir.schedule.choices import most_alike

TARGET = Target("llvm -mcpu=skylake-avx512 -num-cores=2")
Stage = Callable[[Tensor], Tensor]

PROLOGUES: dict[str, Stage] = {
    "none": lambda x: x,
    "scaled": lambda x: te.compute(x.shape, lambda i, j: x[i, j] * 0.5, name="scaled"),
    "relu": lambda x: topi.nn.relu(x),
}
EPILOGUES: dict[str, Stage] = {
    "none": lambda x: x,
    "exp": lambda x: te.compute(x.shape, lambda i, j: te.exp(x[i, j]), name="exp"),
    "two": lambda x: topi.nn.relu(te.compute(x.shape, lambda i, j: x[i, j] - 1.0, name="less")),
    "rows": lambda x: te.compute(x.shape, lambda i, j: x[i, j] * x[i, j] + 1.0, name="square"),
    "transposed": lambda x: te.compute(
        (x.shape[1], x.shape[0]), lambda i, j: x[j, i] + 1.0, name="turned"
    ),
}


@cache
def product(n: Any, m: Any, k: Any, prologue: str = "none", epilogue: str = "none") -> PrimFunc:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), name="k")
    x = PROLOGUES[prologue](a)
    c = te.compute((n, m), lambda i, j: te.sum(x[i, axis] * b[axis, j], axis=axis), name="C")
    return te.create_prim_func([a, b, EPILOGUES[epilogue](c)])


@cache
def _sketches(func: PrimFunc, seed: int) -> list[Trace]:
    space = PostOrderApply(seed=seed)
    space.initialize(TARGET)
    return [sch.trace for sch in space.generate_design_space(normalized(func))]


def by_search(func: PrimFunc, number: int = 0, seed: int = 0) -> Trace:
    """A random candidate of the design space, before postprocs, which adapting applies anew."""
    sketches = _sketches(func, seed)
    sch = Schedule(normalized(func))
    sketches[number % len(sketches)].apply_to_schedule(sch)
    sch.enter_postproc()
    return sch.trace.simplified()


def by_rule(func: PrimFunc) -> Trace:
    schedule = TuneContext(func, target=TARGET).rule_schedule()
    assert schedule is not None
    return schedule.trace.simplified()


def adapted(trace: Trace, own: PrimFunc, func: PrimFunc) -> Schedule:
    return adapted_schedule(trace, normalized(own), normalized(func), TARGET, TARGET)


def assert_same_results(func: PrimFunc, sch: Schedule, **symbols: int) -> None:
    infos = arg_infos(func, symbols)
    expected, found = random_arguments(infos), random_arguments(infos)
    run(func, *expected)
    run(sch.mod["main"], *found)
    np.testing.assert_allclose(found[-1], expected[-1], rtol=1e-4, atol=1e-5)
    again = Schedule(normalized(func))
    sch.trace.apply_to_schedule(again)
    assert structural_equal(again.mod, sch.mod)


# ---- factors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "extent", "made"),
    [
        ([16, 1, 8, 4], 512, [16, 1, 8, 4]),
        ([16, 1, 8, 4], 768, [24, 1, 8, 4]),
        ([16, 1, 8, 4], 500, [25, 1, 5, 4]),
        ([16, 1, 8, 4], 7, [1, 1, 1, 7]),
        ([16, 1, 8, 4], 1, [1, 1, 1, 1]),
        ([64], 100, [100]),
    ],
)
def test_tiles_keep_the_inner_factors_if_they_divide(
    recorded: list[int], extent: int, made: list[int]
) -> None:
    assert nearest_tile(recorded, extent) == made


@settings(max_examples=30)
@given(st.integers(1, 600), st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=1, max_size=4))
def test_tiles_have_the_extent_and_covers_are_not_much_longer(
    extent: int, recorded: list[int]
) -> None:
    assert np.prod(nearest_tile(recorded, extent)) == extent
    cover = nearest_cover(recorded, extent, 64)
    assert extent <= np.prod(cover) <= max(extent * 1.25, 4) and len(cover) == len(recorded)


def test_factors_of_a_split_are_not_longer_than_the_loop() -> None:
    assert nearest_factors([None, 8, 32], 512) == [None, 8, 32]
    assert nearest_factors([None, 8, 32], 20) == [None, 1, 20]
    assert nearest_factors([16, 32], 100) == [None, 32]
    assert nearest_factors([None, 8], None) == [None, 8]


# ---- schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("epilogue", ["none", "exp", "two"])
@pytest.mark.parametrize("own_epilogue", ["none", "exp", "two"])
@pytest.mark.parametrize("made_by", [by_rule, by_search])
def test_a_schedule_serves_other_fusions(
    made_by: Callable[[PrimFunc], Trace], own_epilogue: str, epilogue: str
) -> None:
    own, func = product(8, 32, 6, "none", own_epilogue), product(12, 32, 5, "none", epilogue)
    sch = adapted(made_by(own), own, func)
    assert_same_results(func, sch)
    reduction = next(name for name in ("C", "C_update") if sch.has_block(name))
    (consumer,) = sch.get_consumers(sch.get_block(reduction)) or [None]
    if epilogue != "none":
        assert consumer is not None
    if consumer is not None:
        # What reads the sums does so inside of the loops around them.
        shared = {loop.var for loop in sch.get_loops(sch.get_block(reduction))}
        assert shared & {loop.var for loop in sch.get_loops(consumer)}


@settings(max_examples=10)
@given(
    st.data(),
    st.tuples(*[st.sampled_from([1, 2, 5, 7, 8, 12, 16])] * 3),
    st.tuples(*[st.sampled_from([1, 2, 3, 7, 8, 11, 16])] * 3),
)
def test_what_is_adapted_computes_the_same(
    data: st.DataObject, own_shape: tuple[int, int, int], shape: tuple[int, int, int]
) -> None:
    prologues, epilogues = st.sampled_from(sorted(PROLOGUES)), st.sampled_from(sorted(EPILOGUES))
    own = product(*own_shape, data.draw(prologues), data.draw(epilogues))
    func = product(*shape, data.draw(prologues), data.draw(epilogues))
    trace = by_search(own, data.draw(st.integers(0, 7)), data.draw(st.integers(0, 99)))
    try:
        sch = adapted(trace, own, func)
    except ScheduleError:
        return
    assert_same_results(func, sch)


def test_a_rules_trace_serves_symbolic_sizes_or_is_refused() -> None:
    own = product(8, 32, 6)
    func = product(Var("n"), 32, 6, "none", "exp")
    sch = adapted(by_rule(own), own, func)
    for n in (1, 8, 13):
        assert_same_results(func, sch, n=n)
    with pytest.raises(ScheduleError):
        adapted(by_search(own), own, func)


def test_other_reductions_and_unsafe_instructions_are_refused() -> None:
    own = product(8, 32, 6)
    a = te.placeholder((8, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    rows = te.create_prim_func([a, te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="C")])
    with pytest.raises(ScheduleError, match="it is for other reductions"):
        adapted(by_search(own), own, rows)
    unsafe = Schedule(normalized(own))
    unsafe.unsafe_hide_buffer_access("C", "read", [0])
    with pytest.raises(ScheduleError, match="takes its caller's word"):
        adapted(unsafe.trace, own, product(16, 32, 6))


def test_jobs_follow_the_number_of_cores() -> None:
    own = product(64, 64, 8)
    trace = by_search(own)
    more = Target("llvm -mcpu=skylake-avx512 -num-cores=8")
    sch = adapted_schedule(trace, normalized(own), normalized(own), more, TARGET)

    def jobs(trace: Trace) -> list[int]:
        return next(list(inst.args[0]) for inst in trace.insts if inst.name == "sample_categorical")

    assert jobs(sch.trace) == [4 * value for value in jobs(trace)]


# ---- databases -----------------------------------------------------------------------------------


def database_with(*funcs: PrimFunc, target: Target = TARGET) -> MemoryDatabase:
    database = MemoryDatabase()
    for number, func in enumerate(funcs):
        workload = database.commit_workload(func)
        trace = by_search(func)
        database.commit_tuning_record(
            TuningRecord(trace, workload, (1e-3 * (number + 1),), target, arg_infos(func))
        )
    return database


def test_the_nearest_shape_comes_first_then_other_fusions() -> None:
    database = database_with(
        product(128, 64, 32), product(16, 64, 32), product(16, 32, 32, "none", "exp")
    )
    found = adapted_schedules(database, product(16, 32, 32), TARGET)
    assert found[0].record.best_seconds == 2e-3
    assert {item.record.best_seconds for item in found} == {1e-3, 2e-3, 3e-3}
    assert [item.distance for item in found] == sorted(item.distance for item in found)
    assert "shapes 16x32 32x64 16x64" in found[0].why
    assert any("another fusion" in item.why for item in found)


def test_records_of_the_same_program_for_other_cores_are_near() -> None:
    func = product(16, 64, 32)
    assert adapted_schedules(database_with(func), func, TARGET) == []
    more = Target("llvm -mcpu=skylake-avx512 -num-cores=16")
    (found,) = adapted_schedules(database_with(func, target=more), func, TARGET)
    assert "num-cores=16" in found.why
    narrow = Target("llvm -mcpu=haswell -num-cores=2")
    assert adapted_schedules(database_with(func, target=narrow), func, TARGET) == []


def test_what_was_slower_than_by_rule_is_not_adapted() -> None:
    own = product(128, 64, 32)
    context = TuneContext(own, target=TARGET)
    assert context.rule_choices is not None
    by_rule = context.rule_schedule()
    other = context.rule_choices.schedule(frozenset({("tiled_reduction.tasks", 1)}))
    assert by_rule is not None and other is not None

    def found(rule_seconds: float, other_seconds: float) -> list[dict[str, str]]:
        database = MemoryDatabase()
        workload = database.commit_workload(own)
        for sch, seconds in ((by_rule, rule_seconds), (other, other_seconds)):
            origin = provenance({"by": "test"}, answers=sch.choices.answers)
            trace = sch.trace.simplified()
            database.commit_tuning_record(
                TuningRecord(trace, workload, (seconds,), TARGET, None, origin)
            )
        adapted = adapted_schedules(database, product(96, 64, 32), TARGET)
        return [item.schedule.choices.answers for item in adapted]

    assert found(1e-3, 2e-3) == []
    assert found(2e-3, 1e-3) == [other.choices.answers]


def test_a_rule_that_is_best_elsewhere_hides_no_record() -> None:
    own, near = product(128, 64, 32), product(96, 64, 32)
    by_rule = TuneContext(own, target=TARGET).rule_schedule()
    assert by_rule is not None
    more = Target("llvm -mcpu=skylake-avx512 -num-cores=16")
    cold = {"caches": "cold"}
    for target, timing in ((more, None), (TARGET, cold)):
        database = database_with(own)
        workload = database.commit_workload(own)
        origin = provenance({"by": "test"}, answers=by_rule.choices.answers, timing=timing)
        trace = by_rule.trace.simplified()
        database.commit_tuning_record(
            TuningRecord(trace, workload, (1e-6,), target, arg_infos(own), origin)
        )
        assert database.get_top_k(workload, 1)[0].best_seconds == 1e-6
        (found,) = adapted_schedules(database, near, TARGET)
        assert found.record.best_seconds == 1e-3


def test_records_whose_program_is_none_are_passed_over() -> None:
    own = product(128, 64, 32)
    context = TuneContext(own, target=TARGET)
    assert context.rule_schedule() is not None and context.rule_choices is not None
    sch = context.rule_choices.schedule(frozenset({("tiled_reduction.tasks", 1)}))
    assert sch is not None
    origin = provenance({"by": "test"}, answers=sch.choices.answers)
    text = normalized(own).script()
    for spoilt in (text.replace("(128, 32)", "(127, 32)"), text.replace("def main", "def other")):
        workload = Workload(None, "0" * 64, spoilt)
        record = TuningRecord(sch.trace.simplified(), workload, (1e-3,), TARGET, None, origin)
        near = Near(0.1, "alike", record)
        assert adapted_from([near], product(96, 64, 32), TARGET, 4) == []


@pytest.mark.parametrize("step", [0, 1])
def test_likeness_of_a_strangers_text_takes_no_longer_than_its_length(step: int) -> None:
    block = 'with T.block("b"):\n{0}    v = T.axis.reduce(4, k)'
    spaces = (" " * (step * n) for n in range(700))
    text = "\n".join(indent + block.format(indent) for indent in spaces)
    began = time.process_time()
    assert bool(key_of("alike-reductions", text)) == (step == 0)
    assert time.process_time() - began < 5.0


def test_a_choice_is_recalled_by_its_text_or_the_nearest_one() -> None:
    assert most_alike("Tile(rows=6)", ["Tile(rows=4)", "Tile(rows=6)"]) == 1
    assert most_alike("Tile(rows=6)", ["Tile(rows=1)", "Tile(rows=5)", "Other(rows=6)"]) == 1
    assert most_alike("True", ["False", "True"]) == 1
    search = Choices({"plan": 2, "tasks": 0})
    assert search.choose("plan", (8, 4, 16)) == 16 and search.choose("tasks", (1, 2)) == 1
    assert search.answers == {"plan": "16"}
    recalled = Choices(recalled=search.answers)
    assert recalled.choose("plan", (4, 8, 20)) == 20 and recalled.choose("tasks", (1, 2)) == 1
    assert recalled.preferring("plan", (4, 15, 2)) == [15, 4, 2]
    assert recalled.answers == {"plan": "15"}
