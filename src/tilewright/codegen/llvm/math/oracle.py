"""What the math functions should return, by mpmath, and where to look. For tests and tools.

Needs mpmath and llvmlite, imported when used; the code generator does not use this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.llvm.math.builder import FORMATS
from tilewright.codegen.llvm.math.measure import Array, CompiledMath
from tilewright.codegen.llvm.math.spec import MATH_FUNCTIONS

# Where results are finite and not all the same, for (float32, float64).
_RANGES: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "exp": ((-104, 88.7), (-745, 709.7)),
    "exp2": ((-150, 127.9), (-1075, 1023.9)),
    "exp10": ((-45, 38.5), (-324, 308.2)),
    "expm1": ((-20, 88.7), (-40, 709.7)),
    "sigmoid": ((-103, 20), (-745, 40)),
    "silu": ((-110, 20), (-750, 40)),
    "sinh": ((-89.3, 89.3), (-710.4, 710.4)),
    "cosh": ((-89.3, 89.3), (-710.4, 710.4)),
    "tanh": ((-12, 12), (-22, 22)),
    "erf": ((-4.5, 4.5), (-6.5, 6.5)),
    "gelu": ((-15, 15), (-40, 40)),
    "gelu_tanh": ((-15, 15), (-40, 40)),
    "asin": ((-1, 1), (-1, 1)),
    "atanh": ((-1, 1), (-1, 1)),
    "acos": ((-1, 1), (-1, 1)),
}
_POSITIVE = frozenset({"log", "log2", "log10", "sqrt", "rsqrt", "log1p"})


def exact_functions() -> dict[str, Callable[..., Any]]:
    """Return the functions on mpmath's numbers, by name."""
    import mpmath as mp

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + mp.exp(-x))

    def gelu_tanh(x: Any) -> Any:
        return x * sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))

    same = (
        "exp expm1 tanh sinh cosh erf log log1p sin cos tan atan asin acos sqrt asinh acosh atanh "
        "atan2 log10"
    )
    return {
        **{name: getattr(mp, name) for name in same.split()},
        "pow": mp.power,
        "exp2": lambda x: mp.mpf(2) ** x,
        "exp10": lambda x: mp.mpf(10) ** x,
        "log2": lambda x: mp.log(x) / mp.log(2),
        "rsqrt": lambda x: 1 / mp.sqrt(x),
        "sigmoid": sigmoid,
        "silu": lambda x: x * sigmoid(x),
        "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
        "gelu_tanh": gelu_tanh,
    }


def _all_binades(rng: np.random.Generator, dtype: str, count: int) -> Array:
    size = FORMATS[dtype].bits // 8 * count
    values: Array = np.frombuffer(rng.bytes(size), dtype)
    return np.asarray(values[np.isfinite(values)])


def arguments(name: str, dtype: str, count: int, seed: int = 7) -> list[Array]:
    """Draw arguments, some uniform in the interesting range, some spread over all binades."""
    rng = np.random.default_rng(seed)
    wide = _all_binades(rng, dtype, count)
    if MATH_FUNCTIONS[name].arity == 2:
        return [values.astype(dtype) for values in _pairs(rng, name, dtype, wide)]
    if name == "acosh":
        near = 1 + np.exp2(rng.uniform(-20, 3, count))
        return [np.concatenate([1 + np.abs(wide), near]).astype(dtype)]
    if name in _POSITIVE:
        near = np.exp2(rng.uniform(-3, 3, count))
        one = 1 + rng.uniform(-1e-3, 1e-3, count // 2)
        extra = rng.uniform(-0.999, 1, count // 2) if name == "log1p" else one
        return [np.concatenate([np.abs(wide), near, one, extra]).astype(dtype)]
    low, high = (-100.0, 100.0)
    if name in _RANGES:
        low, high = _RANGES[name][dtype == "float64"]
        wide = wide[(wide >= low) & (wide <= high)]
    return [np.concatenate([wide, rng.uniform(low, high, count)]).astype(dtype)]


def _pairs(rng: np.random.Generator, name: str, dtype: str, wide: Array) -> Sequence[Array]:
    count = wide.size
    if name == "pow":
        top = 127 if dtype == "float32" else 1022
        x = np.concatenate([np.exp2(rng.uniform(-20, 20, count)), rng.uniform(0.5, 2, count)])
        return x, rng.uniform(-top - 20, top, x.size) / np.log2(x)
    other = _all_binades(rng, dtype, count)
    size = min(count, other.size)
    near = rng.normal(size=(2, count))
    return [np.concatenate([v[:size], n]) for v, n in zip((wide, other), near)]


def worst_error(compiled: CompiledMath, args: Sequence[Array]) -> tuple[float, tuple[float, ...]]:
    """Return the largest error in ulp and where it is."""
    import mpmath as mp

    spec, exact_function = MATH_FUNCTIONS[compiled.name], exact_functions()[compiled.name]
    fmt = FORMATS[compiled.dtype]
    mantissa, lowest, top = fmt.mantissa + 1, 1 - fmt.bias - fmt.mantissa, fmt.bias + 1
    worst = 0.0
    where: tuple[float, ...] = ()
    for got, *point in zip(compiled(*args), *args):
        values = [float(v) for v in point]
        big = compiled.name in ("sin", "cos", "tan") and abs(values[0]) > 1e6
        with mp.workprec(1250 if big else 140):
            exact = exact_function(*(mp.mpf(v) for v in values))
            size = abs(exact)
            if spec.scale == "operand":
                size = max(size, abs(mp.mpf(values[0])))
            exponent = max(mp.frexp(size)[1] - mantissa, lowest) if size else lowest
            if size + mp.mpf(2) ** (exponent - 1) >= mp.mpf(2) ** top:
                error = 0.0 if math.isinf(got) else math.inf
            elif not math.isfinite(got):
                error = math.inf
            else:
                error = float(abs(mp.mpf(float(got)) - exact) / mp.mpf(2) ** exponent)
        if error > worst:
            worst, where = error, tuple(values)
    return worst, where
