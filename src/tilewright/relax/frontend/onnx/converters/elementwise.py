"""Elementwise operators: a table, and those with attributes or odd cases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.ir import dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.onnx.converters.base import Array, Context, Tensor, converts
from tilewright.relax.frontend.onnx.model import dtype_of
from tilewright.relax.values import const

_UNARY: dict[str, Callable[[RelaxExpr], RelaxExpr]] = {
    "Abs": op.abs,
    "Acos": op.acos,
    "Acosh": op.acosh,
    "Asin": op.asin,
    "Asinh": op.asinh,
    "Atan": op.atan,
    "Atanh": op.atanh,
    "BitwiseNot": op.bitwise_not,
    "Ceil": op.ceil,
    "Cos": op.cos,
    "Cosh": op.cosh,
    "Erf": op.erf,
    "Exp": op.exp,
    "Floor": op.floor,
    "HardSwish": op.nn.hard_swish,
    "Identity": lambda x: x,
    "IsNaN": op.isnan,
    "Log": op.log,
    "Mish": op.nn.mish,
    "Neg": op.negative,
    "Not": op.logical_not,
    "Reciprocal": op.reciprocal,
    "Relu": op.nn.relu,
    "Round": op.round,
    "Sigmoid": op.sigmoid,
    "Sign": op.sign,
    "Sin": op.sin,
    "Sinh": op.sinh,
    "Softplus": op.nn.softplus,
    "Softsign": op.nn.softsign,
    "Sqrt": op.sqrt,
    "Tan": op.tan,
    "Tanh": op.tanh,
}

_BINARY: dict[str, Callable[[RelaxExpr, RelaxExpr], RelaxExpr]] = {
    "Add": op.add,
    "And": op.logical_and,
    "BitwiseAnd": op.bitwise_and,
    "BitwiseOr": op.bitwise_or,
    "BitwiseXor": op.bitwise_xor,
    "Div": op.divide,
    "Equal": op.equal,
    "Greater": op.greater,
    "GreaterOrEqual": op.greater_equal,
    "Less": op.less,
    "LessOrEqual": op.less_equal,
    "Mul": op.multiply,
    "Or": op.logical_or,
    "Sub": op.subtract,
    "Xor": op.logical_xor,
}


def _unary(name: str, function: Callable[[RelaxExpr], RelaxExpr]) -> None:
    if name == "Identity":
        return

    @converts(name)
    def convert(ctx: Context, x: Tensor) -> Tensor:
        return function(x)


def _binary(name: str, function: Callable[[RelaxExpr, RelaxExpr], RelaxExpr]) -> None:
    @converts(name)
    def convert(
        ctx: Context, a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0
    ) -> Tensor:
        if axis is not None:
            # Before version 7, the first axis of ``a`` that the second operand has.
            after = a.ndim - ctx.axis(axis, a.ndim) - b.ndim
            ctx.require(after >= 0, f"{b.ndim} dimensions from axis {axis} don't fit {a.ndim}")
            b = op.reshape(b, (*b.shape, *[1] * after))
        return function(a, b)


for _name, _unary_function in _UNARY.items():
    _unary(_name, _unary_function)
for _name, _binary_function in _BINARY.items():
    _binary(_name, _binary_function)


@converts("Identity")
def _identity(ctx: Context, x: object) -> object:
    return x


@converts("Pow")
def _pow(ctx: Context, x: Tensor, y: Tensor) -> Tensor:
    if x.dtype == y.dtype:
        return op.power(x, y)
    # Computed with the digits of both, as the result would be converted.
    wide = "float64" if {x.dtype, y.dtype} & {"float64", "int64", "uint64"} else "float32"
    if not (dtypes.is_float(x.dtype) or dtypes.is_float(y.dtype)):
        return op.power(x, ctx.cast(y, x.dtype))
    return ctx.cast(op.power(ctx.cast(x, wide), ctx.cast(y, wide)), x.dtype)


@converts("Mod")
def _mod(ctx: Context, a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return op.mod(a, b) if fmod else op.floor_mod(a, b)


@converts("BitShift")
def _bit_shift(ctx: Context, x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    if ctx.choice("direction", direction, ("LEFT", "RIGHT")) == "LEFT":
        return op.left_shift(x, y)
    return op.right_shift(x, y)


def _variadic(name: str, function: Callable[[RelaxExpr, RelaxExpr], RelaxExpr]) -> None:
    @converts(name)
    def convert(ctx: Context, first: Tensor, *others: Tensor) -> Tensor:
        made = first
        for other in others:
            made = function(made, other)
        if name == "Mean":
            made = op.divide(made, ctx.scalar(len(others) + 1, made))
        return made


for _name, _function in (
    ("Max", op.maximum),
    ("Min", op.minimum),
    ("Sum", op.add),
    ("Mean", op.add),
):
    _variadic(_name, _function)


@converts("Where")
def _where(ctx: Context, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return op.where(condition, x, y)


@converts("Clip")
def _clip(
    ctx: Context, x: Tensor, low: Tensor | None = None, high: Tensor | None = None,
    *, min: float | None = None, max: float | None = None,
) -> Tensor:  # fmt: skip
    least = low if min is None else min
    most = high if max is None else max
    if min is not None and max is not None and min > max:
        return op.full(x.shape, max, x.dtype)
    return op.clip(x, least, most)


@converts("IsInf")
def _is_inf(
    ctx: Context, x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1
) -> Tensor:
    if detect_negative and detect_positive:
        return op.isinf(x)
    if not (detect_negative or detect_positive):
        return op.zeros(x.shape, "bool")
    sign = np.inf if detect_positive else -np.inf
    return op.equal(x, ctx.scalar(sign, x))


# ---- activation functions ------------------------------------------------------------------------


@converts("LeakyRelu")
def _leaky_relu(ctx: Context, x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return op.nn.leaky_relu(x, alpha)


@converts("PRelu")
def _prelu(ctx: Context, x: Tensor, slope: Tensor) -> Tensor:
    if ctx.opset < 7 and slope.ndim == 1 and x.ndim > 2:
        slope = op.reshape(slope, (slope.shape[0], *[1] * (x.ndim - 2)))
    return op.where(op.less(x, ctx.scalar(0, x)), op.multiply(x, slope), x)


@converts("Elu")
def _elu(ctx: Context, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return op.nn.elu(x, alpha)


@converts("Celu")
def _celu(ctx: Context, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return op.nn.celu(x, alpha)


@converts("Selu")
def _selu(
    ctx: Context, x: Tensor, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805
) -> Tensor:
    return op.nn.selu(x, alpha, gamma)


@converts("ThresholdedRelu")
def _thresholded_relu(ctx: Context, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return op.nn.threshold(x, alpha, 0.0)


@converts("HardSigmoid")
def _hard_sigmoid(ctx: Context, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return op.clip(op.add(op.multiply(x, ctx.scalar(alpha, x)), ctx.scalar(beta, x)), 0, 1)


@converts("Swish")
def _swish(ctx: Context, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    if alpha == 1:
        return op.nn.silu(x)
    return op.multiply(x, op.sigmoid(op.multiply(x, ctx.scalar(alpha, x))))


@converts("Gelu")
def _gelu(ctx: Context, x: Tensor, *, approximate: str = "none") -> Tensor:
    if ctx.choice("approximate", approximate, ("none", "tanh")) == "tanh":
        return op.nn.gelu_tanh(x)
    return op.nn.gelu(x)


@converts("Shrink")
def _shrink(ctx: Context, x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    kind = x.dtype
    if not dtypes.is_float(kind):  # the bias need not be whole
        x = ctx.emit(op.astype(x, "float32" if dtypes.bits_of(kind) < 32 else "float64"))
    zero = ctx.scalar(0, x)
    below = op.less(x, ctx.scalar(-lambd, x))
    above = op.greater(x, ctx.scalar(lambd, x))
    step = ctx.scalar(bias, x)
    made = op.where(below, op.add(x, step), op.where(above, op.subtract(x, step), zero))
    return ctx.cast(made, kind)


@converts("Softmax")
def _softmax(ctx: Context, x: Tensor, *, axis: int | None = None) -> Tensor:
    return _softmax_like(ctx, op.nn.softmax, x, axis)


@converts("LogSoftmax")
def _log_softmax(ctx: Context, x: Tensor, *, axis: int | None = None) -> Tensor:
    return _softmax_like(ctx, op.nn.log_softmax, x, axis)


@converts("Hardmax")
def _hardmax(ctx: Context, x: Tensor, *, axis: int | None = None) -> Tensor:
    return _softmax_like(ctx, _one_at_greatest, x, axis)


def _one_at_greatest(x: Tensor, axis: int) -> Tensor:
    place = op.argmax(x, axis, True)
    shape = [x.shape[axis] if n == axis else 1 for n in range(x.ndim)]
    own = op.reshape(op.arange(0, x.shape[axis], 1, "int64"), shape)
    return op.astype(op.equal(own, place), x.dtype)


def _softmax_like(
    ctx: Context, function: Callable[..., RelaxExpr], x: Tensor, axis: int | None
) -> Tensor:
    """Before version 13 of ONNX's operators, all axes from the given one on count as one."""
    if ctx.opset >= 13:
        return function(x, ctx.axis(-1 if axis is None else axis, x.ndim))
    first = ctx.axis(1 if axis is None else axis, x.ndim)
    if first == x.ndim - 1:
        return function(x, first)
    made = function(op.flatten(x, first, -1), first)
    return op.reshape(made, x.shape)


@converts("Dropout")
def _dropout(
    ctx: Context, x: Tensor, ratio: Array | None = None, training_mode: Array | None = None,
    *, seed: int = 0, ratio_: float = 0.5, is_test: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    ctx.require(ctx.opset >= 7 or is_test, "dropout while training is not supported: it is random")
    if training_mode is not None and bool(training_mode.reshape(-1)[0]):
        share = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
        ctx.require(share == 0, "dropout while training is not supported: it is random")
    return x, op.ones(x.shape, "bool")


# ---- dtypes --------------------------------------------------------------------------------------


@converts("EyeLike")
def _eye_like(ctx: Context, x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    ctx.require(x.ndim == 2, f"needs a matrix, got {x.ndim} dimensions")
    rows = op.reshape(op.arange(0, x.shape[0], 1, "int64"), (x.shape[0], 1))
    columns = op.arange(0, x.shape[1], 1, "int64")
    moved = op.add(rows, const(k, "int64"))
    return ctx.cast(op.equal(moved, columns), kind)
