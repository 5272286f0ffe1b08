"""``ExpandTupleArguments`` and ``RewriteDataflowReshape``."""

from __future__ import annotations

import numpy as np

from tests.relax.helpers import random
from tilewright.relax import interpreter, transform
from tilewright.script import ir as I
from tilewright.script import relax as R


@I.ir_module
class Pairs:
    @R.function(private=True)
    def inner(
        t: R.Tuple(R.Tensor((2,), "float32"), R.Tuple(R.Tensor((2,), "float32"))),
        y: R.Tensor((2,), "float32"),
    ):
        a = t[0]
        b = t[1]
        c = b[0]
        d = R.add(a, R.multiply(c, y))
        return d

    @R.function
    def main(
        x: R.Tensor((2,), "float32"),
        t: R.Tuple(R.Tensor((2,), "float32"), R.Tuple(R.Tensor((2,), "float32"))),
    ):
        a = Pairs.inner((x, (x,)), x)
        b = Pairs.inner(t, a)
        return b


def test_items_of_tuples_are_passed_one_by_one() -> None:
    made = transform.ExpandTupleArguments()(Pairs)
    assert [param.name for param in made["inner"].params] == ["t_0", "t_1_0", "y"]
    assert [param.name for param in made["main"].params] == ["x", "t"]
    x, y, z = (random(2, seed=n) for n in range(3))
    expected = interpreter.run(Pairs, x, (y, (z,)))
    np.testing.assert_array_equal(interpreter.run(made, x, (y, (z,))), expected)
    assert transform.ExpandTupleArguments()(made) is made


@I.ir_module
class Shapes:
    @R.function(private=True)
    def inner(s: R.Shape(["n", 2]), x: R.Tensor(("n", 2), "float32")):
        y = R.reshape(x, s)
        return y

    @R.function
    def main(x: R.Tensor((3, 2), "float32")):
        y = Shapes.inner(R.shape([3, 2]), x)
        return y


def test_shapes_stay() -> None:
    assert transform.ExpandTupleArguments()(Shapes) is Shapes


@I.ir_module
class Views:
    @R.function
    def main(x: R.Tensor((2, 6), "float32")):
        with R.dataflow():
            a = R.reshape(x, (3, 4))
            b = R.exp(a)
            c = R.expand_dims(b, 0)
            d = R.permute_dims(c)
            e = R.reshape(d, (12,))
            R.output(e)
        return e


def test_calls_that_reshape_become_reshapes() -> None:
    legal = transform.LegalizeOps()(Views)
    made = transform.RewriteDataflowReshape()(legal)
    names = [b.value.op_name for b in made["main"].bindings]
    # What leaves the block stays, as what computes or moves elements does.
    assert names == ["reshape", "call_tir", "reshape", "call_tir", "call_tir"]
    x = random(2, 6)
    np.testing.assert_allclose(
        interpreter.run(made, x), np.exp(x.reshape(3, 4)).T.ravel(), rtol=1e-6
    )
    assert transform.RewriteDataflowReshape()(made) is made
