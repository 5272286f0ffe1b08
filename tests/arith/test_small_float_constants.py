"""Constants of small formats are what they are in memory, whoever computes with them.

``float8_e8m0fnu`` has no zero and no sign: ``0.0`` and ``-1.0`` are NaN there, as in ``ml_dtypes``.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.arith import Analyzer
from tilewright.ir import (
    EQ,
    LT,
    Cast,
    Expr,
    FloatImm,
    IntImm,
    Max,
    Mul,
    Select,
    Sub,
    cast,
    const,
)
from tilewright.tir import BufferLoad, BufferStore, PrimFunc, SeqStmt, decl_buffer, interpreter

DTYPES = ("float8_e8m0fnu", "float8_e4m3fn", "float16")
NUMBERS = (0.0, -0.0, 1.0, -1.0, 3.0, 1e300)
OPERATORS = (Sub, Mul, Max)
COMPARISONS = (EQ, LT)


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def expressions(dtype: str, x: Expr) -> list[Expr]:
    """Expressions of constants, and of the element x with one."""
    numbers = [FloatImm(dtype, number) for number in NUMBERS]
    two = FloatImm(dtype, 2.0)
    pairs = [
        *itertools.product(numbers, numbers),
        *((x, number) for number in numbers),
        *((number, x) for number in numbers),
    ]
    made: list[Expr] = [op(a, b) for a, b in pairs for op in OPERATORS]
    made += [Select(op(a, b), two, x) for a, b in pairs for op in COMPARISONS]
    for number in numbers:
        wide = Cast("float32", number)
        made += [Cast(dtype, wide), Cast(dtype, Mul(wide, FloatImm("float32", 3.0)))]
        made += [Cast(dtype, Cast("int32", number)), Select(Cast("bool", number), two, x)]
        made.append(Cast(dtype, FloatImm("float32", number.value)))
    return [*made, Cast(dtype, IntImm("int32", 0)), Cast(dtype, IntImm("int32", -3))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_are_what_they_are_in_memory(dtype: str) -> None:
    given = np.array([0.0, 4.0]).astype(numpy_dtype(dtype))
    A = decl_buffer(given.shape, dtype, "A")
    exprs = [
        each
        for place in range(len(given))
        for each in expressions(dtype, BufferLoad(A, (const(place),)))
    ]
    simplify = Analyzer().simplify
    out = decl_buffer((len(exprs),), dtype, "out")
    results = []
    for values in (exprs, [simplify(each) for each in exprs]):
        stores = [BufferStore(out, each, [const(place)]) for place, each in enumerate(values)]
        func = PrimFunc([A, out], SeqStmt(stores))
        results.append(np.zeros(len(exprs), given.dtype))
        interpreter.run(func, given.copy(), results[-1])
    results.append(np.zeros(len(exprs), given.dtype))
    tilewright.compile(func, "llvm")(given.copy(), results[-1])
    # Which zero max(-0.0, 0.0) is, nobody says.
    wanted, *others = (each.astype("float64") for each in results)
    for found in others:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_without_sign_or_zero_are_those_of_ml_dtypes(number: float) -> None:
    dtype = "float8_e8m0fnu"
    with np.errstate(all="ignore"):
        wanted = float(np.array(number).astype(ml_dtypes.float8_e8m0fnu))
    found = cast(FloatImm(dtype, number), "float32")
    assert isinstance(found, FloatImm)
    np.testing.assert_equal(found.value, wanted)
    whole = Analyzer().simplify(Cast("int32", FloatImm(dtype, number)))
    assert isinstance(whole, IntImm)


def test_numbers_that_are_one_in_memory_are_equal() -> None:
    simplify = Analyzer().simplify
    for dtype, a, b in (("float32", 0.1, 0.1 + 1e-12), ("float8_e4m3fn", 1.0, 1.01)):
        first, second = FloatImm(dtype, a), FloatImm(dtype, b)
        assert simplify(EQ(first, second)).value == 1
        assert simplify(LT(first, second)).value == 0
    assert type(simplify(LT(FloatImm("float32", 1.0), FloatImm("float32", 1e300)))) is LT
