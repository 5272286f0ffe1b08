"""Whole programs that the kinds of stages do not make: what schedules rarely meet.

Memory under two names, statements around and inside of blocks, loops that already have kinds or
start elsewhere, extents and indices from data, blocks in blocks, narrow and unsigned numbers,
elements that nobody writes or several blocks write. The texts use dimensions as stages do.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tilewright.testing.fuzz.programs import Program, Tensor, dims_in


@dataclass(frozen=True)
class HardProgram(Program):
    """A program whose text is fixed but for its dimensions; parameters are its ``inputs``."""

    source: str = ""
    label: str = ""

    def text(self) -> str:
        """Return the program in the dialect ``T``."""
        return super().text() + self.render(self.source).strip("\n") + "\n"

    def is_valid(self) -> bool:
        """Whether it may take the place of another one when faults are made smaller."""
        return all(size > 0 for size in self.dims.values())


def hard_program(rng: random.Random, seed: Any, label: str = "") -> HardProgram:
    """Draw one of the programs of ``PROGRAMS``, with random extents."""
    label = label or rng.choice(sorted(PROGRAMS))
    signature, source = PROGRAMS[label].strip().split("\n", 1)
    source = "\n".join("    " + line if line else line for line in source.split("\n"))
    inputs = []
    for item in signature.split(";"):
        name, shape, dtype, *more = item.split()
        index_of = more[0] if more else ""
        inputs.append(Tensor(name, tuple(shape.split(",")), dtype, 4, index_of))
    used = set().union(*(dims_in(" ".join(t.dims)) for t in inputs), dims_in(source))
    dims = {dim: rng.choice([3, 4, 5, 6, 7, 8, 9, 12]) for dim in sorted(used)}
    alone = {dim for tensor in inputs for dim in tensor.dims if dim in dims}
    symbolic = {dim for dim in alone if rng.random() < 0.15}
    return HardProgram(
        seed, dims, frozenset(symbolic), tuple(inputs), (), frozenset(), source, label
    )


def hard_program_at_times(case: str) -> HardProgram | None:
    """Return such a program for one case in ten, and nothing for the others."""
    rng = random.Random(f"hard {case}")
    return hard_program(rng, case) if rng.random() < 0.1 else None


PROGRAMS: dict[str, str] = {
    "views of one pointer": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
V = T.decl_buffer((d0 * d1,), "float32", data=B.data)
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i in T.serial(d0 * d1):
    with T.block("V"):
        vi = T.axis.spatial(d0 * d1, i)
        V[vi] = V[vi] * T.float32(2)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = B[vi, vj] - T.float32(3)
""",
    "view read": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
