"""More operators element by element: special functions, bits, tests, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.relax import op
from tilewright.testing.graphs.data import FLOATS, INTEGERS, numpy_dtype
from tilewright.testing.graphs.graph import Graph, Value
from tilewright.testing.graphs.width import wide

Table = dict[str, tuple[Callable[..., Any], Callable[..., Any]]]

_erfc = np.vectorize(math.erfc, otypes=["float64"])


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


def _below(x: np.ndarray) -> np.ndarray:
    made: np.ndarray = np.expm1(np.minimum(x, 0))
    return made


def _of_any(function: Callable[..., object]) -> Callable[..., Any]:
    return lambda x: function(x) if x.size else x


UNARY: Table = {
    "acosh": (op.acosh, np.arccosh),
    "asinh": (op.asinh, np.arcsinh),
    "atanh": (op.atanh, np.arctanh),
    "log10": (op.log10, np.log10),
    "exp10": (op.exp10, lambda x: np.power(10.0, x)),
    "expm1": (op.expm1, np.expm1),
    "erfc": (op.erfc, _of_any(_erfc)),
    "lgamma": (op.lgamma, _of_any(np.vectorize(_lgamma, otypes=["float64"]))),
    "mish": (op.nn.mish, lambda x: np.where(x < -700, 0, x * np.tanh(np.logaddexp(x, 0)))),
    "softsign": (op.nn.softsign, lambda x: x / (1 + np.abs(x))),
    "log_sigmoid": (op.nn.log_sigmoid, lambda x: -np.logaddexp(0, -x)),
    "elu": (op.nn.elu, lambda x: np.where(x > 0, x, _below(x))),
    "celu": (lambda x: op.nn.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * _below(x / 2))),
    "selu": (
        lambda x: op.nn.selu(x, 1.5, 2.0),
        lambda x: np.where(x > 0, 2 * x, 3.0 * _below(x)),
    ),
    "tanhshrink": (op.nn.tanhshrink, lambda x: x.astype("float64") - np.tanh(x.astype("float64"))),
}
"""Functions of floating-point numbers: meaning in float64; results may be ill-conditioned."""

EXACT: Table = {
    "hardtanh": (lambda x: op.nn.hardtanh(x, -1, 2), lambda x: np.clip(x, -1, 2)),
    "threshold": (
        lambda x: op.nn.threshold(x, 0.5, 2.0),
        lambda x: np.where(x <= 0.5, x.dtype.type(2), x),
    ),
    "hardshrink": (op.nn.hardshrink, lambda x: np.where(np.abs(x) <= 0.5, x.dtype.type(0), x)),
    "isinf": (op.isinf, np.isinf),
    "isfinite": (op.isfinite, np.isfinite),
    "nan_to_num": (
        lambda x: op.nan_to_num(x, 1.0, 2.0, -2.0),
        lambda x: np.nan_to_num(x.astype("float64"), nan=1, posinf=2, neginf=-2),
    ),
}

BITS: Table = {
    "bitwise_and": (op.bitwise_and, np.bitwise_and),
    "bitwise_or": (op.bitwise_or, np.bitwise_or),
    "bitwise_xor": (op.bitwise_xor, np.bitwise_xor),
}


def draw_function(g: Graph) -> list[Value] | None:
    """A function of floats; its errors are as those of its operand, moved."""
    x = g.pick(lambda v: v.dtype in FLOATS)
    if x is None:
        return None
    if g.rng.random() < 0.3:
        name = g.rng.choice(list(EXACT))
        build, meaning = EXACT[name]
        return g.emit(name, [x], build, lambda size, a: meaning(a))
    name = g.rng.choice(list(UNARY))
    build, meaning = UNARY[name]
    return g.emit(
        name, [x], build, lambda size, a: meaning(wide(a)), noise=16, reduces=True, absolute=4
    )


def draw_of_numbers(g: Graph) -> list[Value] | None:
    """Functions whose operand is drawn for them: ``erfinv``, ``digamma``, ``softshrink``."""
    dtype = g.rng.choice(FLOATS)
    shape = [g.rng.choice([1, 3, 8, 17]) for _ in range(2)]
    x = g.fresh(shape, dtype, likes="positive")
    name = g.rng.choice(["erfinv", "digamma", "softshrink"])
    if name == "softshrink":
        return g.emit(
            name, [x], op.nn.softshrink,
            lambda size, a: np.sign(wide(a)) * np.maximum(np.abs(wide(a)) - 0.5, 0), noise=2,
            absolute=2,
        )  # fmt: skip
    if name == "erfinv":  # of numbers below 1 / 2, whose error function this is
        return g.emit(
            name, [x], lambda a: op.erf(op.erfinv(op.divide(a, op.add(op.add(a, a), 1.0)))),
            lambda size, a: wide(a) / (wide(a) * 2 + 1), noise=16, reduces=True, absolute=8,
        )  # fmt: skip
    return g.emit(
        name, [x], lambda a: op.subtract(op.digamma(op.add(a, 1.0)), op.digamma(a)),
        lambda size, a: 1 / wide(a), noise=16, reduces=True, absolute=64,
    )  # fmt: skip


def draw_tests_of_numbers(g: Graph) -> list[Value] | None:
    """``signbit`` and the logical operators of numbers."""
    x = g.pick(lambda v: v.dtype in INTEGERS[:4])
    if x is None:
        return None
    if g.rng.random() < 0.3:
        return g.emit("signbit", [x], op.signbit, lambda size, a: a < 0)
    y = g.fresh(x.shape, x.dtype)
    return g.emit("logical_xor", [x, y], op.logical_xor, lambda size, a, b: np.logical_xor(a, b))


def draw_bits(g: Graph) -> list[Value] | None:
    """Operators on bits, shifts and powers of integers."""
    x = g.pick(lambda v: v.dtype in INTEGERS)
    if x is None:
        return None
    name = g.rng.choice([*BITS, "bitwise_not", "left_shift", "right_shift", "power"])
    if name == "bitwise_not":
        return g.emit(name, [x], op.bitwise_not, lambda size, a: ~a)
    if name in BITS:
        build, meaning = BITS[name]
        y = g.fresh(x.shape, x.dtype)
        return g.emit(name, [x, y], build, lambda size, a, b: meaning(a, b))
    number = np.array(g.rng.choice([0, 1, 3, 5, 7]), numpy_dtype(x.dtype))
    return g.emit(
        name, [x], lambda a: getattr(op, name)(a, number),
        lambda size, a: getattr(np, name)(a, number),
    )  # fmt: skip


def draw_pairs(g: Graph) -> list[Value] | None:
    """Functions of two floats."""
    x = g.pick(lambda v: v.dtype in FLOATS)
    if x is None:
        return None
    y = g.fresh(x.shape, x.dtype)
    name = g.rng.choice(["atan2", "hypot", "copysign", "log_add_exp", "trunc_divide", "nextafter"])
    if name == "copysign":
        return g.emit(name, [x, y], op.copysign, lambda size, a, b: np.copysign(a, b))
    if name == "nextafter":
        return g.emit(name, [x, y], op.nextafter, lambda size, a, b: np.nextafter(a, b), noise=2)
    functions: dict[str, Callable[..., Any]] = {
        "atan2": np.arctan2, "hypot": np.hypot, "log_add_exp": np.logaddexp,
        "trunc_divide": lambda a, b: np.trunc(a / b),
    }  # fmt: skip
    return g.emit(
        name, [x, y], getattr(op, name), lambda size, a, b: functions[name](wide(a), wide(b)),
        noise=16, reduces=True, absolute=4,
    )  # fmt: skip


def draw_slopes(g: Graph) -> list[Value] | None:
    """``prelu`` and ``glu``."""
    x = g.pick(lambda v: v.dtype in FLOATS and v.ndim >= 2 and v.numbers is not None)
    if x is None or x.numbers is None:
        return None
    even = [axis for axis, extent in enumerate(x.numbers) if extent % 2 == 0]
    if even and g.rng.random() < 0.5:
        axis = g.rng.choice(even)

        def gated(size: object, a: np.ndarray) -> object:
            first, second = np.split(wide(a), 2, axis)
            return first / (1 + np.exp(-second))

        return g.emit("glu", [x], lambda a: op.nn.glu(a, axis), gated, noise=16)
    slopes = g.fresh([x.numbers[1]], x.dtype, likes="tame")

    def sloped(size: object, a: np.ndarray, s: np.ndarray) -> object:
        column = wide(s).reshape((1, -1) + (1,) * (a.ndim - 2))
        return np.where(wide(a) > 0, wide(a), wide(a) * column)

    return g.emit("prelu", [x, slopes], op.nn.prelu, sloped, noise=2)


DRAWERS: dict[str, tuple[Callable[[Graph], Any], float]] = {
    "function": (draw_function, 1.5),
    "of_numbers": (draw_of_numbers, 0.3),
    "tests_of_numbers": (draw_tests_of_numbers, 0.3),
    "bits": (draw_bits, 0.6),
    "pairs": (draw_pairs, 0.6),
    "slopes": (draw_slopes, 0.3),
}
