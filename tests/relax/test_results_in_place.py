"""Updates where they lie: under records, in libraries and pickles, in branches, in bfloat16.

And what a caller must not do: have a result where something else is read.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from attention_reference import append_operands, append_paged_kv
from helpers import graph_of, random, tensor

from tilewright import relax
from tilewright.ir import IRModule
from tilewright.meta_schedule.database import MemoryDatabase, TuningRecord
from tilewright.meta_schedule.extracted_task import extract_tasks
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.relax import op
from tilewright.support.errors import BuildError
from tilewright.target import Target
from tilewright.tir import Schedule

RNG = np.random.default_rng(17)
TARGET = Target("llvm -num-cores=2")
PLACES = np.array([[4], [1], [-6], [9]], "int64")


def append(*operands: Any) -> Any:
    return op.nn.append_paged_kv(*operands)


def put(x: Any, i: Any, v: Any) -> Any:
    return op.index_put(x, relax.Tuple((i,)), v, accumulate=True)


def scatter(x: Any, i: Any, v: Any) -> Any:
    return op.scatter_nd(x, i, v, "add")


def pages(dtype: Any = "float32") -> list[np.ndarray]:
    return append_operands(RNG, [9, 3, 12], 2, 2, 4, 3, 8, dtype=dtype)


# What is updated: the body, operands, the place of the operand that the result may lie in.
UPDATES: dict[str, tuple[Callable[..., Any], list[np.ndarray], int]] = {
    "append_paged_kv": (append, pages(), 2),
    "append_paged_kv in bfloat16": (append, pages(ml_dtypes.bfloat16), 2),
    "append_paged_kv in float16": (append, pages("float16"), 2),
    "index_put": (put, [random(6, 3), np.array([4, 1, 4, 0]), random(4, 3, seed=1)], 0),
    "index_put of nothing": (put, [random(6, 3), np.zeros(0, "int64"), random(0, 3)], 0),
    "scatter_nd": (scatter, [random(6, 3), PLACES, random(4, 3, seed=1)], 0),
}
each_update = pytest.mark.parametrize("name", UPDATES)


def wide(array: Any) -> np.ndarray:
    return np.asarray(relax.as_numpy(array)).astype("float64")


def agrees(executable: relax.Executable, name: str) -> None:
    """Results of fresh memory, and where the operand lies, are those of the interpreter."""
    body, arrays, place = UPDATES[name]
    expected = wide(relax.interpreter.run(graph_of(body, *arrays), *arrays))
    kept = arrays[place].copy()
    np.testing.assert_allclose(wide(executable(*arrays)), expected, rtol=1e-6)
    np.testing.assert_array_equal(arrays[place], kept)
    given = [array.copy() for array in arrays]
    if executable.overwritable["main"]:
        assert executable.overwritable["main"] == ((place, 0),)
        executable["main"].run_into(given, [given[place]])
        np.testing.assert_allclose(wide(given[place]), expected, rtol=1e-6)
    else:
        with pytest.raises(ValueError, match="expected memory apart from other arguments'"):
            executable["main"].run_into(given, [given[place]])
        np.testing.assert_array_equal(given[place], kept)


@each_update
def test_in_memory_in_pickles_and_in_libraries(name: str, tmp_path: Path) -> None:
    body, arrays, place = UPDATES[name]
    executable = relax.build(graph_of(body, *arrays), TARGET)
    assert executable.overwritable == {"main": ((place, 0),)}
    agrees(executable, name)
    path = executable.export_library(tmp_path / "update.so")
    for other in (pickle.loads(pickle.dumps(executable)), relax.load_executable(path)):
        assert other.overwritable == executable.overwritable
        agrees(other, name)


@each_update
def test_functions_with_records_keep_their_copies(name: str) -> None:
    """Records are of functions that copy; what has none is updated in place as ever."""
    body, arrays, _ = UPDATES[name]
    mod = relax.get_pipeline("zero")(graph_of(body, *arrays))
    database = MemoryDatabase()
    for task in extract_tasks(mod, TARGET):
        workload = database.commit_workload(task.mod)
        sch = Schedule(workload.mod)
        copy, *_ = sch.get_child_blocks(sch.get_block("root"))
        sch.parallel(sch.get_loops(copy)[0])
        database.commit_tuning_record(TuningRecord(sch.trace, workload, (1e-6,), TARGET))
    applied = MetaScheduleApplyDatabase(database=database, target=TARGET)(mod)
    assert applied is not mod
    agrees(relax.build(applied, TARGET), name)
    agrees(relax.build(mod, TARGET), name)


# ---- branches ------------------------------------------------------------------------------------


def branching(other: Callable[..., Any]) -> IRModule:
    """Pages are appended to where a flag says so; ``other`` is what they are elsewhere."""
    infos = [tensor(a.shape, a.dtype.name) for a in UPDATES["append_paged_kv"][1]]
    params = [relax.Var(name, info) for name, info in zip("kvptl", infos)]
    flag = relax.Var("flag", relax.TensorStructInfo((), "bool"))
    builder = relax.BlockBuilder()
    with builder.function("main", [flag, *params]):
        made = builder.emit_if(flag, lambda: append(*params), lambda: other(params[2]))
        builder.emit_func_output(made)
    return builder.get()


@pytest.mark.parametrize("other", [op.negative, lambda pages: pages], ids=["computed", "as it is"])
def test_updates_in_branches(other: Callable[..., Any], tmp_path: Path) -> None:
    arrays = UPDATES["append_paged_kv"][1]
    mod = branching(other)
    executable = relax.build(mod, TARGET)
    assert executable.overwritable == {"main": ()}
    path = executable.export_library(tmp_path / "branch.so")
    kept = arrays[2].copy()
    for flag in (True, False):
        operands = [np.array(flag), *arrays]
        expected = wide(relax.interpreter.run(mod, *operands))
        if flag:
            np.testing.assert_array_equal(expected, append_paged_kv(*arrays))
        for each in (executable, relax.load_executable(path)):
            np.testing.assert_array_equal(wide(each(*operands)), expected)
            np.testing.assert_array_equal(arrays[2], kept)
            with pytest.raises(ValueError, match=r"'out': .* got some of #3 'p'"):
                each["main"].run_into(operands, [arrays[2]])


def test_pages_made_in_a_branch_are_updated_there() -> None:
    arrays = UPDATES["append_paged_kv"][1]
    infos = [tensor(a.shape, a.dtype.name) for a in arrays]
    params = [relax.Var(name, info) for name, info in zip("kvptl", infos)]
    flag = relax.Var("flag", relax.TensorStructInfo((), "bool"))
    builder = relax.BlockBuilder()
    k, v, p, t, n = params
    with builder.function("main", [flag, *params]):
        made = builder.emit_if(
            flag,
            lambda: append(k, v, builder.emit(op.exp(p)), t, n),
            lambda: append(k, v, p, t, n),
        )
        builder.emit_func_output(op.add(made, p))
    mod = builder.get()
    executable = relax.build(mod, TARGET)
    for value in (True, False):
        operands = [np.array(value), *arrays]
        want = append_paged_kv(*arrays[:2], np.exp(arrays[2]) if value else arrays[2], *arrays[3:])
        np.testing.assert_allclose(
            wide(executable(*operands)), want + arrays[2], rtol=1e-5, atol=1e-6
        )


# ---- what is refused -----------------------------------------------------------------------------


def several(x: Any, y: Any) -> Any:
    return relax.Tuple((op.matmul(x, y), op.exp(x)))


def test_results_that_would_be_written_over_something_else() -> None:
    x, y = random(4, 4), random(4, 4, seed=1)
    executable = relax.build(graph_of(several, x, y), TARGET)
    run = executable["main"].run_into
    apart = [np.empty_like(x), np.empty_like(x)]
    run([x, y], apart)
    want = [x @ y, np.exp(x)]
    for found, expected in zip(apart, want):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    both, kept = np.empty((5, 4), "float32"), x.copy()
    for outputs, message in (
        (
            [x, apart[1]],
            "#2 'out0': expected memory apart from other arguments', got some of #0 'x'",
        ),
        ([y, apart[1]], "#2 'out0': .* got some of #1 'y'"),
        ([apart[0], y], "#3 'out1': .* got some of #1 'y'"),
        ([apart[0], apart[0]], "#3 'out1': .* got some of #2 'out0'"),
        ([both[:4], both[1:]], "#3 'out1': .* got some of #2 'out0'"),
        ([both[1:], both[:4]], "#3 'out1': .* got some of #2 'out0'"),
    ):
        with pytest.raises(ValueError, match=message):
            run([x, y], outputs)
        np.testing.assert_array_equal(x, kept)


def test_a_result_lies_in_a_parameter_as_a_whole_or_not_at_all() -> None:
    memory = random(5, 4)
    run = relax.build(graph_of(op.exp, memory[:4]), TARGET)["main"].run_into
    for source, result in ((memory[:4], memory[1:]), (memory[1:], memory[:4])):
        with pytest.raises(ValueError, match="got some of #0 'x'"):
            run([source], [result])
    expected = np.exp(memory[:4])
    run([memory[:4]], [memory[:4]])
    np.testing.assert_allclose(memory[:4], expected, rtol=1e-6)


def test_neighbours_and_empty_tensors_do_not_overlap() -> None:
    memory = random(8, 4)
    run = relax.build(graph_of(op.exp, memory[:4]), TARGET)["main"].run_into
    expected = np.exp(memory[4:])
    run([memory[4:]], [memory[:4]])
    np.testing.assert_allclose(memory[:4], expected, rtol=1e-6)
    empty = memory[:0]
    total = relax.build(graph_of(lambda a, b: op.add(op.sum(a), b), empty, memory[0, :1]), TARGET)
    given = memory[:1, :1].reshape(1)
    total["main"].run_into([empty, given], [memory[1, :1]])
    np.testing.assert_array_equal(memory[1, :1], given)


# ---- files from strangers ------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [[[3, 0]], [[0, 1]], [[-1, 0]], [[0]], [["x", 0]], 7])
def test_files_that_say_what_is_not_there(pairs: Any, tmp_path: Path) -> None:
    body, arrays, _ = UPDATES["scatter_nd"]
    path = relax.build(graph_of(body, *arrays), TARGET).export_library(tmp_path / "update.so")
    beside = path.with_name(path.name + ".json")
    data = json.loads(beside.read_text())
    assert data["functions"][0]["overwritable"] == [[0, 0]]
    data["functions"][0]["overwritable"] = pairs
    beside.write_text(json.dumps(data))
    with pytest.raises(BuildError, match="is damaged"):
        relax.load_executable(path)
