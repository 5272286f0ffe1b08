"""Cases of decompose_reduction and rfactor."""

from __future__ import annotations

from typing import Any

from conformance_cases import (
    Accept,
    Example,
    Program,
    Refuse,
    matmul,
    reads_neighbours,
    registered,
    script,
    symbolic_matmul,
    with_epilogue,
)

from tilewright import te
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule


def sums(n: int = 16, k: int = 32) -> PrimFunc:
    """Row sums ``C``."""
    a = te.placeholder((n, k), name="A")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n,), lambda i: te.sum(a[i, axis], axis=axis), name="C")
    return te.create_prim_func([a, c])


def argmax(reduce: str = "argmax", n: int = 4, k: int = 12) -> PrimFunc:
    """Rows of (index, value) pairs reduced to one."""
    index = te.placeholder((n, k), "int64", name="I")
    a = te.placeholder((n, k), name="A")
    axis = te.reduce_axis((0, k), "k")
    pick = te.reducer(reduce)
    made = te.compute((n,), lambda i: pick((index[i, axis], a[i, axis]), axis=axis), name="C")
    return te.create_prim_func([index, a, *made])


def symbolic_argmax() -> PrimFunc:
    """Pairs over a reduction axis of unknown extent ``n``."""
    n = te.var("n")
    index = te.placeholder((4, n), "int64", name="I")
    a = te.placeholder((4, n), name="A")
    axis = te.reduce_axis((0, n), "k")
    made = te.compute((4,), lambda i: te.argmax((index[i, axis], a[i, axis]), axis=axis), name="C")
    return te.create_prim_func([index, a, *made])


def rows(body: str, params: str = "") -> Program:
    """A function of ``A (16, 32)`` and ``C (16,)`` with this body."""
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    return script(
        "@T.prim_func\n"
        f'def main(A: T.Buffer((16, 32), "float32"), C: T.Buffer((16,), "float32"){params}):\n'
        f"{lines}\n"
    )


shared_loop = rows("""
for x in range(16):
    with T.block("C"):
        vi = T.axis.spatial(16, x // 4 * 4)
        vk = T.axis.reduce(32, x % 4)
        with T.init():
            C[vi] = T.float32(0)
        C[vi] = C[vi] + A[vi, vk]
""")

late_start = rows("""
for i, k in T.grid(16, 31):
    with T.block("C"):
        vi = T.axis.spatial(16, i)
        vk = T.axis.reduce(32, k + 1)
        with T.init():
            C[vi] = T.float32(0)
        C[vi] = C[vi] + A[vi, vk]
""")

late_condition = rows("""
for i, k in T.grid(16, 32):
    with T.block("C"):
        T.where(i < k)
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            C[vi] = T.float32(0)
        C[vi] = C[vi] + A[vi, vk]
""")

repeated = rows("""
for i, k, again in T.grid(16, 32, 2):
    with T.block("C"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            C[vi] = T.float32(0)
        C[vi] = C[vi] + A[vi, vk]
""")

neighbour = rows(
    """
for i in range(16):
    with T.block("before"):
        vi = T.axis.spatial(16, i)
        D[vi] = C[vi]
    for k in range(32):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
""",
    ', D: T.Buffer((16,), "float32")',
)

bias_below = rows(
    """
B = T.alloc_buffer((16,), "float32")
for i in range(16):
    with T.block("bias"):
        vi = T.axis.spatial(16, i)
        B[vi] = A[vi, 0]
    for k in range(32):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = B[vi]
            C[vi] = C[vi] + A[vi, vk]
""",
)

in_branch = rows("""
for i, k in T.grid(16, 32):
    if i < 8:
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
""")

with_store = rows("""
for i in range(16):
    C[i] = T.float32(7)
    for k in range(32):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
""")

two_writers = rows("""
for i in range(16):
    with T.block("first"):
        vi = T.axis.spatial(16, i)
        C[vi] = A[vi, 0]
for i, k in T.grid(16, 32):
    with T.block("C"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            C[vi] = T.float32(0)
        C[vi] = C[vi] + A[vi, vk]
""")

own_buffer = rows("""
for i, k in T.grid(16, 32):
    with T.block("C"):
        vi, vk = T.axis.remap("SR", [i, k])
        AM = T.match_buffer(A[vi, vk], (), "float32")
        with T.init():
            C[vi] = T.float32(0)
        C[vi] = C[vi] + AM[()]
""")

crowded = rows(
    """
for k in range(32):
    for i in range(16):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
    with T.block("other"):
        vk = T.axis.spatial(32, k)
        D[vk] = A[0, vk]
""",
    ', D: T.Buffer((32,), "float32")',
)

triangle = rows("""
for i in range(16):
    for k0, k1 in T.grid(i + 1, 2):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            vk = T.axis.reduce(32, k0 * 2 + k1)
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
""")

slanted = rows("""
for i0, i1, k0, k1 in T.grid(4, 4, 2, 8):
    with T.block("C"):
        T.where(i0 * 4 + i1 + k0 * 8 + k1 < 18)
        vi = T.axis.spatial(16, i0 * 4 + i1)
        vk = T.axis.reduce(32, k0 * 8 + k1)
        with T.init():
            C[vi] = T.float32(0)
        C[vi] = C[vi] + A[vi, vk]
""")


