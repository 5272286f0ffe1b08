"""Cases of reductions whose updates don't commute."""

from __future__ import annotations

from conformance_cases import Accept, Refuse, script

COMMUTE = "updates of a reduction commute"

POLYNOMIAL = script("""
@T.prim_func
def main(A: T.Buffer((4, 6, 3), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i, l, k in T.grid(4, 3, 6):
        with T.block("B"):
            v, r, s = T.axis.remap("SRR", [i, k, l])
            with T.init():
                B[v] = T.float32(1)
            B[v] = B[v] * T.float32(2) + A[v, r, s]
    for i in range(4):
        with T.block("C"):
            v = T.axis.spatial(4, i)
            C[v] = B[v] + T.float32(1)
""")
OF_ROWS = script("""
@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4, 6), "float32")
    for i, j in T.grid(4, 6):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] + T.float32(1)
    for i, j in T.grid(4, 6):
        with T.block("C"):
            v, r = T.axis.remap("SR", [i, j])
            with T.init():
                C[v] = T.float32(1)
            C[v] = C[v] * T.float32(2) + B[v, r]
""")

CASES = [
    Accept("reorder", POLYNOMIAL, lambda s: s.reorder(s.get_loops("B")[1], s.get_loops("B")[0])),
    Accept(
        "transform_block_layout",
        POLYNOMIAL,
        lambda s: s.transform_block_layout("B", lambda i, k, l: (l * 6 + k, i)),
    ),
    Accept("reverse_compute_at", OF_ROWS, lambda s: s.reverse_compute_at("C", s.get_loops("B")[0])),
    Refuse(
        "reorder",
        COMMUTE,
        POLYNOMIAL,
        lambda s: s.reorder(s.get_loops("B")[2], s.get_loops("B")[1]),
        "don't commute",
    ),
    Refuse(
        "transform_block_layout",
        COMMUTE,
        POLYNOMIAL,
        lambda s: s.transform_block_layout("B", lambda i, k, l: (i, k, l)),
        "don't commute",
    ),
    Refuse(
        "compute_at",
        COMMUTE,
        POLYNOMIAL,
        lambda s: s.compute_at("B", s.get_loops("C")[0]),
        "don't commute",
    ),
    Refuse(
        "reverse_compute_at",
        COMMUTE,
        OF_ROWS,
        lambda s: s.reverse_compute_at("C", s.split(s.get_loops("B")[1], [2, 3])[0]),
        "each do a part",
    ),
]
