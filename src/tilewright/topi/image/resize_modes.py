"""``resize1d``, ``resize2d`` and ``resize3d``: TVM's arguments, modes and ways to round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.ir import INDEX, Expr, ExprLike, as_expr, as_int, cast, const, dtypes, or_, select
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.te import Tensor, compute, with_conditions
from tilewright.topi.image.resize import (
    RESIZE_COORDINATES,
    RESIZE_LAYOUTS,
    RESIZE_METHODS,
    resize2d_by_tables,
    resized_along,
    resized_axes,
)
from tilewright.topi.resampling import (
    LINEAR,
    ROUNDINGS,
    Axis,
    Filter,
    Symbolic,
    cubic,
    index_table,
    nearest,
)
from tilewright.topi.utils import require_ndim

_CROP = "tf_crop_and_resize"
_MODES = (*RESIZE_COORDINATES, "pytorch_half_pixel", "tf_half_pixel_for_nn", _CROP)


def _check(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise VerifyError(f"resize: {what} must be one of {', '.join(known)}, got {value!r}")


def check_modes(method: str, mode: str, rounding: str, layout: str) -> None:
    """Refuse options that ``resize2d`` and its like don't have; the message lists those they do."""
    _check("method", method, RESIZE_METHODS)
    _check("coordinate_transformation_mode", mode, _MODES)
    _check("layout", layout, RESIZE_LAYOUTS)
    if method == "nearest_neighbor" and rounding:
        _check("rounding_method", rounding, ROUNDINGS)


def _filter(method: str, mode: str, rounding: str, alpha: float, exclude: bool) -> Filter:
    _check("method", method, RESIZE_METHODS)
    _check("coordinate_transformation_mode", mode, _MODES)
    if method == "linear":
        return LINEAR
    if method == "cubic":
        return cubic(alpha, bool(exclude))
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    _check("rounding_method", rounding, ROUNDINGS)
    return nearest(rounding)


def _axes_of(
    data: Tensor, roi: Any, size: Sequence[Any], layout: str, mode: str
) -> dict[int, Axis]:
    """The axes that are resized; ``roi`` has all their begins, and then all their ends."""
    axes = resized_axes(data.shape, size, layout, mode, None, data.dtype)
    if mode != _CROP:
        return axes
    numbers = [getattr(item, "value", item) for item in roi or ()]
    if len(numbers) != 2 * len(axes) or not all(isinstance(n, (int, float)) for n in numbers):
        raise VerifyError(
            f"resize: roi has {2 * len(axes)} numbers, first those where the part begins along "
            f"each axis, then those where it ends; got {roi}"
        )
    ends = zip(numbers[: len(axes)], numbers[len(axes) :])
    return {n: replace(axis, part=part) for (n, axis), part in zip(axes.items(), ends)}


def _beyond(axes: dict[int, Axis], made: Tensor, value: float) -> Tensor:
    """Put ``value`` where results lie outside of the image."""
    a = Symbolic(next(iter(axes.values())).dtype)
    places = {
        n: compute((axis.want,), lambda i, axis=axis: axis.place(a, i), name=f"place{n}")
        for n, axis in axes.items()
    }

    def formula(*i: Expr) -> Expr:
        outside = [
            condition
            for n, axis in axes.items()
            for condition in (
                places[n](i[n]) < a.number(0), places[n](i[n]) > a.real(axis.have - 1)
            )
        ]  # fmt: skip
        return select(or_(*outside), cast(const(float(value), a.dtype), made.dtype), made(*i))

    filled: Tensor = compute(made.shape, formula, name="resize_inside")
    return filled


