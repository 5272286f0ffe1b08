"""Convolutions and transposed convolutions over one to three axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, topi
from tilewright.arith import simplify
from tilewright.ir import Expr, dtypes
from tilewright.relax.conditions import require, require_equal
from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.common import (
    known,
    laid_out,
    plain_info,
    require_ndim,
    same_dtype,
    window,
)
from tilewright.relax.ops.other_layouts import in_usual_order, layouts_of
from tilewright.relax.ops.unary import astype
from tilewright.relax.registry import Tensor, in_usual_form, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.nn.spatial import image_axes
from tilewright.topi.utils import padding_of, pair


def _check_groups(what: str, channels: Expr, groups: int) -> None:
    if groups < 1:
        raise VerifyError(f"groups must be positive, got {groups}")
    require(channels % groups == 0, channels, f" {what} do not divide into {groups} groups")


def _result_dtype(data: TensorStructInfo, weight: TensorStructInfo, out_dtype: str | None) -> str:
    """The result's dtype; operands of different ones need a result as wide as they are."""
    if out_dtype is None:
        return same_dtype(data, weight)
    bits = dtypes.bits_of(out_dtype)
    if bits < max(dtypes.bits_of(data.dtype), dtypes.bits_of(weight.dtype)):
        same_dtype(data, weight)
    return out_dtype


def _conv_shape(
    data: TensorStructInfo,
    weight: TensorStructInfo,
    strides: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    spatial: int,
    dtype: str,
) -> StructInfo:
    require_ndim(data, spatial + 2, "data")
    require_ndim(weight, spatial + 2, "weight")
    x, w = known(data, "data"), known(weight, "weight")
    strides, dilation = pair(strides, spatial), pair(dilation, spatial)
    before, after = padding_of(padding, spatial)
    _check_groups("output channels", w[0], groups)
    require_equal("input channels differ (data, weight * groups)", x[1], simplify(w[1] * groups))
    extents = [
        window(x[2 + i], w[2 + i], strides[i], before[i], after[i], dilation[i])
        for i in range(spatial)
    ]
    return TensorStructInfo((x[0], w[0], *extents), dtype)


def _transpose_shape(
    data: TensorStructInfo,
    weight: TensorStructInfo,
    steps: Sequence[int],
    padding: tuple[Sequence[int], Sequence[int]],
    extra: Sequence[int],
    reach: Sequence[int],
    groups: int,
    out_dtype: str | None,
) -> StructInfo:
    """``steps`` and so on have a number for each axis of the image, ``padding`` two."""
    spatial, (before, after) = len(steps), padding
    require_ndim(data, spatial + 2, "data")
    require_ndim(weight, spatial + 2, "weight")
    dtype = _result_dtype(data, weight, out_dtype)
    x, w = known(data, "data"), known(weight, "weight")
    require_equal("input channels differ", x[1], w[0])
    _check_groups("input channels", x[1], groups)
    for i in range(spatial):
        if steps[i] < 1 or reach[i] < 1 or min(before[i], after[i], extra[i]) < 0:
            raise VerifyError("strides and dilation must be positive, padding not negative")
        require(w[2 + i] >= 1, "the window is empty: ", w[2 + i])
        if extra[i] >= max(steps[i], reach[i]):
            raise VerifyError(
                f"output_padding {extra[i]} must be below stride {steps[i]} or dilation {reach[i]}"
            )
    extents = [
        simplify(
            (x[2 + i] - 1) * steps[i]
            + (w[2 + i] - 1) * reach[i]
            + (1 + extra[i] - before[i] - after[i])
        )
        for i in range(spatial)
    ]
    for made in extents:
        require(made >= 0, "the padding takes more than there is: an extent of ", made)
    return TensorStructInfo((x[0], simplify(w[1] * groups), *extents), dtype)


# ---- convolution -------------------------------------------------------------------------------


def _conv_axes(spatial: int, kernel: str) -> dict[str, str]:
    """The usual order of axes, by the attributes that name layouts."""
    axes = image_axes(spatial)
    return {"data_layout": axes, "kernel_layout": kernel + axes[2:], "out_layout": axes}


