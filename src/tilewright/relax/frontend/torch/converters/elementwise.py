"""Element by element: arithmetic, comparison, choice, activation functions, conversion."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.ir import dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    CONVERTERS,
    Context,
    Number,
    Operand,
    Results,
    converts,
)

# Operators on one tensor that PyTorch computes in the result's dtype.
_UNARY: dict[str, Callable[..., RelaxExpr]] = {
    "abs": op.abs,
    "acos": op.acos,
    "asin": op.asin,
    "atan": op.atan,
    "ceil": op.ceil,
    "cos": op.cos,
    "cosh": op.cosh,
    "erf": op.erf,
    "exp": op.exp,
    "floor": op.floor,
    "log": op.log,
    "log2": op.log2,
    "neg": op.negative,
    "reciprocal": op.reciprocal,
    "relu": op.nn.relu,
    "round": op.round,
    "rsqrt": op.rsqrt,
    "sigmoid": op.sigmoid,
    "sign": op.sign,
    "silu": op.nn.silu,
    "sin": op.sin,
    "sinh": op.sinh,
    "sqrt": op.sqrt,
    "square": op.square,
    "tan": op.tan,
    "tanh": op.tanh,
    "trunc": op.trunc,
}
# These leave integers as they are.
_ROUNDING = ("ceil", "floor", "round", "trunc")


def _unary(name: str, function: Callable[..., RelaxExpr]) -> Callable[..., RelaxExpr]:
    def convert(ctx: Context, x: RelaxExpr) -> RelaxExpr:
        if name in _ROUNDING and not dtypes.is_float(ctx.dtype):
            return x
        return function(ctx.cast(x, ctx.dtype))

    return convert


for _name, _function in _UNARY.items():
    CONVERTERS.register(f"aten.{_name}.default", _unary(_name, _function))


# Operators on two tensors, or a tensor and a number, computed in the result's dtype.
_BINARY: dict[str, Callable[..., RelaxExpr]] = {
    "aten.div.Tensor": op.divide,
    "aten.div.Scalar": op.divide,
    "aten.true_divide.Tensor": op.divide,
    "aten.maximum.default": op.maximum,
    "aten.max.other": op.maximum,
    "aten.minimum.default": op.minimum,
    "aten.min.other": op.minimum,
}


def _binary(function: Callable[..., RelaxExpr]) -> Callable[..., RelaxExpr]:
    def convert(ctx: Context, a: Operand, b: Operand) -> RelaxExpr:
        return function(ctx.tensor(a, ctx.dtype), ctx.tensor(b, ctx.dtype))

    return convert


for _name, _function in _BINARY.items():
    CONVERTERS.register(_name, _binary(_function))


def _sum(
    ctx: Context, function: Callable[..., RelaxExpr], a: Operand, b: Operand, alpha: Number
) -> RelaxExpr:
    left, right = ctx.tensor(a, ctx.dtype), ctx.tensor(b, ctx.dtype)
    if alpha != 1:
        right = op.multiply(right, ctx.tensor(alpha, ctx.dtype))
    return function(left, right)


@converts("aten.add.Tensor")
def _add(ctx: Context, a: Operand, b: Operand, alpha: Number = 1) -> RelaxExpr:
    if dtypes.is_bool(ctx.dtype):
        return op.logical_or(ctx.tensor(a, "bool"), ctx.tensor(b, "bool"))
    return _sum(ctx, op.add, a, b, alpha)


@converts("aten.add.Scalar")
def _add_scalar(ctx: Context, a: Operand, b: Operand, alpha: Number = 1) -> RelaxExpr:
    return _sum(ctx, op.add, a, b, alpha)


@converts("aten.sub.Tensor", "aten.sub.Scalar")
def _sub(ctx: Context, a: Operand, b: Operand, alpha: Number = 1) -> RelaxExpr:
    return _sum(ctx, op.subtract, a, b, alpha)


@converts("aten.rsub.Tensor", "aten.rsub.Scalar")
def _rsub(ctx: Context, a: Operand, b: Operand, alpha: Number = 1) -> RelaxExpr:
    return _sum(ctx, op.subtract, b, a, alpha)


@converts("aten.mul.Tensor", "aten.mul.Scalar")
def _mul(ctx: Context, a: Operand, b: Operand) -> RelaxExpr:
    if dtypes.is_bool(ctx.dtype):
        return op.logical_and(ctx.tensor(a, "bool"), ctx.tensor(b, "bool"))
    return op.multiply(ctx.tensor(a, ctx.dtype), ctx.tensor(b, ctx.dtype))


@converts("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_mode(ctx: Context, a: Operand, b: Operand, rounding_mode: str | None) -> RelaxExpr:
    left, right = ctx.tensor(a, ctx.dtype), ctx.tensor(b, ctx.dtype)
    if rounding_mode == "floor":
        return _floor_divide(ctx, left, right)
    made = op.divide(left, right)
    if rounding_mode == "trunc" and dtypes.is_float(ctx.dtype):
        return op.trunc(made)
    return made


@converts("aten.floor_divide.default", "aten.floor_divide.Scalar")
def _floor_divide(ctx: Context, a: Operand, b: Operand) -> RelaxExpr:
    left, right = ctx.tensor(a, ctx.dtype), ctx.tensor(b, ctx.dtype)
    return op.floor_divide(left, right)


CONVERTERS.register("aten.remainder.Tensor", _binary(op.floor_mod))
CONVERTERS.register("aten.remainder.Scalar", _binary(op.floor_mod))
CONVERTERS.register("aten.fmod.Tensor", _binary(op.mod))
CONVERTERS.register("aten.fmod.Scalar", _binary(op.mod))


@converts("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _pow(ctx: Context, a: Operand, b: Operand) -> RelaxExpr:
    return op.power(ctx.tensor(a, ctx.dtype), ctx.tensor(b, ctx.dtype))


@converts("aten.pow.Tensor_Scalar")
def _pow_scalar(ctx: Context, a: RelaxExpr, exponent: Number) -> RelaxExpr:
    """Powers that have a cheaper form than ``exp(y * log(x))``, which also fails for x < 0."""
    base = ctx.cast(a, ctx.dtype)
    if dtypes.is_float(ctx.dtype):
        powers: dict[Number, Callable[..., RelaxExpr]] = {
            0.5: op.sqrt,
            -0.5: op.rsqrt,
            -1: op.reciprocal,
        }
        special = powers.get(exponent)
        if special is not None:
            return special(base)
    if exponent == 1:
        return base
    if isinstance(exponent, (int, float)) and exponent in (2, 3, 4):
        base = ctx.emit(base)
        squared = op.multiply(base, base)
        if exponent == 2:
            return squared
        bound = ctx.emit(squared)
        return op.multiply(bound, base if exponent == 3 else bound)
    return op.power(base, ctx.tensor(exponent, ctx.dtype))


@converts("aten.log1p.default", "prims.log1p.default")
def _log1p(ctx: Context, a: RelaxExpr) -> RelaxExpr:
    """Kahan's form: the quotient compensates for the rounding of ``1 + x``."""
    x = ctx.emit(ctx.cast(a, ctx.dtype))
    one = ctx.tensor(1.0, ctx.dtype)
    u = ctx.emit(op.add(x, one))
    step = op.where(op.equal(u, one), one, op.subtract(u, one))
    corrected = op.multiply(op.log(u), op.divide(x, step))
    # Far from zero nothing is lost, and infinity would give inf / inf.
    near = op.where(op.equal(u, one), x, corrected)
    return op.where(op.less(op.abs(x), one), near, op.log(u))


