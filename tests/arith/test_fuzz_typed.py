"""Random expressions of all types: simplified means the same value in the interpreter."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arith.typed import SCALARS, VECTORS, TypedMaker, folded, same_values, values
from tilewright.arith import Analyzer
from tilewright.ir import (
    GE,
    TRUE,
    Broadcast,
    FloatImm,
    IntImm,
    Select,
    Var,
    add,
    call,
    cast,
    const,
    expr_equal,
    maximum,
    minimum,
    truncmod,
)

ROUNDS = 10 * int(os.environ.get("TILEWRIGHT_FUZZ_SCALE", "1"))
seeds = st.integers(0, 10**9)


@pytest.mark.parametrize("family", [SCALARS, VECTORS], ids=["scalars", "vectors"])
@given(seed=seeds)
def test_simplified_and_folded_are_equal(family, seed):
    for step in range(ROUNDS):
        maker = TypedMaker(seed + step)
        expr = maker.expr(maker.random.choice(family), maker.random.randint(1, 4))
        made = [Analyzer().simplify(expr), folded(expr)]
        assert all(other.dtype == expr.dtype for other in made), (expr, made)
        expected, *found = values(maker, [expr, *made])
        for other, result in zip(made, found):
            assert same_values(expected, result), (expr, other, seed + step)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64", "float32"])
def test_numbers_are_no_truth_values(dtype):
    condition = Var("p", "bool")
    for chosen in ((1, 0), (0, 1)):
        expr = Select(condition, *(const(value, dtype) for value in chosen))
        assert Analyzer().simplify(expr).dtype == dtype
    assert Analyzer().simplify(Select(condition, TRUE, const(False))) is condition


def test_constants_are_rounded_by_their_type():
    assert cast(const(0.1, "float16"), "float64").value == 0.0999755859375
    assert cast(const(0.1, "bfloat16"), "float32").value == 0.10009765625
    assert expr_equal(cast(const(2.0, "bfloat16"), "float32"), const(2.0, "float32"))
    # 0.1 + 0.4 is 0.5 in real numbers, but not of the float32 numbers next to them.
    assert not isinstance(add(const(0.1, "float32"), const(0.4, "float32")), FloatImm)


def test_extrema_of_constants_are_those_of_the_nodes():
    zero, negative, nan = (const(value, "float32") for value in (0.0, -0.0, float("nan")))
    for made in (minimum, maximum):
        assert made(zero, negative) is zero
        assert made(negative, zero) is negative
        assert made(nan, zero) is nan
        assert made(zero, nan) is nan


def test_vectors_of_truth_values_are_stored():
    maker = TypedMaker(0)
    found = values(maker, [Broadcast(maker.variables["bool"][0], 4)])
    assert found[0].any() and not found[0].all()


def test_narrow_magnitudes_wrap():
    narrow = Var("x", "int8")
    assert not Analyzer().can_prove(GE(cast(call("abs", narrow), "int32"), const(0, "int32")))
    assert Analyzer().can_prove(GE(call("abs", Var("y", "int32")), const(0, "int32")))
    limited = cast(call("abs", truncmod(narrow, const(9, "int8"))), "int32")
    assert Analyzer().const_int_bound(limited).max == 8


def test_popcount_counts_the_bits_of_negative_numbers():
    maker = TypedMaker(0)
    for bits, dtype in ((8, "int8"), (64, "int64")):
        expr = call("popcount", IntImm(dtype, -1))
        assert (values(maker, [expr])[0] == bits).all()


def test_leading_zeros_depend_on_the_width():
    maker = TypedMaker(0)
    for number, dtype, zeros in ((1, "int8", 7), (0, "int64", 64), (-1, "int32", 0)):
        expr = call("clz", IntImm(dtype, number))
        assert (values(maker, [expr])[0] == zeros).all()
