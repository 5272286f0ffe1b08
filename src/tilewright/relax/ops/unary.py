"""Operators on one tensor, element by element: a table and a few with attributes."""

from __future__ import annotations

from tilewright import topi
from tilewright.ir import dtypes
from tilewright.relax.expr import OPERATOR_SUGAR
from tilewright.relax.ops.common import tensor_like, topi_function
from tilewright.relax.registry import Builder, Tensor, operator
from tilewright.relax.struct_info import StructInfo
from tilewright.support.errors import VerifyError


def _float_only(name: str, doc: str, topi_name: str | None = None) -> Builder:
    @operator(name, legalize=topi_function(topi_name or name))
    def rule(x: Tensor) -> StructInfo:
        if not dtypes.is_float(x.dtype):
            raise VerifyError(f"needs floating-point numbers, got {x.dtype}")
        return tensor_like(x)

    rule.__doc__ = doc
    return rule


def _any_number(name: str, doc: str, topi_name: str | None = None) -> Builder:
    @operator(name, legalize=topi_function(topi_name or name))
    def rule(x: Tensor) -> StructInfo:
        return tensor_like(x)

    rule.__doc__ = doc
    return rule


def _test(name: str, doc: str) -> Builder:
    @operator(name, legalize=topi_function(name))
    def rule(x: Tensor) -> StructInfo:
        return tensor_like(x, dtype="bool")

    rule.__doc__ = doc
    return rule


exp = _float_only("exp", "e to the power of x.")
log = _float_only("log", "Natural logarithm.")
log2 = _float_only("log2", "Logarithm to base 2.")
log1p = _float_only("log1p", "Natural logarithm of 1 + x, accurate near zero.")
exp2 = _float_only("exp2", "2 to the power of x.")
sqrt = _float_only("sqrt", "Square root.")
rsqrt = _float_only("rsqrt", "1 / sqrt(x).")
tanh = _float_only("tanh", "Hyperbolic tangent.")
sigmoid = _float_only("sigmoid", "1 / (1 + exp(-x)).")
erf = _float_only("erf", "Error function.")
sin = _float_only("sin", "Sine.")
cos = _float_only("cos", "Cosine.")
tan = _float_only("tan", "Tangent.")
sinh = _float_only("sinh", "Hyperbolic sine.")
cosh = _float_only("cosh", "Hyperbolic cosine.")
asin = _float_only("asin", "Inverse sine.")
acos = _float_only("acos", "Inverse cosine.")
atan = _float_only("atan", "Inverse tangent.")
floor = _float_only("floor", "Round down.")
ceil = _float_only("ceil", "Round up.")
trunc = _float_only("trunc", "Round towards zero.")
round = _float_only("round", "Round to the nearest integer, ties to even.")
reciprocal = _float_only("reciprocal", "1 / x.")
abs = _any_number("abs", "Absolute value.")
negative = _any_number("negative", "-x.")
square = _any_number("square", "x * x.")
sign = _any_number("sign", "-1, 0 or 1; 0 for NaN, which has none.")
logical_not = _test("logical_not", "Truth value turned round.")
isnan = _test("isnan", "Whether an element is NaN.")


@operator("astype", legalize=topi.cast)
def astype(x: Tensor, dtype: str) -> StructInfo:
    """Convert to another dtype."""
    dtypes.split_dtype(dtype)
    return tensor_like(x, dtype=dtype)


@operator(
    "clip",
    legalize=lambda x, min, max: topi.clip(x, min, max),
)
def clip(x: Tensor, min: float, max: float) -> StructInfo:
    """Limit elements to ``[min, max]``.

    Raises ``VerifyError`` if ``min`` is greater than ``max``.
    """
    if min > max:
        raise VerifyError(f"min {min} is greater than max {max}")
    return tensor_like(x)


relu = _any_number("nn.relu", "max(x, 0).")
gelu = _float_only("nn.gelu", "x * Phi(x), with the normal distribution's Phi by erf.")
gelu_tanh = _float_only("nn.gelu_tanh", "GELU by its tanh approximation.")
relu6 = _float_only("nn.relu6", "x limited to [0, 6].")
softplus = _float_only("nn.softplus", "log(1 + exp(x)).")
hard_sigmoid = _float_only("nn.hard_sigmoid", "x / 6 + 1 / 2 within [0, 1].")
hard_swish = _float_only("nn.hard_swish", "x * hard_sigmoid(x).")
silu = _float_only("nn.silu", "x * sigmoid(x).")


@operator("nn.leaky_relu", legalize=topi.nn.leaky_relu)
def leaky_relu(x: Tensor, alpha: float = 0.01) -> StructInfo:
    """``x`` where positive, else ``alpha * x``."""
    return tensor_like(x)


@operator("nn.dropout", decompose=lambda call: call.args[0])
def dropout(x: Tensor, rate: float = 0.5) -> StructInfo:
    """Identity: graphs are compiled for inference.

    Raises ``VerifyError`` for a rate outside of ``[0, 1)``.
    """
    if not 0 <= rate < 1:
        raise VerifyError(f"rate must be in [0, 1), got {rate}")
    return tensor_like(x)


OPERATOR_SUGAR["negative"] = negative
