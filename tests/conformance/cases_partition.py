"""Cases of loop_partition and merge."""

from __future__ import annotations

from cases_loops import SIZES, annotated, loop
from conformance_cases import (
    Accept,
    Example,
    Refuse,
    chain,
    matmul,
    script,
    symbolic_chain,
    symbolic_matmul,
)

from tilewright.tir.schedule import LoopRV, Schedule

_longer = script(
    """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(b, (n + 2,), "float32")
    for i in range(n + 2):
        with T.block("C"):
            v = T.axis.spatial(n + 2, i)
            C[v] = T.if_then_else(v < n, A[v], T.float32(1))
"""
)


_reversed = script(
    """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[7 - vi] + T.float32(1)
"""
)

_two_statements = script(
    """
@T.prim_func
def main(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32")):
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(10):
        B[i] = B[i] + T.float32(1)
"""
)


def _top_loops(sch: Schedule) -> list:
    return [LoopRV("main", var) for var in sch.state.index("main").loops]


def _merge_partitioned(sch: Schedule) -> None:
    sch.merge(*sch.loop_partition(loop(sch, "B"), [8, 4, 4])[1:])


def _merge_with_deeper(sch: Schedule) -> None:
    sch.merge(loop(sch, "B", 1), loop(sch, "C", 0))


def _merge_gapped(sch: Schedule) -> None:
    sch.compute_at("C", loop(sch, "D", 0))
    sch.merge(loop(sch, "D", 1), loop(sch, "B", 1))


PARTITION = [
    Accept("loop_partition", matmul, lambda s: s.loop_partition(loop(s), [2, 3])),
    Accept("loop_partition", matmul, lambda s: s.loop_partition(loop(s, "C", 2), [2, None])),
    Accept(
        "loop_partition",
        _longer,
        lambda s: s.loop_partition(loop(s), [1], preserve_unit_iters=False),
        SIZES,
    ),
    Accept("loop_partition", _longer, lambda s: s.loop_partition(loop(s), [2]), SIZES),
    Refuse(
        "loop_partition",
        "provably add up",
        symbolic_chain,
        lambda s: s.loop_partition(loop(s), [1]),
        "not known to be no more than the extent n",
    ),
    Example(
        "loop_partition",
        lambda s: s.loop_partition(loop(s, "B"), [1, None]),
        {"A": "(100,)", "B": "(100,)"},
    ),
    Refuse(
        "loop_partition",
        "carries no annotations",
        matmul,
        lambda s: s.loop_partition(annotated(s), [2]),
        "has annotations",
    ),
    Refuse(
        "loop_partition",
        "at most one is None",
        matmul,
        lambda s: s.loop_partition(loop(s), []),
        "at least one factor",
    ),
    Refuse(
        "loop_partition",
        "provably add up",
        symbolic_matmul,
        lambda s: s.loop_partition(loop(s), [2]),
        "not known to be no more than the extent n",
    ),
]

MERGE = [
    Accept("merge", chain, lambda s: s.merge(*(loop(s, name, 1) for name in "BCD"))),
    Accept("merge", chain, _merge_partitioned),
    Accept("merge", symbolic_chain, lambda s: s.merge(*(loop(s, name) for name in "DCB")), SIZES),
    Example(
        "merge",
        lambda s: s.merge(loop(s, "B"), loop(s, "C")),
        {"A": "(16,)", "C": "(16,)"},
        'B = T.alloc_buffer((16,), "float32")',
        'B = T.alloc_buffer((16,), "float32")',
    ),
    Refuse("merge", "at least two", chain, lambda s: s.merge(loop(s)), "at least two loops"),
    Refuse(
        "merge",
        "carry no annotations",
        chain,
        lambda s: s.merge(annotated(s, "B"), loop(s)),
        "has annotations",
    ),
    Refuse(
        "merge",
        "only statement in the loops around",
        chain,
        _merge_gapped,
        "not the only statement in the loops",
    ),
    Refuse("merge", "equally deep", chain, _merge_with_deeper, "2 deep below"),
    Refuse(
        "merge",
        "nothing is between",
        chain,
        lambda s: s.merge(loop(s, "B"), loop(s, "D")),
        "something is between",
    ),
    Refuse(
        "merge",
        "declare what they write",
        _two_statements,
        lambda s: s.merge(*_top_loops(s)),
        "a statement outside blocks",
    ),
    Refuse(
        "merge",
        "in a later iteration only",
        _reversed,
        lambda s: s.merge(loop(s, "B"), loop(s, "C")),
        "touches in a later iteration only",
    ),
]

CASES = [*PARTITION, *MERGE]
