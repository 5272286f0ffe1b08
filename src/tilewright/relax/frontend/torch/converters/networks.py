"""Neural network operators: convolution, pooling, normalisation, softmax, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tilewright import topi
from tilewright.ir import Expr, as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import Constant, RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    Context,
    Results,
    Size,
    Sizes,
    converts,
    dtype_name,
)
from tilewright.relax.ops.common import element_count
from tilewright.relax.struct_info import prove_equal
from tilewright.relax.values import const, numpy_dtype
from tilewright.topi.utils import sum_dtype

if TYPE_CHECKING:
    import torch

S = TypeVar("S")


# ---- convolution ------------------------------------------------------------------------------


def pair(values: int | Sequence[S], count: int) -> tuple[int | S, ...]:
    """Repeat the number of a one-element list (PyTorch's short form)."""
    made: tuple[int | S, ...] = (values,) if isinstance(values, int) else tuple(values)
    return made * count if len(made) == 1 else made


def _add_bias(ctx: Context, made: RelaxExpr, bias: RelaxExpr | None) -> RelaxExpr:
    if bias is None:
        return made
    channels = op.reshape(bias, (1, bias.shape[0], *[1] * (made.ndim - 2)))
    return ctx.cast(op.add(made, ctx.cast(channels, made.dtype)), bias.dtype)


@dataclass(frozen=True)
class Convolution:
    """Parameters of a convolution in PyTorch's form: numbers, or lists of one or more."""

    stride: Sizes = 1
    padding: Sizes = 0
    dilation: Sizes = 1
    groups: Size = 1
    output_padding: Sizes = 0  # of transposed ones

    def along(self, ctx: Context, field: str, spatial: int) -> tuple[int, ...]:
        """A field's numbers, one for each axis (padding may have twice as many)."""
        return pair(ctx.ints(_list(getattr(self, field)), field), spatial)


def convolved(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr, bias: RelaxExpr | None, form: Convolution
) -> RelaxExpr:
    """Convolve a batch of images, or one image."""
    spatial = weight.ndim - 2
    unbatched = x.ndim == spatial + 1
    if unbatched:
        x = op.expand_dims(x, 0)
    groups = ctx.int(form.groups, "groups")
    stride, padding, dilation = (
        form.along(ctx, field, spatial) for field in ("stride", "padding", "dilation")
    )
    if spatial == 1:
        made: RelaxExpr = op.nn.conv1d(x, weight, stride[0], padding, dilation[0], groups)
    elif spatial in (2, 3):
        convolve = op.nn.conv2d if spatial == 2 else op.nn.conv3d
        made = convolve(x, weight, stride, padding, dilation, groups)
    else:
        raise ctx.error(f"convolutions over 1, 2 or 3 axes are supported, not {spatial}")
    made = _add_bias(ctx, made, bias)
    return op.squeeze(made, (0,)) if unbatched else made


def convolved_transposed(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr, bias: RelaxExpr | None, form: Convolution
) -> RelaxExpr:
    """Convolve transposed a batch of images, or one image."""
    spatial = weight.ndim - 2
    convolve = {
        1: op.nn.conv1d_transpose,
        2: op.nn.conv2d_transpose,
        3: op.nn.conv3d_transpose,
    }.get(spatial)
    if convolve is None:
        raise ctx.error(f"transposed convolutions over 1, 2 or 3 axes are supported, not {spatial}")
    unbatched = x.ndim == spatial + 1
    fields = ("stride", "padding", "output_padding", "dilation")
    wide = sum_dtype(x.dtype)  # half floats are rounded once the bias is added
    made: RelaxExpr = convolve(
        op.expand_dims(x, 0) if unbatched else x,
        weight,
        *(form.along(ctx, field, spatial) for field in fields),
        ctx.int(form.groups, "groups"),
        out_dtype=None if bias is None or wide == x.dtype else wide,
    )
    made = _add_bias(ctx, made, bias)
    return op.squeeze(made, (0,)) if unbatched else made


@converts("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
def _conv_default(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr, bias: RelaxExpr | None = None,
    stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1, groups: Size = 1,
) -> RelaxExpr:  # fmt: skip
    return convolved(ctx, x, weight, bias, Convolution(stride, padding, dilation, groups))


def _list(values: Sizes) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


@converts("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def _conv_padding(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr, bias: RelaxExpr | None = None,
    stride: Sizes = 1, padding: str = "valid", dilation: Sizes = 1, groups: Size = 1,
) -> RelaxExpr:  # fmt: skip
    spatial = weight.ndim - 2
    reach = pair(ctx.ints(_list(dilation), "dilation"), spatial)
    kernel = ctx.ints(weight.shape[2:], "kernel size")
    total = [by * (size - 1) if padding == "same" else 0 for by, size in zip(reach, kernel)]
    # As in PyTorch, the odd element goes after.
    sides = [amount // 2 for amount in total] + [amount - amount // 2 for amount in total]
    return convolved(ctx, x, weight, bias, Convolution(stride, sides, reach, groups))


@dataclass(frozen=True)
class _Transposed:
    """The arguments of PyTorch's transposed convolutions, after the tensors."""

    stride: Sizes = 1
    padding: Sizes = 0
    output_padding: Sizes = 0
    groups: Size = 1
    dilation: Sizes = 1


@converts("aten.conv_transpose1d.default", "aten.conv_transpose2d.input",
          "aten.conv_transpose3d.input", form=_Transposed)  # fmt: skip
def _conv_transpose_default(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr, bias: RelaxExpr | None, form: _Transposed
) -> RelaxExpr:
    how = Convolution(form.stride, form.padding, form.dilation, form.groups, form.output_padding)
    return convolved_transposed(ctx, x, weight, bias, how)


@dataclass(frozen=True)
class AnyConvolution:
    """The arguments of PyTorch's general convolution, after the tensors."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool
    output_padding: Sizes
    groups: Size
    output_mask: Sequence[bool] = ()
    """Which gradients are wanted, of the backward operator."""

    @property
    def parameters(self) -> Convolution:
        """Without what tells the kinds apart."""
        return Convolution(
            self.stride, self.padding, self.dilation, self.groups, self.output_padding
        )


@converts("aten.convolution.default", form=AnyConvolution)
def _convolution(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr, bias: RelaxExpr | None, form: AnyConvolution
) -> RelaxExpr:
    convolve = convolved_transposed if form.transposed else convolved
    return convolve(ctx, x, weight, bias, form.parameters)


# ---- pooling ----------------------------------------------------------------------------------


def _batched(x: RelaxExpr, spatial: int, function: Callable[[RelaxExpr], RelaxExpr]) -> RelaxExpr:
    """Pool an image without a batch axis as a batch of one."""
    if x.ndim == spatial + 2:
        return function(x)
    return op.squeeze(function(op.expand_dims(x, 0)), (0,))


@dataclass(frozen=True)
class _Maxima:
    """The arguments of PyTorch's maximum pooling, after the tensor."""

    kernel: int | Sequence[int]
    stride: int | Sequence[int] = ()  # the kernel's extents
    padding: int | Sequence[int] = 0
    dilation: int | Sequence[int] = 1
    ceil_mode: bool = False

    def windows(self, ctx: Context) -> tuple[tuple[int, ...], ...]:
        """Extents, steps, padding and dilation along each axis."""
        spatial = ctx.spatial
        size = pair(self.kernel, spatial)
        steps = pair(self.stride, spatial) if self.stride else size
        return size, steps, pair(self.padding, spatial), pair(self.dilation, spatial)


@converts("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default",
          form=_Maxima)  # fmt: skip
def _max_pool(ctx: Context, x: RelaxExpr, form: _Maxima) -> RelaxExpr:
    spatial = ctx.spatial
    pool = (op.nn.max_pool1d, op.nn.max_pool2d, op.nn.max_pool3d)[spatial - 1]
    return _batched(x, spatial, lambda image: pool(image, *form.windows(ctx), form.ceil_mode))


@converts("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default",
          form=_Maxima)  # fmt: skip
def _max_pool_with_indices(ctx: Context, x: RelaxExpr, form: _Maxima) -> Results:
    made = _max_pool(ctx, x, form)
    if not ctx.uses(1):
        return [made, None]
    windows = form.windows(ctx)
    return [
        made,
        _batched(
            x, ctx.spatial, lambda image: op.nn.max_pool_places(image, *windows, form.ceil_mode)
        ),
    ]


@dataclass(frozen=True)
class Means:
    """The arguments of PyTorch's average pooling, after the tensor."""

    kernel: int | Sequence[int]
    stride: int | Sequence[int] = ()  # the kernel's extents
    padding: int | Sequence[int] = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None


@converts("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default",
          form=Means)  # fmt: skip
def _avg_pool(ctx: Context, x: RelaxExpr, form: Means) -> RelaxExpr:
    spatial = ctx.spatial
    pool = (op.nn.avg_pool1d, op.nn.avg_pool2d, op.nn.avg_pool3d)[spatial - 1]
    size = pair(form.kernel, spatial)
    steps = pair(form.stride, spatial) if form.stride else size
    sides = pair(form.padding, spatial)
    if form.divisor_override is not None:
        # Sums of half floats are rounded, and may be too large, before they are divided.
        sums = _window_sums(ctx, ctx.cast(x, sum_dtype(x.dtype)), size, steps, sides)
        return ctx.cast(op.divide(sums, ctx.tensor(form.divisor_override, sums.dtype)), ctx.dtype)
    return _batched(
        x,
        spatial,
        lambda image: pool(image, size, steps, sides, 1, form.ceil_mode, form.count_include_pad),
    )


def _window_sums(
    ctx: Context, x: RelaxExpr, size: Sequence[int], steps: Sequence[int], sides: Sequence[int]
) -> RelaxExpr:
    """Sums over windows along the last axes of an image, with zeros at its sides."""
    outer = x.ndim - len(size)
    have, want = (ctx.ints(shape[outer:], "sizes of the image") for shape in (x.shape, ctx.shape))
    width = [0, 0] * outer
    for extent, count, reach, step, side in zip(have, want, size, steps, sides):
        width += [side, max(0, (count - 1) * step + reach - extent - side)]
    image = op.nn.pad(x, tuple(width)) if any(width) else x
    strides = [element_count(image.shape[axis + 1 :]) for axis in range(x.ndim)]
    moves = [stride * step for stride, step in zip(strides[outer:], steps)]
    windows = op.as_strided(
        image, (*ctx.shape, *size), (*strides[:outer], *moves, *strides[outer:])
    )
    return op.sum(windows, tuple(range(x.ndim, windows.ndim)))


Extents = Size | Sequence[Size | None]  # ``None`` keeps an extent


def _adaptive_pool(ctx: Context, x: RelaxExpr, output_size: Extents, kind: str) -> RelaxExpr:
    """Means (``avg``), maxima (``max``), or where in the image these are (``places``)."""
    spatial = ctx.spatial
    extents = x.shape[-spatial:]
    given = output_size if isinstance(output_size, Sequence) else [output_size]
    given = list(given) * (spatial // len(given))
    size = [extent if s is None else s for s, extent in zip(given, extents)]
    known = [ctx.known(s) for s in size]
    if kind == "places":
        numbers = tuple(ctx.ints(size, "output_size, where places are wanted,"))
        return _batched(x, spatial, lambda i: op.nn.adaptive_max_pool_places(i, numbers))
    name = f"adaptive_{kind}_pool{spatial}d"
    if None in known:
        define = getattr(topi.nn, name)
        return _batched(x, spatial, lambda i: ctx.builder.emit_te(define, i, size))
    return _batched(x, spatial, lambda i: getattr(op.nn, name)(i, tuple(known)))


@converts("aten.adaptive_avg_pool1d.default", "aten.adaptive_avg_pool2d.default",
          "aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool3d.default",
          "aten._adaptive_avg_pool3d.default")  # fmt: skip
def _adaptive_avg_pool(ctx: Context, x: RelaxExpr, output_size: Extents) -> RelaxExpr:
    return _adaptive_pool(ctx, x, output_size, "avg")


@converts("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def _adaptive_max_pool(ctx: Context, x: RelaxExpr, output_size: Extents) -> Results:
    made: Results = [_adaptive_pool(ctx, x, output_size, "max"), None]
    if ctx.uses(1):
        made[1] = _adaptive_pool(ctx, x, output_size, "places")
    return made


# ---- normalisation ----------------------------------------------------------------------------


def _constant(value: float, shape: Sequence[int], dtype: str) -> Constant:
    return const(np.full(shape, value, numpy_dtype(dtype)))


def batch_normalized(
    ctx: Context, x: RelaxExpr, weight: RelaxExpr | None, bias: RelaxExpr | None, mean: RelaxExpr,
    var: RelaxExpr, eps: float,
) -> RelaxExpr:  # fmt: skip
    """Normalise by given statistics."""
    if x.ndim < 2:
        return x  # without channels, PyTorch takes it if it has no elements
    shape = ctx.ints([x.shape[1]], "the number of channels")
    gamma = weight if weight is not None else _constant(1, shape, x.dtype)
    beta = bias if bias is not None else _constant(0, shape, x.dtype)
    return op.nn.batch_norm(x, gamma, beta, mean, var, 1, eps, training=False)[0]


def _ones(ctx: Context, shape: Sequence[Size], dtype: str) -> RelaxExpr:
    """Weights that change nothing; of a size that the call tells, if that isn't known."""
    known = [ctx.known(extent) for extent in shape]
    if None in known:
        made: RelaxExpr = op.ones(tuple(shape), dtype)
        return made
    return _constant(1, [extent or 0 for extent in known], dtype)


@converts("aten.layer_norm.default")
def layer_normalized(
    ctx: Context, x: RelaxExpr, normalized_shape: Sequence[Size], weight: RelaxExpr | None = None,
    bias: RelaxExpr | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> RelaxExpr:  # fmt: skip
    """Normalise the last axes; without weights, they are ones."""
    count = len(normalized_shape)
    axes = tuple(range(x.ndim - count, x.ndim))
    if weight is None:
        weight = _ones(ctx, x.shape[x.ndim - count :], x.dtype)
    return op.nn.layer_norm(x, weight, bias, axes, eps)


@converts("aten.rms_norm.default")
def rms_normalized(
    ctx: Context, x: RelaxExpr, normalized_shape: Sequence[Size], weight: RelaxExpr | None = None,
    eps: float | None = None,
) -> RelaxExpr:  # fmt: skip
    """Divide by the root mean square of the last axes; without weights, they are ones."""
    import torch

    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    if weight is None:
        weight = _ones(ctx, x.shape[axes[0] :], x.dtype)
    if eps is None:
        eps = torch.finfo(getattr(torch, x.dtype)).eps
    return op.nn.rms_norm(x, weight, axes, eps)


@converts("aten.group_norm.default")
def group_normalized(
    ctx: Context, x: RelaxExpr, groups: int, weight: RelaxExpr | None = None,
    bias: RelaxExpr | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> RelaxExpr:  # fmt: skip
    """Normalise the channels in groups."""
    shape = ctx.ints([x.shape[1]], "the number of channels")
    gamma = weight if weight is not None else _constant(1, shape, x.dtype)
    beta = bias if bias is not None else _constant(0, shape, x.dtype)
    return op.nn.group_norm(x, gamma, beta, groups, 1, range(2, x.ndim), eps)


# ---- softmax and attention --------------------------------------------------------------------


@converts("aten.softmax.int")
def _softmax(ctx: Context, x: RelaxExpr, dim: int, dtype: torch.dtype | None = None) -> RelaxExpr:
    made = x if dtype is None else ctx.cast(x, dtype_name(dtype))
    return ctx.as_result(op.nn.softmax(ctx.row(made), ctx.axis(dim, x.ndim)))


@converts("aten._softmax.default")
def _softmax_core(ctx: Context, x: RelaxExpr, dim: int, half_to_float: bool) -> RelaxExpr:
    return ctx.as_result(op.nn.softmax(ctx.row(ctx.cast(x, ctx.dtype)), ctx.axis(dim, x.ndim)))


@converts("aten.log_softmax.int")
def _log_softmax(
    ctx: Context, x: RelaxExpr, dim: int, dtype: torch.dtype | None = None
) -> RelaxExpr:
    made = x if dtype is None else ctx.cast(x, dtype_name(dtype))
    return ctx.as_result(op.nn.log_softmax(ctx.row(made), ctx.axis(dim, x.ndim)))


@converts("aten._log_softmax.default")
def _log_softmax_core(ctx: Context, x: RelaxExpr, dim: int, half_to_float: bool) -> RelaxExpr:
    made = ctx.row(ctx.cast(x, ctx.dtype))
    return ctx.as_result(op.nn.log_softmax(made, ctx.axis(dim, x.ndim)))


def _causal_mask(rows: Expr, columns: Expr) -> RelaxExpr:
    """Which keys a query may see: those not after it."""
    height, width = as_int(rows), as_int(columns)
    if height is not None and width is not None:
        return const(np.tril(np.ones((height, width), "bool")))
    made: RelaxExpr = op.less_equal(
        op.expand_dims(op.arange(0, columns), 0), op.expand_dims(op.arange(0, rows), 1)
    )
    return made


def _attention_scale(ctx: Context, query: RelaxExpr, scale: float | None) -> float:
    if scale is not None:
        return scale
    return 1.0 / math.sqrt(ctx.int(query.shape[-1], "the depth of the heads"))


@dataclass(frozen=True)
class _Attention:
    """The arguments of PyTorch's attention, after query, key and value."""

    mask: RelaxExpr | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False  # there may be more query heads than key heads


@converts("aten.scaled_dot_product_attention.default", form=_Attention)
def _attention(
    ctx: Context, query: RelaxExpr, key: RelaxExpr, value: RelaxExpr, form: _Attention
) -> RelaxExpr:
    """``softmax(q @ k.T * scale + mask) @ v`` over ``[..., heads, sequence, depth]``."""
    if form.dropout_p > 0:
        raise ctx.error("dropout is active in attention: call model.eval() before torch.export")
    if _is_one_attention(query, key, value, form):
        return _one_attention(query, key, value, form)
    return _attention_in_steps(ctx, query, key, value, form)


@converts("aten._scaled_dot_product_flash_attention_for_cpu.default")
def _cpu_attention(
    ctx: Context, query: RelaxExpr, key: RelaxExpr, value: RelaxExpr, dropout_p: float = 0.0,
    is_causal: bool = False, *, attn_mask: RelaxExpr | None = None, scale: float | None = None,
) -> Results:  # fmt: skip
    """What PyTorch makes of attention. It computes itself what gradients need."""
    if ctx.uses(1):
        raise ctx.error("the logarithms of the sums of attention are not supported")
    grouped = not prove_equal(query.shape[1], key.shape[1])
    form = _Attention(attn_mask, dropout_p, is_causal, scale, grouped)
    return [_attention(ctx, query, key, value, form), None]


def _is_one_attention(query: RelaxExpr, key: RelaxExpr, value: RelaxExpr, form: _Attention) -> bool:
    """Whether the attention operator takes these; PyTorch broadcasts more, in any dtype."""
    ndim = query.ndim
    if ndim not in (3, 4) or (key.ndim, value.ndim) != (ndim, ndim):
        return False
    if query.dtype not in ("float32", "float16", "bfloat16") or as_int(query.shape[-1]) is None:
        return False
    if form.mask is not None and form.mask.ndim > ndim:
        return False
    outer = 1 if form.enable_gqa and ndim == 4 else ndim - 2
    pairs = zip(query.shape[:outer], key.shape[:outer], value.shape[:outer])
    return all(prove_equal(q, k) and prove_equal(q, v) for q, k, v in pairs)


def _one_attention(
    query: RelaxExpr, key: RelaxExpr, value: RelaxExpr, form: _Attention
) -> RelaxExpr:
    mask, without_heads = form.mask, query.ndim == 3
    if without_heads:
        query, key, value = (op.expand_dims(x, 1) for x in (query, key, value))
        if mask is not None and mask.ndim == 3:
            mask = op.expand_dims(mask, 1)
    causal = "TopLeft" if form.is_causal else None
    made = op.nn.scaled_dot_product_attention(
        query, key, value, mask, scale=form.scale, causal_mask=causal
    )
    return op.squeeze(made, 1) if without_heads else made


def _attention_in_steps(
    ctx: Context, query: RelaxExpr, key: RelaxExpr, value: RelaxExpr, form: _Attention
) -> RelaxExpr:
    if form.enable_gqa:
        query_heads, key_heads = ctx.ints([query.shape[-3], key.shape[-3]], "numbers of heads")
        times = query_heads // key_heads
        key, value = (op.repeat(x, times, x.ndim - 3) if times > 1 else x for x in (key, value))
    swapped = (*range(key.ndim - 2), key.ndim - 1, key.ndim - 2)
    scores = op.matmul(query, op.permute_dims(key, swapped))
    scores = op.multiply(scores, _attention_scale(ctx, query, form.scale))
    if form.is_causal:
        allowed = _causal_mask(query.shape[-2], key.shape[-2])
        scores = op.where(allowed, scores, ctx.tensor(-math.inf, query.dtype))
        return op.matmul(op.nn.softmax(scores, -1), value)
    if form.mask is None:
        return op.matmul(op.nn.softmax(scores, -1), value)
    return op.matmul(_masked_softmax(ctx, scores, form.mask), value)


def _masked_softmax(ctx: Context, scores: RelaxExpr, mask: RelaxExpr) -> RelaxExpr:
    """Softmax under a mask; a query that may see nothing gets zeros, not NaN, as in PyTorch."""
    lowest = ctx.tensor(-math.inf, scores.dtype)
    if mask.dtype == "bool":
        allowed = mask
        scores = op.where(mask, scores, lowest)
    else:
        mask = ctx.cast(mask, scores.dtype)
        allowed = op.greater(mask, lowest)
        scores = op.add(scores, mask)
    sees_any = op.any(allowed, (mask.ndim - 1,), True)
    return op.where(sees_any, op.nn.softmax(scores, -1), ctx.tensor(0.0, scores.dtype))
