"""Cases of primitives that reshape loops: split, fuse, reorder, partition, merge and the like."""

from __future__ import annotations

from conformance_cases import (
    Accept,
    Example,
    Refuse,
    chain,
    matmul,
    script,
    symbolic_matmul,
)

from tilewright.script import parse
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

SIZES = ({"n": 5}, {"n": 8})


def loops(sch: Schedule, name: str = "C") -> list:
    return sch.get_loops(sch.get_block(name))


def loop(sch: Schedule, name: str = "C", position: int = 0) -> object:
    return loops(sch, name)[position]


def annotated(sch: Schedule, name: str = "C", position: int = 0) -> object:
    made = loop(sch, name, position)
    sch.annotate(made, "hint", 1)
    return made


_vectors = script(
    """
@T.prim_func
def main(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32")):
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            B[vi] = A[vi] * T.float32(2)
"""
)

_statement = script(
    """
@T.prim_func
def main(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32")):
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            B[vi] = A[vi] * T.float32(2)
        B[i] = B[i] + T.float32(1)
"""
)

# A guarded chain: ``C`` may run beyond its domain, reading nothing that is not there.
_padded = script(
    """
@T.prim_func
def main(A: T.Buffer((10,), "float32"), D: T.Buffer((10,), "float32")):
    C = T.alloc_buffer((10,), "float32")
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            C[vi] = T.if_then_else(vi < 10, A[vi], T.float32(0))
    for i in range(10):
        with T.block("D"):
            vi = T.axis.spatial(10, i)
            D[vi] = C[vi] + T.float32(1)
"""
)

_symbolic_padded = script(
    """
@T.prim_func
def main(a: T.handle, d: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    D = T.match_buffer(d, (n,), "float32")
    C = T.alloc_buffer((n,), "float32")
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = T.if_then_else(vi < n, A[vi], T.float32(0))
    for i in range(n):
        with T.block("D"):
            vi = T.axis.spatial(n, i)
            D[vi] = C[vi] + T.float32(1)
"""
)

_in_place = script(
    """
@T.prim_func
def main(B: T.Buffer((10,), "float32")):
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            B[vi] = B[vi] * T.float32(2)
"""
)

_triangle = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        for j in range(i + 1):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
"""
)

_scan = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 9), "float32")):
    for i, j in T.grid(8, 8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            vj = T.axis.opaque(8, j)
            A[vi, vj + 1] = A[vi, vj] + A[vi, vj + 1]
"""
)

_overlapping_sum = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
    for i, k, r in T.grid(8, 4, 5):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            vk = T.axis.reduce(8, k + r)
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = T.max(C[vi], A[vi, vk])
"""
)

_sum_and_reader = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i, k in T.grid(8, 8):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
        with T.block("C"):
            vi, vk = T.axis.remap("SS", [i, k])
            C[vi, vk] = B[vi]
"""
)

_neighbours = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    B = T.alloc_buffer((8, 6), "float32")
    for i, j in T.grid(8, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, 0] + T.float32(1)
"""
)


def _fused_kinds(sch: Schedule) -> None:
    _, j, k = loops(sch)
    outer, inner = sch.split(sch.fuse(j, k), [None, 2])
    sch.reorder(inner, outer)


def _split_guarded(sch: Schedule) -> None:
    outer, _ = sch.split(loop(sch), [None, 4])
    sch.split(outer, [None, 2], disable_predication=True)


def _as_many_as_data_says() -> PrimFunc:
    func: PrimFunc = parse("""
@T.prim_func
def main(A: T.Buffer((3, 8), "int32"), F: T.Buffer((3,), "int32"), Z: T.Buffer((3,), "int32")):
    for i in T.serial(3):
        for k in T.serial(T.int64(F[i])):
            with T.block("Z"):
                vi = T.axis.spatial(3, i)
                vk = T.axis.reduce(8, k)
                with T.init():
                    Z[vi] = T.int32(7)
                Z[vi] = Z[vi] + A[vi, vk]
