"""Activation functions, element by element."""

from __future__ import annotations

from tilewright.ir import (
    Expr,
    as_int,
    call,
    const,
    if_then_else,
    maximum,
    minimum,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, compute, require, with_conditions
from tilewright.te.arithmetic import map_elements
from tilewright.tir.float_division import fast_dtype
from tilewright.tir.steps import Steps
from tilewright.topi.elementwise import in_single, intrinsic
from tilewright.topi.utils import normal_axis, require_along


def relu(x: Tensor) -> Tensor:
    """``max(x, 0)``."""
    return map_elements(x, lambda v: maximum(v, const(0, v.dtype)), "relu")


def relu6(x: Tensor) -> Tensor:
    """``min(max(x, 0), 6)``."""
    return map_elements(
        x, lambda v: minimum(maximum(v, const(0, v.dtype)), const(6, v.dtype)), "relu6"
    )


def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    """``x`` where positive, else ``alpha * x``."""
    return map_elements(
        x, lambda v: select(v > const(0, v.dtype), v, v * const(alpha, v.dtype)), "leaky_relu"
    )


silu = intrinsic("silu", "``x * sigmoid(x)``.")
gelu = intrinsic("gelu", "``x/2 * (1 + erf(x / sqrt 2))``, the exact form.")
gelu_tanh = intrinsic("gelu_tanh", "``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3)))``.")


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``, linear above ``threshold``."""

    def one(v: Expr) -> Expr:
        scaled = v * const(beta, v.dtype)
        soft = call("log1p", call("exp", scaled)) / const(beta, v.dtype)
        return if_then_else(scaled > const(threshold, v.dtype), v, soft)

    return map_elements(x, in_single(one), "softplus")


def hard_sigmoid(x: Tensor) -> Tensor:
    """``clip(x + 3, 0, 6) / 6``."""
    return map_elements(x, in_single(_hard_gate), "hard_sigmoid")


def hard_swish(x: Tensor) -> Tensor:
    """``x * hard_sigmoid(x)``."""
    return map_elements(x, in_single(lambda v: v * _hard_gate(v)), "hard_swish")


def _hard_gate(v: Expr) -> Expr:
    shifted = maximum(v + const(3, v.dtype), const(0, v.dtype))
    return minimum(shifted, const(6, v.dtype)) * const(1 / 6, v.dtype)


_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def _elu(v: Expr, alpha: float, scale: float, slope: float) -> Expr:
    """``scale * v`` where positive, else ``scale * alpha * expm1(slope * v)``."""
    dtype = v.dtype
    below = call("expm1", v if slope == 1 else v * const(slope, dtype)) * const(alpha, dtype)
    found = select(v > const(0, dtype), v, below)
    return found if scale == 1 else found * const(scale, dtype)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    return map_elements(x, in_single(lambda v: _elu(v, alpha, 1.0, 1.0)), "elu")


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``."""
    return map_elements(x, in_single(lambda v: _elu(v, alpha, 1.0, 1.0 / alpha)), "celu")


def selu(x: Tensor, alpha: float = _SELU_ALPHA, gamma: float = _SELU_SCALE) -> Tensor:
    """``gamma * elu(x, alpha)``, by default with the constants of self-normalising networks."""
    return map_elements(x, in_single(lambda v: _elu(v, alpha, gamma, 1.0)), "selu")


def mish(x: Tensor) -> Tensor:
    """``x * tanh(log(1 + exp(x)))``."""

    def one(v: Expr) -> Expr:
        steps, dtype = Steps(), v.dtype
        # tanh(log(1 + e)) is n / (n + 2) for n = e (e + 2); it is 1 from where that overflows.
        power = steps(call("exp", minimum(v, const(30.0, dtype))))
        n = steps(power * (power + const(2.0, dtype)))
        return steps.result(select(v > const(30.0, dtype), v, v * (n / (n + const(2.0, dtype)))))

    return map_elements(x, in_single(one), "mish")


def softsign(x: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    return map_elements(
        x, in_single(lambda v: v / (const(1.0, v.dtype) + call("abs", v))), "softsign"
    )


def log_sigmoid(x: Tensor) -> Tensor:
    """``-log(1 + exp(-x))``."""

    def one(v: Expr) -> Expr:
        return minimum(v, const(0.0, v.dtype)) - call("log1p", call("exp", -call("abs", v)))

    return map_elements(x, in_single(one), "log_sigmoid")


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Limit every element to ``[min_val, max_val]``."""

    def one(v: Expr) -> Expr:
        return minimum(maximum(v, const(min_val, v.dtype)), const(max_val, v.dtype))

    return map_elements(x, one, "hardtanh")


def threshold(x: Tensor, threshold: float = 0.0, value: float = 0.0) -> Tensor:
    """``x`` where it is above ``threshold`` (or NaN), else ``value``."""

    def one(v: Expr) -> Expr:
        return select(v <= const(threshold, v.dtype), const(value, v.dtype), v)

    return map_elements(x, one, "threshold")


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` where it is farther than ``lambd`` from zero (or NaN), else 0."""

    def one(v: Expr) -> Expr:
        return select(call("abs", v) <= const(lambd, v.dtype), const(0, v.dtype), v)

    return map_elements(x, one, "hardshrink")


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` moved towards zero by ``lambd``, at most to zero."""

    def one(v: Expr) -> Expr:
        reach = const(lambd, v.dtype)
        return v - minimum(maximum(v, -reach), reach)

    return map_elements(x, in_single(one), "softshrink")


def tanhshrink(x: Tensor) -> Tensor:
    """``x - tanh(x)``, in float64: the two nearly cancel at zero."""

    def one(v: Expr) -> Expr:
        wide = cast_expr(v, "float64")
        return cast_expr(wide - call("tanh", wide), v.dtype)

    return map_elements(x, one, "tanhshrink")


@with_conditions
def prelu(x: Tensor, slope: Tensor, axis: int = 1) -> Tensor:
    """``x`` where positive, else ``slope * x`` with one per index of ``axis``.

    ``slope`` has one element, or as many as ``x`` along ``axis``.
    """
    if slope.ndim == 0 or (slope.ndim == 1 and as_int(slope.shape[0]) == 1):
        place = None
    else:
        place = normal_axis(axis, x.ndim)
        require_along("prelu", x, (place,), slope)
    wide = fast_dtype(x.dtype)

    def formula(*i: Expr) -> Expr:
        index = () if slope.ndim == 0 else (const(0) if place is None else i[place],)
        v, factor = cast_expr(x(*i), wide), cast_expr(slope(*index), wide)
        return cast_expr(select(v > const(0, wide), v, v * factor), x.dtype)

    made: Tensor = compute(x.shape, formula, name="prelu", tag="broadcast")
    return made


@with_conditions
def glu(x: Tensor, axis: int = -1) -> Tensor:
    """The first half of ``x`` along an axis times the sigmoid of the second."""
    at = normal_axis(axis, x.ndim)
    extent, wide = x.shape[at], fast_dtype(x.dtype)
    require(extent % 2 == 0, "glu: an axis of ", extent, " elements does not divide into halves")
    half = extent // 2

    def formula(*i: Expr) -> Expr:
        value = cast_expr(x(*i), wide)
        gate = cast_expr(x(*i[:at], i[at] + half, *i[at + 1 :]), wide)
        return cast_expr(value * call("sigmoid", gate), x.dtype)

    shape = (*x.shape[:at], half, *x.shape[at + 1 :])
    made: Tensor = compute(shape, formula, name="glu", tag="injective")
    return made
