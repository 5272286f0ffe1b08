"""Halves: each operator's result is rounded, also where the next operator takes it at once."""

from __future__ import annotations

_T = "? T float16|bfloat16"
_OPERATORS = "+|-|*|/"
_NUMBERS = "3|0.1|2049|7|0.3|1000"

PROGRAMS: dict[str, str] = {
    "chain of halves": f"""
{_T}
? F {_OPERATORS}
? G {_OPERATORS}
? H {_OPERATORS}
? X {_NUMBERS}
? Y {_NUMBERS}
A d0,d1 {{T}} wide; W d1 {{T}} wide; Z d0,d1 {{T}}
B = T.alloc_buffer((d0, d1), "{{T}}")
C = T.alloc_buffer((d0, d1), "{{T}}")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] {{F}} T.{{T}}({{X}})
nest C(i: d0, j: d1):
    C[vi, vj] = B[vi, vj] {{G}} W[vj]
nest Z(i: d0, j: d1):
    Z[vi, vj] = C[vi, vj] {{H}} T.{{T}}({{Y}})
""",
    "halves there and back": f"""
{_T}
? S float32|float64
? X {_NUMBERS}
A d0,d1 {{S}} wide; Z d0,d1 {{S}}
B = T.alloc_buffer((d0, d1), "{{T}}")
C = T.alloc_buffer((d0, d1), "{{T}}")
nest B(i: d0, j: d1):
    B[vi, vj] = T.Cast("{{T}}", A[vi, vj])
nest C(i: d0, j: d1):
    C[vi, vj] = B[vi, vj] * T.{{T}}({{X}})
nest Z(i: d0, j: d1):
    Z[vi, vj] = T.Cast("{{S}}", C[vi, vj])
""",
    "greatest of halves": f"""
{_T}
? F {_OPERATORS}
? OP max|min
A d0,d1 {{T}} wide; W d1 {{T}} wide; Z d0 {{T}}
B = T.alloc_buffer((d0, d1), "{{T}}")
C = T.alloc_buffer((d0,), "{{T}}")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] {{F}} W[vj]
nest C(i: d0, k: R d1):
    with T.init():
        C[vi] = T.{{T}}(0)
    C[vi] = T.{{OP}}(C[vi], B[vi, vk])
nest Z(i: d0):
    Z[vi] = C[vi] * T.{{T}}(3)
""",
}
