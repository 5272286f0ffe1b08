"""Places that data says: gathers, scatters, tables of tables, whole rows at once."""

from __future__ import annotations

_F = "? F int32|int64|int8|int16"

PROGRAMS: dict[str, str] = {
    "rows of a table, reduced": f"""
{_F}
A d0,d1 float32; G d2 {{F}} d0; Z d2 float32
B = T.alloc_buffer((d0, d1), "float32")
C = T.alloc_buffer((d2, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] * T.float32(2)
nest C(i: d2, j: d1):
    C[vi, vj] = B[T.Cast("int64", G[vi]), vj]
nest Z(i: d2, k: R d1):
    with T.init():
        Z[vi] = T.float32(0)
    Z[vi] = Z[vi] + C[vi, vk]
""",
    "table of a table": f"""
{_F}
A d0 float32; G d1 {{F}} d0; H d2 {{F}} d1; Z d2 float32
B = T.alloc_buffer((d1,), "float32")
nest B(i: d1):
    B[vi] = A[T.Cast("int64", G[vi])] + T.float32(1)
nest Z(i: d2):
    Z[vi] = B[T.Cast("int64", H[vi])] - A[T.Cast("int64", G[T.Cast("int64", H[vi])])]
""",
    "scattered sums": f"""
{_F}
A d1 float32; G d1 {{F}} d0; Z d0 float32; Y d0 float32
nest start(i: d0):
    Z[vi] = T.float32(1)
for k in T.serial(d1):
    with T.block("Z"):
        vk = T.axis.opaque(d1, k)
        Z[T.Cast("int64", G[vk])] = Z[T.Cast("int64", G[vk])] * T.float32(2) + A[vk]
nest Y(i: d0):
    Y[vi] = Z[d0 - 1 - vi] + T.float32(1)
""",
    "declared in full": f"""
{_F}
A d0,d1 float32; G d2 {{F}} d0; Z d2,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] * T.float32(2)
nest Z(i: d2, j: d1):
    T.reads(B[0:d0, vj], G[vi])
    T.writes(Z[vi, vj])
    Z[vi, vj] = B[T.Cast("int64", G[vi]), vj] + T.float32(3)
""",
    "one row per step, by data": f"""
{_F}
A d0,d1 float32; G d2 {{F}} d0; Z d0,d1 float32
nest start(i: d0, j: d1):
    Z[vi, vj] = A[vi, vj]
for k, j in T.grid(d2, d1):
    with T.block("Z"):
        vk = T.axis.opaque(d2, k)
        vj = T.axis.spatial(d1, j)
        Z[T.Cast("int64", G[vk]), vj] = Z[T.Cast("int64", G[vk]), (vj + 1) % d1] + T.float32(1)
""",
    "clamped places": f"""
{_F}
A d0 float32; G d1 {{F}} wide; Z d1 float32
B = T.alloc_buffer((d0,), "float32")
nest B(i: d0):
    B[vi] = A[vi] + T.float32(1)
nest Z(i: d1):
    Z[vi] = B[T.min(T.max(T.Cast("int64", G[vi]), T.int64(0)), d0 - 1)]
""",
    "start of a window": f"""
{_F}
A d0+d1 float32; G d2 {{F}} d0; Z d2,d1 float32
B = T.alloc_buffer((d0 + d1,), "float32")
nest B(i: d0 + d1):
    B[vi] = A[vi] * T.float32(3)
nest Z(i: d2, j: d1):
    Z[vi, vj] = B[T.Cast("int64", G[vi]) + vj] + T.float32(1)
""",
    "places under a test": f"""
{_F}
A d0,d1 float32; G d2 {{F}} d0; Z d2+3,d1+2 float32
nest Z(i: d2 + 3, j: d1 + 2):
    Z[vi, vj] = T.if_then_else(
        vi < d2 and vj < d1, A[T.Cast("int64", G[vi]), vj] + T.float32(1), T.float32(0)
    )
""",
    "tests that read what a test allows": f"""
{_F}
A d0 float32; G d0 {{F}} wide; Z d1,d0+3 float32; Y d0+3 float32
nest Z(i: d1, j: d0 + 3):
    Z[vi, vj] = T.if_then_else(
        vj < d0, T.if_then_else(G[vj] > T.Cast("{{F}}", 0), A[vj], T.float32(2)), T.float32(0)
    )
nest Y(j: d0 + 3):
    Y[vj] = T.if_then_else(
        vj >= d0 or G[vj] <= T.Cast("{{F}}", 0), T.float32(0), A[vj] * T.float32(3)
    )
""",
    "a diagonal": """
? K 0|1|3
A d0 float32; Z d0+{K},d0+{K} float32; Y d1,d0+{K} float32
nest Z(i: d0 + {K}, j: d0 + {K}):
    Z[vi, vj] = T.if_then_else(vi < d0 and vj == vi + {K}, A[vi], T.float32(0))
nest Y(i: d1, j: d0 + {K}):
    Y[vi, vj] = T.if_then_else(vi < d0 and vj <= vi, A[vi] - A[vj - T.max(vj - vi, 0)], A[0])
""",
    "windows at looked-up places": f"""
{_F}
A d0 float32; G d1 {{F}} wide; Z d1,3 float32
nest Z(i: d1, j: 3):
    Z[vi, vj] = T.if_then_else(
        T.int64(0) <= T.floormod(T.Cast("int64", G[vi]), T.int64(7)) + vj - 2
        and T.floormod(T.Cast("int64", G[vi]), T.int64(7)) + vj - 2 < d0,
        A[T.floormod(T.Cast("int64", G[vi]), T.int64(7)) + vj - 2], T.float32(-1)
    )
""",
    "places that neighbours say": f"""
{_F}
A d0 float32; G d1 {{F}} wide; Z d1 float32; Y d1,2 float32
B = T.alloc_buffer((d0,), "float32")
nest B(i: d0):
    B[vi] = A[vi] + T.float32(1)
nest Z(i: d1):
    Z[vi] = T.if_then_else(
        vi >= 1, B[T.floormod(T.Cast("int64", G[vi - 1]), d0)], T.float32(2)
    )
nest Y(i: d1, j: 2):
    Y[vi, vj] = T.if_then_else(
        vi + vj < d1, B[T.floormod(T.Cast("int64", G[vi + vj]), d0)], T.float32(-1)
    )
""",
    "places that are written first": f"""
{_F}
A d0 float32; G d1 {{F}} wide; Z d1 float32
B = T.alloc_buffer((d0,), "float32")
nest B(i: d0):
    B[vi] = A[vi] * T.float32(2)
for i in T.serial(d1):
    with T.block("Z"):
        vi = T.axis.spatial(d1, i)
        T.reads(B[0:d0], G[vi])
        T.writes(G[vi], Z[vi])
        G[vi] = T.floordiv(G[vi], T.Cast("{{F}}", 2))
        Z[vi] = B[T.floormod(T.Cast("int64", G[vi]), d0)]
""",
}
