"""Kernels with very long expressions compute their index arithmetic once, and the same floats."""

from __future__ import annotations

import numpy as np

from tilewright import dlight, te, topi
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.ir import IRModule, dtypes, pre_order
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import BufferLoad, LetStmt
from tilewright.tir.interpreter import run
from tilewright.tir.transform import ShareIndexArithmetic, gpu_pipeline

TERM = "A[(bx * 64 + tx) // (n + {0}) % n] * T.float32({0})"
KERNEL = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for bx in T.thread_binding((n + 63) // 64, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            if bx * 64 + tx < n:
                B[bx * 64 + tx] = {0}
"""


def kernel(terms: int) -> IRModule:
    parts = [TERM.format(i % 2 + 1) for i in range(terms)]
    while len(parts) > 1:  # not deep
        parts = [f"({' + '.join(parts[i : i + 2])})" for i in range(0, len(parts), 2)]
    return IRModule({"main": parse(KERNEL.format(parts[0]))})


def test_long_expressions_share_index_arithmetic() -> None:
    before = kernel(200)
    after = ShareIndexArithmetic()(before)
    lets = [item for item in pre_order(after["main"].body) if type(item) is LetStmt]
    assert lets and not any(dtypes.is_float(item.var.dtype) for item in lets)
    loads = [item for item in pre_order(after["main"].body) if type(item) is BufferLoad]
    assert len(loads) == 200
    assert (before.script().count("//"), after.script().count("//")) == (201, 3)
    a = np.random.default_rng(0).random(100).astype("float32")
    found = [np.zeros(100, "float32") for _ in range(2)]
    for made, mod in zip(found, (before, after)):
        run(mod, a, made)
    np.testing.assert_array_equal(*found)


def test_short_ones_stay_as_they_are() -> None:
    before = kernel(20)
    assert ShareIndexArithmetic()(before)["main"] is before["main"]


def test_a_gradient_by_winograd_has_a_short_text() -> None:
    """Its transforms choose among rows of matrices; all of them repeated how images are divided."""
    target = Target("nvidia/nvidia-h200")
    shape = te.var("n"), 8, 5, 6
    data, grad = te.placeholder(shape, name="data"), te.placeholder(shape, name="grad")
    gradient = topi.nn.conv2d_weight_backward_winograd(grad, data, 1)
    func = te.create_prim_func([grad, data, gradient])
    with target:
        mod = gpu_pipeline(target)(dlight.default_schedule(target)(IRModule({"main": func})))
    assert len(emit_kernels(mod, target).text) < 100_000
