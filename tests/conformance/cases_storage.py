"""Cases of how intermediate buffers are stored."""

from __future__ import annotations

from cases_layout import matched, through_pointer
from conformance_cases import Accept, Example, Refuse, chain, matmul, script, symbolic_chain

from tilewright.tir.schedule import Schedule

VECTOR = {"A": "(16,)"}

SUMS = script("""
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i, k in T.grid(4, 8):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                B[v] = T.float32(0)
            B[v] = B[v] + A[v, r]
    for i in range(4):
        with T.block("C"):
            v = T.axis.spatial(4, i)
            C[v] = B[v] * T.float32(2)
""")


def _combined_as_doubles(s: Schedule) -> None:
    s.bind(s.get_loops("B")[1], "threadIdx.x")
    s.unsafe_set_dtype("B", 0, "float64")


CASES = [
    Accept("set_scope", chain, lambda s: s.set_scope(s.get_block("B"), "B", "shared.dyn")),
    Accept(
        "set_scope",
        symbolic_chain,
        lambda s: s.set_scope(s.get_block("B"), 0, "local"),
        sizes=({"n": 5},),
    ),
    Accept("set_scope", matched, lambda s: s.set_scope(s.get_block("B"), 0, "shared")),
    Refuse(
        "set_scope",
        "the block writes the buffer",
        chain,
        lambda s: s.set_scope(s.get_block("B"), 1, "local"),
        "there is no number 1",
    ),
    Refuse(
        "set_scope",
        "allocated in the function",
        chain,
        lambda s: s.set_scope(s.get_block("D"), 0, "local"),
        "is a parameter",
    ),
    Refuse(
        "set_scope",
        "name of a memory",
        chain,
        lambda s: s.set_scope(s.get_block("B"), 0, ""),
        "is no name of a memory",
    ),
    Example("set_scope", lambda s: s.set_scope(s.get_block("B"), 0, "local"), VECTOR),
    Accept("storage_align", chain, lambda s: s.storage_align(s.get_block("B"), 0, -2, 8, 3)),
    Accept(
        "storage_align",
        symbolic_chain,
        lambda s: s.storage_align(s.get_block("B"), "B", 0, 8, 1),
        sizes=({"n": 5},),
    ),
    Refuse(
        "storage_align",
        "the block writes the buffer",
        chain,
        lambda s: s.storage_align(s.get_block("B"), "Z", 0, 8, 1),
        "does not write 'Z'",
    ),
    Refuse(
        "storage_align",
        "allocated in the function",
        matmul,
        lambda s: s.storage_align(s.get_block("C"), 0, 0, 8, 1),
        "is a parameter",
    ),
    Refuse(
        "storage_align",
        "memory has no other name",
        through_pointer,
        lambda s: s.storage_align(s.get_block("B"), 0, 0, 8, 1),
        "through its pointer",
    ),
    Refuse(
        "storage_align",
        "is a dimension",
        chain,
        lambda s: s.storage_align(s.get_block("B"), 0, 2, 8, 1),
        "there is no axis 2",
    ),
    Refuse(
        "storage_align",
        "lies in",
        chain,
        lambda s: s.storage_align(s.get_block("B"), 0, 0, 8, 8),
        "offset 8 lie in",
    ),
    Example(
        "storage_align",
        lambda s: s.storage_align(s.get_block("B"), 0, 0, 32, 1),
        {"A": "(16, 32)"},
    ),
    Accept(
        "unsafe_set_dtype",
        chain,
        lambda s: s.unsafe_set_dtype(s.get_block("B"), 0, "float64"),
    ),
    Accept(
        "unsafe_set_dtype",
        symbolic_chain,
        lambda s: s.unsafe_set_dtype(s.get_block("B"), "B", "int8"),
        sizes=({"n": 5},),
        keeps_meaning=False,
    ),
    Refuse(
        "unsafe_set_dtype",
        "the block writes the buffer",
        chain,
        lambda s: s.unsafe_set_dtype(s.get_block("B"), 3, "float16"),
        "there is no number 3",
    ),
    Refuse(
        "unsafe_set_dtype",
        "allocated in the function",
        chain,
        lambda s: s.unsafe_set_dtype(s.get_block("D"), 0, "float16"),
        "is a parameter",
    ),
    Refuse(
        "unsafe_set_dtype",
        "by its elements only",
        matched,
        lambda s: s.unsafe_set_dtype(s.get_block("B"), 0, "float16"),
        "is matched by M",
    ),
    Refuse(
        "unsafe_set_dtype",
        "by its elements only",
        through_pointer,
        lambda s: s.unsafe_set_dtype(s.get_block("B"), 0, "float16"),
        "through its pointer",
    ),
    Refuse(
        "unsafe_set_dtype",
        "type of one number",
        chain,
        lambda s: s.unsafe_set_dtype(s.get_block("B"), 0, "float32x4"),
        "not the type of one number",
    ),
    Refuse(
        "unsafe_set_dtype",
        "type of one number",
        chain,
        lambda s: s.unsafe_set_dtype(s.get_block("B"), 0, "number"),
        "no element type",
    ),
    Refuse(
        "unsafe_set_dtype",
        "no threads combine",
        SUMS,
        _combined_as_doubles,
        "would update the same elements of 'B' at once",
    ),
    Example(
        "unsafe_set_dtype",
        lambda s: s.unsafe_set_dtype(s.get_block("B"), 0, "float16"),
        {**VECTOR, "C": "(16,)"},
    ),
]
