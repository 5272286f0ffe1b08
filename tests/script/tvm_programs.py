"""Programs in TVM's language, each with what it computes, by TVM's documentation and TVM itself.

A program takes its inputs, then its output where it has one, then ``1`` for a parameter ``n``. All
but a few were run under TVM 0.27 and gave the same, so that it is TVM's language that is tested.
The others: ``region slice`` and ``handles``, which that version's compiler refuses, and those of
threads (``thread``, ``thread with``, ``thread return``), which have no code for a CPU there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Program(NamedTuple):
    """Text, inputs, and what comes of them (``None``: the function returns 10)."""

    text: str
    inputs: list[Any]
    result: Callable[..., Any] | None

    def arguments(self) -> tuple[list[Any], Any, Any]:
        """Arguments of a call, the output among them, and what is expected of that."""
        given = [item.copy() if isinstance(item, np.ndarray) else item for item in self.inputs]
        if self.result is None:
            return given, None, None
        expected = self.result(*self.inputs)
        output = np.zeros_like(expected)
        more = [1] if "n: T.int32)" in self.text else []
        return [*given, output, *more], output, expected


def _f(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


HEAD = "from tvm.script import tirx as T\n"
A16, A44, B44 = _f(16), _f(4, 4), _f(4, 4, seed=1)
PROGRAMS: dict[str, Program] = {}


def program(name: str, inputs: list[Any], result: Callable[..., Any] | None) -> Any:
    def add(text: str) -> None:
        PROGRAMS[name] = Program(HEAD + text, inputs, result)

    return add


program("sblock", [A44, B44], lambda a, b: a @ b)("""
@T.prim_func(s_tir=True)
def main(
    A: T.Buffer((4, 4), "float32"),
    B: T.Buffer((4, 4), "float32"),
    C: T.Buffer((4, 4), "float32"),
):
    for i, j, k in T.grid(4, 4, 4):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.sblock_attr({"note": 1})
            with T.init():
                C[vi, vj] = T.f32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")
program("sblock alloc", [A44], lambda a: (a + 1) * 2)("""
@T.prim_func(s_tir=True)
def main(a: T.handle, c: T.handle):
    T.func_attr({"tirx.noalias": True})
    A = T.match_buffer(a, (4, 4), "float32")
    C = T.match_buffer(c, [4, 4], dtype="float32")
    B = T.sblock_alloc_buffer((4, 4), "float32")
    for i, j in T.grid(4, 4):
        with T.sblock("B"):
            vi = T.axis.S(4, i)
            vj = T.axis.spatial(4, j)
            B[vi, vj] = A[vi, vj] + T.float32(1)
    for i in T.serial(4):
        for j in T.serial(0, 4):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(B[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = B[vi, vj] * T.float32(2)
""")
program("grid names", [_f(2, 3, 4)], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((2, 3, 4), "float32"), B: T.Buffer((2, 3, 4), "float32")):
    for *s, r in T.grid(2, 3, 4):
        B[s[0], s[1], r] = A[s[0], s[1], r] * T.float32(2)
""")
program("grid whole", [_f(2, 3)], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((2, 3), "float32"), B: T.Buffer((2, 3), "float32")):
    for iters in T.grid(2, 3):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", iters)
            B[vi, vj] = A[vi, vj] * T.float32(2)
""")
program("step", [A16], lambda a: np.where(np.arange(16) % 3 == 1, a, 0).astype("float32"))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = T.float32(0)
    for i in T.serial(1, 16, step=3):
        B[i] = A[i]
""")
program("step range", [A16], lambda a: np.where(np.arange(16) % 3 == 1, a, 0).astype("float32"))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = T.float32(0)
    for i in range(1, 16, 3):
        B[i] = A[i]
""")
program(
    "break continue",
    [A16],
    lambda a: np.where((np.arange(16) % 2 == 1) & (np.arange(16) < 9), a, 0).astype("float32"),
)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = T.float32(0)
    for i in range(16):
        if i == 9:
            break
        if i % 2 == 0:
            continue
        B[i] = A[i]
""")
program("return value", [5], None)("""
@T.prim_func(s_tir=True)
def main(x: T.int32) -> T.int32:
    if x > 3:
        return x * 2
    return x + 1
""")
program("types", [A16], lambda a: a.astype("float64").astype("float32"))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        x: T.f64 = T.f64(A[i])
        y: T.let[T.f32] = T.cast(x, "float32")
        B[i] = T.if_then_else(T.boolean(True), y, T.f32(0))
""")
program("vector", [A16], lambda a: a * 2 + np.arange(16, dtype="float32"))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(4):
        B[T.ramp(i * 4, 1, 4)] = (
            A[T.Ramp(i * 4, 1, 4)] * T.broadcast(T.float32(2), 4)
            + T.float32x4(T.ramp(i * 4, 1, 4))
        )
