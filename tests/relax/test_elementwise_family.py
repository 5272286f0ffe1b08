"""Element-wise operators against NumPy and SciPy: each list is one graph, compiled once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from tests.relax.helpers import graph_of
from tilewright import relax
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError

Operators = dict[str, tuple[Callable[..., Any], Callable[..., Any]]]

AWKWARD = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-30, -3e30, 2.0, -2.5, 0.5, 65504]
DTYPES = {"float32": 4, "float64": 16, "float16": 2, "bfloat16": 2}
"""Units in the last place by which a result of some dtype may be away."""


def kind(dtype: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def results(operators: Operators, arrays: list[np.ndarray], run: Callable[..., Any]) -> Any:
    mod = graph_of(lambda *v: relax.Tuple(tuple(f(*v) for f, _ in operators.values())), *arrays)
    return run(mod)(*arrays)


def compiled(mod: Any) -> Any:
    return relax.build(mod)


def interpreted(mod: Any) -> Any:
    return lambda *arrays: interpreter.run(mod, *arrays)


def check(
    operators: Operators, arrays: list[np.ndarray], units: float, run: Callable[..., Any] = compiled
) -> None:
    wide = [a.astype("float64") if a.dtype.kind in "fV" else a for a in arrays]
    for (name, (_, reference)), found in zip(operators.items(), results(operators, arrays, run)):
        found = np.asarray(found)
        with np.errstate(all="ignore"):
            expected = np.asarray(reference(*wide)).astype(found.dtype)
        assert found.shape == expected.shape, name
        if found.dtype.kind not in "fV":
            np.testing.assert_array_equal(found, expected, name)
            continue
        eps = float(ml_dtypes.finfo(found.dtype).eps)
        tiny = float(ml_dtypes.finfo(found.dtype).smallest_normal)
        np.testing.assert_allclose(
            found.astype("float64"), expected.astype("float64"), eps * units, tiny, err_msg=name
        )


def _mish(x: Any) -> Any:
    return x * np.tanh(np.logaddexp(x, 0))


def _elu(alpha: float, scale: float = 1.0, slope: float = 1.0) -> Callable[[Any], Any]:
    return lambda x: scale * np.where(x > 0, x, alpha * np.expm1(slope * np.minimum(x, 0)))


UNARY: Operators = {
    "acosh": (op.acosh, np.arccosh),
    "asinh": (op.asinh, np.arcsinh),
    "atanh": (op.atanh, np.arctanh),
    "log10": (op.log10, np.log10),
    "exp10": (op.exp10, lambda x: np.power(10.0, x)),
    "expm1": (op.expm1, np.expm1),
    "log1p": (op.log1p, np.log1p),
    "erfc": (op.erfc, special.erfc),
    "erfinv": (op.erfinv, special.erfinv),
    "isinf": (op.isinf, np.isinf),
    "isfinite": (op.isfinite, np.isfinite),
    "signbit": (op.signbit, np.signbit),
    "logical_not": (op.logical_not, np.logical_not),
    "mish": (op.nn.mish, _mish),
    "softsign": (op.nn.softsign, lambda x: x / (1 + np.abs(x))),
    "log_sigmoid": (op.nn.log_sigmoid, lambda x: -np.logaddexp(0, -x)),
    "elu": (lambda x: op.nn.elu(x, 0.7), _elu(0.7)),
    "celu": (lambda x: op.nn.celu(x, 2.0), _elu(2.0, 1.0, 0.5)),
    "selu": (op.nn.selu, _elu(1.6732632423543772, 1.0507009873554805)),
    "hardtanh": (lambda x: op.nn.hardtanh(x, -0.5, 2.0), lambda x: np.clip(x, -0.5, 2)),
    "threshold": (
        lambda x: op.nn.threshold(x, 0.5, 7.0),
        lambda x: np.where(x <= 0.5, 7, x),
    ),
    "hardshrink": (
        lambda x: op.nn.hardshrink(x, 0.5),
        lambda x: np.where(np.abs(x) <= 0.5, 0, x),
    ),
    "softshrink": (
        lambda x: op.nn.softshrink(x, 0.5),
        lambda x: x - np.clip(x, -0.5, 0.5) if np.isfinite(x).all() else np.where(
            np.abs(x) > 0.5, x - np.sign(x) * 0.5, np.where(np.isnan(x), x, 0)
        ),
    ),
    "tanhshrink": (op.nn.tanhshrink, lambda x: x - np.tanh(x)),
    "clip_below": (lambda x: op.clip(x, min=-1.0), lambda x: np.maximum(x, -1)),
    "clip_above": (lambda x: op.clip(x, max=0.5), lambda x: np.minimum(x, 0.5)),
    "nan_to_num": (lambda x: op.nan_to_num(x, 3.0, 5.0, -5.0),
                   lambda x: np.nan_to_num(x, nan=3, posinf=5, neginf=-5)),
}  # fmt: skip

# Derivatives and logarithms of the gamma function have roots: float64 isn't relative there.
GAMMA: Operators = {
    "lgamma": (op.lgamma, lambda x: np.where(np.isinf(x), np.inf, special.gammaln(x))),
    "digamma": (
        op.digamma,
        lambda x: np.where(x == 0, np.copysign(np.inf, -x), special.digamma(x)),
    ),
}

BINARY: Operators = {
    "atan2": (op.atan2, np.arctan2),
    "hypot": (op.hypot, np.hypot),
    "copysign": (op.copysign, np.copysign),
    "log_add_exp": (op.log_add_exp, np.logaddexp),
    "trunc_divide": (op.trunc_divide, lambda a, b: np.trunc(a / b)),
    "logical_and": (op.logical_and, np.logical_and),
    "logical_or": (op.logical_or, np.logical_or),
    "logical_xor": (op.logical_xor, np.logical_xor),
    "clip": (op.clip, np.maximum),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_unary(dtype: str) -> None:
    x = np.concatenate([AWKWARD, np.random.default_rng(0).standard_normal(40) * 2])
    with np.errstate(over="ignore"):
        check(UNARY, [x.astype(kind(dtype))], DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_gamma(dtype: str) -> None:
    x = np.concatenate([[0, -0.0, 1, 2, 3, 171, np.inf, np.nan, 1e-5], np.linspace(0.3, 41.3, 42)])
    check(GAMMA, [x.astype(kind(dtype))], DTYPES[dtype])
    below = np.array([-0.1, -0.7, -1.25, -2.3, -9.6, -30.5])
    check(GAMMA, [below.astype(kind(dtype))], 8 * DTYPES[dtype])


def test_poles_of_gamma() -> None:
    x = np.array([-1.0, -2.0, -np.inf], "float32")
    lgamma, digamma = results(GAMMA, [x], compiled)
    np.testing.assert_array_equal(np.asarray(lgamma), np.inf)
    assert np.isnan(np.asarray(digamma)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_binary(dtype: str) -> None:
    values = np.array(AWKWARD)
    with np.errstate(over="ignore"):
        x, y = (v.astype(kind(dtype)) for v in (values[:, None], values[None, ::-1].copy()))
    check(BINARY, [x, y], DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_nextafter(dtype: str) -> None:
    with np.errstate(over="ignore"):
        values = np.array([*AWKWARD, 1e-45]).astype(kind(dtype))
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    (found,) = results({"nextafter": (op.nextafter, np.nextafter)}, [x, y], compiled)
    expected = np.nextafter(x, y)
    np.testing.assert_array_equal(np.asarray(found).astype("float64"), expected.astype("float64"))


def test_the_interpreter_agrees() -> None:
    x = np.concatenate([AWKWARD, np.linspace(-3, 3, 15)]).astype("float32")
    check(UNARY, [x], 4, interpreted)
    check(GAMMA, [np.abs(x)], 4, interpreted)
    check(BINARY, [x, x[::-1].copy()], 4, interpreted)


# ---- integers -----------------------------------------------------------------------------------

INTEGERS = ("int64", "uint64", "int32", "int16", "int8", "uint8")


def wrapped(values: list[int], dtype: str) -> np.ndarray:
    return np.array([v % 2 ** np.iinfo(dtype).bits for v in values], "uint64").astype(dtype)


def extremes(dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.array([0, 1, 2, 3, 5, 7, limits.max, limits.min, limits.max - 1], dtype)


def _power(x: int, y: int, bits: int) -> int:
    if y >= 0:
        return pow(x, y, 2**bits)
    return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    values = extremes(dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    width = np.iinfo(dtype).bits
    moved = [int(b) if 0 <= b < width else width for b in y]
    operators: Operators = {
        "and": (op.bitwise_and, np.bitwise_and),
        "or": (op.bitwise_or, np.bitwise_or),
        "xor": (op.bitwise_xor, np.bitwise_xor),
        "not": (lambda a, b: op.bitwise_not(a), lambda a, b: ~a),
        "left": (op.left_shift, lambda a, b: wrapped(
            [int(v) << m if m < width else 0 for v, m in zip(a, moved)], dtype)),
        "right": (op.right_shift, lambda a, b: wrapped(
            [int(v) >> m for v, m in zip(a, moved)], dtype)),
        "logical_xor": (op.logical_xor, np.logical_xor),
        "power": (op.power, lambda a, b: wrapped(
            [_power(int(v), int(w), width) for v, w in zip(a, b)], dtype)),
        "fifth": (lambda a, b: op.power(a, relax.const(np.array(5, dtype))),
                  lambda a, b: wrapped([int(v) ** 5 for v in a], dtype)),
        "signbit": (lambda a, b: op.signbit(a), lambda a, b: a < 0),
    }  # fmt: skip
    check(operators, [x, y], 0)


def test_truth_values_have_bits() -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    check(
        {
            "and": (op.bitwise_and, np.bitwise_and),
            "or": (op.bitwise_or, np.bitwise_or),
            "xor": (op.bitwise_xor, np.bitwise_xor),
            "not": (lambda a, b: op.bitwise_not(a), lambda a, b: ~a),
        },
        [x, y],
        0,
    )


# ---- operands of other shapes -------------------------------------------------------------------


def test_slopes_and_gates() -> None:
    x = np.random.default_rng(1).standard_normal((2, 4, 3)).astype("float32")
    slopes = np.array([0.1, 0.2, -1.0, 3.0], "float32")
    column = slopes[:, None]
    halves = (x[:, :2], x[:, 2:])
    operators: Operators = {
        "prelu": (op.nn.prelu, lambda a, s: np.where(a > 0, a, a * column)),
        "one": (lambda a, s: op.nn.prelu(a, op.strided_slice(s, [0], [1], [2])),
                lambda a, s: np.where(a > 0, a, a * slopes[1])),
        "glu": (lambda a, s: op.nn.glu(a, 1), lambda a, s: halves[0] * special.expit(halves[1])),
        "clip": (lambda a, s: op.clip(a, op.reshape(s, (4, 1)), 0.5),
                 lambda a, s: np.minimum(np.maximum(a, column), 0.5)),
    }  # fmt: skip
    check(operators, [x, slopes], 8)
    empty = np.zeros((0, 4, 3), "float32")
    assert np.asarray(results(operators, [empty, slopes], compiled)[0]).shape == (0, 4, 3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: op.nn.glu(x, 0), "there are no halves of 5 elements of axis 0"),
        (lambda x: op.nn.prelu(x, np.zeros(3, "float32"), 0), "extent of alpha for axis 0"),
        (lambda x: op.nn.celu(x, 0.0), "alpha must not be zero"),
        (lambda x: op.bitwise_not(x), "takes integers or truth values, got float32"),
        (lambda x: op.bitwise_and(x, x), "takes int or uint or bool operands, got float32"),
        (lambda x: op.left_shift(x, x), "takes int or uint operands, got float32"),
        (lambda x: op.clip(x, 2, 1), "min 2 is greater than max 1"),
        (lambda x: op.hypot(op.astype(x, "int32"), op.astype(x, "int32")), "takes float operands"),
    ],
)
def test_refusals(body: Callable[..., Any], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        graph_of(body, np.zeros(5, "float32"))


# ---- gradients ----------------------------------------------------------------------------------


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    from tests.relax.test_gradients import check_with_torch

    F = torch.nn.functional
    x = np.random.default_rng(2).uniform(-0.9, 0.9, (4, 3)).astype("float32")
    y = np.random.default_rng(3).standard_normal((4, 3)).astype("float32")
    slopes = np.array([0.3, -1.0, 2.0], "float32")
    of_one: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        *((getattr(op, name), getattr(torch, name)) for name in (
            "expm1", "asinh", "atanh", "erfc", "erfinv", "lgamma")),
        *((getattr(op.nn, name), getattr(F, name)) for name in (
            "mish", "softsign", "tanhshrink", "elu", "celu", "selu", "hardshrink", "softshrink")),
        (op.nn.log_sigmoid, F.logsigmoid),
        (lambda v: op.log10(v + 2.0), lambda v: torch.log10(v + 2)),
        (lambda v: op.acosh(v + 2.0), lambda v: torch.acosh(v + 2)),
        (lambda v: op.nn.softplus(v, 3.0, 1.0), lambda v: F.softplus(v, 3.0, 1.0)),
        (lambda v: op.nn.hardtanh(v, -0.3, 0.4), lambda v: F.hardtanh(v, -0.3, 0.4)),
        (lambda v: op.nn.threshold(v, 0.1, 3.0), lambda v: F.threshold(v, 0.1, 3.0)),
        (lambda v: op.nn.glu(v, 0), lambda v: F.glu(v, 0)),
        (op.nan_to_num, torch.nan_to_num),
    ]  # fmt: skip
    for ours, theirs in of_one:
        check_with_torch(ours, theirs, [x])
    for ours, theirs in (
        (op.atan2, torch.atan2), (op.hypot, torch.hypot), (op.log_add_exp, torch.logaddexp),
        (op.copysign, torch.copysign),
    ):  # fmt: skip
        check_with_torch(ours, theirs, [x, y])
    check_with_torch(op.nn.prelu, F.prelu, [x, slopes])
