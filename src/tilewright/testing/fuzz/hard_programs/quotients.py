"""Division: by data, by zero, of the lowest integer by -1; of floats."""

from __future__ import annotations

_INTEGERS = "? T int8|int16|int32|int64|uint8|uint16|uint32|uint64"
_FLOATS = "? T float16|bfloat16|float32|float64"
_OPERATION = (
    "A[vi, vj] // B[vj]|A[vi, vj] % B[vj]|T.truncdiv(A[vi, vj], B[vj])|"
    "T.truncmod(A[vi, vj], B[vj])|T.{T}(100) // B[vj]|T.{T}(100) % B[vj]|"
    "A[vi, vj] // (B[vj] - B[vj])|A[vi, vj] % T.{T}(7) // B[vj]|A[vi, vj] // B[vj] * B[vj]|"
    "A[vi, vj] // B[vj] * B[vj] + A[vi, vj] % B[vj]"
)

PROGRAMS: dict[str, str] = {
    "quotients by data": f"""
{_INTEGERS}
? VALUE {_OPERATION}
? DATA wide|
A d0,d1 {{T}} wide; B d1 {{T}} {{DATA}}; Z d0,d1 {{T}}
C = T.alloc_buffer((d0, d1), "{{T}}")
nest C(i: d0, j: d1):
    C[vi, vj] = {{VALUE}}
nest Z(i: d0, j: d1):
    Z[vi, vj] = C[vi, d1 - 1 - vj] + T.{{T}}(1)
""",
    "quotients behind a guard": f"""
{_INTEGERS}
? HOW T.if_then_else|T.Select
A d0 {{T}} wide; B d0 {{T}}; Z d0 {{T}}; Y d0 {{T}}
nest Z(i: d0):
    Z[vi] = {{HOW}}(B[vi] == T.{{T}}(0), T.{{T}}(9), A[vi] // B[vi])
nest Y(i: d0):
    T.where(B[i] != T.{{T}}(0))
    Y[vi] = Z[vi] % B[vi]
""",
    "sums of quotients": f"""
{_INTEGERS}
A d0,d1 {{T}} wide; B d0,d1 {{T}}; Z d0 {{T}}
nest Z(i: d0, k: R d1):
    with T.init():
        Z[vi] = T.{{T}}(0)
    Z[vi] = Z[vi] + A[vi, vk] // B[vi, vk]
""",
    "quotients of floats": f"""
{_FLOATS}
A d0,d1 {{T}} wide; B d1 {{T}}; Z d0,d1 {{T}}
C = T.alloc_buffer((d0, d1), "{{T}}")
nest C(i: d0, j: d1):
    C[vi, vj] = A[vi, vj] / B[vj]
nest Z(i: d0, j: d1):
    Z[vi, vj] = T.max(C[vi, d1 - 1 - vj], C[vi, vj])
""",
}
