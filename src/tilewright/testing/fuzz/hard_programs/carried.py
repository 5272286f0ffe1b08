"""Buffers through which iterations hand values on: what one leaves, later ones may read."""

from __future__ import annotations

_START = """for j in T.serial(d1 * 2):
        with T.block("start"):
            vi = T.axis.spatial(d0, i)
            vj = T.axis.spatial(d1 * 2, j)
            T.where(i == 0)
            B[vj] = T.float32(5)"""
_PLACES = "vj|vj * 2|d1 - 1 - vj|vj + 1|vj // 2"
_ROWS = f"""A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d1 * 2,), "float32")
for i in T.serial(d0):
    {_START}"""
_TURN = f"""? KEEP {_PLACES}
? READ {_PLACES}|(vj + vi) % d1
{_ROWS}
    for j in T.serial(d1):
        with T.block("keep"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[{{KEEP}}] = A[vi, vj]"""

PROGRAMS: dict[str, str] = {
    "handed on beside what is written": f"""
{_TURN}
    for j in T.serial(d1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[{{READ}}]
""",
    "handed on in turns": f"""
{_TURN}
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[{{READ}}]
""",
    "handed on, read before it is written": f"""
? KEEP {_PLACES}
? READ {_PLACES}
{_ROWS}
    for j in T.serial(d1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[{{READ}}]
    for j in T.serial(d1):
        with T.block("keep"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[{{KEEP}}] = A[vi, vj] + T.float32(1)
""",
    "handed on by branches": f"""
? WHEN i == 0|i % 2 == 0|i < d0 - 1
{_ROWS}
    if {{WHEN}}:
        for j in T.serial(d1):
            with T.block("keep"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vj] = A[vi, vj]
    for j in T.serial(d1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[vj]
""",
    "handed on where data say so": f"""
? READ {_PLACES}
{_ROWS}
    for j in T.serial(d1):
        with T.block("keep"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj])
            T.writes(B[vj])
            if A[vi, vj] > T.float32(0):
                B[vj] = A[vi, vj]
    for j in T.serial(d1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[{{READ}}]
""",
    "written again in each iteration": """
? KEEP vj|d1 - 1 - vj|vj // 2
? READ vj|d1 - 1 - vj|(vj + vi) % d1|vj // 2
A d1 float32; B d1 float32; Z d0,d1 float32
for i, j in T.grid(d0, d1):
    with T.block("keep"):
        vj = T.axis.spatial(d1, j)
        B[{KEEP}] = A[vj]
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = B[{READ}]
""",
    "written again, more often in later iterations": """
? READ vj|d1 - 1 - vj
A d1 float32; B d1 float32; Z d0,d1 float32
for i in T.serial(d0):
    for r, j in T.grid(i, d1):
        with T.block("keep"):
            vj = T.axis.spatial(d1, j)
            B[vj] = A[vj]
    for j in T.serial(d1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[{READ}]
""",
    "read more often in later iterations": """
? OFTEN i|d0 - 1 - i|i // 2
? READ vj|d1 - 1 - vj
A d1 float32; B d0,d1 float32; Z d1 float32
for i in T.serial(d0):
    for j in T.serial(d1):
        with T.block("keep"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj] + T.float32(1)
    for r, j in T.grid({OFTEN}, d1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vj] = B[vi, {READ}]
""",
    "through one element": """
? FIRST T.float32(0)|A[vi, 0]
A d0,d1 float32; Z d0 float32
S = T.alloc_buffer((1,), "float32")
for i in T.serial(d0):
    for k in T.serial(d1):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            vs = T.axis.spatial(1, 0)
            with T.init():
                S[vs] = {FIRST}
            S[vs] = S[vs] + A[vi, vk]
    for u in T.serial(1):
        with T.block("Z"):
            vi = T.axis.spatial(d0, i)
            Z[vi] = S[0] * T.float32(2)
""",
    "there and back": """
? BACK vj|d1 - 1 - vj|(vj + 1) % d1
A d0,d1 float32; Z d0,d1 float32
X = T.alloc_buffer((d1,), "float32")
Y = T.alloc_buffer((d1,), "float32")
nest start(j: d1):
    Y[vj] = T.float32(1)
for i in T.serial(d0):
    for j in T.serial(d1):
        with T.block("X"):
            vi, vj = T.axis.remap("SS", [i, j])
            X[vj] = T.max(Y[vj], A[vi, vj])
    for j in T.serial(d1):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vj] = X[{BACK}]
    for j in T.serial(d1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = X[vj] - Y[vj]
""",
    "feedback of arguments": """
? READ vj|d1 - 1 - vj
? NEXT T.min(B[vj], T.float32(3)) - T.float32(1)|B[vj] + A[vj]|A[vj] - B[vj]
A d1 float32; X d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d1,), "float32")
for i in T.serial(d0):
    nest B(j: d1):
        B[vj] = X[{READ}] * T.float32(2)
    nest X(j: d1):
        X[vj] = T.max(T.min({NEXT}, T.float32(7)), T.float32(-7))
    for j in T.serial(d1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[vj] + X[vj]
""",
    "sums that are made again": """
? OF A[vj, vk]|A[vj, vk] + X[vj]
A d1,d2 float32; X d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d1,), "float32")
for i in T.serial(d0):
    nest B(j: d1, k: R d2):
        with T.init():
            B[vj] = T.float32(0)
        B[vj] = B[vj] + {OF}
    nest X(j: d1):
        X[vj] = T.max(T.min(B[vj], T.float32(4)), T.float32(-4))
    for j in T.serial(d1):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = B[vj] - X[vj]
""",
}
