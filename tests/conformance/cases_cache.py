"""Cases of caches: read, written, in place, and laid out by the axes of a block."""

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
from programs_of_scopes import neighbours, partial, shapes, symbolic_window, updates

from tilewright.tir.schedule import Schedule

FIVE = ({"n": 5}, {"n": 1})
VECTORS = {"A": "(128,)", "B": "(128,)"}
ROOT = "the root block"
POINTER = "through its pointer"

padded = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer((10,))):
    for i in range(10):
        with T.block("B"):
            vi = T.axis.spatial(10, i)
            B[vi] = T.if_then_else(vi >= 1 and vi < 9, A[vi - 1], T.float32(0))
"""
)

by_own_data = script(
    """
@T.prim_func
def main(A: T.Buffer((4,)), G: T.Buffer((8,), "int32"), B: T.Buffer((8,))):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            G[vi] = G[vi] * 3
            B[vi] = A[T.int64(G[vi]) % 4]
"""
)

scattered = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer((16,)), C: T.Buffer((8, 8)), D: T.Buffer((8,))):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi * 2] = A[vi]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi, vi] = A[vi]
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            if A[vi] > T.float32(0):
                D[vi] = A[vi]
"""
)

twice = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer((2, 8))):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[0, vi] = A[vi]
            B[1, vi] = A[vi] + T.float32(1)
"""
)

total_of_one = script(
    """
@T.prim_func
def main(A: T.Buffer((1,)), C: T.Buffer((1,))):
    for k in range(1):
        with T.block("C"):
            vk = T.axis.reduce(1, k)
            with T.init():
                C[0] = T.float32(0)
            C[0] = C[0] + A[vk]
"""
)

init_reads = script(
    """
