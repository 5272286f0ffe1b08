"""Tensor functions are replaced by others that take their operands in another layout."""

# ruff: noqa: F821
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import agree, random, values
from tilewright import relax
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relax import transform as t
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.support.errors import LowerError, ScheduleError, VerifyError


@T.prim_func
def twice(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.block("y"):
            v, w = T.axis.remap("SS", [i, j])
            y[v, w] = x[v, w] * 2.0


@I.ir_module
class Before:
    @T.prim_func
    def double(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("y"):
                v, w = T.axis.remap("SS", [i, j])
                y[v, w] = x[v, w] + x[v, w]

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
            b = R.call_tir(cls.double, (a,), out_sinfo=R.Tensor((4, 8), "float32"))
            R.output(b)
        return b


@I.ir_module
class After:
    @T.prim_func
    def double(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("y"):
                v, w = T.axis.remap("SS", [i, j])
                y[v, w] = x[v, w] + x[v, w]

    @T.prim_func
    def double_1(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(8, 4):
            with T.block("y"):
                v, w = T.axis.remap("SS", [i, j])
                y[v, w] = x[v, w] * 2.0

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.layout_transform(x, index_map="lambda i, j: (j, i)")
            b = R.call_tir(cls.double_1, (a,), out_sinfo=R.Tensor((8, 4), "float32"))
            c = R.call_tir(cls.double_1, (b,), out_sinfo=R.Tensor((8, 4), "float32"))
            d = R.layout_transform(c, index_map="lambda axis0, axis1: (axis1, axis0)")
            R.output(d)
        return d


SWAP = [lambda i, j: (j, i)] * 2


def test_implementations_are_replaced() -> None:
    change = t.AlterOpImpl({"double": twice}, {"double": SWAP})
    made = change(Before)
    again = t.AlterOpImpl({"other": twice}, {})(made)
    assert again is made
    assert_structural_equal(made, After)
    agree(Before, made, random(4, 8))
    result = relax.build(made, "llvm")["main"](random(4, 8)).numpy()
    np.testing.assert_array_equal(result, random(4, 8) * 4)


def test_the_attribute_is_the_operator() -> None:
    named = Before.with_function("double", Before["double"].with_attr("operator_name", "my.op"))
    same = t.AlterOpImpl({"double": twice}, {"double": SWAP})(named)
    assert same is named
    made = t.AlterOpImpl({"my.op": Before["double"]}, {})(named)
    assert values(made) == ["op", "op"]
    agree(named, made, random(4, 8))


@pytest.mark.parametrize(
    ("transforms", "error", "message"),
    [
        ([None, None], LowerError, "extent of x is 8, not 4"),
        ([lambda i, j: (j, i // 3, i % 3)] * 2, (ScheduleError, VerifyError), "padding"),
        ([lambda i: (i,)] * 2, VerifyError, "must have 1 dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(transforms: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        t.AlterOpImpl({"double": twice}, {"double": transforms})(Before)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(VerifyError, match="double must be a PrimFunc, got int"):
        t.AlterOpImpl({"double": 3}, {})  # type: ignore[dict-item]
    with pytest.raises(VerifyError, match=r"no implementation of 'duble'.*'double'"):
        t.AlterOpImpl({"double": twice}, {"duble": SWAP})
    with pytest.raises(VerifyError, match="has 2 buffers, got 1 transforms"):
        t.AlterOpImpl({"double": twice}, {"double": SWAP[:1]})
    with pytest.raises(VerifyError, match="no axis separators to set"):
        t.AlterOpImpl({"double": twice}, {"double": SWAP}, {"double": [1]})
    half = IRModule({"main": twice})
    assert t.AlterOpImpl({"double": twice}, {})(half) is half
