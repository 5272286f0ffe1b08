"""Special values of the vector math functions: as C and IEEE 754 have them."""

from __future__ import annotations

import ctypes
import platform

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tilewright.codegen.llvm.math import MATH_FUNCTIONS
from tilewright.codegen.llvm.math.measure import (
    REFERENCES,
    compile_math,
    host_instruction_sets,
)

NAN, INF = float("nan"), float("inf")
DTYPES = ["float32", "float64"]
_UNDERFLOW = 16  # x86's FE_UNDERFLOW

# Pairs of argument and exact result (rounded to the dtype).
EXPECTED: dict[str, list[tuple[float, float]]] = {
    "silu": [(-INF, NAN), (INF, INF), (0.0, 0.0), (-0.0, -0.0), (1e5, 1e5), (-1e5, -0.0)],
    "exp": [(-INF, 0.0), (INF, INF), (0.0, 1.0), (-0.0, 1.0), (1e5, INF), (-1e5, 0.0)],
    "exp2": [
        (-INF, 0.0),
        (INF, INF),
        (0.0, 1.0),
        (10.0, 1024.0),
        (-3.0, 0.125),
        (1e5, INF),
        (-1e5, 0.0),
    ],
    "exp10": [(-INF, 0.0), (INF, INF), (0.0, 1.0), (1e5, INF), (-1e5, 0.0)],
    "expm1": [(-INF, -1.0), (INF, INF), (0.0, 0.0), (-0.0, -0.0), (1e5, INF), (-1e5, -1.0)],
    "sigmoid": [(-INF, 0.0), (INF, 1.0), (0.0, 0.5), (-0.0, 0.5), (1e5, 1.0), (-1e5, 0.0)],
    "tanh": [(-INF, -1.0), (INF, 1.0), (0.0, 0.0), (-0.0, -0.0), (1e5, 1.0)],
    "sinh": [(-INF, -INF), (INF, INF), (0.0, 0.0), (-0.0, -0.0), (1e5, INF)],
    "cosh": [(-INF, INF), (INF, INF), (0.0, 1.0), (-0.0, 1.0), (-1e5, INF)],
    "erf": [(-INF, -1.0), (INF, 1.0), (0.0, 0.0), (-0.0, -0.0), (50.0, 1.0)],
    "gelu": [(-INF, NAN), (INF, INF), (0.0, 0.0), (-0.0, -0.0), (100.0, 100.0), (-1e5, -0.0)],
    "gelu_tanh": [(-INF, NAN), (INF, INF), (0.0, 0.0), (-0.0, -0.0), (100.0, 100.0), (-1e5, -0.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (-1.0, NAN), (1.0, 0.0)],
    "log2": [
        (0.0, -INF),
        (-0.0, -INF),
        (INF, INF),
        (-INF, NAN),
        (-1.0, NAN),
        (1.0, 0.0),
        (8.0, 3.0),
    ],
    "log10": [(0.0, -INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (-1.0, NAN), (1.0, 0.0)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-2.0, NAN), (INF, INF), (-INF, NAN)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, NAN), (4.0, 2.0)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (4.0, 0.5)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, np.pi / 2), (-INF, -np.pi / 2)],
    "asin": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (1.0, np.pi / 2),
        (-1.0, -np.pi / 2),
        (1.5, NAN),
        (-INF, NAN),
    ],
    "acos": [
        (1.0, 0.0),
        (-1.0, np.pi),
        (0.0, np.pi / 2),
        (-0.0, np.pi / 2),
        (1.5, NAN),
        (INF, NAN),
    ],
    "floor": [(-0.0, -0.0), (1.5, 1.0), (-1.5, -2.0), (INF, INF)],
    "ceil": [(-0.0, -0.0), (1.5, 2.0), (-1.5, -1.0), (-INF, -INF)],
    "trunc": [(-0.0, -0.0), (1.5, 1.0), (-1.5, -1.0), (INF, INF)],
    "round": [(-0.0, -0.0), (0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (INF, INF)],
    "nearbyint": [(-0.0, -0.0), (0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (INF, INF)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-3.0, NAN), (INF, INF), (-INF, NAN)],
    "atanh": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (1.0, INF),
        (-1.0, -INF),
        (1.5, NAN),
        (3e7, NAN),
        (INF, NAN),
    ],
    "fabs": [(-0.0, 0.0), (-1.5, 1.5), (-INF, INF)],
}


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Compare values, NaN for NaN and the sign of zeros included."""
    zero_signs = (want != 0) | (np.signbit(got) == np.signbit(want))
    return ((got == want) & zero_signs) | (np.isnan(got) & np.isnan(want))


ISAS = sorted(host_instruction_sets())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_special_values(name: str, dtype: str, isa: str) -> None:
    points, results = zip(*EXPECTED[name], (NAN, NAN))
    got = compile_math(name, dtype, 8, isa)(points)
    bad = ~same(got, np.array(results, dtype))
    assert not bad.any(), [(x, g) for x, g, b in zip(points, got, bad) if b]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["pow", "atan2", "fmod", "copysign"])
def test_special_pairs_agree_with_libm(name: str, dtype: str, isa: str) -> None:
    tiny, huge = np.finfo(dtype).tiny, np.finfo(dtype).max
    ends = [0.0, 0.5, 1.0, 2.0, 3.0, float(tiny) / 8, float(tiny), float(huge), INF]
    points = np.array([*ends, *(-v for v in ends), NAN], dtype)
    x, y = (v.ravel() for v in np.meshgrid(points, points))
    if dtype == "float64" and name == "atan2":  # too large a quotient is libm's last bit
        x, y = x[np.isfinite(x)], y[np.isfinite(x)]
    with np.errstate(all="ignore"):
        want = REFERENCES[name](x, y)
    got = compile_math(name, dtype, 8, isa)(x, y)
    close = np.isclose(got, want, rtol=4 * np.finfo(dtype).eps, atol=0, equal_nan=True)
    zero_signs = (want != 0) | (np.signbit(got) == np.signbit(want))
    bad = ~(close & zero_signs)
    assert not bad.any(), list(zip(x[bad], y[bad], got[bad], want[bad]))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flag has another number")
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["exp", "exp2", "sigmoid", "silu"])
def test_powers_of_what_a_mask_leaves_out_do_not_underflow(name: str, isa: str) -> None:
    """CPUs take a hundred times as long for an underflow; zero needs none."""
    math, run = ctypes.CDLL(None), compile_math(name, "float32", 16, isa)
    points = np.array([-INF, -3e38, -1e9, -1e4, -300.0, 0.0, 1.0, NAN] * 2, np.float32)
    math.feclearexcept(_UNDERFLOW)
    run(points)
    assert not math.fetestexcept(_UNDERFLOW)


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_of_negative_numbers(dtype: str) -> None:
    got = compile_math("pow", dtype, 4)([-2.0, -2.0, -2.0, -8.0], [3.0, 4.0, -1.0, 1 / 3])
    assert same(got, np.array([-8.0, 16.0, -0.5, NAN], dtype)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_classification(dtype: str) -> None:
    x = [0.0, -0.0, 1.0, -INF, INF, NAN, float(np.finfo(dtype).max), 1e-310]
    for name in ("isnan", "isinf", "isfinite"):
        got = compile_math(name, dtype, 8)(x)
        assert got.tolist() == getattr(np, name)(np.array(x, dtype)).tolist()


def test_underflow_is_gradual() -> None:
    x = np.array([-88.0, -95.0, -100.0, -103.0], np.float32)
    assert (compile_math("exp", "float32", 4)(x) > 0).all()
    assert (compile_math("sigmoid", "float32", 4)(x) > 0).all()
    assert compile_math("exp", "float64", 4)([-744.0])[0] > 0


def test_denormal_arguments_are_not_flushed() -> None:
    tiny = np.float32(1e-42)
    for name in (
        "tanh",
        "sinh",
        "erf",
        "sin",
        "tan",
        "asinh",
        "atanh",
        "atan",
        "asin",
        "expm1",
        "log1p",
    ):
        got = compile_math(name, "float32", 4)([tiny])[0]
        assert got == pytest.approx(float(REFERENCES[name](np.float64(tiny))), abs=1.5e-45), name
    assert compile_math("log2", "float32", 4)([np.float32(2.0**-149)])[0] == -149.0


def test_every_function_has_special_values_tested() -> None:
    pairs = {name for name, spec in MATH_FUNCTIONS.items() if spec.arity == 2}
    flags = {name for name, spec in MATH_FUNCTIONS.items() if spec.result == "bool"}
    assert set(EXPECTED) | pairs | flags == set(MATH_FUNCTIONS)
