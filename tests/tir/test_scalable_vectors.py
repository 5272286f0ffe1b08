"""Programs with scalable vectors: script, interpreter, schedules, lowering.

What a program means depends on ``vscale``; each is run with several, before and after it is
lowered, and compared with NumPy.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright import driver, ir, tir
from tilewright.script import parse
from tilewright.script import tir as T
from tilewright.support.errors import RunError, ScheduleError, TargetError, VerifyError
from tilewright.tir import PrimFunc, Schedule, interpreter

SVE = "llvm -mtriple=aarch64-unknown-linux-gnu -mattr=+sve"
SCALES = (1, 2, 3, 16)
Array = NDArray[Any]

WHOLE = """
@T.prim_func
def main(A: T.Buffer((256,), "float32"), C: T.Buffer((256,), "float32"), n: T.int64):
    for i in range(T.ceildiv(n, 4 * T.vscale())):
        C[T.Ramp(i * 4 * T.vscale(), 1, 4 * T.vscale())] = A[
            T.Ramp(i * 4 * T.vscale(), 1, 4 * T.vscale())
        ] * T.Broadcast(T.float32(2), T.vscale() * 4)
"""
MASKED = """
@T.prim_func
def main(A: T.Buffer((256,), "float32"), C: T.Buffer((256,), "float32"), n: T.int64):
    for i in range(T.ceildiv(n, 4 * T.vscale())):
        mask = T.get_active_lane_mask("uint1xvscalex4", i * 4 * T.vscale(), n)
        x = T.masked_load(
            "float32xvscalex4", A, T.Ramp(i * 4 * T.vscale(), 1, 4 * T.vscale()), mask
        )
        T.masked_store(
            C, x * T.Broadcast(T.float32(2), T.vscale() * 4),
            T.Ramp(i * 4 * T.vscale(), 1, 4 * T.vscale()), mask,
        )
"""
LOOP = """
@T.prim_func
def main(A: T.Buffer((256,), "float32"), C: T.Buffer((256,), "float32"), n: T.int64):
    for i in range(T.ceildiv(n, 4 * T.vscale())):
        for j in T.vectorized(0, 4 * T.vscale()):
            if i * (4 * T.vscale()) + j < n:
                C[i * (4 * T.vscale()) + j] = A[i * (4 * T.vscale()) + j] * T.float32(2)
"""
BLOCK = """
@T.prim_func
def main(A: T.Buffer((130,), "float32"), C: T.Buffer((130,), "float32")):
    for i in range(130):
        with T.sblock("C"):
            vi = T.axis.S(130, i)
            C[vi] = A[vi] * T.float32(2)
"""


def _doubled(func: PrimFunc, size: int, whole: bool, scale: int) -> None:
    a = np.arange(1, 257, dtype="float32")
    c = np.full(256, -1, "float32")
    interpreter.run(func, a, c, size, vscale=scale)
    end = -(-size // (4 * scale)) * 4 * scale if whole else size
    np.testing.assert_array_equal(c, np.where(np.arange(256) < end, a * 2, -1))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("text", [WHOLE, MASKED, LOOP])
def test_meaning(text: str, scale: int) -> None:
    func = parse(text)
    lowered = driver.lower(func, SVE)["main"]
    for size in (0, 1, 100, 128):
        _doubled(func, size, text is WHOLE, scale)
        _doubled(lowered, size, text is WHOLE, scale)


@pytest.mark.parametrize("text", [WHOLE, MASKED, LOOP])
def test_text_and_files_give_the_program_back(text: str) -> None:
    func = parse(text)
    for made in (
        parse(func.script()),
        pickle.loads(pickle.dumps(func)),
        ir.load_json(ir.save_json(func)),
        driver.lower(func, SVE)["main"],
    ):
        ir.assert_structural_equal(made, parse(made.script()))
    ir.assert_structural_equal(func, parse(func.script()))
    assert ir.structural_hash(func) == ir.structural_hash(parse(func.script()))


def test_script_writes_tvms_forms() -> None:
    func = parse("""
@T.prim_func
def main(C: T.Buffer((64,), "float32")):
    C[0:T.vscale() * 4] = T.broadcast(T.float32(1), T.vscale() * 4)
    C[T.ramp(8, 2, 4 * T.vscale())] = T.Broadcast(T.float32(1), 4 * T.vscale())
""")
    text = func.script()
    assert "C[T.Ramp(0, 1, T.vscale() * 4)] = T.Broadcast(T.float32(1.0), T.vscale() * 4)" in text
    assert "C[T.Ramp(8, 2, T.vscale() * 4)]" in text
    assert "float32xvscalex4" in str(T.Cast("float32xvscalex4", T.Ramp(0, 1, T.vscale() * 4)))


def test_masks_may_leave_nothing() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "int8"), C: T.Buffer((8,), "int8")):
    T.masked_store(
        C,
        T.masked_load(
            "int8xvscalex16", A, T.Ramp(10**9, 1, 16 * T.vscale()),
            T.get_active_lane_mask("boolxvscalex16", 10**9, 8),
        ),
        T.Ramp(-5000, 1, 16 * T.vscale()), T.get_active_lane_mask("boolxvscalex16", 50, 40),
    )
    T.masked_store(
        C, T.Broadcast(T.int8(7), 16 * T.vscale()), T.Ramp(5, 1, 16 * T.vscale()),
        T.get_active_lane_mask("boolxvscalex16", -1, 2),
    )
""")
    for made in (func, driver.lower(func, SVE)["main"]):
        c = np.zeros(8, "int8")
        interpreter.run(made, np.ones(8, "int8"), c, vscale=2)
        np.testing.assert_array_equal(c, [0, 0, 0, 0, 0, 7, 7, 7])


