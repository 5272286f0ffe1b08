"""Cases of blockize and tensorize."""

from __future__ import annotations

import sys
from pathlib import Path

from conformance_cases import (
    Accept,
    Example,
    Refuse,
    chain,
    matmul,
    reads_neighbours,
    script,
    symbolic_chain,
    symbolic_matmul,
)

from tilewright.tir.schedule import Schedule

sys.path.insert(0, str(Path(__file__).parent.parent / "tir" / "schedule"))
import intrin_cases

intrin_cases.register()


def _inner_rows(sch: Schedule, factor: int = 4) -> None:
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, factor])
    k0, k1 = sch.split(k, [None, 3])
    sch.reorder(i0, k0, i1, j, k1)
    sch.blockize(i1)


def _two_blocks(sch: Schedule, first: str, second: str) -> None:
    c = sch.get_block("C")
    i, _ = sch.get_loops(c)
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at("B", i0)
    sch.blockize([sch.get_block(first), sch.get_block(second)])


def _with_row_sums(sch: Schedule) -> None:
    d = sch.get_block("D")
    i, _ = sch.get_loops(d)
    sch.compute_at("C", i)
    sch.blockize([sch.get_block("C"), d])


def _wrong_order(sch: Schedule) -> None:
    i, _j, _k = sch.get_loops("C")
    i0, i1 = sch.split(i, [3, 4])
    sch.reorder(i1, i0)
    sch.blockize(i0)


