"""16-bit floats that are only moved keep their bits; lanes stored by turns; loads asked early."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright import compile, te
from tilewright.codegen.llvm.emit import emit_module
from tilewright.driver import lower
from tilewright.ir import IRModule, if_then_else
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.attrs import PREFETCH_DISTANCE
from tilewright.tir.interpreter import run

TARGET = Target("llvm -mcpu=x86-64-v3 -num-cores=1")


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def vectorized(func: PrimFunc) -> PrimFunc:
    sch = Schedule(func)
    sch.vectorize(sch.get_loops("y")[-1])
    made: PrimFunc = sch.mod["main"]
    return made


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_bit_patterns_survive_a_move(dtype: str) -> None:
    x = te.placeholder((1 << 16,), dtype, "x")
    func = te.create_prim_func([x, te.compute(x.shape, lambda i: x[i], "y")])
    sch = Schedule(func)
    _, inner = sch.split(sch.get_loops("y")[0], [None, 32])
    sch.vectorize(inner)
    text = emit_module(lower(sch.mod, TARGET), TARGET).text
    assert "fpext" not in text and "fptrunc" not in text and "shl" not in text
    bits = np.arange(1 << 16, dtype="uint16")
    out = np.zeros(1 << 16, dtype_of(dtype))
    compile(sch.mod, TARGET)(bits.view(dtype_of(dtype)), out)
    np.testing.assert_array_equal(out.view("uint16"), bits)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_conditional_moves_and_constants(dtype: str) -> None:
    x = te.placeholder((24,), dtype, "x")
    y = te.compute((32,), lambda i: if_then_else(i < 24, x[i], te.const(1.5, dtype)), "y")
    func = vectorized(te.create_prim_func([x, y]))
    data = np.linspace(-3, 3, 24).astype(dtype_of(dtype))
    out = np.zeros(32, data.dtype)
    compile(func, TARGET)(data, out)
    np.testing.assert_array_equal(out[:24].view("uint16"), data.view("uint16"))
    assert (out[24:].astype("float32") == 1.5).all()


def test_computed_values_are_still_rounded() -> None:
    x = te.placeholder((16,), "bfloat16", "x")
    func = vectorized(te.create_prim_func([x, te.compute((16,), lambda i: x[i] * x[i], "y")]))
    data = np.linspace(0.1, 2, 16).astype(ml_dtypes.bfloat16)
    out, expected = np.zeros_like(data), np.zeros_like(data)
    compile(func, TARGET)(data, out)
    run(func, data, expected)
    np.testing.assert_array_equal(out.view("uint16"), expected.view("uint16"))


def interleaved(dtype: str, count: int, columns: int) -> PrimFunc:
    """``y[i, q] = x[q, i]``, vectorised over ``i``."""
    x = te.placeholder((count, columns), dtype, "x")
    func = te.create_prim_func([x, te.compute((columns, count), lambda i, q: x[q, i], "y")])
    sch = Schedule(func)
    sch.vectorize(sch.get_loops("y")[0])
    made: PrimFunc = sch.mod["main"]
    return made


@pytest.mark.parametrize(("dtype", "count"), [("uint8", 4), ("bfloat16", 2), ("float32", 3)])
@pytest.mark.parametrize("columns", [8, 21, 64])
def test_lanes_are_stored_by_turns(dtype: str, count: int, columns: int) -> None:
    func = interleaved(dtype, count, columns)
    lowered = lower(func, TARGET)
    assert "T.Shuffle" in lowered.script()
    x = np.arange(count * columns).reshape(count, columns).astype(dtype_of(dtype))
    for out, call in (
        (np.zeros((columns, count), x.dtype), compile(func, TARGET)),
        (np.zeros((columns, count), x.dtype), lambda *args: run(func, *args)),
    ):
        call(x, out)
        np.testing.assert_array_equal(out, x.T)


def test_turns_under_a_condition_touch_nothing_else() -> None:
    func = parse(
        """
@T.prim_func
def main(x: T.Buffer((2, 16), "float32"), y: T.Buffer((16, 2), "float32")):
    for i in T.vectorized(16):
        for q in range(2):
            with T.block("y"):
                vi, vq = T.axis.remap("SS", [i, q])
                T.where(i < 11)
                y[vi, vq] = x[vq, vi]
"""
    )
    x = np.arange(32, dtype="float32").reshape(2, 16)
    out = np.full((16, 2), -1, "float32")
    compile(func, TARGET)(x, out)
    np.testing.assert_array_equal(out[:11], x.T[:11])
    assert (out[11:] == -1).all()


def test_loops_ask_for_what_they_read_later() -> None:
    x = te.placeholder((64, 16), "float32", "x")
    k = te.reduce_axis((0, 64), "k")
    func = te.create_prim_func([x, te.compute((16,), lambda i: te.sum(x[k.var, i], axis=k), "y")])
    sch = Schedule(IRModule({"main": func}))
    i, k_loop = sch.get_loops("y")
    sch.reorder(k_loop, i)
    init = sch.decompose_reduction("y", k_loop)
    sch.vectorize(i)
    sch.vectorize(sch.get_loops(init)[-1])
    assert "prefetch" not in emit_module(lower(sch.mod, TARGET), TARGET).text
    sch.annotate(k_loop, PREFETCH_DISTANCE, 640)
    text = emit_module(lower(sch.mod, TARGET), TARGET).text
    assert text.count("call void @llvm.prefetch") == 1 and "i64 640" in text
    data, out = np.ones((64, 16), "float32"), np.zeros(16, "float32")
    compile(sch.mod, TARGET)(data, out)
    assert (out == 64).all()
