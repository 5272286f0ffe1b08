"""Elements that nobody writes, that several blocks write, or that are updated again and again."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "taps beyond an image": """
A d0 float32; W d1 float32; Z d0 float32
B = T.alloc_buffer((d0 + d1 * 6,), "float32")
nest B(i: d0 + d1 * 6):
    B[vi] = T.if_then_else(vi >= 6 and vi < d0 + 6, A[vi - 6], T.float32(0))
nest Y(i: d0):
    Z[vi] = T.float32(0)
for k, i in T.grid(d1, d0):
    with T.block("Z"):
        vi, vk = T.axis.remap("SR", [i, k])
        Z[vi] = Z[vi] + B[vi + vk * 6] * W[vk]
""",
    "taps beyond an image's rows": """
A d0,d1 float32; W d2 float32; Z d0,d1 float32
B = T.alloc_buffer((d0 + d2 * 4, d1), "float32")
nest B(i: d0 + d2 * 4, j: d1):
    B[vi, vj] = T.if_then_else(vi >= 5 and vi < d0 + 5, A[vi - 5, vj], T.float32(0))
nest Y(i: d0, j: d1):
    Z[vi, vj] = T.float32(0)
nest Z(i: d0, k: R d2, j: d1):
    Z[vi, vj] = Z[vi, vj] + W[vk] * B[vi + vk * 4, vj]
""",
    "taps beyond whole numbers": """
A d0 int8; W d1 int8; Z d0 int32
B = T.alloc_buffer((d0 + d1 * 5,), "int8")
nest B(i: d0 + d1 * 5):
    B[vi] = T.if_then_else(vi >= 7 and vi < d0 + 7, A[vi - 7], T.int8(0))
nest Y(i: d0):
    Z[vi] = T.int32(0)
for k, i in T.grid(d1, d0):
    with T.block("Z"):
        vi, vk = T.axis.remap("SR", [i, k])
        Z[vi] = Z[vi] + T.Cast("int32", B[vi + vk * 5]) * T.Cast("int32", W[vk])
""",
    "stencil in place": """
A d0 float32; Z d0 float32
nest C(i: d0):
    Z[vi] = A[vi]
for t in T.serial(3):
    nest Z(i: d0 - 2):
        Z[vi + 1] = Z[vi] + Z[vi + 2]
""",
    "ping pong": """
A d0 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
nest C(i: d0):
    Z[vi] = A[vi]
for t in T.serial(3):
    nest P(i: d0):
        B[vi] = Z[vi] + Z[(vi + 1) % d0]
    nest Q(i: d0):
        Z[vi] = B[vi] - B[(vi + 2) % d0]
""",
    "written twice": """
A d0 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
nest P(i: d0):
    B[vi] = A[vi] + T.float32(1)
nest Q(i: d0):
    Z[vi] = B[vi] * T.float32(2)
nest R(i: d0 - 1):
    B[vi] = A[vi + 1] - T.float32(1)
nest S(i: d0 - 2):
    Z[vi] = B[vi] * T.float32(3) + B[vi + 1]
""",
    "written in part": """
A d0,d1 float32; Z d0,d1 float32; Y d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0 - 1, j: d1 // 2):
    B[vi, vj * 2] = A[vi, vj] + T.float32(1)
nest Z(i: d0 - 1, j: d1 // 2):
    Z[vi + 1, vj * 2] = B[vi, vj * 2] * T.float32(2)
nest Y(i: d0):
    Y[vi, T.min(vi, d1 - 1)] = A[vi, 0] + T.float32(2)
""",
    "atomic": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
nest Z0(i: d0):
    Z[vi] = T.float32(0)
nest Z(i: d0, j: d1):
    T.reads(B[vi, vj], Z[vi])
    T.writes(Z[vi])
    T.evaluate(T.atomic_add(T.address_of(Z[vi], dtype="handle"), B[vi, vj]))
""",
    "update outside of its domain": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0, d1 + 2), "float32")
nest B(i: d0, j: d1 + 2):
    B[vi, vj] = T.if_then_else(vj >= 1 and vj < d1 + 1, A[vi, vj - 1], T.float32(-7))
nest Z(i: d0, k: R d1, l: R 3):
    T.where(k * 3 + l < d1 * 2)
    with T.init():
        Z[vi] = T.float32(1)
    Z[vi] = Z[vi] + B[vi, vk + vl]