@T.prim_func
def main(A: T.Buffer((6, 4)), B: T.Buffer((4,)), C: T.Buffer((4,))):
    for j, k in T.grid(4, 6):
        with T.block("C"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                C[vj] = B[vj]
            C[vj] = C[vj] + A[vk, vj]
"""
)

shifted = script(
    """
@T.prim_func
def main(A: T.Buffer((9,)), B: T.Buffer((9,))):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial((1, 9), i + 1)
            B[vi] = A[vi] * T.float32(2)
"""
)


def _tiled(sch: Schedule) -> None:
    """B is made inside a loop of C."""
    sch.compute_at("B", sch.get_loops("C")[0])


CASES = [
    # ---- cache_read
    Accept("cache_read", matmul, lambda s: s.cache_read("C", 1, "shared")),
    Accept("cache_read", matmul, lambda s: s.cache_read("C", "B", "shared")),
    Accept(
        "cache_read",
        matmul,
        lambda s: s.cache_read("C", s.get(s.get_block("C")).reads[0].buffer, "shared"),
    ),
    Accept("cache_read", padded, lambda s: s.cache_read("B", 0, "local")),
    Accept("cache_read", chain, lambda s: (_tiled(s), s.cache_read("C", 0, "local"))),
    Accept("cache_read", updates, lambda s: s.cache_read("C", 0, "local", [s.get_block("C")])),
    Accept("cache_read", symbolic_chain, lambda s: s.cache_read("D", 0, "local"), sizes=FIVE),
    Accept(
        "cache_read",
        symbolic_window,
        lambda s: (s.split(s.get_loops("C")[0], [None, 4]), s.cache_read("C", 0, "local")),
        sizes=FIVE,
    ),
    Refuse(
        "cache_read",
        "position or name",
        matmul,
        lambda s: s.cache_read("C", 2, "local"),
        "no buffer 2",
    ),
    Refuse(
        "cache_read",
        "each of ``consumer_blocks`` reads",
        chain,
        lambda s: s.cache_read("B", 0, "local", [s.get_block("C")]),
        "'C' in consumer_blocks doesn't read A",
    ),
    Refuse(
        "cache_read",
        "writes the buffer as well",
        updates,
        lambda s: s.cache_read("even", 0, "local"),
        "writes A as well as reading",
    ),
    Refuse(
        "cache_read",
        "its pointer",
        shapes,
        lambda s: s.cache_read("call", 0, "local"),
        POINTER,
    ),
    Refuse(
        "cache_read",
        "there is a place after",
        script(
            """
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer((8,))):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = T.float32(0)
"""
        ),
        lambda s: s.cache_read("B", 0, "local"),
        "no place between",
    ),
    Refuse("cache_read", "another block", chain, lambda s: s.cache_read("root", 0, "local"), ROOT),
    Example(
        "cache_read",
        lambda s: s.cache_read("B", 0, "local"),
        VECTORS,
        after='A_local = T.alloc_buffer((128,), "float32", scope="local")',
    ),
    # ---- cache_write
    Accept("cache_write", matmul, lambda s: s.cache_write("C", 0, "local")),
    Accept("cache_write", chain, lambda s: (_tiled(s), s.cache_write("B", 0, "local"))),
    Accept("cache_write", chain, lambda s: s.cache_write("B", 0, "local", ["C"])),
    Accept("cache_write", symbolic_matmul, lambda s: s.cache_write("C", 0, "local"), sizes=FIVE),
    Refuse(
        "cache_write",
        "position or name",
        chain,
        lambda s: s.cache_write("B", 1, "local"),
        "no buffer 1",
    ),
    Refuse(
        "cache_write",
        "no other block of the scope writes",
        matmul,
        lambda s: (
            s.decompose_reduction("C", s.get_loops("C")[2]),
            s.cache_write("C_init", 0, "local"),
        ),
        "not the only writer",
    ),
    Refuse(
        "cache_write",
        "the predicate of the block",
        partial,
        lambda s: s.cache_write("B", 0, "local"),
        "restricts it beyond its domain",
    ),
    Refuse(
        "cache_write",
        "what was in the buffer before",
        updates,
        lambda s: s.cache_write("even", 0, "local"),
        "updates A",
    ),
    Refuse(
        "cache_write",
        "its pointer",
        shapes,
        lambda s: s.cache_write("call", 0, "local"),
        POINTER,
    ),
    Refuse(
        "cache_write",
        "each of ``consumer_blocks`` reads",
        chain,
        lambda s: s.cache_write("B", 0, "local", [s.get_block("D")]),
        "'D' in consumer_blocks doesn't read B",
    ),
    Refuse(
        "cache_write",
        "there is a place after",
        script(
            """
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer((8,))):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = T.float32(0)
"""
        ),
        lambda s: s.cache_write("A", 0, "local"),
        "no place between",
    ),
    *(
        Refuse(
            "cache_write",
            "surely written",
            scattered,
            lambda s, name=name: s.cache_write(name, 0, "local"),
            why,
        )
        for name, why in [("B", "holes"), ("C", "share an axis"), ("D", "under a condition")]
    ),
    Refuse(
        "cache_write", "another block", chain, lambda s: s.cache_write("root", 0, "local"), ROOT
    ),
    Example(
        "cache_write",
        lambda s: s.cache_write("B", 0, "local"),
        VECTORS,
        after='B_local = T.alloc_buffer((128,), "float32", scope="local")',
    ),
    # ---- cache_inplace
    Accept("cache_inplace", updates, lambda s: s.cache_inplace("even", 0, "local")),
    Accept("cache_inplace", updates, lambda s: s.cache_inplace("B", 0, "local")),
    Accept(
        "cache_inplace",
        symbolic_matmul,
        lambda s: (
            s.decompose_reduction("C", s.get_loops("C")[2]),
            s.cache_inplace("C_update", 0, "local"),
        ),
        sizes=FIVE,
    ),
    Refuse(
        "cache_inplace",
        "position or name",
        updates,
        lambda s: s.cache_inplace("B", 3, "local"),
        "no buffer 3",
    ),
    Refuse(
        "cache_inplace",
        "writes that buffer as well",
        chain,
        lambda s: s.cache_inplace("B", 0, "local"),
        "doesn't write it",
    ),
    Refuse(
        "cache_inplace",
        "its pointer",
        script(
            """
@T.prim_func
def main(A: T.Buffer((8,))):
    with T.block("call"):
        T.reads(A[0:8])
        T.writes(A[0:8])
        T.call_extern("twice", A.data, dtype="int32")
