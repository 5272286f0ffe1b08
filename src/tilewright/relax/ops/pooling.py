"""Pooling over windows of one to three axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import topi
from tilewright.ir import as_int
from tilewright.relax.conditions import require
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.common import known, laid_out, plain_info, require_ndim, window
from tilewright.relax.ops.other_layouts import image_axes, in_usual_order, layouts_of
from tilewright.relax.registry import Tensor, in_usual_form, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.layout import layout_of
from tilewright.topi.utils import padding_of, pair


def _pool_shape(
    data: TensorStructInfo,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
    spatial: int,
) -> TensorStructInfo:
    """The result of pooling over images in the usual order."""
    require_ndim(data, spatial + 2, "data")
    x = known(data, "data")
    size, steps, reach = pair(pool_size, spatial), pair(strides, spatial), pair(dilation, spatial)
    before, after = padding_of(padding, spatial)
    for extent in x[2:]:
        require(extent >= 1, "the image is empty: an extent of ", extent)
    extents = [
        window(x[2 + i], size[i], steps[i], before[i], after[i], reach[i], ceil_mode=ceil_mode)
        for i in range(spatial)
    ]
    return TensorStructInfo((x[0], x[1], *extents), data.dtype)


def _axes(spatial: int) -> dict[str, str]:
    """The usual order of axes, by the attributes that name layouts."""
    return dict.fromkeys(("layout", "out_layout"), image_axes(spatial))


def usual_pool(spatial: int) -> Callable[[RelaxCall], RelaxExpr | None]:
    """The usual form of pooling over so many axes: channels first."""
    return in_usual_order(("layout",), "out_layout", _axes(spatial), True)


def _in_layouts(
    data: TensorStructInfo,
    spatial: int,
    layout: str,
    out_layout: str | None,
    shape: Callable[[TensorStructInfo], TensorStructInfo],
) -> StructInfo:
    """What a rule for images in the usual order gives for those of any layout."""
    axes = _axes(spatial)
    have, want = layouts_of({"layout": layout, "out_layout": out_layout}, axes, True)
    if have.block("C") != want.block("C"):
        raise VerifyError(f"pooling keeps blocks of channels: {have.name} and {want.name} differ")
    image = plain_info(data, have, "data", axes["layout"])
    return laid_out(shape(image), want, axes["layout"])


def _pooled(spatial: int, data: TensorStructInfo, **options: Any) -> StructInfo:
    """The result of pooling over images of any layout."""
    pool_size, strides, padding, dilation, ceil_mode = (
        options[name] for name in ("pool_size", "strides", "padding", "dilation", "ceil_mode")
    )
    return _in_layouts(
        data, spatial, options["layout"], options["out_layout"],
        lambda image: _pool_shape(
            image, pool_size, strides, padding, dilation, ceil_mode, spatial
        ),
    )  # fmt: skip


def _adaptive_shape(
    data: TensorStructInfo, output_size: int | Sequence[int | None] | None, spatial: int
) -> TensorStructInfo:
    """The result of adaptive pooling over images in the usual order."""
    require_ndim(data, spatial + 2, "data")
    n, c, *extents = known(data, "data")
    size = pair(output_size, spatial)
    if min(size) < 1:
        raise VerifyError(f"output_size must be positive, got {list(size)}")
    for extent in extents:
        require(extent >= 1, "the image is empty: an extent of ", extent)
    return TensorStructInfo((n, c, *size), data.dtype)


def _whole_size(
    data: RelaxExpr,
    output_size: int | Sequence[int | None] | None,
    layout: str = "",
    out_layout: str | None = None,
) -> dict[str, Any]:
    """Complete ``output_size`` by the image's own extents."""
    if isinstance(output_size, int) or (output_size is not None and None not in output_size):
        return {}
    order = layout_of(layout or image_axes(data.ndim - 2))
    extents = [data.shape[order.dimension(axis)] for axis in image_axes(len(order.axes) - 2)[2:]]
    sizes = [None] * len(extents) if output_size is None else list(output_size)
    if len(sizes) != len(extents):
        raise VerifyError(f"output_size takes {len(extents)} numbers, got {sizes}")
    made = [as_int(e) if size is None else size for size, e in zip(sizes, extents)]
    if None in made:
        raise VerifyError(f"output_size must be given for extents {list(extents)}")
    return {"output_size": tuple(made)}


