"""Constructors of expressions refuse what no program can mean."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import script, tir
from tilewright.ir import (
    OPS,
    Broadcast,
    Call,
    Cast,
    FloatImm,
    GlobalVar,
    IntImm,
    Ramp,
    Shuffle,
    StringImm,
    Var,
    cast,
    const,
    dtypes,
    structural_equal,
)
from tilewright.support.errors import ParseError, VerifyError

INDEX = Var("i")
VECTOR = Ramp(INDEX, IntImm("int64", 1), 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IntImm("int8", 300), "the constant 300 does not fit int8"),
        (lambda: IntImm("uint32", -1), "does not fit uint32"),
        (lambda: const(2, "bool"), "the constant 2 is no bool"),
        (lambda: const(0.5, "bool"), "the constant 0.5 is no bool"),
        (lambda: IntImm("int32", 1.5), "holds an integer, got 1.5"),
        (lambda: IntImm("int32", "x"), "holds an integer, got 'x'"),
        (lambda: IntImm("int64", "x"), "holds an integer, got 'x'"),
        (lambda: IntImm("float32", 1), "of an integer dtype"),
        (lambda: IntImm("int32x4", 1), "of an integer dtype"),
        (lambda: IntImm("int99", 1), "unknown dtype 'int99'"),
        (lambda: IntImm(None, 1), "a dtype is text"),
        (lambda: IntImm(["int8"], 1), "a dtype is text"),
        (lambda: FloatImm(None, 1.0), "a dtype is text"),
        (lambda: Var("x", "int99"), "unknown dtype 'int99'; did you mean"),
        (lambda: Var("x", "float32x1"), "unknown dtype 'float32x1'"),
        (lambda: Var("x", "float32x04"), "unknown dtype 'float32x04'"),
        (lambda: Var("x", "float32x1000000"), "unknown dtype 'float32x1000000'"),
        (lambda: Var("x", 3), "a dtype is text"),
        (lambda: Var(3), "the name of a variable is text, got 3"),
        (lambda: GlobalVar(3), "the name of a function is text, got 3"),
        (
            lambda: Call.of_fields(OPS.get("exp"), (FloatImm("float32", 1.0),), "float99"),
            "unknown dtype 'float99'",
        ),
        (lambda: Call.of_fields(OPS.get("exp"), (FloatImm("float32", 1.0),), 3), "a dtype is text"),
        (
            lambda: Call.of_fields("exp", (FloatImm("float32", 1.0),), "float32"),
            "names an operator of the table",
        ),
        (lambda: Ramp(INDEX, IntImm("int64", 1), 10**9), "a positive number up to 999999"),
        (lambda: Broadcast(INDEX, 10**6), "a positive number up to 999999"),
        (lambda: Broadcast(VECTOR, 4), "the lanes of a vector are single values, got 4 of int64x4"),
        (lambda: FloatImm("int32", 1.0), "of a floating-point dtype, got 'int32'"),
        (lambda: FloatImm("float32x4", 1.0), "of a floating-point dtype"),
        (lambda: FloatImm("float32", "1.0"), "holds a number, got '1.0'"),
        (lambda: FloatImm("float32", 1j), "holds a number"),
        (lambda: StringImm(3), "holds text"),
        (lambda: Cast("float99", INDEX), "unknown dtype 'float99'"),
        (lambda: Cast("void", INDEX), "a Cast converts values"),
        (lambda: Cast("int32x4", INDEX), "keeps the number of lanes"),
        (lambda: Cast("int32", VECTOR), "keeps the number of lanes"),
        (lambda: Ramp(INDEX, IntImm("int64", 1), 0), "lanes must be a positive number"),
        (lambda: Broadcast(INDEX, 2.0), "lanes must be a positive number"),
        (lambda: Shuffle((VECTOR,), (4,)), "picks from 4 lanes"),
        (lambda: Shuffle((), ()), "picks from 0 lanes"),
    ],
)
def test_refused(make, message):
    with pytest.raises(VerifyError) as info:
        make()
    assert message in info.value.message


INTEGERS = [
    name
    for name in dtypes.ELEMENT_TYPES
    if dtypes.is_integer(name) or dtypes.kind_of(name) == "bool"
]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("make", [lambda value, dtype: IntImm(dtype, value), const])
def test_the_least_and_greatest_number_of_a_dtype_are_its_last(make, dtype):
    low, high = dtypes.integer_limits(dtype)
    assert make(low, dtype).value == low
    assert make(high, dtype).value == high
    for beyond in (low - 1, high + 1):
        with pytest.raises(VerifyError, match=r"does not fit|no bool"):
            make(beyond, dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_script_takes_no_number_outside_of_its_dtype(dtype):
    low, high = dtypes.integer_limits(dtype)
    for beyond in (low - 1, high + 1):
        for text in (f"T.{dtype}({beyond})", f"T.IntImm('{dtype}', {beyond})"):
            with pytest.raises(ParseError, match=r"does not fit|no bool"):
                script.parse(f"@T.prim_func\ndef f():\n    T.evaluate({text})\n")


def test_ranges_up_to_the_last_number_are_written_so_that_they_are_read_again():
    buffer = tir.decl_buffer((8,), name="A")
    last = IntImm("int64", 2**63 - 1)
    func = tir.PrimFunc((), tir.Evaluate(tir.BufferLoad(buffer, (Ramp(last, const(1), 4),))))
    assert structural_equal(script.parse(func.script()), func, map_free_vars=True)


def test_numbers_of_other_types_become_pythons():
    assert type(IntImm("int8", np.int8(3)).value) is int
    assert type(IntImm("bool", True).value) is int
    assert type(FloatImm("float32", np.float32(0.5)).value) is float
    assert type(FloatImm("float32", 2).value) is float


def test_large_integers_are_cast_as_they_are():
    assert cast(2**64 - 1, "uint64").value == 2**64 - 1
    assert cast(2**63, "float32").value == 2.0**63
    with pytest.raises(VerifyError, match="does not fit uint64"):
        cast(2**64, "uint64")


@pytest.mark.parametrize(
    "dtype", ["int8", "int64", "uint16", "bool", "float16", "float32", "float64"]
)
def test_constants_of_numpy_are_of_their_dtype(dtype):
    made = const(np.dtype(dtype).type(1))
    assert made.dtype == dtype and made.value == 1
    assert const(np.array(1, dtype)).dtype == dtype
    # In arithmetic they count as Python's numbers, as float64's are.
    assert (Var("x", "float32") * np.float64(0.5)).dtype == "float32"
