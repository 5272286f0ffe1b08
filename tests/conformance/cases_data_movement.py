"""Cases of data movement: tiles copied at a loop, tables of indices, rolling buffers."""

from __future__ import annotations

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
from programs_of_scopes import neighbours, shapes, symbolic_window, updates

from tilewright.tir.schedule import Schedule

FIVE = ({"n": 5}, {"n": 3})
VECTORS = {"A": "(128,)", "B": "(128,)"}
ROOT = "the root block"

gather = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 16)), B: T.Buffer((8, 16))):
    for i, j in T.grid(8, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi // 2, (vj * 3 + 1) % 16] + A[vi // 2 + 1, (vj * 3 + 1) % 16]
"""
)

symbolic_gather = script(
    """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,))
    B = T.match_buffer(b, (n,))
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[(vi // 2) * 2] * T.float32(2)
"""
)

shifted_gather = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer((8,))):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial((4, 8), i + 4)
            B[vi] = A[vi // 2] * T.float32(2)
"""
)

gaps = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer((16,))):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi * 2] = A[vi]
"""
)


pool = script(
    """
@T.prim_func
def main(A: T.Buffer((10, 9)), C: T.Buffer((8, 7))):
    B = T.alloc_buffer((10, 9))
    for i, j in T.grid(10, 9):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j, r, s in T.grid(8, 7, 3, 3):
        with T.block("C"):
            vi, vj, vr, vs = T.axis.remap("SSRR", [i, j, r, s])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + B[vi + vr, vj + vs]
"""
)


ragged = script(
    """
@T.prim_func
def main(I: T.Buffer((4,), "int64"), A: T.Buffer((64,)), C: T.Buffer((64,))):
    for i in range(4):
        for j in range(I[i]):
            for k in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(64, j * 4 + k)
                    C[vi] = A[vi]
"""
)

triangle = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8, 8))):
    for i in range(8):
        for j in range(i + 1):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(i + 1, j)
                C[vi, vj] = A[vj // 2]
"""
)


def _under(sch: Schedule, depth: int) -> object:
    """Have B made inside the loops of C."""
    block = sch.get_block("B")
    sch.compute_at(block, sch.get_loops("C")[depth])
    return block


def _tile(sch: Schedule, block: str) -> object:
    """The outer part of the block's first loop."""
    return sch.split(sch.get_loops(block)[0], [None, 4])[0]


