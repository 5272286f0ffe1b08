"""Constants reach kernels in the layout that the kernels want, and the numbers stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph_of, random
from tilewright import relax
from tilewright.dlight import default_schedule
from tilewright.ir import IRModule
from tilewright.meta_schedule.database import JSONDatabase, TuningRecord
from tilewright.meta_schedule.extracted_task import extract_tasks
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.relax import transform as t
from tilewright.relax.expr import Constant
from tilewright.relax.pipeline import scheduled_by_rule
from tilewright.runtime import load_module
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import CONSTANT_BYTES, IS_SCHEDULED, LAYOUT_FREE, PREFETCH_DISTANCE
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=2)


def tensor_functions(mod: IRModule) -> dict[str, PrimFunc]:
    return {name: func for name, func in mod.functions.items() if isinstance(func, PrimFunc)}


def fused(body: Any, *arrays: np.ndarray) -> IRModule:
    return relax.get_pipeline("zero")(graph_of(body, *arrays))


def two_convolutions(x: Any) -> Any:
    first = relax.op.nn.conv2d(x, relax.const(random(16, 16, 3, 3, seed=1)), padding=1)
    return relax.op.nn.conv2d(
        relax.op.nn.relu(first), relax.const(random(16, 16, 3, 3, seed=2)), padding=1
    )


def test_constants_are_layout_free() -> None:
    weight, x = random(64, 32, seed=1), random(4, 32)
    mod = fused(lambda x: relax.op.matmul(x, relax.const(weight.T.copy())), x)
    (func,) = tensor_functions(mod).values()
    assert list(func.attrs[LAYOUT_FREE]) == [1]
    assert t.AttachAttrLayoutFreeBuffers()(mod) is mod


def test_what_comes_at_run_time_is_not() -> None:
    mod = fused(relax.op.matmul, random(4, 32), random(32, 64))
    (func,) = tensor_functions(mod).values()
    assert LAYOUT_FREE not in func.attrs


def test_every_call_must_pass_a_constant() -> None:
    weight = relax.const(random(32, 32, seed=1))

    def body(x: Any, y: Any) -> Any:
        return relax.op.matmul(relax.op.matmul(x, weight), y)

    mod = fused(body, random(4, 32), random(32, 32))
    (func,) = tensor_functions(mod).values()
    assert LAYOUT_FREE not in func.attrs


def layers(count: int, width: int) -> Any:
    """Some products with one matrix each, after one that reads the first one's."""
    weights = [relax.const(random(width, width, seed=n)) for n in range(count)]

    def body(x: Any, y: Any) -> Any:
        x = relax.op.matmul(x, weights[0])
        for weight in weights:
            x = relax.op.nn.relu(relax.op.matmul(x, weight))
        return relax.op.add(x, y)

    return body


def test_functions_are_told_of_all_constants_once_each() -> None:
    mod = fused(layers(3, 40), random(2, 40), random(2, 40))
    told = tensor_functions(t.AttachConstantBytes()(mod))
    assert [func.attrs.get(CONSTANT_BYTES) for func in told.values() if func.attrs.get(LAYOUT_FREE)]
    for name, func in tensor_functions(mod).items():
        assert CONSTANT_BYTES not in func.attrs  # a task is the same in any graph
        constant = func.attrs.get(LAYOUT_FREE)
        assert told[name].attrs.get(CONSTANT_BYTES) == (4 * 3 * 40 * 40 if constant else None)


def test_scheduled_functions_are_not_told() -> None:
    mod = default_schedule(TARGET)(fused(layers(1, 40), random(2, 40), random(2, 40)))
    assert any(func.attrs.get(IS_SCHEDULED) for func in tensor_functions(mod).values())
    assert t.AttachConstantBytes()(mod) is mod


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("count", "fetched"), [(1, False), (4, True)])
def test_what_leaves_the_caches_between_calls_is_fetched_ahead(
    rows: int, count: int, fetched: bool
) -> None:
    """Each matrix fits in the last cache; four don't stay there."""
    width = 512
    target = Target("llvm -mcpu=znver4 -num-cores=1").with_options(
        l2=width * width * 4, l3=3 * width * width * 4
    )
    x = random(rows, width)
    mod = scheduled_by_rule(target)(fused(layers(count, width), x, x))
    texts = [
        func.script() for func in tensor_functions(mod).values() if func.attrs.get(LAYOUT_FREE)
    ]
    assert texts
    assert all((PREFETCH_DISTANCE in text) == fetched for text in texts)


def constants_of(mod: IRModule) -> list[Constant]:
    calls = [binding.value for binding in mod["main"].bindings]
    return [arg for call in calls for arg in call.args[1].fields if isinstance(arg, Constant)]


