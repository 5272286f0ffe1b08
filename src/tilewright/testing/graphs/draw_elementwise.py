"""Operators element by element: tables of names, meanings in NumPy and units of error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import relax
from tilewright.relax import op
from tilewright.testing.graphs.data import FLOATS, HALVES, INTEGERS, numpy_dtype
from tilewright.testing.graphs.graph import Graph, Value
from tilewright.testing.graphs.width import wide

_erf = np.vectorize(math.erf, otypes=["float64"])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    made: np.ndarray = 1 / (1 + np.exp(-x))
    return made


FLOAT_UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "exp": (op.exp, np.exp, 8),
    "log": (op.log, np.log, 8),
    "log2": (op.log2, np.log2, 8),
    "log1p": (op.log1p, np.log1p, 8),
    "exp2": (op.exp2, np.exp2, 8),
    "sqrt": (op.sqrt, np.sqrt, 2),
    "rsqrt": (op.rsqrt, lambda x: 1 / np.sqrt(x), 8),
    "tanh": (op.tanh, np.tanh, 8),
    "sigmoid": (op.sigmoid, _sigmoid, 8),
    "erf": (op.erf, lambda x: _erf(x) if x.size else x, 8),
    "sin": (op.sin, np.sin, 8),
    "cos": (op.cos, np.cos, 8),
    "tan": (op.tan, np.tan, 16),
    "sinh": (op.sinh, np.sinh, 16),
    "cosh": (op.cosh, np.cosh, 16),
    "asin": (op.asin, np.arcsin, 8),
    "acos": (op.acos, np.arccos, 8),
    "atan": (op.atan, np.arctan, 8),
    "floor": (op.floor, np.floor, 0),
    "ceil": (op.ceil, np.ceil, 0),
    "trunc": (op.trunc, np.trunc, 0),
    "round": (op.round, np.round, 0),
    "reciprocal": (op.reciprocal, lambda x: 1 / x, 2),
    "gelu": (op.nn.gelu, lambda x: _gelu(x), 64),
    "gelu_tanh": (op.nn.gelu_tanh, lambda x: _gelu_tanh(x), 64),
    "relu6": (op.nn.relu6, lambda x: np.clip(x, 0, 6), 0),
    "softplus": (op.nn.softplus, lambda x: np.where(x > 20, x, np.logaddexp(x, 0)), 16),
    "hard_sigmoid": (op.nn.hard_sigmoid, lambda x: np.clip(x + 3, 0, 6) / 6, 16),
    "hard_swish": (op.nn.hard_swish, lambda x: x * (np.clip(x + 3, 0, 6) / 6), 16),
    "silu": (op.nn.silu, lambda x: x * _sigmoid(x), 16),
}
"""Operators of floating-point numbers: meaning in float64, and units in the last place."""


def _gelu(x: np.ndarray) -> np.ndarray:
    made: np.ndarray = 0.5 * x * (1 + (_erf(x * math.sqrt(0.5)) if x.size else x))
    return made


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    made: np.ndarray = 0.5 * x * (1 + np.tanh(inner))
    return made


ANY_UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "abs": (op.abs, np.abs, 0),
    "negative": (op.negative, np.negative, 0),
    "square": (op.square, np.square, 1),
    "sign": (op.sign, lambda x: np.where(x != x, 0, np.sign(x)), 0),  # of NaN as PyTorch
    "relu": (op.nn.relu, lambda x: np.maximum(x, x.dtype.type(0)), 0),
}


_CANCEL = ("gelu", "gelu_tanh", "hard_swish", "hard_sigmoid")
"""Operators that add terms of either sign, so that small results have larger errors."""


def _units(noise: float, dtype: str) -> float:
    """One rounding of a result is the same everywhere; wider chains may be joined or reordered."""
    return 0.0 if noise <= 2 and dtype in HALVES else noise


def draw_unary(g: Graph) -> list[Value] | None:
    """One of the operators on one operand."""
    x = g.pick(lambda v: v.dtype != "bool")
    if x is None:
        return None
    table = {**FLOAT_UNARY, **ANY_UNARY} if x.dtype in FLOATS else ANY_UNARY
    name = g.rng.choice(list(table))
    build, meaning, noise = table[name]
    units = _units(noise, x.dtype) if x.dtype in FLOATS else 0.0
    ill = name in ("log", "log2", "sin", "cos", "tan", "asin", "acos", "gelu", "gelu_tanh")
    return g.emit(
        name, [x], build, lambda size, a: meaning(wide(a)), noise=units, reduces=ill and units > 0,
        absolute=4 if name in _CANCEL else 0, either_zero=name in ("relu", "relu6"),
    )  # fmt: skip


def draw_clip(g: Graph) -> list[Value] | None:
    """Limits at either side."""
    x = g.pick(lambda v: v.dtype != "bool")
    if x is None:
        return None
    low = g.rng.choice([-2, 0, 1])
    low = max(low, 0) if x.dtype.startswith("u") else low
    high = low + g.rng.choice([0, 1, 3, 100])
    return g.emit(
        "clip", [x], lambda a: op.clip(a, low, high), lambda size, a: np.clip(a, low, high)
    )


def draw_leaky_relu(g: Graph) -> list[Value] | None:
    """A slope for negative numbers."""
    x = g.pick(lambda v: v.dtype in FLOATS)
    if x is None:
        return None
    alpha = float(numpy_dtype(x.dtype).type(g.rng.choice([0.01, 0.5, 2.0])))
    return g.emit(
        "leaky_relu", [x], lambda a: op.nn.leaky_relu(a, alpha),
        lambda size, a: np.where(wide(a) > 0, wide(a), wide(a) * alpha), noise=2,
    )  # fmt: skip


def draw_tests(g: Graph) -> list[Value] | None:
    """``logical_not`` and ``isnan``."""
    x = g.pick(lambda v: v.dtype == "bool" or v.dtype in FLOATS)
    if x is None:
        return None
    if x.dtype == "bool":
        return g.emit("logical_not", [x], op.logical_not, lambda size, a: np.logical_not(a))
    return g.emit("isnan", [x], op.isnan, lambda size, a: np.isnan(a))


def draw_astype(g: Graph) -> list[Value] | None:
    """Another dtype; floating-point numbers are limited before they become integers."""
    x = g.pick()
    if x is None:
        return None
    dtype = g.rng.choice(["float32", "float32", "float16", "bfloat16", "float64", "int32", "int64",
                          "int8", "uint8", "bool"])  # fmt: skip
    if x.dtype in FLOATS and dtype not in (*FLOATS, "bool"):
        x = _limited(g, x, 0 if dtype == "uint8" else -100, 100)
    kind = numpy_dtype(dtype)
    return g.emit("astype", [x], lambda a: op.astype(a, dtype), lambda size, a: a.astype(kind))


def _limited(g: Graph, x: Value, low: int, high: int) -> Value:
    """Numbers between limits, 0 for NaN."""
    zero = relax.const(np.zeros((), numpy_dtype(x.dtype)))
    test = g.emit("isnan", [x], op.isnan, lambda size, a: np.isnan(a))[0]
    number = g.emit(
        "where", [test, x], lambda c, a: op.where(c, zero, a),
        lambda size, c, a: np.where(c, a.dtype.type(0), a),
    )[0]  # fmt: skip
    return g.emit(
        "clip", [number], lambda a: op.clip(a, low, high), lambda size, a: np.clip(a, low, high)
    )[0]


# ---- two operands ------------------------------------------------------------------------------


def _trunc_divide(a: np.ndarray, b: np.ndarray) -> object:
    if a.dtype.kind not in "iu":
        return a / b
    with np.errstate(all="ignore"):
        floored, rest = np.floor_divide(a, b), np.mod(a, b)
        towards_zero = (rest != 0) & ((a < 0) != (b < 0)) & (b != 0)
        return (floored + towards_zero.astype(a.dtype)).astype(a.dtype)


BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "add": (op.add, np.add, 1),
    "subtract": (op.subtract, np.subtract, 1),
    "multiply": (op.multiply, np.multiply, 1),
    "divide": (op.divide, _trunc_divide, 2),
    "floor_divide": (op.floor_divide, np.floor_divide, 4),
    "power": (op.power, np.power, 64),
    "maximum": (op.maximum, np.maximum, 0),
    "minimum": (op.minimum, np.minimum, 0),
    "floor_mod": (op.floor_mod, np.mod, 0),
    "mod": (op.mod, np.fmod, 0),
}
COMPARE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "equal": (op.equal, np.equal),
    "not_equal": (op.not_equal, np.not_equal),
    "less": (op.less, np.less),
    "less_equal": (op.less_equal, np.less_equal),
    "greater": (op.greater, np.greater),
    "greater_equal": (op.greater_equal, np.greater_equal),
}


def _partner(g: Graph, x: Value) -> Value:
    """A value that broadcasts against another, mostly a new one."""
    same = g.pick(lambda v: v.dtype == x.dtype and v is not x and _broadcasts(v, x))
    if same is not None and g.rng.random() < 0.6:
        return same
    shape = list(x.shape)
    for axis in range(len(shape)):
        if g.rng.random() < 0.25:
            shape[axis] = 1  # type: ignore[call-overload]
    cut = g.rng.choice([0, 0, 0, 1, 2])
    return g.fresh(shape[cut:], x.dtype, constant=0.5)


def _broadcasts(a: Value, b: Value) -> bool:
    if a.numbers is None or b.numbers is None:
        return False
    return all(p == q or 1 in (p, q) for p, q in zip(a.numbers[::-1], b.numbers[::-1]))


def draw_binary(g: Graph) -> list[Value] | None:
    """One of the operators on two operands."""
    x = g.pick(lambda v: v.dtype != "bool")
    if x is None:
        return None
    y = _partner(g, x)
    if g.rng.random() < 0.3:
        x, y = y, x
    is_float = x.dtype in FLOATS
    # Remainders of floats jump by the divisor where an operand was rounded otherwise.
    names = [n for n in BINARY if not (is_float and n in ("floor_mod", "mod"))]
    if not is_float:
        names.remove("power")
    if g.rng.random() < 0.2:
        name = g.rng.choice(list(COMPARE))
        build, meaning = COMPARE[name]
        return g.emit(name, [x, y], build, lambda size, a, b: meaning(a, b))
    name = g.rng.choice(names)
    build, meaning, noise = BINARY[name]
    units = _units(noise, x.dtype) if is_float else 0.0
    if name == "floor_divide" and is_float:
        # It jumps: what is rounded before it may land on the other side.
        return g.emit(
            name, [x, y], build, lambda size, a, b: meaning(wide(a), wide(b)), noise=noise,
            reduces=True,
        )  # fmt: skip
    return g.emit(
        name, [x, y], build, lambda size, a, b: meaning(wide(a), wide(b)), noise=units,
        reduces=name == "power" and is_float, either_zero=name in ("maximum", "minimum"),
    )  # fmt: skip


def draw_logical(g: Graph) -> list[Value] | None:
    """``logical_and`` and ``logical_or``."""
    x = g.pick(lambda v: v.dtype == "bool")
    if x is None:
        return None
    y = _partner(g, x)
    if g.rng.random() < 0.5:
        return g.emit("logical_and", [x, y], op.logical_and, lambda size, a, b: a & b)
    return g.emit("logical_or", [x, y], op.logical_or, lambda size, a, b: a | b)


def draw_where(g: Graph) -> list[Value] | None:
    """A choice by a condition; all three broadcast."""
    test = g.pick(lambda v: v.dtype == "bool")
    if test is None:
        return None
    dtype = g.rng.choice([*FLOATS, *INTEGERS[:4]])
    a = g.pick(lambda v: v.dtype == dtype and _broadcasts(v, test))
    a = a or g.fresh(test.shape, dtype)
    if not _broadcasts(a, test) and a.shape is not test.shape and a.numbers is not None:
        return None
    b = g.fresh([1] * min(a.ndim, test.ndim), dtype)
    return g.emit("where", [test, a, b], op.where, lambda size, c, p, q: np.where(c, p, q))


def draw_chain(g: Graph) -> list[Value] | None:
    """A few operators of one kind in a row, as halves overflow and round in."""
    x = g.pick(lambda v: v.dtype in FLOATS)
    if x is None:
        return None
    made = [x]
    for _ in range(g.rng.randint(2, 4)):
        name = g.rng.choice(["add", "multiply", "divide", "subtract"])
        number = g.rng.choice([3.0, 0.1, 65504.0, 1e-3, 1000.0, -7.0])
        build, meaning, noise = BINARY[name]
        kind = numpy_dtype(x.dtype)
        by = np.asarray(number).astype(kind)
        made = g.emit(
            name, [made[0]], lambda a, build=build, by=by: build(a, relax.const(by)),
            lambda size, a, meaning=meaning, by=by: meaning(wide(a), wide(by)),
            noise=_units(noise, x.dtype),
        )  # fmt: skip
    return made


DRAWERS: dict[str, tuple[Callable[[Graph], Any], float]] = {
    "unary": (draw_unary, 3.0),
    "binary": (draw_binary, 4.0),
    "clip": (draw_clip, 0.4),
    "leaky_relu": (draw_leaky_relu, 0.2),
    "tests": (draw_tests, 0.4),
    "astype": (draw_astype, 1.0),
    "logical": (draw_logical, 0.6),
    "where": (draw_where, 0.8),
    "chain": (draw_chain, 0.5),
}
