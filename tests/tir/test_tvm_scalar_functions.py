"""Functions of scalars by TVM's names give what NumPy gives, and print as what they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te, tirx
from tilewright.ir import structural_equal
from tilewright.script import tirx as T
from tilewright.tir.interpreter import run

Case = tuple[Callable[..., Any], tuple[Any, ...], Any]

F, D, I, L = np.float32, np.float64, np.int32, np.int64
Q = 1 << 30


def value(function: Callable[..., Any], *operands: Any) -> Any:
    """What a function gives for operands that only a run knows."""
    arrays = [np.array([x]) for x in operands]
    inputs = [te.placeholder((1,), str(a.dtype), f"x{n}") for n, a in enumerate(arrays)]
    made = te.compute((1,), lambda i: function(*(x[i] for x in inputs)), "made")
    result = np.zeros(1, made.dtype)
    run(te.create_prim_func([*inputs, made]), *arrays, result)
    return result[0]


FLOATS: dict[str, Case] = {
    "acos": (tirx.acos, (F(0.5),), math.acos(0.5)),
    "acosh": (tirx.acosh, (F(1.5),), math.acosh(1.5)),
    "asin": (tirx.asin, (F(0.5),), math.asin(0.5)),
    "asinh": (tirx.asinh, (F(-2),), math.asinh(-2)),
    "atan": (tirx.atan, (F(-3),), math.atan(-3)),
    "atan2": (tirx.atan2, (F(1), F(-2)), math.atan2(1, -2)),
    "atanh": (tirx.atanh, (F(0.25),), math.atanh(0.25)),
    "ceil": (tirx.ceil, (F(-1.5),), -1.0),
    "copysign": (tirx.copysign, (F(2), F(-0.0)), -2.0),
    "cos": (tirx.cos, (F(2),), math.cos(2)),
    "cosh": (tirx.cosh, (F(2),), math.cosh(2)),
    "erf": (tirx.erf, (F(0.7),), math.erf(0.7)),
    "exp10": (tirx.exp10, (F(-2),), 0.01),
    "exp2": (tirx.exp2, (F(3.5),), 2**3.5),
    "floor": (tirx.floor, (F(-1.5),), -2.0),
    "fmod": (tirx.fmod, (F(-7.5), F(2)), -1.5),
    "hypot": (tirx.hypot, (F(3), F(4)), 5.0),
    "ldexp": (tirx.ldexp, (F(0.75), I(3)), 6.0),
    "log": (tirx.log, (F(3),), math.log(3)),
    "log10": (tirx.log10, (F(1000),), 3.0),
    "log1p": (tirx.log1p, (F(0.1),), math.log1p(0.1)),
    "log2": (tirx.log2, (F(8),), 3.0),
    "logaddexp": (tirx.logaddexp, (F(1), F(2)), np.logaddexp(1, 2)),
    "nearbyint": (tirx.nearbyint, (F(2.5),), 2.0),
    "nextafter": (tirx.nextafter, (F(1), F(2)), float(np.nextafter(F(1), F(2)))),
    "pow": (tirx.pow, (F(2), F(0.5)), 2**0.5),
    "power": (tirx.power, (F(2), F(-3)), 0.125),
    "rsqrt": (tirx.rsqrt, (F(16),), 0.25),
    "sigmoid": (tirx.sigmoid, (F(0),), 0.5),
    "sin": (tirx.sin, (F(2),), math.sin(2)),
    "sinh": (tirx.sinh, (F(2),), math.sinh(2)),
    "sqrt": (tirx.sqrt, (F(2),), math.sqrt(2)),
    "tan": (tirx.tan, (F(2),), math.tan(2)),
    "tanh": (tirx.tanh, (F(0.5),), math.tanh(0.5)),
    "trunc": (tirx.trunc, (F(-1.5),), -1.0),
    "fabs": (T.fabs, (F(-1.5),), 1.5),
    "fma": (T.fma, (F(2), F(3), F(-1)), 5.0),
    "min": (T.min, (F(2), F(-1)), -1.0),
}

WHOLE: dict[str, Case] = {
    "abs": (tirx.abs, (I(-7),), 7),
    "bitwise_and": (tirx.bitwise_and, (I(12), I(10)), 8),
    "bitwise_not": (tirx.bitwise_not, (I(12),), -13),
    "bitwise_or": (tirx.bitwise_or, (I(12), I(10)), 14),
    "bitwise_xor": (tirx.bitwise_xor, (I(12), I(10)), 6),
    "BitwiseOr": (tirx.BitwiseOr, (I(12), I(10)), 14),
    "BitwiseXor": (tirx.BitwiseXor, (I(12), I(10)), 6),
    "RShift": (tirx.RShift, (I(-8), I(1)), -4),
    "clz": (tirx.clz, (I(1),), 31),
    "clz of 64 bits": (tirx.clz, (L(1 << 40),), 23),
    "floormod": (tirx.floormod, (I(-7), I(3)), 2),
    "indexmod": (tirx.indexmod, (I(7), I(3)), 1),
    "likely": (tirx.likely, (np.True_,), True),
    "popcount": (tirx.popcount, (I(-1),), 32),
    "q_multiply_shift": (
        lambda x: tirx.q_multiply_shift(x, tirx.const(Q), tirx.const(31), tirx.const(1)),
        (I(100),), 100,
    ),
    "q_multiply_shift_per_axis": (
        lambda x, y, left, right: tirx.q_multiply_shift_per_axis(
            x, y, left, right, tirx.const(31), tirx.const(True), tirx.const(True)
        ),
        (I(100), I(Q), I(3), I(1)), 200,
    ),
    "shift_left": (tirx.shift_left, (I(3), I(4)), 48),
    "shift_right": (tirx.shift_right, (I(-9), I(1)), -5),
    "truncmod": (T.truncmod, (I(-7), I(3)), -1),
    "isfinite": (tirx.isfinite, (F(np.inf),), False),
    "isinf": (tirx.isinf, (F(-np.inf),), True),
    "isnan": (tirx.isnan, (F(np.nan),), True),
    "reinterpret": (lambda x: T.reinterpret("int32", x), (F(1),), 0x3F800000),
    "popcount of te": (te.popcount, (np.uint8(7),), 3),
    "floormod of te": (te.floormod, (I(-7), I(-3)), -1),
    "indexmod of te": (te.indexmod, (I(-7), I(3)), 2),
}  # fmt: skip

OF_TE: dict[str, Case] = {
    "fmod": (te.fmod, (D(-7.5), D(2)), -1.5),
    "logaddexp": (te.logaddexp, (D(1), D(2)), np.logaddexp(1, 2)),
    "power": (te.power, (D(2), D(0.5)), 2**0.5),
}


@pytest.mark.parametrize("name", [*FLOATS])
def test_functions_of_floats(name: str) -> None:
    function, operands, expected = FLOATS[name]
    found = value(function, *operands)
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, expected, 2e-6)


@pytest.mark.parametrize("name", OF_TE)
def test_functions_of_te(name: str) -> None:
    function, operands, expected = OF_TE[name]
    np.testing.assert_allclose(value(function, *operands), expected, 1e-12)


@pytest.mark.parametrize("name", WHOLE)
def test_functions_of_integers_and_truth_values(name: str) -> None:
    function, operands, expected = WHOLE[name]
    assert value(function, *operands) == expected


ONLY_IN_TIR = {"power", "floormod", "indexmod", "logaddexp"}
NAMES = [
    name for name in (*FLOATS, *WHOLE)
    if " " not in name and not name.startswith("q_") and name not in ONLY_IN_TIR
]  # fmt: skip

# What the next test looks up, for the search of names that no test tries (`tools/tvm_tried.py`).
SCRIPT_PATHS = [f"script.tirx.{name}" for name in NAMES]


@pytest.mark.parametrize("path", SCRIPT_PATHS)
def test_script_has_the_same_functions(path: str) -> None:
    name = path.rpartition(".")[2]
    function, operands, _ = FLOATS.get(name) or WHOLE[name]
    given = [tirx.Var(f"x{n}", str(np.asarray(x).dtype)) for n, x in enumerate(operands)]
    if name == "reinterpret":
        assert structural_equal(T.reinterpret("int32", given[0]), function(*given))
        return
    assert structural_equal(getattr(T, name)(*given), function(*given), map_free_vars=False)


def test_script_multiplies_by_fixed_point_numbers() -> None:
    x, y = tirx.Var("x", "int32"), tirx.Var("y", "int32")
    assert structural_equal(T.q_multiply_shift(x, y, 31, 1), tirx.q_multiply_shift(x, y, 31, 1))
    operands = (x, y, tirx.const(1), tirx.const(0), 31, tirx.const(True), tirx.const(False))
    ours = T.q_multiply_shift_per_axis(*operands)
    assert structural_equal(ours, tirx.q_multiply_shift_per_axis(*operands))


EXTREMES = {
    "int8": (-128, 127), "uint16": (0, 65535), "int64": (-(2**63), 2**63 - 1),
    "float16": (-65504.0, 65504.0), "float32": (-3.4028234663852886e38, 3.4028234663852886e38),
}  # fmt: skip


@pytest.mark.parametrize("dtype", EXTREMES)
def test_extreme_values(dtype: str) -> None:
    least, most = T.min_value(dtype), T.max_value(dtype)
    assert (least.dtype, most.dtype) == (dtype, dtype)
    assert (least.value, most.value) == EXTREMES[dtype]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_infinity(dtype: str) -> None:
    made = tirx.infinity(dtype)
    assert structural_equal(T.infinity(dtype), made)
    assert made.dtype == dtype
    assert value(lambda x: tirx.isinf(x + tirx.infinity(dtype)), np.dtype(dtype).type(-1))


def test_hints_leave_a_predicate_as_it_is() -> None:
    n = tirx.Var("n", "int32")
    hint = tirx.ignore_loop_partition(n < 4)
    assert structural_equal(T.ignore_loop_partition(n < 4), hint)
    assert hint.dtype == "bool" and hint.op.name == "ignore_loop_partition"
    assert structural_equal(hint.args[0], n < 4)
    assert value(tirx.ignore_loop_partition, np.True_)


def test_intrinsics_of_llvm_are_called_by_name() -> None:
    x = tirx.Var("x", "float32")
    calls = (
        tirx.call_llvm_intrin, tirx.call_llvm_pure_intrin, T.call_llvm_intrin,
        T.call_llvm_pure_intrin,
    )  # fmt: skip
    for call in calls:
        made = call("float32", "llvm.sqrt", x)
        assert made.dtype == "float32" and x in made.args
    made = T.call_extern("float32", "sinf", x)
    assert made.args[0].value == "sinf" and made.args[1] is x
    assert T.call_intrin("float32", "tirx.sqrt", x).op is T.sqrt(x).op


#: The dtype of a sum of a variable of each dtype with one of each of these, as in TVM.
WITH = "int8 uint8 int16 int32 uint32 int64 uint64 bool float32".split()
SUMS = {
    "int8": "int8 uint8 int16 int32 uint32 int64 uint64 int8 float32",
    "uint8": "uint8 uint8 int16 int32 uint32 int64 uint64 uint8 float32",
    "int16": "int16 int16 int16 int32 uint32 int64 uint64 int16 float32",
    "int32": "int32 int32 int32 int32 uint32 int64 uint64 int32 float32",
    "int64": "int64 int64 int64 int64 int64 int64 uint64 int64 float32",
    "uint32": "uint32 uint32 uint32 uint32 uint32 int64 uint64 uint32 float32",
    "uint64": "uint64 uint64 uint64 uint64 uint64 uint64 uint64 uint64 float32",
    "float16": "float16 float16 float16 float16 float16 float16 float16 float16 float32",
}


@pytest.mark.parametrize("dtype", SUMS)
def test_operands_of_two_dtypes(dtype: str) -> None:
    x = tirx.Var("x", dtype)
    assert [(x + tirx.Var("y", other)).dtype for other in WITH] == SUMS[dtype].split()
    assert [(tirx.Var("y", other) * x).dtype for other in WITH] == SUMS[dtype].split()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_a_constant_of_a_wider_dtype_keeps_it(dtype: str) -> None:
    x = tirx.Var("x", dtype)
    assert (x + T.int32(1)).dtype == (T.int32(100) * x).dtype == "int32"
    assert (x + 1).dtype == dtype and (x + T.int8(1)).dtype == dtype
    found = value(lambda x: x * T.int32(100), np.dtype(dtype).type(100))
    assert (found, found.dtype) == (10000, "int32")
