"""Operators on one tensor, element by element: a table and a few with attributes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir import dtypes
from tilewright.relax.expr import OPERATOR_SUGAR, numpy_dtype
from tilewright.relax.ops.common import tensor_like, topi_rule
from tilewright.relax.registry import Builder, InferenceError, Tensor, operator
from tilewright.relax.struct_info import StructInfo


def _float_only(name: str, numpy: Any, doc: str, topi_name: str | None = None) -> Builder:
    @operator(name, legalize=topi_rule(topi_name or name), numpy=numpy)
    def rule(x: Tensor) -> StructInfo:
        info: Any = x
        if not dtypes.is_float(info.dtype):
            raise InferenceError(f"needs floating-point numbers, got {info.dtype}")
        return tensor_like(info)

    rule.__doc__ = doc
    return rule


def _any_number(name: str, numpy: Any, doc: str, topi_name: str | None = None) -> Builder:
    @operator(name, legalize=topi_rule(topi_name or name), numpy=numpy)
    def rule(x: Tensor) -> StructInfo:
        return tensor_like(x)  # type: ignore[arg-type]

    rule.__doc__ = doc
    return rule


def _test(name: str, numpy: Any, doc: str) -> Builder:
    @operator(name, legalize=topi_rule(name), numpy=numpy)
    def rule(x: Tensor) -> StructInfo:
        return tensor_like(x, dtype="bool")  # type: ignore[arg-type]

    rule.__doc__ = doc
    return rule


def _like(x: Any, value: Any) -> Any:
    return np.asarray(value).astype(x.dtype)


def _erf(x: Any) -> Any:
    return _like(x, np.vectorize(math.erf, otypes=["float64"])(x) if x.size else x)


exp = _float_only("exp", np.exp, "e to the power of x.")
log = _float_only("log", np.log, "Natural logarithm.")
log2 = _float_only("log2", np.log2, "Logarithm to base 2.")
log1p = _float_only("log1p", np.log1p, "Natural logarithm of 1 + x, accurate near zero.")
exp2 = _float_only("exp2", np.exp2, "2 to the power of x.")
sqrt = _float_only("sqrt", np.sqrt, "Square root.")
rsqrt = _float_only("rsqrt", lambda x: _like(x, 1 / np.sqrt(x)), "1 / sqrt(x).")
tanh = _float_only("tanh", np.tanh, "Hyperbolic tangent.")
sigmoid = _float_only("sigmoid", lambda x: _like(x, 1 / (1 + np.exp(-x))), "1 / (1 + exp(-x)).")
erf = _float_only("erf", _erf, "Error function.")
sin = _float_only("sin", np.sin, "Sine.")
cos = _float_only("cos", np.cos, "Cosine.")
tan = _float_only("tan", np.tan, "Tangent.")
sinh = _float_only("sinh", np.sinh, "Hyperbolic sine.")
cosh = _float_only("cosh", np.cosh, "Hyperbolic cosine.")
asin = _float_only("asin", np.arcsin, "Inverse sine.")
acos = _float_only("acos", np.arccos, "Inverse cosine.")
atan = _float_only("atan", np.arctan, "Inverse tangent.")
floor = _float_only("floor", np.floor, "Round down.")
ceil = _float_only("ceil", np.ceil, "Round up.")
trunc = _float_only("trunc", np.trunc, "Round towards zero.")
round = _float_only("round", np.round, "Round to the nearest integer, ties to even.")
reciprocal = _float_only("reciprocal", lambda x: _like(x, 1 / x), "1 / x.")
abs = _any_number("abs", np.abs, "Absolute value.")
negative = _any_number("negative", np.negative, "-x.")
square = _any_number("square", np.square, "x * x.")
sign = _any_number(
    "sign",
    lambda x: x if x.dtype == bool else np.sign(np.where(x == x, x, _like(x, 0))),
    "-1, 0 or 1.",
)
logical_not = _test("logical_not", np.logical_not, "Truth value turned round.")
isnan = _test("isnan", np.isnan, "Whether an element is NaN.")


@operator(
    "astype",
    legalize=lambda x, dtype: topi_rule("cast")(x, dtype),
    numpy=lambda x, dtype: x.astype(numpy_dtype(dtype)),
)
def astype(x: Tensor, dtype: str) -> StructInfo:
    """Convert to another dtype."""
    dtypes.split_dtype(dtype)
    return tensor_like(x, dtype=dtype)  # type: ignore[arg-type]


@operator(
    "clip",
    legalize=lambda x, min, max: topi_rule("clip")(x, min, max),
    numpy=lambda x, min, max: np.clip(x, min, max).astype(x.dtype),
)
def clip(x: Tensor, min: float, max: float) -> StructInfo:
    """Limit elements to ``[min, max]``."""
    if min > max:
        raise InferenceError(f"min {min} is greater than max {max}")
    return tensor_like(x)  # type: ignore[arg-type]


def _gelu(x: Any) -> Any:
    return _like(x, 0.5 * x * (1 + _erf(x * math.sqrt(0.5))))


def _gelu_tanh(x: Any) -> Any:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return _like(x, 0.5 * x * (1 + np.tanh(inner)))


relu = _any_number("nn.relu", lambda x: np.maximum(x, _like(x, 0)), "max(x, 0).")
gelu = _float_only("nn.gelu", _gelu, "x * Phi(x), with the normal distribution's Phi by erf.")
gelu_tanh = _float_only("nn.gelu_tanh", _gelu_tanh, "GELU by its tanh approximation.")
relu6 = _float_only("nn.relu6", lambda x: np.clip(x, 0, 6).astype(x.dtype), "x limited to [0, 6].")
softplus = _float_only("nn.softplus", lambda x: _like(x, np.logaddexp(x, 0)), "log(1 + exp(x)).")
hard_sigmoid = _float_only(
    "nn.hard_sigmoid", lambda x: _like(x, np.clip(x + 3, 0, 6) / 6), "x / 6 + 1 / 2 within [0, 1]."
)
hard_swish = _float_only(
    "nn.hard_swish", lambda x: _like(x, x * np.clip(x + 3, 0, 6) / 6), "x * hard_sigmoid(x)."
)
silu = _float_only("nn.silu", lambda x: _like(x, x / (1 + np.exp(-x))), "x * sigmoid(x).")


@operator(
    "nn.leaky_relu",
    legalize=lambda x, alpha: topi_rule("nn.leaky_relu")(x, alpha),
    numpy=lambda x, alpha: _like(x, np.where(x > 0, x, x * alpha)),
)
def leaky_relu(x: Tensor, alpha: float = 0.01) -> StructInfo:
    """X where positive, else alpha * x."""
    return tensor_like(x)  # type: ignore[arg-type]


@operator("nn.dropout", decompose=lambda call: call.args[0])
def dropout(x: Tensor, rate: float = 0.5) -> StructInfo:
    """Identity: graphs are compiled for inference."""
    if not 0 <= rate < 1:
        raise InferenceError(f"rate must be in [0, 1), got {rate}")
    return tensor_like(x)  # type: ignore[arg-type]


OPERATOR_SUGAR["negative"] = negative
