"""Sampling of images at places that data tell, and grids of such places."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, as_int, cast, const
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal
from tilewright.topi.sampling import Sampling
from tilewright.topi.utils import require_ndim, unravel

_MODES = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}
_PADDINGS = ("zeros", "border", "reflection")


def affine_grid(data: Tensor, target_shape: Sequence[int], align_corners: bool = True) -> Tensor:
    """Give the places ``[N, axes, …]`` of an image of ``target_shape``, moved by matrices.

    ``data`` has the matrices ``[N, axes, axes + 1]`` of two or three axes; places go from -1 to 1,
    with ``align_corners`` from the middle of the first pixel to that of the last one, otherwise
    between the outer edges. A single pixel is at 0. The first of the places is that along the last
    axis.

    Raises ``VerifyError`` if the axes of the matrices and of the shape differ.
    """
    require_ndim("affine_grid", data, 3)
    axes = len(target_shape)
    if as_int(data.shape[1]) != axes or as_int(data.shape[2]) != axes + 1 or axes not in (2, 3):
        raise VerifyError(
            f"affine_grid: {axes} axes take matrices [N, {axes}, {axes + 1}] and may be 2 or 3, "
            f"got {list(data.shape)}"
        )
    sizes = [as_int(extent) or 0 for extent in reversed(target_shape)]

    def place(index: Expr, size: int) -> Expr:
        number = cast(index, data.dtype)
        if align_corners and size > 1:
            return number * const(2.0 / (size - 1), data.dtype) - const(1.0, data.dtype)
        return number * const(2.0 / max(size, 1), data.dtype) + const(
            1.0 / max(size, 1) - 1.0, data.dtype
        )

    def formula(n: Expr, axis: Expr, *at: Expr) -> Expr:
        made: Expr = data(n, axis, axes)
        for number, (index, size) in enumerate(zip(reversed(at), sizes)):
            made = made + data(n, axis, number) * place(index, size)
        return made

    grid: Tensor = compute(
        (data.shape[0], axes, *target_shape),
        lambda n, axis, *at: formula(n, axis, *at),
        "affine_grid",
    )
    return grid


def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Tensor:
    """Sample ``data [N, C, H, W]`` (``NCDHW`` too) at the places of ``grid [N, 2, …]``.

    Places are from -1 to 1, the first of them along the last axis; with ``align_corners`` these are
    the middles of the outermost pixels, not their edges. ``method``: ``nearest``, ``bilinear``, or
    ``bicubic`` for images of two axes. ``padding_mode`` says what is outside: ``zeros``, ``border``
    or ``reflection``.

    Raises ``VerifyError`` for other options, and images whose size isn't constant.
    """
    if layout not in ("NCHW", "NCDHW"):
        raise VerifyError(f"grid_sample: layout is 'NCHW' or 'NCDHW', got {layout!r}")
    axes = len(layout) - 2
    if method not in _MODES or (method == "bicubic" and axes == 3):
        raise VerifyError(
            f"grid_sample: method is one of {', '.join(_MODES)} (bicubic for NCHW only), "
            f"got {method!r} for {layout}"
        )
    if padding_mode not in _PADDINGS:
        raise VerifyError(
            f"grid_sample: padding_mode is one of {', '.join(_PADDINGS)}, got {padding_mode!r}"
        )
    require_ndim("grid_sample", data, axes + 2)
    require_ndim("grid_sample", grid, axes + 2)
    require_equal("grid_sample: images", data.shape[0], grid.shape[0])
    require_equal("grid_sample: axes of places", grid.shape[1], axes)
    extents = constant_extents("grid_sample", data.shape[2:])
    sampling = Sampling(extents, _MODES[method], padding_mode, align_corners)
    last: Tensor = compute(
        (grid.shape[0], *grid.shape[2:], axes), lambda n, *i: grid(n, i[-1], *i[:-1]), "places"
    )
    places = sampling.places(last)
    index, flat = sampling.index(places), flattened(data, extents)
    if method == "nearest":
        return sampling.nearest(flat, index)
    return sampling.weighted(flat, index, sampling.weight(places))


def constant_extents(what: str, extents: Sequence[Expr]) -> list[int]:
    """Extents as numbers.

    Raises ``VerifyError`` if they aren't constant and positive.
    """
    made = [as_int(extent) for extent in extents]
    if not all(made):
        raise VerifyError(f"{what}: an image has constant extents above 0, got {list(extents)}")
    return [extent or 0 for extent in made]


def flattened(data: Tensor, extents: Sequence[int]) -> Tensor:
    """Images ``[N, C, …]`` with their spatial axes as one."""
    count = 1
    for extent in extents:
        count *= extent
    made: Tensor = compute(
        (*data.shape[:2], count), lambda n, c, i: data(n, c, *unravel(i, extents)), "flat"
    )
    return made
