"""Every pass keeps modules well formed, readable and what they mean, whatever is in them."""

# ruff: noqa: F821
from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.everyday import few
from tests.relax.helpers import agree, random
from tilewright import relax, runtime, script
from tilewright.ir import IRModule, Pass, assert_structural_equal
from tilewright.relax import transform as t
from tilewright.relax.dpl import is_op, wildcard
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.testing.graphs.check import whole_case
from tilewright.testing.graphs.draw import draw_case
from tilewright.testing.graphs.graph import module_of

# What passes are made with, where they need anything.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "AttachExternModules": ([],),
    "AlterOpImpl": ({}, {}),
    "BindParams": ("main", {}),
    "BindSymbolicVars": ({},),
    "ConvertLayout": ({},),
    "FuseOpsByPattern": ([("mine.exp", is_op("relax.exp")(wildcard()))],),
    "UpdateParamStructInfo": (lambda param: None,),
    "UpdateParamType": (lambda param: None,),
}
ELSEWHERE = {
    "CallTIRRewrite": "takes calls of tensor functions only",
    "DataflowBlockPass": "made of a function",
    "DispatchByHash": "tests/meta_schedule/test_dispatch_by_hash.py",
    "FlattenTupleParams": "takes other parameters",
    "FunctionPass": "made of a function",
    "Gradient": "gives other functions",
    "LowerGraph": "takes what CallTIRRewrite makes",
    "StaticPlanBlockMemory": "takes what CallTIRRewrite makes",
}
PASSES = sorted(
    name
    for name in t.__all__
    if not name.startswith("MetaSchedule")
    and inspect.isclass(getattr(t, name))
    and issubclass(getattr(t, name), Pass)
)


