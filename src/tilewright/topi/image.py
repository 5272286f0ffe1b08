"""Resizing of images: ``resize2d``.

The source of a result pixel is a function of its row and one of its column, so it is tabulated:
positions, and weights of two neighbours. Linear interpolation goes by rows first: two whole rows
are blended, and then neighbours within the blended row.

Coordinates are computed as in PyTorch, in single precision (double for float64): which pixel is
nearest depends on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import INDEX, Expr, ExprLike, as_expr, call, const, dtypes, maximum, minimum
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, with_conditions
from tilewright.tir.attrs import one_of, register_annotation
from tilewright.topi.utils import require_elements, require_ndim

#: Ways to find the value of a pixel, and where pixels of the result lie on the image.
RESIZE_METHODS = ("nearest_neighbor", "linear")
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
) -> None:
    """Refuse options that ``resize2d`` does not support; the message lists those it does."""
    for what, value, known in (
        ("method", method, RESIZE_METHODS),
        ("coordinate_transformation_mode", mode, RESIZE_COORDINATES),
        ("layout", layout, ("NCHW", "NHWC")),
    ):
        if value not in known:
            raise VerifyError(f"resize2d: {what} must be one of {', '.join(known)}, got {value!r}")
    if scale_factor is not None and (len(scale_factor) != 2 or min(scale_factor) <= 0):
        raise VerifyError(f"resize2d: scale_factor must be 2 positive numbers, got {scale_factor}")
    if method == "linear" and not dtypes.is_float(dtype):
        raise VerifyError(f"resize2d: linear interpolation is for floats, got {dtype}")


@with_conditions
def resize2d(
    x: Tensor,
    size: ExprLike | Sequence[ExprLike],
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: Sequence[float] | None = None,
) -> Tensor:
    """Resize images to the height and width of ``size``.

    ``scale_factor`` (height, width) gives the distance between pixels of the result, if that is not
    the ratio of the sizes; it is unused with aligned corners.
    """
    require_ndim("resize2d", x, 4)
    check_resize(method, coordinate_transformation_mode, layout, scale_factor, x.dtype)
    at = layout.index("H")
    number = "float64" if x.dtype == "float64" else "float32"
    mode, extents = coordinate_transformation_mode, _extents(size)
    steps = [
        _step(x.shape[at + k], extents[k], mode, scale_factor[k] if scale_factor else None, number)
        for k in range(2)
    ]
    for k in range(2):
        require_elements("resize2d", x.shape[at + k], extents[k])
    make = _nearest if method == "nearest_neighbor" else _linear
    made: Tensor = make(x, extents, at, mode, steps, number)
    return made


def _extents(size: ExprLike | Sequence[ExprLike]) -> list[Expr]:
    """Height and width of the result."""
    given = list(size) if isinstance(size, Sequence) else [size]
    if len(given) not in (1, 2):
        raise VerifyError(f"size takes 1 or 2 numbers, got {given}")
    return [as_expr(extent, INDEX) for extent in (given * 2 if len(given) == 1 else given)]


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
