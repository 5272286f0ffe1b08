"""Statements around and inside of blocks, blocks in blocks, loops of other kinds."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "let around blocks": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i in T.serial(d0):
    with T.LetStmt(i * 2 % d0) as w:
        for j in T.serial(d1):
            with T.block("B"):
                vi = T.axis.spatial(d0, i)
                vj = T.axis.spatial(d1, j)
                vw = T.axis.spatial(d0, w)
                B[vi, vj] = A[vw, vj] + T.float32(1)
nest Z(i: d0, j: d1):
    Z[vi, vj] = B[vi, d1 - 1 - vj] * T.float32(2)
""",
    "if around blocks": """
A d0,d1 float32; F d0 int32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i in T.serial(d0):
    if F[i] > 0:
        for j in T.serial(d1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)
    else:
        for j in T.serial(d1):
            with T.block("B2"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] - T.float32(1)
nest Z(i: d0, j: d1):
    Z[vi, vj] = B[vi, d1 - 1 - vj] * T.float32(2)
""",
    "if around one block": """
A d0,d1 float32; F d0 int32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B0(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] * T.float32(3)
for i in T.serial(d0):
    if F[i] > 0:
        for j in T.serial(d1):
            with T.block("Z0"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = B[vi, vj] + T.float32(1)
""",
    "shifted loops": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i in T.serial(2, 2 + d0):
    for j in T.serial(-3, d1 - 3):
        with T.block("B"):
            vi = T.axis.spatial(d0, i - 2)
            vj = T.axis.spatial(d1, j + 3)
            B[vi, vj] = A[vi, vj] + T.float32(1)
for i in T.serial(1, d0):
    for j in T.serial(d1):
        with T.block("Z"):
            vi = T.axis.spatial((1, d0), i)
            vj = T.axis.spatial(d1, j)
            Z[vi, vj] = B[vi - 1, d1 - 1 - vj] * T.float32(2)
""",
    "symbolic start": """
A d0 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
nest B(i: d0):
    B[vi] = A[vi] + T.float32(1)
