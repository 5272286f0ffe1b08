"""Extents, predicates and indices that are read from data; narrow and unsigned numbers."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "predicate of data": """
A d0,d1 float32; F d0 int32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
C = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
nest C(i: d0, j: d1):
    C[vi, vj] = B[vi, vj] * T.float32(2)
nest Z(i: d0, j: d1):
    T.where(F[i] > 0)
    Z[vi, vj] = C[vi, vj] + T.float32(2)
""",
    "extent of data": """
A d0,d1 float32; F d0 int32 d1; Z d0 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
for i in T.serial(d0):
    with T.block("Z_init"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = T.float32(0)
    for k in T.serial(T.int64(F[i])):
        with T.block("Z"):
            vi = T.axis.spatial(d0, i)
            vk = T.axis.reduce(d1, k)
            Z[vi] = Z[vi] + B[vi, vk]
""",
    "ragged copy": """
A d0,d1 float32; F d0 int32 d1; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i in T.serial(d0):
    for k in T.serial(T.int64(F[i])):
        with T.block("B"):
            vi, vk = T.axis.remap("SS", [i, k])
            B[vi, vk] = A[vi, vk] + T.float32(1)
for i in T.serial(d0):
    for k in T.serial(T.int64(F[i])):
        with T.block("Z"):
            vi, vk = T.axis.remap("SS", [i, k])
            Z[vi, vk] = B[vi, vk] * T.float32(2)
""",
    "gather": """
A d0,d1 float32; F d0 int32 d0; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
C = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
nest C(i: d0, j: d1):
    C[vi, vj] = B[T.int64(F[vi]), vj] * T.float32(2)
nest Z(i: d0, j: d1):
    Z[vi, vj] = C[vi, vj] + B[vi, vj]
""",
    "scatter": """
A d0,d1 float32; F d0 int32 d0; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
nest Z0(i: d0, j: d1):
    Z[vi, vj] = T.float32(0)
nest Z(i: d0, j: d1):
    Z[T.int64(F[vi]), vj] = B[vi, vj] * T.float32(2)
""",
    "scatter in binding": """
A d0,d1 float32; F d0 int32 d0; Z d0,d1 float32
nest Z0(i: d0, j: d1):
    Z[vi, vj] = T.float32(0)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi = T.axis.spatial(d0, T.int64(F[i]))
        vk = T.axis.reduce(d0, i)
        vj = T.axis.spatial(d1, j)
        Z[vi, vj] = Z[vi, vj] + A[vk, vj]
""",
    "indices made here": """
A d0 float32; F d0 int32 d0; Z d0 float32
G = T.alloc_buffer((d0,), "int32")
B = T.alloc_buffer((d0,), "float32")
nest G(i: d0):
    G[vi] = T.floormod(F[vi] * T.int32(5) + T.int32(1), T.Cast("int32", d0))
nest B(i: d0):
    B[vi] = A[vi] + T.float32(1)
nest Z(i: d0):
    Z[vi] = B[T.int64(G[vi])] + B[vi]
""",
    "bytes": """
A d0,d1 uint8; W d0,d1 int8; Z d0 uint8; Y d0 int8
B = T.alloc_buffer((d0, d1), "uint8")
C = T.alloc_buffer((d0, d1), "int8")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] * T.uint8(77) - T.uint8(200)
nest C(i: d0, j: d1):
    C[vi, vj] = W[vi, vj] * T.int8(50) + T.int8(100)
nest Z(i: d0, k: R d1):
    with T.init():
        Z[vi] = T.uint8(250)
    Z[vi] = Z[vi] + B[vi, vk]
nest Y(i: d0, k: R d1):
    with T.init():
        Y[vi] = T.int8(0)
    Y[vi] = T.max(Y[vi], C[vi, vk] * T.int8(3))
""",
    "bool and half": """
A d0,d1 float16; Z d0,d1 float16; Y d0 bool
M = T.alloc_buffer((d0, d1), "bool")
H = T.alloc_buffer((d0, d1), "float16")
nest M(i: d0, j: d1):
    M[vi, vj] = A[vi, vj] > T.float16(0)
nest H(i: d0, j: d1):
    H[vi, vj] = T.Select(M[vi, vj], A[vi, vj] * T.float16(2), T.float16(-1))
nest Z(i: d0, j: d1):
    Z[vi, vj] = H[vi, d1 - 1 - vj] + T.float16(1)
nest Y(i: d0, k: R d1):
    with T.init():
        Y[vi] = T.bool(False)
    Y[vi] = Y[vi] or M[vi, vk]
""",
    "reads of nothing": """
Z d0,d1 float32; Y d0 int64
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = T.Cast("float32", vi * 3 - vj)
nest Z(i: d0, j: d1):
    Z[vi, vj] = (
        T.if_then_else(vi >= 1, B[vi - 1, vj], T.float32(0))
        + T.if_then_else(vj < d1 - 1, B[vi, vj + 1], T.float32(1))
    )
nest Y(i: d0):
    Y[vi] = (
        T.floordiv(vi - 5, T.int64(-2)) + T.floormod(vi - 5, T.int64(3))
        - T.shift_right(vi - 4, T.int64(1))
    )
""",
}
