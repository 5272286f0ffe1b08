"""Memory under several names: views, matches, strides, parts of parameters."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "views of one pointer": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
V = T.decl_buffer((d0 * d1,), "float32", data=B.data)
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
nest V(i: d0 * d1):
    V[vi] = V[vi] * T.float32(2)
nest Z(i: d0, j: d1):
    Z[vi, vj] = B[vi, vj] - T.float32(3)
""",
    "view read": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
V = T.decl_buffer((d0 * d1,), "float32", data=B.data)
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
nest C(i: d0, j: d1):
    Z[vi, vj] = V[d0 * d1 - 1 - (vi * d1 + vj)] * T.float32(2)
""",
    "view of a parameter written first": """
A d0 float32; Z d0 float32
V = T.decl_buffer((d0,), "float32", data=A.data)
B = T.alloc_buffer((d0,), "float32")
C = T.alloc_buffer((d0,), "float32")
nest B(i: d0):
    B[vi] = A[vi] + T.float32(1)
nest V(i: d0):
    V[vi] = T.float32(7)
nest C(i: d0):
    C[vi] = B[vi] * T.float32(2)
nest Z(i: d0):
    Z[vi] = C[vi] + A[vi]
""",
    "in place through a view": """
A d0 float32; Z d0 float32
V = T.decl_buffer((d0,), "float32", data=A.data)
nest V(i: d0 - 1):
    V[vi + 1] = A[vi] + T.float32(1)
nest Z(i: d0):
    Z[vi] = A[vi]
""",
    "two matches in one block": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest outer(i: d0):
    T.reads(A[vi, 0:d1])
    T.writes(B[vi, 0:d1], Z[vi, 0:d1])
    Bm = T.match_buffer(B[vi, 0:d1], (d1,), "float32")
    Bn = T.match_buffer(B[vi, 0:d1], (d1,), "float32")
    for j in T.serial(d1):
        with T.block("P"):
            vj = T.axis.spatial(d1, j)
            Bm[vj] = A[vi, vj] + T.float32(1)
    for j in T.serial(d1):
        with T.block("Q"):
            vj = T.axis.spatial(d1, j)
            Z[vi, vj] = Bn[d1 - 1 - vj] * T.float32(2)
""",
    "match and source in one block": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest outer(i: d0):
    T.reads(A[vi, 0:d1])
    T.writes(B[vi, 0:d1], Z[vi, 0:d1])
    Bm = T.match_buffer(B[vi, 0:d1], (d1,), "float32")
    for j in T.serial(d1):
        with T.block("P"):
            vj = T.axis.spatial(d1, j)
            Bm[vj] = A[vi, vj] + T.float32(1)
    for j in T.serial(d1 - 1):
        with T.block("Q"):
            vj = T.axis.spatial(d1 - 1, j)
            Bm[vj + 1] = B[vi, vj] * T.float32(2)
    for j in T.serial(d1):
        with T.block("R"):
            vj = T.axis.spatial(d1, j)
            Z[vi, vj] = B[vi, vj]
""",
    "strided parameter parts": """
A d0,d1 float32; Z d0,d1 float32
nest even(i: d0, j: d1 // 2):
    Z[vi, vj * 2] = A[vi, vj * 2] + T.float32(1)
nest odd(i: d0, j: d1 // 2):
    Z[vi, vj * 2 + 1] = Z[vi, vj * 2] - A[vi, vj * 2 + 1]
""",
    "strided buffers": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32", strides=(2 * d1, 2))
C = T.alloc_buffer((d0, d1), "float32", axis_separators=[1])
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
nest C(i: d0, j: d1):
    C[vi, vj] = B[vi, d1 - 1 - vj] + T.float32(1)
nest Z(i: d0, j: d1):
    Z[vi, vj] = C[d0 - 1 - vi, vj] * T.float32(2) + B[vi, vj]
""",
    "matches with strides": """
A d0,d1 float32; Z d1,d0 float32
nest column(i: d0):
    T.reads(A[vi, 0:d1])
    T.writes(Z[0:d1, vi])
    q0 = T.int64()
    o = T.int64()
    Zm = T.match_buffer(Z[0:d1, vi:vi + 1], (d1, 1), "float32", strides=(q0, q0), elem_offset=o)
    for j in T.serial(d1):
        with T.block("inner"):
            vj = T.axis.spatial(d1, j)
            Am = T.match_buffer(A[vi, vj], (), "float32", elem_offset=T.int64())
            Zm[vj, 0] = Am[()] + T.float32(1)
""",
}