def _loops(sch: Schedule) -> list[object]:
    return list(sch.get_loops("C"))


def _split_rfactor(sch: Schedule, factor: int, which: int, axis: int = 0) -> None:
    loops = sch.split(_loops(sch)[-1], [None, factor])
    sch.rfactor(loops[which], axis)


def _no_init(sch: Schedule) -> None:
    block = sch.get_block("C")
    i, _ = sch.get_loops(block)
    sch.decompose_reduction(block, i)
    sch.decompose_reduction(block, sch.get_loops(block)[0])


def _left_of_equals(x: Any, y: Any) -> Any:
    left = x[1] >= y[1]
    return te.select(left, x[0], y[0]), te.select(left, x[1], y[1])


def _rfactor_of_left_wins(sch: Schedule) -> None:
    identity = lambda i, v: (te.const(-1, i), te.min_value(v))
    with registered("test_left_of_equals", _left_of_equals, identity, 2):
        sch.rfactor(_loops(sch)[1], 0)


def _elsewhere(sch: Schedule) -> None:
    d = sch.get_block("D")
    sch.decompose_reduction("C", sch.get_loops(d)[0])


def _outside(sch: Schedule) -> None:
    i, k = _loops(sch)
    sch.reorder(k, i)
    sch.decompose_reduction("C", i)


def _unrolled(sch: Schedule) -> None:
    k0, k1 = sch.split(_loops(sch)[-1], [None, 4])
    sch.unroll(k0)
    sch.rfactor(k1, 0)


def _crowded_loop(sch: Schedule) -> None:
    sch.rfactor(_loops(sch)[0], 0)


unknown = rows("""
for i, k in T.grid(16, 32):
    with T.block("C"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            C[vi] = T.float32(0)
        C[vi] = C[vi] * T.float32(2) + A[vi, vk]
""")

split_crowded = rows(
    """
for k0 in range(4):
    for i, k1 in T.grid(16, 8):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            vk = T.axis.reduce(32, k0 * 8 + k1)
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
    with T.block("other"):
        vk = T.axis.spatial(4, k0)
        D[vk] = A[0, vk]
""",
    ', D: T.Buffer((4,), "float32")',
)

left_wins = script("""
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), P: T.Buffer((4,), "int64"), V: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 8):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                P[vi] = T.int64(-1)
                V[vi] = T.float32("-inf")
            p: T.int64 = T.Select(V[vi] >= A[vi, vk], P[vi], vk)
            v: T.float32 = T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])
            P[vi] = p
            V[vi] = v
""")


