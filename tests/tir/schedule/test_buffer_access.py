"""Regions given by hand: what other primitives make of them."""

from __future__ import annotations

import numpy as np
from schedule_cases import chain, check, loop_extents, refuses

from tilewright import te
from tilewright.script import parse
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

WINDOWS = """
from tilewright.script import tir as T
@T.prim_func
def main(A: T.Buffer((64,)), I: T.Buffer((16,), "int64"), C: T.Buffer((16,))):
    B = T.alloc_buffer((64,))
    for i in range(64):
        with T.block("B"):
            vi = T.axis.spatial(64, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[vi * 4 + I[vi]]
"""


def _same(func: PrimFunc, sch: Schedule) -> None:
    rng = np.random.default_rng(0)
    data, where = rng.random(64).astype("float32"), rng.integers(0, 4, 16)
    expected, actual = np.zeros(16, "float32"), np.zeros(16, "float32")
    run(func, data, where, expected)
    run(sch.mod, data, where, actual)
    np.testing.assert_array_equal(actual, expected)


def test_a_known_window_is_computed_where_it_is_used() -> None:
    func = parse(WINDOWS)
    sch = Schedule(func)
    sch.unsafe_annotate_buffer_access("C", 0, "read", lambda i: ((i * 4, i * 4 + 4),))
    sch.compute_at("B", sch.get_loops("C")[0])
    assert loop_extents(sch, "B") == [16, 4]
    _same(func, sch)


def test_a_copy_follows_the_region() -> None:
    func = parse(WINDOWS)
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops("C")[0], [4, 4])
    sch.unsafe_annotate_buffer_access("C", 0, "read", lambda i: ((i * 4, i * 4 + 4),))
    copied = sch.cache_read("C", 0, "local")
    sch.compute_at(copied, outer)
    assert loop_extents(sch, copied) == [4, 16]
    _same(func, sch)


def test_wider_reads_are_fine_narrower_ones_are_not() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    sch.annotate_buffer_access("C", 0, "read", lambda i, j: ((0, 16), (0, 12)))
    sch.compute_at("B", sch.get_loops("C")[0])
    assert loop_extents(sch, "B") == [16, 16, 12]
    check(sch, func)
    sch = Schedule(func)
    for ranges in (lambda i, j: (i + 1, j), lambda i, j: ((i, i), j), lambda i, j: (0, j)):
        refuses(
            sch,
            lambda ranges=ranges: sch.annotate_buffer_access("C", 0, "read", ranges),
            "does not surely cover",
        )
    refuses(
        sch,
        lambda: sch.annotate_buffer_access("C", 0, "read", lambda i, j: ((i, i, i), j)),
        "a range is a pair",
    )


def test_symbolic_windows() -> None:
    n = te.var("n")
    a = te.placeholder((n + 2,), name="A")
    b = te.compute((n + 2,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n,), lambda i: b[i] + b[i + 2], name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    sch.annotate_buffer_access("C", 0, "read", lambda i: ((i, i + 3),))
    refuses(
        sch,
        lambda: sch.annotate_buffer_access("C", 0, "read", lambda i: ((i, i + 2),)),
        "does not surely cover",
    )
    assert len(sch.get(sch.get_block("C")).reads) == 1


def test_hidden_accesses_are_gone_from_the_signature() -> None:
    sch = Schedule(chain(16, 12))
    sch.unsafe_hide_buffer_access("C", "read", [0])
    assert sch.get(sch.get_block("C")).reads == ()
    assert sch.get_producers(sch.get_block("C")) == []
    before = sch.mod
    sch.unsafe_hide_buffer_access("C", "read", [])
    assert sch.mod is before