@converts("aten.expm1.default", "prims.expm1.default")
def _expm1(ctx: Context, a: RelaxExpr) -> RelaxExpr:
    """``2 * tanh(x / 2) / (1 - tanh(x / 2))`` near zero, where ``exp(x) - 1`` cancels."""
    x = ctx.emit(ctx.cast(a, ctx.dtype))
    half = ctx.emit(op.tanh(op.multiply(x, ctx.tensor(0.5, ctx.dtype))))
    one = ctx.tensor(1.0, ctx.dtype)
    near = op.divide(op.multiply(half, ctx.tensor(2.0, ctx.dtype)), op.subtract(one, half))
    return op.where(op.less(op.abs(x), one), near, op.subtract(op.exp(x), one))


# ---- comparison, logic, choice ----------------------------------------------------------------

COMPARISONS: dict[str, Callable[..., RelaxExpr]] = {
    "eq": op.equal,
    "ne": op.not_equal,
    "lt": op.less,
    "le": op.less_equal,
    "gt": op.greater,
    "ge": op.greater_equal,
}


def _comparison(function: Callable[..., RelaxExpr]) -> Callable[..., RelaxExpr]:
    def convert(ctx: Context, a: Operand, b: Operand) -> RelaxExpr:
        dtype = ctx.operand_dtype()
        # Truth values are compared as numbers.
        dtype = "int8" if dtypes.is_bool(dtype) else dtype
        return function(ctx.tensor(a, dtype), ctx.tensor(b, dtype))

    return convert


