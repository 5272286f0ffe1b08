"""Complex numbers in graphs: a tensor of the real and one of the imaginary parts.

So what moves elements moves those of both parts, sums are sums of parts, and products are a few
real products. Where tensors enter or leave a graph, as parameters, results, constants or operands
of global functions, a complex one is a real tensor with a last axis of 2, as
``torch.view_as_real`` shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir import Expr
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr

#: The dtype of the parts, by that of the numbers.
PART_DTYPES = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class Complex:
    """A complex tensor: its real and imaginary parts, of one shape and dtype."""

    real: RelaxExpr
    imag: RelaxExpr

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Extents of the tensor."""
        return self.real.shape

    @property
    def ndim(self) -> int:
        """Number of the tensor's dimensions."""
        return self.real.ndim

    @property
    def dtype(self) -> str:
        """Dtype of the parts."""
        return self.real.dtype

    def map(self, function: Callable[[RelaxExpr], RelaxExpr]) -> Complex:
        """A function of each part."""
        return Complex(function(self.real), function(self.imag))


def split(x: RelaxExpr) -> Complex:
    """The complex tensor that a real one with a last axis of 2 shows."""
    axis = x.ndim - 1

    def part(number: int) -> RelaxExpr:
        cut = op.strided_slice(x, (axis,), (number,), (number + 1,))
        return op.reshape(cut, x.shape[:axis])

    return Complex(part(0), part(1))


def join(value: Complex | RelaxExpr) -> RelaxExpr:
    """The real tensor with a last axis of 2 that shows a complex one; others as they are."""
    if isinstance(value, Complex):
        return op.stack([value.real, value.imag], value.ndim)
    return value
