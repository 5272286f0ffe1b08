"""RemoveNoOp: statements without effect go, those with one stay."""

from __future__ import annotations

import numpy as np
import pytest
from transform_cases import applied, lowered, unchanged

from tilewright.tir import transform


def program(*lines: str) -> str:
    text = "".join(f"    {line}\n" for line in lines)
    return (
        "@T.prim_func\n"
        'def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"), n: T.int64):\n'
        f"{text}"
    )


def arrays():
    return np.arange(8, dtype="float32"), np.zeros(8, "float32"), 3


def removed(*lines: str) -> str:
    """The body after the pass, without the declarations of flat buffers."""
    text = applied(transform.RemoveNoOp(), lowered(program(*lines)), *arrays())
    return text[text.index(":\n", text.index("def main")) :]


def test_empty_loops_and_branches():
    text = removed(
        "for i in range(8):",
        "    if i < n:",
        "        C[i] = C[i]",
        "    else:",
        "        T.evaluate(0)",
        "for i in range(n, n):",
        "    T.evaluate(i)",
        "C[0] = A[1]",
    )
    assert "for" not in text and "if" not in text and "= A_1[1]" in text


def test_an_empty_then_turns_the_condition():
    text = removed("if n < 2:", "    C[1] = C[1]", "else:", "    C[0] = A[1]")
    assert "if not n < 2" in text and "else" not in text


def test_loops_that_never_run():
    text = removed("for i in range(0):", "    C[i] = A[i]", "C[3] = A[0]")
    assert "for" not in text


def test_dead_lets_go_with_what_only_they_needed():
    text = removed(
        "x: T.float32 = A[1]",
        "y: T.float32 = x + T.float32(1)",
        "C[0] = A[2]",
    )
    assert "x" not in text and "y" not in text


def test_memory_that_nothing_reads():
    text = removed(
        'B = T.allocate((8,), "float32")',
        'D = T.allocate((8,), "float32")',
        "for i in range(8):",
        "    D[i] = A[i]",
        "    B[i] = D[i] + B[i]",
        "C[0] = A[2]",
    )
    assert "allocate" not in text and "for" not in text


def test_memory_that_feeds_a_condition_stays():
    text = removed(
        'B = T.allocate((8,), "float32")',
        "for i in range(8):",
        "    B[i] = A[i]",
        "for i in range(8):",
        "    if B[i] > T.float32(3):",
        "        C[i] = T.float32(1)",
    )
    assert "allocate" in text and text.count("for") == 2


def test_a_store_of_what_was_just_loaded():
    text = removed("x: T.float32 = C[2]", "C[2] = x", "C[3] = A[0]")
    assert "C_1[2]" not in text


def test_a_store_after_the_place_has_changed_stays():
    text = removed("x: T.float32 = A[2]", "A[2] = A[3]", "A[2] = x")
    assert text.count("A_1[2] =") == 2


def test_a_store_in_a_loop_that_changes_the_place_stays():
    text = removed(
        "x: T.float32 = A[2]", "for i in range(2):", "    A[2] = x", "    A[i + 2] = A[0]"
    )
    assert "A_1[2] = x" in text


@pytest.mark.parametrize(
    "lines",
    [
        ("while A[0] < T.float32(0):", "    T.evaluate(0)"),
        ("assert n == 3, 'wrong'",),
        ('T.evaluate(T.call_extern("f", dtype="int32"))',),
        ("for i in range(8):", "    C[i] = C[7 - i]"),
    ],
    ids=["endless", "assert", "call", "reversal"],
)
def test_what_has_an_effect_stays(lines):
    assert unchanged(transform.RemoveNoOp(), lowered(program(*lines)))
