"""Resizing of images by tables of places and weights, with PyTorch's meaning.

The source of a result pixel is a function of its row and one of its column, so it is tabulated:
positions, and weights of two neighbours. Linear interpolation goes by rows first: two whole rows
are blended, and then neighbours within the blended row. Other images and cubic interpolation go
axis by axis (``topi/resampling.py``).

Coordinates are computed as in PyTorch, in single precision (double for float64): which pixel is
nearest depends on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import (
    INDEX,
    Expr,
    ExprLike,
    as_expr,
    as_int,
    call,
    const,
    dtypes,
    maximum,
    minimum,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, with_conditions
from tilewright.tir.attrs import one_of, register_annotation
from tilewright.topi.resampling import Axis, Filter, filter_of, resize_axis
from tilewright.topi.utils import require_elements, require_ndim

#: Ways to find the value of a pixel, and where pixels of the result lie on the image.
RESIZE_METHODS = ("nearest_neighbor", "linear", "cubic")
RESIZE_LAYOUTS = ("NCW", "NWC", "NCHW", "NHWC", "NCDHW", "NDHWC")
RESIZE_COORDINATES = ("half_pixel", "align_corners", "asymmetric")
RESIZE = register_annotation(
    "resize",
    one_of("table", "rows"),
    means="What a resize computes first: its ``table`` or its ``rows``.",
    read_by=("dlight.cpu.resize",),
)


@dataclass(frozen=True)
class _Places:
    """Along one axis: the positions read for each result, and the weight of the second one."""

    first: Tensor
    second: Tensor
    weight: Tensor


def check_resize(
    method: str, mode: str, layout: str, scale_factor: Sequence[float] | None, dtype: str
) -> int:
    """Refuse options that resizing does not support; the message lists those it does.

    Gives the number of axes that are resized.
    """
    for what, value, known in (
        ("method", method, RESIZE_METHODS),
        ("coordinate_transformation_mode", mode, RESIZE_COORDINATES),
        ("layout", layout, RESIZE_LAYOUTS),
    ):
        if value not in known:
            raise VerifyError(f"resize: {what} must be one of {', '.join(known)}, got {value!r}")
    axes = len(layout) - 2
    if scale_factor is not None and (len(scale_factor) != axes or min(scale_factor) <= 0):
        raise VerifyError(
            f"resize: scale_factor must be {axes} positive number(s), got {scale_factor}"
        )
    if method != "nearest_neighbor" and not dtypes.is_float(dtype):
        raise VerifyError(f"resize: {method} interpolation is for floats, got {dtype}")
    return axes


def resized_axes(
    shape: Sequence[Expr], size: Sequence[ExprLike], layout: str, mode: str,
    scale_factor: Sequence[float] | None, dtype: str,
) -> dict[int, Axis]:  # fmt: skip
    """The axes that are resized, by their number."""
    first = 1 if layout.endswith("C") else 2
    number = "float64" if dtype == "float64" else "float32"
    made = {}
    for k, want in enumerate(size):
        extents = [as_expr(extent, INDEX) for extent in (shape[first + k], want)]
        have, result = (n if (known := as_int(n)) is None else known for n in extents)
        factor = scale_factor[k] if scale_factor else None
        made[first + k] = Axis(have, result, number, mode, factor)
    return made


def resized_along(x: Tensor, axes: dict[int, Axis], how: Filter) -> Tensor:
    """Resize axes one after the other, with floats of the axes' dtype unless pixels are picked."""
    made = x
    wide = next(iter(axes.values())).dtype
    if not how.picks and x.dtype != wide:
        made = compute(x.shape, lambda *i: cast_expr(x(*i), wide), name="wide")
    for number, axis in axes.items():
        made = resize_axis(made, number, axis, how)
    return made


@with_conditions
def resize(
    x: Tensor,
    size: ExprLike | Sequence[ExprLike],
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: Sequence[float] | None = None,
    cubic_alpha: float = -0.75,
    antialias: bool = False,
) -> Tensor:
    """Resize the axes of ``layout`` that aren't ``N`` or ``C``, one after the other.

    Options are those of :func:`resize2d_by_tables`; with ``antialias``, a result of an image that
    shrinks is a mean of all the pixels it covers.
    """
    mode = coordinate_transformation_mode
    axes = check_resize(method, mode, layout, scale_factor, x.dtype)
    require_ndim(f"resize{axes}d", x, axes + 2)
    how = filter_of(method, mode, cubic_alpha, antialias)
    along = resized_axes(x.shape, _extents(size, axes), layout, mode, scale_factor, x.dtype)
    made = resized_along(x, along, how)
    if made.dtype == x.dtype:
        return made
    narrow: Tensor = compute(made.shape, lambda *i: cast_expr(made(*i), x.dtype), name="resize")
    return narrow