""")
program("select", [A16], lambda a: np.maximum(a, 0))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = T.Select(A[i] > T.float32(0), A[i], T.float32(0))
""")
program("symbols", [_f(3, 5)], lambda a: a + 1)("""
@T.prim_func(s_tir=True)
def main(a: T.handle, b: T.handle):
    m, n = T.int64(), T.int64()
    A = T.match_buffer(a, (m, n))
    B = T.match_buffer(b, (m, n))
    for i, j in T.grid(m, n):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
""")
program("let", [A16], lambda a: a * a + a)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        x = T.bind(A[i])
        B[i] = x * x + x
""")
program("let expr", [A16], lambda a: a * a + a)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        y = T.float32()
        B[i] = T.Let(y * y + y, where={y: A[i]})
""")
program("alloc flat", [A16], lambda a: a + 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    C = T.alloc_buffer((16,), "float32", annotations={"note": 1})
    for i in range(16):
        C[i] = A[i] + T.float32(1)
    for i in range(16):
        B[i] = C[i] + T.float32(1)
""")
program("decl buffer", [A16], lambda a: a + 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    V = T.decl_buffer((4, 4), "float32", data=A.data)
    for i in range(16):
        B[i] = V[i // 4, i % 4] + T.float32(2)
""")
program("decl nodata", [A16], lambda a: a + 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    V = T.decl_buffer((16,), "float32")
    for i in range(16):
        V[i] = A[i] + T.float32(1)
    for i in range(16):
        B[i] = V[i] + T.float32(1)
""")
program("while", [A16], lambda a: a + 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    n = T.alloc_buffer((1,), "int32", scope="local")
    n[0] = 0
    while n[0] < 16:
        B[n[0]] = A[n[0]] + T.float32(2)
        n[0] += 1
""")
program("assume assert", [A16], lambda a: a + 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
    T.evaluate(T.assume(n > 0))
    T.assume(n > 0)
    assert n > 0, "n is positive"
    with T.Assert(n > 0, "again"):
        for i in range(16):
            B[i] = A[i] + T.float32(2)
""")
program("macro", [A16], lambda a: a + 3)("""
@T.macro
def add(buf, i, v):
    buf[i] = buf[i] + v

@T.inline
def copy(X, Y, i):
    Y[i] = X[i]

@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        copy(A, B, i)
        add(B, i, T.float32(3))
""")
program(
    "mod div",
    [np.arange(-8, 8, dtype="int32")],
    lambda a: np.fmod(a, 3) + np.trunc(a / 3).astype("int32") + (a // 3) * 5 + a % 3,
)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in range(16):
        B[i] = T.Mod(A[i], 3) + T.Div(A[i], 3) + T.FloorDiv(A[i], 3) * 5 + T.FloorMod(A[i], 3)
""")
program("attrs", [A16], lambda a: a + 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    with T.attr(0, "pragma_x", 1):
        for i in T.parallel(16):
            B[i] = A[i] + T.float32(2)
""")
program(
    "logic",
    [np.arange(16, dtype="int32")],
    lambda a: ((a > 3) & (a < 9) | ~(a != 2)).astype("int32"),
)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in range(16):
        B[i] = T.Cast("int32", T.Or(T.And(A[i] > 3, A[i] < 9), T.Not(A[i] != 2)))
""")
program("bits", [np.arange(16, dtype="int32")], lambda a: (a << 2) ^ (a & 3) | (a >> 1))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in range(16):
        B[i] = (A[i] << 2) ^ (A[i] & 3) | (A[i] >> 1)
""")
program("meta", [A16], lambda a: a + 3)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        j = T.meta_var(15 - i)
        B[j] = A[j] + T.float32(3)
""")
program("chain", [A16], lambda a: np.where((np.arange(16) >= 2) & (np.arange(16) < 9), a, -a))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        if 2 <= i and i < 9:
            B[i] = A[i]
        elif i == 20:
            T.evaluate(0)
        else:
            B[i] = -A[i]
