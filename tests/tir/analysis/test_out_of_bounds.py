"""The bounds check: what is found, what guards are understood, what the error shows."""

from __future__ import annotations

import pytest

from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import check_out_of_bounds, verify_in_bounds


def function(body: str) -> PrimFunc:
    header = """
@T.prim_func
def main(a: T.handle, B: T.Buffer((16,), "float32"), I: T.Buffer((16,), "int64")):
    n = T.int64()
    A = T.match_buffer(a, (n, 8), "float32")
"""
    return parse(header + body)


def reasons(body: str) -> list[str]:
    return [fault.reason for fault in check_out_of_bounds(function(body))]


def test_what_is_in_bounds_is_not_reported():
    assert not reasons(
        """
    for i, j in T.grid(n, 8):
        with T.block("x"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = A[n - 1 - vi, 7 - vj] + B[vj * 2 + 1]
"""
    )


def test_ends_are_told():
    body = """
    for i in range(16):
        with T.block("x"):
            vi = T.axis.spatial(16, i)
            B[vi] = B[vi - 3] + B[vi + 2] + B[vi * 2 - 1]
"""
    assert reasons(body) == [
        "index (i - 3) of dimension 0 of 'B' (extent 16) may be as low as -3",
        "index (i + 2) of dimension 0 of 'B' (extent 16) may be as high as 17",
        "index ((i * 2) - 1) of dimension 0 of 'B' (extent 16) may be as low as -1 and may be "
        "as high as 29",
    ]
    faults = check_out_of_bounds(function(body))
    assert [(fault.below, fault.above) for fault in faults] == [
        (True, False),
        (False, True),
        (True, True),
    ]
    assert faults[0].buffer.name == "B"
    assert faults[0].axis == 0


def test_symbolic_extents():
    body = """
    for i in range(n):
        with T.block("x"):
            vi = T.axis.spatial(n, i)
            A[vi + 1, 0] = A[vi, 0] + A[n, 1]
"""
    assert reasons(body) == [
        "index n of dimension 0 of 'A' (extent n) is not shown to be below the extent",
        "index (i + 1) of dimension 0 of 'A' (extent n) is not shown to be below the extent",
    ]


@pytest.mark.parametrize(
    "guarded",
    [
        "A[vi, 0] = T.if_then_else(vi < 16, B[vi], T.float32(0))",
        "A[vi, 0] = T.if_then_else(vi >= 20 or vi >= 16, T.float32(0), B[vi])",
        "if vi >= 1 and vi < 17:\n                A[vi, 0] = B[vi - 1]",
        "if vi < 16 and B[vi] > T.float32(0):\n                A[vi, 0] = T.float32(0)",
        "B[T.max(T.min(vi, 15), 0)] = T.float32(0)",
        "B[vi % 16] = T.float32(0)",
    ],
)
def test_guards(guarded: str):
    assert not reasons(
        f"""
    for i in range(n):
        with T.block("x"):
            vi = T.axis.spatial(n, i)
            {guarded}
"""
    )


def test_select_guards_nothing():
    body = """
    for i in range(n):
        with T.block("x"):
            vi = T.axis.spatial(n, i)
            A[vi, 0] = T.Select(vi < 16, B[vi], T.float32(0))
"""
    assert len(reasons(body)) == 1


def test_predicate_of_a_split_with_a_tail():
    body = """
    for i, j in T.grid({tiles}, 4):
        with T.block("x"):
            vi = T.axis.spatial(n, i * 4 + j)
            T.where(i * 4 + j < n)
            A[vi, 0] = A[vi, 1]
"""
    assert not reasons(body.format(tiles="(n + 3) // 4"))
    assert not reasons(body.format(tiles="(n + 3) // 4 + 1"))
    assert (
        len(reasons(body.replace("            T.where(i * 4 + j < n)\n", "").format(tiles="n")))
        == 2
    )


def test_indices_from_memory():
    body = """
    for i in range(16):
        with T.block("x"):
            vi = T.axis.spatial(16, i)
            B[vi] = B[I[vi]]
"""
    assert reasons(body) == ["index I[i] of dimension 0 of 'B' (extent 16) depends on data"]
    assert not reasons(
        body.replace(
            "B[vi] = B[I[vi]]", "if I[vi] >= 0 and I[vi] < 16:\n                B[vi] = B[I[vi]]"
        )
    )


def test_a_guard_that_the_body_overwrites():
    body = """
    for i in range(16):
        with T.block("x"):
            vi = T.axis.spatial(16, i)
            if I[vi] >= 0 and I[vi] < 16:
                I[vi] = T.int64(99)
                B[vi] = B[I[vi]]
"""
    assert len(reasons(body)) == 1


def test_matched_buffers_and_their_regions():
    body = """
    for i in range(4):
        with T.block("x"):
            vi = T.axis.spatial(4, i)
            T.reads(B[vi * 4:vi * 4 + 4])
            T.writes(B[vi * 4:vi * 4 + 4])
            S = T.match_buffer(B[vi * 4:vi * 4 + 4], (4,), "float32")
            for j in range({extent}):
                S[j] = T.float32(0)
"""
    assert not reasons(body.format(extent=4))
    assert reasons(body.format(extent=5)) == [
        "index j of dimension 0 of 'S' (extent 4) may be as high as 4"
    ]


def test_vectors():
    body = """
    for i in range(4):
        with T.block("x"):
            vi = T.axis.spatial(4, i)
            B[T.Ramp(vi * 4 + {shift}, 1, 4)] = T.Broadcast(T.float32(0), 4)
"""
    assert not reasons(body.format(shift=0))
    assert reasons(body.format(shift=1)) == [
        "index ((i * 4) + 1):+4 of dimension 0 of 'B' (extent 16) may be as high as 16"
    ]


def test_the_error_marks_the_accesses():
    func = function(
        """
    for i in range(16):
        with T.block("x"):
            vi = T.axis.spatial(16, i)
            B[vi] = B[vi + 2]
"""
    )
    with pytest.raises(VerifyError) as caught:
        verify_in_bounds(IRModule({"shift": func}))
    text = str(caught.value)
    assert "function 'shift' may access memory out of bounds:" in text
    assert "index (i + 2) of dimension 0 of 'B' (extent 16) may be as high as 17" in text
    lines = text.split("\n")
    marked = next(n for n, line in enumerate(lines) if "B[vi] = B[vi + 2]" in line)
    start = lines[marked].index("B[vi + 2]")
    assert lines[marked + 1] == " " * start + "^" * len("B[vi + 2]")
    verify_in_bounds(function("    B[0] = T.float32(1)"))
