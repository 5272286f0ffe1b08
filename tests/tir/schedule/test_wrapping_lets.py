"""What primitives prove about numbers that variables were given: integers of data wrap."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.script import parse
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

LETS = """
@T.prim_func
def main(A: T.Buffer((16,), "int32"), s: T.int32, D: T.Buffer((16,), "int32")):
    for i in range(16):
        x: T.int32 = A[i]
        y: T.int32 = x
        for j in range(4):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                vj = T.axis.spatial(4, j)
                T.where(CONDITION)
                D[vi] = A[vi]
"""
CONDITIONS = ["x + 1 > x", "y * 2 // 2 == y", "s + 1 > s", "x - s <= x or s < 0"]
ACTIONS = {
    "peel": lambda sch: sch.split(sch.get_loops("C")[0], [None, 5], tail="peel"),
    "loop_partition": lambda sch: sch.loop_partition(sch.get_loops("C")[0], [5, None]),
    "peel inside": lambda sch: sch.split(sch.get_loops("C")[1], [None, 3], tail="peel"),
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("action", ACTIONS)
def test_conditions_on_data_stay(action, condition):
    func = parse(LETS.replace("CONDITION", condition))
    sch = Schedule(func)
    ACTIONS[action](sch)
    limits = np.iinfo(np.int32)
    data = np.array([limits.max, limits.min, *range(-6, 7), limits.max], "int32")
    for scalar in (limits.max, limits.min, 3):
        expected, found = np.full(16, -9, "int32"), np.full(16, -9, "int32")
        run(func, data, scalar, expected)
        run(sch.mod["main"], data, scalar, found)
        np.testing.assert_array_equal(found, expected)


def test_conditions_on_loops_are_dropped_as_before():
    func = parse(LETS.replace("CONDITION", "i + 1 > i"))
    sch = Schedule(func)
    sch.split(sch.get_loops("C")[0], [None, 5], tail="peel")
    assert "T.where" not in sch.mod["main"].script().split("C_tail")[1]
