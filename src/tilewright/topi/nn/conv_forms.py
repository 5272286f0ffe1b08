"""Convolutions under the names of their layouts: ``conv2d_nhwc``, ``group_conv1d_ncw``, ….

Each is one of the general convolutions (``nn/conv.py``, ``nn/conv_transpose.py``) with fixed
layouts, called with TVM's parameters in TVM's order. So they are rows of data: a layout of images,
one of filters, and parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import Expr, as_int
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.layout import layout_of
from tilewright.topi.nn.conv import conv, conv2d
from tilewright.topi.nn.conv_transpose import conv1d_transpose, conv2d_transpose, conv3d_transpose
from tilewright.topi.nn.spatial import Convolution, Padding, compute_image, pad_image
from tilewright.topi.utils import require_ndim, rounded, total_dtype

_Form = Callable[..., Tensor]


def _function(name: str, parameters: str, doc: str, define: _Form) -> _Form:
    """A function of these parameters that calls ``define`` with all of them by name.

    The two tensors come first; parameters that TVM spells in several ways have one spelling there.
    """
    signature = inspect.signature(eval(f"lambda {parameters}: None"))
    spelled = {"stride": "strides", "dilation": "dilation", "padding": "padding"}

    def form(*args: object, **kwargs: object) -> Tensor:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}{signature}: {error}") from None
        bound.apply_defaults()
        first, second, *rest = bound.arguments.items()
        options = {spelled.get(key, key): value for key, value in rest}
        return define(first[1], second[1], **options)

    form.__name__ = form.__qualname__ = name
    form.__doc__ = doc
    form.__signature__ = signature  # type: ignore[attr-defined]
    return form


def _plain(name: str, data_layout: str, kernel_layout: str, parameters: str) -> _Form:
    def define(
        data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any,
        groups: int = 1, out_dtype: str | None = None,
    ) -> Tensor:  # fmt: skip
        return conv(
            data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype
        )

    doc = f"Convolve ``{data_layout}`` images with ``{kernel_layout}`` filters; see :func:`conv2d`."
    return _function(name, parameters, doc, define)


_1D = "data, kernel, strides=1, padding='VALID', dilation=1, out_dtype=None"
_GROUP_1D = "data, kernel, strides=1, padding='VALID', dilation=1, groups=1, out_dtype=None"
_2D = "Input, Filter, stride, padding, dilation, out_dtype=None"
_2D_FLOAT = "Input, Filter, stride, padding, dilation, out_dtype='float32'"
_GROUPS = "Input, Filter, stride, padding, dilation, groups, out_dtype=None"
_GROUPS_FLOAT = "Input, Filter, stride, padding, dilation, groups, out_dtype='float32'"

conv1d_ncw = _plain("conv1d_ncw", "NCW", "OIW", _1D)
conv1d_nwc = _plain("conv1d_nwc", "NWC", "WIO", _1D)
group_conv1d_ncw = _plain("group_conv1d_ncw", "NCW", "OIW", _GROUP_1D)
group_conv1d_nwc = _plain("group_conv1d_nwc", "NWC", "WIO", _GROUP_1D)
conv2d_nchw = _plain("conv2d_nchw", "NCHW", "OIHW", _2D)
conv2d_hwcn = _plain("conv2d_hwcn", "HWCN", "HWIO", _2D)
conv2d_nhwc = _plain("conv2d_nhwc", "NHWC", "HWIO", _2D_FLOAT)
group_conv2d_nchw = _plain("group_conv2d_nchw", "NCHW", "OIHW", _GROUPS)
group_conv2d_nhwc = _plain("group_conv2d_nhwc", "NHWC", "HWIO", _GROUPS)
conv3d_ncdhw = _plain("conv3d_ncdhw", "NCDHW", "OIDHW", _GROUPS)
conv3d_ndhwc = _plain("conv3d_ndhwc", "NDHWC", "DHWIO", _GROUPS_FLOAT)


def _transposed(name: str, general: _Form, parameters: str) -> _Form:
    def define(
        data: Tensor, kernel: Tensor, strides: object, padding: object,
        out_dtype: str | None, output_padding: object, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        return general(
            data, kernel, strides, padding, output_padding, groups=groups, out_dtype=out_dtype
        )

    doc = f"Transposed convolution; see :func:`{general.__name__}`."
    return _function(name, parameters, doc, define)


_TURNED = "data, kernel, stride, padding, out_dtype, output_padding"
_TURNED_2D = "Input, Filter, strides, padding, out_dtype, output_padding"

conv1d_transpose_ncw = _transposed("conv1d_transpose_ncw", conv1d_transpose, _TURNED)
group_conv1d_transpose_ncw = _transposed(
    "group_conv1d_transpose_ncw", conv1d_transpose, f"{_TURNED}, groups"
)
conv2d_transpose_nchw = _transposed("conv2d_transpose_nchw", conv2d_transpose, _TURNED_2D)
group_conv2d_transpose_nchw = _transposed(
    "group_conv2d_transpose_nchw", conv2d_transpose, f"{_TURNED}, groups"
)
conv3d_transpose_ncdhw = _transposed("conv3d_transpose_ncdhw", conv3d_transpose, _TURNED_2D)
group_conv3d_transpose_ncdhw = _transposed(
    "group_conv3d_transpose_ncdhw",
    conv3d_transpose,
    "data, kernel, strides, padding, out_dtype, output_padding, groups",
)


@with_conditions
def _depthwise(
    data: Tensor,
    kernel: Tensor,
    layouts: tuple[str, str],
    options: tuple[int | Sequence[int], Padding, int | Sequence[int]],
    out_dtype: str | None,
) -> Tensor:
    """Convolve each channel with its own ``M`` filters; result channel ``c * M + m``.

    ``layouts`` are those of the image and of filters, where ``C`` and ``M`` number the latter.
    """
    what = "depthwise_conv2d"
    x, w = map(layout_of, layouts)
    require_ndim(what, data, 4)
    require_ndim(what, kernel, 4)
    image, filters = x.extents(data.shape), w.extents(kernel.shape)
    require_equal(f"{what}: channels", image["C"], filters["C"])
    strides, padding, dilation = options
    windows = filters["H"], filters["W"]
    form = Convolution.over(2, strides, padding, dilation, 1, windows)
    used = form.taps((image["H"], image["W"]), windows)
    source = pad_image(data, used, x.name.index("H"))
    steps = [te.reduce_axis((0, taps.count), f"r{name}") for taps, name in zip(used, "hw")]
    out_dtype = out_dtype or data.dtype
    wide = total_dtype(out_dtype, data.dtype, kernel.dtype)
    several = as_int(filters["M"]) != 1

    def formula(n: Expr, f: Expr, *place: Expr) -> Expr:
        channel, number = (f // filters["M"], f % filters["M"]) if several else (f, 0)
        at, tap = {"N": n, "C": channel}, {"C": channel, "M": number}
        for a, axis in enumerate("HW"):
            step = steps[a].var
            at[axis] = place[a] * form.stride[a] + step * form.dilation[a] + used[a].begin
            tap[axis] = step + used[a].first
        left, right = source(*x.indices(at)), kernel(*w.indices(tap))
        made: Expr = te.sum(cast_expr(left, wide) * cast_expr(right, wide), axis=steps)
        return made

    extents = {"N": image["N"], "C": image["C"] * filters["M"], "H": used[0].out, "W": used[1].out}
    tag = f"{what}_{x.name.lower()}"
    made = compute_image(x.shape(extents), "f", formula, what, tag, layout=x.name)
    return rounded(made, out_dtype)


def depthwise_conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve each channel of ``[N, C, H, W]`` with its ``M`` filters ``[C, M, KH, KW]``."""
    options = stride, padding, dilation
    return _depthwise(Input, Filter, ("NCHW", "CMHW"), options, out_dtype)