V = T.decl_buffer((d0 * d1,), "float32", data=B.data)
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i, j in T.grid(d0, d1):
    with T.block("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = V[d0 * d1 - 1 - (vi * d1 + vj)] * T.float32(2)
""",
    "view of a parameter written first": """
A d0 float32; Z d0 float32
V = T.decl_buffer((d0,), "float32", data=A.data)
B = T.alloc_buffer((d0,), "float32")
C = T.alloc_buffer((d0,), "float32")
for i in T.serial(d0):
    with T.block("B"):
        vi = T.axis.spatial(d0, i)
        B[vi] = A[vi] + T.float32(1)
for i in T.serial(d0):
    with T.block("V"):
        vi = T.axis.spatial(d0, i)
        V[vi] = T.float32(7)
for i in T.serial(d0):
    with T.block("C"):
        vi = T.axis.spatial(d0, i)
        C[vi] = B[vi] * T.float32(2)
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = C[vi] + A[vi]
""",
    "in place through a view": """
A d0 float32; Z d0 float32
V = T.decl_buffer((d0,), "float32", data=A.data)
for i in T.serial(d0 - 1):
    with T.block("V"):
        vi = T.axis.spatial(d0 - 1, i)
        V[vi + 1] = A[vi] + T.float32(1)
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = A[vi]
""",
    "two matches in one block": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i in T.serial(d0):
    with T.block("outer"):
        vi = T.axis.spatial(d0, i)
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
for i in T.serial(d0):
    with T.block("outer"):
        vi = T.axis.spatial(d0, i)
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
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
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
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = B[vi, d1 - 1 - vj] * T.float32(2)
""",
    "if around one block": """
A d0,d1 float32; F d0 int32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B0"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] * T.float32(3)
for i in T.serial(d0):
    if F[i] > 0:
        for j in T.serial(d1):
            with T.block("Z0"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = B[vi, vj] + T.float32(1)
""",
    "predicate of data": """
A d0,d1 float32; F d0 int32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
C = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i, j in T.grid(d0, d1):
    with T.block("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = B[vi, vj] * T.float32(2)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        T.where(F[i] > 0)
        Z[vi, vj] = C[vi, vj] + T.float32(2)
""",
    "extent of data": """
A d0,d1 float32; F d0 int32 d1; Z d0 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i in T.serial(d0):
    with T.block("Z_init"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = T.float32(0)
    for k in T.serial(T.int64(F[i])):
        with T.block("Z"):
            vi = T.axis.spatial(d0, i)
            vk = T.axis.reduce(d1, k)
            Z[vi] = Z[vi] + B[vi, vk]
""",
    "ragged copy": """
A d0,d1 float32; F d0 int32 d1; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i in T.serial(d0):
    for k in T.serial(T.int64(F[i])):
        with T.block("B"):
            vi, vk = T.axis.remap("SS", [i, k])
            B[vi, vk] = A[vi, vk] + T.float32(1)
for i in T.serial(d0):
    for k in T.serial(T.int64(F[i])):
        with T.block("Z"):
            vi, vk = T.axis.remap("SS", [i, k])
            Z[vi, vk] = B[vi, vk] * T.float32(2)
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
for i in T.serial(d0):
    with T.block("B"):
        vi = T.axis.spatial(d0, i)
        B[vi] = A[vi] + T.float32(1)
for i in T.serial(d0 // 2, d0):
    with T.block("Z"):
        vi = T.axis.spatial((d0 // 2, d0), i)
        Z[vi] = B[vi - d0 // 2] * T.float32(2)
for i in T.serial(d0 // 2):
    with T.block("Y"):
        vi = T.axis.spatial(d0 // 2, i)
        Z[vi] = B[vi + d0 // 2] * T.float32(3)
""",
    "backwards and negative": """
A d0 int32; Z d0,2 int32
B = T.alloc_buffer((d0,), "int32")
for i in T.serial(d0):
    with T.block("B"):
        vi = T.axis.spatial(d0, d0 - 1 - i)
        B[vi] = A[vi] * T.int32(3) - T.int32(5)
for i, j in T.grid(d0, 2):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = (
            T.floordiv(B[vi], T.int32(-3)) + T.floormod(B[vi], T.int32(-4)) * T.int32(10)
            + T.truncdiv(B[vi], T.int32(-2)) + T.truncmod(B[vi], T.int32(3))
        )
""",
    "gather": """
A d0,d1 float32; F d0 int32 d0; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
C = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i, j in T.grid(d0, d1):
    with T.block("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = B[T.int64(F[vi]), vj] * T.float32(2)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = C[vi, vj] + B[vi, vj]
""",
    "scatter": """
A d0,d1 float32; F d0 int32 d0; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i, j in T.grid(d0, d1):
    with T.block("Z0"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = T.float32(0)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[T.int64(F[vi]), vj] = B[vi, vj] * T.float32(2)
""",
    "scatter in binding": """
A d0,d1 float32; F d0 int32 d0; Z d0,d1 float32
for i, j in T.grid(d0, d1):
    with T.block("Z0"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = T.float32(0)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi = T.axis.spatial(d0, T.int64(F[i]))
        vk = T.axis.reduce(d0, i)
        vj = T.axis.spatial(d1, j)
        Z[vi, vj] = Z[vi, vj] + A[vk, vj]
""",
    "indices made here": """
A d0 float32; F d0 int32 d0; Z d0 float32
G = T.alloc_buffer((d0,), "int32")
B = T.alloc_buffer((d0,), "float32")
for i in T.serial(d0):
    with T.block("G"):
        vi = T.axis.spatial(d0, i)
        G[vi] = T.floormod(F[vi] * T.int32(5) + T.int32(1), T.Cast("int32", d0))
for i in T.serial(d0):
    with T.block("B"):
        vi = T.axis.spatial(d0, i)
        B[vi] = A[vi] + T.float32(1)
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = B[T.int64(G[vi])] + B[vi]
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
    "diagonal": """
A d0,d0 float32; Z d0,d0 float32
B = T.alloc_buffer((d0, d0), "float32")
for i, j in T.grid(d0, d0):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vj, vi] + T.float32(1)
for i in T.serial(d0):
    with T.block("D"):
        vi = T.axis.spatial(d0, i)
        B[vi, vi] = T.float32(9)
