"""What compiled graphs take and give: nested results, read-only arrays, calls of other graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, random, symbol, tensor
from tilewright import relax, script
from tilewright.relax import interpreter, op
from tilewright.support.errors import LowerError, RunError, VerifyError

N, M = symbol("n"), symbol("m")
HEADER = "from tilewright.script import ir as I, relax as R, tir as T\n"


def same(made: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert isinstance(made, tuple) and len(made) == len(expected)
        for a, b in zip(made, expected):
            same(a, b)
    else:
        np.testing.assert_allclose(np.asarray(made), expected, rtol=1e-5, atol=1e-6)


def test_results_are_nested_as_written() -> None:
    mod = graph(
        lambda x: relax.Tuple((op.exp(x), relax.Tuple((x, relax.Tuple((op.sin(x),)))), x)),
        tensor((N,)),
    )
    x = random(4)
    expected = (np.exp(x), (x, (np.sin(x),)), x)
    same(relax.build(mod)(x), expected)
    same(interpreter.run(mod, x), expected)


@pytest.mark.parametrize("how", [1, ()])
def test_split_into_one(how: Any) -> None:
    mod = graph(lambda x: op.split(x, how, 1), tensor((N, 4)))
    x = random(3, 4)
    same(relax.build(mod)(x), (x,))
    same(interpreter.run(mod, x), (x,))
    mod = graph(lambda x: op.nn.relu(op.split(x, how, 1)[0]), tensor((N, 4)))
    same(relax.build(mod)(x), np.maximum(x, 0))


def test_what_is_only_read_may_be_read_only() -> None:
    executable = relax.build(graph(lambda x, w: op.nn.relu(op.matmul(x, w)), tensor((N, 4)),
                                   tensor((4, 3))))  # fmt: skip
    x, w = random(2, 4), random(4, 3, seed=1)
    x.flags.writeable = w.flags.writeable = False
    same(executable(x, w), np.maximum(x @ w, 0))
    out = np.zeros((2, 3), "float32")
    out.flags.writeable = False
    with pytest.raises(ValueError, match="the function writes to it, but the array is read-only"):
        executable["main"].run_into([x, w], [out])


def test_inputs_that_a_kernel_writes_are_not_taken_read_only() -> None:
    mod = script.parse(
        HEADER
        + """
@I.ir_module
class Module:
    @T.prim_func
    def bump(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (4,), "float32")
        B = T.match_buffer(b, (4,), "float32")
        for i in range(4):
            B[i] = A[i]
            A[i] = A[i] + 1.0

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        lv = R.call_tir(cls.bump, (x,), out_sinfo=R.Tensor((4,), "float32"))
        gv = R.add(lv, y)
        return gv
"""
    )
    executable = relax.build(mod)
    x, y = random(4), random(4, seed=1)
    y.flags.writeable = False
    same(executable(x.copy(), y), x + y)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="argument #0 'x': the function writes to it"):
        executable(x, y)


CALLS = (
    HEADER
    + """
@I.ir_module
class Module:
    @R.function
    def twice(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            lv = R.add(x, y)
            gv = R.exp(lv)
            R.output(gv)
        return gv

    @R.function
    def main(a: R.Tensor(("m", 4), "float32"), b: R.Tensor(("k", 4), "float32")):
        with R.dataflow():
            lv = R.call(cls.twice, (a, b), out_sinfo=R.Tensor((m, 4), "float32"))
            lv1 = R.call(cls.twice, (lv, b), out_sinfo=R.Tensor((m, 4), "float32"))
            gv = R.multiply(lv, lv1)
            R.output(gv)
        return gv
"""
)


def test_graphs_call_each_other() -> None:
    mod = script.parse(CALLS)
    executable = relax.build(mod)
    a, b = random(3, 4), random(3, 4, seed=1)
    once = np.exp(a + b)
    same(executable(a, b), once * np.exp(once + b))
    same(executable["twice"](a, b), once)
    same(interpreter.run(mod, a, b), once * np.exp(once + b))
    with pytest.raises((RuntimeError, RunError), match=r"m|k"):
        executable(a, random(2, 4))
    with pytest.raises(RunError):
        interpreter.run(mod, a, random(2, 4))


def test_tuples_and_scalars_go_through_calls() -> None:
    mod = script.parse(
        HEADER
        + """
@I.ir_module
class Module:
    @R.function
    def both(x: R.Tensor(("n",), "float32")):
        return (x, R.const(2.0, "float32"))

    @R.function
    def main(a: R.Tensor(("m",), "float32")):
        lv = R.call(cls.both, (a,), out_sinfo=R.Tuple(R.Tensor((m,), "float32"),
                                                     R.Tensor((), "float32")))
        gv = R.multiply(lv[0], lv[1])
        return gv
"""
    )
    a = random(5)
    same(relax.build(mod)(a), a * 2)


def test_graphs_that_call_themselves_are_refused() -> None:
    mod = script.parse(
        HEADER
        + """
@I.ir_module
class Module:
    @R.function
    def main(a: R.Tensor((4,), "float32")):
        gv = R.call(cls.other, (a,), out_sinfo=R.Tensor((4,), "float32"))
        return gv

    @R.function
    def other(a: R.Tensor((4,), "float32")):
        gv = R.call(cls.main, (a,), out_sinfo=R.Tensor((4,), "float32"))
        return gv
"""
    )
    with pytest.raises(VerifyError, match="'main' calls itself"):
        relax.build(mod)


KERNEL = (
    HEADER
    + """
@I.ir_module
class Module:
    @T.prim_func
    def add(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        C = T.match_buffer(c, (n,), "float32")
        for i in range(n):
            C[i] = A[i] + B[i]

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
        gv = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((n,), "float32"))
        return gv
"""
)


def test_shapes_are_checked_where_kernels_are_called() -> None:
    executable = relax.build(script.parse(KERNEL))
    same(executable(random(3), random(3)), random(3) * 2)
    with pytest.raises(RuntimeError, match="add: extent 0 of B must be n = 3, not m = 2"):
        executable(random(3), random(2))
    with pytest.raises(LowerError, match=r"extent of B is n, not \(n \+ 1\)"):
        relax.build(script.parse(KERNEL.replace('R.Tensor(("m",)', 'R.Tensor(("n + 1",)')))
