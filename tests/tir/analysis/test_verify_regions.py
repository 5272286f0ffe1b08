"""``verify`` refuses blocks whose declared reads or writes leave something out."""

from __future__ import annotations

import pytest

from tilewright import script
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.analysis import verify

HEAD = "from tilewright.script import tir as T\n"

GATHER = """
@T.prim_func
def main(X: T.Buffer((64,)), I: T.Buffer((16,), "int64"), Y: T.Buffer((16,))):
    A = T.alloc_buffer((64,))
    for i in range(64):
        with T.block("A"):
            v = T.axis.spatial(64, i)
            A[v] = X[v] * 2.0
    for i in range(16):
        with T.block("Y"):
            v = T.axis.spatial(16, i)
            Y[v] = A[I[v]]
"""


def block(regions: str, body: str, *, extent: int = 16) -> PrimFunc:
    """A function of one block over ``v`` that reads A (64), I and writes Y (16)."""
    lines = [*regions.split("; "), *body.splitlines()]
    text = "\n".join("            " + line.rstrip() for line in lines if line.strip())
    return script.parse(f"""{HEAD}
@T.prim_func
def main(A: T.Buffer((64,)), I: T.Buffer((16,), "int64"), Y: T.Buffer((16,))):
    for i in range({extent}):
        with T.block("Y"):
            v = T.axis.spatial({extent}, i)
{text}
""")


GOOD = [
    ("T.reads(A[v]); T.writes(Y[v])", "Y[v] = A[v]"),
    ("T.reads(A[0:64]); T.writes(Y[0:16])", "Y[v] = A[v]"),
    ("T.reads(A[0:16]); T.writes(Y[v])", "Y[v] = A[v]"),
    # Data decide, and the region is all of the buffer, or in the index's own words.
    ("T.reads(A[0:64], I[v]); T.writes(Y[v])", "Y[v] = A[I[v]]"),
    ("T.reads(A[I[v]], I[v]); T.writes(Y[v])", "Y[v] = A[I[v]]"),
    ("T.reads(A[0:8], I[v]); T.writes(Y[v])", "Y[v] = A[I[v] % 8]"),
    ("T.reads(A[0:8], I[v]); T.writes(Y[v])", "Y[v] = A[T.max(T.min(I[v], 7), 0)]"),
    ("T.reads(A[v], I[v]); T.writes(Y[0:16])", "Y[I[v]] = A[v]"),
    # Nothing is accessed beyond the buffer, nor where a condition doesn't hold.
    (
        "T.reads(A[T.max(v - 1, 0)], I[v]); T.writes(Y[v])",
        "if I[v] > 0:\n    Y[v] = A[v - 1]",
    ),
    ("T.reads(A[0:8]); T.writes(Y[v])", "if v < 8:\n    Y[v] = A[v]"),
    ("T.reads(A[0:8]); T.writes(Y[v])", "Y[v] = T.if_then_else(v < 8, A[v], T.float32(0))"),
    # A loop is cut short by a condition, or is as short itself.
    (
        "T.reads(A[0:(v + 15) // 16 * 16]); T.writes(Y[v])",
        "for k in range((v + 15) // 16 * 16):\n    if k < 8:\n        Y[v] = A[k]",
    ),
    # What data says is the same for all iterations.
    (
        "T.reads(A[I[v]:I[v] + 4], I[v]); T.writes(Y[v])",
        "for k in range(4):\n    Y[v] = A[I[v] + 3 - k]",
    ),
    # Vectors span what their lanes do.
    (
        "T.reads(A[v + 2:v + 6]); T.writes(Y[0:4])",
        "Y[0:4] = A[T.Ramp(v, 1, 4) + T.Broadcast(2, 4)]",
    ),
    ("T.reads(A[v]); T.writes(Y[0:4])", "Y[0:4] = A[T.Broadcast(v, 4)]"),
    # What the block wrote before.
    ("T.reads(A[v]); T.writes(Y[v])", "Y[v] = A[v]\nY[v] = Y[v] + 1.0"),
    # Of pointers, what is declared counts.
    (
        "T.reads(A[v]); T.writes(Y[v])",
        'T.evaluate(T.call_extern("f", Y.data, A.data, dtype="int32"))',
    ),
]

