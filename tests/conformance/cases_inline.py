"""Cases of moving computation into its producers and consumers: inlining."""

from __future__ import annotations

from cases_move import ALLOCATED, FIVE, ROOT, VECTORS, early, row_sums, windows
from conformance_cases import (
    Accept,
    Example,
    Refuse,
    chain,
    matmul,
    script,
    symbolic_chain,
)
from programs_of_scopes import partial, rewritten, scan, shapes

vectors = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
    for i in range(2):
        with T.block("C"):
            vi = T.axis.spatial(2, i)
            C[T.Ramp(vi * 4, 1, 4)] = B[T.Ramp(vi * 4, 1, 4)]
"""
)

bordered = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((10,))):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            C[vi] = T.if_then_else(vi >= 1 and vi < 9, B[vi - 1], T.float32(0))
"""
)
CASES = [
    # ---- compute_inline
    Accept("compute_inline", chain, lambda s: s.compute_inline("C")),
    Accept("compute_inline", windows, lambda s: s.compute_inline("B")),
    Accept("compute_inline", symbolic_chain, lambda s: s.compute_inline("B"), sizes=FIVE),
    Refuse(
        "compute_inline",
        "its axes are spatial",
        row_sums,
        lambda s: s.compute_inline("C"),
        "is not complete",
    ),
    Refuse(
        "compute_inline",
        "allocated in its scope",
        windows,
        lambda s: s.compute_inline("D"),
        "an output block",
    ),
    Refuse(
        "compute_inline",
        "changed after it",
        scan,
        lambda s: s.compute_inline("D"),
        "in later iterations",
    ),
    Refuse(
        "compute_inline",
        "the predicate of the block",
        partial,
        lambda s: s.compute_inline("B"),
        "restricts it beyond its domain",
    ),
    Refuse(
        "compute_inline",
        "read only elements that the block makes",
        script(
            """
@T.prim_func
def main(A: T.Buffer((4,)), D: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = B[vi]
"""
        ),
        lambda s: s.compute_inline("B"),
        "block 'D' may read elements of B that block 'B' doesn't make, along axis 0",
    ),
    Refuse(
        "compute_inline",
        "consists of one store",
        script(
            """
@T.prim_func
def main(A: T.Buffer((8,)), D: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    C = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
            C[vi] = A[vi] + T.float32(1)
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = B[vi] + C[vi]
"""
        ),
        lambda s: s.compute_inline("B"),
        "more than one store",
    ),
    Refuse(
        "compute_inline",
        "can be solved",
        script(
            """
@T.prim_func
def main(A: T.Buffer((8,)), D: T.Buffer((8,))):
    B = T.alloc_buffer((8, 8))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi, vi] = A[vi]
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = B[vi, vi]
"""
        ),
        lambda s: s.compute_inline("B"),
        "can't be solved",
    ),
    Refuse(
        "compute_inline",
        "as a vector",
        vectors,
        lambda s: s.compute_inline("B"),
        "is read as a vector",
    ),
    Refuse(
        "compute_inline",
        "as a vector",
        shapes,
        lambda s: s.compute_inline("P"),
        "through its pointer",
    ),
    Refuse("compute_inline", "another block", chain, lambda s: s.compute_inline("root"), ROOT),
    Example("compute_inline", lambda s: s.compute_inline("B"), VECTORS, ALLOCATED),
    # ---- reverse_compute_inline
    Accept("reverse_compute_inline", chain, lambda s: s.reverse_compute_inline("D")),
    Accept("reverse_compute_inline", windows, lambda s: s.reverse_compute_inline("D")),
    Accept(
        "reverse_compute_inline",
        symbolic_chain,
        lambda s: s.reverse_compute_inline("C"),
        sizes=FIVE,
    ),
    Refuse(
        "reverse_compute_inline",
        "are complete",
        matmul,
        lambda s: s.reverse_compute_inline("C"),
        "is not complete",
    ),
    Refuse(
        "reverse_compute_inline",
        "run all of its domain",
        partial,
        lambda s: s.reverse_compute_inline("C"),
        "don't run all",
    ),
    Refuse(
        "reverse_compute_inline",
        "has a producer",
        rewritten,
        lambda s: s.reverse_compute_inline("E"),
        "has no producer",
    ),
    Refuse(
        "reverse_compute_inline",
        "the consumer alone reads it",
        script(
            """
@T.prim_func
def main(A: T.Buffer((8,)), D: T.Buffer((8,)), E: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = B[vi]
    for i in range(8):
        with T.block("E"):
            vi = T.axis.spatial(8, i)
            E[vi] = B[vi]
"""
        ),
        lambda s: s.reverse_compute_inline("D"),
        "not the only consumer of B",
    ),
    Refuse(
        "reverse_compute_inline",
        "one store of a scalar each",
        vectors,
        lambda s: s.reverse_compute_inline("C"),
        "stores a vector",
    ),
    Refuse(
        "reverse_compute_inline",
        "when the producer runs",
        script(
            """
@T.prim_func
def main(A: T.Buffer((8,)), E: T.Buffer((8,))):
    C = T.alloc_buffer((8,))
    D = T.alloc_buffer((8,))
    for k in range(8):
        with T.block("C"):
            vk = T.axis.spatial(8, k)
            C[7 - vk] = A[vk] * T.float32(2)
        with T.block("D"):
            vk = T.axis.spatial(8, k)
            D[vk] = A[vk] * T.float32(2)
    for k in range(8):
        with T.block("E"):
            vk = T.axis.spatial(8, k)
            E[vk] = D[vk] + C[vk]
"""
        ),
        lambda s: s.reverse_compute_inline("E"),
        "not all of it may be there",
    ),
    Refuse(
        "reverse_compute_inline",
        "nobody needs what",
        early,
        lambda s: s.reverse_compute_inline("C"),
        "reads C before block 'C' writes it",
    ),
    Refuse(
        "reverse_compute_inline",
        "reads one element",
        windows,
        lambda s: s.reverse_compute_inline("C"),
        "several elements of B",
    ),
    Refuse(
        "reverse_compute_inline",
        "made by the producer",
        bordered,
        lambda s: s.reverse_compute_inline("C"),
        "may be outside of what block 'B' makes",
    ),
    Refuse(
        "reverse_compute_inline",
        "inside another block",
        chain,
        lambda s: s.reverse_compute_inline("root"),
        ROOT,
    ),
    Example("reverse_compute_inline", lambda s: s.reverse_compute_inline("C"), VECTORS, ALLOCATED),
]