with_branch = script("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i0, i1 in T.grid(4, 4):
        if i0 < 3:
            with T.block("B"):
                vi = T.axis.spatial(16, i0 * 4 + i1)
                B[vi] = A[vi]
""")

triangle = script("""
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i in range(16):
        for j in range(i + 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
""")

some_only = script("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i0, i1 in T.grid(4, 4):
        with T.block("B"):
            vi = T.axis.spatial(16, i0 * 4 + i1)
            T.where(i0 * 4 + i1 < 11)
            B[vi] = A[vi]
""")

two_kinds = script("""
@T.prim_func
def main(
    A: T.Buffer((16, 8), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((8,), "float32")
):
    for k in range(8):
        for i in range(16):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                B[vi] = B[vi] + A[vi, vk]
        with T.block("C"):
            vk = T.axis.spatial(8, k)
            C[vk] = A[0, vk]
""")

with_init = script("""
@T.prim_func
def main(
    A: T.Buffer((16, 8), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")
):
    for k0 in range(2):
        for i, k1 in T.grid(16, 4):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                vk = T.axis.reduce(8, k0 * 4 + k1)
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(16, k0 * 8 + i)
                C[vi] = A[vi, 0]
""")

repeated = script("""
@T.prim_func
def main(A: T.Buffer((16, 8), "float32"), B: T.Buffer((16,), "float32")):
    for i, k, again in T.grid(16, 8, 2):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
""")

adding = script("""
@T.prim_func
def main(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    for i0, i1 in T.grid(8, 16):
        with T.block("B"):
            vi = T.axis.spatial(128, i0 * 16 + i1)
            B[vi] = A[vi] + T.float32(1)
""")

symbolic_adding = script("""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 16), "float32")
    B = T.match_buffer(b, (n, 16), "float32")
    for i, j in T.grid(n, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.float32(1) + A[vi, vj]
""")


def _mma_tiles(sch: Schedule, order: tuple[int, ...] = (0, 1, 2)) -> list[object]:
    outer, inner = [], []
    for loop, factor in zip(sch.get_loops("C"), (4, 8, 3)):
        x, y = sch.split(loop, [None, factor])
        outer.append(x)
        inner.append(y)
    inner = [inner[n] for n in order]
    sch.reorder(*outer, *inner)
    return inner


nested_init = script("""
@T.prim_func
def main(A: T.Buffer((4, 3), "float32"), B: T.Buffer((3, 8), "float32"),
         C: T.Buffer((4, 8), "float32")):
    with T.block("outer"):
        T.reads(A[0:4, 0:3], B[0:3, 0:8])
        T.writes(C[0:4, 0:8])
        for i, j, k in T.grid(4, 8, 3):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")

chain_of_two = script("""
@T.prim_func
def main(A: T.Buffer((4, 16), "float32"), C: T.Buffer((4, 16), "float32")):
    B = T.alloc_buffer((4, 16), "float32")
    for i in range(4):
        for j in range(16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(16):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + A[vi, vj]
""")


CASES = [
    Accept("blockize", chain, lambda s: s.blockize(s.get_loops("D")[1])),
    Accept("blockize", matmul, _inner_rows),
    Accept("blockize", matmul, lambda s: _inner_rows(s, 5)),
    Accept("blockize", symbolic_matmul, _inner_rows, sizes=({"n": 3}, {"n": 8})),
    Accept("blockize", symbolic_chain, lambda s: _two_blocks(s, "B", "C"), sizes=({"n": 6},)),
    Accept("blockize", symbolic_chain, _with_row_sums, sizes=({"n": 5},)),
    Refuse(
        "blockize",
        "contain the blocks given and no others",
        chain,
        lambda s: s.blockize([s.get_block("B"), s.get_block("D")]),
        "block 'C' is between the blocks given",
    ),
    Refuse(
        "blockize",
        "there are only loops and blocks",
        with_branch,
        lambda s: s.blockize(s.get_loops("B")[1]),
        "a IfThenElse outside of blocks",
    ),
    Refuse(
        "blockize",
        "there are only loops and blocks",
        triangle,
        lambda s: s.blockize(s.get_loops("B")[1]),
        "the extent of loop 'j' depends on another loop",
    ),
    Refuse(
        "blockize",
        "different and in one scope",
        chain,
        lambda s: s.blockize([s.get_block("B"), s.get_block("B")]),
        "must be different and in one scope",
    ),
    Refuse("blockize", "each binding is", matmul, _wrong_order, r"is not outer \* extent \+ inner"),
    Refuse(
        "blockize",
        "only keep bindings inside their domains",
        some_only,
        lambda s: s.blockize(s.get_loops("B")[1]),
        "is not one that keeps an iteration variable",
    ),
    Refuse(
        "blockize",
        "a reduction is alone",
        with_init,
        lambda s: s.blockize([s.get_block("B"), s.get_block("C")]),
        "the reduction of block 'B' goes on over loops outside",
    ),
    Refuse(
        "blockize",
        "none uses elements of another",
        reads_neighbours,
        lambda s: s.blockize(s.get_loops("C")[0]),
        "block 'C' may not be initialised together: it reads elements of 'B'",
    ),
    Refuse(
        "blockize",
        "does not leave loops that are bound",
        matmul,
        lambda s: (
            s.bind(s.get_loops("C")[1], "threadIdx.x"),
            s.blockize(s.get_loops("C")[1]),
        ),
        "would be run by all threads",
    ),
    Refuse(
        "blockize",
        "used by its bindings",
        repeated,
        lambda s: s.blockize(s.get_loops("B")[1]),
        "repeats reduction block 'B'",
    ),
    Refuse(
        "blockize",
        "no spatial axis of another",
        two_kinds,
        lambda s: s.blockize([s.get_block("B"), s.get_block("C")]),
        "is a reduce axis of one block and a spatial axis",
    ),
    Example("blockize", lambda s: s.blockize(s.get_loops("B")[1]), {"A": "(128,)", "B": "(128,)"}),
    # ---- tensorize
    Accept("tensorize", adding, lambda s: s.tensorize(s.get_loops("B")[1], "add_one_16")),
    Accept(
        "tensorize",
        lambda: matmul(12, 16, 9),
        lambda s: s.tensorize(_mma_tiles(s, (2, 1, 0))[0], "test_mma_4x8x3"),
    ),
    Accept(
        "tensorize",
        symbolic_adding,
        lambda s: s.tensorize(s.get_loops("B")[1], "add_one_16"),
        sizes=({"n": 1}, {"n": 5}),
    ),
    Refuse(
        "tensorize",
        "the intrinsic is registered",
        adding,
        lambda s: s.tensorize(s.get_loops("B")[1], "test_add_two"),
        "description and implementation differ in 'Y'",
    ),
    Refuse(
        "tensorize",
        "below a loop there is one block",
        chain_of_two,
        lambda s: s.tensorize(s.get_loops("B")[0], "add_one_16"),
        "there are 2 blocks below the loop",
    ),
    Refuse(
        "tensorize",
        "without init, predicate and own buffers",
        nested_init,
        lambda s: s.tensorize("outer", "test_mma_4x8x3"),
        "block 'C' has init",
    ),
    Refuse(
        "tensorize",
        "without init, predicate and own buffers",
        lambda: matmul(11, 16, 9),
        lambda s: s.tensorize(_mma_tiles(s)[0], "test_mma_4x8x3"),
        "block 'C' has a predicate",
    ),
    Refuse(
        "tensorize",
        "the iterators of the nest",
        lambda: matmul(12, 16, 9),
        lambda s: s.tensorize(_mma_tiles(s)[1], "test_mma_4x8x3"),
        "its iterators are .spatial 8, reduce 3., the description has .spatial 4",
    ),
    Refuse(
        "tensorize",
        "computes what the description says",
        chain_of_two,
        lambda s: s.tensorize(s.get_loops("C")[-1], "add_one_16"),
        "does not do what tensor intrinsic 'add_one_16' describes",
    ),
    Refuse(
        "tensorize",
        "every parameter of the intrinsic",
        script("""
@T.prim_func
def main(B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = T.float32(1)
"""),
        lambda s: s.tensorize(s.get_loops("B")[0], "test_unused"),
        "parameter 'X' of tensor intrinsic 'test_unused' is not used",
    ),
    Example(
        "tensorize",
        lambda s: s.tensorize(s.get_loops("B")[1], "add_one_16"),
        {"A": "(128,)", "B": "(128,)"},
    ),
    Refuse(
        "blockize",
        "kept in it by conditions that all of them have",
        script("""
@T.prim_func
def main(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32"),
         C: T.Buffer((9,), "float32")):
    for i, j in T.grid(5, 2):
        with T.block("B"):
            v = T.axis.spatial(10, i * 2 + j)
            B[v] = A[v] + T.float32(1)
        with T.block("C"):
            v = T.axis.spatial(9, i * 2 + j)
            T.where(i * 2 + j < 9)
            C[v] = A[v] + T.float32(2)
"""),
        lambda s: s.blockize([s.get_block("B"), s.get_block("C")]),
        "would leave its domain",
    ),
]