@with_conditions
def resize2d_by_tables(
    x: Tensor,
    size: ExprLike | Sequence[ExprLike],
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: Sequence[float] | None = None,
    cubic_alpha: float = -0.75,
) -> Tensor:
    """Resize images to the height and width of ``size``.

    ``method`` is ``nearest_neighbor``, ``linear`` or ``cubic`` (Keys' convolution with
    ``cubic_alpha``). ``scale_factor`` (height, width) gives the distance between pixels of the
    result, if that is not the ratio of the sizes; it is unused with aligned corners.
    """
    require_ndim("resize2d", x, 4)
    check_resize(method, coordinate_transformation_mode, layout, scale_factor, x.dtype)
    if method == "cubic":
        mode = coordinate_transformation_mode
        return resize(x, size, layout, method, mode, scale_factor, cubic_alpha)
    at = layout.index("H")
    number = "float64" if x.dtype == "float64" else "float32"
    mode, extents = coordinate_transformation_mode, _extents(size, 2)
    steps = [
        _step(x.shape[at + k], extents[k], mode, scale_factor[k] if scale_factor else None, number)
        for k in range(2)
    ]
    for k in range(2):
        require_elements("resize2d", x.shape[at + k], extents[k])
    make = _nearest if method == "nearest_neighbor" else _linear
    made: Tensor = make(x, extents, at, mode, steps, number)
    return made


def _extents(size: ExprLike | Sequence[ExprLike], axes: int) -> list[Expr]:
    """Extents of the result."""
    given = list(size) if isinstance(size, Sequence) else [size]
    if len(given) not in (1, axes):
        raise VerifyError(f"size takes 1 or {axes} numbers, got {given}")
    given = given * (axes // len(given))
    return [as_expr(extent, INDEX) for extent in given]


def _step(extent: Expr, out: Expr, mode: str, factor: float | None, number: str) -> Expr:
    """The distance in the source image between neighbours in the result."""
    if factor is not None and mode != "align_corners":
        return const(1.0 / factor, number)
    less = 1 if mode == "align_corners" else 0
    steps = simplify(maximum(out - less, 1))  # a single result lies at 0, however long its step is
    return cast_expr(extent - less, number) / cast_expr(steps, number)


def _table(out: Expr, formula: Any, name: str) -> Tensor:
    made: Tensor = compute(
        (out,), lambda i: formula(i), name=name, tag="resize", attrs={RESIZE: "table"}
    )
    return made


def _nearest(
    x: Tensor, size: Sequence[Expr], at: int, mode: str, steps: Sequence[Expr], number: str
) -> Tensor:
    def place(i: Expr, step: Expr, extent: Expr) -> Expr:
        moved = cast_expr(i, number)
        if mode == "half_pixel":
            found = (moved + const(0.5, number)) * step
        else:
            found = moved * step + const(0.5 if mode == "align_corners" else 0.0, number)
        nearest = cast_expr(call("floor", found), INDEX)
        return minimum(nearest, cast_expr(extent - 1, INDEX))

    rows, columns = (
        _table(size[k], lambda i, k=k: place(i, steps[k], x.shape[at + k]), f"resize_{'hw'[k]}")
        for k in range(2)
    )

    def pixel(*i: Expr) -> Expr:
        return x(*i[:at], rows(i[at]), columns(i[at + 1]), *i[at + 2 :])

    shape = [*x.shape[:at], *size, *x.shape[at + 2 :]]
    made: Tensor = compute(
        shape, lambda a, b, c, d: pixel(a, b, c, d), name="resize2d", tag="resize"
    )
    return made


def _places(out: Expr, extent: Expr, mode: str, step: Expr, number: str, axis: str) -> _Places:
    def source(i: Expr) -> Expr:
        moved = cast_expr(i, number)
        if mode != "half_pixel":
            return moved * step
        middle = (moved + const(0.5, number)) * step - const(0.5, number)
        return maximum(middle, const(0.0, number))

    last = cast_expr(extent - 1, INDEX)

    def first(i: Expr) -> Expr:
        return minimum(cast_expr(source(i), INDEX), last)

    return _Places(
        _table(out, first, f"resize_{axis}0"),
        _table(out, lambda i: minimum(first(i) + 1, last), f"resize_{axis}1"),
        _table(out, lambda i: source(i) - cast_expr(first(i), number), f"resize_{axis}_part"),
    )


def _linear(
    x: Tensor, size: Sequence[Expr], at: int, mode: str, steps: Sequence[Expr], number: str
) -> Tensor:
    rows, columns = (
        _places(size[k], x.shape[at + k], mode, steps[k], number, "hw"[k]) for k in range(2)
    )

    def mixed(a: Expr, b: Expr, weight: Expr) -> Expr:
        return cast_expr(a, number) * (const(1.0, number) - weight) + cast_expr(b, number) * weight

    def between_rows(*i: Expr) -> Expr:
        a, b = (x(*i[:at], t(i[at]), *i[at + 1 :]) for t in (rows.first, rows.second))
        return mixed(a, b, rows.weight(i[at]))

    shape = [*x.shape[:at], size[0], *x.shape[at + 1 :]]
    stage = compute(
        shape,
        lambda a, b, c, d: between_rows(a, b, c, d),
        name="resize_rows",
        tag="resize",
        attrs={RESIZE: "rows"},
    )

    def pixel(*i: Expr) -> Expr:
        w = at + 1
        a, b = (stage(*i[:w], t(i[w]), *i[w + 1 :]) for t in (columns.first, columns.second))
        return cast_expr(mixed(a, b, columns.weight(i[w])), x.dtype)

    shape[at + 1] = size[1]
    made: Tensor = compute(
        shape, lambda a, b, c, d: pixel(a, b, c, d), name="resize2d", tag="resize"
    )
    return made
