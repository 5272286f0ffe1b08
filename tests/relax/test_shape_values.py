"""Shapes and scalars as values: parameters, results of computations, shapes of tensors."""

# ruff: noqa: F821, F841
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random, symbol, tensor, values
from tilewright import relax, script
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relax import interpreter, op
from tilewright.relax import transform as t
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import BuildError, RunError, VerifyError


def everywhere(mod: IRModule, *inputs: Any) -> list[Any]:
    """Results of the interpreter, of the compiled graph and of its kernels one by one."""
    assert_structural_equal(script.parse(mod.script()), mod)
    executable = relax.build(mod, "llvm")
    machine = relax.VirtualMachine(executable)
    found = [interpreter.run(mod, *inputs), executable["main"](*inputs)]
    machine.set_instrument(lambda *_: relax.VMInstrumentReturnKind.NO_OP)
    found.append(machine["main"](*inputs))
    return [relax.as_numpy(item) for item in found]


@I.ir_module
class Reshape:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["m", "k"])):
        with R.dataflow():
            y = R.reshape(x, s)
            z = R.shape_to_tensor(s)
            R.output(y, z)
        return (y, z)


def test_shapes_are_parameters() -> None:
    x = random(6)
    for y, z in everywhere(Reshape, x, (2, 3)):
        np.testing.assert_array_equal(y, x.reshape(2, 3))
        np.testing.assert_array_equal(z, [2, 3])
        assert z.dtype == np.int64
    run = relax.build(Reshape, "llvm")["main"]
    with pytest.raises(RuntimeError, match=r"numbers of elements differ: n = 6 .* = 8"):
        run(x, (2, 4))
    with pytest.raises((RunError, RuntimeError), match="negative"):
        run(x, (-2, -3))
    with pytest.raises(RunError, match="'s' is a tuple of 2 items"):
        run(x, (2, 3, 1))


def test_shapes_of_unknown_extents_are_cast() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(s: R.Shape(ndim=2), x: R.Tensor(("n",), "float32")):
            r = R.match_cast(s, R.Shape(["m", "k"]))
            y = R.broadcast_to(R.sum(x), R.shape([m, k]))
            return y

    x = random(3)
    for y in everywhere(Module, (2, 1), x):
        np.testing.assert_allclose(y, np.full((2, 1), x.sum()), rtol=1e-5)


def test_shapes_are_read_from_data() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), i: R.Tensor((2,), "int64")):
            with R.dataflow():
                e = R.exp(x)
                j = R.add(i, i)
                s = R.tensor_to_shape(j)
                r = R.match_cast(s, R.Shape(["m", "k"]))
                y = R.reshape(e, R.shape([m, k]))
                u = R.sum(R.tanh(y), axis=[0])
                v = R.sum(R.exp(u))
                R.output(v)
            return v

    x = random(24)
    for made in everywhere(Module, x, np.array([1, 6])):
        want = np.exp(np.tanh(np.exp(x).reshape(2, 12)).sum(0)).sum()
        np.testing.assert_allclose(made, want, rtol=1e-4)
    run = relax.build(Module, "llvm")["main"]
    for wrong in ([1, 5], [-1, -6]):
        with pytest.raises(Exception, match=r"24|negative"):
            run(x, np.array(wrong))
    with pytest.raises(RunError):
        interpreter.run(Module, x, np.array([1, 5]))


def test_what_is_read_is_checked() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(i: R.Tensor((2,), "int64"), x: R.Tensor(("n",), "float32")):
            s = R.tensor_to_shape(i)
            r = R.match_cast(s, R.Shape(["n", 3]))
            y = R.broadcast_to(R.expand_dims(x, 1), R.shape([n, 3]))
            return y

    x = random(2)
    for made in everywhere(Module, np.array([2, 3]), x):
        np.testing.assert_array_equal(made, np.repeat(x[:, None], 3, 1))
    run = relax.build(Module, "llvm")["main"]
    for wrong in ([2, 4], [3, 3]):
        with pytest.raises(RuntimeError, match="match_cast"):
            run(np.array(wrong), x)
        with pytest.raises(RunError, match="got the shape"):
            interpreter.run(Module, np.array(wrong), x)


def test_results_may_not_depend_on_data() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), i: R.Tensor((1,), "int64")):
            s = R.tensor_to_shape(i)
            r = R.match_cast(s, R.Shape(["m"]))
            y = R.broadcast_to(R.sum(x), R.shape([m]))
            return y

    np.testing.assert_allclose(
        interpreter.run(Module, random(3), np.array([2])), [random(3).sum()] * 2, rtol=1e-5
    )
    with pytest.raises(BuildError, match="the extent m is not that of any parameter"):
        relax.build(Module, "llvm")


def test_scalars_are_computed_with() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "int64"), k: R.Prim("int64", "k"), b: R.Prim("int64")):
            with R.dataflow():
                y = R.multiply(x, k)
                z = R.add(y, R.prim_value(k * n))
                R.output(z)
            return z

    x = np.arange(3)
    for made in everywhere(Module, x, 5, 7):
        np.testing.assert_array_equal(made, x * 5 + 15)


def test_scalars_without_names_get_one() -> None:
    var = relax.Var("k", relax.PrimStructInfo("int64"))
    named = t.FlattenTupleParams()(
        IRModule({"main": relax.Function((var,), relax.SeqExpr((), relax.const(1)))})
    )
    assert repr(named["main"].params[0].struct_info.value) == "k"


def test_arithmetic_on_scalars_gives_scalars() -> None:
    n = symbol("n")
    a, b = relax.Var("a", relax.PrimStructInfo("int64", n)), relax.PrimValue(n + 1)
    for made, text in (
        (op.add(a, b), "n + 1"),
        (op.multiply(a, 2), "n * 2"),
        (op.floor_divide(a, 2), "n // 2"),
        (op.floor_mod(b, n), "% n"),
        (op.maximum(a, 3), "max"),
        (op.negative(a), "n"),
        (a - b, "n"),
        (op.less(a, b), "<"),
        (op.logical_and(op.less(a, b), op.equal(a, 2)), "and"),
    ):
        assert isinstance(made, relax.PrimValue) and text in repr(made), (made, text)
    x = relax.Var("x", tensor((4,)))
    assert isinstance(op.add(x, relax.PrimValue(2.0)).args[1], relax.Constant)
    with pytest.raises(VerifyError, match="float32 and int64"):
        op.add(x, a)
    with pytest.raises(VerifyError, match="must be int64 and have a name"):
        op.add(x, relax.Var("k", relax.PrimStructInfo("float32")))


def test_shape_of_is_the_shape() -> None:
    n = symbol("n")
    assert op.shape_of(relax.Var("x", tensor((n, 4)))).values[0] is n
    with pytest.raises(VerifyError, match="has no known shape"):
        op.shape_of(relax.Var("x", relax.TensorStructInfo(None, "float32")))
    for info in (tensor((2,), "int32"), tensor((n,), "int64"), tensor((2, 2), "int64")):
        with pytest.raises(VerifyError, match="int64 numbers along one axis of known extent"):
            op.tensor_to_shape(relax.Var("x", info))
    folded = t.FoldConstant()(t.LegalizeOps()(Reshape))
    assert "shape_to_tensor" in values(folded)
