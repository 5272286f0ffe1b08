"""Elements that nobody writes, that several blocks write, or that are updated again and again."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "taps beyond an image": """
A d0 float32; W d1 float32; Z d0 float32
B = T.alloc_buffer((d0 + d1 * 6,), "float32")
for i in T.serial(d0 + d1 * 6):
    with T.block("B"):
        vi = T.axis.spatial(d0 + d1 * 6, i)
        B[vi] = T.if_then_else(vi >= 6 and vi < d0 + 6, A[vi - 6], T.float32(0))
for i in T.serial(d0):
    with T.block("Y"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = T.float32(0)
for k, i in T.grid(d1, d0):
    with T.block("Z"):
        vi, vk = T.axis.remap("SR", [i, k])
        Z[vi] = Z[vi] + B[vi + vk * 6] * W[vk]
""",
    "taps beyond an image's rows": """
A d0,d1 float32; W d2 float32; Z d0,d1 float32
B = T.alloc_buffer((d0 + d2 * 4, d1), "float32")
for i, j in T.grid(d0 + d2 * 4, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = T.if_then_else(vi >= 5 and vi < d0 + 5, A[vi - 5, vj], T.float32(0))
for i, j in T.grid(d0, d1):
    with T.block("Y"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = T.float32(0)
for i, k, j in T.grid(d0, d2, d1):
    with T.block("Z"):
        vi, vk, vj = T.axis.remap("SRS", [i, k, j])
        Z[vi, vj] = Z[vi, vj] + W[vk] * B[vi + vk * 4, vj]
""",
    "taps beyond whole numbers": """
A d0 int8; W d1 int8; Z d0 int32
B = T.alloc_buffer((d0 + d1 * 5,), "int8")
for i in T.serial(d0 + d1 * 5):
    with T.block("B"):
        vi = T.axis.spatial(d0 + d1 * 5, i)
        B[vi] = T.if_then_else(vi >= 7 and vi < d0 + 7, A[vi - 7], T.int8(0))
for i in T.serial(d0):
    with T.block("Y"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = T.int32(0)
for k, i in T.grid(d1, d0):
    with T.block("Z"):
        vi, vk = T.axis.remap("SR", [i, k])
        Z[vi] = Z[vi] + T.Cast("int32", B[vi + vk * 5]) * T.Cast("int32", W[vk])
""",
    "stencil in place": """
A d0 float32; Z d0 float32
for i in T.serial(d0):
    with T.block("C"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = A[vi]
for t in T.serial(3):
    for i in T.serial(d0 - 2):
        with T.block("Z"):
            vi = T.axis.spatial(d0 - 2, i)
            Z[vi + 1] = Z[vi] + Z[vi + 2]
""",
    "ping pong": """
A d0 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
for i in T.serial(d0):
    with T.block("C"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = A[vi]
for t in T.serial(3):
    for i in T.serial(d0):
        with T.block("P"):
            vi = T.axis.spatial(d0, i)
            B[vi] = Z[vi] + Z[(vi + 1) % d0]
    for i in T.serial(d0):
        with T.block("Q"):
            vi = T.axis.spatial(d0, i)
            Z[vi] = B[vi] - B[(vi + 2) % d0]
""",
    "written twice": """
A d0 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
for i in T.serial(d0):
    with T.block("P"):
        vi = T.axis.spatial(d0, i)
        B[vi] = A[vi] + T.float32(1)
for i in T.serial(d0):
    with T.block("Q"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = B[vi] * T.float32(2)
for i in T.serial(d0 - 1):
    with T.block("R"):
        vi = T.axis.spatial(d0 - 1, i)
        B[vi] = A[vi + 1] - T.float32(1)
for i in T.serial(d0 - 2):
    with T.block("S"):
        vi = T.axis.spatial(d0 - 2, i)
        Z[vi] = B[vi] * T.float32(3) + B[vi + 1]
""",
    "written in part": """
A d0,d1 float32; Z d0,d1 float32; Y d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0 - 1, d1 // 2):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj * 2] = A[vi, vj] + T.float32(1)
for i, j in T.grid(d0 - 1, d1 // 2):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi + 1, vj * 2] = B[vi, vj * 2] * T.float32(2)
for i in T.serial(d0):
    with T.block("Y"):
        vi = T.axis.spatial(d0, i)
        Y[vi, T.min(vi, d1 - 1)] = A[vi, 0] + T.float32(2)
""",
    "atomic": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i in T.serial(d0):
    with T.block("Z0"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = T.float32(0)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        T.reads(B[vi, vj], Z[vi])
        T.writes(Z[vi])
        T.evaluate(T.atomic_add(T.address_of(Z[vi], dtype="handle"), B[vi, vj]))
""",
    "update outside of its domain": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0, d1 + 2), "float32")
for i, j in T.grid(d0, d1 + 2):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = T.if_then_else(vj >= 1 and vj < d1 + 1, A[vi, vj - 1], T.float32(-7))
for i, k, l in T.grid(d0, d1, 3):
    with T.block("Z"):
        vi, vk, vl = T.axis.remap("SRR", [i, k, l])
        T.where(k * 3 + l < d1 * 2)
        with T.init():
            Z[vi] = T.float32(1)
        Z[vi] = Z[vi] + B[vi, vk + vl]
""",
    "last write wins": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi] = A[vi, vj] + T.float32(1)
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = B[vi] * T.float32(2)
""",
    "two outputs": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0, d1), "float32")
C = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("BC"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
        C[vi, d1 - 1 - vj] = A[vi, vj] - T.float32(1)
for i, k in T.grid(d0, d1):
    with T.block("Z"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            Z[vi] = T.float32(0)
        Z[vi] = Z[vi] + B[vi, vk] * C[vi, vk]
""",
    "reduction in a loop that repeats it": """
A d0,d1 float32; Z d0 float32; Y d0,3 float32
B = T.alloc_buffer((d0,), "float32")
for t in T.serial(3):
    for i, k in T.grid(d0, d1):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
    for i in T.serial(d0):
        with T.block("Y"):
            vi, vt = T.axis.remap("SS", [i, t])
            Y[vi, vt] = B[vi] * T.Cast("float32", vt)
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
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
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
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
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = B[vi] * T.float32(2) - C[vi]
""",
    "update of a part": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i, j in T.grid(d0 // 2, d1):
    with T.block("U"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi * 2, vj] = B[vi * 2, vj] * T.float32(3)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = B[vi, d1 - 1 - vj] - T.float32(1)
""",
    "reduction that reads its neighbours": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0 + 2,), "float32")
for i in T.serial(d0 + 2):
    with T.block("B"):
        vi = T.axis.spatial(d0 + 2, i)
        B[vi] = T.Cast("float32", vi)
for i, k in T.grid(d0, d1):
    with T.block("S"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            B[vi] = B[vi + 1]
        B[vi] = B[vi] + A[vi, vk] * B[vi + 2]
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = B[vi] - B[vi + 1]
""",
    "prefix sums": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i in T.serial(d0):
    with T.block("first"):
        vi = T.axis.spatial(d0, i)
        B[vi, 0] = A[vi, 0]
for i in T.serial(d0):
    for j in T.serial(1, d1):
        with T.block("next"):
            vi = T.axis.spatial(d0, i)
            vj = T.axis.opaque((1, d1), j)
            B[vi, vj] = B[vi, vj - 1] + A[vi, vj]
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = B[vi, vj] * T.float32(2)
""",
    "prefix sums by a spatial axis": """
A d0 float32; Z d0 float32; Y d0 float32
for j in T.serial(d0):
    with T.block("Z"):
        vj = T.axis.spatial(d0, j)
        Z[vj] = T.if_then_else(vj > 0, Z[T.max(vj - 1, 0)], T.float32(0)) + A[vj]
for j in T.serial(d0):
    with T.block("Y"):
        vj = T.axis.spatial(d0, j)
        Y[vj] = Z[vj] + T.float32(1)
""",
}