for _name, _function in COMPARISONS.items():
    for _overload in ("Tensor", "Scalar"):
        CONVERTERS.register(f"aten.{_name}.{_overload}", _comparison(_function))

_LOGIC: dict[str, Callable[..., RelaxExpr]] = {
    "and": op.logical_and,
    "or": op.logical_or,
    "xor": lambda a, b: op.not_equal(op.astype(a, "int8"), op.astype(b, "int8")),
}


def _logical(function: Callable[..., RelaxExpr], *, bitwise: bool) -> Callable[..., RelaxExpr]:
    def convert(ctx: Context, a: Operand, b: Operand) -> RelaxExpr:
        if bitwise and not dtypes.is_bool(ctx.dtype):
            raise ctx.error(f"bit operations on {ctx.dtype} are not supported, only on bool")
        return function(ctx.tensor(a, "bool"), ctx.tensor(b, "bool"))

    return convert


for _name, _function in _LOGIC.items():
    CONVERTERS.register(f"aten.logical_{_name}.default", _logical(_function, bitwise=False))
    for _overload in ("Tensor", "Scalar"):
        _bitwise = _logical(_function, bitwise=True)
        CONVERTERS.register(f"aten.bitwise_{_name}.{_overload}", _bitwise)
        CONVERTERS.register(f"aten.__{_name}__.{_overload}", _bitwise)


