"""Loops without iterations are no obstacle to rules, and blocks that no rule schedules are told."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest

import tilewright
from tilewright import dlight, te, topi
from tilewright.dlight import Choices
from tilewright.ir import IRModule, as_int, collect
from tilewright.meta_schedule import PostOrderApply, TuneContext
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir import For, PrimFunc
from tilewright.tir.analysis import verify_well_formed
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.transform import RemoveEmptyLoops

TARGET = Target("native").with_options(num_cores=2)


def scheduled(func: PrimFunc) -> IRModule:
    return dlight.default_schedule(TARGET)(IRModule({"main": func}))


def run(mod: IRModule, *arrays: np.ndarray) -> np.ndarray:
    out = mod["main"].buffers[-1]
    found = np.full([as_int(extent) for extent in out.shape], 7, out.dtype)
    tilewright.compile(mod, TARGET)["main"](*arrays, found)
    return found


CASES = {
    "elementwise": ([(3, 0)], topi.nn.relu, lambda x: x),
    "sum of nothing": ([(70, 0)], lambda x: topi.sum(x, axis=1), lambda x: x.sum(1)),
    "no sums": ([(0, 70)], lambda x: topi.sum(x, axis=1), lambda x: x.sum(1)),
    "outer axis": ([(5, 0, 33)], lambda x: topi.sum(x, axis=1), lambda x: x.sum(1)),
    "two axes": ([(5, 9, 0, 33)], lambda x: topi.sum(x, axis=(1, 2)), lambda x: x.sum((1, 2))),
    "product": ([(4, 0), (0, 50)], topi.matmul, np.matmul),
    "epilogue": (
        [(4, 0), (0, 50), (4, 50)],
        lambda a, b, c: topi.nn.relu(topi.add(topi.matmul(a, b), c)),
        lambda a, b, c: np.maximum(c, 0),
    ),
    "joined": (
        [(3, 0), (3, 50)],
        lambda a, b: topi.exp(topi.concatenate([topi.nn.relu(a), b], axis=1)),
        lambda a, b: np.exp(b),
    ),
    "softmax": ([(3, 0)], lambda x: topi.nn.softmax(x, axis=1), lambda x: x),
    "images": (
        [(0, 16, 8, 8), (16, 16, 3, 3)],
        lambda x, w: topi.nn.conv2d(x, w, padding=1),
        lambda x, w: x,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    shapes, compute, expected = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    operands = [te.placeholder(shape, name=f"x{n}") for n, shape in enumerate(shapes)]
    mod = scheduled(te.create_prim_func([*operands, compute(*operands)]))
    assert mod["main"].attrs[IS_SCHEDULED]
    assert not any(as_int(loop.extent) == 0 for loop in collect(mod["main"].body, For))
    np.testing.assert_allclose(run(mod, *arrays), expected(*arrays), rtol=1e-6)


@pytest.mark.parametrize("shape", [(16, 0, 32), (0, 13, 8), (5, 7, 0)])
def test_there_are_no_tiles_of_nothing(shape: tuple[int, int, int]) -> None:
    n, m, k = shape
    a, b = te.placeholder((n + 2, k), name="a"), te.placeholder((k, m), name="b")
    steps, taps = te.reduce_axis((0, k), "k"), te.reduce_axis((0, 3), "t")
    func = te.create_prim_func(
        [a, b, te.compute(
            (n, m),
            lambda i, j: te.sum(a[i + taps, steps] * b[steps, j], axis=[steps, taps]),
            name="product",
        )]
    )  # fmt: skip
    space = PostOrderApply(seed=0)
    space.initialize(TARGET)
    assert space.generate_design_space(IRModule({"main": func}))
    TuneContext(func, target=TARGET).rule_schedule()


def test_what_is_left_is_fast() -> None:
    a, b = te.placeholder((64, 0), name="a"), te.placeholder((64, 512), name="b")
    joined = topi.exp(topi.concatenate([topi.nn.relu(a), b], axis=1))
    kinds = {loop.kind for loop in collect(scheduled(te.create_prim_func([a, b, joined])), For)}
    assert {"parallel", "vectorized"} <= kinds


def test_functions_without_empty_loops_stay_the_same() -> None:
    x = te.placeholder((3, 4), name="x")
    func = te.create_prim_func([x, topi.sum(x, axis=1)])
    assert RemoveEmptyLoops().transform_function(func) is func


def test_only_the_empty_go() -> None:
    @T.prim_func
    def func(a: T.Buffer((8, 4), "float32"), out: T.Buffer((8, 4), "float32")):
        kept = T.alloc_buffer((8, 4), "float32")
        gone = T.alloc_buffer((8, 0), "float32")
        for i, j in T.grid(8, 0):
            with T.block("empty"):
                v, w = T.axis.remap("SS", [i, j])
                gone[v, w] = a[v, w]
        for i, j in T.grid(8, 4):
            with T.block("double"):
                v, w = T.axis.remap("SS", [i, j])
                kept[v, w] = a[v, w] * T.float32(2)
        for k, i, j in T.grid(0, 8, 4):
            with T.block("more"):
                u, v, w = T.axis.remap("RSS", [k, i, j])
                kept[v, w] = kept[v, w] + a[v, u]
        for i, j in T.grid(8, 4):
            with T.block("copy"):
                v, w = T.axis.remap("SS", [i, j])
                out[v, w] = kept[v, w]

    made = RemoveEmptyLoops().transform_function(func)
    assert [buffer.name for buffer in made.root.alloc_buffers] == ["kept"]
    text = made.script()
    assert "double" in text and "copy" in text and "empty" not in text and "more" not in text
    a = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
    np.testing.assert_array_equal(run(scheduled(func), a), 2 * a)


# ---- what isn't scheduled ------------------------------------------------------------------------


@T.prim_func
def repeated(a: T.Buffer((64, 100), "float32"), out: T.Buffer((64,), "float32")):
    """Its sums run thrice over: no rule may share them among lanes."""
    for i, k, _again in T.grid(64, 100, 3):
        with T.block("thrice"):
            v, w = T.axis.remap("SR", [i, k])
            with T.init():
                out[v] = T.float32(0)
            out[v] = out[v] + a[v, w]


def warnings_of(call: Callable[[], object], caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="tilewright.scheduling"):
        call()
    return [item.getMessage() for item in caplog.records if item.levelno >= logging.WARNING]


def test_a_block_that_stays_plain_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    mod = IRModule({"strange": repeated})
    rules = dlight.default_schedule(TARGET)
    (text,) = warnings_of(lambda: rules(mod), caplog)
    assert text.startswith("strange: no rule schedules block 'thrice' (its loops")
    assert "tir.Schedule" in text and "tune it" in text


def test_searches_and_healthy_programs_are_quiet(caplog: pytest.LogCaptureFixture) -> None:
    def search() -> None:
        dlight.first_schedule(repeated, dlight.cpu.rules(), TARGET, choices=Choices({}))

    x = te.placeholder((70, 100), name="x")
    healthy = te.create_prim_func([x, topi.sum(topi.exp(x), axis=1)])
    assert warnings_of(search, caplog) == []
    assert warnings_of(lambda: scheduled(healthy), caplog) == []


@pytest.mark.parametrize("target", [TARGET, Target("nvidia/nvidia-a100")], ids=["cpu", "gpu"])
def test_memory_that_only_regions_name_is_kept(target: Target) -> None:
    """A sort of empty rows accesses nothing, but its regions say where its results would be."""
    x = te.placeholder((8, 0), "int8", "x")
    y = topi.cast(topi.argsort(x, axis=1, dtype="int64"), "float32")
    func = te.create_prim_func([x, y])
    made = dlight.default_schedule(target)(IRModule({"main": func}))
    verify_well_formed(made["main"])
    assert made["main"].attrs.get(IS_SCHEDULED)