@with_conditions
def _resize(
    data: Tensor,
    roi: object,
    size: Sequence[ExprLike] | ExprLike,
    layout: str,
    how: tuple[str, str, str, float, int],
    extrapolation_value: float,
    out_dtype: str | None,
    output_shape: Sequence[ExprLike] | None,
) -> Tensor:
    spatial = len(layout) - 2
    require_ndim(f"resize{spatial}d", data, spatial + 2)
    first = 1 if layout.endswith("C") else 2
    extents = output_shape[first : first + spatial] if output_shape is not None else size
    wanted = list(extents) if isinstance(extents, Sequence) else [extents]
    if len(wanted) not in (1, spatial):
        raise VerifyError(f"resize: size takes 1 or {spatial} numbers, got {wanted}")
    places: list[Expr] = [as_expr(n, INDEX) for n in wanted * (spatial // len(wanted))]
    method, mode, rounding, alpha, exclude = how
    filter_used = _filter(method, mode, rounding, alpha, bool(exclude))
    axes = _axes_of(data, roi, places, layout, mode)
    out = out_dtype or data.dtype
    if filter_used.picks:
        made = _picked(data, axes, filter_used)
    elif method == "linear" and _has_tables(mode, places, data.dtype, spatial):
        plain = "half_pixel" if mode == "pytorch_half_pixel" else mode
        made = resize2d_by_tables(data, places, layout, method, plain)
    else:
        made = resized_along(data, axes, filter_used)
    if mode == _CROP:
        made = _beyond(axes, made, extrapolation_value)
    if made.dtype == out:
        return made
    narrow: Tensor = compute(made.shape, lambda *i: cast(made(*i), out), name="resize_cast")
    return narrow


def _has_tables(mode: str, size: Sequence[Expr], dtype: str, spatial: int) -> bool:
    """Whether rows are blended before neighbours in them, which is fast."""
    if spatial != 2 or not dtypes.is_float(dtype):
        return False
    if mode == "pytorch_half_pixel":
        return all((as_int(n) or 0) > 1 for n in size)
    return mode in RESIZE_COORDINATES


def _picked(data: Tensor, axes: dict[int, Axis], how: Filter) -> Tensor:
    """Pixels as they are, by a table along each axis."""
    tables = {number: index_table(axis, how) for number, axis in axes.items()}
    shape = [axes[n].want if n in axes else extent for n, extent in enumerate(data.shape)]

    def formula(*i: Expr) -> Expr:
        return data(*(tables[n](index) if n in tables else index for n, index in enumerate(i)))

    made: Tensor = compute(shape, formula, name="resize", tag="resize")
    return made


def _resize_over(spatial: int, doc: str) -> Callable[..., Tensor]:
    layouts = [layout for layout in RESIZE_LAYOUTS if len(layout) == spatial + 2]

    def resize(
        data: Tensor,
        roi: object,
        size: Sequence[ExprLike] | ExprLike,
        layout: str = layouts[0],
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.75,
        bicubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
        output_shape: Sequence[ExprLike] | None = None,
    ) -> Tensor:
        _check("layout", layout, layouts)
        mode = coordinate_transformation_mode
        how = method, mode, rounding_method, bicubic_alpha, bicubic_exclude
        return _resize(data, roi, size, layout, how, extrapolation_value, out_dtype, output_shape)

    return named(resize, f"resize{spatial}d", doc)


resize1d = _resize_over(1, "Resize rows ``[N, C, W]`` to the width ``size``; see :func:`resize2d`.")
resize2d = _resize_over(
    2,
    """Resize images to the height and width of ``size``.

    ``method`` is ``nearest_neighbor``, ``linear`` or ``cubic`` (Keys' convolution with
    ``bicubic_alpha``; with ``bicubic_exclude`` only pixels of the image count). Results lie by
    ``coordinate_transformation_mode``, for which see :class:`topi.resampling.Axis`. The nearest
    pixel is found by ``rounding_method`` (``round`` to even, ``round_prefer_floor``,
    ``round_prefer_ceil``, ``floor``, ``ceil``), if empty by ``round`` for aligned corners and else
    ``floor``. ``roi`` (top, left, bottom, right, from 0 to 1) is the part that
    ``tf_crop_and_resize`` resizes, with ``extrapolation_value`` outside of the image.
    ``output_shape``, the whole result's shape, goes before ``size``. Results are of ``out_dtype``,
    the data's if not given; integers are interpolated in float32, and lose their fraction.

    Raises ``VerifyError`` for other methods, modes, roundings and layouts.
    """,
)
resize3d = _resize_over(
    3, "Resize volumes to depth, height and width of ``size``; see :func:`resize2d`."
)