def _usual_conv(spatial: int) -> Callable[[RelaxCall], RelaxExpr | None]:
    """The usual form of a convolution: channels first, results of the data's dtype."""
    order = in_usual_order(
        ("data_layout", "kernel_layout"), "out_layout", _conv_axes(spatial, "OI"), spatial == 2
    )

    def rule(call: RelaxCall) -> RelaxExpr | None:
        wanted, data = call.attrs["out_dtype"], call.args[0]
        if wanted is None:
            return order(call)
        options = {**call.attrs, "out_dtype": None}
        made: RelaxExpr
        if dtypes.bits_of(wanted) < dtypes.bits_of(data.dtype):
            made = astype(call.op.build(*call.args, **options), wanted)
            return made
        operands = [x if x.dtype == wanted else astype(x, wanted) for x in call.args]
        made = call.op.build(*operands, **options)
        return made

    return rule


def _convolved(
    spatial: int, data: TensorStructInfo, weight: TensorStructInfo, **options: Any
) -> StructInfo:
    """The result of a convolution over so many axes, in any layouts."""
    axes = _conv_axes(spatial, "OI")
    x, w, y = layouts_of(options, axes, spatial == 2)
    if spatial == 2 and x.name.startswith("NCHW"):
        w = topi.nn.kernel_layout_of(w.name, x, y) if w.axes == "OIHW" else w
    image = plain_info(data, x, "data", axes["data_layout"])
    kernel = plain_info(weight, w, "weight", axes["kernel_layout"])
    strides, padding, dilation, groups = (
        options[name] for name in ("strides", "padding", "dilation", "groups")
    )
    dtype = _result_dtype(image, kernel, options["out_dtype"])
    info = _conv_shape(image, kernel, strides, padding, dilation, groups, spatial, dtype)
    assert isinstance(info, TensorStructInfo)
    blocks = (x.block("C"), y.block("C"))
    whole = topi.nn.check_groups(image.shape[1], kernel.shape[0], groups, *blocks)
    if max(blocks) > 1 and not whole:
        raise VerifyError(f"{groups} groups are no whole blocks in these layouts")
    return laid_out(info, y, axes["out_layout"])


_LAYOUTS = ("data_layout", "kernel_layout", "out_layout")


def _conv2d(
    data: te.Tensor, weight: te.Tensor, *, out_layout: str | None, **options: Any
) -> te.Tensor:
    return topi.nn.conv2d(data, weight, out_layout=out_layout or "", **options)


