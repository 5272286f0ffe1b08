"""Cases of layouts: of buffers, of blocks, and of physical axes."""

from __future__ import annotations

from conformance_cases import Accept, Example, Refuse, chain, matmul, script, symbolic_chain

from tilewright.ir import const
from tilewright.tir import IndexMap, PrimFunc
from tilewright.tir.schedule import Schedule

DOC_PARAMS = {"A": "(64, 32)"}

matched = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 8)), C: T.Buffer((8, 8))):
    B = T.alloc_buffer((8, 8))
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            T.reads(B[vi, 0:8])
            T.writes(C[vi, 0:8])
            M = T.match_buffer(B[vi, 0:8], (8,))
            for j in range(8):
                with T.block("inner"):
                    vj = T.axis.spatial(8, j)
                    C[vi, vj] = M[vj]
"""
)

through_pointer = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
    with T.block("C"):
        T.reads(B[0:8])
        T.writes(C[0:8])
        T.call_extern(
            "copy", T.address_of(C[0], dtype="handle"), T.address_of(B[0], dtype="handle"),
            dtype="int32")
"""
)

scan = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 6)), B: T.Buffer((9, 6))):
    for i, j in T.grid(8, 6):
        with T.block("scan"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi + 1, vj] = B[vi, vj] + A[vi, vj]
"""
)


def layout_free_matmul() -> PrimFunc:
    """``matmul`` whose second operand is known before the function runs."""
    return matmul().with_attr("layout_free_buffers", [1])


def _transform(*args: object, **options: object) -> object:
    return lambda s: s.transform_layout(s.get_block("B"), *args, **options)


def _parallel_first(sch: Schedule) -> object:
    sch.parallel(sch.get_loops("B")[0])
    return sch.transform_block_layout(sch.get_block("B"), "lambda i, j: (j, i)")


def _split_first(sch: Schedule) -> object:
    sch.split(sch.get_loops("B")[0], [4, 4])
    return sch.transform_block_layout(sch.get_block("B"), "lambda i, j: (j, i)")


idle_loop = script(
    """
@T.prim_func
def main(A: T.Buffer((8, 6)), B: T.Buffer((8, 6))):
    for i, r, j in T.grid(8, 2, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""
)


