"""HoistInvariants: conditions and expressions leave loops, and nothing is evaluated too early."""

from __future__ import annotations

import numpy as np
import pytest
from transform_cases import applied, lowered, program, unchanged

from tilewright.ir import PassContext
from tilewright.tir import transform


def arrays(n=3):
    return np.arange(8, dtype="float32"), np.zeros(8, "float32"), n


def hoisted(*lines: str, **options) -> str:
    mod = lowered(program(*lines))
    for n in (-1, 0, 3, 8):
        text = applied(transform.HoistInvariants(**options), mod, *arrays(n))
    return text[text.index("data=C.data)") :]


def test_a_perfect_branch_costs_no_copy():
    text = hoisted("for i in range(8):", "    if n > 2:", "        C[i] = A[i]", unswitch_limit=0)
    assert text.index("if n > 2") < text.index("for i") and text.count("for") == 1


def test_both_branches_get_a_loop():
    text = hoisted(
        "for i in range(8):", "    if n > 2:", "        C[i] = A[i]", "    else:",
        "        C[i] = A[7 - i]",
    )  # fmt: skip
    assert text.count("for i") == 2 and "else:" in text


def test_conditions_leave_all_loops_that_they_do_not_depend_on():
    text = hoisted(
        "for i in range(4):", "    for j in range(2):", "        for k in range(2):",
        "            if i > n:", "                C[i * 2 + j] = A[k]",
    )  # fmt: skip
    assert text.index("for i in range(4)") < text.index("if i > n") < text.index("for j")


def test_a_part_of_a_conjunction_is_enough():
    text = hoisted("for i in range(8):", "    if i < 5 and n > 2:", "        C[i] = A[i]")
    assert text.index("if n > 2") < text.index("for i") < text.index("if i < 5")


def test_conditional_values():
    text = hoisted(
        "for i in range(8):",
        "    C[i] = T.if_then_else(n >= 8, A[n - 8], T.float32(0))",
    )
    assert text.index("if n >= 8") < text.index("for i")


def test_copies_are_bounded():
    lines = ("for i in range(8):", "    C[i] = A[i]", "    if n > 2:", "        C[i] = A[7 - i]")
    assert hoisted(*lines).count("for i") == 2
    mod = lowered(program(*lines))
    assert unchanged(transform.HoistInvariants(unswitch_limit=0), mod)
    with PassContext(config={"tir.unswitch_limit": 0}):
        assert unchanged(transform.HoistInvariants(), mod)


@pytest.mark.parametrize(
    "lines",
    [
        ("for i in range(n):", "    if 8 // n > 2:", "        C[i] = A[i]"),
        ("for i in range(n):", "    if A[n - 1] > T.float32(2):", "        C[i] = A[i]"),
        ("for i in range(7):", "    if C[0] > T.float32(2):", "        C[i] = A[i]",
         "    C[0] = C[0] + T.float32(1)"),
        ("for i in range(7):", '    T.evaluate(T.call_extern("f", dtype="int32"))',
         "    if C[0] > T.float32(2):", "        A[i] = C[7]"),
        ("for i in range(8):", "    if i > n:", "        C[i] = A[i]"),
        ("while A[0] < T.float32(n):", "    A[0] = A[0] + T.float32(1)"),
    ],
    ids=["division", "bounds", "written", "call", "dependent", "while"],
)  # fmt: skip
def test_conditions_that_stay(lines):
    assert unchanged(transform.HoistInvariants(), lowered(program(*lines)))


def test_expressions_become_lets_of_the_outermost_loop():
    text = hoisted(
        "for i in range(4):", "    for j in range(2):",
        "        C[i * 2 + j] = T.exp(A[i]) + T.sqrt(A[0])",
    )  # fmt: skip
    lines = [line.strip() for line in text.splitlines()]
    assert lines.index("inv0: T.float32 = T.sqrt(A_1[0])") < lines.index("for i in range(4):")
    assert "inv0_1: T.float32 = T.exp(A_1[i])" in text
    assert text.index("for i") < text.index("T.exp") < text.index("for j")


def test_equal_expressions_share_a_let():
    text = hoisted("for i in range(8):", "    C[i] = T.exp(A[2]) * A[i] - T.exp(A[2])")
    assert text.count("T.exp") == 1


def test_divisions_leave_when_the_divisor_is_not_zero():
    text = hoisted(
        "if n > 0:", "    for i in range(4):", "        C[i] = T.Cast('float32', 100 // n + i)"
    )
    assert "100 // n + i" in text
    text = hoisted("for i in range(4):", "    C[i] = T.Cast('float32', n // 3 + i)")
    assert text.index("n // 3") < text.index("for i")


@pytest.mark.parametrize(
    "value",
    [
        "T.Cast('float32', 100 // n)",
        "A[n - 1]",
        "T.exp(C[7])",
        "T.if_then_else(i > 3, A[n], A[n + 1])",
    ],
)
def test_expressions_that_stay(value):
    mod = lowered(program("for i in range(n):", f"    C[i] = {value}", "    C[7] = A[i]"))
    assert "inv" not in applied(transform.HoistInvariants(), mod, *arrays(3))


def test_loads_in_a_choice_are_safe_if_the_choice_guards_them():
    text = hoisted(
        "for i in range(8):",
        "    C[i] = T.exp(T.if_then_else(n >= 0 and n < 8, A[n], T.float32(0)))",
        unswitch_limit=0,
    )
    assert text.index("T.exp") < text.index("for i")


@pytest.mark.parametrize(
    ("value", "cut"),
    [
        ("T.if_then_else(n > 2, A[i], A[7 - i])", True),
        ("T.if_then_else(n > 2, A[i], T.float32(0))", False),  # cheaper as a mask
        ("T.if_then_else(i > n, A[i], A[7 - i])", False),
        ("T.if_then_else(A[n - 2] > 2, A[i], A[7 - i])", False),  # a load that may fault
        ("T.if_then_else(T.bool(True), A[i], A[7 - i])", False),  # nothing to decide
    ],
)
def test_choices_between_two_reads_leave_loops(value, cut):
    mod = lowered(program("for i in range(8):", f"    C[i] = {value}"))
    for n in (3, 8):
        text = applied(transform.UnswitchChoices(), mod, *arrays(n))
    assert (text.count("for i") == 2) is cut
