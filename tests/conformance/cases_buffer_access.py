"""Cases of what blocks say of their accesses."""

from __future__ import annotations

from collections.abc import Callable

from conformance_cases import Accept, Example, Refuse, chain, script, symbolic_chain

from tilewright.tir.schedule import Schedule

gather = script(
    """
@T.prim_func
def main(A: T.Buffer((32,)), I: T.Buffer((16,), "int64"), B: T.Buffer((16,))):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi + (I[vi] % 4 + 4) % 4]
"""
)
free_gather = script(
    """
@T.prim_func
def main(A: T.Buffer((32,)), I: T.Buffer((16,), "int64"), B: T.Buffer((16,))):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[T.if_then_else(I[vi] >= 0 and I[vi] < 32, I[vi], 0)]
"""
)


def _annotate(block: str, index: int, kind: str, ranges: object) -> Callable[[Schedule], object]:
    return lambda s: s.annotate_buffer_access(s.get_block(block), index, kind, ranges)


def _trust(kind: str, ranges: object, index: int = 0) -> Callable[[Schedule], object]:
    return lambda s: s.unsafe_annotate_buffer_access("B", index, kind, ranges)


CASES = [
    Accept(
        "annotate_buffer_access",
        chain,
        _annotate("C", 0, "read", lambda i, j: ((i - i % 4, i - i % 4 + 4), (0, 12))),
    ),
    Accept(
        "annotate_buffer_access",
        chain,
        _annotate("C", 0, "write", lambda i, j: (i, (j, j + 1))),
    ),
    Accept("annotate_buffer_access", gather, _annotate("B", 0, "read", lambda i: ((i, i + 4),))),
    Refuse(
        "annotate_buffer_access",
        "whatever data its indices are made of",
        gather,
        _annotate("B", 0, "read", lambda i: ((i, i + 3),)),
        "does not surely cover",
    ),
    Refuse(
        "annotate_buffer_access",
        "whatever data its indices are made of",
        free_gather,
        _annotate("B", 0, "read", lambda i: ((0, 16),)),
        "does not surely cover",
    ),
    Accept("annotate_buffer_access", free_gather, _annotate("B", 0, "read", lambda i: ((0, 32),))),
    Accept(
        "annotate_buffer_access",
        symbolic_chain,
        _annotate("C", 0, "read", "lambda i, j: (0, n, j, j + 1)"),
        sizes=({"n": 5},),
    ),
    Refuse(
        "annotate_buffer_access",
        'is "read" or "write"',
        chain,
        _annotate("C", 0, "both", lambda i, j: (i, j)),
        "unknown kind of access",
    ),
    Refuse(
        "annotate_buffer_access",
        "a buffer of that number",
        chain,
        _annotate("C", 1, "read", lambda i, j: (i, j)),
        "there is no number 1",
    ),
    Refuse(
        "annotate_buffer_access",
        "one range per dimension",
        chain,
        _annotate("C", 0, "read", lambda i, j: (i,)),
        "gives 1 ranges for 2 dimensions",
    ),
    Refuse(
        "annotate_buffer_access",
        "one range per dimension",
        chain,
        _annotate("C", 0, "read", "lambda i, j: (i, i + k, j, j + 1)"),
        "unknown name k",
    ),
    Refuse(
        "annotate_buffer_access",
        "lies inside the ranges",
        chain,
        _annotate("C", 0, "read", lambda i, j: (i, (0, 11))),
        "does not surely cover",
    ),
    Refuse(
        "annotate_buffer_access",
        "no more and no less",
        chain,
        _annotate("C", 0, "write", lambda i, j: (i, (0, 12))),
        "does not surely equal",
    ),
    Example(
        "annotate_buffer_access",
        _annotate("B", 0, "read", lambda vi: ((0, 16),)),
        {"A": "(16,)", "B": "(15,)"},
    ),
    Accept("unsafe_annotate_buffer_access", gather, _trust("read", lambda i: ((i, i + 4),))),
    Accept("unsafe_annotate_buffer_access", gather, _trust("write", lambda i: ((0, 16),))),
    Accept(
        "unsafe_annotate_buffer_access",
        symbolic_chain,
        lambda s: s.unsafe_annotate_buffer_access("C", 0, "read", "lambda i, j: (0, n, j, j + 1)"),
        sizes=({"n": 5},),
    ),
    Refuse(
        "unsafe_annotate_buffer_access",
        'is "read" or "write"',
        gather,
        _trust("both", lambda i: (i,)),
        "unknown kind of access",
    ),
    Refuse(
        "unsafe_annotate_buffer_access",
        "a buffer of that number",
        gather,
        _trust("read", lambda i: (i,), 2),
        "there is no number 2",
    ),
    Refuse(
        "unsafe_annotate_buffer_access",
        "one range per dimension",
        gather,
        _trust("read", lambda i: (i, i)),
        "gives 2 ranges for 1 dimension",
    ),
    Example(
        "unsafe_annotate_buffer_access",
        lambda s: s.unsafe_annotate_buffer_access("B", 0, "read", lambda vi: ((0, 4),)),
        {"A": "(16,)", "B": "(16,)", "P": "(16,): int64"},
    ),
    Accept(
        "unsafe_hide_buffer_access",
        chain,
        lambda s: s.unsafe_hide_buffer_access(s.get_block("C"), "read", [0]),
    ),
    Accept(
        "unsafe_hide_buffer_access",
        symbolic_chain,
        lambda s: s.unsafe_hide_buffer_access(s.get_block("C"), "write", [0]),
        sizes=({"n": 5},),
    ),
    Refuse(
        "unsafe_hide_buffer_access",
        'is "read" or "write"',
        chain,
        lambda s: s.unsafe_hide_buffer_access(s.get_block("C"), "opaque", [0]),
        "unknown kind of access",
    ),
    Refuse(
        "unsafe_hide_buffer_access",
        "buffers of these numbers",
        chain,
        lambda s: s.unsafe_hide_buffer_access(s.get_block("C"), "read", [0, 2]),
        "there is no number 2",
    ),
    Example(
        "unsafe_hide_buffer_access",
        lambda s: s.unsafe_hide_buffer_access(s.get_block("B"), "read", [0]),
        {"A": "(16,)", "B": "(16,)"},
    ),
]
