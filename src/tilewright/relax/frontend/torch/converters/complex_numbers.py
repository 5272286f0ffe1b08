"""Complex numbers: making and taking apart, arithmetic, functions, products of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright.ir import dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    COMPLEX_CONVERTERS,
    CONVERTERS,
    ComplexOperand,
    Context,
    Number,
    converts,
    converts_complex,
)
from tilewright.relax.frontend.torch.converters.complex_parts import nonzero
from tilewright.relax.frontend.torch.pairs import Complex, join, split
from tilewright.relax.values import const

if TYPE_CHECKING:
    import torch

Product = Callable[[RelaxExpr, RelaxExpr], RelaxExpr]

# ---- arithmetic that converters share ------------------------------------------------------------


def product(function: Product, a: RelaxExpr | Complex, b: RelaxExpr | Complex) -> Complex:
    """A product of bound operands, at least one complex; ``function`` is that of real ones."""
    if not isinstance(b, Complex):
        assert isinstance(a, Complex), "one operand is complex"
        return a.map(lambda part: function(part, b))
    if not isinstance(a, Complex):
        return b.map(lambda part: function(a, part))
    real = op.subtract(function(a.real, b.real), function(a.imag, b.imag))
    return Complex(real, op.add(function(a.real, b.imag), function(a.imag, b.real)))


def _added(a: RelaxExpr | Complex, b: Complex) -> Complex:
    if isinstance(a, Complex):
        return Complex(op.add(a.real, b.real), op.add(a.imag, b.imag))
    return Complex(op.add(a, b.real), b.imag)


def _quotient(ctx: Context, a: RelaxExpr | Complex, b: RelaxExpr | Complex) -> Complex:
    """By Smith's method: scaled by the larger part of the divisor, so squares don't overflow."""
    if not isinstance(b, Complex):
        assert isinstance(a, Complex), "one operand is complex"
        return a.map(lambda part: op.divide(part, b))
    turned = ctx.emit(op.less(op.abs(b.real), op.abs(b.imag)))
    large = ctx.emit(op.where(turned, b.imag, b.real))
    ratio = ctx.emit(op.divide(op.where(turned, b.real, b.imag), large))
    small = op.multiply(op.where(turned, b.real, b.imag), ratio)
    one = const(1, b.dtype)
    scale = ctx.emit(op.divide(one, op.add(large, small)))
    x, y = (a.real, a.imag) if isinstance(a, Complex) else (a, const(0, b.dtype))
    first = ctx.emit(op.where(turned, y, x))
    second = ctx.emit(op.where(turned, x, y))
    real = op.multiply(op.add(first, op.multiply(second, ratio)), scale)
    imag = ctx.emit(op.multiply(op.subtract(second, op.multiply(first, ratio)), scale))
    return Complex(real, op.where(turned, op.negative(imag), imag))


def modulus(x: Complex) -> RelaxExpr:
    """The absolute value."""
    made: RelaxExpr = op.hypot(x.real, x.imag)
    return made


def _operand(ctx: Context, value: ComplexOperand) -> RelaxExpr | Complex:
    """An operand in the result's precision; real ones stay real."""
    if isinstance(value, (Complex, complex)):
        return ctx.bind(ctx.complex(value, ctx.dtype))
    return ctx.emit(ctx.tensor(value, ctx.dtype))


# ---- making and taking apart ---------------------------------------------------------------------


@converts_complex("aten.complex.default")
def _complex(ctx: Context, real: RelaxExpr, imag: RelaxExpr) -> Complex:
    return Complex(op.broadcast_to(real, ctx.shape), op.broadcast_to(imag, ctx.shape))


@converts_complex("aten.polar.default")
def _polar(ctx: Context, size: RelaxExpr, angle: RelaxExpr) -> Complex:
    return Complex(op.multiply(size, op.cos(angle)), op.multiply(size, op.sin(angle)))


@converts_complex("aten.view_as_complex.default")
def _view_as_complex(ctx: Context, x: RelaxExpr) -> Complex:
    return split(x)


@converts_complex("aten.view_as_real.default")
def _view_as_real(ctx: Context, x: Complex) -> RelaxExpr:
    return join(x)


@converts_complex("aten.view.dtype")
def _view_dtype(ctx: Context, x: RelaxExpr | Complex, dtype: torch.dtype) -> RelaxExpr | Complex:
    """The same memory read as numbers of another kind; rows of real numbers hold both parts."""
    if x.dtype != ctx.dtype:
        raise ctx.error(f"parts of {x.dtype} can't be read as {ctx.dtype}")
    if isinstance(x, Complex):
        return x if ctx.is_complex else op.reshape(join(x), ctx.shape)
    return split(op.reshape(x, (*ctx.shape, 2)))