for i, j in T.grid(d0, d0):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
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
for i in T.serial(d0):
    with T.block("B"):
        vi = T.axis.spatial(d0, i)
        B[vi] = A[vi] + T.float32(1)
for i, k in T.grid(d0, 0):
    with T.block("Z"):
        vi, vk = T.axis.remap("SS", [i, k])
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
for i in T.serial(d0):
    with T.block("Y"):
        vi = T.axis.spatial(d0, i)
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
for i in T.serial(d0):
    with T.block("outer"):
        vi = T.axis.spatial(d0, i)
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
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = B[d0 - 1 - vi, vj] * T.float32(2)
""",
    "blocks in init": """
A d0,d1,4 float32; Z d0,4 float32
B = T.alloc_buffer((d0, d1, 4), "float32")
for i, k, j in T.grid(d0, d1, 4):
    with T.block("B"):
        vi, vk, vj = T.axis.remap("SSS", [i, k, j])
        B[vi, vk, vj] = A[vi, vk, vj] + T.float32(1)
for i, k in T.grid(d0, d1):
    with T.block("Z"):
        vi, vk = T.axis.remap("SR", [i, k])
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
    "bytes": """
A d0,d1 uint8; W d0,d1 int8; Z d0 uint8; Y d0 int8
B = T.alloc_buffer((d0, d1), "uint8")
C = T.alloc_buffer((d0, d1), "int8")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] * T.uint8(77) - T.uint8(200)
for i, j in T.grid(d0, d1):
    with T.block("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = W[vi, vj] * T.int8(50) + T.int8(100)
for i, k in T.grid(d0, d1):
    with T.block("Z"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            Z[vi] = T.uint8(250)
        Z[vi] = Z[vi] + B[vi, vk]
for i, k in T.grid(d0, d1):
    with T.block("Y"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            Y[vi] = T.int8(0)
        Y[vi] = T.max(Y[vi], C[vi, vk] * T.int8(3))
""",
    "bool and half": """
A d0,d1 float16; Z d0,d1 float16; Y d0 bool
M = T.alloc_buffer((d0, d1), "bool")
H = T.alloc_buffer((d0, d1), "float16")
for i, j in T.grid(d0, d1):
    with T.block("M"):
        vi, vj = T.axis.remap("SS", [i, j])
        M[vi, vj] = A[vi, vj] > T.float16(0)
for i, j in T.grid(d0, d1):
    with T.block("H"):
        vi, vj = T.axis.remap("SS", [i, j])
        H[vi, vj] = T.Select(M[vi, vj], A[vi, vj] * T.float16(2), T.float16(-1))
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = H[vi, d1 - 1 - vj] + T.float16(1)
for i, k in T.grid(d0, d1):
    with T.block("Y"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            Y[vi] = T.bool(False)
        Y[vi] = Y[vi] or M[vi, vk]
""",
    "related sizes": """
A d0*2 float32; B d0 float32; Z d0 float32
C = T.alloc_buffer((d0 * 2,), "float32")
D = T.alloc_buffer((d0 // 2 + 1,), "float32")
for i in T.serial(d0 * 2):
    with T.block("C"):
        vi = T.axis.spatial(d0 * 2, i)
        C[vi] = A[vi] + T.float32(1)
for i in T.serial(d0 // 2 + 1):
    with T.block("D"):
        vi = T.axis.spatial(d0 // 2 + 1, i)
        D[vi] = C[vi * 2] + T.float32(3)
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        Z[vi] = C[vi * 2 + 1] + C[vi * 2] * T.float32(2) + D[vi // 2] + B[vi]
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
    "while in a block": """
