"""The vector math functions stay within their stated bounds against mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

mp = pytest.importorskip("mpmath")
pytest.importorskip("llvmlite")

from tilewright.codegen.llvm.math import MATH_FUNCTIONS, has_variant  # noqa: E402
from tilewright.codegen.llvm.math.measure import (  # noqa: E402
    CompiledMath,
    compile_math,
    float32_errors,
    host_instruction_set,
)

COUNT = 1000
LANES = {"float32": 16, "float64": 8}
ISA = host_instruction_set()


def _sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def _gelu_tanh(x):
    return x * _sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))


EXACT: dict[str, Callable] = {
    **{
        name: getattr(mp, name)
        for name in "exp expm1 tanh sinh cosh erf log log1p sin cos tan atan asin acos sqrt asinh "
        "acosh atanh".split()
    },
    "atan2": mp.atan2,
    "pow": mp.power,
    "exp2": lambda x: mp.mpf(2) ** x,
    "exp10": lambda x: mp.mpf(10) ** x,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log10": mp.log10,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "sigmoid": _sigmoid,
    "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x * _sigmoid(x),
}

# Where results are finite and not all the same, per dtype.
RANGES = {
    "exp": {"float32": (-104, 88.7), "float64": (-745, 709.7)},
    "exp2": {"float32": (-150, 127.9), "float64": (-1075, 1023.9)},
    "exp10": {"float32": (-45, 38.5), "float64": (-324, 308.2)},
    "expm1": {"float32": (-20, 88.7), "float64": (-40, 709.7)},
    "sigmoid": {"float32": (-103, 20), "float64": (-745, 40)},
    "sinh": {"float32": (-89.3, 89.3), "float64": (-710.4, 710.4)},
    "cosh": {"float32": (-89.3, 89.3), "float64": (-710.4, 710.4)},
    "tanh": {"float32": (-12, 12), "float64": (-22, 22)},
    "erf": {"float32": (-4.5, 4.5), "float64": (-6.5, 6.5)},
    "gelu": {"float32": (-15, 15), "float64": (-40, 40)},
    "silu": {"float32": (-110, 20), "float64": (-750, 40)},
    "gelu_tanh": {"float32": (-15, 15), "float64": (-40, 40)},
    "asin": {"float32": (-1, 1), "float64": (-1, 1)},
    "atanh": {"float32": (-1, 1), "float64": (-1, 1)},
    "acos": {"float32": (-1, 1), "float64": (-1, 1)},
}
POSITIVE = {"log", "log2", "log10", "sqrt", "rsqrt", "log1p"}


def _all_binades(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    unsigned = {"float32": np.uint32, "float64": np.uint64}[dtype]
    values = rng.integers(0, np.iinfo(unsigned).max, count, dtype=unsigned).view(dtype)
    return values[np.isfinite(values)]


def arguments(name: str, dtype: str) -> list[np.ndarray]:
    """Uniform in the interesting range, and spread over all binades."""
    rng = np.random.default_rng(7)
    low, high = RANGES.get(name, {}).get(dtype, (-100.0, 100.0))
    wide = _all_binades(rng, dtype, COUNT)
    if name == "pow":
        top = 127 if dtype == "float32" else 1022
        x = np.concatenate([np.exp2(rng.uniform(-20, 20, COUNT)), rng.uniform(0.5, 2, COUNT)])
        y = rng.uniform(-top - 20, top, x.size) / np.log2(x)
        return [x.astype(dtype), y.astype(dtype)]
    if name == "atan2":
        other = _all_binades(rng, dtype, COUNT)
        size = min(wide.size, other.size)
        near = rng.normal(size=(2, COUNT)).astype(dtype)
        return [np.concatenate([v[:size], n]) for v, n in zip((wide, other), near)]
    if name == "acosh":
        near = 1 + np.exp2(rng.uniform(-20, 3, COUNT))
        return [np.concatenate([1 + np.abs(wide), near]).astype(dtype)]
    if name in POSITIVE:
        wide = np.abs(wide)
        near = np.exp2(rng.uniform(-3, 3, COUNT))
        one = 1 + rng.uniform(-1e-3, 1e-3, COUNT // 2)
        extra = rng.uniform(-0.999, 1, COUNT // 2) if name == "log1p" else one
        return [np.concatenate([wide, near, one, extra]).astype(dtype)]
    wide = wide[(wide >= low) & (wide <= high)] if name in RANGES else wide
    return [np.concatenate([wide, rng.uniform(low, high, COUNT)]).astype(dtype)]


def worst_error(compiled: CompiledMath, args: list[np.ndarray]) -> tuple[float, tuple[float, ...]]:
    """Return the largest error in ulp and where it is."""
    name, dtype = compiled.name, compiled.dtype
    spec = MATH_FUNCTIONS[name]
    mantissa, lowest, top = {"float32": (24, -149, 128), "float64": (53, -1074, 1024)}[dtype]
    results = compiled(*args)
    worst, where = 0.0, ()
    for got, *point in zip(results, *args):
        values = [float(v) for v in point]
        big = name in ("sin", "cos", "tan") and abs(values[0]) > 1e6
        with mp.workprec(1250 if big else 140):
            exact = EXACT[name](*(mp.mpf(v) for v in values))
            scale = abs(exact)
            if spec.scale == "operand":
                scale = max(scale, abs(mp.mpf(values[0])))
            exponent = max(mp.frexp(scale)[1] - mantissa, lowest) if scale else lowest
            if scale + mp.mpf(2) ** (exponent - 1) >= mp.mpf(2) ** top:
                error = 0.0 if math.isinf(got) else math.inf
            elif not math.isfinite(got):
                error = math.inf
            else:
                error = float(abs(mp.mpf(float(got)) - exact) / mp.mpf(2) ** exponent)
        if error > worst:
            worst, where = error, tuple(values)
    return worst, where


VARIANTS = sorted({(name, "generic") for name in EXACT} | {(name, ISA) for name in EXACT})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "isa"), VARIANTS)
def test_error_is_within_the_stated_bound(name: str, isa: str, dtype: str) -> None:
    if isa != "generic" and not has_variant(name, dtype, isa):
        pytest.skip("computed by the portable formula")
    compiled = compile_math(name, dtype, LANES[dtype], isa)
    worst, where = worst_error(compiled, arguments(name, dtype))
    assert worst <= compiled.max_ulp, where


SWEPT = [name for name, spec in MATH_FUNCTIONS.items() if spec.arity == 1]


@pytest.mark.parametrize("name", sorted(set(SWEPT) & set(EXACT)))
def test_strided_float32_sweep_is_within_the_stated_bound(name: str) -> None:
    x = np.arange(0, 1 << 32, 100003, dtype=np.uint64).astype(np.uint32).view(np.float32)
    compiled = compile_math(name, "float32", 16)
    errors = float32_errors(compiled, x)
    at = int(np.argmax(errors))
    assert errors[at] <= compiled.max_ulp, x[at]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_next_to_multiples_of_half_pi(name: str) -> None:
    # The float64 nearest to a multiple of pi/2 of all (6381956970095103 * 2**797), and others.
    x = np.array(
        [math.ldexp(6381956970095103, 797), math.pi, math.pi / 2, 2**29 * math.pi, 1e22, 1.5e300]
    )
    compiled = compile_math(name, "float64", LANES["float64"])
    worst, where = worst_error(compiled, [x])
    assert worst <= compiled.max_ulp, where


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 40, 64, 96])
@pytest.mark.parametrize("name", ["exp", "tanh", "log", "log1p", "sin", "pow", "isnan"])
def test_every_lane_count_gives_the_same_bits(name: str, lanes: int) -> None:
    rng = np.random.default_rng(3)
    args = [rng.normal(0, 30, 192).astype(np.float32) for _ in range(MATH_FUNCTIONS[name].arity)]
    args[0][5] = 3e30
    base = compile_math(name, "float32", 2)(*args)
    got = compile_math(name, "float32", lanes)(*args)
    assert np.array_equal(base, got, equal_nan=base.dtype != np.bool_)
