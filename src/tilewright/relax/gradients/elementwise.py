"""Gradients of operators on one tensor, and on two that broadcast: tables of derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.gradients.common import collapse, number
from tilewright.relax.gradients.registry import (
    GradientRule,
    Gradients,
    differentiate_as,
    register_gradient,
    without_gradient,
)

Derivative = Callable[[RelaxExpr, RelaxExpr], RelaxExpr]
Both = Callable[[RelaxExpr, RelaxExpr, RelaxExpr, RelaxExpr], tuple[RelaxExpr, RelaxExpr]]

# From the operand ``x`` and the result ``y``.
DERIVATIVES: dict[str, Derivative] = {
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * math.log(2),
    "log": lambda x, y: 1.0 / x,
    "log2": lambda x, y: 1.0 / (x * math.log(2)),
    "log1p": lambda x, y: 1.0 / (x + 1.0),
    "sqrt": lambda x, y: 0.5 / y,
    "rsqrt": lambda x, y: -0.5 * y / x,
    "tanh": lambda x, y: 1.0 - y * y,
    "sigmoid": lambda x, y: y * (1.0 - y),
    "erf": lambda x, y: op.exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    "sin": lambda x, y: op.cos(x),
    "cos": lambda x, y: -op.sin(x),
    "tan": lambda x, y: y * y + 1.0,
    "sinh": lambda x, y: op.cosh(x),
    "cosh": lambda x, y: op.sinh(x),
    "asin": lambda x, y: op.rsqrt(1.0 - x * x),
    "acos": lambda x, y: -op.rsqrt(1.0 - x * x),
    "atan": lambda x, y: 1.0 / (x * x + 1.0),
    "reciprocal": lambda x, y: -(y * y),
    "abs": lambda x, y: op.sign(x),
    "square": lambda x, y: x * 2.0,
    "nn.gelu": lambda x, y: (
        op.erf(x * math.sqrt(0.5)) * 0.5 + 0.5
        + x * op.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    ),
    "nn.silu": lambda x, y: op.sigmoid(x) * (x * (1.0 - op.sigmoid(x)) + 1.0),
}  # fmt: skip


def product_rule(derivative: Derivative) -> GradientRule:
    """The rule of an operator on one tensor with this derivative."""

    def rule(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
        return [grad * derivative(call.args[0], var)]

    return rule


for _name, _derivative in DERIVATIVES.items():
    register_gradient(_name, product_rule(_derivative))

without_gradient(
    "floor", "ceil", "trunc", "round", "sign", "isnan", "logical_not", "equal", "not_equal",
    "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "floor_divide",
    "argmax", "argmin", "argsort", "all", "any", "full", "arange", "grad.no_grad",
)  # fmt: skip


@register_gradient("negative")
def _negative(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [-grad]


@register_gradient("astype")
def _astype(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [op.astype(grad, call.args[0].dtype)]


# ---- pieces: each a condition for the gradient to pass, with a factor ------------------------


def choose(
    condition: RelaxExpr, passed: RelaxExpr, otherwise: RelaxExpr | None = None
) -> RelaxExpr:
    """``passed`` where a condition holds, else 0 or ``otherwise``."""
    return op.where(condition, passed, number(0, passed) if otherwise is None else otherwise)


def between(x: RelaxExpr, low: float, high: float) -> RelaxCall:
    """Whether elements are greater than one number and less than another."""
    return op.logical_and(op.greater(x, number(low, x)), op.less(x, number(high, x)))


@register_gradient("nn.relu")
def _relu(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [op.where(op.less_equal(var, number(0, var)), number(0, grad), grad)]


@register_gradient("nn.relu6")
def _relu6(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [choose(between(call.args[0], 0, 6), grad)]


@register_gradient("nn.leaky_relu")
def _leaky_relu(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x = call.args[0]
    return [choose(op.greater(x, number(0, x)), grad, grad * float(call.attrs["alpha"]))]


@register_gradient("nn.hard_sigmoid")
def _hard_sigmoid(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    return [choose(between(call.args[0], -3, 3), grad * (1 / 6))]


@register_gradient("nn.hard_swish")
def _hard_swish(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x = call.args[0]
    inner = choose(op.greater(x, number(-3, x)), grad * (x * (1 / 3) + 0.5))
    return [choose(op.less(x, number(3, x)), inner, grad)]


@register_gradient("clip")
def _clip(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    x = call.args[0]
    low, high = number(call.attrs["min"], x), number(call.attrs["max"], x)
    return [choose(op.logical_and(op.greater_equal(x, low), op.less_equal(x, high)), grad)]


@differentiate_as("nn.gelu_tanh")
def _gelu_tanh(call: RelaxCall) -> RelaxExpr:
    x = call.args[0]
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    made: RelaxExpr = x * 0.5 * (op.tanh(inner) + 1.0)
    return made


# ---- two operands ----------------------------------------------------------------------------


def _power(
    a: RelaxExpr, b: RelaxExpr, y: RelaxExpr, grad: RelaxExpr
) -> tuple[RelaxExpr, RelaxExpr]:
    zero = number(0, b)
    base = grad * choose(op.equal(b, zero), op.zeros_like(y), b * op.power(a, b - 1.0))
    is_zero = op.logical_and(op.equal(a, zero), op.greater_equal(b, zero))
    return base, grad * choose(is_zero, op.zeros_like(y), y * op.log(a))


def _extremum(
    a: RelaxExpr, b: RelaxExpr, grad: RelaxExpr, wins: Callable[..., RelaxCall]
) -> tuple[RelaxExpr, RelaxExpr]:
    """Of equal operands each gets a half."""
    half, zero, is_tie = grad * 0.5, number(0, grad), op.equal(a, b)

    def part(mine: RelaxExpr, other: RelaxExpr) -> RelaxExpr:
        return op.where(is_tie, half, op.where(wins(mine, other), grad, zero))

    return part(a, b), part(b, a)


BINARY: dict[str, Both] = {
    "add": lambda a, b, y, g: (g, g),
    "subtract": lambda a, b, y, g: (g, -g),
    "multiply": lambda a, b, y, g: (g * b, g * a),
    "divide": lambda a, b, y, g: (g / b, -g * (y / b)),
    "power": _power,
    "maximum": lambda a, b, y, g: _extremum(a, b, g, op.greater),
    "minimum": lambda a, b, y, g: _extremum(a, b, g, op.less),
    "floor_mod": lambda a, b, y, g: (g, -g * op.floor(a / b)),
    "mod": lambda a, b, y, g: (g, -g * op.trunc(a / b)),
}
"""From operands, result and gradient to the operands' gradients, before broadcasting is undone."""


def broadcast_rule(both: Both) -> GradientRule:
    """The rule of an operator on two tensors, from both gradients before broadcasting."""

    def rule(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
        a, b = call.args
        made = both(a, b, var, grad)
        return [collapse(g, x) for g, x in zip(made, (a, b))]

    return rule


for _name, _both in BINARY.items():
    register_gradient(_name, broadcast_rule(_both))


@register_gradient("where")
def _where_rule(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    condition, x, y = call.args
    zero = number(0, grad)
    return [
        None,
        collapse(op.where(condition, grad, zero), x),
        collapse(op.where(condition, zero, grad), y),
    ]