""")
    return func


def _split_twice(sch: Schedule) -> None:
    sch.split(sch.split(loop(sch, "Z", 1), [None, 4])[1], [8, None])


def _pad_all(sch: Schedule) -> None:
    sch.split(loop(sch), [None, 4], tail="pad")


SPLIT = [
    Accept("split", matmul, lambda s: s.split(loop(s), [None, 5])),
    Accept("split", matmul, lambda s: s.split(loop(s), [None, 5], tail="peel")),
    Accept("split", matmul, lambda s: s.split(loop(s), [None, 5], tail="overlap")),
    Accept("split", _padded, _pad_all),
    Accept("split", _statement, lambda s: s.split(loop(s), [None, 4])),
    Accept("split", _statement, lambda s: s.split(loop(s), [None, 4], tail="peel")),
    Accept("split", _vectors, _split_guarded),
    Accept("split", symbolic_matmul, lambda s: s.split(loop(s), [None, 4]), SIZES),
    Accept("split", symbolic_matmul, lambda s: s.split(loop(s), [2, None], tail="peel"), SIZES),
    Accept("split", symbolic_matmul, lambda s: s.split(loop(s, "C", 2), [3, 3]), SIZES),
    Accept("split", _symbolic_padded, _pad_all, SIZES),
    Example("split", lambda s: s.split(loop(s, "B"), [None, 16]), {"A": "(100,)", "B": "(100,)"}),
    Refuse(
        "split",
        "carries no annotations",
        matmul,
        lambda s: s.split(annotated(s), [None, 4]),
        "has annotations",
    ),
    Refuse(
        "split",
        "at most one is None",
        matmul,
        lambda s: s.split(loop(s), [None, None]),
        "at most one factor",
    ),
    Refuse(
        "split",
        "provably cover",
        symbolic_matmul,
        lambda s: s.split(loop(s), [2, 4]),
        "not known to cover the extent n",
    ),
    Refuse(
        "split",
        "one of the four",
        matmul,
        lambda s: s.split(loop(s), [None, 4], tail="shift"),
        "unknown tail",
    ),
    Refuse(
        "split",
        "one of the four",
        matmul,
        lambda s: s.split(loop(s), [None, 4], tail="peel", disable_predication=True),
        "makes no sense",
    ),
    Refuse(
        "split",
        "without predication",
        matmul,
        lambda s: s.split(loop(s), [None, 5], disable_predication=True),
        "would run outside of the loop",
    ),
    Refuse(
        "split",
        "no branch is needed",
        _as_many_as_data_says,
        _split_twice,
        "which would be under a branch",
    ),
    Refuse(
        "split",
        "there is a full tile",
        matmul,
        lambda s: s.split(loop(s), [None, 16], tail="peel"),
        "no full tile",
    ),
    Refuse(
        "split",
        "has the loop itself",
        matmul,
        lambda s: s.split(loop(s, "C", 2), [None, 4], tail="pad"),
        "is not itself one of its spatial iteration variables",
    ),
    Refuse(
        "split",
        "writes buffers of its scope",
        matmul,
        lambda s: s.split(loop(s), [None, 5], tail="pad"),
        "'C' is visible outside",
    ),
    Refuse(
        "split",
        "reads inside of buffers",
        chain,
        lambda s: s.split(loop(s, "B"), [None, 5], tail="pad"),
        "would read 'A'",
    ),
    Refuse(
        "split",
        "no shorter than a tile",
        symbolic_matmul,
        lambda s: s.split(loop(s), [None, 4], tail="overlap"),
        "may be shorter than one tile",
    ),
    Refuse(
        "split",
        "each iteration can run again",
        _in_place,
        lambda s: s.split(loop(s), [None, 4], tail="overlap"),
        "updates what was there before",
    ),
    Refuse(
        "split",
        "each iteration can run again",
        matmul,
        lambda s: s.split(loop(s, "C", 2), [None, 4], tail="overlap"),
        "add to it more than once",
    ),
]

FUSE = [
    Accept("fuse", matmul, lambda s: s.fuse(*loops(s)[:2])),
    Accept("fuse", symbolic_matmul, lambda s: s.fuse(*loops(s)[:2]), SIZES),
    Example("fuse", lambda s: s.fuse(*loops(s, "B")), {"A": "(64, 16)", "B": "(64, 16)"}),
    Refuse("fuse", "at least one", matmul, lambda s: s.fuse(), "at least one loop"),
    Refuse(
        "fuse",
        "carry no annotations",
        matmul,
        lambda s: s.fuse(annotated(s), loop(s, "C", 1)),
        "has annotations",
    ),
    Refuse(
        "fuse",
        "only statement directly inside",
        matmul,
        lambda s: s.fuse(loop(s), loop(s, "C", 2)),
        "not the only statement",
    ),
    Refuse(
        "fuse",
        "no extent depends",
        _triangle,
        lambda s: s.fuse(*loops(s)),
        "depends on a loop to be fused",
    ),
]

REORDER = [
    Accept("reorder", matmul, lambda s: s.reorder(*reversed(loops(s)))),
    Accept("reorder", symbolic_matmul, lambda s: s.reorder(*reversed(loops(s))), SIZES),
    Example(
        "reorder",
        lambda s: s.reorder(*reversed(loops(s, "B"))),
        {"A": "(64, 16)", "B": "(64, 16)"},
    ),
    Refuse(
        "reorder",
        "each is named once",
        matmul,
        lambda s: s.reorder(loop(s), loop(s)),
        "named twice",
    ),
    Refuse(
        "reorder",
        "in one nest",
        chain,
        lambda s: s.reorder(loop(s, "B"), loop(s, "C")),
        "not in one nest",
    ),
    Refuse(
        "reorder",
        "bounds depend",
        _triangle,
        lambda s: s.reorder(*reversed(loops(s))),
        "depend on a loop",
    ),
    Refuse(
        "reorder",
        "only blocks are below",
        script(
            """