@operator(
    "nn.max_pool1d",
    legalize=in_usual_form(topi.nn.max_pool1d, "count_include_pad", "layout", "out_layout"),
    usual=usual_pool(1),
)
def max_pool1d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = (1,),
    strides: int | tuple[int, ...] = (1,),
    padding: int | tuple[int, ...] = (0, 0),
    dilation: int | tuple[int, ...] = (1,),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCW",
    out_layout: str | None = None,
) -> StructInfo:
    """Maximum of each window of ``[N, C, W]``.

    Padding is never a maximum, whatever ``count_include_pad`` says. Layouts have
    their axes in any order; that of the result is the data's unless ``out_layout``
    says otherwise.
    """
    return _pooled(
        1, data, pool_size=pool_size, strides=strides, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode, layout=layout, out_layout=out_layout,
    )  # fmt: skip


@operator(
    "nn.max_pool2d",
    legalize=in_usual_form(topi.nn.max_pool2d, "count_include_pad", "out_layout"),
    usual=usual_pool(2),
)
def max_pool2d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = (1, 1),
    strides: int | tuple[int, ...] = (1, 1),
    padding: int | tuple[int, ...] = (0, 0),
    dilation: int | tuple[int, ...] = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> StructInfo:
    """Maximum of each window of ``[N, C, H, W]``.

    Padding is never a maximum, whatever ``count_include_pad`` says. Layouts have
    their axes in any order, or blocks of channels; that of the result is the data's unless
    ``out_layout`` says otherwise.
    """
    return _pooled(
        2, data, pool_size=pool_size, strides=strides, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode, layout=layout, out_layout=out_layout,
    )  # fmt: skip


@operator(
    "nn.max_pool3d",
    legalize=in_usual_form(topi.nn.max_pool3d, "count_include_pad", "layout", "out_layout"),
    usual=usual_pool(3),
)
def max_pool3d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = (1, 1, 1),
    strides: int | tuple[int, ...] = (1, 1, 1),
    padding: int | tuple[int, ...] = (0, 0, 0),
    dilation: int | tuple[int, ...] = (1, 1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCDHW",
    out_layout: str | None = None,
) -> StructInfo:
    """Maximum of each window of ``[N, C, D, H, W]``.

    Padding is never a maximum, whatever ``count_include_pad`` says. Layouts have
    their axes in any order; that of the result is the data's unless ``out_layout``
    says otherwise.
    """
    return _pooled(
        3, data, pool_size=pool_size, strides=strides, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode, layout=layout, out_layout=out_layout,
    )  # fmt: skip


@operator(
    "nn.avg_pool1d",
    legalize=in_usual_form(topi.nn.avg_pool1d, "layout", "out_layout"),
    usual=usual_pool(1),
)
def avg_pool1d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = (1,),
    strides: int | tuple[int, ...] = (1,),
    padding: int | tuple[int, ...] = (0, 0),
    dilation: int | tuple[int, ...] = (1,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCW",
    out_layout: str | None = None,
) -> StructInfo:
    """Mean of each window of ``[N, C, W]``.

    Padding counts as elements with ``count_include_pad``. Layouts have
    their axes in any order; that of the result is the data's unless ``out_layout``
    says otherwise.
    """
    return _pooled(
        1, data, pool_size=pool_size, strides=strides, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode, layout=layout, out_layout=out_layout,
    )  # fmt: skip


@operator(
    "nn.avg_pool2d", legalize=in_usual_form(topi.nn.avg_pool2d, "out_layout"), usual=usual_pool(2)
)
def avg_pool2d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = (1, 1),
    strides: int | tuple[int, ...] = (1, 1),
    padding: int | tuple[int, ...] = (0, 0),
    dilation: int | tuple[int, ...] = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> StructInfo:
    """Mean of each window of ``[N, C, H, W]``.

    Padding counts as elements with ``count_include_pad``. Layouts have
    their axes in any order, or blocks of channels; that of the result is the data's unless
    ``out_layout`` says otherwise.
    """
    return _pooled(
        2, data, pool_size=pool_size, strides=strides, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode, layout=layout, out_layout=out_layout,
    )  # fmt: skip


