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
from tilewright.topi.utils import sum_dtype

# Operators on one tensor that PyTorch computes in the result's dtype.
_UNARY: dict[str, Callable[..., RelaxExpr]] = {
    "abs": op.abs,
    "acos": op.acos,
    "acosh": op.acosh,
    "asin": op.asin,
    "asinh": op.asinh,
    "atan": op.atan,
    "atanh": op.atanh,
    "ceil": op.ceil,
    "cos": op.cos,
    "cosh": op.cosh,
    "digamma": op.digamma,
    "erf": op.erf,
    "erfc": op.erfc,
    "erfinv": op.erfinv,
    "exp": op.exp,
    "exp2": op.exp2,
    "expm1": op.expm1,
    "floor": op.floor,
    "lgamma": op.lgamma,
    "log": op.log,
    "log10": op.log10,
    "log1p": op.log1p,
    "log2": op.log2,
    "neg": op.negative,
    "reciprocal": op.reciprocal,
    "relu": op.nn.relu,
    "round": op.round,
    "rsqrt": op.rsqrt,
    "sgn": op.sign,
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
for _name in ("expm1", "log1p"):
    CONVERTERS.register(f"prims.{_name}.default", _unary(_name, _UNARY[_name]))


# Operators on two tensors, or a tensor and a number, computed in the result's dtype.
_BINARY: dict[str, Callable[..., RelaxExpr]] = {
    "aten.div.Tensor": op.divide,
    "aten.div.Scalar": op.divide,
    "aten.true_divide.Tensor": op.divide,
    "aten.atan2.default": op.atan2,
    "aten.copysign.Scalar": op.copysign,
    "aten.copysign.Tensor": op.copysign,
    "aten.hypot.default": op.hypot,
    "aten.logaddexp.default": op.log_add_exp,
    "aten.nextafter.default": op.nextafter,
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
    """``a + alpha * b``, rounded once."""
    dtype = ctx.dtype if alpha == 1 else sum_dtype(ctx.dtype)
    left, right = ctx.tensor(a, dtype), ctx.tensor(b, dtype)
    if alpha != 1:
        right = op.multiply(right, ctx.tensor(alpha, dtype))
    return ctx.cast(function(left, right), ctx.dtype)


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
    return op.trunc_divide(left, right) if rounding_mode == "trunc" else op.divide(left, right)


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


def _unless_nan(function: Callable[..., RelaxExpr]) -> Callable[..., RelaxExpr]:
    """The extremum of two numbers; of one, if the other is NaN."""

    def convert(ctx: Context, a: RelaxExpr, b: RelaxExpr) -> RelaxExpr:
        a, b = ctx.emit(ctx.cast(a, ctx.dtype)), ctx.emit(ctx.cast(b, ctx.dtype))
        made = function(a, b)
        if not dtypes.is_float(ctx.dtype):
            return made
        return op.where(op.isnan(a), b, op.where(op.isnan(b), a, made))

    return convert


CONVERTERS.register("aten.fmax.default", _unless_nan(op.maximum))
CONVERTERS.register("aten.fmin.default", _unless_nan(op.minimum))


@converts("aten.angle.default")
def _angle(ctx: Context, a: RelaxExpr) -> RelaxExpr:
    """Of real numbers: 0 or pi, and NaN of NaN."""
    x = ctx.emit(ctx.cast(a, ctx.dtype))
    zero = ctx.tensor(0.0, ctx.dtype)
    angle = op.where(op.less(x, zero), ctx.tensor(math.pi, ctx.dtype), zero)
    return op.where(op.isnan(x), x, angle)


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

_LOGIC: dict[str, tuple[Callable[..., RelaxExpr], Callable[..., RelaxExpr]]] = {
    "and": (op.logical_and, op.bitwise_and),
    "or": (op.logical_or, op.bitwise_or),
    "xor": (op.logical_xor, op.bitwise_xor),
}


def _logical(function: Callable[..., RelaxExpr]) -> Callable[..., RelaxExpr]:
    def convert(ctx: Context, a: Operand, b: Operand) -> RelaxExpr:
        return function(ctx.tensor(a, "bool"), ctx.tensor(b, "bool"))

    return convert


for _name, (_function, _bits) in _LOGIC.items():
    CONVERTERS.register(f"aten.logical_{_name}.default", _logical(_function))
    for _overload in ("Tensor", "Scalar"):
        CONVERTERS.register(f"aten.bitwise_{_name}.{_overload}", _binary(_bits))
        CONVERTERS.register(f"aten.__{_name}__.{_overload}", _binary(_bits))
    CONVERTERS.register(f"aten.bitwise_{_name}.Scalar_Tensor", _binary(_bits))

for _name, _function in (("left", op.left_shift), ("right", op.right_shift)):
    _names = [f"aten.__{_name[0]}shift__.{_overload}" for _overload in ("Tensor", "Scalar")]
    for _overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        _names.append(f"aten.bitwise_{_name}_shift.{_overload}")
    for _name in _names:
        CONVERTERS.register(_name, _binary(_function))


@converts("aten.logical_not.default")
def _logical_not(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.logical_not(ctx.cast(x, "bool"))


@converts("aten.bitwise_not.default")
def _bitwise_not(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.bitwise_not(x)


_TESTS: dict[str, Callable[..., RelaxExpr]] = {
    "isfinite": op.isfinite,
    "isinf": op.isinf,
    "isnan": op.isnan,
    "signbit": op.signbit,
}


def _test(function: Callable[..., RelaxExpr]) -> Callable[..., RelaxExpr]:
    def convert(ctx: Context, x: RelaxExpr) -> RelaxExpr:
        return function(ctx.cast(x, "int8") if dtypes.is_bool(x.dtype) else x)

    return convert


for _name, _function in _TESTS.items():
    CONVERTERS.register(f"aten.{_name}.default", _test(_function))


@converts("aten.nan_to_num.default")
def _nan_to_num(
    ctx: Context, x: RelaxExpr, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> RelaxExpr:  # fmt: skip
    if not dtypes.is_float(x.dtype):
        return x
    return op.nan_to_num(x, nan or 0.0, posinf, neginf)


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
    negative = op.expm1(op.multiply(op.minimum(x, 0.0), float(input_scale)))
    made = op.where(op.greater(x, 0.0), x, op.multiply(negative, float(alpha)))
    return made if scale == 1 else op.multiply(made, float(scale))


@converts("aten.softplus.default")
def _softplus(ctx: Context, x: RelaxExpr, beta: float = 1, threshold: float = 20) -> RelaxExpr:
    scaled = ctx.emit(op.multiply(x, float(beta)))
    smooth = op.add(op.maximum(scaled, 0.0), op.log1p(op.exp(op.negative(op.abs(scaled)))))
    made = op.where(op.greater(scaled, float(threshold)), scaled, smooth)
    return op.divide(made, float(beta))


@converts("aten.mish.default")
def _mish(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.nn.mish(x)


@converts("aten.log_sigmoid.default")
def _log_sigmoid(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.nn.log_sigmoid(x)


def _plus_combined(function: Callable[..., RelaxExpr]) -> Callable[..., RelaxExpr]:
    """``x + value * function(a, b)``, rounded once."""

    def convert(
        ctx: Context, x: RelaxExpr, a: RelaxExpr, b: RelaxExpr, value: Number = 1
    ) -> RelaxExpr:
        dtype = sum_dtype(ctx.dtype)
        step = function(ctx.cast(a, dtype), ctx.cast(b, dtype))
        if value != 1:
            step = op.multiply(step, ctx.tensor(value, dtype))
        return ctx.cast(op.add(ctx.cast(x, dtype), step), ctx.dtype)

    return convert


CONVERTERS.register("aten.addcmul.default", _plus_combined(op.multiply))
CONVERTERS.register("aten.addcdiv.default", _plus_combined(op.divide))


@converts("prims.fma.default")
def _fma(ctx: Context, a: Operand, b: Operand, c: Operand) -> RelaxExpr:
    """One operation where the CPU has it, as every product to which something is added."""
    first, second, third = (ctx.tensor(item, ctx.dtype) for item in (a, b, c))
    return op.add(op.multiply(first, second), third)


@converts("aten.lerp.Scalar", "aten.lerp.Tensor")
def _lerp(ctx: Context, start: RelaxExpr, end: RelaxExpr, weight: Operand) -> RelaxExpr:
    dtype = sum_dtype(ctx.dtype)
    first = ctx.emit(ctx.cast(start, dtype))
    step = op.multiply(ctx.tensor(weight, dtype), op.subtract(ctx.cast(end, dtype), first))
    return ctx.cast(op.add(first, step), ctx.dtype)


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


@converts("aten.round.decimals")
def _round_to(ctx: Context, x: RelaxExpr, *, decimals: int) -> RelaxExpr:
    """Round to a number of decimals, as PyTorch does: by a power of ten, without guarding it."""
    if not decimals:
        return op.round(x)
    power = ctx.tensor(float(10 ** abs(decimals)), x.dtype)
    if decimals < 0:
        return op.multiply(op.round(op.divide(x, power)), power)
    return op.divide(op.round(op.multiply(x, power)), power)


@converts("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default")
def _dropout(ctx: Context, x: RelaxExpr, p: float, train: bool) -> RelaxExpr:
    if train and p > 0:
        raise ctx.error("dropout is active: call model.eval() before torch.export")
    return x


@converts("aten.native_dropout.default")
def _native_dropout(ctx: Context, x: RelaxExpr, p: float, train: bool | None) -> Results:
    kept = op.ones_like(x, "bool")
    return [_dropout(ctx, x, p, train is None or train), kept]
