"""Expressions that name a value: in calls, in one another, the same for all lanes and not."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "names in calls": """
A d0,d1 float32; W d0 float32; Z d0,d1 float32; Y d1,d0 float32
s = T.float32()
t = T.float32()
u = T.float32()
nest Z(i: d0, j: d1):
    Z[vi, vj] = T.floor(T.abs(T.Let(s * s + s, where={s: W[vi] * T.float32(0.5)}))) + T.max(
        A[vi, vj], T.Let(t - T.abs(t), where={t: W[vi] + T.float32(1)})
    )
nest Y(j: d1, i: d0):
    Y[vj, vi] = T.floor(T.Let(u * T.float32(3), where={u: A[0, vj]})) * A[vi, vj]
""",
    "names in names": """
? T float32|float64|int32
A d0,d1 {T}; W d1 {T}; Z d0,d1 {T}
B = T.alloc_buffer((d0, d1), "{T}")
s = T.{T}()
t = T.{T}()
u = T.{T}()
nest B(i: d0, j: d1):
    B[vi, vj] = T.Let(
        T.Let(T.min(t, s) * s, where={t: s + A[vi, vj]}), where={s: W[vj] * W[vj]}
    )
nest Z(i: d0, j: d1):
    Z[vi, vj] = T.abs(T.Let(u + B[vi, vj], where={u: T.abs(W[0]) * W[0]}))
""",
    "names in sums": """
A d0,d1 float32; W d0 float32; Z d0 float32; Y d1 float32
s = T.float32()
t = T.float32()
nest Z(i: d0, k: R d1):
    with T.init():
        Z[vi] = T.float32(0)
    Z[vi] = Z[vi] + T.Let(s * T.abs(s), where={s: A[vi, vk] - W[vi]})
nest Y(i: d1, k: R d0):
    with T.init():
        Y[vi] = T.float32(-100)
    Y[vi] = T.max(Y[vi], T.abs(T.Let(t * t, where={t: W[vk]})) + A[vk, vi])
""",
    "names in places and tests": """
A d0,d1 float32; F d0 int32 d1; Z d0,d1 float32
n = T.int64()
m = T.int64()
nest Z(i: d0, j: d1):
    Z[vi, vj] = T.if_then_else(
        T.Let(n * n > vj, where={n: T.Cast("int64", F[vi])}),
        A[vi, T.Let(T.max(m - vj, T.int64(0)), where={m: T.Cast("int64", F[vi])})],
        T.float32(1),
    )
""",
}
