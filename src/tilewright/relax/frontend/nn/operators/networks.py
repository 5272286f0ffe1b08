"""Convolutions, normalisations, attention, and resizing of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir import ExprLike
from tilewright.relax import ops
from tilewright.relax.frontend.nn.operators.elementwise import astype
from tilewright.relax.frontend.nn.operators.shapes import reshape
from tilewright.relax.frontend.nn.tensor import Tensor, current_builder, emit_tensor

Sizes = int | Sequence[int]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:
    """Attention; operands and result are ``[batch, sequence, heads, depth]``.

    ``attn_mask`` broadcasts against ``[batch, heads, queries, keys]``: a bool mask says which keys
    a query sees, any other is added to the scores.
    """
    made = ops.nn.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask,
        scale=scale,
        causal_mask="TopLeft" if is_causal else None,
        layout="BSHD",
    )
    return emit_tensor(made, name)


# ---- normalisations --------------------------------------------------------------------------


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """Normalise the last dimensions, which have ``normalized_shape``, then scale and shift."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    gamma = emit_tensor(ops.ones(shape, x.dtype)) if weight is None else weight
    axes = tuple(range(-len(shape), 0))
    return emit_tensor(ops.nn.layer_norm(x, gamma, bias, axes, eps), name)


def rms_norm(
    x: Tensor,
    weight: Tensor,
    axes: int | Sequence[int],
    epsilon: float = 1e-5,
    name: str = "rms_norm",
) -> Tensor:
    """Divide by the root mean square over ``axes``, then scale by ``weight``."""
    chosen = axes if isinstance(axes, int) else tuple(axes)
    return emit_tensor(ops.nn.rms_norm(x, weight, chosen, epsilon), name)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Sequence[int] | None = None,
    name: str = "group_norm",
) -> Tensor:
    """Normalise groups of channels over ``axes`` too, then scale and shift each channel.

    ``axes`` are all but the first (the batch) and ``channel_axis``, if they aren't given.

    Raises ``ValueError`` if the channels don't divide into groups.
    """
    channel = channel_axis % x.ndim
    count = x.shape[channel]
    if isinstance(count, int) and (num_groups < 1 or count % num_groups):
        raise ValueError(f"{count} channels do not divide into {num_groups} groups")
    others = [axis for axis in range(1, x.ndim) if axis != channel]
    chosen = sorted(axis % x.ndim for axis in axes) if axes is not None else others
    ones = emit_tensor(ops.ones((count,), x.dtype)) if weight is None else weight
    zeros = emit_tensor(ops.zeros((count,), x.dtype)) if bias is None else bias
    made = ops.nn.group_norm(
        x._expr, ones._expr, zeros._expr, num_groups, channel, tuple(chosen), eps
    )
    return emit_tensor(made, name)


# ---- convolutions ----------------------------------------------------------------------------


