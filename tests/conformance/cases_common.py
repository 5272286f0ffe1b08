"""Cases of what every primitive asks, or every one of a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance_cases import Refuse, chain, script

from tilewright.tir.schedule import Schedule

STILL_THERE = "still in the program"
ONE_NAME = "goes by one name"
ONLY_LOOPS = "only loops and branches around blocks"

TWO_NAMES = script("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), Z: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    C = T.decl_buffer((8,), "float32", data=B.data)
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] + T.float32(1)
    for i in range(8):
        with T.block("Z"):
            v = T.axis.spatial(8, i)
            Z[v] = C[v] + B[7 - v]
""")
IN_LET = script("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), Z: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.LetStmt(A[i]) as x:
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = x + T.float32(1)
    for i in range(8):
        with T.block("Z"):
            v = T.axis.spatial(8, i)
            Z[v] = B[v]
""")

Use = Callable[[Schedule, Any], object]
USES_OF_LOOPS: dict[str, Use] = {
    "split": lambda s, loop: s.split(loop, [None, 2]),
    "fuse": lambda s, loop: s.fuse(loop),
    "parallel": lambda s, loop: s.parallel(loop),
    "unroll": lambda s, loop: s.unroll(loop),
}
MOVES: dict[str, Callable[[Schedule], object]] = {
    "compute_inline": lambda s: s.compute_inline("B"),
    "compute_at": lambda s: s.compute_at("B", s.get_loops("Z")[0]),
    "reverse_compute_at": lambda s: s.reverse_compute_at("Z", s.get_loops("B")[0]),
}


def _after_fuse(use: Use) -> Callable[[Schedule], object]:
    def apply(sch: Schedule) -> object:
        i, j = sch.get_loops("B")
        sch.reorder(j, i)
        sch.split(i, [None, 4])
        return use(sch, i)

    return apply


CASES = [
    *(
        Refuse(name, STILL_THERE, chain, _after_fuse(use), "no longer in the program")
        for name, use in USES_OF_LOOPS.items()
    ),
    *(
        Refuse(name, ONE_NAME, TWO_NAMES, move, "view of memory|names of the same memory")
        for name, move in MOVES.items()
    ),
    *(
        Refuse(name, ONLY_LOOPS, IN_LET, move, "inside of a LetStmt")
        for name, move in MOVES.items()
    ),
]
