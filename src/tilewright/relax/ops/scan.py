"""Running results along an axis: sums, products, extrema."""

from __future__ import annotations

from tilewright import topi
from tilewright.ir import dtypes
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.common import element_count, known, tensor_like
from tilewright.relax.ops.manipulate import permute_dims, reshape
from tilewright.relax.registry import BUILDERS, Tensor, builder, get_op, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.utils import normal_axis


def _along_rows(call: RelaxCall) -> RelaxExpr | None:
    """Move the axis to the end: a contiguous row is scanned as fast as it is read."""
    x = call.args[0]
    ndim = x.ndim
    scan = _cumsum if call.op is get_op("cumsum") else _cumprod
    if call.attrs["axis"] is None:
        flat: RelaxExpr = scan(reshape(x, (-1,)), 0, call.attrs["dtype"])
        return flat
    axis = call.attrs["axis"] % ndim
    if axis == ndim - 1:
        return None
    order = [n for n in range(ndim) if n != axis] + [axis]
    back = [order.index(n) for n in range(ndim)]
    turned = permute_dims(x, order)
    made: RelaxExpr = permute_dims(scan(turned, ndim - 1, call.attrs["dtype"]), back)
    return made


def _scanned(x: TensorStructInfo, axis: int | None, dtype: str | None) -> StructInfo:
    made = dtype or x.dtype
    if axis is None:
        return TensorStructInfo((element_count(known(x)),), made)
    normal_axis(axis, x.ndim)
    return tensor_like(x, dtype=made)


@operator("cumsum", legalize=topi.cumsum, decompose=_along_rows)
def _cumsum(data: Tensor, axis: int | None = None, dtype: str | None = None) -> StructInfo:
    """Sums of all elements up to each along an axis; of the flat tensor without one."""
    return _scanned(data, axis, dtype)


@operator("cumprod", legalize=topi.cumprod, decompose=_along_rows)
def _cumprod(data: Tensor, axis: int | None = None, dtype: str | None = None) -> StructInfo:
    """Products of all elements up to each along an axis; of the flat tensor without one."""
    return _scanned(data, axis, dtype)


@builder("cumsum")
def cumsum(
    data: RelaxExpr,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = False,
) -> RelaxExpr:
    """Sums of all elements up to each along an axis; of the flat tensor without one.

    ``exclusive`` leaves out the element itself: the first sum is 0.
    """
    made: RelaxExpr = _cumsum(data, axis, dtype)
    return _moved_on(made, axis, 0.0) if exclusive else made


@builder("cumprod")
def cumprod(
    data: RelaxExpr,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = False,
) -> RelaxExpr:
    """Products of all elements up to each along an axis; of the flat tensor without one.

    ``exclusive`` leaves out the element itself: the first product is 1.
    """
    made: RelaxExpr = _cumprod(data, axis, dtype)
    return _moved_on(made, axis, 1.0) if exclusive else made


def _moved_on(x: RelaxExpr, axis: int | None, first: float) -> RelaxExpr:
    """Each result in the next place along an axis, without the last one."""
    place = normal_axis(axis or 0, x.ndim)
    # One width takes what the other one adds: of nothing nothing is left.
    widths = [width for axis in range(x.ndim) for width in ((1, -1) if axis == place else (0, 0))]
    made: RelaxExpr = BUILDERS["nn.pad"](x, tuple(widths), "constant", first)
    return made


@operator("logcumsumexp", legalize=topi.logcumsumexp)
def logcumsumexp(x: Tensor, axis: int = -1) -> StructInfo:
    """Logarithm of the sum of ``exp`` of each element and those before it along an axis.

    Raises ``VerifyError`` for integers.
    """
    if not dtypes.is_float(x.dtype):
        raise VerifyError(f"needs floating-point numbers, got {x.dtype}")
    normal_axis(axis, x.ndim)
    return tensor_like(x)


def _with_places(x: TensorStructInfo, axis: int, dtype: str) -> StructInfo:
    if not dtypes.is_integer(dtype):
        raise VerifyError(f"the dtype of places must be an integer, got {dtype}")
    normal_axis(axis, x.ndim)
    return TupleStructInfo((tensor_like(x), tensor_like(x, dtype=dtype)))


@operator("cummax", legalize=topi.cummax)
def cummax(x: Tensor, axis: int = -1, dtype: str = "int64") -> StructInfo:
    """The greatest of each element and those before it along an axis, and where it is.

    Of equal elements it is the last; NaN is greater than anything. ``dtype`` is that of places.
    """
    return _with_places(x, axis, dtype)


@operator("cummin", legalize=topi.cummin)
def cummin(x: Tensor, axis: int = -1, dtype: str = "int64") -> StructInfo:
    """The least of each element and those before it along an axis, and where it is.

    Of equal elements it is the last; NaN is less than anything. ``dtype`` is that of places.
    """
    return _with_places(x, axis, dtype)