def test_memory_of_a_scalable_size() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((T.vscale() * 8,), "bool"), C: T.Buffer((64,), "bool")):
    W = T.alloc_buffer((8 * T.vscale(),), "bool")
    W[0:8 * T.vscale()] = not A[0:8 * T.vscale()]
    for i in range(8 * T.vscale()):
        C[i] = W[8 * T.vscale() - 1 - i]
""")
    for made in (func, driver.lower(func, SVE)["main"]):
        a, c = np.arange(16) % 3 == 0, np.zeros(64, "bool")
        interpreter.run(made, a, c, vscale=2)
        np.testing.assert_array_equal(c[:16], ~a[::-1])
        with pytest.raises(RunError, match="which is 24"):
            interpreter.run(made, a, c, vscale=3)


@pytest.mark.parametrize("tail", ["predicate", "peel"])
def test_loops_are_split_by_lanes(tail: Any) -> None:
    sch = Schedule(parse(BLOCK))
    _, inner = sch.split(sch.get_loops("C")[0], [None, 4 * T.vscale()], tail=tail)
    sch.vectorize(inner)
    sch.parallel(sch.get_loops("C")[0])
    lowered = driver.lower(sch.mod, SVE)["main"]
    assert ir.collect(lowered.body, ir.Ramp)[0].dtype == "int64xvscalex4"
    for made in (sch.mod["main"], lowered):
        for scale in SCALES:
            a, c = np.arange(130, dtype="float32"), np.zeros(130, "float32")
            interpreter.run(made, a, c, vscale=scale)
            np.testing.assert_array_equal(c, a * 2)


def test_traces_hold_lanes() -> None:
    sch = Schedule(parse(BLOCK))
    sch.split(sch.get_loops("C")[0], [None, 2, T.vscale() * 4])
    assert "factors=[None, 2, T.vscale() * 4]" in str(sch.trace)
    again = Schedule(parse(BLOCK))
    tir.schedule.Trace.apply_json_to_schedule(sch.trace.as_json(), again)
    ir.assert_structural_equal(again.mod, sch.mod)
    odd = Schedule(parse(BLOCK))
    odd.split(odd.get_loops("C")[0], [None, T.vscale() * T.vscale()])
    with pytest.raises(ScheduleError, match=r"T.vscale\(\) \* n"):
        odd.trace.as_json()


def test_tiles_must_cover() -> None:
    sch = Schedule(parse(BLOCK))
    with pytest.raises(ScheduleError, match="not known to cover the extent 130"):
        sch.split(sch.get_loops("C")[0], [32, 4 * T.vscale()])
    sch.split(sch.get_loops("C")[0], [33, 4 * T.vscale()])


@pytest.mark.parametrize(
    "target",
    ["llvm -mcpu=x86-64-v3", "llvm -mtriple=aarch64-unknown-linux-gnu", "c", "cuda", "opencl"],
)
@pytest.mark.parametrize("text", [WHOLE, LOOP])
def test_other_targets_say_who_has_them(text: str, target: str) -> None:
    with pytest.raises(TargetError, match=r"(?s)which the target '.*' has not: SVE has them"):
        driver.lower(parse(text), target)
    lowered = driver.lower(parse(text), SVE)
    with pytest.raises(TargetError, match="SVE has them"):
        driver.build(lowered, target)


def test_code_asks_its_target_also_for_sizes() -> None:
    func = parse("""
@T.prim_func
def main(C: T.Buffer((64,), "int32"), n: T.int64):
    C[n] = T.vscale()
""")
    with pytest.raises(TargetError, match="SVE has them"):
        driver.compile(func, "llvm -mcpu=x86-64-v3")


@pytest.mark.parametrize("scale", [0, -1, 1025, True, 1.5])
def test_vscale_is_a_small_number(scale: Any) -> None:
    with pytest.raises(RunError, match="from 1 to 1024"):
        interpreter.run(parse(WHOLE), np.zeros(256), np.zeros(256), 3, vscale=scale)


def test_values_of_other_lengths_are_not_stored() -> None:
    a, data = tir.decl_buffer((64,), "float32"), tir.Var("a", "handle")
    store = tir.BufferStore(a, tir.Broadcast(1.0, 4), [tir.Ramp(0, 1, tir.vscale() * 4)])
    with pytest.raises(VerifyError, match="float32xvscalex4"):
        tir.analysis.verify(PrimFunc([data], store, buffer_map={data: a}))