CASES = [
    # ---- read_at
    Accept("read_at", matmul, lambda s: s.read_at(_tile(s, "C"), "C", 0, "shared")),
    Accept("read_at", matmul, lambda s: s.read_at(s.get_loops("C")[2], "C", 1, "shared")),
    Accept("read_at", symbolic_matmul, lambda s: s.read_at(_tile(s, "C"), "C", 0, "local"), FIVE),
    Accept("read_at", symbolic_window, lambda s: s.read_at(_tile(s, "C"), "C", 0, "local"), FIVE),
    Refuse(
        "read_at",
        "position or name",
        chain,
        lambda s: s.read_at(_tile(s, "B"), "B", 1, "shared"),
        "no buffer 1",
    ),
    Refuse(
        "read_at",
        "the block is under the loop",
        chain,
        lambda s: s.read_at(_tile(s, "B"), "C", 0, "shared"),
        "is not under loop",
    ),
    Refuse(
        "read_at",
        "no block under the loop writes",
        neighbours,
        lambda s: s.read_at(s.get_loops("C")[0], "C", 0, "shared"),
        "'A' under loop i writes A",
    ),
    Refuse(
        "read_at",
        "have known bounds",
        ragged,
        lambda s: s.read_at(s.get_loops("C")[1], "C", 0, "shared"),
        "no known bounds",
    ),
    Refuse(
        "cache_index",
        "their ranges depend on no loop",
        triangle,
        lambda s: s.cache_index("C", "global"),
        "depends on the loops around it",
    ),
    Refuse(
        "read_at",
        "inside another block",
        chain,
        lambda s: s.read_at(s.get_loops("B")[0], "root", 0, "shared"),
        ROOT,
    ),
    Example(
        "read_at",
        lambda s: s.read_at(s.get_loops("B")[0], "B", 0, "shared"),
        VECTORS,
        after='A_shared = T.alloc_buffer((128,), "float32", scope="shared")',
    ),
    # ---- write_at
    Accept("write_at", matmul, lambda s: s.write_at(_tile(s, "C"), "C", 0, "shared")),
    Accept(
        "write_at",
        matmul,
        lambda s: (
            s.decompose_reduction("C", s.get_loops("C")[2]),
            s.write_at(s.get_loops("C_init")[1], "C_update", 0, "local"),
        ),
    ),
    Accept("write_at", symbolic_chain, lambda s: s.write_at(_tile(s, "B"), "B", 0, "local"), FIVE),
    Refuse(
        "write_at",
        "position or name",
        chain,
        lambda s: s.write_at(_tile(s, "B"), "B", 1, "shared"),
        "no buffer 1",
    ),
    Refuse(
        "write_at",
        "the block is under the loop",
        chain,
        lambda s: s.write_at(_tile(s, "B"), "C", 0, "shared"),
        "is not under loop",
    ),
    Refuse(
        "write_at",
        "all writers of the buffer are under",
        matmul,
        lambda s: (
            s.decompose_reduction("C", s.get_loops("C")[0]),
            s.write_at(s.get_loops("C_update")[0], "C_update", 0, "local"),
        ),
        "but not under loop",
    ),
    Refuse(
        "write_at",
        "all writers of the buffer are under",
        matmul,
        lambda s: s.write_at(s.get_loops("C")[2], "C", 0, "local"),
        "is not complete in one iteration",
    ),
    Refuse(
        "write_at",
        "no other block under the loop reads",
        neighbours,
        lambda s: s.write_at(s.get_loops("C")[0], "A", 0, "local"),
        "is not complete|reads A",
    ),
    Refuse(
        "write_at",
        "surely written",
        gaps,
        lambda s: s.write_at(_tile(s, "B"), "B", 0, "shared"),
        "holes",
    ),
    Refuse(
        "write_at",
        "inside another block",
        chain,
        lambda s: s.write_at(s.get_loops("B")[0], "root", 0, "shared"),
        ROOT,
    ),
    Example(
        "write_at",
        lambda s: s.write_at(s.get_loops("B")[0], "B", 0, "shared"),
        VECTORS,
        after='B_shared = T.alloc_buffer((128,), "float32", scope="shared")',
    ),
    # ---- cache_index
    Accept("cache_index", gather, lambda s: s.cache_index("B", "global")),
    Accept("cache_index", gather, lambda s: s.cache_index("B", "global", 1)),
    Accept("cache_index", chain, lambda s: s.cache_index("B", "global")),
    Accept("cache_index", symbolic_gather, lambda s: s.cache_index("B", "local"), FIVE),
    Refuse(
        "cache_index",
        "not negative",
        gather,
        lambda s: s.cache_index("B", "global", -1),
        "cse_thresh is -1",
    ),
    Refuse(
        "cache_index",
        "start at zero, and",
        shifted_gather,
        lambda s: s.cache_index("B", "global"),
        "doesn't start at zero",
    ),
    Refuse(
        "cache_index",
        "inside another block",
        gather,
        lambda s: s.cache_index("root", "global"),
        ROOT,
    ),
    Example(
        "cache_index",
        lambda s: s.cache_index("B", "global"),
        {"A": "(8, 16)", "B": "(8, 16)"},
        after=(
            'index_var_0 = T.alloc_buffer((8,), "int64")\n'
            'index_var_1 = T.alloc_buffer((16,), "int64")'
        ),
    ),
    # ---- rolling_buffer
    Accept("rolling_buffer", pool, lambda s: s.rolling_buffer(_under(s, 0), 0)),
    Accept("rolling_buffer", pool, lambda s: s.rolling_buffer(_under(s, 1), 0)),
    Accept("rolling_buffer", pool, lambda s: (_tile(s, "C"), s.rolling_buffer(_under(s, 2), 0))),
    Accept(
        "rolling_buffer",
        symbolic_window,
        lambda s: (s.compute_at("B", s.get_loops("C")[0]), s.rolling_buffer("B", 0)),
        FIVE,
    ),
    Refuse(
        "rolling_buffer",
        "position or name",
        pool,
        lambda s: s.rolling_buffer(_under(s, 0), 1),
        "no buffer 1",
    ),
    Refuse(
        "rolling_buffer",
        "complete or a reduction",
        updates,
        lambda s: s.rolling_buffer("B", 0),
        "neither complete nor a reduction",
    ),
    Refuse(
        "rolling_buffer",
        "allocated in the scope",
        chain,
        lambda s: s.rolling_buffer("D", 0),
        "visible outside",
    ),
    Refuse(
        "rolling_buffer",
        "allocated in the scope",
        shapes,
        lambda s: s.rolling_buffer("P", 0),
        "through its pointer",
    ),
    Refuse(
        "rolling_buffer",
        "share a loop",
        pool,
        lambda s: s.rolling_buffer("B", 0),
        "shares no loop with all consumers",
    ),
    Refuse(
        "rolling_buffer",
        "serial or unrolled",
        pool,
        lambda s: (s.parallel(s.get_loops("C")[0]), s.rolling_buffer(_under(s, 0), 0)),
        "loop i is parallel",
    ),
    Refuse(
        "rolling_buffer",
        "box without holes",
        script(
            """
@T.prim_func
def main(A: T.Buffer((20,)), C: T.Buffer((6,))):
    B = T.alloc_buffer((20,))
    for i in range(6):
        for j in range(3):
            with T.block("B"):
                vi = T.axis.spatial(20, i + j * 2)
                B[vi] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(6, i)
            C[vi] = B[vi] + B[vi + 2] + B[vi + 4]
"""
        ),
        lambda s: s.rolling_buffer("B", 0),
        "has holes",
    ),
    Refuse(
        "rolling_buffer",
        "overlap in one dimension",
        chain,
        lambda s: (s.compute_at("B", s.get_loops("C")[0]), s.rolling_buffer("B", 0)),
        "does not overlap",
    ),
    Refuse(
        "rolling_buffer",
        "inside another block",
        chain,
        lambda s: s.rolling_buffer("root", 0),
        ROOT,
    ),
    Example(
        "rolling_buffer",
        lambda s: s.rolling_buffer("B", 0),
        {"A": "(16,)", "C": "(14,)"},
        'B = T.alloc_buffer((16,), "float32")',
        'B = T.alloc_buffer((3,), "float32")',
    ),
    Refuse(
        "rolling_buffer",
        "complete in the iteration that reads it",
        script("""
@T.prim_func
def main(A: T.Buffer((18,), "float32"), C: T.Buffer((14,), "float32")):
    P = T.alloc_buffer((18,), "float32")
    B = T.alloc_buffer((18,), "float32")
    for i in range(14):
        with T.block("P"):
            v = T.axis.spatial(18, i)
            P[v] = A[v] * T.float32(2)
        for j in range(3):
            with T.block("B"):
                v = T.axis.spatial(18, i + j)
                B[v] = P[v] + T.float32(1)
        with T.block("C"):
            v = T.axis.spatial(14, i)
            C[v] = B[v] + B[v + 1]
"""),
        lambda s: s.rolling_buffer("B", 0),
        "in later iterations of loop i only",
    ),
]
