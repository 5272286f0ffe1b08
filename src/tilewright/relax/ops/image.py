"""Operators of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilewright import te, topi
from tilewright.ir import Expr, as_int, dtypes
from tilewright.relax.conditions import require, require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr, ShapeExpr
from tilewright.relax.ops.common import known, laid_out, plain_info, require_ndim
from tilewright.relax.ops.manipulate import permute_dims
from tilewright.relax.ops.sampling import OUTSIDE, extents_of_image
from tilewright.relax.ops.sampling import sample_at as sample_at
from tilewright.relax.ops.unary import astype
from tilewright.relax.registry import Shape, Tensor, builder, in_usual_form, operator, renamed
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.relax.values import ShapeLike, shape_values
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.topi.layout import layout_of
from tilewright.topi.nn.spatial import image_axes


def _resized_info(
    data: TensorStructInfo, size: Sequence[Expr], layout: str, method: str, mode: str,
    scale_factor: tuple[float, ...] | None,
) -> TensorStructInfo:  # fmt: skip
    axes = topi.image.check_resize(method, mode, layout, scale_factor, data.dtype)
    require_ndim(data, axes + 2, "data")
    shape = list(known(data, "data"))
    at = 1 if layout.endswith("C") else 2
    if len(size) != axes:
        raise VerifyError(f"size takes {axes} extent(s), got {list(size)}")
    for extent in shape[at : at + axes]:
        require(extent >= 1, "the image is empty: an extent of ", extent)
    shape[at : at + axes] = size
    return TensorStructInfo(shape, data.dtype)


def _by_mode(
    data: te.Tensor, size: Sequence[Expr], *, roi: object, layout: str, **options: Any
) -> te.Tensor:
    functions = (topi.image.resize1d, topi.image.resize2d, topi.image.resize3d)
    return functions[len(layout) - 3](data, roi, list(size), layout, **options)


@operator(
    "image.resize2d", legalize=in_usual_form(topi.image.resize2d_by_tables, "rounding_method")
)
def _resize2d(
    data: Tensor,
    size: Shape,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    scale_factor: tuple[float, float] | None = None,
) -> StructInfo:
    """Resize images to a height and a width; neighbours are PyTorch's."""
    mode = coordinate_transformation_mode
    return _resized_info(data, size, layout, method, mode, scale_factor)


@operator("image.resize", legalize=topi.image.resize)
def _resize(
    data: Tensor,
    size: Shape,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: tuple[float, ...] | None = None,
    cubic_alpha: float = -0.75,
    antialias: bool = False,
) -> StructInfo:
    """Resize one to three axes of images, one after the other."""
    mode = coordinate_transformation_mode
    return _resized_info(data, size, layout, method, mode, scale_factor)


