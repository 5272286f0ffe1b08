"""Branches that assumptions about elements make superfluous."""

from __future__ import annotations

import numpy as np
import pytest
from transform_cases import body, module

from tilewright.tir.interpreter import run
from tilewright.tir.transform import UseAssumeToReduceBranches

TEXT = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int64):
    for i in range({span}):
        with T.block("assume"):
            v = T.axis.spatial({span}, i)
            T.assume({fact})
    {between}
    for i in range(16):
        with T.block("add"):
            v = T.axis.spatial(16, i)
            B[v] = {value}
"""
GOOD = {
    "span": 16,
    "fact": "v < 14 or A[v] == T.float32(0)",
    "between": "",
    "value": "T.if_then_else(v < 14, A[v] * T.float32(2), T.float32(0))",
}
REDUCED = {
    "as it is": {},
    "select": {"value": "T.Select(v < 14, A[v] * T.float32(2), T.float32(0))"},
    "other side": {"value": "T.if_then_else(v >= 14, T.float32(0), A[v] * T.float32(2))"},
    "turned fact": {"fact": "T.float32(0) == A[v] or v < 14"},
    "narrower": {"fact": "v < 12 or A[v] == T.float32(0)"},
    "maximum": {"value": "T.if_then_else(v < 14, T.max(A[v], T.float32(0)), T.float32(0))"},
    "another is written": {"between": "B[0] = T.float32(1)"},
}
KEPT = {
    "wider": {"fact": "v < 15 or A[v] == T.float32(0)"},
    "shorter": {"span": 15},
    "another value": {"fact": "v < 14 or A[v] == T.float32(1)"},
    "another element": {
        "value": "T.if_then_else(v < 14, A[15 - v] * T.float32(2), T.float32(0))",
    },
    "written since": {"between": "A[15] = T.float32(3)"},
    "unknown call": {"between": 'T.evaluate(T.call_extern("f", A.data, dtype="int32"))'},
    "may be outside": {"value": "T.if_then_else(v + n < 14, A[v + n], T.float32(0))"},
    "fact of memory": {"fact": "A[0] < T.float32(1) or A[v] == T.float32(0)"},
    "one iteration": {"fact": "v < 14 or A[15] == T.float32(0)"},
}


@pytest.mark.parametrize("change", REDUCED)
def test_branches_go(change: str) -> None:
    mod = module(TEXT.format(**{**GOOD, **REDUCED[change]}))
    made = UseAssumeToReduceBranches()(mod)
    assert "if_then_else" not in body(made) and "Select" not in body(made)
    a = np.arange(16, dtype="float32")
    a[12 if change == "narrower" else 14 :] = 0
    expected, found = np.zeros(16, "float32"), np.zeros(16, "float32")
    run(mod, a, expected, 0)
    run(made, a, found, 0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("change", KEPT)
def test_branches_stay(change: str) -> None:
    mod = module(TEXT.format(**{**GOOD, **KEPT[change]}))
    assert "if_then_else" in body(UseAssumeToReduceBranches()(mod))


def test_what_a_loop_writes_later_counts() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int64):
    for i in range(16):
        T.assume(i < 14 or A[i] == T.float32(0))
    for t in range(2):
        for i in range(16):
            B[i] = T.if_then_else(i < 14, A[i], T.float32(0))
        A[15] = T.float32(1)
"""
    assert "if_then_else" in body(UseAssumeToReduceBranches()(module(text)))
    assert "if_then_else" not in body(
        UseAssumeToReduceBranches()(module(text.replace("        A[15] = T.float32(1)\n", "")))
    )


@pytest.mark.parametrize(("extent", "runs"), [("n", False), ("0", False), ("n + 1", True)])
@pytest.mark.parametrize("order", ["t, i", "i, t"])
def test_loops_that_may_be_empty_state_nothing(extent: str, runs: bool, order: str) -> None:
    sizes = ", ".join("16" if name == "i" else extent for name in order.split(", "))
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), z: T.handle):
    n = T.int64()
    Z = T.match_buffer(z, (n,), "float32")
    for {order} in T.grid({sizes}):
        {assume}
    for i in range(16):
        B[i] = T.if_then_else(i < 14, A[i], T.float32(0))
"""
    plain = "T.assume(i < 14 or A[i] == T.float32(0))"
    block = """with T.block("b"):
            v = T.axis.spatial(16, i)
            T.assume(v < 14 or A[v] == T.float32(0))"""
    for assume in (plain, block):
        mod = module(text.format(order=order, sizes=sizes, assume=assume))
        assert ("if_then_else" not in body(UseAssumeToReduceBranches()(mod))) == runs
