"""``dp4a``: the dot product of four bytes with four bytes, added to a 32-bit number."""

from __future__ import annotations

from tilewright.tir.intrin.cuda.pairs import SHORT, Operand, nest, register

_KINDS = (("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8"))


def _dp4a(name: str, a_dtype: str, b_dtype: str) -> str:
    a = Operand("A", (4,), a_dtype, "shared", "r")
    b = Operand("B", (4,), b_dtype, "shared", "r")
    c = Operand("C", (1,), "int32", "local", "rw")
    return register(
        name,
        (a, b, c),
        nest(
            {"k": 4}, "R", "update",
            'C[0] = C[0] + T.Cast("int32", A[vk]) * T.Cast("int32", B[vk])',
        ),
        "C[0] = T.dot_accumulate(C[0], A[0:4], B[0:4])",
    )  # fmt: skip


DP4A_NAMES = (
    _dp4a("dp4a", "int8", "int8"),
    *(_dp4a(f"dp4a_{SHORT[a]}{SHORT[b]}s32", a, b) for a, b in _KINDS),
)
"""Names of all of them; ``dp4a`` is ``dp4a_s8s8s32``."""
