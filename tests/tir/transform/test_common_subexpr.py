"""CommonSubexpressionElimination: where the lets go, and what may not be shared."""

from __future__ import annotations

import numpy as np
import pytest
from transform_cases import applied, lowered, program, unchanged

from tilewright.tir import transform


def arrays(n=3):
    return np.arange(8, dtype="float32"), np.zeros(8, "float32"), n


def shared(*lines: str, sizes=(-1, 0, 3, 8)) -> str:
    mod = lowered(program(*lines))
    for n in sizes:
        text = applied(transform.CommonSubexpressionElimination(), mod, *arrays(n))
    return text[text.index("data=C.data)") :]


def test_within_a_statement():
    text = shared("for i in range(8):", "    C[i] = T.exp(A[i]) * (T.exp(A[i]) + A[i])")
    assert text.count("T.exp") == 1 and text.count("A_1[i]") == 1
    assert text.index("for i") < text.index("A_1[i]") < text.index("T.exp") < text.index("C_1[i]")


def test_between_statements_just_before_the_first():
    text = shared("C[0] = A[1]", "C[1] = T.exp(A[0])", "C[2] = A[2]", "C[3] = T.exp(A[0])")
    lines = [line.strip() for line in text.splitlines()]
    assert lines.index("C_1[0] = A_1[1]") < lines.index("cse0: T.float32 = T.exp(A_1[0])")
    assert text.count("T.exp") == 1


def test_loops_and_branches_share_what_is_outside_of_them():
    text = shared(
        "for i in range(8):", "    C[i] = T.Cast('float32', n // 3 + i)",
        "for i in range(8):", "    if n // 3 > i:", "        C[i] = A[i]",
    )  # fmt: skip
    assert text.index("n // 3") < text.index("for i") and text.count("n // 3") == 1


def test_what_only_one_branch_uses_stays_in_it():
    text = shared(
        "if n > 0:",
        "    C[0] = T.exp(A[0])",
        "    C[1] = T.exp(A[0])",
        "else:",
        "    C[2] = A[1]",
    )
    assert text.index("if n > 0") < text.index("T.exp") < text.index("else")
    assert text.count("T.exp") == 1


def test_both_branches_evaluate_it_anyway():
    text = shared("if n > 0:", "    C[0] = T.exp(A[0])", "else:", "    C[2] = T.exp(A[0])")
    assert text.index("T.exp") < text.index("if n > 0") and text.count("T.exp") == 1


def test_costly_values_are_not_computed_in_vain():
    lines = ("if n > 0:", "    C[0] = T.exp(A[0])", "if n > 1:", "    C[2] = T.exp(A[0])")
    assert unchanged(transform.CommonSubexpressionElimination(), lowered(program(*lines)))


def test_cheap_harmless_values_may_be():
    text = shared(
        "if n > 0:", "    C[n % 5] = A[0]", "if n > 1:", "    C[n % 5] = A[1]",
    )  # fmt: skip
    assert text.index("n % 5") < text.index("if n > 0") and text.count("n % 5") == 1


@pytest.mark.parametrize(
    "lines",
    [
        ("if n > 0:", "    C[0] = T.Cast('float32', 100 // n)",
         "if n > 1:", "    C[1] = T.Cast('float32', 100 // n)"),
        ("if n > 0:", "    C[0] = A[n - 1] + A[0]", "if n > 1:", "    C[1] = A[n - 1]"),
        ("C[0] = T.if_then_else(n > 0, T.Cast('float32', 100 // n), T.float32(0))",
         "C[1] = T.if_then_else(n > 0, T.Cast('float32', 100 // n), T.float32(1))"),
    ],
    ids=["division", "bounds", "choice"],
)  # fmt: skip
def test_what_may_trap_is_not_evaluated_early(lines):
    text = shared(*lines)
    assert "cse" not in text or "100 // n" not in text[: text.index("if")]
    mod = lowered(program(*lines))
    applied(transform.CommonSubexpressionElimination(), mod, *arrays(0))


def test_what_may_trap_is_shared_where_it_is_evaluated_anyway():
    text = shared("C[0] = A[n]", "C[1] = A[n]", sizes=(0, 3))
    assert text.count("A_1[n]") == 1


def test_an_assertion_before_the_first_use_still_guards():
    text = shared(
        "C[0] = A[1]", "assert n != 0, 'zero'",
        "C[1] = T.Cast('float32', 100 // n)", "C[2] = T.Cast('float32', 100 // n)", sizes=(3,),
    )  # fmt: skip
    assert text.index("assert") < text.index("100 // n") and text.count("100 // n") == 1


def test_a_write_in_between_divides_the_uses():
    text = shared(
        "C[0] = T.exp(A[0])", "C[1] = T.exp(A[0])", "A[0] = T.float32(2)",
        "C[2] = T.exp(A[0])", "C[3] = T.exp(A[0])",
    )  # fmt: skip
    assert text.count("T.exp") == 2


def test_a_store_reads_before_it_writes():
    text = shared("C[1] = T.exp(A[0])", "A[0] = T.exp(A[0])", "C[2] = T.exp(A[0])")
    assert text.count("T.exp") == 2


def test_a_loop_that_changes_what_its_condition_reads():
    lines = (
        "while T.exp(A[0]) > T.float32(0.5) and T.exp(A[0]) < T.float32(9):",
        "    A[0] = A[0] + T.float32(1)",
        "    C[0] = T.exp(A[0])",
    )
    text = shared(*lines)
    assert text.index("while") < text.index("C_1[0]")
    assert text[: text.index("while")].count("exp") == 0


def test_a_call_may_write_anything():
    lines = ("C[0] = T.exp(A[0])", 'T.evaluate(T.call_extern("f", dtype="int32"))',
             "C[1] = T.exp(A[0])")  # fmt: skip
    assert unchanged(transform.CommonSubexpressionElimination(), lowered(program(*lines)))


def test_parameters_that_may_overlap():
    lines = ("C[0] = T.exp(A[0])", "C[1] = T.exp(A[0])")
    text = program('T.func_attr({"tir.noalias": False})', *lines)
    assert unchanged(transform.CommonSubexpressionElimination(), lowered(text))


def test_variables_of_inner_loops_stay_inside():
    text = shared(
        "for i in range(2):", "    for j in range(4):", "        C[i * 4 + j] = A[(i * 4 + j) % 5]",
        "    for j in range(4):", "        C[i * 4 + j] = A[(i * 4 + j) % 5] + T.float32(1)",
    )  # fmt: skip
    assert "cse" not in text


def test_larger_expressions_first_then_what_they_leave():
    text = shared(
        "C[0] = T.exp(A[n % 5] + T.float32(1))", "C[1] = T.exp(A[n % 5] + T.float32(1))",
        "C[2] = A[n % 5]",
    )  # fmt: skip
    assert text.count("T.exp") == 1 and text.count("A_1[") == 1 and text.count("n % 5") == 1


def test_the_least_cost():
    mod = lowered(program("C[0] = T.exp(A[0]) * T.exp(A[0])"))
    assert not unchanged(transform.CommonSubexpressionElimination(), mod)
    assert unchanged(transform.CommonSubexpressionElimination(min_cost=50), mod)
