"""Passes that users of TVM call by name: what each does to a small program."""

from __future__ import annotations

import numpy as np
import pytest
from transform_cases import applied, body, lowered, module, program, unchanged

from tilewright.ir import IRModule
from tilewright.support.errors import LowerError, RunError, VerifyError
from tilewright.tir import PrimFunc, seq, transform
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run

A, C = np.arange(8, dtype="float32"), np.zeros(8, "float32")

BRANCHES = program(
    "for i in range(8):",
    "    m: T.let[T.int64] = n * 2",
    "    if n > 3:",
    "        C[i] = A[i] * T.Cast('float32', m)",
    "    else:",
    "        C[i] = T.float32(0)",
)


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize("n", [3, 4])
def test_branches_and_bindings_leave_the_loop(n):
    text = applied(transform.HoistExpression(), lowered(BRANCHES), A, C, n)
    found = lines(text)
    assert text.count("for i") == 2 and found.index("if n > 3:") < found.index("for i in range(8):")
    assert found.index("m: T.int64 = n * 2") < found.index("for i in range(8):")


def test_hoisting_only_what_is_asked_for():
    bindings = transform.HoistExpression(transform.HoistedConditionals.Never)
    text = applied(bindings, lowered(BRANCHES), A, C, 5)
    assert text.count("for i") == 1 and lines(text).index("m: T.int64 = n * 2") < lines(text).index(
        "for i in range(8):"
    )
    branches = transform.HoistExpression(
        hoisted_let_bindings=transform.HoistedLetBindings.RequiredByConditional
    )
    text = applied(branches, lowered(BRANCHES), A, C, 5)
    assert text.count("for i") == 2 and text.count("n * 2") == 2  # still inside of both


def test_hoist_if_then_else():
    text = applied(transform.HoistIfThenElse(), lowered(BRANCHES), A, C, 5)
    assert text.count("for i") == 2
    with pytest.raises(VerifyError, match="'basic'"):
        transform.HoistIfThenElse("other")


def test_what_the_loop_changes_stays_inside():
    text = program(
        "for i in range(8):",
        "    if A[0] > T.float32(2):",
        "        A[0] = A[0] - T.float32(1)",
        "        C[i] = A[0]",
    )
    mod = lowered(text)
    assert unchanged(transform.HoistExpression(), mod)


def test_unsafe_selections_become_conditional():
    text = program("for i in range(8):", "    C[i] = T.Select(i < n, A[i + 8 - n], A[i])")
    made = transform.RewriteUnsafeSelect()(lowered(text))
    assert "T.if_then_else(i < n" in body(made)
    safe = text.replace("A[i + 8 - n]", "T.float32(0)")
    assert unchanged(transform.RewriteUnsafeSelect(), lowered(safe))


def test_definitions_are_made_unique():
    func = lowered(program("for i in range(8):", "    C[i] = A[i] + C[i]"))["main"]
    twice = IRModule({"main": func.replace(body=seq(func.body, func.body))})
    with pytest.raises(VerifyError):
        verify(twice)
    made = transform.ConvertSSA()(twice)
    verify(made)
    expected, found = C.copy(), C.copy()
    run(twice, A, expected, 3)
    run(made, A, found, 3)
    np.testing.assert_array_equal(found, expected)
    assert found[7] == 14


def test_functions_share_no_variables():
    func = lowered(program("for i in range(8):", "    C[i] = A[i]"))["main"]
    made = transform.ConvertSSA()(IRModule({"main": func, "other": func}))
    first, second = made["main"], made["other"]
    assert isinstance(second, PrimFunc)
    assert first is func and set(second.params).isdisjoint(first.params)
    assert unchanged(transform.ConvertSSA(), IRModule({"main": func}))


EXITS = program(
    "for i in range(8):",
    "    if A[i] > T.float32(4):",
    "        break",
    "    for j in range(1):",
    "        C[i] = A[i]",
)


def test_loops_that_are_left_are_marked():
    text = applied(transform.AnnotateIrregularLoop(), module(EXITS), A, C, 3)
    assert text.count("irregular_loop_mark") == 1
    assert unchanged(transform.AnnotateIrregularLoop(), lowered(BRANCHES))


def test_undefined_values_are_not_stored():
    text = program(
        "for i in range(8):",
        "    C[i] = A[i]",
        "    A[i] = T.undef(dtype='float32')",
        "for i in range(8):",
        "    A[i] = T.undef(dtype='float32') + A[i]",
    )
    made = transform.RemoveStoreUndef()(lowered(text))
    assert "undef" not in body(made) and body(made).count("for i") <= 2
    wrong = program("if T.undef(dtype='int64') > n:", "    C[0] = A[0]")
    with pytest.raises(LowerError, match="more than a value to store"):
        transform.RemoveStoreUndef()(lowered(wrong))
    call = 'T.call_extern("f", 1, dtype="float32")'
    busy = program(f"A[0] = T.undef(dtype='float32') + {call}")
    with pytest.raises(LowerError, match="value stored in A goes with the store, but has side"):
        transform.RemoveStoreUndef()(lowered(busy))


def test_accesses_that_may_leave_their_buffer_are_checked():
    text = program("for i in range(8):", "    C[i] = A[i + n]")
    mod = transform.InstrumentBoundCheckers()(lowered(text))
    assert body(mod).count("assert") == 1  # the store is in bounds
    run(mod, A.copy(), C.copy(), 0)
    with pytest.raises(RunError, match=r"A(_1)?: index 8 of axis 0 is not in \[0, 8\)"):
        run(mod, A.copy(), C.copy(), 1)


def test_guarded_accesses_are_checked_where_they_happen():
    text = program(
        "for i in range(8):",
        "    C[i] = T.if_then_else(i + n < 8, A[i + n], T.float32(0))",
        "if n < 8 and n >= 0 and A[n] > T.float32(2):",
        "    C[n] = A[n]",
    )
    made = transform.InstrumentBoundCheckers()(lowered(text))
    assert body(made).count("assert") == 1  # n may be negative
    for n in (0, 5, 9):
        run(made, A.copy(), C.copy(), n)
    with pytest.raises(RunError, match="out of bounds"):
        run(made, A.copy(), C.copy(), -1)


def test_indices_from_memory_are_checked_first():
    text = """
@T.prim_func
def main(I: T.Buffer((4,), "int64"), C: T.Buffer((4,), "int64"), n: T.int64):
    C[I[n]] = 7
"""
    made = transform.InstrumentBoundCheckers()(lowered(text))
    assert body(made).count("assert") == 2
    with pytest.raises(RunError, match=r"I(_1)?: index 4"):
        run(made, np.zeros(4, "int64"), np.zeros(4, "int64"), 4)
    with pytest.raises(RunError, match=r"C(_1)?: index 9"):
        run(made, np.full(4, 9), np.zeros(4, "int64"), 0)