CASES = [
    Example(
        "transform_layout",
        _transform(("write", 0), lambda i, j: (i // 16, j, i % 16)),
        DOC_PARAMS,
        'B = T.alloc_buffer((64, 32), "float32")',
        'B = T.alloc_buffer((4, 32, 16), "float32")',
    ),
    Accept("transform_layout", chain, _transform("B", lambda i, j: (j // 5, i, j % 5))),
    Accept("transform_layout", chain, _transform(("write", 0), lambda i, j: (15 - i, j))),
    Accept(
        "transform_layout",
        chain,
        _transform(("write", 0), lambda i, j: ((i + 2) // 4, j, (i + 2) % 4), pad_value=-1.5),
    ),
    Accept(
        "transform_layout",
        chain,
        _transform(
            ("write", 0),
            lambda i, j: (i, IndexMap.AXIS_SEPARATOR, j // 8, j % 8),
            pad_value=lambda a, b, c: a * 100 + b * 8 + c,
        ),
    ),
    Accept(
        "transform_layout",
        chain,
        _transform(("write", 0), lambda i, j: (i + j, j), assume_injective_transform=True),
    ),
    Accept(
        "transform_layout",
        chain,
        _transform(
            ("write", 0),
            IndexMap.from_func(lambda i, j: (i, j), inverse_index_map=lambda i, j: (i, j)),
        ),
    ),
    Accept(
        "transform_layout",
        symbolic_chain,
        _transform(("write", 0), "lambda i, j: (j * n + i,)"),
        sizes=({"n": 5}, {"n": 1}),
    ),
    Accept(
        "transform_layout",
        symbolic_chain,
        _transform(("write", 0), lambda i, j: (i // 4, j, i % 4), pad_value=0),
        sizes=({"n": 5}, {"n": 8}),
    ),
    Refuse(
        "transform_layout",
        "one that the block accesses",
        chain,
        _transform(("write", 1), lambda i, j: (j, i)),
        "there is no buffer 1",
    ),
    Refuse(
        "transform_layout",
        "one index per dimension",
        chain,
        _transform(("write", 0), lambda i: (i,)),
        "takes 1 indices, expected 2",
    ),
    Refuse(
        "transform_layout",
        "one index per dimension",
        chain,
        _transform(("write", 0), lambda i, j: (i - j, j)),
        "may be negative",
    ),
    Refuse(
        "transform_layout",
        "one index per dimension",
        chain,
        _transform(("write", 0), "lambda i, j: (i + k, j)"),
        "unknown name k",
    ),
    Refuse(
        "transform_layout",
        "is injective, unless",
        chain,
        _transform(("write", 0), lambda i, j: (i // 2, j)),
        "not a bijection",
    ),
    Refuse(
        "transform_layout",
        "is injective, unless",
        chain,
        _transform(
            ("write", 0),
            IndexMap.from_func(lambda i, j: (i // 2, j), inverse_index_map=lambda i, j: (i * 2, j)),
        ),
        "not a bijection",
    ),
    Refuse(
        "transform_layout",
        "allocated in the function, or listed",
        chain,
        _transform(("read", 0), lambda i, j: (j, i)),
        "callers rely on its layout",
    ),
    Refuse(
        "transform_layout",
        "not a view of another one",
        matched,
        lambda s: s.transform_layout(s.get_block("B"), ("write", 0), lambda i, j: (j, i)),
        "is matched",
    ),
    Refuse(
        "transform_layout",
        "by its elements only",
        through_pointer,
        lambda s: s.transform_layout(s.get_block("B"), ("write", 0), lambda i: (7 - i,)),
        "through its pointer",
    ),
    Refuse(
        "transform_layout",
        "is a number or a function",
        chain,
        _transform(("write", 0), lambda i, j: (j, i), pad_value=[1]),
        "must be a number or a function",
    ),
    Refuse(
        "transform_layout",
        "of the buffer's dtype",
        chain,
        _transform(("write", 0), lambda i, j: (j, i), pad_value=const(0, "int32")),
        "pad_value is of int32, buffer B holds float32",
    ),
    Refuse(
        "transform_layout",
        "whose inverse can be derived",
        layout_free_matmul,
        lambda s: s.transform_layout(
            s.get_block("C"), ("read", 1), lambda k, j: (j // 5, k, j % 5), pad_value=0
        ),
        "belongs to the caller",
    ),
    Refuse(
        "transform_layout",
        "whose inverse can be derived",
        chain,
        _transform(
            ("write", 0),
            lambda i, j: (i // 2, j),
            pad_value=0,
            assume_injective_transform=True,
        ),
        "not a bijection",
    ),
    Example(
        "set_axis_separator",
        lambda s: s.set_axis_separator(s.get_block("B"), ("write", 0), [1]),
        DOC_PARAMS,
    ),
    Accept(
        "set_axis_separator",
        chain,
        lambda s: s.set_axis_separator(s.get_block("C"), ("read", 0), [1]),
    ),
    Accept(
        "set_axis_separator",
        symbolic_chain,
        lambda s: s.set_axis_separator(s.get_block("B"), "A", [1]),
        sizes=({"n": 5},),
    ),
    Refuse(
        "set_axis_separator",
        "one that the block accesses",
        chain,
        lambda s: s.set_axis_separator(s.get_block("B"), "Z", [1]),
        "doesn't access a buffer 'Z'",
    ),
    Refuse(
        "set_axis_separator",
        "ascend and lie between",
        chain,
        lambda s: s.set_axis_separator(s.get_block("B"), ("write", 0), [2]),
        r"must ascend and lie in \[1, 1\]",
    ),
    Refuse(
        "set_axis_separator",
        "not a view of another one",
        matched,
        lambda s: s.set_axis_separator(s.get_block("inner"), "M", []),
        "is a view of another buffer",
    ),
    Example(
        "transform_block_layout",
        lambda s: s.transform_block_layout(s.get_block("B"), lambda i, j: (i * 32 + j,)),
        {"A": "(64, 32)", "B": "(64, 32)"},
    ),
    Accept(
        "transform_block_layout",
        chain,
        lambda s: s.transform_block_layout(
            s.get_block("C"), lambda i, j: (j, (i + 3) // 4, 2, (i + 3) % 4)
        ),
    ),
    Accept(
        "transform_block_layout",
        matmul,
        lambda s: s.transform_block_layout(
            s.get_block("C"), lambda i, j, k: (9 - k, i // 5, j, i % 5)
        ),
    ),
    Accept(
        "transform_block_layout",
        symbolic_chain,
        lambda s: s.transform_block_layout(s.get_block("B"), "lambda i, j: (j * n + i,)"),
        sizes=({"n": 5},),
    ),
    Accept(
        "transform_block_layout",
        symbolic_chain,
        lambda s: s.transform_block_layout(s.get_block("B"), lambda i, j: (i // 4, j, i % 4)),
        sizes=({"n": 5}, {"n": 8}),
    ),
    Refuse(
        "transform_block_layout",
        "run in another order",
        scan,
        lambda s: s.transform_block_layout(s.get_block("scan"), lambda i, j: (j, i)),
        "can't run in another order",
    ),
    Refuse(
        "transform_block_layout",
        "serial loop of its own",
        chain,
        _split_first,
        "not bound to a loop of its own",
    ),
    Refuse("transform_block_layout", "carry no annotations", chain, _parallel_first, "is parallel"),
    Refuse(
        "transform_block_layout",
        "carry no annotations",
        idle_loop,
        lambda s: s.transform_block_layout(s.get_block("B"), lambda i, j: (j, i)),
        "shares its loops",
    ),
    Refuse(
        "transform_block_layout",
        "one index per axis",
        chain,
        lambda s: s.transform_block_layout(s.get_block("B"), lambda i: (i,)),
        "takes 1 indices, expected 2",
    ),
    Refuse(
        "transform_block_layout",
        "is injective, with an inverse",
        chain,
        lambda s: s.transform_block_layout(s.get_block("B"), lambda i, j: (i + j,)),
        "not a bijection",
    ),
    Refuse(
        "transform_block_layout",
        "mixes spatial and reduction",
        matmul,
        lambda s: s.transform_block_layout(s.get_block("C"), lambda i, j, k: (i, j * 10 + k)),
        "mixes reduce and spatial",
    ),
    Refuse(
        "transform_block_layout",
        "are not padded",
        matmul,
        lambda s: s.transform_block_layout(s.get_block("C"), lambda i, j, k: (i, j, k // 4, k % 4)),
        "pads reduction axes",
    ),
]
