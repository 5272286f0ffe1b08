"""Updates whose order matters: reductions that no reducer describes, several buffers at once."""

from __future__ import annotations

_UPDATE = (
    "Z[vi] * T.{T}(3) + A[vi, vk]|A[vi, vk] - Z[vi]|"
    "T.Select(A[vi, vk] > Z[vi], A[vi, vk], Z[vi] - T.{T}(1))|T.max(Z[vi] - A[vi, vk], T.{T}(0))|"
    "T.min(Z[vi] + A[vi, vk], T.{T}(5))|A[vi, vk]|"
    "T.if_then_else(A[vi, vk] > T.{T}(0), A[vi, vk], Z[vi])"
)
_TYPES = "? T int32|int64|int16|uint32"

PROGRAMS: dict[str, str] = {
    "no reducer": f"""
{_TYPES}
? UPDATE {_UPDATE}
A d0,d1 {{T}}; Z d0 {{T}}
nest Z(i: d0, k: R d1):
    with T.init():
        Z[vi] = T.{{T}}(1)
    Z[vi] = {{UPDATE}}
""",
    "no reducer, over two axes": f"""
{_TYPES}
? UPDATE {_UPDATE.replace("A[vi, vk]", "A[vi + vk, vl]")}
A d0+d1,d2 {{T}}; W d2 {{T}}; Z d0 {{T}}; Y d0 {{T}}
nest Z(i: d0, k: R d1, l: R d2):
    with T.init():
        Z[vi] = T.{{T}}(1)
    Z[vi] = {{UPDATE}}
nest Y(i: d0):
    Y[vi] = Z[vi] + T.{{T}}(2)
""",
    "no reducer, of a stage before": f"""
{_TYPES}
? UPDATE {_UPDATE.replace("A[vi, vk]", "B[vi, vk]")}
A d0,d1 {{T}}; Z d0 {{T}}
B = T.alloc_buffer((d0, d1), "{{T}}")
nest B(i: d0, k: d1):
    B[vi, vk] = A[vi, vk] + T.{{T}}(1)
nest start(i: d0):
    Z[vi] = T.{{T}}(1)
nest Z(i: d0, k: R d1):
    Z[vi] = {{UPDATE}}
""",
    "no reducer, two outputs": f"""
{_TYPES}
? FIRST Z[vi] + A[vi, vk]|Z[vi] * T.{{T}}(3) + A[vi, vk]|T.max(Z[vi], A[vi, vk])
? SECOND Y[vi] + Z[vi]|Y[vi] * T.{{T}}(2) + A[vi, vk]|Y[vi] + A[vi, vk]|T.min(Y[vi], Z[vi])
A d0,d1 {{T}}; Z d0 {{T}}; Y d0 {{T}}
nest Z(i: d0, k: R d1):
    with T.init():
        Z[vi] = T.{{T}}(0)
        Y[vi] = T.{{T}}(1)
    Z[vi] = {{FIRST}}
    Y[vi] = {{SECOND}}
""",
    "no reducer, floats": """
? T float32|float64
? UPDATE A[vi + vk] - Z[vi]|T.Select(A[vi + vk] > Z[vi], A[vi + vk], Z[vi] - T.{T}(1))
A d0+d1 {T}; Z d0 {T}
nest Z(i: d0, k: R d1):
    with T.init():
        Z[vi] = T.{T}(1)
    Z[vi] = {UPDATE}
""",
    "windows in order": """
? T int32|int64
A d0+2,d1+2 {T}; W 3,3 {T}; Z d0,d1 {T}
nest Z(i: d0, j: d1, k: R 3, l: R 3):
    with T.init():
        Z[vi, vj] = T.{T}(1)
    Z[vi, vj] = Z[vi, vj] * T.{T}(3) + A[vi + vk, vj + vl] * W[vk, vl]
""",
    "order of buffers": """
A d0 int32; Z d0 int32; Y d0 int32; X d0 int32
nest start(i: d0):
    Z[vi] = A[vi]
    Y[vi] = Z[vi] + T.int32(1)
    Z[vi] = Y[vi] * T.int32(2)
nest swap(i: d0):
    x: T.int32 = Z[vi]
    Z[vi] = Y[d0 - 1 - vi]
    Y[d0 - 1 - vi] = x
nest X(i: d0):
    X[vi] = Z[vi] * T.int32(10) + Y[vi]
nest again(i: d0):
    Z[vi] = X[vi] - Y[vi]
""",
    "two that update each other": """
A d0,d1 int32; Z d0 int32; Y d0 int32
nest start(i: d0):
    Z[vi] = T.int32(0)
    Y[vi] = T.int32(1)
for k in T.serial(d1):
    for i in T.serial(d0):
        with T.block("Z"):
            vi, vk = T.axis.remap("SR", [i, k])
            Z[vi] = Z[vi] + Y[vi] * A[vi, vk]
    for i in T.serial(d0):
        with T.block("Y"):
            vi, vk = T.axis.remap("SR", [i, k])
            Y[vi] = Z[vi] - Y[vi]
""",
    "last one wins": """
A d0,d1 float32; F d1 int32 d0; Z d0 float32
nest start(i: d0):
    Z[vi] = T.float32(0)
for k in T.serial(d1):
    with T.block("Z"):
        vk = T.axis.opaque(d1, k)
        Z[T.int64(F[vk])] = A[T.int64(F[vk]), vk]
""",
}