@converts("aten.logical_not.default")
def _logical_not(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.logical_not(ctx.cast(x, "bool"))


@converts("aten.bitwise_not.default")
def _bitwise_not(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    if not dtypes.is_bool(ctx.dtype):
        raise ctx.error(f"bit operations on {ctx.dtype} are not supported, only on bool")
    return op.logical_not(x)


@converts("aten.isnan.default")
def _isnan(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.isnan(x if dtypes.is_float(x.dtype) else ctx.cast(x, "float32"))


@converts("aten.isinf.default")
def _isinf(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    if not dtypes.is_float(x.dtype):
        x = ctx.cast(x, "float32")
    return op.equal(op.abs(x), ctx.tensor(math.inf, x.dtype))


@converts("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def _where(ctx: Context, condition: RelaxExpr, x: Operand, y: Operand) -> RelaxExpr:
    return op.where(ctx.cast(condition, "bool"), ctx.tensor(x, ctx.dtype), ctx.tensor(y, ctx.dtype))


@converts("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(ctx: Context, x: RelaxExpr, mask: RelaxExpr, value: Operand) -> RelaxExpr:
    return op.where(ctx.cast(mask, "bool"), ctx.tensor(value, ctx.dtype), x)


@converts("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default")
def _clamp(
    ctx: Context, x: RelaxExpr, low: Operand | None = None, high: Operand | None = None
) -> RelaxExpr:
    made = ctx.cast(x, ctx.dtype)
    if low is not None:
        made = op.maximum(made, ctx.tensor(low, ctx.dtype))
    if high is not None:
        made = op.minimum(made, ctx.tensor(high, ctx.dtype))
    return made


@converts("aten.clamp_min.default", "aten.clamp_min.Tensor")
def _clamp_min(ctx: Context, x: RelaxExpr, low: Operand | None) -> RelaxExpr:
    return _clamp(ctx, x, low, None)


@converts("aten.clamp_max.default", "aten.clamp_max.Tensor")
def _clamp_max(ctx: Context, x: RelaxExpr, high: Operand | None) -> RelaxExpr:
    return _clamp(ctx, x, None, high)


# ---- activation functions ---------------------------------------------------------------------


@converts("aten.hardtanh.default")
def _hardtanh(ctx: Context, x: RelaxExpr, low: Number = -1, high: Number = 1) -> RelaxExpr:
    return _clamp(ctx, x, low, high)


@converts("aten.relu6.default")
def _relu6(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return _clamp(ctx, x, 0, 6)


@converts("aten.hardsigmoid.default")
def _hardsigmoid(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.multiply(_clamp(ctx, op.add(x, 3.0), 0, 6), 1 / 6)


@converts("aten.hardswish.default")
def _hardswish(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.multiply(x, _hardsigmoid(ctx, x))


@converts("aten.gelu.default")
def _gelu(ctx: Context, x: RelaxExpr, approximate: str = "none") -> RelaxExpr:
    return op.nn.gelu(x) if approximate == "none" else op.nn.gelu_tanh(x)


@converts("aten.leaky_relu.default")
def _leaky_relu(ctx: Context, x: RelaxExpr, slope: float = 0.01) -> RelaxExpr:
    return op.nn.leaky_relu(x, float(slope))


@converts("aten.prelu.default", "aten._prelu_kernel.default")
def _prelu(ctx: Context, x: RelaxExpr, weight: RelaxExpr) -> RelaxExpr:
    if weight.ndim == 1 and x.ndim > 1:
        weight = op.reshape(weight, (1, weight.shape[0], *[1] * (x.ndim - 2)))
    return op.where(op.greater(x, 0.0), x, op.multiply(x, weight))


@converts("aten.elu.default")
def _elu(
    ctx: Context, x: RelaxExpr, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> RelaxExpr:
    # The exponential sees no positive number, so that it can't overflow in the branch not taken.
    negative = op.subtract(op.exp(op.multiply(op.minimum(x, 0.0), float(input_scale))), 1.0)
    made = op.where(op.greater(x, 0.0), x, op.multiply(negative, float(alpha)))
    return made if scale == 1 else op.multiply(made, float(scale))


@converts("aten.softplus.default")
def _softplus(ctx: Context, x: RelaxExpr, beta: float = 1, threshold: float = 20) -> RelaxExpr:
    scaled = ctx.emit(op.multiply(x, float(beta)))
    smooth = op.add(
        op.maximum(scaled, 0.0), op.log(op.add(op.exp(op.negative(op.abs(scaled))), 1.0))
    )
    made = op.where(op.greater(scaled, float(threshold)), scaled, smooth)
    return op.divide(made, float(beta))


@converts("aten.mish.default")
def _mish(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.multiply(x, op.tanh(_softplus(ctx, x)))


@converts("aten.log_sigmoid.default")
def _log_sigmoid(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.negative(_softplus(ctx, op.negative(x)))


@converts("aten.addcmul.default")
def _addcmul(
    ctx: Context, x: RelaxExpr, a: RelaxExpr, b: RelaxExpr, value: Number = 1
) -> RelaxExpr:
    product = op.multiply(ctx.cast(a, ctx.dtype), ctx.cast(b, ctx.dtype))
    return _sum(ctx, op.add, x, product, value)


@converts("aten.addcdiv.default")
def _addcdiv(
    ctx: Context, x: RelaxExpr, a: RelaxExpr, b: RelaxExpr, value: Number = 1
) -> RelaxExpr:
    quotient = op.divide(ctx.cast(a, ctx.dtype), ctx.cast(b, ctx.dtype))
    return _sum(ctx, op.add, x, quotient, value)


@converts("aten.lerp.Scalar", "aten.lerp.Tensor")
def _lerp(ctx: Context, start: RelaxExpr, end: RelaxExpr, weight: Operand) -> RelaxExpr:
    step = op.subtract(end, start)
    return op.add(start, op.multiply(ctx.tensor(weight, ctx.dtype), step))


# ---- conversion and identity ------------------------------------------------------------------


@converts(
    "aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device",
    "aten.to.other", "aten.type_as.default", "prims.convert_element_type.default",
)  # fmt: skip
def _to(ctx: Context, x: RelaxExpr, *_: object, **__: object) -> RelaxExpr:
    """The recorded dtype suffices; a graph has no devices."""
    return ctx.cast(x, ctx.dtype)


@converts(
    "aten.alias.default", "aten.clone.default", "aten.contiguous.default", "aten.detach.default",
    "aten.lift_fresh.default", "aten.lift_fresh_copy.default", "aten.positive.default",
)  # fmt: skip
def _identity(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return x


@converts("aten.copy.default")
def _copy(ctx: Context, x: RelaxExpr, source: RelaxExpr, non_blocking: bool = False) -> RelaxExpr:
    """The functional form of ``x.copy_(source)``: all of x is overwritten."""
    made = ctx.cast(source, ctx.dtype)
    return made if made.ndim == len(ctx.shape) else op.broadcast_to(made, ctx.shape)


@converts("aten.fill.Scalar", "aten.fill.Tensor")
def _fill(ctx: Context, x: RelaxExpr, value: Operand) -> RelaxExpr:
    return op.broadcast_to(ctx.tensor(value, ctx.dtype), ctx.shape)


@converts("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default")
def _dropout(ctx: Context, x: RelaxExpr, p: float, train: bool) -> RelaxExpr:
    if train and p > 0:
        raise ctx.error("dropout is active: call model.eval() before torch.export")
    return x


@converts("aten.native_dropout.default")
def _native_dropout(ctx: Context, x: RelaxExpr, p: float, train: bool | None) -> Results:
    return [_dropout(ctx, x, p, bool(train)), None]
