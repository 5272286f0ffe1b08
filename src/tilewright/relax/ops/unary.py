"""Operators on one tensor, element by element: a table and a few with attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Number

from tilewright import topi
from tilewright.arith import simplify
from tilewright.ir import as_int, dtypes
from tilewright.relax.conditions import require, require_equal
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.expr_operators import OPERATOR_SUGAR
from tilewright.relax.ops.binary import maximum, minimum
from tilewright.relax.ops.common import known, same_dtype, tensor_like, topi_function
from tilewright.relax.registry import Builder, Tensor, builder, operator, renamed
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.utils import normal_axis


def _declared(
    name: str, doc: str, topi_name: str | None, infer: Callable[[TensorStructInfo], StructInfo]
) -> Builder:
    """Declare an operator; the operand is ``data`` of those for neural networks, else ``x``."""

    def rule(**operands: TensorStructInfo) -> StructInfo:
        (x,) = operands.values()
        return infer(x)

    operand = "data" if name.startswith("nn.") else "x"
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameter = inspect.Parameter(operand, kind, annotation="Tensor")
    rule.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    rule.__doc__ = doc
    return operator(name, legalize=topi_function(topi_name or name))(rule)


def _float_only(name: str, doc: str, topi_name: str | None = None) -> Builder:
    def infer(x: TensorStructInfo) -> StructInfo:
        if not dtypes.is_float(x.dtype):
            raise VerifyError(f"needs floating-point numbers, got {x.dtype}")
        return tensor_like(x)

    return _declared(name, doc, topi_name, infer)


def _any_number(name: str, doc: str, topi_name: str | None = None) -> Builder:
    return _declared(name, doc, topi_name, tensor_like)


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
log10 = _float_only("log10", "Logarithm to base 10.")
exp2 = _float_only("exp2", "2 to the power of x.")
exp10 = _float_only("exp10", "10 to the power of x.")
expm1 = _float_only("expm1", "e to the power of x, less one; accurate near zero.")
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
asinh = _float_only("asinh", "Inverse hyperbolic sine.")
acosh = _float_only("acosh", "Inverse hyperbolic cosine.")
atanh = _float_only("atanh", "Inverse hyperbolic tangent.")
erfc = _float_only("erfc", "One minus the error function, accurate where that is small.")
erfinv = _float_only("erfinv", "The number whose error function is x.")
lgamma = _float_only("lgamma", "Logarithm of the absolute value of the gamma function.")
digamma = _float_only("digamma", "Derivative of lgamma.")
floor = _float_only("floor", "Round down.")
ceil = _float_only("ceil", "Round up.")
trunc = _float_only("trunc", "Round towards zero.")
round = _float_only("round", "Round to the nearest integer, ties to even.")
reciprocal = _float_only("reciprocal", "1 / x.")
abs = _any_number("abs", "Absolute value.")
negative = _any_number("negative", "-x.")
square = _any_number("square", "x * x.")
sign = _any_number("sign", "-1, 0 or 1; 0 for NaN, which has none.")
logical_not = _test("logical_not", "Truth value turned round; numbers are true unless zero.")
isnan = _test("isnan", "Whether an element is NaN.")
isinf = _test("isinf", "Whether an element is infinite.")
isfinite = _test("isfinite", "Whether an element is neither infinite nor NaN.")
signbit = _test("signbit", "Whether an element has a minus sign, as -0 has.")


@operator("bitwise_not", legalize=topi.bitwise_not)
def bitwise_not(x: Tensor) -> StructInfo:
    """Every bit of integers turned round, or truth values."""
    if dtypes.is_float(x.dtype):
        raise VerifyError(f"takes integers or truth values, got {x.dtype}")
    return tensor_like(x)


@operator("nan_to_num", legalize=topi.nan_to_num)
def nan_to_num(
    x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> StructInfo:
    """NaN and infinities replaced; these by the largest numbers of the dtype unless given."""
    return tensor_like(x)


@operator("astype", legalize=topi.cast)
def astype(x: Tensor, dtype: str) -> StructInfo:
    """Convert to another dtype."""
    dtypes.split_dtype(dtype)
    return tensor_like(x, dtype=dtype)


@operator("clip", legalize=renamed(topi.clip, min="a_min", max="a_max"))
def _clip(x: Tensor, min: float, max: float) -> StructInfo:
    """Limit elements to ``[min, max]``."""
    if min > max:
        raise VerifyError(f"min {min} is greater than max {max}")
    return tensor_like(x)


@builder("clip")
def clip(x: RelaxExpr, min: object = None, max: object = None) -> RelaxExpr:
    """Limit elements to ``[min, max]``: numbers, tensors that broadcast, or ``None``.

    Where a tensor ``min`` is greater than ``max``, the result is ``max``.

    Raises ``VerifyError`` if the number ``min`` is greater than ``max``.
    """
    if isinstance(min, Number) and isinstance(max, Number):
        return _clip(x, min, max)
    made = x if min is None else maximum(x, min)
    return made if max is None else minimum(made, max)


relu = _any_number("nn.relu", "max(x, 0).")
gelu = _float_only("nn.gelu", "x * Phi(x), with the normal distribution's Phi by erf.")
gelu_tanh = _float_only("nn.gelu_tanh", "GELU by its tanh approximation.")
relu6 = _float_only("nn.relu6", "x limited to [0, 6].")
hard_sigmoid = _float_only("nn.hard_sigmoid", "x / 6 + 1 / 2 within [0, 1].")
hard_swish = _float_only("nn.hard_swish", "x * hard_sigmoid(x).")
silu = _float_only("nn.silu", "x * sigmoid(x).")
mish = _float_only("nn.mish", "x * tanh(softplus(x)).")
softsign = _float_only("nn.softsign", "x / (1 + |x|).")
log_sigmoid = _float_only("nn.log_sigmoid", "log(sigmoid(x)).")
tanhshrink = _float_only("nn.tanhshrink", "x - tanh(x).")


def _floats(x: TensorStructInfo) -> TensorStructInfo:
    if not dtypes.is_float(x.dtype):
        raise VerifyError(f"needs floating-point numbers, got {x.dtype}")
    return tensor_like(x)


@operator("nn.softplus", legalize=topi.nn.softplus)
def softplus(data: Tensor, beta: float = 1.0, threshold: float = 20.0) -> StructInfo:
    """``log(1 + exp(beta * x)) / beta``, linear above ``threshold``."""
    return _floats(data)


@operator("nn.elu", legalize=topi.nn.elu)
def elu(x: Tensor, alpha: float = 1.0) -> StructInfo:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    return _floats(x)


@operator("nn.celu", legalize=topi.nn.celu)
def celu(x: Tensor, alpha: float = 1.0) -> StructInfo:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``.

    Raises ``VerifyError`` if ``alpha`` is zero.
    """
    if alpha == 0:
        raise VerifyError("alpha must not be zero")
    return _floats(x)


