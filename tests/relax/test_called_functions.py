"""Functions that a graph calls by ``call_tir``: what they return, and graphs as code in C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright import relax
from tilewright.relax import op
from tilewright.script import from_source
from tilewright.tir import Var

TARGETS = pytest.mark.parametrize("target", ["llvm", "c"])
X = np.arange(4, dtype="float32")

PROGRAM = """
@I.ir_module
class Module:
    @T.prim_func
    def add(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")) -> T.{dtype}:
        for i in range(4):
            with T.sblock("add"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] + T.float32(1)
        return T.{dtype}({value})

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        y = R.call_tir(cls.add, (x,), R.Tensor((4,), "float32"))
        z = R.call_tir(cls.add, (y,), R.Tensor((4,), "float32"))
        return z
"""


@TARGETS
@pytest.mark.parametrize(("dtype", "value"), [("int32", 7), ("int32", 0), ("float16", -1)])
def test_a_number_that_the_function_returns_is_ignored(dtype: str, value: int, target: str) -> None:
    # As TVM 0.27 does: it is neither a result nor a status.
    mod = from_source(PROGRAM.format(dtype=dtype, value=value))
    vm = relax.VirtualMachine(relax.build(mod, target), tilewright.cpu())
    np.testing.assert_array_equal(vm["main"](X).numpy(), X + 2)
    found: Any = relax.interpreter.run(mod, X)
    np.testing.assert_array_equal(found, X + 2)


WEIGHT = np.random.default_rng(0).normal(size=(8, 8)).astype("float32")
GRAPHS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "size": ((Var("n"), 8), "float32", lambda x: op.nn.softmax(op.matmul(x, relax.const(WEIGHT)))),
    "results": ((Var("n"), 8), "float32", lambda x: op.split(op.nn.relu(x), 2, 1)),
    "views": ((4, 8), "float32", lambda x: op.reshape(op.nn.relu(x), (2, 16))),
    "int8": ((4, 8), "int8", lambda x: op.astype(op.add(x, x), "float16")),
    "bfloat16": ((4, 8), "bfloat16", lambda x: op.matmul(x, op.permute_dims(x))),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_have_code_in_c(name: str) -> None:
    shape, dtype, make = GRAPHS[name]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(make(x)))
    mod = builder.get()
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    array = np.random.default_rng(1).normal(size=(4, 8), scale=4).astype(kind)
    results = []
    for target in ("llvm", "c"):
        found = relax.VirtualMachine(relax.build(mod, target), tilewright.cpu())["main"](array)
        results.append([each.numpy() for each in (found if isinstance(found, tuple) else (found,))])
    for a, b in zip(*results):
        np.testing.assert_allclose(a.astype("float32"), b.astype("float32"), rtol=1e-5, atol=1e-6)