@operator(
    "image.resize_by_mode",
    legalize=renamed(_by_mode, cubic_alpha="bicubic_alpha", cubic_exclude="bicubic_exclude"),
)
def _resize_by_mode(
    data: Tensor,
    size: Shape,
    roi: tuple[float, ...] | None = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> StructInfo:
    """Resize one to three axes of images in any mode of ``topi.image.resize2d``."""
    topi.image.check_modes(method, coordinate_transformation_mode, rounding_method, layout)
    if coordinate_transformation_mode == "tf_crop_and_resize" and len(roi or ()) != 2 * len(size):
        raise VerifyError(f"roi has {2 * len(size)} numbers, begins and then ends, got {roi}")
    info = _resized_info(data, size, layout, "nearest_neighbor", "half_pixel", None)
    if out_dtype is None:
        return info
    dtypes.split_dtype(out_dtype)
    return TensorStructInfo(info.shape, out_dtype)


def _extents(size: int | ShapeLike, layout: str) -> ShapeExpr:
    extents = [size] if isinstance(size, (int, Expr)) else list(shape_values(size))
    count = len(layout) - 2 if len(extents) == 1 else 1
    return ShapeExpr(shape_values(extents * count))


_PYTORCH = "pytorch"


def _has_own(
    dtype: str, method: str, mode: str, rounding: str, exclude: int, scale_factor: object
) -> bool:
    """Whether operators that gradients and schedules know compute it; else it is ``by_mode``."""
    nearest = method == "nearest_neighbor"
    own = rounding == _PYTORCH if nearest else dtypes.is_float(dtype) and not exclude
    if mode in topi.image.RESIZE_COORDINATES and own:
        return True
    if scale_factor is not None or (nearest and rounding == _PYTORCH):
        raise VerifyError(
            f"image.resize: {method} in mode {mode!r}, rounding {rounding!r}, of {dtype} takes "
            f"no scale_factor, and no rounding {_PYTORCH!r}"
        )
    return False


class _Sampling(NamedTuple):
    """How a pixel of a resized image is made of pixels, in the order of ``_resize_by_mode``."""

    method: str
    mode: str
    rounding: str
    alpha: float
    exclude: int
    beyond: float


def _resized(
    data: RelaxExpr, size: int | ShapeLike, roi: object, layout: str, how: _Sampling,
    out_dtype: str | None, scale_factor: Sequence[float] | None,
) -> RelaxCall:  # fmt: skip
    data = getattr(data, "_expr", data)
    extents = _extents(size, layout)
    method, mode = how.method, how.mode
    if not _has_own(data.dtype, method, mode, how.rounding, how.exclude, scale_factor):
        part = None if roi is None else tuple(roi) if isinstance(roi, Sequence) else (roi,)
        return _resize_by_mode(data, extents, part, layout, *how, out_dtype)
    factors = None if scale_factor is None else tuple(scale_factor)
    if method == "cubic" or len(layout) != 4:
        made = _resize(data, extents, layout, method, mode, factors, how.alpha)
    else:
        chosen = _PYTORCH if method == "nearest_neighbor" else "round"  # as a call states it
        made = _resize2d(data, extents, layout, method, mode, chosen, factors)
    return made if out_dtype in (None, data.dtype) else astype(made, out_dtype)


def _resize_over(spatial: int, rounding: str, doc: str) -> Callable[..., RelaxCall]:
    """Resizing of so many axes; ``rounding`` is the default."""

    def resize(
        data: RelaxExpr,
        size: int | ShapeLike,
        roi: float | Sequence[float] | None = None,
        layout: str = image_axes(spatial),
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = rounding,
        cubic_alpha: float = -0.75,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
        *,
        scale_factor: Sequence[float] | None = None,
    ) -> RelaxCall:
        how = _Sampling(
            method, coordinate_transformation_mode, rounding_method,
            cubic_alpha, cubic_exclude, extrapolation_value,
        )  # fmt: skip
        return _resized(data, size, roi, layout, how, out_dtype, scale_factor)

    name = f"resize{spatial}d"
    return builder(f"image.{name}")(named(resize, name, doc))


resize1d = _resize_over(
    1,
    "",
    """Resize rows to the width ``size``; options as of :func:`resize2d`.

    Neighbours are rounded down (with aligned corners: ``round``) if nothing else is said.
    """,
)
resize2d = _resize_over(
    2,
    "round",
    """Resize images to the height and width of ``size``; one number is both.

    ``method`` is ``nearest_neighbor``, ``linear`` or ``cubic`` (Keys' convolution with
    ``cubic_alpha``, without what is outside of the image if ``cubic_exclude``). Pixels of the
    result lie where ``coordinate_transformation_mode`` says: ``half_pixel``, ``align_corners``,
    ``asymmetric``, ``pytorch_half_pixel``, ``tf_half_pixel_for_nn``, or ``tf_crop_and_resize``: in
    the part of the image ``roi`` (where it begins along each axis, then where it ends; from 0 to
    1), and ``extrapolation_value`` outside of the image. ``rounding_method`` chooses the nearest
    neighbour: ``round`` (halves to even), ``floor``, ``ceil``, or as PyTorch does: ``pytorch`` is
    its ``nearest`` in mode ``asymmetric``, its ``nearest-exact`` in ``half_pixel``.
    ``scale_factor`` (height, width) gives the distance between pixels of the
    result, if that is not the ratio of the sizes; it is unused with aligned corners.

    Raises ``VerifyError`` for negative sizes, unknown methods, and ``scale_factor`` in modes that
    don't take it.
    """,
)
resize3d = _resize_over(
    3,
    "",
    "Resize volumes to depth, height and width of ``size``; options as of :func:`resize1d`.",
)


@builder("image.resize")
def resize(
    data: RelaxExpr,
    size: int | ShapeLike,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    scale_factor: Sequence[float] | None = None,
    cubic_alpha: float = -0.75,
    antialias: bool = False,
) -> RelaxCall:
    """Resize the axes of ``layout`` that aren't ``N`` or ``C``, one after the other.

    Options are those of :func:`resize2d`, neighbours are PyTorch's; with ``antialias``, a
    result of an image that shrinks is a mean of all the pixels it covers.
    """
    factors = None if scale_factor is None else tuple(scale_factor)
    return _resize(
        data, _extents(size, layout), layout, method, coordinate_transformation_mode, factors,
        cubic_alpha, antialias,
    )  # fmt: skip


# ---- sampling ----------------------------------------------------------------------------------

_SAMPLES = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}