for i in T.serial(d0 // 2, d0):
    with T.block("Z"):
        vi = T.axis.spatial((d0 // 2, d0), i)
        Z[vi] = B[vi - d0 // 2] * T.float32(2)
nest Y(i: d0 // 2):
    Z[vi] = B[vi + d0 // 2] * T.float32(3)
""",
    "backwards and negative": """
A d0 int32; Z d0,2 int32
B = T.alloc_buffer((d0,), "int32")
for i in T.serial(d0):
    with T.block("B"):
        vi = T.axis.spatial(d0, d0 - 1 - i)
        B[vi] = A[vi] * T.int32(3) - T.int32(5)
nest Z(i: d0, j: 2):
    Z[vi, vj] = (
        T.floordiv(B[vi], T.int32(-3)) + T.floormod(B[vi], T.int32(-4)) * T.int32(10)
        + T.truncdiv(B[vi], T.int32(-2)) + T.truncmod(B[vi], T.int32(3))
    )
""",
    "diagonal": """
A d0,d0 float32; Z d0,d0 float32
B = T.alloc_buffer((d0, d0), "float32")
nest B(i: d0, j: d0):
    B[vi, vj] = A[vj, vi] + T.float32(1)
nest D(i: d0):
    B[vi, vi] = T.float32(9)
nest Z(i: d0, j: d0):
    Z[vi, vj] = B[vi, vj] * T.float32(2)
""",
    "triangle": """
A d0,d0 float32; Z d0,d0 float32
B = T.alloc_buffer((d0, d0), "float32")
for i in T.serial(d0):
    for j in T.serial(i, d0):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
for i in T.serial(d0):
    for j in T.serial(i + 1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[vj, vi] * T.float32(2)
""",
    "empty loops": """
A d0 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
nest B(i: d0):
    B[vi] = A[vi] + T.float32(1)
nest Z(i: d0, k: 0):
    Z[vi] = B[vi] * T.float32(2)
for u in T.serial(1):
    for i, v in T.grid(d0, 1):
        with T.block("Y"):
            vi, vu, vv = T.axis.remap("SSS", [i, u, v])
            Z[vi + vu + vv] = B[vi + vu] - T.float32(2)
""",
    "empty reduction": """
A d0,d1 float32; Z d0 float32
B = T.alloc_buffer((d0,), "float32")
for i, k in T.grid(d0, d1 - d1):
    with T.block("B"):
        vi = T.axis.spatial(d0, i)
        vk = T.axis.reduce(d1, k)
        with T.init():
            B[vi] = T.float32(5)
        B[vi] = B[vi] + A[vi, vk]
nest Y(i: d0):
    Z[vi] = A[vi, 0]
""",
    "kinds of loops": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i in T.parallel(d0):
    for j in T.unroll(d1):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
for i in T.parallel(d0):
    for j in T.serial(d1):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[vi, (vj + 1) % d1] * T.float32(2)
    for j in T.vectorized(4):
        with T.block("D"):
            vi = T.axis.spatial(d0, i)
            vj = T.axis.spatial(d1, T.min(j, d1 - 1))
            T.where(j < d1)
            Z[vi, vj] = A[vi, vj]
""",
    "threads in the input": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32", scope="shared")
for i in T.thread_binding(d0, thread="blockIdx.x"):
    for j in T.thread_binding(d1, thread="threadIdx.x"):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
    for j in T.thread_binding(d1, thread="threadIdx.x"):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[vi, d1 - 1 - vj] * T.float32(2)
""",
    "blocks in blocks": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest outer(i: d0):
    C = T.alloc_buffer((d1,), "float32")
    for j in T.serial(d1):
        with T.block("middle"):
            vj = T.axis.spatial(d1, j)
            D = T.alloc_buffer((2,), "float32")
            for k in T.serial(2):
                with T.block("in1"):
                    vk = T.axis.spatial(2, k)
                    D[vk] = A[vi, vj] + T.Cast("float32", vk)
            with T.block("in2"):
                C[vj] = D[0] + D[1]
    for j in T.serial(d1):
        with T.block("copy"):
            vj = T.axis.spatial(d1, j)
            B[vi, vj] = C[d1 - 1 - vj]
nest Z(i: d0, j: d1):
    Z[vi, vj] = B[d0 - 1 - vi, vj] * T.float32(2)
""",
    "blocks in init": """
A d0,d1,4 float32; Z d0,4 float32
B = T.alloc_buffer((d0, d1, 4), "float32")
nest B(i: d0, k: d1, j: 4):
    B[vi, vk, vj] = A[vi, vk, vj] + T.float32(1)
nest Z(i: d0, k: R d1):
    with T.init():
        for j in T.serial(4):
            with T.block("Z_i"):
                vj = T.axis.spatial(4, j)
                Z[vi, vj] = T.float32(0)
    for j in T.serial(4):
        with T.block("Z_u"):
            vj = T.axis.spatial(4, j)
            Z[vi, vj] = Z[vi, vj] + B[vi, vk, vj]
""",
    "related sizes": """
A d0*2 float32; B d0 float32; Z d0 float32
C = T.alloc_buffer((d0 * 2,), "float32")
D = T.alloc_buffer((d0 // 2 + 1,), "float32")
nest C(i: d0 * 2):
    C[vi] = A[vi] + T.float32(1)
nest D(i: d0 // 2 + 1):
    D[vi] = C[vi * 2] + T.float32(3)
nest Z(i: d0):
    Z[vi] = C[vi * 2 + 1] + C[vi * 2] * T.float32(2) + D[vi // 2] + B[vi]
""",
    "while in a block": """
A d0 int32; Z d0 int32
B = T.alloc_buffer((d0,), "int32")
nest B(i: d0):
    B[vi] = A[vi] * T.int32(2)
nest Z(i: d0):
    T.reads(B[vi], Z[vi])
    T.writes(Z[vi])
    Z[vi] = T.int32(0)
    while Z[vi] * Z[vi] < B[vi] + T.int32(9):
        Z[vi] = Z[vi] + T.int32(1)
""",
    "statements in a block": """
A d0,d1 float32; Z d0,d1 float32; Y d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    assert A[vi, vj] < T.float32(100), "too large"
    with T.LetStmt(A[vi, vj] * T.float32(2)) as w:
        if w > T.float32(2):
            B[vi, vj] = w
        else:
            B[vi, vj] = w - T.float32(5)
nest Z(i: d0, j: d1):
    if B[vi, vj] > T.float32(0):
        Z[vi, vj] = B[vi, vj] + T.float32(2)
nest Y(i: d0, j: d1):
    with T.attr(0, "pragma_none", 1):
        if vj < d1 // 2:
            Y[vi, vj] = B[vi, vj * 2] + T.float32(2)
""",
    "same axis for two loops": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0 + d1,), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi = T.axis.spatial(d0 + d1 - 1, i + j)
        B[vi] = T.Cast("float32", vi) * T.float32(2)
nest Z(i: d0, j: d1):
    Z[vi, vj] = B[vi + vj] + A[vi, vj]
""",
    "opaque call": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + T.float32(1)
nest P(i: d0):
    T.reads(B[vi, 0:d1])
    T.writes(Z[vi, 0:d1])
    for j in T.serial(d1):
        Z[vi, j] = B[vi, j]
    T.evaluate(T.storage_sync("shared", dtype="void"))
    for j in T.serial(d1):
        Z[vi, j] = Z[vi, j] * T.float32(2)
""",
    "conditions in bindings": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi = T.axis.spatial(d0, T.Select(i < 2, i, d0 + 1 - i))
        vj = T.axis.spatial(d1, T.min(j, d1 - 1))
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi = T.axis.spatial(d0, (i + 1) % d0)
        vj = T.axis.spatial(d1, d1 - 1 - j)
        T.where(i + j < d0)
        Z[vi, vj] = B[vi, vj] * T.float32(2)
""",
}
