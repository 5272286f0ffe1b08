"""Gradients of products, convolutions, pooling, norms and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.arith import simplify
from tilewright.ir import as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.gradients.common import (
    as_dtype,
    collapse_to,
    count,
    number,
    slice_axis,
    swap_last,
)
from tilewright.relax.gradients.convolution import Windows, image_gradient, weight_gradient
from tilewright.relax.gradients.registry import (
    Gradients,
    differentiate_as,
    register_gradient,
)
from tilewright.relax.values import const
from tilewright.support.errors import VerifyError
from tilewright.topi.nn.attention import parse_layouts
from tilewright.topi.nn.pooling import adaptive_windows
from tilewright.topi.utils import padding_of, pair

# ---- matrix products -------------------------------------------------------------------------


@register_gradient("matmul")
def _matmul(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    left, right = call.args
    a, b, transposed = left, right, call.attrs["transpose_b"]
    if b.ndim == 1:
        b, grad = op.expand_dims(b, -1), op.expand_dims(grad, -1)
    if a.ndim == 1:
        a, grad = op.expand_dims(a, 0), op.expand_dims(grad, -2)
    for_a, for_b = as_dtype(grad, a.dtype), as_dtype(grad, b.dtype)
    made_a = op.matmul(for_a, b) if transposed else op.matmul(for_a, b, transpose_b=True)
    if b.ndim == 2 and a.ndim > 2:
        rows = count(a.shape[:-1])
        a = op.reshape(a, (rows, a.shape[-1]))
        for_b = op.reshape(for_b, (rows, for_b.shape[-1]))
    made_b = op.matmul(swap_last(for_b), a) if transposed else op.matmul(swap_last(a), for_b)
    return [_of_shape(made_a, left), _of_shape(made_b, right)]


def _of_shape(made: RelaxExpr, like: RelaxExpr) -> RelaxExpr:
    """A gradient of a product's operand, without the axes that were added to it."""
    if like.ndim == 1:
        flat = [extent for extent in made.shape[-2:] if as_int(extent) != 1]
        shape = (*made.shape[:-2], *(flat or like.shape))
        return collapse_to(op.reshape(made, shape), like.shape)
    return collapse_to(made, like.shape)


# ---- convolutions ----------------------------------------------------------------------------


def _windows(call: RelaxCall, spatial: int) -> Windows:
    attrs = call.attrs
    before, after = padding_of(attrs["padding"], spatial)
    strides, dilation = pair(attrs["strides"], spatial), pair(attrs["dilation"], spatial)
    return Windows(strides, before, after, dilation, attrs["groups"])


def _require_layouts(call: RelaxCall) -> None:
    names = ("data_layout", "kernel_layout", "out_layout", "layout")
    layouts = [call.attrs[name] for name in names if call.attrs.get(name)]
    if not all(map(str.isalpha, layouts)):
        raise VerifyError(
            f"{call.op_name} has a gradient for layouts without blocks, got {layouts}: "
            "differentiate before layouts are chosen"
        )