def _padding(padding: Any, kernel: Sequence[Any], stride: Any, dilation: Any) -> Any:
    """Padding in numbers: ``"same"`` keeps the sizes of an image, ``"valid"`` is none.

    Raises ``ValueError`` for another text, and for ``"same"`` with strides.
    """
    if not isinstance(padding, str):
        return padding if isinstance(padding, int) else tuple(padding)
    if padding.lower() == "valid":
        return 0
    if padding.lower() != "same":
        raise ValueError(f"padding must be numbers, 'same' or 'valid', got {padding!r}")
    strides = [stride] if isinstance(stride, int) else list(stride)
    if any(item != 1 for item in strides):
        raise ValueError(f"padding='same' is for strides of 1, got {stride}")
    steps = [dilation] * len(kernel) if isinstance(dilation, int) else list(dilation)
    total = [(taps - 1) * step for taps, step in zip(kernel, steps)]
    return (*(item // 2 for item in total), *(item - item // 2 for item in total))


def _with_bias(made: Any, bias: Tensor | None, layout: str, name: str) -> Tensor:
    if bias is None:
        return emit_tensor(made, name)
    shape = [-1 if axis == "C" else 1 for axis in layout]
    return emit_tensor(ops.add(emit_tensor(made), reshape(bias, shape)), name)


def _plain(sizes: Sizes | None, default: int) -> Any:
    if sizes is None:
        return default
    return sizes if isinstance(sizes, int) else tuple(sizes)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes | None = 1,
    padding: Sizes | str | None = 0,
    dilation: Sizes | None = 1,
    groups: int | None = 1,
    name: str = "conv1d",
) -> Tensor:
    """Convolution of ``x [N, C, W]`` and ``weight [O, C / groups, K]``, plus ``bias [O]``."""
    strides, steps = _plain(stride, 1), _plain(dilation, 1)
    edges = _padding(padding or 0, weight.shape[2:], strides, steps)
    first = [item if isinstance(item, int) else item[0] for item in (strides, steps)]
    made = ops.nn.conv1d(x, weight, first[0], edges, first[1], groups or 1)
    return _with_bias(made, bias, "NCW", name)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes | None = 1,
    padding: Sizes | str | None = 0,
    dilation: Sizes | None = 1,
    groups: int | None = 1,
    data_layout: str | None = "NCHW",
    name: str = "conv2d",
) -> Tensor:
    """Convolution of images and ``weight [O, C / groups, K, L]``, plus ``bias [O]``.

    ``data_layout`` is that of the images and of the result: ``"NCHW"`` or ``"NHWC"``.

    Raises ``ValueError`` for another layout.
    """
    layout = data_layout or "NCHW"
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"data_layout must be 'NCHW' or 'NHWC', got {layout!r}")
    strides, steps = _plain(stride, 1), _plain(dilation, 1)
    edges = _padding(padding or 0, weight.shape[2:], strides, steps)
    images = x if layout == "NCHW" else emit_tensor(ops.permute_dims(x, (0, 3, 1, 2)))
    made: Any = ops.nn.conv2d(images, weight, strides, edges, steps, groups or 1)
    if layout == "NHWC":
        made = ops.permute_dims(made, (0, 2, 3, 1))
    return _with_bias(made, bias, layout, name)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes | None = 1,
    padding: Sizes | str | None = 0,
    dilation: Sizes | None = 1,
    groups: int | None = 1,
    data_layout: str | None = "NCDHW",
    name: str = "conv3d",
) -> Tensor:
    """Convolution of volumes and ``weight [O, C / groups, …]``, plus ``bias [O]``.

    ``data_layout`` is ``"NCDHW"`` or ``"NDHWC"``.

    Raises ``ValueError`` for another layout.
    """
    layout = data_layout or "NCDHW"
    if layout not in ("NCDHW", "NDHWC"):
        raise ValueError(f"data_layout must be 'NCDHW' or 'NDHWC', got {layout!r}")
    strides, steps = _plain(stride, 1), _plain(dilation, 1)
    edges = _padding(padding or 0, weight.shape[2:], strides, steps)
    images = x if layout == "NCDHW" else emit_tensor(ops.permute_dims(x, (0, 4, 1, 2, 3)))
    made: Any = ops.nn.conv3d(images, weight, strides, edges, steps, groups or 1)
    if layout == "NDHWC":
        made = ops.permute_dims(made, (0, 2, 3, 4, 1))
    return _with_bias(made, bias, layout, name)


def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes | None = 1,
    padding: Sizes | None = 0,
    output_padding: Sizes | None = 0,
    dilation: Sizes | None = 1,
    groups: int | None = 1,
    name: str = "conv1d_transpose",
) -> Tensor:
    """Transposed convolution of ``x [N, C, W]`` and ``weight [C, O / groups, K]``, plus bias."""
    made = ops.nn.conv1d_transpose(
        x,
        weight,
        _plain(stride, 1),
        _plain(padding, 0),
        _plain(output_padding, 0),
        _plain(dilation, 1),
        groups or 1,
    )
    return _with_bias(made, bias, "NCW", name)


# ---- images ----------------------------------------------------------------------------------

_METHODS = {
    "nearest": "nearest_neighbor",
    "nearest_neighbor": "nearest_neighbor",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}