CASES = [
    # ---- decompose_reduction
    Accept("decompose_reduction", matmul, lambda s: s.decompose_reduction("C", _loops(s)[1])),
    Accept("decompose_reduction", argmax, lambda s: s.decompose_reduction("C", _loops(s)[0])),
    Accept(
        "decompose_reduction",
        symbolic_matmul,
        lambda s: s.decompose_reduction("C", _loops(s)[0]),
        sizes=({"n": 5},),
    ),
    Accept(
        "decompose_reduction",
        symbolic_argmax,
        lambda s: s.decompose_reduction("C", s.split(_loops(s)[1], [None, 4])[0]),
        sizes=({"n": 5}, {"n": 1}),
    ),
    Accept(
        "decompose_reduction", late_condition, lambda s: s.decompose_reduction("C", _loops(s)[0])
    ),
    Accept("decompose_reduction", bias_below, lambda s: s.decompose_reduction("C", _loops(s)[1])),
    Refuse("decompose_reduction", "has an init", sums, _no_init, "has no init to take out"),
    Refuse(
        "decompose_reduction",
        "is around the block",
        lambda: with_epilogue(),
        _elsewhere,
        "is not around block 'C'",
    ),
    Refuse(
        "decompose_reduction",
        "there are only loops",
        in_branch,
        lambda s: s.decompose_reduction("C", _loops(s)[0]),
        "block 'C' is inside a IfThenElse",
    ),
    Refuse(
        "decompose_reduction",
        "there are only loops",
        with_store,
        lambda s: s.decompose_reduction("C", _loops(s)[0]),
        "a statement outside blocks is below the loop",
    ),
    Refuse(
        "decompose_reduction",
        "is bound to threads",
        sums,
        lambda s: (
            s.bind(_loops(s)[1], "threadIdx.x"),
            s.decompose_reduction("C", _loops(s)[0]),
        ),
        "loop k of the reduction is bound to threadIdx.x",
    ),
    Refuse(
        "decompose_reduction",
        "no loop of the reduction is outside",
        sums,
        _outside,
        "loop k of the reduction is outside",
    ),
    Refuse(
        "decompose_reduction",
        "serves both spatial and reduction",
        shared_loop,
        lambda s: s.decompose_reduction("C", _loops(s)[0]),
        "serves both spatial and reduction axes",
    ),
    Refuse(
        "decompose_reduction",
        "elements of another",
        reads_neighbours,
        lambda s: s.decompose_reduction("C", s.get_loops("C")[0]),
        "block 'C' may not be initialised together: it reads elements of 'B'",
    ),
    Refuse(
        "decompose_reduction",
        "start where their loops start",
        late_start,
        lambda s: s.decompose_reduction("C", _loops(s)[0]),
        "vk of block 'C' starts at `.*1.*`, but the init runs where it is `0`",
    ),
    Refuse(
        "decompose_reduction",
        "at most once",
        repeated,
        lambda s: s.decompose_reduction("C", _loops(s)[0]),
        "more than once",
    ),
    Refuse(
        "decompose_reduction",
        "other blocks below the loop",
        neighbour,
        lambda s: s.decompose_reduction("C", _loops(s)[0]),
        "block 'before' below loop i reads 'C', which the init would overwrite",
    ),
    Refuse(
        "decompose_reduction",
        "other blocks below the loop",
        bias_below,
        lambda s: s.decompose_reduction("C", _loops(s)[0]),
        "block 'bias' below loop i writes 'B', which the init would read",
    ),
    Example(
        "decompose_reduction",
        lambda s: s.decompose_reduction("C", _loops(s)[0]),
        {"A": "(128, 64)", "C": "(128,)"},
    ),
    # ---- rfactor
    Accept("rfactor", sums, lambda s: _split_rfactor(s, 4, 1)),
    Accept("rfactor", sums, lambda s: _split_rfactor(s, 5, 0, -1)),
    Accept("rfactor", matmul, lambda s: _split_rfactor(s, 4, 1, 2)),
    Accept("rfactor", argmax, lambda s: _split_rfactor(s, 5, 1)),
    Accept("rfactor", lambda: argmax("argmin_last"), lambda s: _split_rfactor(s, 5, 0, 1)),
    Accept(
        "rfactor",
        symbolic_argmax,
        lambda s: _split_rfactor(s, 4, 1),
        sizes=({"n": 1}, {"n": 3}, {"n": 13}),
    ),
    Accept(
        "rfactor",
        symbolic_argmax,
        lambda s: _split_rfactor(s, 4, 0),
        sizes=({"n": 1}, {"n": 13}),
    ),
    Refuse(
        "rfactor",
        "one block below the loop",
        crowded,
        _crowded_loop,
        "holds more than one block",
    ),
    Refuse(
        "rfactor",
        "reduction with init by a registered reducer",
        unknown,
        lambda s: s.rfactor(_loops(s)[1], 0),
        "not a reduction by a known reducer",
    ),
    Refuse(
        "rfactor",
        "associative and commutative",
        left_wins,
        _rfactor_of_left_wins,
        "combination is not commutative: for",
    ),
    Refuse(
        "rfactor",
        "conditions that leave out iterations",
        slanted,
        lambda s: s.rfactor(_loops(s)[3], 0),
        "may have nothing to reduce",
    ),
    Refuse(
        "rfactor",
        "writes its results",
        two_writers,
        lambda s: s.rfactor(_loops(s)[1], 0),
        "'C' is not the only writer",
    ),
    Refuse(
        "rfactor",
        "no buffers of its own",
        own_buffer,
        lambda s: s.rfactor(_loops(s)[1], 0),
        "has buffers of its own",
    ),
    Refuse(
        "rfactor",
        "serves both spatial and reduction",
        shared_loop,
        lambda s: s.rfactor(_loops(s)[0], 0),
        "serves both spatial and reduction axes",
    ),
    Refuse(
        "rfactor",
        "the loop is part of the reduction",
        sums,
        lambda s: s.rfactor(_loops(s)[0], 0),
        "not part of the reduction",
    ),
    Refuse(
        "rfactor",
        "hold this block alone",
        split_crowded,
        lambda s: s.rfactor(_loops(s)[2], 0),
        "loop k0 of the reduction holds other statements",
    ),
    Refuse("rfactor", "are serial", sums, _unrolled, "is unrolled, not serial"),
    Refuse(
        "rfactor",
        "no extent of the reduction depends",
        triangle,
        lambda s: s.rfactor(_loops(s)[2], 0),
        "loop k0 must start at zero and have an extent",
    ),
    Refuse(
        "rfactor",
        "start where their loops start",
        late_start,
        lambda s: s.rfactor(_loops(s)[1], 0),
        "starts at `.*1.*`, but",
    ),
    Refuse(
        "rfactor",
        "at most once",
        repeated,
        lambda s: s.rfactor(_loops(s)[1], 0),
        "more than once",
    ),
    Refuse(
        "rfactor",
        "hold where its reduction starts",
        late_condition,
        lambda s: s.rfactor(_loops(s)[1], 0),
        "may not hold where the reduction starts",
    ),
    Refuse(
        "rfactor",
        "position in the shape",
        sums,
        lambda s: s.rfactor(_loops(s)[1], 3),
        r"factor_axis 3 is outside \[-2, 1\]",
    ),
    Example(
        "rfactor",
        lambda s: s.rfactor(_loops(s)[2], 0),
        {"A": "(16, 32)", "C": "(16,)"},
        after='C_rf = T.alloc_buffer((4, 16), "float32")',
    ),
]
