"""Blocks that leave their work to a function which they call: no rule knows what it does."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from tilewright import dlight
from tilewright.driver import compile as compile_module
from tilewright.script import parse
from tilewright.target import Target

CALLS = """
@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((5, 4), "int32"), Z: T.Buffer((5, 4), "int32")):
        for {loops}:
            with T.block("row"):
                {axes}
                T.reads(A[vi, 0:4])
                T.writes(Z[vi, 0:4])
                T.evaluate(T.call_extern("summed", T.address_of(A[vi, 0], dtype="handle"),
                    T.address_of(Z[vi, 0], dtype="handle"), dtype="int32"))

    @T.prim_func
    def summed(X: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
        for i in T.serial(4):
            with T.block("summed"):
                vi = T.axis.spatial(4, i)
                Y[vi] = X[vi] + T.if_then_else(vi > 0, Y[vi - 1], T.int32(1))
"""
NESTS = [
    ("i in T.serial(5)", "vi = T.axis.spatial(5, i)"),
    ("i, k in T.grid(5, 2)", 'vi, vk = T.axis.remap("SR", [i, k])'),
]


@pytest.mark.parametrize(("loops", "axes"), NESTS)
def test_blocks_that_only_call_stay_as_they_are(
    loops: str, axes: str, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target("native")
    mod = parse(CALLS.format(loops=loops, axes=axes))
    with target, caplog.at_level(logging.WARNING, logger="tilewright.scheduling"):
        scheduled = dlight.ApplyDefaultSchedule(*dlight.cpu.rules())(mod)
    assert "'row' (it stores nothing itself" in caplog.text
    a = np.arange(20, dtype="int32").reshape(5, 4)
    z = np.zeros_like(a)
    compile_module(scheduled, target)["main"](a, z)
    np.testing.assert_array_equal(z, np.cumsum(a, axis=1) + 1)
