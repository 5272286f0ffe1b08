"""``@R.macro``: bindings that are written where they are called."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relax.helpers import random
from tilewright import script
from tilewright.ir import IRModule
from tilewright.relax import DataflowVar, interpreter
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import ParseError


@R.macro
def cubed(v):
    z = R.multiply(v, v)
    return R.multiply(z, v)


@R.macro(hygienic=False)
def plus(i=1.0):
    number = R.const(i, "float32")
    return R.add(x, number)  # noqa: F821  the caller's


@R.macro
def both(v):
    w = cubed(v)
    return R.negative(w)


@R.macro
def endless(v):
    return endless(v)


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = both(x)
            b = plus(3.0)
            z = R.add(R.add(a, b), plus())
            R.output(z)
        return z


def test_macros_are_written_where_they_are_called() -> None:
    x = random(2)
    expected = -(x**3) + (x + 3) + (x + 1)
    np.testing.assert_allclose(interpreter.run(Module, x), expected, rtol=1e-5)
    assert script.parse(Module.script()).script() == Module.script()
    # Only the function's own `z` leaves the block.
    kinds = [type(binding.var) for binding in Module["main"].bindings]
    assert kinds.count(DataflowVar) == len(kinds) - 1


@R.macro
def with_itself(v):
    return R.exp(v), v


def test_macros_give_tuples() -> None:
    @R.function
    def unpacked(x: R.Tensor((2,), "float32")):
        a, b = with_itself(x)
        c, d = R.tuple(R.add(a, b), b)
        return R.add(c, d)

    @R.function
    def whole(x: R.Tensor((2,), "float32")):
        both = with_itself(x)
        return R.add(R.add(both[0], both[1]), x)

    x = random(2)
    for function in (unpacked, whole):
        made = interpreter.run(IRModule({"main": function}), x)
        np.testing.assert_allclose(made, np.exp(x) + 2 * x, rtol=1e-5)
    with pytest.raises(ParseError, match="3 names for a value of another number"):

        @R.function
        def too_few(x: R.Tensor((2,), "float32")):
            _a, _b, c = with_itself(x)
            return c


def test_what_macros_may_not_do() -> None:
    with pytest.raises(ParseError, match="more than 50 deep"):

        @R.function
        def recursive(x: R.Tensor((2,), "float32")):
            y = endless(x)
            return y

    @R.macro
    def nothing(v):
        w = R.exp(v)  # noqa: F841

    with pytest.raises(ParseError, match="ends with return"):

        @R.function
        def empty(x: R.Tensor((2,), "float32")):
            y = nothing(x)
            return y

    with pytest.raises(ParseError, match="needs the argument 'v'"):

        @R.function
        def short(x: R.Tensor((2,), "float32")):
            y = cubed()
            return y
