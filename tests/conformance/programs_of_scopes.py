"""Small programs in which blocks share loops, buffers and branches in ways that matter."""

from __future__ import annotations

from conformance_cases import script

# D reads running sums: C changes in each iteration of the loop that both share.
scan = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), E: T.Buffer((8,))):
    C = T.alloc_buffer((1,))
    D = T.alloc_buffer((8,))
    for k in range(8):
        with T.block("C"):
            vk = T.axis.reduce(8, k)
            with T.init():
                C[0] = T.float32(0)
            C[0] = C[0] + A[vk]
        with T.block("D"):
            vk = T.axis.spatial(8, k)
            D[vk] = C[0] * T.float32(2)
    for k in range(8):
        with T.block("E"):
            vk = T.axis.spatial(8, k)
            E[vk] = D[vk] + T.float32(1)
"""
)

# B is written by two blocks, A is written after B has read it.
rewritten = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8,)), D: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    E = T.alloc_buffer((8,))
    for i in range(4):
        with T.block("B_low"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(4):
        with T.block("B_high"):
            vi = T.axis.spatial(4, i)
            B[vi + 4] = A[vi + 4] * T.float32(3)
    for i in range(8):
        with T.block("E"):
            vi = T.axis.spatial(8, i)
            E[vi] = A[vi] - T.float32(1)
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = B[vi] + T.float32(1)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + E[vi]
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = A[vi] + C[vi]
"""
)

# B runs where a condition beyond its domain holds; C does not run all of its domain.
partial = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            T.where(A[i] > T.float32(0))
            B[vi] = A[vi] * T.float32(2)
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + T.float32(1)
"""
)

# A block with two stores, one that stores vectors, one that works through pointers.
shapes = script(
    """
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8,)), D: T.Buffer((8,))):
    B = T.alloc_buffer((8,))
    V = T.alloc_buffer((8,))
    P = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
            C[vi] = A[vi] + T.float32(1)
    for i in range(8):
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            P[vi] = A[vi]
    with T.block("call"):
        T.reads(P[0:8])
        T.writes(V[0:8])
        T.call_extern(
            "copy", V.data, P.data,
            dtype="int32")
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = B[vi] + V[vi]
"""
)

# Updates in place: every second element, and, in one loop with others, elements of their own.
updates = script(
    """
@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((8, 4)), C: T.Buffer((8, 4))):
    for i in range(8):
        with T.block("even"):
            vi = T.axis.spatial(8, i)
            A[vi * 2] = A[vi * 2] * T.float32(2)
    for i in range(8):
        for j in range(4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = B[vi, vj] + T.float32(1)
        for j in range(4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] * T.float32(3)
"""
)

# A line is read at a neighbour, in a loop with its reader.
neighbours = script(
    """
@T.prim_func
def main(A: T.Buffer((9,)), C: T.Buffer((8,))):
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = A[vi] + A[vi + 1]
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi] * T.float32(3)
"""
)

# A window with a border, rows of it: everything symbolic in n.
symbolic_window = script(
    """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n + 2,))
    C = T.match_buffer(c, (n,))
    B = T.alloc_buffer((n + 2,))
    for i in range(n + 2):
        with T.block("B"):
            vi = T.axis.spatial(n + 2, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.block("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi] + B[vi + 1] + B[vi + 2]
"""
)
