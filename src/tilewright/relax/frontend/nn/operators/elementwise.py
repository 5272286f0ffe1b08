"""Operators element by element, comparisons, reductions, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tilewright.relax import ops
from tilewright.relax.frontend.nn.tensor import Operand, Tensor, emit_tensor, unwrapped
from tilewright.relax.registry import BUILDERS


class _Unary(Protocol):
    def __call__(self, x: Tensor, name: str = ...) -> Tensor: ...


class _Binary(Protocol):
    def __call__(self, a: Operand, b: Operand, name: str = ...) -> Tensor: ...


class _Extremum(Protocol):
    def __call__(self, x1: Operand, x2: Operand, name: str = ...) -> Tensor: ...


class _Reduction(Protocol):
    def __call__(
        self,
        x: Tensor,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        name: str = ...,
    ) -> Tensor: ...


def _described(function: Callable[..., object], own: str, operator: str) -> None:
    function.__name__ = function.__qualname__ = own
    function.__doc__ = BUILDERS[operator].__doc__


def _unary(own: str, operator: str, hint: str = "") -> _Unary:
    build = BUILDERS[operator]

    def call(x: Tensor, name: str = hint or own) -> Tensor:
        return emit_tensor(build(unwrapped(x)), name)

    _described(call, own, operator)
    return call


def _binary(own: str, operator: str, hint: str = "") -> _Binary:
    build = BUILDERS[operator]

    def call(a: Operand, b: Operand, name: str = hint or own) -> Tensor:
        return emit_tensor(build(unwrapped(a), unwrapped(b)), name)

    _described(call, own, operator)
    return call


def _extremum(own: str) -> _Extremum:
    build = BUILDERS[own]

    def call(x1: Operand, x2: Operand, name: str = own) -> Tensor:
        return emit_tensor(build(unwrapped(x1), unwrapped(x2)), name)

    _described(call, own, own)
    return call


def _reduction(own: str) -> _Reduction:
    build = BUILDERS[own]

    def call(
        x: Tensor,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        name: str = own,
    ) -> Tensor:
        chosen = axis if axis is None or isinstance(axis, int) else tuple(axis)
        return emit_tensor(build(x, chosen, keepdims), name)

    _described(call, own, own)
    return call


exp = _unary("exp", "exp")
floor = _unary("floor", "floor")
log = _unary("log", "log")
negative = _unary("negative", "negative", "neg")
relu = _unary("relu", "nn.relu")
relu6 = _unary("relu6", "nn.relu6")
sigmoid = _unary("sigmoid", "sigmoid")
silu = _unary("silu", "nn.silu")
sqrt = _unary("sqrt", "sqrt")
square = _unary("square", "square")
tanh = _unary("tanh", "tanh")

add = _binary("add", "add")
divide = _binary("divide", "divide")
equal = _binary("equal", "equal")
greater = _binary("greater", "greater")
greater_equal = _binary("greater_equal", "greater_equal")
less = _binary("less", "less")
less_equal = _binary("less_equal", "less_equal")
multiply = _binary("multiply", "multiply", "mul")
not_equal = _binary("not_equal", "not_equal")
subtract = _binary("subtract", "subtract")
maximum = _extremum("maximum")
minimum = _extremum("minimum")

max = _reduction("max")
min = _reduction("min")
sum = _reduction("sum")


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """X * Phi(x); ``approximate="tanh"`` for the tanh form.

    Raises ``ValueError`` for another form.
    """
    if approximate not in (None, "none", "tanh"):
        raise ValueError(f"approximate must be None, 'none' or 'tanh', got {approximate!r}")
    return emit_tensor(ops.nn.gelu_tanh(x) if approximate == "tanh" else ops.nn.gelu(x), name)


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """E to the power of x, divided by the sum along ``axis``."""
    return emit_tensor(ops.nn.softmax(x, axis), name)


def softplus(
    x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus"
) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x > threshold``."""
    return emit_tensor(ops.nn.softplus(x, beta, threshold), name)


def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """X, and ``alpha * x`` below zero; ``alpha`` is one number, or one for each channel."""
    return emit_tensor(ops.nn.prelu(x, alpha), name)


def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """Convert to another dtype; the same one gives the tensor itself."""
    return x if x.dtype == dtype else emit_tensor(ops.astype(x, dtype), name)


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """Matrix product, batch dimensions broadcast."""
    return emit_tensor(ops.matmul(a, b, out_dtype), name)


def where(condition: Tensor, x1: Operand, x2: Operand, name: str = "where") -> Tensor:
    """``x1`` where the condition holds, ``x2`` elsewhere.

    A condition that is not of bools holds where it isn't zero.
    """
    test = condition if condition.dtype == "bool" else astype(condition, "bool")
    return emit_tensor(ops.where(test, unwrapped(x1), unwrapped(x2)), name)


__all__ = [
    "add", "astype", "divide", "equal", "exp", "floor", "gelu", "greater", "greater_equal", "less",
    "less_equal", "log", "matmul", "max", "maximum", "min", "minimum", "multiply", "negative",
    "not_equal", "prelu", "relu", "relu6", "sigmoid", "silu", "softmax", "softplus", "sqrt",
    "square", "subtract", "sum", "tanh", "where",
]  # fmt: skip