def interpolate(
    x: Tensor,
    size: ExprLike | Sequence[ExprLike] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str | None = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """Resize images to ``size``, or by ``scale_factor``.

    ``mode`` is ``nearest``, ``bilinear`` or ``bicubic``. Pixels are squares around their centres,
    or points at the corners of the image with ``align_corners``; of nearest ones, points at
    multiples of the scale, rounded to the nearest. ``antialias`` takes means where an image
    shrinks.

    Raises ``ValueError`` for another mode, neither or both of ``size`` and ``scale_factor``, and
    ``recompute_scale_factor``.
    """
    layout = data_layout or "NCHW"
    if mode not in _METHODS:
        raise ValueError(f"mode must be one of {', '.join(_METHODS)}, got {mode!r}")
    if recompute_scale_factor:
        raise ValueError("recompute_scale_factor must be None or False: sizes say the scale")
    if (size is None) is (scale_factor is None):
        raise ValueError("interpolate takes size or scale_factor, one of them")
    spatial = [extent for extent, axis in zip(x.shape, layout) if axis not in "NC"]
    if size is None:
        assert scale_factor is not None
        one = isinstance(scale_factor, (int, float))
        factors: Any = [scale_factor] * len(spatial) if one else scale_factor
        sizes = [_scaled(extent, factor) for extent, factor in zip(spatial, factors)]
    else:
        sizes = list(size) if isinstance(size, (list, tuple)) else [size] * len(spatial)
    if mode.startswith("nearest") and layout in ("NCHW", "NHWC"):
        return _nearest(x, sizes, layout, name)
    if mode.startswith("nearest"):
        raise ValueError(f"mode='nearest' is for the layouts NCHW and NHWC, got {layout!r}")
    coordinates = "align_corners" if align_corners else "half_pixel"
    made = ops.image.resize(
        x._expr, sizes, layout, _METHODS[mode], coordinates, antialias=bool(antialias)
    )
    return emit_tensor(made, name)


def _nearest(x: Tensor, sizes: Sequence[Any], layout: str, name: str) -> Tensor:
    """The pixel at the multiple of the scale, rounded to the nearest (half: to even)."""
    call = current_builder().call_te(
        topi.image.resize2d,
        x,
        (0.0,) * 4,
        tuple(sizes),
        layout,
        "nearest_neighbor",
        "asymmetric",
        "round",
        primfunc_name_hint="resize2d",
    )
    return emit_tensor(call, name)


def _scaled(extent: Any, factor: float) -> Any:
    if isinstance(extent, int):
        return int(extent * factor)
    if float(factor).is_integer():
        return extent * int(factor)
    raise ValueError(f"the scale of the symbolic extent {extent!r} must be a whole number")


def pad(
    x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0, name: str = "pad"
) -> Tensor:
    """Pad: ``pad`` has the elements before and after each axis in turn.

    ``mode`` is ``constant``; ``reflect`` (mirrored at the first and last element); ``replicate``
    (that element again) or ``circular`` (from the other end).

    Raises ``ValueError`` for another mode, and negative padding in any but ``constant``.
    """
    if mode == "constant":
        return emit_tensor(ops.nn.pad(x, tuple(pad), pad_value=value), name)
    if mode not in ("reflect", "replicate", "circular"):
        raise ValueError(f"mode must be constant, reflect, replicate or circular, got {mode!r}")
    if len(pad) != 2 * x.ndim or any(item < 0 for item in pad):
        raise ValueError(f"pad has two counts, not negative, for each of {x.ndim} axes: {pad}")
    for axis in range(x.ndim):
        before, after = pad[2 * axis : 2 * axis + 2]
        if before or after:
            x = _padded(x, axis, before, after, mode)
    return x


def _padded(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    extent = x.shape[axis]
    most = {"reflect": extent - 1, "replicate": None, "circular": extent}[mode]
    if isinstance(most, int) and max(before, after) > most:
        raise ValueError(f"{mode}: axis {axis} has {extent} elements, {before} and {after} wanted")
    places = emit_tensor(ops.arange(-before, extent + after, 1, "int64"))
    last = extent - 1
    if mode == "replicate":
        places = places.maximum(0).minimum(last)
    elif mode == "circular":
        places = emit_tensor(ops.floor_mod(places + extent, emit_tensor(_as_tensor(extent))))
    else:
        mirrored = emit_tensor(ops.abs(places))
        places = mirrored.minimum(emit_tensor(_as_tensor(2 * last)) - mirrored)
    return emit_tensor(ops.take(x, places, axis))


def _as_tensor(extent: ExprLike) -> Any:
    return ops.full((), extent, "int64") if isinstance(extent, int) else _scalar(extent)


def _scalar(extent: object) -> Any:
    return ops.reshape(ops.shape_to_tensor((extent,)), ())


def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:
    """Sines and cosines of time steps ``x [N]`` at ``embedding_dim / 2`` frequencies.

    That of diffusion models (Ho et al. 2020): the result is ``[N, embedding_dim]`` in float32.
    """
    half = embedding_dim // 2
    exponent = -math.log(max_period) / (half - downscale_freq_shift)
    steps = emit_tensor(ops.arange(0, half, 1, "float32"))
    rates = emit_tensor(ops.exp(steps * exponent))
    angles = reshape(astype(x, "float32"), [-1, 1]) * reshape(rates, [1, -1]) * float(scale)
    parts = [emit_tensor(ops.sin(angles)), emit_tensor(ops.cos(angles))]
    if flip_sin_to_cos:
        parts.reverse()
    made = emit_tensor(ops.concat([part._expr for part in parts], 1), name)
    if embedding_dim % 2:
        made = pad(made, [0, 0, 0, 1], name=name)
    return made


__all__ = [
    "conv1d", "conv1d_transpose", "conv2d", "conv3d", "get_timestep_embedding", "group_norm",
    "interpolate", "layer_norm", "pad", "rms_norm", "scaled_dot_product_attention",
]  # fmt: skip
