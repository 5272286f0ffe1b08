"""Gradients of special functions, bits, tests and activation functions."""

from __future__ import annotations

import math
from typing import Any

from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.gradients.common import collapse, number
from tilewright.relax.gradients.elementwise import (
    Derivative,
    between,
    broadcast_rule,
    choose,
    product_rule,
)
from tilewright.relax.gradients.registry import Gradients, register_gradient, without_gradient

# From the operand ``x`` and the result ``y``.
DERIVATIVES: dict[str, Derivative] = {
    "exp10": lambda x, y: y * math.log(10),
    "expm1": lambda x, y: y + 1.0,
    "log10": lambda x, y: 1.0 / (x * math.log(10)),
    "asinh": lambda x, y: op.rsqrt(x * x + 1.0),
    "acosh": lambda x, y: op.rsqrt((x - 1.0) * (x + 1.0)),
    "atanh": lambda x, y: 1.0 / ((1.0 - x) * (x + 1.0)),
    "erfc": lambda x, y: op.exp(-(x * x)) * (-2 / math.sqrt(math.pi)),
    "erfinv": lambda x, y: op.exp(y * y) * (math.sqrt(math.pi) / 2),
    "lgamma": lambda x, y: op.digamma(x),
    "nn.log_sigmoid": lambda x, y: op.sigmoid(-x),
    "nn.softsign": lambda x, y: op.square(1.0 / (op.abs(x) + 1.0)),
    "nn.tanhshrink": lambda x, y: op.square(op.tanh(x)),
}


def _mish(x: RelaxExpr, y: RelaxExpr) -> RelaxExpr:
    gate = op.tanh(op.nn.softplus(x))
    made: RelaxExpr = gate + x * op.sigmoid(x) * (1.0 - gate * gate)
    return made


DERIVATIVES["nn.mish"] = _mish
for _name, _derivative in DERIVATIVES.items():
    register_gradient(_name, product_rule(_derivative))

without_gradient(
    "isinf", "isfinite", "signbit", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_not", "left_shift", "right_shift", "trunc_divide", "nextafter",
)  # fmt: skip


def _angle(a: RelaxExpr, b: RelaxExpr, y: RelaxExpr, grad: RelaxExpr) -> tuple[Any, Any]:
    share = grad / (a * a + b * b)
    return share * b, -share * a


def _signed(a: RelaxExpr, b: RelaxExpr, y: RelaxExpr, grad: RelaxExpr) -> tuple[Any, Any]:
    return grad * op.sign(a) * op.sign(y), op.zeros_like(y)


def _added(a: RelaxExpr, b: RelaxExpr, y: RelaxExpr, grad: RelaxExpr) -> tuple[Any, Any]:
    return grad * op.exp(a - y), grad * op.exp(b - y)


register_gradient("atan2", broadcast_rule(_angle))
register_gradient("hypot", broadcast_rule(lambda a, b, y, g: (g * (a / y), g * (b / y))))
register_gradient("copysign", broadcast_rule(_signed))
register_gradient("log_add_exp", broadcast_rule(_added))


@register_gradient("nn.softplus")
def _softplus(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    scaled = call.args[0] * call.attrs["beta"]
    soft = grad * op.sigmoid(scaled)
    return [op.where(op.greater(scaled, number(call.attrs["threshold"], grad)), grad, soft)]


def _exponential(
    x: RelaxExpr, y: RelaxExpr, grad: RelaxExpr, scale: float, offset: float, slope: float
) -> RelaxCall:
    """``grad * scale`` above zero; below, ``(y + offset) * slope`` is the derivative."""
    return op.where(op.greater(x, number(0, x)), grad * scale, grad * ((y + offset) * slope))


@register_gradient("nn.elu")
def _elu(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [_exponential(call.args[0], var, grad, 1.0, call.attrs["alpha"], 1.0)]


@register_gradient("nn.celu")
def _celu(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    alpha = call.attrs["alpha"]
    return [_exponential(call.args[0], var, grad, 1.0, alpha, 1 / alpha)]


@register_gradient("nn.selu")
def _selu(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    alpha, gamma = call.attrs["alpha"], call.attrs["gamma"]
    return [_exponential(call.args[0], var, grad, gamma, alpha * gamma, 1.0)]


@register_gradient("nn.hardtanh")
def _hardtanh(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    low, high = call.attrs["min_val"], call.attrs["max_val"]
    return [choose(between(call.args[0], low, high), grad)]


@register_gradient("nn.threshold")
def _threshold(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x = call.args[0]
    return [choose(op.greater(x, number(call.attrs["threshold"], x)), grad)]


@register_gradient("nn.hardshrink")
@register_gradient("nn.softshrink")
def _shrink(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x = call.args[0]
    return [choose(op.greater(op.abs(x), number(call.attrs["lambd"], x)), grad)]


@register_gradient("nan_to_num")
def _nan_to_num(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [choose(op.isfinite(call.args[0]), grad)]


@register_gradient("nn.prelu")
def _prelu(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x, alpha = call.args
    axis = call.attrs["axis"] % x.ndim
    slopes = alpha.shape[0] if alpha.ndim else 1
    view = [slopes if place == axis else 1 for place in range(x.ndim)]
    slope = op.reshape(alpha, view)
    positive = op.greater(x, number(0, x))
    zero = number(0, grad)
    per_slope = collapse(op.where(positive, zero, grad * x), slope)
    return [op.where(positive, grad, grad * slope), op.reshape(per_slope, alpha.shape)]


@register_gradient("nn.glu")
def _glu(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    axis = call.attrs["axis"]
    halves = op.split(call.args[0], 2, axis)
    value, gate = halves[0], op.sigmoid(halves[1])
    return [op.concat([grad * gate, grad * value * gate * (1.0 - gate)], axis)]
