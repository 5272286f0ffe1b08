"""Ranges of loops are evaluated once, whatever their bodies write, and steps may be symbolic."""

import numpy as np
import pytest

import tilewright
from tilewright import script
from tilewright.tir import interpreter
from tilewright.tir.transform import LowerLoopExits

HEADER = """from tilewright.script import tir as T
@T.prim_func
def main(A: T.Buffer((8,), "int32"), s: T.int32):
"""
BODIES = {
    "extent": """
    for i in range(A[0]):
        A[0] = A[0] - 2
        A[1] = A[1] + 1
        if A[2] == s:
            break
""",
    "start": """
    for i in range(A[0], A[0] + 4):
        A[0] = A[0] - 2
        A[1] = A[1] + i
        if A[2] == s:
            break
""",
    "start and step": """
    for i in range(A[0] - 4, 9, A[1]):
        A[0] = A[0] + 1
        A[1] = A[1] + 1
        A[i % 8] = A[i % 8] + i
""",
    "symbolic step": """
    for i in range(1, 8, s):
        A[i] = 0 - i
""",
}


@pytest.mark.parametrize("name", BODIES)
def test_ranges_are_those_of_python(name):
    names = {}
    exec("def main(A, s):" + BODIES[name], names)
    expected = [6, 2, 3, 4, 5, 6, 7, 8]
    names["main"](expected, 2)
    main = script.parse(HEADER + BODIES[name])
    lowered = LowerLoopExits()(tilewright.IRModule({"main": main}))
    for program in (main, lowered, tilewright.lower(main)):
        found = np.array([6, 2, 3, 4, 5, 6, 7, 8], "int32")
        interpreter.run(program, found, 2)
        assert found.tolist() == expected