def test_functions_take_packed_constants() -> None:
    x = random(1, 16, 7, 7)
    mod = default_schedule(TARGET)(fused(two_convolutions, x))
    made = t.SplitLayoutRewritePreproc()(mod)
    shapes = {tuple(constant.data.shape) for constant in constants_of(made)}
    assert all(len(shape) == 5 for shape in shapes)  # panels of output channels
    for func in tensor_functions(made).values():
        assert LAYOUT_FREE not in func.attrs
    # Packing twice changes nothing more.
    assert t.SplitLayoutRewritePreproc()(made) is made


def test_packed_panels_hold_the_weights() -> None:
    weight, x = random(40, 100, seed=3), random(64, 40)
    mod = fused(lambda x: relax.op.matmul(x, relax.const(weight)), x)
    made = t.SplitLayoutRewritePreproc()(default_schedule(TARGET)(mod))
    (constant,) = constants_of(made)
    panels = constant.data
    count, depth, width = panels.shape
    assert depth == 40 and count * width >= 100
    flat = panels.transpose(1, 0, 2).reshape(40, -1)
    np.testing.assert_array_equal(flat[:, :100], weight)
    assert not flat[:, 100:].any()


def test_the_constant_must_be_one_when_packing() -> None:
    """A call that passes no constant keeps packing in the function."""
    weight, x = random(40, 128, seed=3), random(64, 40)
    mod = fused(lambda x: relax.op.matmul(x, relax.const(weight)), x)
    (name,) = tensor_functions(mod)
    free = graph_of(relax.op.matmul, x, weight)
    free = relax.get_pipeline("zero")(free)
    (other,) = tensor_functions(free)
    claimed = free.map_functions(
        lambda n, f: mod[name] if n == other else f, (PrimFunc, relax.Function)
    )
    scheduled = default_schedule(TARGET)(claimed)
    assert t.SplitLayoutRewritePreproc()(scheduled) is scheduled
    got = relax.build(scheduled, TARGET)["main"](x, weight)
    np.testing.assert_allclose(np.asarray(got), x @ weight, rtol=1e-4, atol=1e-4)


BODIES = {
    "convolutions": (two_convolutions, (1, 16, 7, 7)),
    "strided": (
        lambda x: relax.op.nn.conv2d(x, relax.const(random(24, 8, 3, 3, seed=1)), strides=2),
        (2, 8, 15, 15),
    ),
    "odd": (
        lambda x: relax.op.nn.conv2d(x, relax.const(random(13, 5, 3, 3, seed=1)), padding=1),
        (1, 5, 11, 9),
    ),
    "dense": (lambda x: relax.op.matmul(x, relax.const(random(40, 101, seed=1))), (17, 40)),
    "one-row": (lambda x: relax.op.matmul(x, relax.const(random(64, 120, seed=1))), (1, 64)),
}


@pytest.mark.parametrize("name", BODIES)
def test_numbers_are_those_of_the_unscheduled_graph(name: str) -> None:
    body, shape = BODIES[name]
    x = random(*shape)
    mod = graph_of(body, x)
    got = np.asarray(relax.build(mod, TARGET)["main"](x))
    expected = np.asarray(relax.build(mod, TARGET, schedule=None)["main"](x))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_records_serve_graphs_with_any_constants(tmp_path: Path) -> None:
    """Those of functions that were told of constants too, written to a file and read."""
    x = random(2, 40)
    small, large = (fused(layers(count, 40), x, x) for count in (2, 3))
    for number, mod in enumerate((small, t.AttachConstantBytes()(small))):
        work_dir = tmp_path / str(number)
        database = JSONDatabase(work_dir=work_dir)
        for task in extract_tasks(mod, TARGET):
            workload = database.commit_workload(task.mod)
            sch = Schedule(workload.mod)
            for block in sch.get_child_blocks(sch.get_block("root")):
                sch.unroll(sch.get_loops(block)[0])
            database.commit_tuning_record(TuningRecord(sch.trace, workload, (1e-6,), TARGET))
        read = JSONDatabase(work_dir=work_dir)
        assert len(read) == len(database) > 0
        texts = [record.workload.mod.script() for record in read.get_all_tuning_records()]
        assert not any(CONSTANT_BYTES in text for text in texts)
        for graph in (small, large, t.AttachConstantBytes()(large)):
            done = MetaScheduleApplyDatabase(database=read, target=TARGET)(graph)
            assert all(func.attrs.get(IS_SCHEDULED) for func in tensor_functions(done).values())


@pytest.mark.parametrize("count", [1, 4])
def test_libraries_of_functions_that_know_of_constants(count: int, tmp_path: Path) -> None:
    x, y = random(3, 40), random(3, 40, seed=7)
    mod = graph_of(layers(count, 40), x, y)
    expected = np.asarray(relax.interpreter.run(mod, x, y))
    built = relax.build(mod, TARGET)
    assert built.planned is not None and CONSTANT_BYTES in built.planned.script()
    np.testing.assert_allclose(built(x, y).numpy(), expected, rtol=1e-5, atol=1e-6)
    library = load_module(built.export_library(tmp_path / "layers.so"))
    found = np.zeros_like(expected)
    library["main"](x, y, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