""",
    "last write wins": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
nest B(i: d0, j: d1):
    B[vi] = A[vi, vj] + T.float32(1)
nest Z(i: d0):
    Z[vi] = B[vi] * T.float32(2)
""",
    "two outputs": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0, d1), "float32")
C = T.alloc_buffer((d0, d1), "float32")
nest BC(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
    C[vi, d1 - 1 - vj] = A[vi, vj] - T.float32(1)
nest Z(i: d0, k: R d1):
    with T.init():
        Z[vi] = T.float32(0)
    Z[vi] = Z[vi] + B[vi, vk] * C[vi, vk]
""",
    "reduction in a loop that repeats it": """
A d0,d1 float32; Z d0 float32; Y d0,3 float32
B = T.alloc_buffer((d0,), "float32")
for t in T.serial(3):
    nest B(i: d0, k: R d1):
        with T.init():
            B[vi] = T.float32(0)
        B[vi] = B[vi] + A[vi, vk]
    for i in T.serial(d0):
        with T.block("Y"):
            vi, vt = T.axis.remap("SS", [i, t])
            Y[vi, vt] = B[vi] * T.Cast("float32", vt)
nest Z(i: d0):
    Z[vi] = B[vi] + T.float32(1)
""",
    "init does not come first": """
A d0,d1 float32; Z d0 float32
for i, k in T.grid(d0, d1):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        vk = T.axis.reduce(d1, d1 - 1 - k)
        with T.init():
            Z[vi] = T.float32(0)
        Z[vi] = Z[vi] + A[vi, vk]
""",
    "parts added repeatedly": """
A d0,d1 float32; Z d0 float32; Y d0 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
for i, k, l in T.grid(d0, d1 - 2, 3):
    with T.block("Y"):
        vi = T.axis.spatial(d0, i)
        vk = T.axis.reduce(d1, k + l)
        with T.init():
            Y[vi] = T.float32(0)
        Y[vi] = Y[vi] + B[vi, vk]
for i, k, l in T.grid(d0, d1, 2):
    with T.block("Z"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            Z[vi] = T.float32(0)
        Z[vi] = Z[vi] + B[vi, vk]
""",
    "reduction feeds what repeats": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
C = T.alloc_buffer((d0,), "float32")
for i, k, l in T.grid(d0, d1, 2):
    with T.block("B"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            B[vi] = T.float32(0)
        B[vi] = B[vi] + A[vi, vk]
for k, i in T.grid(d1, d0):
    with T.block("C"):
        vi = T.axis.spatial(d0, i)
        vk = T.axis.reduce(d1, d1 - 1 - k)
        with T.init():
            C[vi] = T.float32(1)
        C[vi] = C[vi] + A[vi, vk] * B[vi]
nest Z(i: d0):
    Z[vi] = B[vi] * T.float32(2) - C[vi]
""",
    "update of a part": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
nest U(i: d0 // 2, j: d1):
    B[vi * 2, vj] = B[vi * 2, vj] * T.float32(3)
nest Z(i: d0, j: d1):
    Z[vi, vj] = B[vi, d1 - 1 - vj] - T.float32(1)
""",
    "reduction that reads its neighbours": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0 + 2,), "float32")
nest B(i: d0 + 2):
    B[vi] = T.Cast("float32", vi)
nest S(i: d0, k: R d1):
    with T.init():
        B[vi] = B[vi + 1]
    B[vi] = B[vi] + A[vi, vk] * B[vi + 2]
nest Z(i: d0):
    Z[vi] = B[vi] - B[vi + 1]
""",
    "prefix sums": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest first(i: d0):
    B[vi, 0] = A[vi, 0]
for i in T.serial(d0):
    for j in T.serial(1, d1):
        with T.block("next"):
            vi = T.axis.spatial(d0, i)
            vj = T.axis.opaque((1, d1), j)
            B[vi, vj] = B[vi, vj - 1] + A[vi, vj]
nest Z(i: d0, j: d1):
    Z[vi, vj] = B[vi, vj] * T.float32(2)
""",
    "prefix sums by a spatial axis": """
A d0 float32; Z d0 float32; Y d0 float32
nest Z(j: d0):
    Z[vj] = T.if_then_else(vj > 0, Z[T.max(vj - 1, 0)], T.float32(0)) + A[vj]
nest Y(j: d0):
    Y[vj] = Z[vj] + T.float32(1)
""",
}