def _conv(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    _require_layouts(call)
    data, weight = call.args
    form = _windows(call, data.ndim - 2)
    spare: list[int] = []
    for a, step in enumerate(form.strides):
        # The last pixels that no window reached.
        left = data.shape[2 + a] + form.before[a] + form.after[a]
        left = left - (weight.shape[2 + a] - 1) * form.dilation[a] - 1
        known = as_int(simplify(left % step))
        spare.append(step - 1 if known is None else known)
    made = image_gradient(grad, weight, data.shape[2:], spare, form)
    return [made, weight_gradient(grad, data, _window(weight), form)]


def _window(weight: RelaxExpr) -> list[int]:
    """The extents of filters."""
    extents = [as_int(extent) for extent in weight.shape[2:]]
    if None in extents:
        raise VerifyError(f"filters of unknown extents have no gradient: {weight.shape}")
    return [extent or 0 for extent in extents]


def _conv_transpose(
    var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder
) -> Gradients:
    data, weight = call.args
    spatial = data.ndim - 2
    form = _windows(call, spatial)
    grad = as_dtype(grad, data.dtype)
    convolve: Callable[..., RelaxExpr] = getattr(op.nn, f"conv{spatial}d")
    made = convolve(grad, weight, form.strides, form.padding, form.dilation, form.groups)
    for a in range(spatial):
        made = slice_axis(made, 2 + a, 0, data.shape[2 + a])
    # Operand and result change places.
    return [made, weight_gradient(data, grad, _window(weight), form)]


for _spatial in (1, 2, 3):
    register_gradient(f"nn.conv{_spatial}d", _conv)
    register_gradient(f"nn.conv{_spatial}d_transpose", _conv_transpose)


# ---- pooling ---------------------------------------------------------------------------------


def _pooling(var: RelaxVar, call: RelaxCall, grad: RelaxExpr, ctx: BlockBuilder) -> Gradients:
    _require_layouts(call)
    backward = getattr(op.grad, call.op_name.removeprefix("nn.") + "_backward")
    return [backward(grad, call.args[0], **call.attrs)]


for _spatial in (1, 2, 3):
    register_gradient(f"nn.max_pool{_spatial}d", _pooling)
    register_gradient(f"nn.avg_pool{_spatial}d", _pooling)


def _adaptive_sizes(call: RelaxCall) -> list[int]:
    return list(pair(call.attrs["output_size"], call.args[0].ndim - 2))


def _as_means(call: RelaxCall) -> RelaxExpr:
    """Adaptive mean: along each axis a product with a matrix of shares."""
    _require_layouts(call)
    x = call.args[0]
    sizes = _adaptive_sizes(call)
    if set(sizes) == {1}:
        return op.mean(x, tuple(range(2, x.ndim)), keepdims=True)
    for axis, size in enumerate(sizes, 2):
        extent = as_int(x.shape[axis]) or 0
        shares = np.zeros((size, extent), x.dtype)
        for row, (start, end) in enumerate(adaptive_windows(extent, size)):
            shares[row, start:end] = 1 / (end - start)
        order = [n for n in range(x.ndim) if n != axis] + [axis]
        rows = op.matmul(op.permute_dims(x, order), const(shares), transpose_b=True)
        x = op.permute_dims(rows, [order.index(n) for n in range(x.ndim)])
    return x


for _spatial in (1, 2, 3):
    differentiate_as(f"nn.adaptive_avg_pool{_spatial}d")(_as_means)


@differentiate_as("nn.adaptive_max_pool1d")
@differentiate_as("nn.adaptive_max_pool2d")
@differentiate_as("nn.adaptive_max_pool3d")
def _as_maxima(call: RelaxCall) -> RelaxExpr:
    """Adaptive maximum: each window's, side by side."""
    _require_layouts(call)
    x = call.args[0]
    extents = [as_int(extent) for extent in x.shape[2:]]
    spatial = tuple(range(2, x.ndim))
    if None in extents:
        return op.max(x, spatial, keepdims=True)
    windows = [
        adaptive_windows(int(e or 0), size) for e, size in zip(extents, _adaptive_sizes(call))
    ]
    pool = (op.nn.max_pool1d, op.nn.max_pool2d, op.nn.max_pool3d)[len(spatial) - 1]

    def pooled(part: RelaxExpr, size: tuple[int, ...]) -> RelaxExpr:
        axis = 2 + len(size)
        if axis == x.ndim:
            return pool(part, size, size)
        pieces = [
            pooled(op.strided_slice(part, [axis], [begin], [end]), (*size, end - begin))
            for begin, end in windows[len(size)]
        ]
        return op.concat(pieces, axis)

    return pooled(x, ())


# ---- norms -----------------------------------------------------------------------------------


def _wide(x: RelaxExpr) -> RelaxExpr:
    """16-bit floats in single precision."""
    return as_dtype(x, "float32") if dtypes.bits_of(x.dtype) == 16 else x


def _along(scale: RelaxExpr, x: RelaxExpr, axes: Sequence[int]) -> RelaxCall:
    """A scale that has the extents of some axes, with all axes."""
    shape = [x.shape[axis] if axis in axes else 1 for axis in range(x.ndim)]
    return op.reshape(as_dtype(scale, x.dtype), shape)


@differentiate_as("nn.layer_norm")
def layer_norm_arithmetic(call: RelaxCall) -> RelaxExpr:
    """Layer normalisation by simpler operators."""
    data, *scales = call.args
    axes = call.attrs["axes"]
    x = _wide(data)
    centred = x - op.mean(x, axes, keepdims=True)
    scale = op.rsqrt(op.mean(centred * centred, axes, keepdims=True) + call.attrs["epsilon"])
    made = centred * scale
    if scales:
        made = made * _along(scales[0], x, axes)
    if len(scales) > 1:
        made = made + _along(scales[1], x, axes)
    return as_dtype(made, data.dtype)


@differentiate_as("nn.rms_norm")
def _rms_norm_arithmetic(call: RelaxCall) -> RelaxExpr:
    data, weight = call.args
    axes = call.attrs["axes"]
    x = _wide(data)
    scale = op.rsqrt(op.mean(x * x, axes, keepdims=True) + call.attrs["epsilon"])
    return as_dtype(x * scale * _along(weight, x, axes), data.dtype)


# ---- attention -------------------------------------------------------------------------------


@differentiate_as("nn.scaled_dot_product_attention")
def _attention_arithmetic(call: RelaxCall) -> RelaxExpr:
    """Products and a softmax, in which masked scores have no part."""
    layouts = parse_layouts(call.attrs["layout"])
    query, key, value, *rest = call.args
    q, k, v = (_heads_first(x, form) for x, form in zip((query, key, value), layouts))
    heads, key_heads = as_int(q.shape[1]), as_int(k.shape[1])
    if heads != key_heads and heads is not None and key_heads is not None:
        k, v = (op.repeat(x, heads // key_heads, 1) for x in (k, v))
    scale = call.attrs["scale"]
    if scale is None:
        scale = float(as_int(q.shape[-1]) or 1) ** -0.5
    scores = op.matmul(q, k, transpose_b=True) * float(scale)
    visible = _visible(call, scores, rest[0] if rest else None)
    if rest and rest[0].dtype != "bool":
        scores = scores + rest[0]
    if visible is None:
        weights = op.nn.softmax(scores, -1)
    else:
        lowest = number(-60000 if scores.dtype == "float16" else -1e37, scores)
        weights = op.nn.softmax(op.where(visible, scores, lowest), -1)
        weights = op.where(visible, weights, number(0, weights))
    return _heads_first(op.matmul(weights, v), layouts[3])


def _heads_first(x: RelaxExpr, layout: str) -> RelaxExpr:
    """Between a layout and ``BHSD``, either way."""
    return x if layout == "BHSD" else op.permute_dims(x, (0, 2, 1, 3))


def _visible(call: RelaxCall, scores: RelaxExpr, mask: RelaxExpr | None) -> RelaxCall | None:
    """Which keys each query sees; ``None`` for all."""
    queries, keys = scores.shape[-2:]
    made: RelaxExpr | None = None
    causal = call.attrs["causal_mask"]
    if causal is not None:
        first = keys - queries if causal == "BottomRight" else 0
        rows = op.arange(simplify(first + 0 * keys), simplify(first + queries), 1, "int64")
        places = op.reshape(rows, (queries, 1))
        columns = op.reshape(op.arange(0, keys, 1, "int64"), (1, keys))
        made = op.less_equal(columns, places)
        window = call.attrs["window_size"]
        if window is not None:
            near = op.less(op.subtract(places, columns), const(window, "int64"))
            made = op.logical_and(made, near)
    if mask is not None:
        own = mask
        if mask.dtype != "bool":
            own = op.greater(mask, number(float("-inf"), mask))
        made = own if made is None else op.logical_and(made, own)
    return None if made is None else op.broadcast_to(made, scores.shape)
