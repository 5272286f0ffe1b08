"""Pooling by TVM's names: the kind is an argument, the layout may have any order of axes.

They are the operators of ``nn/pooling.py``, and the gradient of pooling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright import te
from tilewright.ir import EQ, INDEX, Expr, ExprLike, and_, compare, const, select
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.te import Tensor, require_equal, with_conditions
from tilewright.te.arithmetic import divide
from tilewright.tir.float_division import fast_dtype
from tilewright.topi.nn.pool_places import places_of_maxima
from tilewright.topi.nn.pooling import (
    PooledImage,
    adaptive_pooled,
    elements_counted,
    pooled,
    windows_over,
)
from tilewright.topi.nn.spatial import Padding, axis_names, image_axes

_KINDS = ("max", "avg")


def _check_kind(what: str, pool_type: str) -> None:
    if pool_type not in _KINDS:
        raise VerifyError(f"{what}: pool_type is 'max' or 'avg', got {pool_type!r}")


def _pool_over(spatial: int, doc: str) -> Callable[..., Tensor]:
    axes = image_axes(spatial)
    name = f"pool{spatial}d"

    def pool(
        data: Tensor,
        kernel: int | Sequence[int],
        stride: int | Sequence[int],
        dilation: int | Sequence[int],
        padding: Padding,
        pool_type: str,
        ceil_mode: bool = False,
        layout: str = axes,
        count_include_pad: bool = True,
    ) -> Tensor:
        _check_kind(name, pool_type)
        options = kernel, stride, padding, dilation, ceil_mode
        return pooled(pool_type, data, options, spatial, layout, count_include_pad)

    return named(pool, name, doc)


pool1d = _pool_over(1, "Pool windows of ``data`` over ``W``; options as of :func:`pool2d`.")
pool2d = _pool_over(
    2,
    """Pool windows of ``data`` over ``H`` and ``W``; ``pool_type`` is ``max`` or ``avg``.

    ``padding`` is one number, ``(h, w)`` or ``(top, left, bottom, right)``; it never is a maximum,
    and counts as elements of a mean if ``count_include_pad``. With ``ceil_mode`` a partial window
    at the end is one too, if it begins inside. ``layout`` has its axes in any order, or channels in
    blocks (``NCHW16c``).

    Raises ``VerifyError`` for other kinds and layouts.
    """,
)
pool3d = _pool_over(
    3, "Pool windows of ``data`` over ``D``, ``H`` and ``W``; options as of :func:`pool2d`."
)


def adaptive_pool1d(
    data: Tensor, output_size: ExprLike | Sequence[ExprLike], pool_type: str, layout: str = "NCW"
) -> Tensor:
    """Pool windows chosen so that the result has that size; see :func:`adaptive_pool`."""
    _check_kind("adaptive_pool1d", pool_type)
    return adaptive_pooled(data, output_size, 1, pool_type == "max", layout)


def adaptive_pool(
    data: Tensor, output_size: ExprLike | Sequence[ExprLike], pool_type: str, layout: str = "NCHW"
) -> Tensor:
    """Pool windows chosen so that the result has that height and width.

    Window ``i`` of ``n`` begins at ``i * extent // n`` and ends before the next multiple of
    ``extent / n``, rounded up; so they overlap where ``n`` doesn't divide the extent.
    """
    _check_kind("adaptive_pool", pool_type)
    return adaptive_pooled(data, output_size, 2, pool_type == "max", layout)


def adaptive_pool3d(
    data: Tensor, output_size: ExprLike | Sequence[ExprLike], pool_type: str, layout: str = "NCDHW"
) -> Tensor:
    """Pool windows chosen so that the result has that size; see :func:`adaptive_pool`."""
    _check_kind("adaptive_pool3d", pool_type)
    return adaptive_pooled(data, output_size, 3, pool_type == "max", layout)


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """Pool height and width as a whole, to one element each."""
    return adaptive_pool(data, 1, pool_type, layout)


@with_conditions
def pool_grad(
    grads: Tensor,
    data: Tensor,
    kernel: int | Sequence[int],
    stride: int | Sequence[int],
    padding: Padding,
    pool_type: str,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> Tensor:
    """Give the gradient of ``data``, which :func:`pool2d` pooled; ``grads`` is that of the result.

    Of equal maxima the first one has the gradient.

    Raises ``VerifyError`` for layouts with blocks, and gradients of another shape.
    """
    _check_kind("pool_grad", pool_type)
    image = PooledImage.of(pool_type, data, 2, layout)
    if image.is_blocked:
        raise VerifyError(f"pool_grad: layout {layout!r} has blocks of channels")
    w = windows_over(image, kernel, stride, padding, 1, ceil_mode)
    for extent, wanted in zip(grads.shape, image.shape(w.out)):
        require_equal("pool_grad: the result's extents", extent, wanted)
    wide = fast_dtype(grads.dtype)
    places = None
    if pool_type == "max":
        along = [
            (step, before, size, 1) for step, before, size in zip(w.stride, w.before, w.kernel)
        ]
        places = places_of_maxima(image.channels_first(), along, w.out)
    counts = elements_counted(image, w, count_include_pad)
    # Windows that contain an element begin at most a window before it.
    steps = [
        te.reduce_axis((0, -(-size // step)), f"r{name}")
        for size, step, name in zip(w.kernel, w.stride, axis_names(2))
    ]

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        at = [p + b for p, b in zip(place, w.before)]
        window = [p // s - r.var for p, s, r in zip(at, w.stride, steps)]
        there = [
            condition
            for p, o, s, size, out in zip(at, window, w.stride, w.kernel, w.out)
            for condition in (o >= 0, o < out, p < o * s + size)
        ]
        value = cast_expr(image.read(grads, n, c, window, ()), wide)
        if places is not None:
            flat = place[0] * image.extents[1] + place[1]
            is_here = compare(EQ, places(n, c, *window), cast_expr(flat, INDEX))
            value = select(is_here, value, const(0, wide))
        else:
            value = divide(value, cast_expr(counts(window), wide))
        made: Expr = te.sum(value, axis=steps, where=and_(*there))
        return made

    total = image.compute(image.extents, formula, "pool_grad", "pool_grad")
    if total.dtype == data.dtype:
        return total
    return image.compute(
        image.extents,
        lambda n, c, *place: cast_expr(image.read(total, n, c, place, ()), data.dtype),
        "pool_grad_rounded",
        "elemwise",
    )
