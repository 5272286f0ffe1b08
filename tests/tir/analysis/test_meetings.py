"""Iterations that run at once and meet at an element are refused, wherever the accesses stand."""

from __future__ import annotations

import pytest

from tilewright.script import parse
from tilewright.support.errors import VerifyError
from tilewright.tir import For, PrimFunc
from tilewright.tir.analysis import find_race, verify
from tilewright.tir.walk import statements


def function(body: str) -> PrimFunc:
    lines = body.strip().replace("\n", "\n    ")
    return parse(f"""
@T.prim_func
def main(
    A: T.Buffer((64,), "float32"), B: T.Buffer((65,), "float32"), C: T.Buffer((65,), "float32"),
    I: T.Buffer((64,), "int64"),
):
    {lines}
""")


def of_any_size(body: str) -> PrimFunc:
    lines = body.strip().replace("\n", "\n    ")
    return parse(f"""
@T.prim_func
def main(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n + 1,), "float32")
    C = T.match_buffer(c, (n + 1,), "float32")
    {lines}
""")


def in_blocks(first: str, second: str, kind: str = "parallel(60)") -> str:
    """A loop around two blocks of one statement each, of an axis ``v``."""
    return f"""
for i in T.{kind}:
    with T.block("first"):
        v = T.axis.spatial(60, i)
        {first}
    with T.block("second"):
        v = T.axis.spatial(60, i)
        {second}
"""


KINDS = ["parallel(60)", "vectorized(60)", 'thread_binding(60, thread="blockIdx.x")']


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_uses_what_another_iteration_makes(kind: str) -> None:
    func = function(in_blocks("B[v] = A[v]", "C[v] = B[v + 1]", kind))
    with pytest.raises(VerifyError, match=r"iteration 1 writes B\[1\], and iteration 0 reads it"):
        verify(func)


@pytest.mark.parametrize(
    "kind", ["serial(60)", "unroll(60)", 'thread_binding(60, thread="threadIdx.x")']
)
def test_one_after_the_other_or_up_to_a_barrier(kind: str) -> None:
    verify(function(in_blocks("B[v] = A[v]", "C[v] = B[v + 1]", kind)))


RACES = [
    in_blocks("B[v] = A[v]", "C[v] = B[T.max(v - 1, 0)]"),
    in_blocks("C[v] = B[v + 1]", "B[v] = A[v]"),
    in_blocks("B[v] = A[v]", "C[v] = B[v + 5]"),
    in_blocks("B[v] = A[v]", "C[v] = B[59 - v]"),
    in_blocks("B[v] = A[v]", "B[v + 1] = A[v] * T.float32(2)"),
    in_blocks("B[0] = A[v]", "C[v] = B[0]"),
    # Without blocks, and of one statement alone.
    "for i in T.parallel(60):\n    C[i] = B[i + 1]\n    B[i] = A[i]",
    "for i in T.parallel(60):\n    B[0] = B[0] + A[i]",
    "for i in T.parallel(60):\n    B[i // 2] = A[i]",
    "for i in T.parallel(60):\n    B[i + 1] = B[i]",
    "for i in T.parallel(60):\n    if i < 3:\n        B[0] = A[i]",
    # Tiles that meet at their borders.
    """
for i in T.parallel(4):
    for j in range(16):
        B[i * 16 + j] = A[i * 16 + j]
    for j in range(16):
        C[i * 16 + j] = B[i * 16 + j + 1]
""",
    """
for t in range(2):
    for i in T.parallel(60):
        B[i] = A[i] + C[i]
        C[i] = B[i + 1]
""",
    # Lanes do all of one statement before they do the next, and read before they write.
    "for i in T.vectorized(8):\n    B[i] = A[i]\n    C[i] = B[i + 1]",
    "for i in T.vectorized(8):\n    B[i + 1] = B[i]",
    "for i in T.vectorized(8):\n    B[i] = A[i]\n    B[i + 1] = A[i] * T.float32(2)",
    """
for i in T.vectorized(8):
    for k in range(2):
        C[i * 2 + k] = B[i]
        B[i + 1] = A[k]
""",
]


@pytest.mark.parametrize("body", RACES)
def test_what_meets_is_refused(body: str) -> None:
    with pytest.raises(VerifyError, match=r"would race: iteration|update the same elements"):
        verify(function(body))


LEFT_ALONE = [
    in_blocks("B[v] = A[v]", "C[v] = B[v]"),
    # The same values: a halo is computed twice.
    in_blocks("B[v] = A[v]", "B[v + 1] = A[v + 1]"),
    in_blocks("B[0] = T.float32(1)", "C[v] = B[0]"),
    """
for i in T.parallel(3):
    for j in range(17):
        B[i * 16 + j] = A[i * 16 + j]
    for j in range(16):
        C[i * 16 + j] = B[i * 16 + j + 1]
""",
    # Data decide.
    in_blocks("B[I[v]] = A[v]", "C[v] = B[v]"),
    "for i in T.parallel(60):\n    if A[i] > T.float32(0):\n        B[0] = A[i]",
    # Not both happen, or one is dropped.
    "for i in T.parallel(60):\n    B[i] = A[i]\n    if i > 70:\n        C[i] = B[63 - i]",
    "for i in T.parallel(60):\n    if i == 3:\n        B[0] = A[i]\n    C[i] = A[i]",
    in_blocks("B[v] = A[v]", "C[v] = T.Select(v > 70, B[59 - v], T.float32(0))"),
    # Only the loop uses the memory, so that it is each iteration's.
    "D = T.alloc_buffer((64,))\n" + in_blocks("D[0] = A[v]", "C[v] = D[0]").strip(),
    # Lanes that go together read before they write, as one after the other does.
    "for i in T.vectorized(8):\n    C[i] = B[i + 1]\n    B[i] = A[i]",
    "for i in T.vectorized(8):\n    B[i] = B[i + 1]",
    "for i in T.vectorized(8):\n    B[0] = A[i]",
    # Other iterations of a loop around.
    "for t in range(2):\n    for i in T.parallel(32):\n        B[i + t * 32] = B[i + 32 - t * 32]",
]


@pytest.mark.parametrize("body", LEFT_ALONE)
def test_what_is_not_seen_to_meet_is_left_alone(body: str) -> None:
    verify(function(body))


def test_of_sizes_that_are_not_known() -> None:
    for body, size in [
        ("for i in T.parallel(n):\n    B[i] = A[i]\n    C[i] = B[i + 1]", 8),
        (
            "for i in T.parallel(n // 32):\n    for j in range(32):\n        B[i * 32 + j] = 1.0\n"
            "    C[i] = B[i * 32 + 32]",
            200,
        ),
    ]:
        with pytest.raises(VerifyError, match=rf"iteration 1 \(of n = {size}\) writes"):
            verify(of_any_size(body))
        verify(of_any_size(f'assert n < 2, "too large"\n{body}'))
    verify(of_any_size("for i in T.parallel(n):\n    B[i] = A[i]\n    C[i] = B[i]"))


def test_after_a_primitive_only_what_has_changed_is_looked_at() -> None:
    func = function(
        in_blocks("B[v] = A[v]", "C[v] = B[v + 1]") + "for i in range(8):\n    I[i] = i"
    )
    racing, other = [item for item in statements(func) if type(item) is For]
    assert find_race(func, known=[racing]) is None
    found = find_race(func, known=[other])
    assert found is not None and found[0] is racing