""")
program("intrin", [A16], lambda a: np.exp(a) + np.maximum(a, 0) + np.abs(a))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = T.exp(A[i]) + T.max(A[i], T.float32(0)) + T.abs(A[i])
""")
program("where", [_f(10)], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32")):
    for i, j in T.grid(3, 4):
        with T.sblock("B"):
            vi = T.axis.spatial(10, i * 4 + j)
            T.where(i * 4 + j < 10)
            B[vi] = A[vi] * T.float32(2)
""")
program("reduce tuple", [np.array([3, 9, 1, 9], "float32")], lambda a: np.array([1], "int32"))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4,), "float32"), I: T.Buffer((1,), "int32")):
    best = T.sblock_alloc_buffer((1,), "float32")
    for i, k in T.grid(1, 4):
        with T.sblock("arg"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                I[vi] = -1
                best[vi] = T.min_value("float32")
            v0: T.let[T.int32] = T.Select(best[vi] >= A[vk], I[vi], T.Cast("int32", vk))
            v1: T.let[T.float32] = T.Select(best[vi] >= A[vk], best[vi], A[vk])
            I[vi] = v0
            best[vi] = v1
""")
program("match region", [A44], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    for i in range(2):
        with T.sblock("B"):
            vi = T.axis.spatial(2, i)
            T.reads(A[vi * 2:vi * 2 + 2, 0:4])
            T.writes(B[vi * 2:vi * 2 + 2, 0:4])
            A1 = T.match_buffer(A[vi * 2:vi * 2 + 2, 0:4], (2, 4), "float32", offset_factor=1)
            for x, y in T.grid(2, 4):
                B[vi * 2 + x, y] = A1[x, y] * T.float32(2)
""")
program("region slice", [A44], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    for i in range(4):
        with T.sblock("B"):
            vi = T.axis.spatial(4, i)
            T.reads(A[vi, :])
            T.writes(B[vi, 0:4])
            B[vi, 0:4] = A[vi, 0:4] * T.Broadcast(T.float32(2), 4)
""")
program("thread", [A16], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.env_thread("threadIdx.x")
    T.launch_thread(tx, 4)
    B[bx * 4 + tx] = A[bx * 4 + tx] * T.float32(2)
""")
program("thread with", [A16], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    with T.launch_thread("blockIdx.x", 4) as bx:
        with T.launch_thread("threadIdx.x", 4) as tx:
            B[bx * 4 + tx] = A[bx * 4 + tx] * T.float32(2)
""")
program("annotations", [A16], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in T.serial(16, annotations={"pragma_auto_unroll_max_step": 16}):
        with T.sblock("B"):
            vi = T.axis.remap("S", [i])
            B[vi] = A[vi] * T.float32(2)
""")
program("extern", [A16], lambda a: np.sqrt(np.abs(a)))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = T.call_extern("float32", "sqrtf", T.call_pure_extern("float32", "fabsf", A[i]))
""")
program("buffer store", [A16], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        T.buffer_store(B, A[i] * T.float32(2), [i])
""")
program("handles", [A16], lambda a: a * 2)("""
@T.prim_func(s_tir=True)
def main(a: T.handle("float32"), b: T.handle):
    A = T.match_buffer(a, 16)
    B = T.match_buffer(b, (16,), strides=[1], offset_factor=1)
    p: T.let[T.Ptr(T.float32)] = A.data
    V = T.Buffer((16,), "float32", data=p)
    for i in range(16):
        B[i] = V[i] * T.float32(2)
""")
program("thread return", [A16], lambda a: np.where(np.arange(16) < 5, a, 0).astype("float32"))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
    for i in range(16):
        B[i] = T.float32(0)
    for i in range(16):
        if i == n + 4:
            T.evaluate(T.thread_return())
        B[i] = A[i]
""")
program(
    "break blocks",
    [np.arange(16, dtype="float32")],
    lambda a: np.where((a < 9) & (a % 4 != 1), a * 2, 0).astype("float32"),
)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = T.float32(0)
    for i in range(4):
        for j in range(4):
            if A[i * 4 + j] >= T.float32(9):
                break
            if i < 10:
                if j == 1:
                    continue
                T.evaluate(0)
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi * 4 + vj] = A[vi * 4 + vj] * T.float32(2)
""")
program(
    "while break",
    [A16],
    lambda a: np.where((np.arange(16) < 7) & (np.arange(16) != 3), a, 0).astype("float32"),
)("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    n: T.int32 = 0
    acc: T.float32 = T.float32(0)
    for i in range(16):
        B[i] = T.float32(0)
    while n < 100:
        n += 1
        if n == 4:
            continue
        if n > 3:
            if n == 8:
                break
        acc = acc + A[n - 1]
        B[n - 1] = A[n - 1]
""")
program("scalar", [A16], lambda a: np.full(16, a.sum(), "float32"))("""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    total = T.alloc_scalar("float32")
    total = T.float32(0)
    for i in range(16):
        total += A[i]
    for i in range(16):
        B[i] = total
""")
