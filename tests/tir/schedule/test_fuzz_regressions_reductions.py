"""Reductions that the fuzzer saw scheduled wrongly, made small; each was a fault once."""

from __future__ import annotations

import pytest
from schedule_cases import refuses

from tilewright.script import parse
from tilewright.support.errors import VerifyError
from tilewright.tir.analysis import verify
from tilewright.tir.schedule import Schedule


def test_a_tail_of_nothing_does_not_begin_a_reduction_again() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(a: T.handle, B: T.Buffer((1,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for u, k in T.grid(1, n):
        with T.block("B"):
            v = T.axis.reduce(n, k)
            with T.init():
                B[0] = T.float32(0)
            B[0] = B[0] + A[v]
""")
    )
    fused = sch.fuse(*sch.get_loops("B"), preserve_unit_iters=True)
    refuses(
        sch,
        lambda: sch.split(fused, [None, 3], tail="peel"),
        "may have no iterations, and would then run the init of block 'B_tail' again",
    )


INIT_READS = """
@T.prim_func
def main(A: T.Buffer((6, 4), "int32"), B: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    for j, k in T.grid(4, 6):
        with T.block("C"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                C[vj] = B[vj]
            C[vj] = C[vj] + A[vk, vj]
"""


def test_an_init_reads_no_copy_by_reduction_axes() -> None:
    sch = Schedule(parse(INIT_READS))
    refuses(
        sch,
        lambda: sch.reindex_cache_read("C", 1, "global", lambda j, k: (k, j)),
        "reduction axes, which the map uses, have no value there",
    )
    sch.reindex_cache_read("C", 1, "global", lambda j, k: (j,))


def test_an_init_uses_no_reduction_axis() -> None:
    func = parse(INIT_READS.replace("C[vj] = B[vj]", "C[vj] = B[vk % 4]"))
    with pytest.raises(VerifyError, match="the init of block 'C' uses reduction axis 'vk'"):
        verify(func)


def test_vectorize_asks_what_verify_asks() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((1, 1), "int32"), Z: T.Buffer((1,), "int32")):
    for i in range(1):
        for k in range(i):
            with T.block("Z"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Z[vi] = T.int32(7)
                Z[vi] = Z[vi] + A[vi, vk]
""")
    )
    outer, _ = sch.split(sch.get_loops("Z")[0], [4, None], tail="overlap")
    loop, _, _ = sch.split(outer, [2, 2, 8])
    refuses(sch, lambda: sch.vectorize(loop), "feeds a reduction axis of block 'Z'")
