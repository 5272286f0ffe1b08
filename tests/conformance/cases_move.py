"""Cases of moving computation under loops: compute_at and reverse_compute_at."""

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
from programs_of_scopes import partial, rewritten, scan, symbolic_window

from tilewright.script import parse
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

FIVE = ({"n": 5}, {"n": 3})
VECTORS = {"A": "(128,)", "C": "(128,)"}
ALLOCATED = 'B = T.alloc_buffer((128,), "float32")'
ROOT = "the root block"

windows = script(
    """
@T.prim_func
def main(A: T.Buffer((10, 6)), D: T.Buffer((8, 6)), F: T.Buffer((8, 6))):
    B = T.alloc_buffer((10, 6))
    C = T.alloc_buffer((8, 6))
    E = T.alloc_buffer((8, 6))
    for i, j in T.grid(10, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(8, 6):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + B[vi + 2, vj]
    for i, j in T.grid(8, 6):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[7 - vi, vj] = A[vi, vj]
    for i, j in T.grid(8, 6):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] + E[vi, vj]
    for i, j in T.grid(8, 6):
        with T.block("F"):
            vi, vj = T.axis.remap("SS", [i, j])
            F[vi, vj] = D[vi, vj] + T.float32(1)
"""
)

branches = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    for i in range(8):
        if i >= 0:
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi]
"""
)

strided = script(
    """
@T.prim_func
def main(A: T.Buffer((16,)), C: T.Buffer((16,)), D: T.Buffer((4,))):
    B = T.alloc_buffer((16,))
    for i in range(4):
        for j in range(4):
            with T.block("B"):
                vi = T.axis.spatial(16, j * 4 + i)
                B[vi] = A[vi]
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[vi]
    for i, j in T.grid(4, 4):
        with T.block("D"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.reduce(4, j)
            with T.init():
                D[vi] = T.float32(0)
            D[vi] = D[vi] + B[vj]
"""
)

row_sums = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 6)), D: T.Buffer((8,))):
    C = T.alloc_buffer((8,))
    for i, k in T.grid(8, 6):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = C[vi] * T.float32(2)
"""
)

