"""Activation functions, element by element."""

from __future__ import annotations

from tilewright.ir import Expr, call, const, if_then_else, maximum, minimum, select
from tilewright.te import Tensor
from tilewright.topi.elementwise import in_single, map_elements


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


def silu(x: Tensor) -> Tensor:
    """``x * sigmoid(x)``."""
    return map_elements(x, lambda v: call("silu", v), "silu")


def gelu(x: Tensor) -> Tensor:
    """``x/2 * (1 + erf(x / sqrt 2))``, the exact form."""
    return map_elements(x, lambda v: call("gelu", v), "gelu")


def gelu_tanh(x: Tensor) -> Tensor:
    """``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3)))``."""
    return map_elements(x, lambda v: call("gelu_tanh", v), "gelu_tanh")


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
