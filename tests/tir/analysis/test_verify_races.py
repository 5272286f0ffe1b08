"""The verifier refuses loops whose iterations would update one element at the same time."""

from __future__ import annotations

import pytest

from tilewright.script import parse
from tilewright.support.errors import VerifyError
from tilewright.tir.analysis import verify

THREADS = 'thread_binding(8, thread="{}")'
KINDS = [
    "parallel(8)",
    "vectorized(8)",
    *(THREADS.format(tag) for tag in ("blockIdx.x", "threadIdx.x", "vthread")),
]

REDUCTION = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        for k in T.{kind}:
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(1)
                B[vi] = {value}
"""
SUM = "B[vi] + A[vi, vk]"
ORDERED = "B[vi] * T.float32(3) + A[vi, vk]"


def refuse(text: str, loop: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message) as caught:
        verify(parse(text))
    lines = str(caught.value).splitlines()
    marks = [number for number, line in enumerate(lines) if line.strip().startswith("^")]
    assert len(marks) == 1 and loop in lines[marks[0] - 1]


def in_main(body: str) -> str:
    """A function of these statements, of inputs ``A`` and outputs ``B`` and ``C``."""
    lines = body.strip().replace("\n", "\n    ")
    return f"""
@T.prim_func
def main(
    A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4, 8), "float32")
):
    {lines}
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [SUM, ORDERED, "A[vi, vk] - B[vi]"])
def test_a_reduction_over_a_loop_whose_iterations_run_at_once(kind: str, value: str) -> None:
    text = REDUCTION.format(kind=kind, value=value)
    if "threadIdx" in kind and value == SUM:
        verify(parse(text))  # threads combine what they sum up
        return
    refuse(text, "for k in", "loop 'k'.* feeds a reduction axis of block 'B'")


@pytest.mark.parametrize("kind", ["serial(8)", "unroll(8)", "parallel(1)", "vectorized(1)"])
def test_one_iteration_after_the_other(kind: str) -> None:
    verify(parse(REDUCTION.format(kind=kind, value=ORDERED)))


@pytest.mark.parametrize(
    ("spatial", "accepted"),
    [("f", True), ("3 - f", True), ("f // 2", False), ("f % 2", False), ("0", False)],
)
def test_a_loop_that_feeds_both_kinds_of_axes(spatial: str, accepted: bool) -> None:
    text = in_main(f"""
for f in T.parallel(4):
    with T.block("B"):
        vi = T.axis.spatial(4, {spatial})
        vk = T.axis.reduce(8, f)
        B[vi] = B[vi] + A[vi, vk]
""")
    if accepted:
        verify(parse(text))
    else:
        refuse(text, "for f in", "feeds a reduction axis")


def test_by_way_of_a_loop_a_variable_or_a_block() -> None:
    loop = """
for k in T.parallel(4):
    for j in range(k * 2, k * 2 + 2):
        with T.block("B"):
            vk = T.axis.reduce(8, j)
            B[0] = B[0] + A[0, vk]
"""
    variable = """
for k in T.parallel(4):
    with T.LetStmt(k * 2) as j:
        with T.block("B"):
            vk = T.axis.reduce(8, j)
            B[0] = B[0] + A[0, vk]
"""
    block = """
for k in T.parallel(4):
    with T.block("outer"):
        w = T.axis.reduce(4, k)
        for j in range(2):
            with T.block("B"):
                vk = T.axis.reduce(8, w * 2 + j)
                B[0] = B[0] + A[0, vk]
"""
    for body in (loop, variable, block):
        refuse(in_main(body), "for k in", "feeds a reduction axis")


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_that_a_loop_repeats(kind: str) -> None:
    text = in_main(f"""
for r in T.{kind}:
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = B[vi] * T.float32(2)
""")
    refuse(text, "for r in", "iterations of .* loop 'r'.* would update the same elements of 'B'")


def test_an_update_by_another_name() -> None:
    text = in_main("""
for i in range(4):
    with T.block("B"):
        vi = T.axis.spatial(4, i)
        T.reads(B[vi], A[vi, 0:8])
        T.writes(B[vi])
        view = T.match_buffer(B[vi], (1,))
        for k in T.parallel(8):
            view[0] = view[0] + A[vi, k]
""")
    refuse(text, "for k in", "would update the same elements of 'view'")


@pytest.mark.parametrize("how", ["alloc_buffer", "allocate"])
def test_memory_that_is_allocated_in_the_loop(how: str) -> None:
    body = f"""
for i in T.parallel(4):
    with T.block("B"):
        vi = T.axis.spatial(4, i)
        T.reads(A[vi, 0:8])
        T.writes(B[vi])
        acc = T.{how}((1,), "float32")
        acc[0] = T.float32(0)
        for k in range(8):
            acc[0] = acc[0] + A[vi, k]
        B[vi] = acc[0]
"""
    verify(parse(in_main(body)))


def test_memory_that_only_the_loop_uses() -> None:
    body = """
acc = T.alloc_buffer((1,), "float32")
for i in T.parallel(4):
    with T.block("zero"):
        acc[0] = T.float32(0)
    for k in range(8):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            acc[0] = acc[0] + A[vi, vk]
    with T.block("B"):
        vi = T.axis.spatial(4, i)
        B[vi] = acc[0]
"""
    verify(parse(in_main(body)))


def test_shared_memory_that_is_used_after_the_loop_too() -> None:
    text = in_main("""
acc = T.alloc_buffer((1,), "float32")
for i in T.parallel(4):
    for k in range(8):
        with T.block("sum"):
            vi = T.axis.opaque(4, i)
            vk = T.axis.reduce(8, k)
            acc[0] = acc[0] + A[vi, vk]
with T.block("B"):
    B[0] = acc[0]
""")
    refuse(text, "for i in", "would update the same elements of 'acc'")


def test_what_calls_do_is_not_known_and_conditions_may_choose() -> None:
    atomic = """
for k in T.parallel(8):
    with T.block("B"):
        vk = T.axis.reduce(8, k)
        T.reads(A[0, vk], B[0])
        T.writes(B[0])
        T.evaluate(T.atomic_add(T.address_of(B[0], dtype="handle"), A[0, vk]))
"""
    chosen = """
for k in T.parallel(8):
    with T.block("B"):
        vk = T.axis.opaque(8, k)
        T.reads(A[0, vk], B[0])
        T.writes(B[0])
        if vk == 3:
            B[0] = B[0] + A[0, vk]
"""
    where = """
for k in T.parallel(8):
    with T.block("B"):
        vk = T.axis.opaque(8, k)
        T.where(k == 3)
        B[0] = B[0] + A[0, vk]
"""
    for body in (atomic, chosen, where):
        verify(parse(in_main(body)))


@pytest.mark.parametrize("tag", ["blockIdx.x", "threadIdx.x"])
def test_global_memory_is_one_for_all_blocks_and_threads(tag: str) -> None:
    body = f"""
S = T.alloc_buffer((1,), "float32")
for i in T.{THREADS.format(tag)}:
    for k in range(4):
        with T.block("S"):
            vk = T.axis.reduce(4, k)
            with T.init():
                S[0] = T.float32(0)
            S[0] = S[0] + A[vk, 0]
    with T.block("C"):
        vi = T.axis.spatial(8, i)
        C[0, vi] = S[0]
"""
    refuse(in_main(body), "for i in", "would update the same elements of 'S' at once")
    verify(parse(in_main(body.replace(f"T.{THREADS.format(tag)}", "T.parallel(8)"))))