@operator("nn.conv1d", legalize=in_usual_form(topi.nn.conv1d, "out_layout"), usual=_usual_conv(1))
def conv1d(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> StructInfo:
    """Convolution over one axis: data ``[N, C, W]``, weight ``[O, C / groups, K]``.

    Options are those of ``conv2d``.
    """
    return _convolved(
        1, data, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
        out_dtype=out_dtype,
    )  # fmt: skip


@operator("nn.conv2d", legalize=_conv2d, usual=_usual_conv(2))
def conv2d(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = (1, 1),
    padding: int | tuple[int, ...] = (0, 0),
    dilation: int | tuple[int, ...] = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> StructInfo:
    """Convolution over two axes: data ``[N, C, H, W]``, weight ``[O, C / groups, KH, KW]``.

    Layouts have their axes in any order (``NHWC``, ``HWIO``); that of the result is the data's
    unless ``out_layout`` says otherwise. Those with blocks of channels (``NCHW16c``,
    ``OIHW16i16o``) are those of ``topi.nn.conv2d``. Operands are converted to ``out_dtype`` if it
    has as many bits as theirs, or more (they may then differ, as ``uint8`` and ``int8``); else the
    result is.

    Raises ``VerifyError`` where shapes, groups and layouts don't fit.
    """
    return _convolved(
        2, data, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
        out_dtype=out_dtype,
    )  # fmt: skip


@operator("nn.conv3d", legalize=in_usual_form(topi.nn.conv3d, *_LAYOUTS), usual=_usual_conv(3))
def conv3d(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = (1, 1, 1),
    padding: int | tuple[int, ...] = (0, 0, 0),
    dilation: int | tuple[int, ...] = (1, 1, 1),
    groups: int = 1,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> StructInfo:
    """Convolution over three axes: data ``[N, C, D, H, W]``, weight ``[O, C / groups, …]``.

    Options are those of ``conv2d``.
    """
    return _convolved(
        3, data, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
        out_dtype=out_dtype,
    )  # fmt: skip


# ---- transposed convolution --------------------------------------------------------------------


def _usual_transpose(spatial: int) -> Callable[[RelaxCall], RelaxExpr | None]:
    axes = _conv_axes(spatial, "IO")
    return in_usual_order(("data_layout", "kernel_layout"), "out_layout", axes)


def _transposed(
    spatial: int, data: TensorStructInfo, weight: TensorStructInfo, **options: Any
) -> StructInfo:
    """The result of a transposed convolution over so many axes, in any layouts."""
    axes = _conv_axes(spatial, "IO")
    x, w, y = layouts_of(options, axes)
    image = plain_info(data, x, "data", axes["data_layout"])
    kernel = plain_info(weight, w, "weight", axes["kernel_layout"])
    steps, extra, reach = (
        pair(options[name], spatial) for name in ("strides", "output_padding", "dilation")
    )
    around = padding_of(options["padding"], spatial)
    groups, wanted = options["groups"], options["out_dtype"]
    info = _transpose_shape(image, kernel, steps, around, extra, reach, groups, wanted)
    return laid_out(info, y, axes["out_layout"])


@operator(
    "nn.conv1d_transpose",
    legalize=in_usual_form(topi.nn.conv1d_transpose, *_LAYOUTS),
    usual=_usual_transpose(1),
)
def conv1d_transpose(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    output_padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "IOW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> StructInfo:
    """Transposed convolution: data ``[N, I, W]``, weight ``[I, O / groups, K]``.

    Layouts are as those of ``conv2d``. Results have the operands' dtype, to which sums are rounded,
    or ``out_dtype``.
    """
    return _transposed(
        1, data, weight, strides=strides, padding=padding, output_padding=output_padding,
        dilation=dilation, groups=groups, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout, out_dtype=out_dtype,
    )  # fmt: skip


@operator(
    "nn.conv2d_transpose",
    legalize=in_usual_form(topi.nn.conv2d_transpose, *_LAYOUTS),
    usual=_usual_transpose(2),
)
def conv2d_transpose(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = (1, 1),
    padding: int | tuple[int, ...] = (0, 0),
    output_padding: int | tuple[int, ...] = (0, 0),
    dilation: int | tuple[int, ...] = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> StructInfo:
    """Transposed convolution: data ``[N, I, H, W]``, weight ``[I, O / groups, KH, KW]``.

    Options are those of ``conv1d_transpose``.
    """
    return _transposed(
        2, data, weight, strides=strides, padding=padding, output_padding=output_padding,
        dilation=dilation, groups=groups, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout, out_dtype=out_dtype,
    )  # fmt: skip


@operator(
    "nn.conv3d_transpose",
    legalize=in_usual_form(topi.nn.conv3d_transpose, *_LAYOUTS),
    usual=_usual_transpose(3),
)
def conv3d_transpose(
    data: Tensor,
    weight: Tensor,
    strides: int | tuple[int, ...] = (1, 1, 1),
    padding: int | tuple[int, ...] = (0, 0, 0),
    output_padding: int | tuple[int, ...] = (0, 0, 0),
    dilation: int | tuple[int, ...] = (1, 1, 1),
    groups: int = 1,
    data_layout: str = "NCDHW",
    kernel_layout: str = "IODHW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> StructInfo:
    """Transposed convolution: data ``[N, I, D, H, W]``, weight ``[I, O / groups, …]``.

    Options are those of ``conv1d_transpose``.
    """
    return _transposed(
        3, data, weight, strides=strides, padding=padding, output_padding=output_padding,
        dilation=dilation, groups=groups, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout, out_dtype=out_dtype,
    )  # fmt: skip