def depthwise_conv2d_nhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    kernel_layout: str = "HWOI",
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve each channel of ``[N, H, W, C]`` with its ``M`` filters ``[KH, KW, C, M]``.

    With ``kernel_layout="HWIO"`` filters are ``[KH, KW, M, C]``.

    Raises ``VerifyError`` for other layouts.
    """
    kernels = {"HWOI": "HWCM", "HWIO": "HWMC"}
    if kernel_layout not in kernels:
        raise VerifyError(
            f"depthwise_conv2d_nhwc: kernel_layout is one of {', '.join(kernels)}, "
            f"got {kernel_layout!r}"
        )
    options = stride, padding, dilation
    return _depthwise(Input, Filter, ("NHWC", kernels[kernel_layout]), options, out_dtype)


def conv2d_NCHWc(
    data: Tensor,
    kernel: Tensor,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    layout: str,
    out_layout: str,
    out_dtype: str | None = "float32",
) -> Tensor:
    """Convolve images in blocks of channels with filters ``[O, I, KH, KW, i, o]`` in blocks.

    ``layout`` and ``out_layout`` are such as ``NCHW16c``; there are as many groups as the channels
    are more than those of a filter.

    Raises ``VerifyError`` if blocks, channels and layouts don't fit.
    """
    require_ndim("conv2d_NCHWc", kernel, 6)
    block_in, block_out = (as_int(extent) for extent in kernel.shape[4:])
    blocks = f"OIHW{block_in}i{block_out}o"
    return _in_blocks(
        data, kernel, (stride, padding, dilation), (layout, blocks, out_layout), out_dtype
    )


def conv2d_NCHWc_OIHWo(
    data: Tensor,
    kernel: Tensor,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    layout: str,
    out_layout: str,
    out_dtype: str | None = "float32",
) -> Tensor:
    """Convolve images in blocks of channels with filters ``[O, I, KH, KW, o]``.

    Raises ``VerifyError`` if blocks, channels and layouts don't fit.
    """
    require_ndim("conv2d_NCHWc_OIHWo", kernel, 5)
    layouts = layout, f"OIHW{as_int(kernel.shape[4])}o", out_layout
    return _in_blocks(data, kernel, (stride, padding, dilation), layouts, out_dtype)


def _in_blocks(
    data: Tensor,
    kernel: Tensor,
    options: tuple[Any, Any, Any],
    layouts: tuple[str, str, str],
    out_dtype: str | None,
) -> Tensor:
    data_layout, kernel_layout, out_layout = layouts
    channels = layout_of(data_layout).extents(data.shape)["C"]
    taken = layout_of(kernel_layout).extents(kernel.shape)["I"]
    known = as_int(channels), as_int(taken)
    groups = (known[0] or 1) // (known[1] or 1) if None not in known else 1
    return conv2d(
        data, kernel, *options, data_layout, kernel_layout, out_dtype,
        groups=max(groups, 1), out_layout=out_layout,
    )  # fmt: skip


def depthwise_conv2d_NCHWc(
    Input: Tensor,
    Filter: Tensor,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    layout: str,
    out_layout: str,
    out_dtype: str | None = None,
) -> Tensor:
    """Convolve each channel, in blocks, with its own filter: ``Filter [C, 1, KH, KW, 1, c]``.

    Raises ``VerifyError`` if blocks, channels and layouts don't fit.
    """
    require_ndim("depthwise_conv2d_NCHWc", Filter, 6)
    taps: Tensor = compute(
        (*Filter.shape[:4], Filter.shape[5]), lambda c, m, h, w, b: Filter(c, m, h, w, 0, b), "taps"
    )
    channels = as_int(layout_of(layout).extents(Input.shape)["C"])
    if channels is None:
        raise VerifyError("depthwise_conv2d_NCHWc needs a constant number of channels")
    kernel_layout = f"OIHW{as_int(Filter.shape[5])}o"
    return conv2d(
        Input, taps, stride, padding, dilation, layout, kernel_layout, out_dtype,
        groups=channels, out_layout=out_layout,
    )  # fmt: skip


def unpack_NCHWc_to_nchw(packed_out: Tensor, out_dtype: str) -> Tensor:
    """Turn ``[N, C // c, H, W, c]`` into ``[N, C, H, W]`` of ``out_dtype``."""
    require_ndim("unpack_NCHWc_to_nchw", packed_out, 5)
    batch, chunks, height, width, block = packed_out.shape
    made: Tensor = compute(
        (batch, chunks * block, height, width),
        lambda n, c, h, w: cast_expr(packed_out(n, c // block, h, w, c % block), out_dtype),
        name="output_unpack",
        tag="injective",
    )
    return made