@operator("nn.selu", legalize=topi.nn.selu)
def selu(
    data: Tensor, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805
) -> StructInfo:
    """``gamma * elu(x, alpha)``."""
    return _floats(data)


@operator("nn.hardtanh", legalize=topi.nn.hardtanh)
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> StructInfo:
    """Limit elements to ``[min_val, max_val]``."""
    if min_val > max_val:
        raise VerifyError(f"min_val {min_val} is greater than max_val {max_val}")
    return tensor_like(x)


@operator("nn.threshold", legalize=topi.nn.threshold)
def threshold(x: Tensor, threshold: float = 0.0, value: float = 0.0) -> StructInfo:
    """``x`` where it is above ``threshold``, else ``value``."""
    return tensor_like(x)


@operator("nn.hardshrink", legalize=topi.nn.hardshrink)
def hardshrink(x: Tensor, lambd: float = 0.5) -> StructInfo:
    """``x`` where it is farther than ``lambd`` from zero, else 0."""
    return _floats(x)


@operator("nn.softshrink", legalize=topi.nn.softshrink)
def softshrink(x: Tensor, lambd: float = 0.5) -> StructInfo:
    """``x`` moved towards zero by ``lambd``, at most to zero.

    Raises ``VerifyError`` if ``lambd`` is negative.
    """
    if lambd < 0:
        raise VerifyError(f"lambd must not be negative, got {lambd}")
    return _floats(x)


@operator("nn.prelu", legalize=topi.nn.prelu)
def prelu(data: Tensor, alpha: Tensor, axis: int = 1) -> StructInfo:
    """``data`` where positive, else ``alpha * data``, with a slope for each index of ``axis``.

    ``alpha`` has one element, or as many as ``data`` along ``axis``.

    Raises ``VerifyError`` for another number.
    """
    same_dtype(data, alpha)
    shape = known(alpha, "alpha")
    if len(shape) > 1:
        raise VerifyError(f"alpha must have at most 1 dimension, it has {len(shape)}")
    if shape and as_int(shape[0]) != 1:
        at = normal_axis(axis, data.ndim)
        require_equal(f"extent of alpha for axis {at}", shape[0], known(data, "data")[at])
    return _floats(data)


@operator("nn.glu", legalize=topi.nn.glu)
def glu(x: Tensor, axis: int = -1) -> StructInfo:
    """The first half of ``x`` along an axis times the sigmoid of the second.

    Raises ``VerifyError`` if the axis does not divide into halves.
    """
    shape = list(known(x))
    at = normal_axis(axis, len(shape))
    require(shape[at] % 2 == 0, "there are no halves of ", shape[at], f" elements of axis {at}")
    shape[at] = simplify(shape[at] // 2)
    return TensorStructInfo(shape, _floats(x).dtype)


@operator("nn.leaky_relu", legalize=topi.nn.leaky_relu)
def leaky_relu(x: Tensor, alpha: float = 0.01) -> StructInfo:
    """``x`` where positive, else ``alpha * x``."""
    return tensor_like(x)


OPERATOR_SUGAR["astype"] = astype
OPERATOR_SUGAR["negative"] = negative