A d0 int32; Z d0 int32
B = T.alloc_buffer((d0,), "int32")
for i in T.serial(d0):
    with T.block("B"):
        vi = T.axis.spatial(d0, i)
        B[vi] = A[vi] * T.int32(2)
for i in T.serial(d0):
    with T.block("Z"):
        vi = T.axis.spatial(d0, i)
        T.reads(B[vi], Z[vi])
        T.writes(Z[vi])
        Z[vi] = T.int32(0)
        while Z[vi] * Z[vi] < B[vi] + T.int32(9):
            Z[vi] = Z[vi] + T.int32(1)
""",
    "statements in a block": """
A d0,d1 float32; Z d0,d1 float32; Y d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        assert A[vi, vj] < T.float32(100), "too large"
        with T.LetStmt(A[vi, vj] * T.float32(2)) as w:
            if w > T.float32(2):
                B[vi, vj] = w
            else:
                B[vi, vj] = w - T.float32(5)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        if B[vi, vj] > T.float32(0):
            Z[vi, vj] = B[vi, vj] + T.float32(2)
for i, j in T.grid(d0, d1):
    with T.block("Y"):
        vi, vj = T.axis.remap("SS", [i, j])
        with T.attr(0, "pragma_none", 1):
            if vj < d1 // 2:
                Y[vi, vj] = B[vi, vj * 2] + T.float32(2)
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
    "same axis for two loops": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0 + d1,), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi = T.axis.spatial(d0 + d1 - 1, i + j)
        B[vi] = T.Cast("float32", vi) * T.float32(2)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = B[vi + vj] + A[vi, vj]
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
    "strided parameter parts": """
A d0,d1 float32; Z d0,d1 float32
for i, j in T.grid(d0, d1 // 2):
    with T.block("even"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj * 2] = A[vi, vj * 2] + T.float32(1)
for i, j in T.grid(d0, d1 // 2):
    with T.block("odd"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj * 2 + 1] = Z[vi, vj * 2] - A[vi, vj * 2 + 1]
""",
    "opaque call": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i in T.serial(d0):
    with T.block("P"):
        vi = T.axis.spatial(d0, i)
        T.reads(B[vi, 0:d1])
        T.writes(Z[vi, 0:d1])
        for j in T.serial(d1):
            Z[vi, j] = B[vi, j]
        T.evaluate(T.storage_sync("shared", dtype="void"))
        for j in T.serial(d1):
            Z[vi, j] = Z[vi, j] * T.float32(2)
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
    "reads of nothing": """
Z d0,d1 float32; Y d0 int64
B = T.alloc_buffer((d0, d1), "float32")
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = T.Cast("float32", vi * 3 - vj)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = (
            T.if_then_else(vi >= 1, B[vi - 1, vj], T.float32(0))
            + T.if_then_else(vj < d1 - 1, B[vi, vj + 1], T.float32(1))
        )
for i in T.serial(d0):
    with T.block("Y"):
        vi = T.axis.spatial(d0, i)
        Y[vi] = (
            T.floordiv(vi - 5, T.int64(-2)) + T.floormod(vi - 5, T.int64(3))
            - T.shift_right(vi - 4, T.int64(1))
        )
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
    "strided buffers": """
A d0,d1 float32; Z d0,d1 float32
B = T.alloc_buffer((d0, d1), "float32", strides=(2 * d1, 2))
C = T.alloc_buffer((d0, d1), "float32", axis_separators=[1])
for i, j in T.grid(d0, d1):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.float32(1)
for i, j in T.grid(d0, d1):
    with T.block("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = B[vi, d1 - 1 - vj] + T.float32(1)
for i, j in T.grid(d0, d1):
    with T.block("Z"):
        vi, vj = T.axis.remap("SS", [i, j])
        Z[vi, vj] = C[d0 - 1 - vi, vj] * T.float32(2) + B[vi, vj]
""",
    "matches with strides": """
A d0,d1 float32; Z d1,d0 float32
for i in T.serial(d0):
    with T.block("column"):
        vi = T.axis.spatial(d0, i)
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
"""Parameters (name, shape, dtype, and for indices into what extent); then the body."""