@converts_complex("aten.real.default")
def _real(ctx: Context, x: Complex) -> RelaxExpr:
    return x.real


@converts_complex("aten.imag.default")
def _imag(ctx: Context, x: Complex) -> RelaxExpr:
    return x.imag


@converts_complex("aten.resolve_conj.default", "aten.resolve_neg.default")
def _resolve(ctx: Context, x: Complex) -> Complex:
    return x


@converts_complex("aten._neg_view.default")
def _negative(ctx: Context, x: Complex) -> Complex:
    return x.map(op.negative)


@converts("aten._neg_view.default")
def _negative_part(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return op.negative(x)


@converts("aten.real.default", "aten.resolve_conj.default", "aten.resolve_neg.default",
          "aten.conj.default", "aten._conj.default")  # fmt: skip
def _same(ctx: Context, x: RelaxExpr) -> RelaxExpr:
    return x


@converts_complex(
    "aten._conj.default", "aten._conj_physical.default", "aten.conj.default",
    "aten.conj_physical.default",
)  # fmt: skip
def _conjugate(ctx: Context, x: Complex) -> Complex:
    return Complex(x.real, op.negative(x.imag))


@converts_complex("aten.adjoint.default", "aten.mH.default", "aten.matrix_H.default")
def _adjoint(ctx: Context, x: Complex) -> Complex:
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return _conjugate(ctx, x.map(lambda part: op.permute_dims(part, axes)))


@converts_complex(
    "aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device",
    "aten.to.other", "aten.type_as.default", "prims.convert_element_type.default",
)  # fmt: skip
def _to(ctx: Context, x: RelaxExpr | Complex, *_: object, **__: object) -> RelaxExpr | Complex:
    if ctx.is_complex:
        return ctx.complex(x, ctx.dtype)
    assert isinstance(x, Complex), "it or its result is complex"
    return nonzero(x) if dtypes.is_bool(ctx.dtype) else ctx.cast(x.real, ctx.dtype)


@converts_complex("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def _ones(ctx: Context, *_: object, dtype: torch.dtype | None = None) -> RelaxExpr | Complex:
    real = op.ones(ctx.shape, ctx.dtype)
    return ctx.complex(real) if ctx.is_complex else real


# ---- arithmetic ----------------------------------------------------------------------------------


@converts_complex("aten.mul.Tensor", "aten.mul.Scalar")
def _mul(ctx: Context, a: ComplexOperand, b: ComplexOperand) -> Complex:
    return product(op.multiply, *_pair(ctx, a, b))


@converts_complex("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def _div(ctx: Context, a: ComplexOperand, b: ComplexOperand) -> Complex:
    return _quotient(ctx, *_pair(ctx, a, b))


def _pair(
    ctx: Context, a: ComplexOperand, b: ComplexOperand
) -> tuple[RelaxExpr | Complex, RelaxExpr | Complex]:
    """Operands, of which one at least is complex."""
    first, second = _operand(ctx, a), _operand(ctx, b)
    return first, second


@converts_complex("aten.square.default")
def _square(ctx: Context, x: Complex) -> Complex:
    return product(op.multiply, x, x)


@converts_complex("aten.reciprocal.default")
def _reciprocal(ctx: Context, x: Complex) -> Complex:
    return _quotient(ctx, const(1, x.dtype), x)


@converts_complex("aten.addcmul.default")
def _addcmul(
    ctx: Context, x: ComplexOperand, a: ComplexOperand, b: ComplexOperand, value: Number = 1
) -> Complex:
    made = ctx.bind(_mul(ctx, ctx.complex(a), b))
    return _added(ctx.bind(ctx.complex(x, ctx.dtype)), _scaled(ctx, made, value))


def _scaled(ctx: Context, x: Complex, factor: ComplexOperand) -> Complex:
    return x if factor == 1 else product(op.multiply, x, _operand(ctx, factor))


@converts_complex("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _pow(ctx: Context, base: ComplexOperand, exponent: ComplexOperand) -> Complex:
    x = ctx.bind(ctx.complex(base, ctx.dtype))
    special = _POWERS.get(exponent) if isinstance(exponent, (int, float)) else None
    if special is not None:
        return special(ctx, x)
    made = product(op.multiply, ctx.bind(_log(ctx, x)), _operand(ctx, exponent))
    return _exp(ctx, ctx.bind(made))


# ---- functions -----------------------------------------------------------------------------------


@converts_complex("aten.abs.default")
def _abs(ctx: Context, x: Complex) -> RelaxExpr:
    return modulus(x)


@converts_complex("aten.angle.default")
def _angle(ctx: Context, x: Complex) -> RelaxExpr:
    return op.atan2(x.imag, x.real)


@converts_complex("aten.sgn.default")
def _sgn(ctx: Context, x: Complex) -> Complex:
    """The number of absolute value 1 in the same direction; of zero, zero."""
    size = ctx.emit(modulus(x))
    zero = const(0, x.dtype)
    divisor = ctx.emit(op.where(op.equal(size, zero), const(1, x.dtype), size))
    return x.map(lambda part: op.divide(part, divisor))


@converts_complex("aten.exp.default")
def _exp(ctx: Context, x: Complex) -> Complex:
    size = ctx.emit(op.exp(x.real))
    imag = op.multiply(size, op.sin(x.imag))
    # An infinite size must not meet the sine of a real number, which is zero.
    real_only = op.equal(x.imag, const(0, x.dtype))
    return Complex(op.multiply(size, op.cos(x.imag)), op.where(real_only, x.imag, imag))


@converts_complex("aten.log.default")
def _log(ctx: Context, x: Complex) -> Complex:
    return Complex(op.log(modulus(x)), op.atan2(x.imag, x.real))


def _log_of_base(function: Callable[[RelaxExpr], RelaxExpr], base: float) -> Callable[..., Complex]:
    def convert(ctx: Context, x: Complex) -> Complex:
        angle = op.atan2(x.imag, x.real)
        return Complex(function(modulus(x)), op.multiply(angle, const(1 / math.log(base), x.dtype)))

    return convert


COMPLEX_CONVERTERS.register("aten.log2.default", _log_of_base(op.log2, 2))
COMPLEX_CONVERTERS.register("aten.log10.default", _log_of_base(op.log10, 10))


@converts_complex("aten.sqrt.default")
def _sqrt(ctx: Context, x: Complex) -> Complex:
    """The root of non-negative real part, without cancellation."""
    zero, half = const(0, x.dtype), const(0.5, x.dtype)
    size = op.add(op.abs(x.real), modulus(x))
    root = ctx.emit(op.sqrt(op.multiply(size, half)))
    divisor = op.where(op.equal(root, zero), const(1, x.dtype), root)
    other = ctx.emit(op.divide(op.multiply(x.imag, half), divisor))
    right = ctx.emit(op.greater_equal(x.real, zero))
    return Complex(
        op.where(right, root, op.abs(other)), op.where(right, other, op.copysign(root, x.imag))
    )


@converts_complex("aten.rsqrt.default")
def _rsqrt(ctx: Context, x: Complex) -> Complex:
    return _reciprocal(ctx, ctx.bind(_sqrt(ctx, x)))


@converts_complex("aten.sigmoid.default")
def _sigmoid(ctx: Context, x: Complex) -> Complex:
    made = _added(const(1, x.dtype), _exp(ctx, ctx.bind(x.map(op.negative))))
    return _reciprocal(ctx, ctx.bind(made))


@converts_complex("aten.silu.default")
def _silu(ctx: Context, x: Complex) -> Complex:
    return product(op.multiply, x, ctx.bind(_sigmoid(ctx, x)))


@converts_complex("aten.sinh.default")
def _sinh(ctx: Context, x: Complex) -> Complex:
    return Complex(
        op.multiply(op.sinh(x.real), op.cos(x.imag)), op.multiply(op.cosh(x.real), op.sin(x.imag))
    )


@converts_complex("aten.cosh.default")
def _cosh(ctx: Context, x: Complex) -> Complex:
    return Complex(
        op.multiply(op.cosh(x.real), op.cos(x.imag)), op.multiply(op.sinh(x.real), op.sin(x.imag))
    )


@converts_complex("aten.tanh.default")
def _tanh(ctx: Context, x: Complex) -> Complex:
    """By the tangents of the parts, which don't overflow as sinh and cosh do."""
    t, u = ctx.emit(op.tanh(x.real)), ctx.emit(op.tan(x.imag))
    one = const(1, x.dtype)
    squares = op.square(t), op.square(u)
    below = ctx.emit(op.add(one, op.multiply(*squares)))
    real = op.divide(op.multiply(t, op.add(one, squares[1])), below)
    return Complex(real, op.divide(op.multiply(u, op.subtract(one, squares[0])), below))


def _turned(function: Callable[[Context, Complex], Complex]) -> Callable[..., Complex]:
    """``f(i x) / i``: sine and tangent by the hyperbolic functions."""

    def convert(ctx: Context, x: Complex) -> Complex:
        made = function(ctx, ctx.bind(Complex(op.negative(x.imag), x.real)))
        return Complex(made.imag, op.negative(made.real))

    return convert


COMPLEX_CONVERTERS.register("aten.sin.default", _turned(_sinh))
COMPLEX_CONVERTERS.register("aten.tan.default", _turned(_tanh))


@converts_complex("aten.cos.default")
def _cos(ctx: Context, x: Complex) -> Complex:
    return _cosh(ctx, ctx.bind(Complex(op.negative(x.imag), x.real)))


_POWERS: dict[Number, Callable[[Context, Complex], Complex]] = {
    -1: _reciprocal,
    -0.5: _rsqrt,
    0: lambda ctx, x: ctx.complex(op.ones(x.shape, x.dtype)),
    0.5: _sqrt,
    1: lambda ctx, x: x,
    2: _square,
    3: lambda ctx, x: product(op.multiply, ctx.bind(_square(ctx, x)), x),
}

# ---- comparison ----------------------------------------------------------------------------------


def _comparison(
    compare: Callable[..., RelaxExpr], both: Callable[..., RelaxExpr]
) -> Callable[..., RelaxExpr]:
    def convert(ctx: Context, a: ComplexOperand, b: ComplexOperand) -> RelaxExpr:
        x, y = (ctx.complex(value, ctx.operand_dtype()) for value in (a, b))
        return both(compare(x.real, y.real), compare(x.imag, y.imag))

    return convert


for _overload in ("Tensor", "Scalar"):
    COMPLEX_CONVERTERS.register(f"aten.eq.{_overload}", _comparison(op.equal, op.logical_and))
    COMPLEX_CONVERTERS.register(f"aten.ne.{_overload}", _comparison(op.not_equal, op.logical_or))


def _test(
    test: Callable[[RelaxExpr], RelaxExpr], both: Callable[..., RelaxExpr]
) -> Callable[..., RelaxExpr]:
    return lambda ctx, x: both(test(x.real), test(x.imag))


COMPLEX_CONVERTERS.register("aten.isfinite.default", _test(op.isfinite, op.logical_and))
COMPLEX_CONVERTERS.register("aten.isinf.default", _test(op.isinf, op.logical_or))
COMPLEX_CONVERTERS.register("aten.isnan.default", _test(op.isnan, op.logical_or))

# ---- reductions ----------------------------------------------------------------------------------


@converts_complex("aten.linalg_vector_norm.default")
def _vector_norm(
    ctx: Context, x: Complex, order: float = 2, dim: int | Sequence[int] | None = None,
    keepdim: bool = False, *, dtype: torch.dtype | None = None,
) -> RelaxExpr:  # fmt: skip
    real = CONVERTERS.get("aten.linalg_vector_norm.default")
    made: RelaxExpr = real(ctx, ctx.emit(modulus(x)), order, dim, keepdim, dtype=dtype)  # type: ignore[assignment]  # converters give object
    return made


# ---- products of matrices ------------------------------------------------------------------------


@converts_complex(
    "aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default",
    "aten.dot.default",
)  # fmt: skip
def _matmul(ctx: Context, a: RelaxExpr | Complex, b: RelaxExpr | Complex) -> Complex:
    return product(op.matmul, a, b)


@converts_complex("aten.vdot.default")
def _vdot(ctx: Context, a: Complex, b: Complex) -> Complex:
    return product(op.matmul, ctx.bind(_conjugate(ctx, a)), b)


@converts_complex("aten.linear.default")
def _linear(
    ctx: Context, x: RelaxExpr | Complex, weight: RelaxExpr | Complex,
    bias: RelaxExpr | Complex | None = None,
) -> Complex:  # fmt: skip
    made = product(op.linear if weight.ndim > 1 else op.matmul, x, weight)
    return made if bias is None else _added(bias, made)


@converts_complex("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def _addmm(
    ctx: Context, x: RelaxExpr | Complex, a: RelaxExpr | Complex, b: RelaxExpr | Complex,
    *, beta: ComplexOperand = 1, alpha: ComplexOperand = 1,
) -> Complex:  # fmt: skip
    made = ctx.bind(_scaled(ctx, ctx.bind(product(op.matmul, a, b)), alpha))
    if beta == 0:
        return made
    return _added(_scaled(ctx, ctx.bind(ctx.complex(x)), beta), made)
