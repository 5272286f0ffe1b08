"""Cases of blockize."""

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

from tilewright.tir.schedule import Schedule


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
        "depend on loop 'i' outside",
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
]