def _last_axis(grid: RelaxExpr) -> RelaxExpr:
    return permute_dims(grid, (0, *range(2, grid.ndim), 1))


def _as_sample_at(call: RelaxCall) -> RelaxExpr:
    """Images channels first, places last."""
    data, grid = call.args
    options = call.attrs
    first = image_axes(data.ndim - 2)
    moved = options["layout"] != first
    image = permute_dims(data, (0, data.ndim - 1, *range(1, data.ndim - 1))) if moved else data
    made: RelaxExpr = sample_at(
        image, _last_axis(grid), _SAMPLES[options["method"]], options["padding_mode"],
        options["align_corners"],
    )  # fmt: skip
    return _last_axis(made) if moved else made


@operator("image.grid_sample", decompose=_as_sample_at)
def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> StructInfo:
    """Sample images at the places of ``grid [N, axes, …]``, from -1 to 1, the last axis first.

    ``layout`` is ``NCHW`` or ``NHWC``, of volumes ``NCDHW`` or ``NDHWC``; ``method`` ``nearest``,
    ``bilinear``, or ``bicubic`` for images of two axes. ``padding_mode`` says what is outside:
    ``zeros``, ``border`` or ``reflection``. With ``align_corners``, -1 and 1 are the middles of the
    outermost pixels, not their edges.

    Raises ``VerifyError`` if shapes don't fit, an image's extent isn't constant, and for other
    options.
    """
    axes = len(layout) - 2
    if layout not in ("NCHW", "NHWC", "NCDHW", "NDHWC"):
        raise VerifyError(f"layout is NCHW, NHWC, NCDHW or NDHWC, got {layout!r}")
    if method not in _SAMPLES or (method == "bicubic" and axes != 2):
        raise VerifyError(
            f"method is one of {', '.join(_SAMPLES)} (bicubic for two axes), got {method!r}"
        )
    if padding_mode not in OUTSIDE:
        raise VerifyError(f"padding_mode is one of {', '.join(OUTSIDE)}, got {padding_mode!r}")
    order = layout_of(layout)
    image = plain_info(data, order, "data", image_axes(axes))
    extents_of_image(image)
    require_ndim(grid, axes + 2, "grid")
    places = known(grid, "grid")
    require_equal("numbers of images", places[0], image.shape[0])
    require_equal("numbers of a place", places[1], axes)
    made = TensorStructInfo((*image.shape[:2], *places[2:]), data.dtype)
    return laid_out(made, order, image_axes(axes))


@operator(
    "image.affine_grid",
    legalize=lambda data, size, align_corners: topi.image.affine_grid(data, size, align_corners),
)
def _affine_grid(data: Tensor, size: Shape, align_corners: bool = True) -> StructInfo:
    """The places of an image's pixels, moved by matrices."""
    require_ndim(data, 3, "data")
    axes = len(size)
    if axes not in (2, 3) or None in map(as_int, size):
        raise VerifyError(f"an image has two or three constant extents, got {list(size)}")
    batch, rows, columns = known(data, "data")
    require_equal("axes of the matrices and of the image", rows, axes)
    require_equal("columns of the matrices", columns, axes + 1)
    return TensorStructInfo((batch, axes, *size), data.dtype)


@builder("image.affine_grid")
def affine_grid(data: RelaxExpr, size: int | ShapeLike, align_corners: bool = True) -> RelaxCall:
    """The places ``[N, axes, …]`` of the pixels of an image of ``size``, moved by matrices.

    ``data`` has the matrices ``[N, axes, axes + 1]`` of two or three axes; one number is all
    extents. Places go from -1 to 1, with ``align_corners`` from the middle of the first pixel to
    that of the last one, else between the outer edges; a single pixel is at 0. The first number is
    that along the last axis. They are what ``grid_sample`` takes.

    Raises ``VerifyError`` if shapes don't fit, and for extents that aren't constant.
    """
    axes = as_int(data.shape[1]) if data.ndim == 3 else None
    return _affine_grid(data, _extents(size, image_axes(axes or 2)), align_corners)
