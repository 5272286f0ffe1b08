"""Modules of several functions, which call each other or don't."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "a function calls another": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
with T.block("called"):
    T.reads(B[0:d0, 0:d1])
    T.writes(Z[0:d0, 0:d1])
    T.evaluate(T.call_extern("turned", B.data, Z.data, dtype="int32"))
---
@T.prim_func
def turned(X: T.Buffer((d0, d1), "float32"), Y: T.Buffer((d0, d1), "float32")):
    nest turned(i: d0, j: d1):
        Y[vi, vj] = X[d0 - 1 - vi, vj] * T.float32(2)
""",
    "called in a loop": """
A d0,d1 int32; Z d0,d1 int32
nest row(i: d0):
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
    nest summed(i: d1):
        Y[vi] = X[vi] * T.int32(3) + T.if_then_else(vi > 0, Y[vi - 1], T.int32(1))
""",
    "names that two functions share": """
A d0 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
nest B(i: d0):
    B[vi] = A[vi] + T.float32(1)
nest C(i: d0):
    Z[vi] = B[vi] * T.float32(2)
---
@T.prim_func
def other(A: T.Buffer((d0,), "float32"), Z: T.Buffer((d0,), "float32")):
    B = T.alloc_buffer((d0,), "float32")
    nest B(i: d0):
        B[vi] = A[vi] - T.float32(1)
    nest C(i: d0):
        Z[vi] = B[vi] * T.float32(3)
""",
}
