"""Small programs and the comparison that tests of schedule primitives share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.analysis.verify import verify
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule


def matmul(n: int = 12, m: int = 8, k: int = 10) -> PrimFunc:
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return te.create_prim_func([a, b, c])


def matmul_relu(n: int = 12, m: int = 8, k: int = 10) -> PrimFunc:
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    d = te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te.create_prim_func([a, b, d])


def conv2d(size: int = 8, channels: int = 3, filters: int = 4, stride: int = 1) -> PrimFunc:
    """A 3x3 convolution, NHWC, padded by one."""
    data = te.placeholder((size, size, channels), name="data")
    weight = te.placeholder((3, 3, channels, filters), name="weight")
    padded = te.compute(
        (size + 2, size + 2, channels),
        lambda h, w, c: te.if_then_else(
            te.all(h >= 1, h < size + 1, w >= 1, w < size + 1), data[h - 1, w - 1, c], 0.0
        ),
        name="pad",
    )
    out = (size - 1) // stride + 1
    rh, rw = te.reduce_axis((0, 3), "rh"), te.reduce_axis((0, 3), "rw")
    rc = te.reduce_axis((0, channels), "rc")
    conv = te.compute(
        (out, out, filters),
        lambda h, w, f: te.sum(
            padded[h * stride + rh, w * stride + rw, rc] * weight[rh, rw, rc, f],
            axis=[rh, rw, rc],
        ),
        name="conv",
    )
    return te.create_prim_func([data, weight, conv])


def chain(n: int = 16, m: int = 12) -> PrimFunc:
    """Three elementwise steps."""
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * c[i, j], name="D")
    return te.create_prim_func([a, d])


def symbolic_sum() -> PrimFunc:
    """Elementwise ``B`` of shape (n, 6), row sums ``C``, then ``D = B - C``."""
    n = te.var("n")
    a = te.placeholder((n, 6), name="A")
    b = te.compute((n, 6), lambda i, j: a[i, j] * 2.0, name="B")
    r = te.reduce_axis((0, 6), "r")
    c = te.compute((n,), lambda i: te.sum(b[i, r], axis=r), name="C")
    d = te.compute((n, 6), lambda i, j: b[i, j] - c[i], name="D")
    return te.create_prim_func([a, d])


def guarded_chain() -> PrimFunc:
    """``B`` reads inside of ``A`` only, whatever its domain; ``C`` and ``D`` follow."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((10, 6), "float32"), D: T.Buffer((10, 6), "float32")):
    B = T.alloc_buffer((10, 6), "float32")
    C = T.alloc_buffer((10, 6), "float32")
    for i, j in T.grid(10, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.if_then_else(vi < 10, A[vi, vj], T.float32(0))
    for i, j in T.grid(10, 6):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] * T.float32(2)
    for i, j in T.grid(10, 6):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] + B[vi, vj]
"""
    )


def arrays(func: PrimFunc, seed: int = 0, **sizes: int) -> list[np.ndarray]:
    """Random arguments; symbolic extents take the sizes given by name."""
    rng = np.random.default_rng(seed)
    made = []
    for buffer in func.buffers:
        shape = [sizes[e.name] if hasattr(e, "name") else int(e.value) for e in buffer.shape]
        if buffer.dtype.startswith("float"):
            made.append(rng.integers(-4, 5, shape).astype(buffer.dtype))
        else:
            made.append(rng.integers(0, 50, shape).astype(buffer.dtype))
    return made


def agree(
    original: PrimFunc, other: Callable[..., object], rtol: float = 1e-6, **sizes: int
) -> None:
    """Compare what ``other`` computes with the original on the interpreter."""
    expected, actual = arrays(original, **sizes), arrays(original, **sizes)
    run(original, *expected)
    other(*actual)
    for a, b in zip(expected, actual):
        np.testing.assert_allclose(b, a, rtol=rtol)


def check(sch: Schedule, original: PrimFunc, **sizes: int) -> PrimFunc:
    """Compare a scheduled program with the original on the interpreter; return the new function."""
    verify(sch.mod)
    func: PrimFunc = sch.mod["main"]
    agree(original, partial(run, func), **sizes)
    return func


def compiled_agrees(sch: Schedule, original: PrimFunc, **sizes: int) -> None:
    """Compare a scheduled program, compiled for the CPU, with the original on the interpreter."""
    agree(original, tilewright.compile(sch.mod, target="llvm"), 1e-5, **sizes)


def refuses(sch: Schedule, call: Any, *words: str) -> None:
    """Expect a ScheduleError whose message has all ``words``, and an untouched program."""
    before = sch.mod
    with pytest.raises(ScheduleError) as caught:
        call()
    assert sch.mod is before
    for word in words:
        assert word in str(caught.value), str(caught.value)


def loop_extents(sch: Schedule, block: Any) -> list[int]:
    """Extents of the loops around a block, outermost first."""
    realize = sch.state.get_block(sch.get_block(block) if isinstance(block, str) else block)
    return [getattr(loop.extent, "value", loop.extent) for loop in sch.state.loops_above(realize)]


def predicate_of(sch: Schedule, block: str) -> Any:
    """The predicate of a block."""
    return sch.state.get_block(sch.get_block(block)).predicate
