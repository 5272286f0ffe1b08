"""Pass options and instruments where users meet them: in ``driver.lower`` and ``compile``."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from transform_cases import body, module

from tilewright import driver
from tilewright.ir import DumpIR, PassContext, PassInstrument, PassTimingInstrument
from tilewright.target import Target
from tilewright.tir.interpreter import run

TARGET = Target("llvm -mcpu=x86-64-v3 -num-cores=1")
CHAIN = """
@T.prim_func
def main(A: T.Buffer((96, 96), "float32"), C: T.Buffer((96, 96), "float32")):
    P = T.alloc_buffer((96, 96), "float32")
    Q = T.alloc_buffer((96, 96), "float32")
    R = T.alloc_buffer((96, 96), "float32")
    for i, j in T.grid(96, 96):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = A[vi, 95 - vj] * T.float32(2)
    for i, j in T.grid(96, 96):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            Q[vi, vj] = P[95 - vi, vj] + T.float32(1)
    for i, j in T.grid(96, 96):
        with T.block("R"):
            vi, vj = T.axis.remap("SS", [i, j])
            R[vi, vj] = Q[vi, 95 - vj] * T.float32(3)
    for i, j in T.grid(96, 96):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.exp(R[95 - vi, 0]) * R[vi, vj] + T.exp(R[95 - vi, 0])
"""


class Names(PassInstrument):
    """Notes the passes that ran."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run_after_pass(self, mod, name) -> None:
        self.names.append(name)


def passes_of(**config) -> list[str]:
    names = Names()
    options = {f"tir.{key}": value for key, value in config.items()}
    with PassContext(config=options, instruments=[names]):
        driver.lower(module(CHAIN), TARGET)
    return names.names


@pytest.mark.parametrize(
    ("option", "name", "default"),
    [
        ("storage_rewrite", "StorageRewrite", True),
        ("cse", "CommonSubexpressionElimination", False),
        ("hoist_invariants", "HoistInvariants", False),
        ("narrow_dtype", "NarrowDataType", False),
    ],
)
def test_options_choose_passes(option, name, default):
    assert (name in passes_of()) is default
    assert name in passes_of(**{option: True})
    assert name not in passes_of(**{option: False})


def test_memory_is_shared_by_default():
    text = body(driver.lower(module(CHAIN), TARGET))
    assert text.count("T.allocate") == 2
    with PassContext(config={"tir.storage_rewrite": False}):
        assert body(driver.lower(module(CHAIN), TARGET)).count("T.allocate") == 3
    with PassContext(disabled_pass=["StorageRewrite"]):
        assert body(driver.lower(module(CHAIN), TARGET)).count("T.allocate") == 3


@pytest.mark.parametrize(
    "config",
    [{}, {"tir.cse": True, "tir.hoist_invariants": True, "tir.narrow_dtype": True}],
    ids=["default", "all"],
)
def test_compiled_code_agrees(config):
    a = np.random.default_rng(0).random((96, 96), "float32")
    expected, actual = np.zeros_like(a), np.zeros_like(a)
    run(module(CHAIN), a, expected)
    with PassContext(config=config):
        driver.compile(module(CHAIN), TARGET)["main"](a, actual)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_every_step_of_lowering_can_be_written_down(tmp_path):
    timing = PassTimingInstrument()
    with PassContext(instruments=[DumpIR(tmp_path), timing]):
        driver.compile(module(CHAIN), TARGET)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written[0] == "000_before_LowerForCPU.py"
    assert written[1].endswith("_ConvertBlocksToOpaque.py")
    assert written[-2].endswith("_StorageRewrite.py")
    assert written[-1].endswith("_MakeKernelABI.py")
    assert 'T.block("C")' in (tmp_path / written[0]).read_text()
    assert timing.calls["StorageRewrite"] == 1
    inner = sum(seconds for name, seconds in timing.seconds.items() if name != "LowerForCPU")
    assert 0 < inner <= timing.seconds["LowerForCPU"]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_cpus_run_programs_with_8_bit_floats(dtype):
    text = """
@T.prim_func
def main(A: T.Buffer((40, 30), "DT"), B: T.Buffer((30,), "DT"), C: T.Buffer((40, 30), "DT")):
    for i in range(40):
        for j in T.vectorized(30):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(A[vi, vj] * B[vj], T.DT(0)) + T.DT(0.5)
"""
    kind = getattr(ml_dtypes, dtype)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 30)).astype(kind), rng.standard_normal(30).astype(kind)
    expected, actual = np.zeros((40, 30), kind), np.zeros((40, 30), kind)
    mod = module(text.replace("DT", dtype))
    run(mod, a, b, expected)
    driver.compile(mod, TARGET)["main"](a, b, actual)
    np.testing.assert_array_equal(actual.view("uint8"), expected.view("uint8"))
