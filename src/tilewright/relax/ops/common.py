"""Helpers of inference rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from tilewright import topi
from tilewright.arith import simplify
from tilewright.ir import Expr, as_expr, as_int, const, minimum, product
from tilewright.relax.conditions import require, require_equal
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.layout import Layout


def topi_function(path: str) -> Callable[..., Any]:
    """Return the function ``topi.<path>``, for tables of operators."""
    found: Callable[..., Any] = attrgetter(path)(topi)
    return found


def known(info: TensorStructInfo, name: str = "x") -> tuple[Expr, ...]:
    """Return the extents of an operand whose shape must be known.

    Raises ``VerifyError`` if it isn't.
    """
    if not info.has_shape:
        raise VerifyError(f"the shape of {name} must be known, use match_cast to state it")
    return info.shape


def plain_info(
    info: TensorStructInfo, layout: Layout, name: str, axes: str = ""
) -> TensorStructInfo:
    """The struct info of an operand without the blocks of its layout, its axes in an order."""
    require_ndim(info, layout.ndim, name)
    extents = layout.extents(known(info, name))
    return TensorStructInfo(tuple(extents[axis] for axis in axes or layout.axes), info.dtype)


def laid_out(info: StructInfo, layout: Layout, axes: str = "") -> TensorStructInfo:
    """The struct info of a plain tensor, its axes in an order, in a layout."""
    assert isinstance(info, TensorStructInfo)
    extents = dict(zip(axes or layout.axes, info.shape))
    return TensorStructInfo(layout.shape(extents), info.dtype)


def tensor_like(info: TensorStructInfo, *, dtype: str | None = None) -> TensorStructInfo:
    """The struct info of a tensor of the same shape, possibly of another dtype."""
    if info.has_shape:
        return TensorStructInfo(info.shape, dtype or info.dtype)
    return TensorStructInfo(None, dtype or info.dtype, ndim=info.ndim)


def broadcast(*shapes: Sequence[Expr]) -> tuple[Expr, ...]:
    """Broadcast shapes as NumPy does, except that an unknown extent is not taken to be 1.

    So two aligned symbolic extents must be equal.
    """
    ndim = max(len(shape) for shape in shapes)
    made: list[Expr] = []
    for axis in range(ndim):
        best: Expr = const(1)
        for shape in shapes:
            position = axis - ndim + len(shape)
            if position < 0 or as_int(shape[position]) == 1:
                continue
            extent = shape[position]
            if as_int(best) == 1:
                best = extent
                continue
            require_equal("extents do not broadcast", best, extent)
            if as_int(extent) is not None:
                best = extent
        made.append(best)
    return tuple(made)


def same_dtype(*infos: TensorStructInfo) -> str:
    """Return the common dtype of operands.

    Raises ``VerifyError`` if they differ.
    """
    found = infos[0].dtype
    for info in infos[1:]:
        if info.dtype != found:
            raise VerifyError(
                f"operands have dtypes {found} and {info.dtype}: convert one with astype"
            )
    return found


def element_count(extents: Sequence[Expr]) -> Expr:
    """Number of elements of a shape."""
    return simplify(product(extents))


def require_ndim(info: TensorStructInfo, ndim: int, name: str = "x") -> None:
    """Refuse an operand with another number of dimensions."""
    if info.ndim not in (ndim, -1):
        raise VerifyError(f"{name} must have {ndim} dimensions, it has {info.ndim}")


def window(
    extent: Expr, size: Expr | int, stride: int, before: int, after: int, dilation: int = 1,
    *, ceil_mode: bool = False,
) -> Expr:  # fmt: skip
    """Extent of a sliding window's result.

    Raises ``VerifyError`` for strides and dilations below one, and negative padding.
    """
    if stride < 1 or dilation < 1 or before < 0 or after < 0:
        raise VerifyError(
            "strides and dilation must be positive and padding not negative, got "
            f"{stride}, {dilation} and {(before, after)}"
        )
    taps = as_expr(size)
    require(taps >= 1, "the window is empty: ", taps)
    free = simplify(extent + (before + after) - ((taps - 1) * dilation + 1))
    # With `ceil_mode` the last window may reach beyond the padding, by less than a stride.
    require(
        free + (stride - 1 if ceil_mode else 0) >= 0,
        "the window of ", taps, " does not fit extent ", extent,
        f" padded by {before} and {after}",
    )  # fmt: skip
    if not ceil_mode:
        return simplify(free // stride + 1)
    # The last window starts inside of the image or in the padding before it.
    last = simplify(minimum(free + (stride - 1), extent + (before - 1)))
    return simplify(last // stride + 1)