@T.prim_func
def main(A: T.Buffer((10, 4), "float32"), B: T.Buffer((10, 4), "float32")):
    for i, j in T.grid(10, 4):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
        B[i, j] = B[i, j] + T.float32(1)
"""
        ),
        lambda s: s.reorder(*reversed(loops(s))),
        "a statement outside blocks",
    ),
    Refuse(
        "reorder",
        "complete, reductions or updates",
        _scan,
        lambda s: s.reorder(*reversed(loops(s))),
        "neither complete nor a reduction",
    ),
    Refuse(
        "reorder",
        "all differ",
        _overlapping_sum,
        lambda s: s.reorder(*reversed(loops(s))),
        "not shown to be injective",
    ),
    Refuse(
        "reorder",
        "still starts with the instance",
        matmul,
        _fused_kinds,
        "init would not come first",
    ),
    Refuse(
        "reorder",
        "shares a buffer with a reduction",
        _sum_and_reader,
        lambda s: s.reorder(*reversed(loops(s))),
        "shares a buffer with reduction block",
    ),
    Refuse(
        "reorder",
        "what another one makes",
        _neighbours,
        lambda s: s.reorder(*reversed(loops(s))),
        "makes in another iteration",
    ),
]

OTHERS = [
    Accept("add_unit_loop", matmul, lambda s: s.add_unit_loop(loop(s))),
    Accept("add_unit_loop", symbolic_matmul, lambda s: s.add_unit_loop("C"), SIZES),
    Example(
        "add_unit_loop", lambda s: s.add_unit_loop(s.get_block("B")), {"A": "(16,)", "B": "(16,)"}
    ),
    Refuse(
        "add_unit_loop",
        "inside another block",
        matmul,
        lambda s: s.add_unit_loop(s.get_block("root")),
        "root block",
    ),
    Accept("reorder_block_iter_var", matmul, lambda s: s.reorder_block_iter_var("C", [2, 0, 1])),
    Accept(
        "reorder_block_iter_var",
        symbolic_matmul,
        lambda s: s.reorder_block_iter_var("C", [1, 0, 2]),
        SIZES,
    ),
    Example(
        "reorder_block_iter_var",
        lambda s: s.reorder_block_iter_var("B", [1, 0]),
        {"A": "(16, 8)", "B": "(16, 8)"},
    ),
    Refuse(
        "reorder_block_iter_var",
        "names each position",
        matmul,
        lambda s: s.reorder_block_iter_var("C", [0, 1]),
        "is not an order of the positions",
    ),
]

CASES = [*SPLIT, *FUSE, *REORDER, *OTHERS]