half_made = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((16,))):
    B = T.alloc_buffer((16,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[vi]
"""
)

early = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8,)), D: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = C[vi] + T.float32(1)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + T.float32(1)
"""
)


def _under(move: str, block: str, other: str, depth: int = 0, **options: object) -> object:
    def apply(sch: Schedule) -> object:
        return getattr(sch, move)(block, sch.get_loops(other)[depth], **options)

    return apply


def _at(block: str, other: str, depth: int = 0, **options: object) -> object:
    return _under("compute_at", block, other, depth, **options)


def _reverse(block: str, other: str, depth: int = 0, **options: object) -> object:
    return _under("reverse_compute_at", block, other, depth, **options)


def _fetched(scope: str, *extents: int) -> object:
    """Fetch of ``B``, inside of thread loops, what the threads need that share the memory."""

    def apply(sch: Schedule) -> None:
        i, j, k = sch.get_loops("C")
        rows, k0 = sch.split(i, [None, 3])[1], sch.split(k, [None, 3])[0]
        columns = sch.split(j, [None, 4])[1]
        sch.reorder(rows, columns, k0)
        sch.bind(rows, "threadIdx.y")
        sch.bind(columns, "threadIdx.x")
        copy = sch.cache_read("C", 1, scope)
        sch.compute_at(copy, k0, preserve_unit_loops=True)
        assert [sch.get(loop).extent.value for loop in sch.get_loops(copy)[-2:]] == [*extents]

    return apply


def _overwritten() -> PrimFunc:
    """A copy of what is overwritten after that."""
    func: PrimFunc = parse("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), Z: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i in T.serial(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
    for i in T.serial(4):
        with T.block("Z"):
            vi = T.axis.spatial(4, i)
            Z[vi] = B[vi]
    for i in T.serial(4):
        with T.block("A"):
            vi = T.axis.spatial(4, i)
            A[vi] = Z[vi] * T.float32(2)
""")
    return func


def _max_of_nothing() -> PrimFunc:
    func: PrimFunc = parse("""
@T.prim_func
def main(A: T.Buffer((1, 1), "float32"), Z: T.Buffer((1,), "float32")):
    B = T.alloc_buffer((1,), "float32")
    for i, k in T.grid(1, 0):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(5)
            B[vi] = T.max(B[vi], A[vi, vk])
    for i in T.serial(1):
        with T.block("Z"):
            vi = T.axis.spatial(1, i)
            Z[vi] = B[vi] * T.float32(2)
""")
    return func


def _move_into_nothing(sch: Schedule) -> None:
    factored = sch.rfactor(sch.get_loops("B")[1], 1)
    sch.compute_at(factored, sch.get_loops("B")[1])
    sch.compute_at("B", sch.get_loops("Z")[0])
    sch.reverse_compute_at("B", sch.get_loops(factored)[1])


def _inside(sch: Schedule) -> object:
    """C and its loops are in a block of their own."""
    sch.blockize(sch.get_loops("C")[1])
    return sch.get_loops("C")[0]


CASES = [
    # ---- compute_at
    Accept("compute_at", chain, _at("B", "C", 1)),
    Accept("compute_at", windows, _at("B", "C", 0, preserve_unit_loops=True)),
    Accept("compute_at", windows, _at("C", "D", 0, index=-2)),
    Accept("compute_at", windows, _at("C", "D", 0, index=0)),
    Accept("compute_at", symbolic_chain, _at("C", "D"), sizes=FIVE),
    Accept(
        "compute_at",
        symbolic_window,
        lambda s: s.compute_at("B", s.split(s.get_loops("C")[0], [None, 4])[0]),
        sizes=FIVE,
    ),
    Accept("compute_at", matmul, _fetched("shared", 3, 4)),
    Accept("compute_at", matmul, _fetched("warp", 3, 4)),
    Accept("compute_at", matmul, _fetched("local", 3, 1)),
    Accept("compute_at", matmul, _fetched("global", 3, 1)),
    Accept("compute_at", symbolic_matmul, _fetched("shared.dyn", 3, 4), sizes=FIVE),
    Refuse("compute_at", "complete or a reduction", scan, _at("E", "D"), "an output block"),
    Refuse(
        "compute_at", "complete or a reduction", rewritten, _at("B_low", "C"), "not the only writer"
    ),
    Refuse("compute_at", "allocated in its scope", windows, _at("D", "F"), "an output block"),
    Refuse("compute_at", "changed after it", rewritten, _at("E", "C"), "changes later"),
    Refuse("compute_at", "changed after it", scan, _at("D", "E"), "in later iterations of loop k"),
    Refuse(
        "compute_at",
        "the predicate of the block",
        partial,
        _at("B", "C"),
        "restricts it beyond its domain",
    ),
    Refuse("compute_at", "loop is in the scope", chain, _at("B", "B"), "is under loop i already"),
    Refuse(
        "compute_at",
        "loop is in the scope",
        chain,
        lambda s: s.compute_at("B", _inside(s)),
        "is not in the scope",
    ),
    Refuse("compute_at", "has consumers", chain, _at("B", "D"), "is not under loop"),
    Refuse(
        "compute_at",
        "there is a place under",
        windows,
        _at("C", "D", index=3),
        "index 3 is not between 0 and 0",
    ),
    Refuse(
        "compute_at",
        "inside another block",
        chain,
        lambda s: s.compute_at("root", s.get_loops("B")[0]),
        ROOT,
    ),
    Example("compute_at", _at("B", "C"), VECTORS, ALLOCATED, ALLOCATED),
    # ---- reverse_compute_at
    Accept("reverse_compute_at", chain, _reverse("D", "C", 1)),
    Accept("reverse_compute_at", chain, _reverse("D", "C", 0, preserve_unit_loops=True)),
    Accept("reverse_compute_at", windows, _reverse("F", "D", 0, index=-2)),
    Accept("reverse_compute_at", symbolic_chain, _reverse("C", "B"), sizes=FIVE),
    Refuse(
        "reverse_compute_at",
        "an axis goes along",
        _max_of_nothing,
        _move_into_nothing,
        "the init of block 'B' would not run then",
    ),
    Refuse(
        "reverse_compute_at",
        "complete or a reduction",
        rewritten,
        _reverse("B_high", "B_low"),
        "not the only writer",
    ),
    Refuse(
        "reverse_compute_at", "run all of its domain", partial, _reverse("C", "B"), "don't run all"
    ),
    Refuse(
        "reverse_compute_at", "loop is in the scope", chain, _reverse("C", "C"), "is under loop i"
    ),
    Refuse(
        "reverse_compute_at",
        "a producer of the block",
        windows,
        _reverse("C", "E"),
        "no producer of block 'C' is under",
    ),
    Refuse(
        "reverse_compute_at",
        "none that is there comes after",
        _overwritten,
        _reverse("B", "A"),
        "block 'B' reads A before block 'A' writes it",
    ),
    Refuse(
        "reverse_compute_at",
        "all else that the block reads",
        windows,
        _reverse("D", "C"),
        "which block 'E' outside of loop i writes",
    ),
    Refuse(
        "reverse_compute_at",
        "in one iteration of the loops around",
        script(
            """
@T.prim_func
def main(A: T.Buffer((2,)), E: T.Buffer((3,)), D: T.Buffer((2, 3))):
    L = T.alloc_buffer((2,))
    B = T.alloc_buffer((3,))
    for i in range(2):
        with T.block("L"):
            vi = T.axis.spatial(2, i)
            L[vi] = A[vi]
        for j in range(3):
            with T.block("B"):
                vj = T.axis.spatial(3, j)
                B[vj] = E[vj]
        for j in range(3):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = L[vi] + B[vj]
"""
        ),
        lambda s: s.reverse_compute_at("D", s.get_loops("B")[1]),
        "would run all of its axis vi in each iteration, but block 'L' makes L one iteration",
    ),
    Refuse(
        "reverse_compute_at",
        "nobody reads what the block writes",
        early,
        _reverse("C", "B"),
        "reads C before block 'C' writes it",
    ),
    Refuse(
        "reverse_compute_at",
        "no condition leaves producers out",
        chain,
        lambda s: (
            s.split(s.split(s.get_loops("B")[0], [None, 5])[1], [None, 2]),
            s.reverse_compute_at("C", s.get_loops("B")[2]),
        ),
        "and those around it only",
    ),
    Refuse(
        "reverse_compute_at",
        "one iteration of the loop completes",
        row_sums,
        _reverse("D", "C", 1),
        "is part of the reduction of block 'C'",
    ),
    Refuse(
        "reverse_compute_at",
        "one iteration of the loop completes",
        branches,
        _reverse("C", "B"),
        "runs under a branch",
    ),
    Refuse(
        "reverse_compute_at", "has no holes", windows, _reverse("C", "B"), "can't be told from its"
    ),
    Refuse("reverse_compute_at", "has no holes", strided, _reverse("C", "B"), "has holes"),
    Refuse(
        "reverse_compute_at",
        "all iterations together",
        half_made,
        _reverse("C", "B"),
        "would not run all of its axis vi",
    ),
    Refuse(
        "reverse_compute_at",
        "there is a place under",
        chain,
        _reverse("D", "C", index=0),
        "index 0 is not between 1 and 1",
    ),
    Refuse(
        "reverse_compute_at",
        "inside another block",
        chain,
        lambda s: s.reverse_compute_at("root", s.get_loops("B")[0]),
        ROOT,
    ),
    Example("reverse_compute_at", _reverse("C", "B"), VECTORS, ALLOCATED, ALLOCATED),
]