@I.ir_module
class Effects:
    """Global functions, effects, private functions, sizes known when called."""

    @R.function
    def inner(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m", 4), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, R.exp(y))
            R.output(b)
        return b

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32"), k: R.Prim("int64", "k"), s: R.Shape(["p"])):
        with R.dataflow():
            a = R.call_dps_packed(
                "test.any", (x, R.prim_value(n + k)), out_sinfo=R.Tensor((n, 4), "float32")
            )
            b = R.exp(a)
            c = R.exp(a)
            d = R.add(b, c)
            R.output(d)
        R.call_packed("test.nothing", d, sinfo_args=R.Tuple())
        e = R.call(cls.inner, (d, x), out_sinfo=R.Tensor((n, 4), "float32"))
        f = R.reshape(e, s)
        g = R.shape_to_tensor(s)
        return (f, g)


@I.ir_module
class Functions:
    """Functions inside of functions, and those that are passed."""

    @R.function
    def twice(
        f: R.Callable((R.Tensor((4, 4), "float32"),), R.Tensor((4, 4), "float32")),
        x: R.Tensor((4, 4), "float32"),
    ):
        y = R.call(f, (x,))
        z = R.call(f, (y,))
        return z

    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        b = R.exp(w)

        @R.function
        def product(y: R.Tensor((4, 4), "float32")):
            z = R.matmul(y, b)
            return z

        @R.function
        def scale(y: R.Tensor((4, 4), "float32")):
            z = R.multiply(y, R.const(0.5, "float32"))
            return z

        u = R.call(product, (x,))
        v = R.call(cls.twice, (scale, u), out_sinfo=R.Tensor((4, 4), "float32"))
        return v


@I.ir_module
class Kernels:
    """Tensor functions, one of them in place, tuples, and a cast that names an extent."""

    @T.prim_func
    def double(x: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("x"):
                v = T.axis.spatial(4, i)
                x[v] = x[v] * 2.0

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor(("n",), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.call_tir_inplace(
                cls.double, (a,), inplace_indices=[0], out_sinfo=R.Tensor((4,), "float32")
            )
            c = R.split(b, 2)
            d = R.match_cast(y, R.Tensor(("m",), "float32"))
            e = R.concat((c[1], d, c[0]))
            R.output(e)
        return e


@I.ir_module
class Branches:
    """Branches in each other, which use what is around them, and give that or tuples."""

    @R.function
    def pick(c: R.Tensor((), "bool"), y: R.Tensor(("m", 4), "float32")):
        if c:
            z = R.exp(y)
        else:
            z = y
        return z

    @R.function
    def main(
        c: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")
    ):
        with R.dataflow():
            lv = R.matmul(x, w)
            t = R.permute_dims(w)
            b = R.exp(lv)
            b2 = R.exp(lv)
            d = R.less(R.sum(b), R.const(0.0, "float32"))
            R.output(b, b2, d, t)
        if c:
            with R.dataflow():
                e = R.matmul(b, t)
                f = R.nn.relu(e)
                g = R.matmul(b, w)
                h = R.add(R.exp(R.tanh(g)), R.tanh(g))
                R.output(f, h)
            if d:
                r = (f, b2)
            else:
                if R.const(True, "bool"):
                    k = R.add(f, h)
                else:
                    k = R.nn.relu(f)
                r = (k, h)
        else:
            r = (b2, b)
        s = R.call(cls.pick, (d, r[0]), out_sinfo=R.Tensor((n, 4), "float32"))
        u = R.call(cls.pick, (c, s), out_sinfo=R.Tensor((n, 4), "float32"))
        v = R.multiply(u, r[1])
        return (v, s)


CASES = {
    "a branch": (Branches, np.array(True), random(3, 4), random(4, 4, seed=1) / 4),
    "the other branch": (Branches, np.array(False), random(3, 4), random(4, 4, seed=1) / 4),
    "effects": (Effects, random(3, 4), np.int64(2), (12,)),
    "functions": (Functions, random(4, 4), random(4, 4, seed=1)),
    "kernels": (Kernels, random(4), random(3)),
}


@pytest.fixture(autouse=True)
def functions() -> Iterator[None]:
    def fill(x: Any, k: int, out: Any) -> None:
        out.numpy()[...] = x.numpy() + k

    tilewright.register_global_func("test.any", fill)
    tilewright.register_global_func("test.nothing", lambda x: None)
    yield
    for name in ("test.any", "test.nothing"):
        runtime.remove_global_func(name)


@few("case", CASES, every=2)
@pytest.mark.parametrize("name", [name for name in PASSES if name not in ELSEWHERE])
def test_a_pass_keeps_what_a_module_means(name: str, case: str) -> None:
    mod, *inputs = CASES[case]
    assert isinstance(mod, IRModule)
    made = getattr(t, name)(*ARGUMENTS.get(name, ()))(mod)
    relax.verify_graph(made)
    assert_structural_equal(script.parse(made.script(), {"metadata": R.metadata_of(made)}), made)
    agree(mod, made, *inputs, tolerance=2e-2 if name == "ToMixedPrecision" else 1e-5)


@cache
def drawn(name: str) -> tuple[IRModule, list[np.ndarray], Any]:
    """A random graph with inputs, and what it makes of them."""
    case = whole_case(draw_case(name))
    mod = module_of(case.inputs, case.constants, case.steps, case.outputs)
    arrays = [np.asarray(case.given[0][value]) for value in case.inputs]
    return mod, arrays, relax.interpreter.run(mod, *arrays)


@pytest.mark.parametrize("graph", ["partitions-2", "partitions-6"])
@few("name", [name for name in PASSES if name not in ELSEWHERE], every=3)
def test_a_pass_keeps_what_a_random_graph_means(name: str, graph: str) -> None:
    mod, inputs, want = drawn(graph)
    made = getattr(t, name)(*ARGUMENTS.get(name, ()))(mod)
    relax.verify_graph(made)
    have = relax.interpreter.run(made, *inputs)
    tolerance = 2e-2 if name == "ToMixedPrecision" else 1e-5
    several = isinstance(want, tuple)
    for a, b in zip(want if several else (want,), have if several else (have,)):
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES)
def test_any_module_is_compiled(case: str) -> None:
    mod, *inputs = CASES[case]
    found = relax.as_numpy(relax.build(mod, "llvm")["main"](*inputs))
    want = relax.interpreter.run(mod, *inputs)
    several = isinstance(want, tuple)
    for a, b in zip(want if several else (want,), found if several else (found,)):
        np.testing.assert_allclose(b, a, rtol=1e-4)


def test_passes_are_named_once() -> None:
    assert not set(ELSEWHERE) - set(PASSES)
    assert not set(ARGUMENTS) - set(PASSES)
