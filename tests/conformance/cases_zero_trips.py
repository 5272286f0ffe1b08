"""Cases of loops that may have no iterations."""

from __future__ import annotations

from conformance_cases import Accept, Refuse, script

STARTED = script("""
@T.prim_func
def main(a: T.handle, B: T.Buffer((3,), "float32"), C: T.Buffer((3,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (3, n), "float32")
    start = T.alloc_buffer((3,), "float32")
    for i in range(3):
        with T.block("start"):
            v = T.axis.spatial(3, i)
            start[v] = B[v] + T.float32(1)
    for i, k in T.grid(3, n):
        with T.block("C"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                C[v] = start[v]
            C[v] = C[v] + A[v, r]
""")
EMPTY = script("""
@T.prim_func
def main(A: T.Buffer((3, 0), "float32"), C: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 0):
        with T.block("C"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                C[v] = T.float32(1)
            C[v] = C[v] + A[v, r]
""")
PARTLY_READ = script("""
@T.prim_func
def main(A: T.Buffer((2, 2), "float32"), C: T.Buffer((2, 2), "float32")):
    B = T.alloc_buffer((2, 2), "float32")
    for i, j in T.grid(2, 2):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] + T.float32(1)
    for k, i, j in T.grid(0, 2, 2):
        with T.block("C"):
            r, v, w = T.axis.remap("RSS", [k, i, j])
            with T.init():
                C[v, w] = T.float32(3)
            C[v, w] = C[v, w] + B[v, r]
""")
COUNTED = script("""
@T.prim_func
def main(n: T.int64, m: T.int64, A: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(n - 2, m - 2):
        with T.block("A"):
            v, w = T.axis.remap("SS", [i, j])
            A[v, w] = A[v, w] + T.float32(1)
""")
SIZES = ({"n": 0}, {"n": 5})

CASES = [
    Accept("split", STARTED, lambda s: s.split(s.get_loops("C")[1], [None, 4]), SIZES),
    Accept("compute_at", STARTED, lambda s: s.compute_at("start", s.get_loops("C")[0]), SIZES),
    Refuse(
        "fuse",
        "may be empty then do the same",
        STARTED,
        lambda s: s.fuse(*s.get_loops("C")),
        "the fused loop would lose that",
    ),
    Refuse(
        "fuse",
        "may be negative",
        COUNTED,
        lambda s: s.fuse(*s.get_loops("A")),
        "may be negative",
    ),
    Refuse(
        "split",
        "that runs an init when it is empty",
        EMPTY,
        lambda s: s.split(s.get_loops("C")[1], [2, 2]),
        "runs the init of block 'C'",
    ),
    Refuse(
        "split",
        "to infer a factor, the others",
        STARTED,
        lambda s: s.split(s.get_loops("C")[1], [None, s.get(s.get_loops("C")[1]).extent]),
        "may be empty",
    ),
    Refuse(
        "split",
        "to peel, the extent is not negative",
        COUNTED,
        lambda s: s.split(s.get_loops("A")[0], [None, 2], tail="peel"),
        "may be negative",
    ),
    Refuse(
        "bind",
        "has an iteration",
        STARTED,
        lambda s: s.bind(s.get_loops("C")[1], "threadIdx.x"),
        "a thread for each would lose that",
    ),
    Refuse(
        "transform_block_layout",
        "no empty axis runs",
        EMPTY,
        lambda s: s.transform_block_layout("C", lambda i, k: (k, i)),
        "the map would lose that",
    ),
    Refuse(
        "reverse_compute_at",
        "may be empty is",
        PARTLY_READ,
        lambda s: s.reverse_compute_at("C", s.get_loops("B")[1]),
        "would leave the init of block 'C' out",
    ),
    Refuse(
        "compute_at",
        "init that reads what the block writes",
        STARTED,
        lambda s: s.compute_at("start", s.get_loops("C")[1]),
        "would run without what it reads",
    ),
    Refuse(
        "read_at",
        "init that may run for",
        STARTED,
        lambda s: s.read_at(s.get_loops("C")[1], "C", "start", "local"),
        "would run without what it reads",
    ),
]