@operator(
    "nn.avg_pool3d",
    legalize=in_usual_form(topi.nn.avg_pool3d, "layout", "out_layout"),
    usual=usual_pool(3),
)
def avg_pool3d(
    data: Tensor,
    pool_size: int | tuple[int, ...] = (1, 1, 1),
    strides: int | tuple[int, ...] = (1, 1, 1),
    padding: int | tuple[int, ...] = (0, 0, 0),
    dilation: int | tuple[int, ...] = (1, 1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCDHW",
    out_layout: str | None = None,
) -> StructInfo:
    """Mean of each window of ``[N, C, D, H, W]``.

    Padding counts as elements with ``count_include_pad``. Layouts have
    their axes in any order; that of the result is the data's unless ``out_layout``
    says otherwise.
    """
    return _pooled(
        3, data, pool_size=pool_size, strides=strides, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode, layout=layout, out_layout=out_layout,
    )  # fmt: skip


@operator(
    "nn.adaptive_avg_pool1d",
    prepare=_whole_size,
    legalize=in_usual_form(topi.nn.adaptive_avg_pool1d, "layout", "out_layout"),
    usual=usual_pool(1),
)
def adaptive_avg_pool1d(
    data: Tensor,
    output_size: int | tuple[int | None, ...] | None = None,
    layout: str = "NCW",
    out_layout: str | None = None,
) -> StructInfo:
    """Mean over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    return _in_layouts(
        data, 1, layout, out_layout, lambda image: _adaptive_shape(image, output_size, 1)
    )


@operator(
    "nn.adaptive_avg_pool2d",
    prepare=_whole_size,
    legalize=in_usual_form(topi.nn.adaptive_avg_pool2d, "out_layout"),
    usual=usual_pool(2),
)
def adaptive_avg_pool2d(
    data: Tensor,
    output_size: int | tuple[int | None, ...] | None = None,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> StructInfo:
    """Mean over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    return _in_layouts(
        data, 2, layout, out_layout, lambda image: _adaptive_shape(image, output_size, 2)
    )


@operator(
    "nn.adaptive_avg_pool3d",
    prepare=_whole_size,
    legalize=in_usual_form(topi.nn.adaptive_avg_pool3d, "layout", "out_layout"),
    usual=usual_pool(3),
)
def adaptive_avg_pool3d(
    data: Tensor,
    output_size: int | tuple[int | None, ...] | None = None,
    layout: str = "NCDHW",
    out_layout: str | None = None,
) -> StructInfo:
    """Mean over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    return _in_layouts(
        data, 3, layout, out_layout, lambda image: _adaptive_shape(image, output_size, 3)
    )


@operator(
    "nn.adaptive_max_pool1d",
    prepare=_whole_size,
    legalize=in_usual_form(topi.nn.adaptive_max_pool1d, "layout", "out_layout"),
    usual=usual_pool(1),
)
def adaptive_max_pool1d(
    data: Tensor,
    output_size: int | tuple[int | None, ...] | None = None,
    layout: str = "NCW",
    out_layout: str | None = None,
) -> StructInfo:
    """Maximum over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    return _in_layouts(
        data, 1, layout, out_layout, lambda image: _adaptive_shape(image, output_size, 1)
    )


@operator(
    "nn.adaptive_max_pool2d",
    prepare=_whole_size,
    legalize=in_usual_form(topi.nn.adaptive_max_pool2d, "out_layout"),
    usual=usual_pool(2),
)
def adaptive_max_pool2d(
    data: Tensor,
    output_size: int | tuple[int | None, ...] | None = None,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> StructInfo:
    """Maximum over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    return _in_layouts(
        data, 2, layout, out_layout, lambda image: _adaptive_shape(image, output_size, 2)
    )


@operator(
    "nn.adaptive_max_pool3d",
    prepare=_whole_size,
    legalize=in_usual_form(topi.nn.adaptive_max_pool3d, "layout", "out_layout"),
    usual=usual_pool(3),
)
def adaptive_max_pool3d(
    data: Tensor,
    output_size: int | tuple[int | None, ...] | None = None,
    layout: str = "NCDHW",
    out_layout: str | None = None,
) -> StructInfo:
    """Maximum over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    return _in_layouts(
        data, 3, layout, out_layout, lambda image: _adaptive_shape(image, output_size, 3)
    )


# ---- where maxima are --------------------------------------------------------------------------


def _spatial(data: TensorStructInfo) -> int:
    if data.ndim not in (3, 4, 5):
        raise VerifyError(f"data must have 3, 4 or 5 dimensions, got {data.ndim}")
    return data.ndim - 2


def _as_places(info: StructInfo) -> StructInfo:
    assert isinstance(info, TensorStructInfo)
    return TensorStructInfo(info.shape, "int64")


@operator("nn.max_pool_places", legalize=topi.nn.max_pool_places)
def max_pool_places(
    data: Tensor,
    pool_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
) -> StructInfo:
    """Where in its image, counted flat, the maximum of each window of ``[N, C, ...]`` is: int64.

    Of equal elements it is the first.
    """
    spatial = _spatial(data)
    shape = _pool_shape(data, pool_size, strides, padding, dilation, ceil_mode, spatial)
    return _as_places(shape)


@operator(
    "nn.adaptive_max_pool_places",
    prepare=_whole_size,
    legalize=topi.nn.adaptive_max_pool_places,
)
def adaptive_max_pool_places(
    data: Tensor, output_size: int | tuple[int | None, ...] | None = None
) -> StructInfo:
    """Where in its image the maximum of each window of an adaptive pool is: int64."""
    return _as_places(_adaptive_shape(data, output_size, _spatial(data)))
