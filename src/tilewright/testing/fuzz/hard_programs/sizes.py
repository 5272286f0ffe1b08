"""Extents of nothing and of one: reductions over nothing, loops without iterations."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "starts that are no zeros": """
? N d1|d1 - d1|T.min(d1, 1)|d1 // 3|d1 // 20
? OP B[vi] + A[vi, vk]|T.max(B[vi], A[vi, vk])
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
nest B(i: d0, k: R {N}):
    with T.init():
        B[vi] = T.float32(5)
    B[vi] = {OP}
nest Z(i: d0):
    Z[vi] = B[vi] * T.float32(2)
""",
    "nothing to reduce, outside": """
? N d1|d1 - d1|T.min(d1, 1)|d1 // 20
A d0,d1 float32; Z d0,d2 float32
nest Z(k: R {N}, i: d0, j: d2):
    with T.init():
        Z[vi, vj] = T.Cast("float32", vi)
    Z[vi, vj] = Z[vi, vj] + A[vi, vk]
""",
    "nothing of several axes": """
? N d1|d1 - d1|1
? M d2|d2 - d2|1
A d0,d1,d2 int32; Z d0 int32; Y d0 int32
nest Z(i: d0, k: R {N}, l: R {M}):
    with T.init():
        Z[vi] = T.int32(3)
    Z[vi] = Z[vi] + A[vi, vk, vl]
nest Y(i: d0):
    Y[vi] = Z[vi] * T.int32(2) + T.int32(1)
""",
    "perhaps less than nothing": """
? N d1 - 2|d1 - 1|d1 // 2 * 2 - 1
? M d1 - 1|d1 - 2
A d0,d1 float32; Z d0,d1 float32; Y d0,d1 float32
nest Z(i: d0, j: {N}):
    Z[vi, vj + 1] = A[vi, vj] + A[vi, vj + 1]
nest Y(j: {M}, i: d0):
    Y[vi, vj] = A[vi, vj + 1] * T.float32(2) - A[vi, vj]
""",
    "as many as data says": """
A d0,d1 int32; F d0 int32 d1; Z d0 int32
for i in T.serial(d0):
    for k in T.serial(T.int64(F[i])):
        with T.block("Z"):
            vi = T.axis.spatial(d0, i)
            vk = T.axis.reduce(d1, k)
            with T.init():
                Z[vi] = T.int32(7)
            Z[vi] = Z[vi] + A[vi, vk]
""",
    "triangle from nothing": """
A d0,d0 int32; Z d0 int32
for i in T.serial(d0):
    for k in T.serial(i):
        with T.block("Z"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Z[vi] = T.int32(7)
            Z[vi] = Z[vi] + A[vi, vk]
""",
    "units": """
A 1,d0 float32; Z d0,1 float32
B = T.alloc_buffer((d0, 1), "float32")
for i, u in T.grid(d0, 1):
    for k in T.serial(1):
        with T.block("B"):
            vi, vu, vk = T.axis.remap("SSR", [i, u, k])
            with T.init():
                B[vi, vu] = T.float32(5)
            B[vi, vu] = B[vi, vu] + A[vu, vi]
nest Z(i: d0, u: 1):
    Z[vi, vu] = B[vi, vu] * T.float32(2)
""",
}
