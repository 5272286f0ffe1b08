"""Loops over time on CPUs: each step is scheduled like a function."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, runtime, te, topi
from tilewright.ir import IRModule, Var, collect
from tilewright.script import tir as T
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.te import Tensor
from tilewright.tir import Block, For, PrimFunc
from tilewright.tir.schedule import Schedule
from tilewright.topi import nn, testing

TARGET = Target("native").with_options(num_cores=1)


def scheduled(func: PrimFunc, target: Target = TARGET) -> PrimFunc:
    rules = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)
    result = rules(IRModule({"main": func}))["main"]
    assert isinstance(result, PrimFunc)
    return result


def run(func: PrimFunc, *arrays: np.ndarray, target: Target = TARGET) -> None:
    driver.compile(func, target)(*map(runtime.from_numpy, arrays))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def kinds(func: PrimFunc, block: str) -> list[str]:
    """The kinds of the loops around a block."""
    loops = [loop for loop in collect(func.body, For) if _holds(loop, block)]
    return [loop.kind for loop in loops]


def _holds(loop: For, name: str) -> bool:
    return any(block.name == name for block in collect(loop, Block))


@pytest.mark.parametrize(("known", "cores"), [(True, 1), (False, 2)])
@pytest.mark.parametrize(
    ("steps", "batch", "width", "hidden"),
    [(1, 1, 3, 1), (5, 1, 6, 32), (4, 8, 16, 32), (3, 3, 7, 10)],
)
def test_recurrent_layers(
    steps: int, batch: int, width: int, hidden: int, known: bool, cores: int
) -> None:
    x, wi = numbers(steps, batch, width), numbers(4 * hidden, width, seed=1)
    wh, bias = numbers(4 * hidden, hidden, seed=2) / hidden, numbers(4 * hidden, seed=3)
    wh = wh.astype("float32")
    sizes = (steps, batch) if known else (te.var("steps"), te.var("batch"))
    given = te.placeholder((*sizes, width), name="x")
    weights = [te.placeholder(a.shape, name=f"w{n}") for n, a in enumerate((wi, wh, bias))]
    target = TARGET.with_options(num_cores=cores)
    func = scheduled(te.create_prim_func([given, *weights, *nn.lstm(given, *weights)]), target)
    outs = [np.empty((steps, batch, hidden), "float32") for _ in range(2)]
    run(func, x, wi, wh, bias, *outs, target=target)
    for found, expected in zip(outs, testing.lstm_python(x, wi, wh, bias)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_steps_are_vectors_and_weights_are_laid_out_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shapes = {"x": (6, 8, 16), "wi": (128, 16), "wh": (128, 32)}
    tensors = [te.placeholder(shape, name=name) for name, shape in shapes.items()]
    with caplog.at_level(logging.WARNING):
        func = scheduled(te.create_prim_func([*tensors, *nn.lstm(*tensors)]))
    assert not caplog.records
    for block in ("input_gates_update", "own_gates_update", "next_cell", "wh_global"):
        assert kinds(func, block)[-1] == "vectorized"
    steps = [block for block in collect(func.body, Block) if block.name == "step"]
    assert len(steps) == 1
    assert "wh_global" not in {block.name for block in collect(steps[0], Block)}


def test_weights_that_are_computed_are_laid_out_too() -> None:
    shapes = {"x": (6, 8, 16), "wi": (128, 16), "wh": (128, 32)}
    x, wi, wh = (te.placeholder(shape, name=name) for name, shape in shapes.items())
    func = scheduled(te.create_prim_func([x, wi, wh, *nn.lstm(x, wi, topi.exp(wh))]))
    (step,) = [block for block in collect(func.body, Block) if block.name == "step"]
    read = [region.buffer for region in step.reads if region.buffer.ndim > 1]
    assert any(int(buffer.shape[-2].value) == 32 for buffer in read)  # [32][columns], or panels


def _filter(x: Tensor) -> Any:
    """A filter that reads what it made twice before; the state has nothing but a time."""
    state = te.placeholder(x.shape, name="state")
    first = te.compute((2,), lambda t: x[t], name="first")
    following = te.compute(
        x.shape, lambda t: state[t - 1] * 0.5 - state[t - 2] * 0.25 + x[t], name="following"
    )
    return te.scan(first, following, state)


def _filtered(x: np.ndarray) -> np.ndarray:
    made = x.astype("f8")
    for t in range(2, len(made)):
        made[t] += made[t - 1] * 0.5 - made[t - 2] * 0.25
    return made


def _powers(x: Tensor) -> Any:
    """A product whose sums are the state."""
    rows = x.shape[0]
    state = te.placeholder((6, rows, rows), name="state")
    k = te.reduce_axis((0, rows), "k")
    first = te.compute((1, rows, rows), lambda _, i, j: x[i, j], name="first")
    following = te.compute(
        state.shape, lambda t, i, j: te.sum(state[t - 1, i, k] * x[j, k], axis=k), name="product"
    )
    return te.scan(first, following, state)


def _two_scans(x: Tensor) -> Any:
    """A scan of the result of another."""
    return topi.exp(_filter(_filter(x)))


@pytest.mark.parametrize(
    ("define", "expected", "x"),
    [
        (_filter, _filtered, numbers(9)),
        (_filter, _filtered, numbers(2)),
        (_two_scans, lambda x: np.exp(_filtered(_filtered(x))), numbers(9)),
        (
            _powers,
            lambda x: np.stack([x @ np.linalg.matrix_power(x.T, n) for n in range(6)]),
            numbers(16, 16) / 4,
        ),
    ],
)
def test_scans(
    define: Callable[[Tensor], Any], expected: Callable[[np.ndarray], np.ndarray], x: np.ndarray
) -> None:
    given = te.placeholder(x.shape, name="x")
    made = define(given)
    wanted = expected(x)
    out = np.empty(wanted.shape, "float32")
    run(scheduled(te.create_prim_func([given, made])), x, out)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


@T.prim_func
def adds_to_parts(x: T.Buffer((4, 6), "float32"), s: T.Buffer((5, 6), "float32")):
    for t in range(4):
        for j in range(3):
            with T.block("part"):
                v_t = T.axis.opaque(5, t + 1)
                v_j = T.axis.spatial(3, j)
                s[v_t, v_j] = s[v_t - 1, v_j] + x[v_t - 1, v_j]


@T.prim_func
def adds_in_place(x: T.Buffer((4, 6), "float32"), s: T.Buffer((5, 6), "float32")):
    for t in range(4):
        for j in range(6):
            with T.block("sum"):
                v_t = T.axis.opaque(5, t + 1)
                v_j = T.axis.spatial(6, j)
                s[v_t, v_j] = s[v_t, v_j] + x[v_t - 1, v_j]


@T.prim_func
def goes_back(x: T.Buffer((4, 6), "float32"), s: T.Buffer((5, 6), "float32")):
    for t in range(4):
        for j in range(6):
            with T.block("sum"):
                v_t = T.axis.opaque(5, t + 1)
                v_j = T.axis.spatial(6, j)
                s[v_t - 1, v_j] = s[v_t, v_j] + x[v_t - 1, v_j]


@T.prim_func
def without_time(x: T.Buffer((4, 6), "float32"), s: T.Buffer((4, 6), "float32")):
    for t, j in T.grid(4, 6):
        with T.block("copy"):
            v_t, v_j = T.axis.remap("SS", [t, j])
            s[v_t, v_j] = x[v_t, v_j]


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (adds_to_parts, "'part' writes a part of a step's results"),
        (adds_in_place, "'sum' reads 's' before it is written"),
        (goes_back, "'sum' writes what is of another time"),
        (without_time, "has no loop over time"),
    ],
)
def test_steps_that_are_no_blocks(func: PrimFunc, why: str) -> None:
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=why):
        sch.use_kernel("root", "step_blocks", {})
    x, given = numbers(4, 6), numbers(5, 6, seed=1)[: func.buffers[1].shape[0].value]
    found, expected = given.copy(), given.copy()
    run(func, x, expected)
    run(scheduled(func), x, found)
    np.testing.assert_array_equal(found, expected)


def test_options_of_the_kernel() -> None:
    with pytest.raises(ScheduleError, match="there is no option 'rows'"):
        Schedule(without_time).use_kernel("root", "step_blocks", {"rows": 1})


def test_traces_keep_steps() -> None:
    n = Var("n", "int64")
    shapes = {"x": (n, 2, 4), "wi": (32, 4), "wh": (32, 8)}
    x, wi, wh = (te.placeholder(shape, name=name) for name, shape in shapes.items())
    func = te.create_prim_func([x, wi, wh, *nn.lstm(x, wi, wh)])
    rule = dlight.cpu.TimeSteps()
    made = rule.apply(func, TARGET)
    assert isinstance(made, Schedule) and made.trace is not None
    again = Schedule(IRModule({"main": func}))
    made.trace.apply_to_schedule(again, remove_postproc=False)
    assert again.mod["main"].script() == made.mod["main"].script()