"""
        ),
        lambda s: s.cache_inplace("call", 0, "local"),
        POINTER,
    ),
    Refuse(
        "cache_inplace",
        "the very box",
        neighbours,
        lambda s: s.cache_inplace("A", 0, "local"),
        "reads more of A than it updates",
    ),
    Refuse(
        "cache_inplace", "another block", chain, lambda s: s.cache_inplace("root", 0, "local"), ROOT
    ),
    Example(
        "cache_inplace",
        lambda s: s.cache_inplace("A", 0, "local"),
        {"A": "(128,)"},
        after='A_local = T.alloc_buffer((128,), "float32", scope="local")',
    ),
    # ---- reindex
    Accept("reindex", matmul, lambda s: s.reindex("C", ("read", 1))),
    Accept("reindex", matmul, lambda s: s.reindex("C", ("write", 0))),
    Accept("reindex", symbolic_matmul, lambda s: s.reindex("C", "A"), sizes=FIVE),
    Refuse(
        "reindex",
        "names one of the buffers",
        matmul,
        lambda s: s.reindex("C", "X"),
        "doesn't access a buffer 'X'",
    ),
    *(
        Refuse(name, "element by element", shapes, lambda s, call=call: call(s), message)
        for name, call, message in [
            ("reindex", lambda s: s.reindex("call", "P"), POINTER),
            (
                "reindex_cache_read",
                lambda s: s.reindex_cache_read("call", 0, "local", "lambda: (0,)"),
                POINTER,
            ),
        ]
    ),
    Refuse(
        "reindex_cache_write",
        "element by element",
        twice,
        lambda s: s.reindex_cache_write("B", 0, "local", lambda i: (i,)),
        "by different indices",
    ),
    Refuse(
        "reindex",
        "what is asked for by its indices is read",
        updates,
        lambda s: s.reindex("even", ("write", 0, 0)),
        "told apart where a block reads",
    ),
    Refuse(
        "reindex",
        "doesn't write the buffer",
        updates,
        lambda s: s.reindex("even", ("read", 0)),
        "also writes A",
    ),
    Refuse(
        "reindex",
        "writes no buffer whose data",
        by_own_data,
        lambda s: s.reindex("B", "A"),
        "writes G, which says",
    ),
    Refuse(
        "reindex",
        "the only writer of the buffer",
        updates,
        lambda s: s.reindex("even", ("write", 0)),
        "neither complete nor a reduction",
    ),
    *(
        Refuse(
            name, "under no condition", scattered, lambda s, call=call: call(s), "under a condition"
        )
        for name, call in [
            ("reindex", lambda s: s.reindex("D", "D")),
            (
                "reindex_cache_write",
                lambda s: s.reindex_cache_write("D", 0, "local", lambda i: (i,)),
            ),
        ]
    ),
    *(
        Refuse(
            name, "predicate of the block", partial, lambda s, call=call: call(s), "beyond its dom"
        )
        for name, call in [
            ("reindex", lambda s: s.reindex("B", "B")),
            (
                "reindex_cache_read",
                lambda s: s.reindex_cache_read("B", 0, "local", lambda i: (i,)),
            ),
            (
                "reindex_cache_write",
                lambda s: s.reindex_cache_write("B", 0, "local", lambda i: (i,)),
            ),
        ]
    ),
    *(
        Refuse(
            name, "start at zero", shifted, lambda s, call=call: call(s), "doesn't start at zero"
        )
        for name, call in [
            ("reindex", lambda s: s.reindex("B", "B")),
            (
                "reindex_cache_read",
                lambda s: s.reindex_cache_read("B", 0, "local", lambda i: (i,)),
            ),
            (
                "reindex_cache_write",
                lambda s: s.reindex_cache_write("B", 0, "local", lambda i: (i,)),
            ),
        ]
    ),
    *(
        Refuse(name, "inside the buffer", padded, lambda s, call=call: call(s), "may be outside")
        for name, call in [
            ("reindex", lambda s: s.reindex("B", "A")),
            (
                "reindex_cache_read",
                lambda s: s.reindex_cache_read("B", 0, "local", lambda i: (i,)),
            ),
        ]
    ),
    *(
        Refuse(
            name,
            "shares no loop",
            chain,
            lambda s, call=call: (_tiled(s), call(s)),
            "inside one loop nest",
        )
        for name, call in [
            ("reindex", lambda s: s.reindex("C", "B")),
            (
                "reindex_cache_read",
                lambda s: s.reindex_cache_read("C", 0, "local", lambda i, j: (j, i)),
            ),
            (
                "reindex_cache_write",
                lambda s: s.reindex_cache_write("B", 0, "local", lambda i, j: (j, i)),
            ),
        ]
    ),
    *(
        Refuse(name, "inside another block", chain, lambda s, call=call: call(s), ROOT)
        for name, call in [
            ("reindex", lambda s: s.reindex("root", ("read", 0))),
            (
                "reindex_cache_read",
                lambda s: s.reindex_cache_read("root", 0, "warp", "lambda: 0"),
            ),
            (
                "reindex_cache_write",
                lambda s: s.reindex_cache_write("root", 0, "local", "lambda: (0,)"),
            ),
        ]
    ),
    Example(
        "reindex",
        lambda s: s.reindex("B", ("read", 0)),
        {"A": "(64, 128)", "B": "(128, 64)"},
        after='A_reindex = T.alloc_buffer((128, 64), "float32")',
    ),
    # ---- reindex_cache_read
    Accept(
        "reindex_cache_read",
        matmul,
        lambda s: s.reindex_cache_read("C", 0, "shared", lambda i, j, k: (k // 2, i, k % 2)),
    ),
    Accept(
        "reindex_cache_read",
        matmul,
        lambda s: s.reindex_cache_read("C", 1, "local", "lambda i, j, k: (j * 10 + k,)"),
    ),
    Accept(
        "reindex_cache_read",
        symbolic_matmul,
        lambda s: s.reindex_cache_read("C", 0, "local", lambda i, j, k: (k, i)),
        sizes=FIVE,
    ),
    Refuse(
        "reindex_cache_read",
        "position or name",
        matmul,
        lambda s: s.reindex_cache_read("C", 2, "local", lambda i, j, k: (i,)),
        "no buffer 2",
    ),
    Refuse(
        "reindex_cache_read",
        "doesn't write the buffer",
        updates,
        lambda s: s.reindex_cache_read("even", 0, "local", lambda i: (i,)),
        "also writes A",
    ),
    Refuse(
        "reindex_cache_read",
        "as many indices",
        matmul,
        lambda s: s.reindex_cache_read("C", 0, "local", lambda i, j: (i, j)),
        "takes 2 indices, block 'C' has 3",
    ),
    Refuse(
        "reindex_cache_read",
        "as many indices",
        matmul,
        lambda s: s.reindex_cache_read("C", 0, "local", lambda i, j, k: (i - 1, k)),
        "may be negative",
    ),
    Refuse(
        "reindex_cache_read",
        "uses each axis",
        matmul,
        lambda s: s.reindex_cache_read("C", 0, "local", lambda i, j, k: (i, j)),
        "doesn't use axis v_k",
    ),
    Refuse(
        "reindex_cache_read",
        "uses each axis",
        matmul,
        lambda s: s.reindex_cache_read("C", 0, "local", lambda i, j, k: (i + k,)),
        "one place to several",
    ),
    Refuse(
        "reindex_cache_read",
        "uses no reduction axis if the init reads",
        init_reads,
        lambda s: s.reindex_cache_read("C", 1, "local", lambda j, k: (k, j)),
        "reduction axes, which the map uses, have no value there",
    ),
    Example(
        "reindex_cache_read",
        lambda s: s.reindex_cache_read("B", 0, "shared", lambda i, j: (j, i)),
        {"A": "(128,)", "B": "(8, 16)"},
        after='A_shared = T.alloc_buffer((16, 8), "float32", scope="shared")',
    ),
    # ---- reindex_cache_write
    Accept(
        "reindex_cache_write",
        matmul,
        lambda s: s.reindex_cache_write("C", 0, "local", lambda i, j, k: (j // 4, i, j % 4)),
    ),
    Accept(
        "reindex_cache_write",
        symbolic_matmul,
        lambda s: s.reindex_cache_write("C", 0, "local", lambda i, j, k: (j, i)),
        sizes=FIVE,
    ),
    Refuse(
        "reindex_cache_write",
        "position or name",
        matmul,
        lambda s: s.reindex_cache_write("C", 1, "local", lambda i, j, k: (i, j)),
        "no buffer 1",
    ),
    Refuse(
        "reindex_cache_write",
        "the only writer",
        matmul,
        lambda s: (
            s.decompose_reduction("C", s.get_loops("C")[2]),
            s.reindex_cache_write("C_init", 0, "local", lambda i, j: (i, j)),
        ),
        "not the only writer",
    ),
    Refuse(
        "reindex_cache_write",
        "as many indices",
        matmul,
        lambda s: s.reindex_cache_write("C", 0, "local", lambda i, j: (i, j)),
        "takes 2 indices, block 'C' has 3",
    ),
    Refuse(
        "reindex_cache_write",
        "exactly the axes",
        matmul,
        lambda s: s.reindex_cache_write("C", 0, "local", lambda i, j, k: (i, j, k)),
        "uses axis v_k",
    ),
    Refuse(
        "reindex_cache_write",
        "no reduction axis",
        total_of_one,
        lambda s: s.reindex_cache_write("C", 0, "local", lambda k: (k,)),
        "it can't choose a place",
    ),
    Example(
        "reindex_cache_write",
        lambda s: s.reindex_cache_write("B", 0, "local", lambda i, j: (j, i)),
        {"A": "(8, 16)", "B": "(128,)"},
        after='B_local = T.alloc_buffer((16, 8), "float32", scope="local")',
    ),
]
