"""Modules of several functions, which call each other or don't."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "a function calls another": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
with T.block("called"):
    T.reads(B[0:d0, 0:d1])
    T.writes(Z[0:d0, 0:d1])
    T.evaluate(T.call_extern("turned", B.data, Z.data, dtype="int32"))
---
@T.prim_func
def turned(X: T.Buffer((d0, d1), "float32"), Y: T.Buffer((d0, d1), "float32")):
    for i, j in T.grid(d0, d1):
        with T.block("turned"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = X[d0 - 1 - vi, vj] * T.float32(2)
""",
    "called in a loop": """
A d0,d1 int32; Z d0,d1 int32
for i in T.serial(d0):
    with T.block("row"):
        vi = T.axis.spatial(d0, i)
        T.reads(A[vi, 0:d1])
        T.writes(Z[vi, 0:d1])
        T.evaluate(
            T.call_extern(
                "summed", T.address_of(A[vi, 0], dtype="handle"),
                T.address_of(Z[vi, 0], dtype="handle"), dtype="int32",
            )
        )
---
@T.prim_func
def summed(X: T.Buffer((d1,), "int32"), Y: T.Buffer((d1,), "int32")):
    for i in T.serial(d1):
        with T.block("summed"):
            vi = T.axis.spatial(d1, i)
            Y[vi] = X[vi] * T.int32(3) + T.if_then_else(vi > 0, Y[vi - 1], T.int32(1))
""",
    "names that two functions share": """
A d0 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
for i in T.serial(d0):
    with T.block("B"):
        vi = T.axis.spatial(d0, i)
        B[vi] = A[vi] + T.float32(1)
for i in T.serial(d0):
    with T.block("C"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = B[vi] * T.float32(2)
---
@T.prim_func
def other(A: T.Buffer((d0,), "float32"), Z: T.Buffer((d0,), "float32")):
    B = T.alloc_buffer((d0,), "float32")
    for i in T.serial(d0):
        with T.block("B"):
            vi = T.axis.spatial(d0, i)
            B[vi] = A[vi] - T.float32(1)
    for i in T.serial(d0):
        with T.block("C"):
            vi = T.axis.spatial(d0, i)
            Z[vi] = B[vi] * T.float32(3)
""",
}
