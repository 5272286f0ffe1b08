"""Pooling over windows of one to three axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import topi
from tilewright.ir import as_int
from tilewright.relax.conditions import require
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.common import known, laid_out, plain_info, require_ndim, window
from tilewright.relax.ops.other_layouts import in_usual_order, layouts_of
from tilewright.relax.registry import Builder, Tensor, in_usual_form, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.layout import layout_of
from tilewright.topi.nn.spatial import image_axes
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


_MEANS = {
    "max": (
        "Maximum",
        "Padding is never a maximum, whatever ``count_include_pad`` says.",
        ("count_include_pad",),
    ),
    "avg": ("Mean", "Padding counts as elements with ``count_include_pad``.", ()),
}
"""What pools give, what padding does, and the attributes that TOPI's functions don't take."""


def _pool(kind: str, spatial: int, counts: bool) -> Builder:
    """Pooling over so many axes; ``counts`` is the default of ``count_include_pad``."""
    given, padded, unused = _MEANS[kind]
    name, axes = f"{kind}_pool{spatial}d", image_axes(spatial)
    ones = (1,) * spatial

    def rule(
        data: Tensor,
        pool_size: int | tuple[int, ...] = ones,
        strides: int | tuple[int, ...] = ones,
        padding: int | tuple[int, ...] = (0,) * max(2, spatial),
        dilation: int | tuple[int, ...] = ones,
        ceil_mode: bool = False,
        count_include_pad: bool = counts,
        layout: str = axes,
        out_layout: str | None = None,
    ) -> StructInfo:
        return _in_layouts(
            data, spatial, layout, out_layout,
            lambda image: _pool_shape(
                image, pool_size, strides, padding, dilation, ceil_mode, spatial
            ),
        )  # fmt: skip

    rule.__doc__ = f"""{given} of each window of ``[{", ".join(axes)}]``.

    {padded} Layouts have their axes in any order{", or blocks of channels" * (spatial == 2)}; that
    of the result is the data's unless ``out_layout`` says otherwise.
    """
    legal = in_usual_form(getattr(topi.nn, name), *unused, "out_layout")
    return operator(f"nn.{name}", legalize=legal, usual=usual_pool(spatial))(rule)


max_pool1d = _pool("max", 1, False)
max_pool2d = _pool("max", 2, False)
max_pool3d = _pool("max", 3, False)
avg_pool1d = _pool("avg", 1, True)
avg_pool2d = _pool("avg", 2, False)
avg_pool3d = _pool("avg", 3, True)


def _adaptive_pool(kind: str, spatial: int) -> Builder:
    """Pooling over windows that divide so many axes."""
    name = f"adaptive_{kind}_pool{spatial}d"

    def rule(
        data: Tensor,
        output_size: int | tuple[int | None, ...] | None = None,
        layout: str = image_axes(spatial),
        out_layout: str | None = None,
    ) -> StructInfo:
        return _in_layouts(
            data, spatial, layout, out_layout,
            lambda image: _adaptive_shape(image, output_size, spatial),
        )  # fmt: skip

    rule.__doc__ = f"""{_MEANS[kind][0]} over windows chosen so that the result has ``output_size``.

    ``None`` is the image's size.
    """
    legal = in_usual_form(getattr(topi.nn, name), "out_layout")
    usual = usual_pool(spatial)
    return operator(f"nn.{name}", prepare=_whole_size, legalize=legal, usual=usual)(rule)


adaptive_avg_pool1d = _adaptive_pool("avg", 1)
adaptive_avg_pool2d = _adaptive_pool("avg", 2)
adaptive_avg_pool3d = _adaptive_pool("avg", 3)
adaptive_max_pool1d = _adaptive_pool("max", 1)
adaptive_max_pool2d = _adaptive_pool("max", 2)
adaptive_max_pool3d = _adaptive_pool("max", 3)


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
