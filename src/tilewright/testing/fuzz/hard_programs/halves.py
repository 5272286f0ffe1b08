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
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] {{F}} T.{{T}}({{X}})
for i, j in T.grid(d0, d1):
    with T.block("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = B[vi, vj] {{G}} W[vj]
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = C[vi, vj] {{H}} T.{{T}}({{Y}})
""",
    "halves there and back": f"""
{_T}
? S float32|float64
? X {_NUMBERS}
A d0,d1 {{S}} wide; Z d0,d1 {{S}}
B = T.alloc_buffer((d0, d1), "{{T}}")
C = T.alloc_buffer((d0, d1), "{{T}}")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = T.Cast("{{T}}", A[vi, vj])
for i, j in T.grid(d0, d1):
    with T.block("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = B[vi, vj] * T.{{T}}({{X}})
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = T.Cast("{{S}}", C[vi, vj])
""",
    "greatest of halves": f"""
{_T}
? F {_OPERATORS}
? OP max|min
A d0,d1 {{T}} wide; W d1 {{T}} wide; Z d0 {{T}}
B = T.alloc_buffer((d0, d1), "{{T}}")
C = T.alloc_buffer((d0,), "{{T}}")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] {{F}} W[vj]
for i, k in T.grid(d0, d1):
    with T.block("C"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            C[vi] = T.{{T}}(0)
        C[vi] = T.{{OP}}(C[vi], B[vi, vk])
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = C[vi] * T.{{T}}(3)
""",
}