BAD = [
    ("T.reads(); T.writes(Y[v])", "Y[v] = A[v]", r"reads A\[v:"),
    ("T.reads(A[v]); T.writes()", "Y[v] = A[v]", r"writes Y\[v:"),
    ("T.reads(A[0:15]); T.writes(Y[v])", "Y[v] = A[v]", r"leave out; of A they name \[0:15\]"),
    ("T.reads(A[1:16]); T.writes(Y[v])", "Y[v] = A[v]", "leave out"),
    ("T.reads(A[v], A[v + 1]); T.writes(Y[v])", "Y[v] = A[v + 2]", "leave out"),
    ("T.reads(A[0:4], I[v]); T.writes(Y[v])", "Y[v] = A[I[v]]", "leave out"),
    ("T.reads(A[0:64]); T.writes(Y[v])", "Y[v] = A[I[v]]", r"reads I\[v:"),
    ("T.reads(A[0:4], I[v]); T.writes(Y[v])", "Y[v] = A[I[v] % 8]", "leave out"),
    ("T.reads(A[v], I[v]); T.writes(Y[0:4])", "Y[I[v]] = A[v]", "writes Y"),
    ("T.reads(A[0:8]); T.writes(Y[v])", "if v < 9:\n    Y[v] = A[v]", "leave out"),
    ("T.reads(A[0:8]); T.writes(Y[v])", "if v < 8:\n    Y[v] = A[v]\nY[v] = A[v]", "leave out"),
    (
        "T.reads(A[0:8]); T.writes(Y[v])",
        "Y[v] = T.if_then_else(v < 8, T.float32(0), A[v])",
        "leave out",
    ),
    ("T.reads(A[0:8]); T.writes(Y[v])", "Y[v] = T.Select(v < 8, A[v], T.float32(0))", "leave out"),
    ("T.reads(A[v]); T.writes(Y[v])", "Y[v] = Y[v] + A[v]", "reads Y"),
    ("T.reads(A[v]); T.writes(Y[v])", "if v < 4:\n    Y[v] = A[v]\nY[v] = Y[v] + 1.0", "reads Y"),
    (
        "T.reads(A[0:v]); T.writes(Y[v])",
        "for k in range(v + 1):\n    if k < 8:\n        Y[v] = A[k]",
        "leave out",
    ),
    (
        "T.reads(A[I[v]:I[v] + 3], I[v]); T.writes(Y[v])",
        "for k in range(4):\n    Y[v] = A[I[v] + k]",
        "leave out",
    ),
    (
        "T.reads(A[I[0]:I[0] + 4], I[0:4]); T.writes(Y[v])",
        "for k in range(4):\n    Y[v] = A[I[k] + k]",
        "leave out",
    ),
    (
        "T.reads(A[v:v + 4]); T.writes(Y[0:4])",
        "Y[0:4] = A[T.Ramp(v, 1, 4) + T.Broadcast(2, 4)]",
        "leave out",
    ),
    ("T.reads(A[0:4]); T.writes(Y[v])", "for k in range(5):\n    Y[v] = A[k]", "leave out"),
]


@pytest.mark.parametrize(("regions", "body"), GOOD)
def test_regions_that_hold_all(regions: str, body: str) -> None:
    verify(block(regions, body))


@pytest.mark.parametrize(("regions", "body", "message"), BAD)
def test_regions_that_leave_something_out(regions: str, body: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(block(regions, body))


def test_blocks_around_others_declare_what_these_do() -> None:
    text = f"""{HEAD}
@T.prim_func
def main(A: T.Buffer((8, 8)), Y: T.Buffer((8, 8))):
    for i in range(8):
        with T.block("outer"):
            v = T.axis.spatial(8, i)
            T.reads(A[v, 0:WIDTH])
            T.writes(Y[v, 0:8])
            for j in range(8):
                with T.block("inner"):
                    w = T.axis.spatial(8, j)
                    Y[v, w] = A[v, w]
"""
    verify(script.parse(text.replace("WIDTH", "8")))
    with pytest.raises(VerifyError, match="block 'outer' reads A"):
        verify(script.parse(text.replace("WIDTH", "7")))


def test_a_region_that_data_leave_is_refused() -> None:
    sch = Schedule(script.parse(HEAD + GATHER))
    with pytest.raises(ScheduleError, match="does not surely cover"):
        sch.annotate_buffer_access("Y", 0, "read", lambda v: ((0, 4),))
    sch.annotate_buffer_access("Y", 0, "read", lambda v: ((0, 64),))
    sch.compute_at("A", sch.get_loops("Y")[0])
    verify(sch.mod)


def test_who_takes_it_on_trust_marks_the_block() -> None:
    sch = Schedule(script.parse(HEAD + GATHER))
    sch.unsafe_annotate_buffer_access("Y", 0, "read", lambda v: ((0, 4),))
    assert sch.get(sch.get_block("Y")).annotations["trusted_regions"] is True
    verify(sch.mod)
    hidden = Schedule(script.parse(HEAD + GATHER))
    hidden.unsafe_hide_buffer_access("Y", "read", [0])
    verify(hidden.mod)


def test_the_mark_can_not_be_made_by_hand() -> None:
    sch = Schedule(script.parse(HEAD + GATHER))
    with pytest.raises(ScheduleError, match="taken on trust"):
        sch.annotate(sch.get_block("Y"), "trusted_regions", True)
