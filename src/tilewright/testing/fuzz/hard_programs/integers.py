"""Integers that wrap: what holds for numbers is false for them, and may not be taken for true."""

from __future__ import annotations

_ANY = "? T int8|int16|int32|int64|uint8|uint16|uint32|uint64"
_TESTS = (
    "A[vi] + T.{T}(1) > A[vi]|A[vi] * T.{T}(2) // T.{T}(2) == A[vi]|A[vi] - B[vi] < A[vi]|"
    "A[vi] * T.{T}(3) < B[vi] * T.{T}(3)|A[vi] - B[vi] < T.{T}(0)|A[vi] - B[vi] <= T.{T}(0)|"
    "A[vi] + B[vi] >= A[vi]|A[vi] + T.{T}(100) > B[vi] + T.{T}(100)|"
    "A[vi] + T.{T}(1) == B[vi] + T.{T}(1)|A[vi] * A[vi] >= T.{T}(0)|"
    "T.max(A[vi] + T.{T}(1), A[vi]) == A[vi] + T.{T}(1)|A[vi] // T.{T}(3) * T.{T}(3) <= A[vi]|"
    "A[vi] * T.{T}(4) % T.{T}(2) == T.{T}(0)|A[vi] + A[vi] == A[vi] * T.{T}(2)|"
    "A[vi] * T.{T}(5) != T.{T}(1)|T.{T}(0) - A[vi] < T.{T}(1)|"
    "A[vi] + T.{T}(1) <= B[vi]|T.{T}(7) - A[vi] > T.{T}(3)|A[vi] * T.{T}(2) >= T.{T}(6)"
)
_VALUES = (
    "A[vi] * T.{T}(2) // T.{T}(2)|(A[vi] * T.{T}(4) + B[vi] * T.{T}(4)) // T.{T}(4)|"
    "A[vi] * T.{T}(6) % T.{T}(3)|(A[vi] + B[vi]) // T.{T}(2)|A[vi] + B[vi] - B[vi]|"
    "A[vi] * B[vi] // T.{T}(5)|T.min(A[vi] + T.{T}(1), A[vi])|"
    "T.max(A[vi] - T.{T}(1), A[vi])|(A[vi] + T.{T}(5)) % T.{T}(5)|"
    "(A[vi] * T.{T}(9) + T.{T}(4)) // T.{T}(3)|A[vi] // T.{T}(3) * T.{T}(3) + A[vi] % T.{T}(3)|"
    "T.truncdiv(A[vi] * T.{T}(3), T.{T}(3))|T.truncmod(A[vi] * T.{T}(4), T.{T}(6))|"
    "(A[vi] + T.{T}(3)) // T.{T}(4) - A[vi] // T.{T}(4)|A[vi] * T.{T}(3) - A[vi] * T.{T}(2)|"
    "T.min(A[vi] * T.{T}(2), B[vi] * T.{T}(2))|T.max(A[vi] + T.{T}(9), B[vi] + T.{T}(9))|"
    "(A[vi] - T.{T}(1)) // T.{T}(2) * T.{T}(2)|A[vi] // T.{T}(2) // T.{T}(5)|"
    "(A[vi] * T.{T}(10) + B[vi]) // T.{T}(10)|(A[vi] * T.{T}(8) + B[vi] % T.{T}(8)) % T.{T}(8)"
)
_BLOCK = """
for i in T.serial(d0):
    with T.block("{name}"):
        vi = T.axis.spatial(d0, i)
"""


def _block(name: str) -> str:
    return _BLOCK.strip("\n").replace("{name}", name)


PROGRAMS: dict[str, str] = {
    "false under wrapping": f"""
{_ANY}
? TEST {_TESTS}
A d0 {{T}} wide; B d0 {{T}} wide; Z d0 int8
C = T.alloc_buffer((d0,), "int8")
{_block("C")}
        C[vi] = T.Cast("int8", {{TEST}})
{_block("Z")}
        Z[vi] = C[vi] + T.int8(1)
""",
    "guarded by wrapping": f"""
{_ANY}
? TEST {_TESTS}
? VALUE {_VALUES}
? HOW T.if_then_else|T.Select
A d0 {{T}} wide; B d0 {{T}} wide; Z d0 {{T}}
{_block("Z")}
        Z[vi] = {{HOW}}({{TEST}}, {{VALUE}}, T.{{T}}(77))
""",
    "predicate that wraps": f"""
{_ANY}
A d0 {{T}} wide; B d0 {{T}} wide; Z d0,d1 float32; Y d0,d1 float32
nest Z(i: d0, j: d1):
    T.where(A[i] + T.{{T}}(1) > A[i])
    Z[vi, vj] = T.float32(1)
for i, j in T.grid(d0, d1):
    if A[i] * T.{{T}}(2) // T.{{T}}(2) == A[i]:
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = Z[vi, vj] + T.float32(2)
""",
    "values that wrap": f"""
{_ANY}
? VALUE {_VALUES}
? NEXT {_VALUES.replace("A[vi]", "C[vi]")}
A d0 {{T}} wide; B d0 {{T}} wide; Z d0 {{T}}
C = T.alloc_buffer((d0,), "{{T}}")
{_block("C")}
        C[vi] = {{VALUE}}
{_block("Z")}
        Z[vi] = {{NEXT}}
""",
    "undone by the next stage": f"""
{_ANY}
A d0 {{T}} wide; Z d0 {{T}}; Y d0 int8
C = T.alloc_buffer((d0,), "{{T}}")
D = T.alloc_buffer((d0,), "{{T}}")
{_block("C")}
        C[vi] = A[vi] * T.{{T}}(6)
{_block("D")}
        D[vi] = C[vi] // T.{{T}}(3)
{_block("Z")}
        Z[vi] = D[vi] // T.{{T}}(2)
{_block("Y")}
        Y[vi] = T.Cast("int8", D[vi] + T.{{T}}(1) > D[vi])
""",
    "sums that wrap": f"""
{_ANY}
A d0,d1 {{T}} wide; B d1 {{T}} wide; Z d0 {{T}}; Y d0 {{T}}
nest Z(i: d0, k: R d1):
    with T.init():
        Z[vi] = T.{{T}}(0)
    Z[vi] = Z[vi] + A[vi, vk] * B[vk]
{_block("Y")}
        Y[vi] = Z[vi] * T.{{T}}(2) // T.{{T}}(2)
""",
    "through other widths": f"""
{_ANY}
? S int8|int16|int32|int64|uint8|uint16|uint32|uint64
A d0 {{T}} wide; Z d0 {{T}}; Y d0 int8
C = T.alloc_buffer((d0,), "{{S}}")
{_block("C")}
        C[vi] = T.Cast("{{S}}", A[vi]) + T.{{S}}(1)
{_block("Z")}
        Z[vi] = T.Cast("{{T}}", C[vi] - T.{{S}}(1))
{_block("Y")}
        Y[vi] = T.Cast("int8", T.Cast("{{T}}", T.Cast("{{S}}", A[vi])) == A[vi])
""",
    "index that wraps": """
? T int8|int16|int32|int64
A d0 float32; F d0 {T} wide; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
nest B(i: d0):
    B[vi] = A[vi] + T.float32(1)
nest Z(i: d0):
    Z[vi] = B[T.Cast("int64", T.floormod(F[vi] * T.{T}(5) + T.{T}(1), T.Cast("{T}", d0)))]
""",
}
